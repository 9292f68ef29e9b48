"""Backends and trace engines by name, found through entry points. Nothing else in this package knows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sched_compiler.artifact import Emit
from sched_compiler.program import Program

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BACKENDS = "sched_compiler.backends"
ENGINES = "sched_compiler.engines"


class BackendError(Exception):
    """A backend's compiler refused the generated source; `log` is what it said."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(log)


class ToolMissingError(Exception):
    """Something that a backend needs is not installed."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes of the machine, read from the cubin: counts, and bytes for each block or thread."""

    registers: int
    static_shared_bytes: int
    local_bytes: int
    offsets: tuple[tuple[int, int], ...]  # (offset, size) of each parameter, in order


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One run of the trace kernel's loop: parameter values, the number of workers, the workers to follow, tables by
    name, and for each worker of a ring what the hardware's queue answers; by default as if they asked in turn."""

    values: Mapping[str, int]
    workers: int
    follow: Sequence[int]
    tables: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    answers: Sequence[Sequence[int]] | None = None


#: An engine runs a program and gives, for each followed worker, an array of shape (tiles, axes + 1): coordinates, then
#: 1 where they are in bounds. Tiles of one cluster stand in the order of rank.
Engine: TypeAlias = Callable[[Program, TraceRequest], "list[npt.NDArray[np.int64]]"]


class Backend(Protocol):
    """A target language: prints a Program, and assembles what it printed. Needs no GPU."""

    name: str
    version: str
    #: The texts that it prints, by name, and the artifacts that it builds.
    forms: tuple[str, ...]
    emits: tuple[Emit, ...]

    def text(self, program: Program, form: str, arch: str) -> str:
        """One of `forms`; a pure function of its arguments."""
        ...

    def build(self, program: Program, arch: str, emit: Emit) -> bytes:
        """One of `emits`. Raises BackendError or ToolMissingError."""
        ...

    def resources(self, cubin: bytes, entry: str) -> Resources:
        """What the kernel takes, read from the cubin."""
        ...

    def architectures(self) -> tuple[str, ...]: ...

    def supports(self, arch: str) -> bool: ...

    def compiler(self) -> str:
        """The exact build of the compiler; a part of every cache key. Raises ToolMissingError."""
        ...

    def options(self, emit: Emit) -> tuple[str, ...]:
        """The compiler's options, in order; a part of every cache key."""
        ...


@functools.cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names() -> tuple[str, ...]:
    """The names of the installed backends."""
    return tuple(sorted(_points(BACKENDS)))


@functools.cache
def get(name: str) -> Backend:
    """The backend called `name`. Raises KeyError."""
    backend: Backend = _points(BACKENDS)[name].load()()
    return backend


def printing(form: str) -> Backend:
    """The backend that prints `form`. Raises KeyError."""
    for name in names():
        if form in get(name).forms:
            return get(name)
    raise KeyError(form)


@functools.cache
def engine(name: str) -> Engine:
    """The trace engine called `name`. Raises KeyError."""
    found: Engine = _points(ENGINES)[name].load()
    return found
