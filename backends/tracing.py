"""Running the trace kernel: room for what it writes, and what it wrote as rows for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.program import Program
from sched_compiler.registry import TraceRequest

#: (tiles, counts, capacity, first, ctas): the kernel's first arguments; see `backends.cuda.emitter.trace_source`.
Launch = Callable[[npt.NDArray[np.generic], npt.NDArray[np.uint64], int, int, int], None]


def run_trace_kernel(program: Program, request: TraceRequest, launch: Launch) -> list[npt.NDArray[np.int64]]:
    """Follow workers, neighbours in one launch; launch again with more room where one visits more than its share."""
    schedule = program.schedule
    size, width = schedule.cluster_size, len(schedule.axes) + 1
    items = int(evaluate([schedule.items], dict(request.values))[0][0])
    share = -(-items // max(request.workers, 1)) if items else 0
    rows: list[npt.NDArray[np.int64]] = []
    for first, workers in _runs(request.follow):
        capacity = share
        while True:
            tiles = np.full((workers * size, capacity, width), -1, dtype=NUMPY[program.coord_type.name])
            counts = np.zeros(workers * size, dtype=np.uint64)
            launch(tiles, counts, capacity, first * size, workers * size)
            most = int(counts.max(initial=0))
            if most <= capacity:
                break
            capacity = most
        for w in range(workers):
            block = tiles[w * size : (w + 1) * size, : int(counts[w * size])].astype(np.int64)
            rows.append(block.transpose(1, 0, 2).reshape(-1, width))
    return rows


def _runs(follow: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive numbers, in order."""
    start = 0
    for k in range(1, len(follow) + 1):
        if k == len(follow) or follow[k] != follow[k - 1] + 1:
            yield follow[start], k - start
            start = k
