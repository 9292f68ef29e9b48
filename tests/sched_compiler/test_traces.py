"""Traces: the reference engine, and what a trace says of itself."""

from __future__ import annotations

import json

import numpy as np

from sched_compiler import driver
from sched_compiler.registry import TraceRequest
from sched_compiler.traces import Trace, decode, interleave, trace_numpy

SPEC = {
    "version": 1,
    "name": "x",
    "params": {"rows": {"min": 0, "max": 9}},
    "space": {"m": "rows", "n": 2},
    "cluster": {"n": 1, "m": 2},
    "dispatch": {"static": {"workers": 2}},
}


def test_ctas_of_a_cluster_follow_one_another_by_rank() -> None:
    schedule = driver.check(json.dumps(SPEC)).schedule
    rows = trace_numpy(schedule, TraceRequest({"rows": 3}, 2, [0, 1]))
    assert [r.tolist() for r in rows] == [
        [[0, 0, 1], [1, 0, 1], [2, 0, 1], [3, 0, 0]],
        [[0, 1, 1], [1, 1, 1], [2, 1, 1], [3, 1, 0]],
    ]
    assert all(r.dtype == np.int64 for r in rows)


def test_workers_without_work_have_empty_rows_of_the_right_shape() -> None:
    schedule = driver.check(json.dumps(SPEC)).schedule
    assert [r.shape for r in trace_numpy(schedule, TraceRequest({"rows": 0}, 2, [0, 1]))] == [(0, 3), (0, 3)]
    assert trace_numpy(schedule, TraceRequest({"rows": 3}, 2, [])) == []
    assert decode(schedule, np.zeros(0, dtype=np.uint64), {"rows": 3}).shape == (0, 3)


def test_a_trace_lists_padding_by_position() -> None:
    trace = Trace(("m",), 2, [np.array([[0, 1], [5, 0]]), np.array([[1, 1]])])
    assert trace.tiles == [[[0], [5]], [[1]]]
    assert trace.out_of_bounds == [[0, 1]]
    assert json.loads(json.dumps(trace.as_json())) == {
        "axes": ["m"],
        "workers": 2,
        "tiles": [[[0], [5]], [[1]]],
        "out_of_bounds": [[0, 1]],
    }


def test_interleaving_takes_ranks_in_turn() -> None:
    a, b = np.array([[0, 1], [2, 1]]), np.array([[1, 1], [3, 0]])
    assert interleave([a, b]).tolist() == [[0, 1], [1, 1], [2, 1], [3, 0]]
