"""What a source includes, found and put into memory, so that the compiler reads no file.

NVRTC takes headers in memory by the name that stands in the directive, and does not look beside the header that
includes another. So every directive that names a known file is written anew with that file's one name; nothing else of
a text is changed. A directive inside a false condition is followed like any other: a header more does no harm.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping

#: Gives the text of a file by its path; None where there is none.
Find = Callable[[str], "str | None"]

#: A directive, or the question whether a header is there, which is answered from memory as well.
_DIRECTIVE = re.compile(
    r"(?P<head>^[ \t]*(?:#|%:)[ \t]*include(?:_next)?[ \t]*|\b__has_include[ \t]*\([ \t]*)"
    r'(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)',
    re.MULTILINE,
)


#: CUTLASS includes CCCL's headers through this macro.
_MACRO = re.compile(r"\bCUDA_STD_HEADER\((\w+)\)")


@functools.lru_cache(maxsize=8192)
def included(text: str) -> tuple[tuple[str, bool], ...]:
    """The names that a text includes, each with whether it stands in quotes; once each."""
    found = [(m["quoted"] or m["angled"], m["quoted"] is not None) for m in _DIRECTIVE.finditer(text)]
    found += [(f"cccl/cuda/std/{name}", False) for name in _MACRO.findall(text)]
    return tuple(dict.fromkeys(found))


#: Headers that are made, and that no file stands for.
_GENERATED = "sched/"


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


def absolute(text: str) -> tuple[int, int, str] | None:
    """Line, column (from 1) and name of the first header that a text names by its place on a machine."""
    for match in _DIRECTIVE.finditer(text):
        name = match["quoted"] or match["angled"]
        if name.startswith("/"):
            at = match.end("head")
            return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at), name
    return None


def rewritten(name: str, text: str, known: Mapping[str, str], roots: Iterable[str]) -> str:
    """`text`, with every directive that means a file of `known` naming it as it is called there."""
    roots = tuple(roots)

    def renamed(match: re.Match[str]) -> str:
        written, quoted = match["quoted"] or match["angled"], match["quoted"] is not None
        path = next((p for p in _places(written, quoted, name, roots) if p in known), None)
        return match[0] if path is None or path == written else f'{match["head"]}"{path}"'

    return _DIRECTIVE.sub(renamed, text)


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
