"""Traces: which worker visits which tiles, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_compiler.dispatch import ClusterLaunchControl
from sched_compiler.evaluate import evaluate
from sched_compiler.registry import TraceRequest
from sched_compiler.schedule import INDEX, RANK, WORKERS, Schedule, tile_input

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """For each followed worker, an array of shape (tiles, axes + 1): coordinates, then 1 where in bounds."""

    axes: tuple[str, ...]
    workers: int
    rows: list[Rows] = field(repr=False)

    @property
    def tiles(self) -> list[list[list[int]]]:
        return [rows[:, :-1].tolist() for rows in self.rows]

    @property
    def out_of_bounds(self) -> list[list[int]]:
        """(worker, position) of each padding tile, workers counted as they are listed."""
        return [[w, int(p)] for w, rows in enumerate(self.rows) for p in np.flatnonzero(rows[:, -1] == 0)]

    def as_json(self) -> dict[str, Any]:
        return {
            "axes": list(self.axes),
            "workers": self.workers,
            "tiles": self.tiles,
            "out_of_bounds": self.out_of_bounds,
        }


def trace_numpy(schedule: Schedule, request: TraceRequest) -> list[Rows]:
    """The reference: the dispatch's own sequence through the evaluator."""
    values: Mapping[str, Any] = {**request.values, **request.tables, WORKERS: request.workers}
    items = int(evaluate([schedule.items], values)[0][0])
    dispatch, answers = schedule.dispatch, request.answers
    if answers is not None and isinstance(dispatch, ClusterLaunchControl):
        sequences = [dispatch.walk(w, items, answers[w]) for w in request.follow]
    else:
        sequences = [dispatch.sequence(w, items, request.workers, request.tables) for w in request.follow]
    index = np.concatenate([*sequences, np.zeros(0, dtype=np.uint64)])
    rows = decode(schedule, index, values)
    size = schedule.cluster_size
    ends = np.cumsum([len(s) for s in sequences], dtype=np.int64) * size
    return np.split(rows, ends[:-1]) if sequences else []


def decode(schedule: Schedule, index: npt.NDArray[Any], values: Mapping[str, Any]) -> Rows:
    """Coordinates and bounds of each index, the CTAs of a cluster one after another. Shape (indices*size, axes+1)."""
    size = schedule.cluster_size
    shape = (len(index) * size,)
    if not len(index):
        return np.zeros((0, len(schedule.axes) + 1), dtype=np.int64)
    inputs = {**values, INDEX: np.repeat(index, size), RANK: np.tile(np.arange(size), len(index))}
    coords = [np.broadcast_to(c, shape) for c in evaluate(schedule.coords, inputs)]
    tile = {tile_input(a.name): c for a, c in zip(schedule.axes, coords, strict=True)}
    (inside,) = evaluate([schedule.in_bounds], {**values, **tile})
    return np.stack([*coords, np.broadcast_to(inside, shape)], axis=1).astype(np.int64)


def interleave(rows: Sequence[Rows]) -> Rows:
    """The rows of a cluster's CTAs, taken in turn by rank."""
    return np.stack(list(rows), axis=1).reshape(-1, rows[0].shape[1])
