"""Running the trace kernel: room for what it writes, and what it wrote as rows for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.program import Program
from sched_compiler.registry import BackendError, TraceRequest

#: (tiles, counts, capacity, first, ctas): the kernel's first arguments; see `backends.cuda.emitter.trace_source`.
Launch = Callable[[npt.NDArray[np.generic], npt.NDArray[np.uint64], int, int, int], None]


def run_trace_kernel(program: Program, request: TraceRequest, launch: Launch) -> list[npt.NDArray[np.int64]]:
    """Follow workers, neighbours in one launch; launch again with more room where one visits more than its share."""
    schedule = program.schedule
    size, width = schedule.cluster_size, len(schedule.axes) + 1
    items = int(evaluate([schedule.items], dict(request.values))[0][0])
    share = -(-items // max(request.workers, 1)) if items else 0
    rows: list[npt.NDArray[np.int64]] = []
    if schedule.dispatch.queue:  # which worker gets what differs from launch to launch: one must show all of them
        runs: Iterable[tuple[int, int]] = [(0, request.workers)]
    else:
        runs = _runs(request.follow)
    for first, workers in runs:
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
    return [rows[w] for w in request.follow] if schedule.dispatch.queue else rows


def arguments(program: Program, request: TraceRequest) -> list[tuple[int, str] | npt.NDArray[Any]]:
    """The trace kernel's arguments after the first five: parameters with their types, tables, and the counter."""
    schedule = program.schedule
    found: list[tuple[int, str] | npt.NDArray[Any]] = [
        (request.values[p.name], p.var.dtype.name) for p in schedule.params
    ]
    found += [np.ascontiguousarray(request.tables[t.name], dtype=NUMPY[t.element.name]) for t in schedule.tables]
    return [*found, np.zeros(1, dtype=np.uint64)] if schedule.dispatch.queue else found


def restored(program: Program, given: Sequence[object]) -> None:
    """Raise BackendError where a launch left the counter, the last argument, other than it found it."""
    if program.schedule.dispatch.queue and isinstance(counter := given[-1], np.ndarray) and counter[0] != 0:
        raise BackendError(f"the counter was left at {counter[0]}")


def _runs(follow: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive numbers, in order."""
    start = 0
    for k in range(1, len(follow) + 1):
        if k == len(follow) or follow[k] != follow[k - 1] + 1:
            yield follow[start], k - start
            start = k
