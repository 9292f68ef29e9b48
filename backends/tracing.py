"""Running the trace kernel: room for what it writes, and what it wrote as rows for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_compiler.dispatch import ClusterLaunchControl
from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.program import Program
from sched_compiler.protocol import Source
from sched_compiler.registry import BackendError, TraceRequest

#: (tiles, counts, capacity, first, ctas): the kernel's first arguments; see `backends.cuda.emitter.trace_source`.
Launch = Callable[[npt.NDArray[np.generic], npt.NDArray[np.uint64], int, int, int], None]


def run_trace_kernel(program: Program, request: TraceRequest, launch: Launch) -> list[npt.NDArray[np.int64]]:
    """Follow workers, neighbours in one launch; launch again with more room where one visits more than its share."""
    schedule = program.schedule
    size, ctas, width = schedule.cluster_size, schedule.worker_ctas, len(schedule.axes) + 1
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
            tiles = np.full((workers * ctas, capacity, width), -1, dtype=NUMPY[program.coord_type.name])
            counts = np.zeros(workers * ctas, dtype=np.uint64)
            launch(tiles, counts, capacity, first * ctas, workers * ctas)
            most = int(counts.max(initial=0))
            if most <= capacity:
                break
            capacity = most
        for w in range(workers):
            block = tiles[w * ctas : (w + 1) * ctas, : int(counts[w * ctas])].astype(np.int64)
            if size < ctas:  # they take one tile together
                if (block != block[:size]).any():
                    raise BackendError(f"the CTAs of group {first + w} saw different tiles")
                block = block[:size]
            rows.append(block.transpose(1, 0, 2).reshape(-1, width))
    return [rows[w] for w in request.follow] if schedule.dispatch.queue else rows


def answers_of(program: Program, request: TraceRequest) -> list[list[int]]:
    """What the hardware's queue answers each worker of a ring, as the request says or else as if they asked in turn."""
    dispatch = program.schedule.dispatch
    assert isinstance(dispatch, ClusterLaunchControl)
    if request.answers is not None:
        return [list(answers) for answers in request.answers]
    items = int(evaluate([program.schedule.items], dict(request.values))[0][0])
    return dispatch.answers(items, request.workers)


def counter(program: Program, source: Source | None = None) -> npt.NDArray[Any] | None:
    """The counter that the trace kernel draws from; None where it has none. `source` answers a ring."""
    dispatch = program.schedule.dispatch
    if dispatch.ring is not None:
        return np.zeros(1, dtype=np.uint32) if source == "counter" else None
    return np.zeros(1, dtype=np.uint64) if dispatch.queue else None


def arguments(
    program: Program, request: TraceRequest, drawn: npt.NDArray[Any] | None
) -> list[tuple[int, str] | npt.NDArray[Any]]:
    """The trace kernel's arguments after the first five: parameters with their types, tables, and the counter."""
    schedule = program.schedule
    found: list[tuple[int, str] | npt.NDArray[Any]] = [
        (request.values[p.name], p.var.dtype.name) for p in schedule.params
    ]
    found += [np.ascontiguousarray(request.tables[t.name], dtype=NUMPY[t.element.name]) for t in schedule.tables]
    return found if drawn is None else [*found, drawn]


def restored(drawn: npt.NDArray[Any] | None) -> None:
    """Raise BackendError where a launch left the counter other than it found it."""
    if drawn is not None and drawn[0] != 0:
        raise BackendError(f"the counter was left at {drawn[0]}")


def _runs(follow: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive numbers, in order."""
    start = 0
    for k in range(1, len(follow) + 1):
        if k == len(follow) or follow[k] != follow[k - 1] + 1:
            yield follow[start], k - start
            start = k
