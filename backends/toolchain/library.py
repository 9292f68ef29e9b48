"""A compiler's shared library, taken from the wheel that brings it.

Library and version come from one place, the wheel's own record, so that the version that enters a cache key is
always that of the code that runs. Reading the record loads nothing: a cache hit never pays for a compiler.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .errors import ToolchainError, ToolMissing

#: Options of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

_ARCHITECTURE = re.compile(r"sm_[1-9][0-9]{1,2}[af]?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Compiled:
    """`blob` is the binary or text that a compiler made, `log` what it said besides (warnings; often empty)."""

    blob: bytes
    log: str


@dataclass(frozen=True, slots=True)
class Library:
    """An installed shared library: its wheel, the wheel's version, the file, and the file's recorded SHA-256 (hex)."""

    distribution: str
    version: str
    path: Path
    digest: str

    @property
    def build(self) -> str:
        """The exact build in one line."""
        return f"{self.distribution} {self.version} (sha256 {self.digest[:16]})"

    def open(self) -> ctypes.CDLL:
        """Load the library into this process."""
        _keep_freed_memory()
        try:
            return ctypes.CDLL(str(self.path))
        except OSError as error:
            raise ToolMissing(self.distribution, f"{self.path.name} cannot be loaded ({error})") from error


@functools.cache
def _keep_freed_memory() -> None:
    """Let the allocator keep what compilers free, up to 64 MiB, for the next compile of this process.

    By itself glibc gives it back to the kernel after each compile, and the next one faults in a thousand pages: a fifth
    of the time of a short link. A user's own settings are left alone, as are other allocators.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and not os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}:
        set_option(_TRIM_THRESHOLD, 64 << 20)
        set_option(_MMAP_THRESHOLD, 32 << 20)


@functools.cache
def find(distribution: str, stem: str) -> Library:
    """The library in `distribution` whose file name begins with `stem`. Raises ToolMissing."""
    try:
        wheel = metadata.distribution(distribution)
    except metadata.PackageNotFoundError as error:
        raise ToolMissing(distribution, f"{stem} is not installed") from error
    for file in wheel.files or ():
        if file.name.startswith(stem) and file.hash is not None:
            digest = base64.urlsafe_b64decode(file.hash.value + "=").hex()
            return Library(distribution, wheel.version, Path(str(wheel.locate_file(file))), digest)
    raise ToolMissing(distribution, f"{distribution} {wheel.version} does not hold {stem}")


@functools.cache
def header_folder(distribution: str, header: str, extra: str) -> Path:
    """The folder of a wheel below which its headers are named, found by one of them. Raises ToolMissing.

    `extra` is the extra of this project that brings the wheel.
    """
    try:
        wheel = metadata.distribution(distribution)
    except metadata.PackageNotFoundError as error:
        raise ToolMissing(distribution, f"its headers are not installed (the extra `{extra}`)") from error
    for file in wheel.files or ():
        if file.as_posix().endswith((f"/include/{header}", f"/include/cccl/{header}")):
            return Path(str(wheel.locate_file(file))).parents[header.count("/")]
    raise ToolMissing(distribution, f"{distribution} {wheel.version} does not hold {header}")


def require_architecture(arch: str) -> None:
    """Refuse what cannot be an architecture's name, before it becomes part of a compiler option."""
    if not _ARCHITECTURE.fullmatch(arch):
        raise ToolchainError(f"{arch!r} is not the name of an architecture, such as sm_90a")


def require_text(text: str) -> bytes:
    """UTF-8 bytes of a compiler's input. The compilers end their input at a NUL character without a word: refuse it."""
    at = text.find("\0")
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise ToolchainError("the text holds a NUL character", line, at - text.rfind("\n", 0, at))
    return text.encode()
