"""What a kernel takes of the machine, from its cubin."""

from __future__ import annotations

from math import prod

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
                cluster=kernel.cluster,
                required_threads=kernel.required_threads,
                most_threads=None if kernel.max_threads is None else prod(kernel.max_threads),
                offsets=tuple((p.offset, p.size) for p in sorted(kernel.parameters, key=lambda p: p.index)),
            )
    raise KeyError(entry)
