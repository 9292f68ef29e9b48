"""Files as build systems want them: whole or not there at all, with a rule that says what they depend on."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: Names of what this process has open: writing goes on where the stream is.
_STREAMS = ("/dev/std", "/dev/fd/", "/proc/")

#: What Make, Ninja and CMake all take for a separator unless it is escaped, and the backslashes before a blank, which
#: count by pairs there.
_SPECIAL = re.compile(r"(?P<pairs>\\*)(?P<blank> )|(?P<dollar>\$)|(?P<other>[#:])")


def write_whole(name: str, data: bytes) -> None:
    """Write a file beside its place, then put it there, so that an interruption leaves the old one. Raises OSError.

    A link stays one; to a device or a pipe is simply written.
    """
    place = Path(name)
    if name.startswith(_STREAMS) or (place.exists() and not place.is_file()):
        place.write_bytes(data)
        return
    place = Path(os.path.realpath(place))
    beside = place.with_name(f".schedc-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
        beside.replace(place)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def clash(outputs: Sequence[str], inputs: Sequence[str]) -> str | None:
    """Why these files are not written: the first that was read, or that is written twice. Streams are no files."""
    taken = {os.path.realpath(name): "what is written is made of it" for name in inputs}
    for name in outputs:
        if name == "-" or name.startswith(_STREAMS) or (Path(name).exists() and not Path(name).is_file()):
            continue
        place = os.path.realpath(name)
        if place in taken:
            return f"cannot write {name}: {taken[place]}"
        taken[place] = "another output goes there"
    return None


def depfile(target: str, files: Sequence[str]) -> str:
    """A rule for Make and Ninja: `target` is made again when one of `files` changes, or is gone.

    Raises ValueError for a path with a line break, which no such rule can hold.
    """
    name, *names = (_escaped(path) for path in (target, *dict.fromkeys(files)))
    return f"{' '.join([f'{name}:', *names])}\n\n" + "".join(f"{name}:\n" for name in names)


def _escaped(path: str) -> str:
    """A path as GCC writes it into a rule."""
    if "\n" in path or "\r" in path:
        raise ValueError(f"{path!r} has a line break")
    return _SPECIAL.sub(_escape, path)


def _escape(match: re.Match[str]) -> str:
    if match["blank"]:
        return f"{match['pairs']}{match['pairs']}\\ "
    return "$$" if match["dollar"] else f"\\{match['other']}"
