"""Dispatch: expressions and sequences say the same, every item has one worker, and no advance overflows."""

from __future__ import annotations

import numpy as np
import pytest

from sched_compiler.dispatch import GRID_LIMIT, Dispatch, Single, Static
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import U64, Expr, Graph
from sched_compiler.schedule import INDEX, WORKER, WORKERS

MODES = ["single", "static", "grid"]


def mode(name: str, g: Graph, items: Expr, workers: int) -> Dispatch:
    if name == "single":
        return Single(items)
    if name == "static":
        return Static(g.const(workers), fixed=True)
    return Static(g.var(WORKERS, 1, GRID_LIMIT), fixed=False)


def walked(dispatch: Dispatch, g: Graph, items: int, worker: int, workers: int) -> list[int]:
    """What a worker visits by the expressions, stepped one by one."""
    total = g.var("items", 0, 100)
    inputs: dict[str, int] = {"items": items, WORKER: worker, WORKERS: workers}
    index = g.var(INDEX, 0, 2**40, U64)
    (start,) = evaluate([dispatch.start(g.var(WORKER, 0, GRID_LIMIT - 1), total)], inputs)
    now, visited = int(start[0]), []
    while bool(evaluate([dispatch.valid(index, total)], {**inputs, INDEX: now})[0][0]):
        visited.append(now)
        assert len(visited) <= items
        now = int(evaluate([dispatch.advance(index, total)], {**inputs, INDEX: now})[0][0])
    return visited


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("items", [0, 1, 5, 12])
@pytest.mark.parametrize("workers", [1, 3, 20])
def test_sequences_are_what_the_expressions_walk_and_cover_once(name: str, items: int, workers: int) -> None:
    g = Graph()
    total = g.var("items", 0, 100)
    dispatch = mode(name, g, total, workers)
    count = items if name == "single" else workers
    visited: list[int] = []
    for worker in range(count):
        sequence = dispatch.sequence(worker, items, count)
        assert sequence.dtype == np.uint64
        assert walked(dispatch, g, items, worker, count) == sequence.tolist()
        visited += sequence.tolist()
    assert sorted(visited) == list(range(items))


def test_a_worker_that_the_spec_does_not_have_finds_nothing() -> None:
    g = Graph()
    dispatch = mode("static", g, g.var("items", 0, 100), 3)
    assert walked(dispatch, g, 7, 3, 3) == []
    assert walked(dispatch, g, 7, 5, 3) == []


@pytest.mark.parametrize("name", MODES)
def test_the_advance_s_interval_holds_the_last_step(name: str) -> None:
    g = Graph()
    items = g.var("items", 0, 2**32 - 1)
    dispatch = mode(name, g, items, GRID_LIMIT)
    top = dispatch.advance(g.var(INDEX, 0, items.hi - 1), items)
    assert top.hi >= (items.hi if name == "single" else items.hi - 1 + GRID_LIMIT)
    assert top.hi <= U64.hi


def test_sequences_past_32_bits_are_exact() -> None:
    sequence = Static(Graph().const(1), fixed=True).sequence(7, 2**34, 2**33)
    assert sequence.tolist() == [7, 2**33 + 7]
