"""What a launch needs to know of a device, and whether a kernel can run there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from backends.launching.description import Description, capability_of
from sched_compiler.dispatch import CLUSTERS
from sched_compiler.launching import LaunchFault


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device, as its driver describes it. Sizes are bytes."""

    number: int
    capability: tuple[int, int]  # major, minor
    multiprocessors: int
    shared_limit: int  # of a block that asks for more than is usual
    grid_limits: tuple[int, int, int]
    block_limits: tuple[int, int, int]
    block_threads: int
    clusters: bool
    #: How many CTAs of the kernel one multiprocessor holds at a time, each with so many bytes of dynamic shared memory.
    resident: Callable[[int], int]


def runs(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a device runs a cubin for `arch`: `sm_90a` on 9.0 alone, `sm_90` on 9.x, `sm_86` on 8.6 to 8.9."""
    major, minor = capability_of(arch)
    return capability == (major, minor) if arch.endswith("a") else capability[0] == major and capability[1] >= minor


def expected_capability(arch: str) -> str:
    """The compute capabilities that run a cubin for `arch`, in words."""
    major, minor = capability_of(arch)
    later = "" if arch.endswith("a") else f" or a later {major}.x"
    return f"{major}.{minor}{later}, which a kernel for {arch} runs on"


def unsuitable(kernel: Description, device: DeviceFacts) -> list[LaunchFault]:
    """Why a device cannot run a kernel, whatever the arguments."""
    faults = []
    if not runs(kernel.arch, device.capability):
        found = f"compute capability {device.capability[0]}.{device.capability[1]}"
        faults.append(LaunchFault("device", found, expected_capability(kernel.arch)))
    if prod(kernel.block) > device.block_threads or any(
        n > most for n, most in zip(kernel.block, device.block_limits, strict=True)
    ):
        expected = f"at most {device.block_threads} threads, {list(device.block_limits)} along x, y, z"
        faults.append(LaunchFault("block", str(list(kernel.block)), expected))
    if in_hardware(kernel) and not device.clusters:
        faults.append(LaunchFault("device", "no clusters", f"a device with clusters of {kernel.ctas} CTAs"))
    return faults


def in_hardware(kernel: Description) -> bool:
    """Whether the kernel's clusters are the hardware's; before sm_90 they are groups of neighbouring CTAs."""
    major, minor = capability_of(kernel.arch)
    return kernel.ctas > 1 and 10 * major + minor >= CLUSTERS
