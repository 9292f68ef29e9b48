"""What a source includes, found and put into memory, so that the compiler reads no file.

NVRTC takes headers in memory by the name that stands in the directive, and does not look beside the header that
includes another. So every directive that names a known file is written anew with that file's one name; nothing else of
a text is changed. A directive inside a false condition is followed like any other: a header more does no harm.

A name that is a macro's value, or a place on a machine, is one of a file that the artifact's key does not know. In a
user's text such a name is written anew as one that the compiler refuses, where it comes to it. Date and time of the
compile, on which no artifact may depend, are written anew as macros of a fixed moment.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterable, Mapping

from backends.cuda.directives import Named, moments, named

#: Gives the text of a file by its path; None where there is none.
Find = Callable[[str], "str | None"]


@functools.lru_cache(maxsize=8192)
def included(text: str) -> tuple[tuple[str, bool], ...]:
    """The names that a text includes, each with whether it stands in quotes; once each."""
    return tuple(dict.fromkeys((n.name, n.quoted) for n in named(text) if n.name is not None))


#: Headers that are made, and that no file stands for.
_GENERATED = "sched/"
#: What stands for a name that is refused: the compiler says that it is no file's, and ends.
_NONE = "SCHED_NO_FILE"
#: What stands for the moment of the compile, and is as long as that, so that columns stay.
_MOMENTS = {"__DATE__": "SCHED_D_", "__TIME__": "SCHED_T_"}
#: Macros that a compile of what is written anew needs.
DEFINES = {"SCHED_D_": '"Jan  1 1970"', "SCHED_T_": '"00:00:00"'}


def closure(name: str, find: Find, roots: Iterable[str]) -> dict[str, str]:
    """The file `name` and every file that it includes, in however many steps, by path.

    Raises KeyError where `name` itself is not found.
    """
    text = find(name)
    if text is None:
        raise KeyError(name)
    roots, files, open_ = tuple(roots), {name: text}, [name]
    absent: set[str] = set()
    while open_:
        by = open_.pop()
        for other, quoted in included(files[by]):
            if other.startswith(_GENERATED):
                continue
            for path in _places(other, quoted, by, roots):
                if path in files:
                    break
                if path not in absent and (content := find(path)) is not None:
                    files[path] = content
                    open_.append(path)
                    break
                absent.add(path)
    return files


def refused(text: str, line: int) -> tuple[int, str, str] | None:
    """Column, message and mend of what is refused in a line of a user's text, lines and columns counted from 1."""
    for place in named(text):
        if _is_refused(place) and text.count("\n", 0, place.begin) + 1 == line:
            at = place.begin - text.rfind("\n", 0, place.begin)
            if place.name is None:
                told = "the name of this header is a macro's value, so that it is not known what the kernel is made of"
                return at, told, "write the name itself, in the directive; with `#if` between several"
            told = f"the header {place.name[:200]} has an absolute path, which is another file on another machine"
            return at, told, "name it relative to this file, or to a folder that is searched (-I)"
    return None


def _is_refused(place: Named) -> bool:
    return place.name is None or place.name.startswith("/")


def rewritten(name: str, text: str, known: Mapping[str, str], roots: Iterable[str], *, own: bool = False) -> str:
    """`text`, with every directive that means a file of `known` naming it as it is called there.

    In the user's `own` texts what is refused or fixed is written anew as well.
    """
    roots = tuple(roots)
    places = [(begin, end, _MOMENTS[name]) for begin, end, name in moments(text)] if own else []
    for place in named(text):
        if own and _is_refused(place):
            anew = _NONE
        else:
            found = _places(place.name, place.quoted, name, roots) if place.name is not None else []
            path = next((p for p in found if p in known), None)
            if path is None or place.macro or path == place.name:
                continue
            anew = f'"{path}"'
        places.append((place.begin, place.end, anew))
    parts, done = list[str](), 0
    for begin, end, anew in sorted(places):
        ends = text.count("\n", begin, end)  # of lines that go on behind a backslash
        parts += [text[done:begin], anew, "\\\n" * ends]
        done = end
    return "".join([*parts, text[done:]])


def _places(name: str, quoted: bool, by: str, roots: tuple[str, ...]) -> list[str]:
    """Where `by` means a header to be: beside itself, if it is in quotes, then below each of the roots."""
    if name.startswith("/"):
        return []
    own = max((root for root in roots if by.startswith(root)), key=len, default="")
    beside = [own + _plain(posixpath.join(posixpath.dirname(by.removeprefix(own)), name))] if quoted else []
    return [*beside, *(root + _plain(name) for root in roots)]


def _plain(path: str) -> str:
    """A path below a root, which may also lead above it, without detours."""
    return posixpath.normpath(path)
