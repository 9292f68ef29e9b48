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
LAUNCHERS = "sched_compiler.launchers"


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
    cluster: tuple[int, int, int] | None = None  # CTAs of a cluster, if they are compiled in
    required_threads: tuple[int, int, int] | None = None  # of a block, likewise
    most_threads: int | None = None  # of a block, if there is a bound


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


@dataclass(frozen=True, slots=True)
class UserSource:
    """A kernel of the user's own, with all that its compile depends on.

    `files` holds texts by virtual path (see `sched_compiler.files`), `name` the one that is compiled; `programs` are
    the schedules that it may include as `<sched/NAME.cuh>`.
    """

    name: str
    files: Mapping[str, str]
    roots: tuple[str, ...]  # prefixes of paths, below which headers are searched
    entry: str
    bundles: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What a compiler said of a source: `file` is a virtual path, or a name of the compiler's own.

    Lines and columns count from 1; `column` is None where it said none, `file` where it spoke of what stands in the
    spec, at `key` of its kernel.
    """

    file: str | None
    line: int
    column: int | None
    error: bool
    text: str
    mend: str | None = None
    key: tuple[str, ...] = ("entry",)


class SourceError(BackendError):
    """A compiler refused a user's source."""

    def __init__(self, log: str, messages: Sequence[Message]) -> None:
        super().__init__(log)
        self.messages = tuple(messages)


class LimitError(Exception):
    """A compile that took more than it may."""


@dataclass(frozen=True, slots=True)
class BuiltSource:
    """What a user's source was compiled to; `entry` is the kernel's name in it, `messages` are warnings."""

    blob: bytes
    entry: str
    messages: tuple[Message, ...]


class SourceCompiler(Protocol):
    """Compiles kernels of users' own."""

    #: The forms that it builds, and the names of its bundles of headers.
    emits: tuple[Emit, ...]
    bundles: tuple[str, ...]

    def gather(self, name: str, find: Callable[[str], str | None], roots: tuple[str, ...]) -> dict[str, str]:
        """The source at the path `name` and the user's files that it may include, by path."""
        ...

    def versions(self, bundles: Sequence[str]) -> tuple[str, ...]:
        """The exact releases of bundles of headers; a part of the cache key. Raises ToolMissingError."""
        ...

    def struct(self, program: Program) -> str:
        """The name of the schedule's struct in namespace `sched`."""
        ...

    def build(self, source: UserSource, arch: str, emit: Emit, confined: bool) -> BuiltSource:
        """Compile, in a sandbox if `confined`. Raises SourceError, LimitError and ToolMissingError."""
        ...

    def sandbox(self) -> str | None:
        """Why there is no sandbox on this machine; None where there is one."""
        ...


class Backend(Protocol):
    """A target language: prints a Program, and assembles what it printed. Needs no GPU."""

    name: str
    version: str
    #: The texts that it prints, by name, and the artifacts that it builds.
    forms: tuple[str, ...]
    emits: tuple[Emit, ...]
    #: Compiles kernels of users' own; None where the backend does not.
    sources: SourceCompiler | None

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

    def nvshmem(self, emit: Emit) -> str | None:
        """The exact build of NVSHMEM that a kernel which asks it is linked with; None where there is no such kernel.

        Raises ToolMissingError.
        """
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


@functools.cache
def launcher(name: str) -> Callable[..., Any]:
    """What launches kernels from a language: `python` loads them, `cpp` prints a header that does. Raises KeyError."""
    found: Callable[..., Any] = _points(LAUNCHERS)[name].load()
    return found
