"""Where the files are that a spec names: texts that came with it, or folders of this machine.

Files have virtual paths: relative to the spec, with `/` between parts, or below the n-th of the folders that are
searched besides as `-I<n>/...`. So nothing that is compiled knows where on a machine it stood.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

#: A folder, texts by their paths, or nothing to read from.
Beside: TypeAlias = "Path | Mapping[str, str] | None"

#: Bytes of one source or header.
MOST_BYTES = 8 << 20

#: What some editors put before a text.
_MARK = "\ufeff"


class FileError(Exception):
    """A file that cannot be read, and why; `absent` if there is none."""

    def __init__(self, message: str, *, absent: bool = False) -> None:
        self.absent = absent
        super().__init__(message)


@dataclass(frozen=True)
class Files:
    """The files beside a spec, and in the folders `include`: of this machine, or prefixes of the paths of texts."""

    beside: Beside
    include: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """Where a header is searched: prefixes of virtual paths."""
        names = self.include if isinstance(self.beside, Mapping) else [f"-I{n}" for n in range(len(self.include))]
        return ("", *(f"{name}/" for name in names))

    def text(self, path: str) -> str:
        """The file at a virtual path. Raises FileError."""
        if self.beside is None:
            raise FileError("no files are read here")
        if isinstance(self.beside, Mapping):
            text = self.beside.get(path)
            if text is None:
                text = next((t for name, t in self.beside.items() if normal(name) == path), None)
            if text is None:
                raise FileError("it was not sent", absent=True)
            return text.removeprefix(_MARK)
        place = self.place(path)
        try:
            if not place.is_file():
                raise FileError("it is no regular file" if place.exists() else "there is no such file", absent=True)
            if place.stat().st_size > MOST_BYTES:
                raise FileError(f"it is larger than {MOST_BYTES} bytes")
            text = place.read_bytes().decode("utf-8")
        except OSError as e:
            raise FileError(e.strerror or "it cannot be read") from None
        except UnicodeDecodeError as e:
            raise FileError(f"it is not UTF-8: byte 0x{e.object[e.start]:02x} at offset {e.start}") from None
        except ValueError as e:  # a NUL in its name
            raise FileError(str(e)) from None
        return text.removeprefix(_MARK)

    def find(self, path: str) -> str | None:
        """The file at a virtual path; None where there is none. Raises FileError for one that cannot be read."""
        try:
            return self.text(path)
        except FileError as e:
            if e.absent or self.beside is None:
                return None
            raise FileError(f"{self.shown(path)}: {e}") from None

    def shown(self, path: str) -> str:
        """A virtual path as the user knows the file."""
        return str(self.place(path)) if isinstance(self.beside, Path) else path

    def place(self, path: str) -> Path:
        """Where the file at a virtual path stands, if these are folders."""
        assert isinstance(self.beside, Path)
        head, _, rest = path.partition("/")
        for n, folder in enumerate(self.include):
            if head == f"-I{n}":
                return Path(folder) / rest
        return self.beside / path


def normal(path: str) -> str:
    """A path without `.`, and without `..` as far as that can be told."""
    return posixpath.normpath(path) if path else path
