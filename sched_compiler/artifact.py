"""What compilation produces: bytes, and a manifest that says what they are."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from sched_compiler.diagnostics import Diagnostic

Emit = Literal["cubin", "ptx", "header", "ltoir", "object"]
JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

MEDIA_TYPES: dict[Emit, str] = {
    "cubin": "application/octet-stream",
    "ptx": "text/plain; charset=utf-8",
    "header": "text/plain; charset=utf-8",
    "ltoir": "application/octet-stream",
    "object": "application/octet-stream",
}
#: The end of a file's name for each form.
SUFFIXES: dict[Emit, str] = {"cubin": "cubin", "ptx": "ptx", "header": "cuh", "ltoir": "ltoir", "object": "o"}
#: Forms that hold the schedule's functions for a kernel that is linked with them, and no kernel.
LIBRARIES: tuple[Emit, ...] = ("ltoir", "object")


@functools.cache
def product_version() -> str:
    """This package's version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sched-compiler")
    except PackageNotFoundError:
        return "0+unknown"


@dataclass(frozen=True, slots=True)
class Artifact:
    """`key` (64 hex digits) names the inputs, `manifest["digest"]` (SHA-256, hex) the bytes of `blob`.

    `warnings` are what the compiler said of a user's source; `files` are those of this machine that were read for it.
    """

    key: str
    emit: Emit
    blob: bytes
    manifest: dict[str, JSON]
    warnings: tuple[Diagnostic, ...] = ()
    files: tuple[str, ...] = ()
