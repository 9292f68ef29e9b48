"""Walks of work rings on a device, compared with what they must see.

`python -m tests.gpu.ring_walk build DIR [ARCH]` compiles every case where the compilers are; `... run DIR` launches
them where the device is, and needs NumPy and cuda-bindings alone.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.launch import Device, Kernel
from backends.toolchain import nvjitlink, nvrtc
from sched_compiler.protocol import Protocol, Ring, Source, protocol
from tests.support.rings import ENTRY, EPILOGUE, LOAD, MMA, STORE, block, cuda_source, ptx_source

REPLAYS = 100
ITEMS = (1, 2, 131, 132, 133, 10_000)
CONSUMERS = ((LOAD,), (LOAD, EPILOGUE), (LOAD, MMA, EPILOGUE, STORE))


@dataclass(frozen=True)
class Case:
    described: Protocol
    backend: str

    def __str__(self) -> str:
        ring = self.described.ring
        names = "+".join(c.name for c in ring.consumers)
        return f"{ring.source}-{self.backend}-{ring.ctas}-{ring.depth}-{names}"

    def cubin(self, arch: str) -> bytes:
        if self.backend == "cuda":
            return nvrtc.compile(cuda_source(self.described), "ring.cu", arch, "cubin").blob
        return nvjitlink.assemble(ptx_source(self.described, arch), arch).blob


def sources(arch: str) -> tuple[Source, ...]:
    """Who can answer there: a counter from sm_90 on, the hardware queue from sm_100 on."""
    generation = int(arch.removeprefix("sm_").rstrip("af"))
    return ("counter", "hardware") if generation >= 100 else ("counter",) if generation >= 90 else ()


def cases(source: Source) -> Iterator[Case]:
    for backend, ctas, depth, consumers in itertools.product(("cuda", "ptx"), (1, 2), (1, 2, 4), CONSUMERS):
        yield Case(protocol(Ring(depth, consumers, ctas, source)), backend)


def walk(kernel: Kernel, described: Protocol) -> int:
    """Launch for several numbers of items and clusters, some of them `REPLAYS` times; the number of launches.

    Raises AssertionError unless every thread of every consumer of every CTA saw each item once in each launch, together
    with the other consumers of its cluster, and the counter ends at 0.
    """
    ring, launches = described.ring, 0
    threads = np.array([c.threads for c in ring.consumers], dtype=np.uint32)[:, None, None]
    for items in ITEMS:
        for clusters in (items,) if ring.source == "hardware" else (1, 66, 132, 264):
            visits = np.zeros((len(ring.consumers), ring.ctas, items), dtype=np.uint32)
            owners, counter = np.zeros_like(visits), np.zeros(1, dtype=np.uint32)
            replays = REPLAYS if clusters in (132, items) else 1
            where = f"{items} items, {clusters} clusters"
            for _ in range(replays):
                kernel(clusters * ring.ctas, (block(described), 1, 1), [visits, owners, counter, (items, "u32")])
                assert counter[0] == 0, where
            np.testing.assert_array_equal(visits, np.broadcast_to(threads * replays, visits.shape), where)
            np.testing.assert_array_equal(owners, np.broadcast_to(owners[:1, :1], owners.shape), where)
            own = min(items, clusters) if ring.source == "counter" else 0  # a cluster may be cancelled by another
            np.testing.assert_array_equal(owners[0, 0, :own], np.arange(own), where)
            launches += replays
    return launches


def build(folder: Path, arch: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources(arch):
        for case in cases(source):
            (folder / f"{case}.cubin").write_bytes(case.cubin(arch))


def run(folder: Path) -> None:
    with Device() as device:
        for case in itertools.chain.from_iterable(map(cases, sources(device.arch))):
            begin = time.perf_counter()
            with device.kernel((folder / f"{case}.cubin").read_bytes(), ENTRY) as kernel:
                launches = walk(kernel, case.described)
            print(f"{case}: {launches} launches in {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "build":
        build(Path(where), rest[0] if rest else "sm_90a")
    else:
        run(Path(where))
