"""Launching a compiled kernel: `load`, and what it raises. CUDA is found through the registry, where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, TypeAlias

from sched_compiler import registry
from sched_compiler.artifact import JSON, Artifact

#: What can be loaded: what a compile gave, a cubin with its manifest, or a cubin's path with the manifest at PATH.json.
Loadable: TypeAlias = "Artifact | tuple[bytes, Mapping[str, JSON]] | str | PathLike[str]"


@dataclass(frozen=True, slots=True)
class LaunchFault:
    """What is wrong with one argument of a launch, or with the kernel, the device or the manifest."""

    argument: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.argument}: found {self.found}, expected {self.expected}"


class LaunchError(Exception):
    """A kernel that cannot be loaded, or a launch that is not possible, with all faults found. Nothing was launched."""

    def __init__(self, kernel: str, faults: Iterable[LaunchFault]) -> None:
        self.kernel, self.faults = kernel, tuple(faults)
        super().__init__(kernel, self.faults)

    def __str__(self) -> str:
        return f"{self.kernel}: " + "; ".join(map(str, self.faults))


class Kernel(Protocol):
    """A kernel that was loaded onto a device."""

    @property
    def manifest(self) -> Mapping[str, JSON]: ...

    def __call__(self, /, *, stream: Any = None, workers: int | None = None, **arguments: Any) -> None:
        """Launch it, and return before it ends. See docs/launching.md for what arguments may be.

        Raises LaunchError before anything is launched.
        """
        ...

    def close(self) -> None:
        """Unload it, and free what was allocated for it. No graph that launches it may be replayed afterwards."""
        ...


def load(artifact: Loadable, device: int | None = None) -> Kernel:
    """Load a cubin onto a device, by number; by default the current one.

    Raises LaunchError for an artifact that is none, or that the device does not run; `registry.ToolMissingError` where
    there is no driver, no device, or no `cuda-bindings` (the extra `gpu`).
    """
    kernel: Kernel = registry.launcher("python")(artifact, device)
    return kernel
