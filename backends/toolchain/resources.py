"""What a kernel takes of the machine, from its cubin."""

from __future__ import annotations

from backends.toolchain.cubin import describe
from sched_compiler.registry import Resources


def resources(cubin: bytes, entry: str) -> Resources:
    """Registers, memory and parameter offsets of the kernel `entry`. Raises KeyError if the cubin lacks it."""
    for kernel in describe(cubin):
        if kernel.entry == entry:
            return Resources(
                registers=kernel.registers,
                static_shared_bytes=kernel.static_shared,
                local_bytes=kernel.local,
                offsets=tuple((p.offset, p.size) for p in sorted(kernel.parameters, key=lambda p: p.index)),
            )
    raise KeyError(entry)
