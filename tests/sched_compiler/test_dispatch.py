"""Dispatch: expressions and sequences say the same, every item has one worker, and no advance overflows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sched_compiler.dispatch import DRAWN, GRID_LIMIT, Dispatch, Dynamic, Single, Static, Table
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import U64, Expr, Graph
from sched_compiler.schedule import INDEX, WORKER, WORKERS

MODES = ["single", "static", "grid", "ranges", "list"]


def mode(name: str, g: Graph, items: Expr, workers: int) -> Dispatch:
    if name == "single":
        return Single(items)
    if name == "static":
        return Static(g.const(workers), fixed=True)
    if name in ("ranges", "list"):
        return Table(g.const(workers), items, "indptr", "indices" if name == "list" else None)
    launched = g.var(WORKERS, 1, GRID_LIMIT)
    return Dynamic(launched, launched) if name == "dynamic" else Static(launched, fixed=False)


def tables(items: int, workers: int, seed: int = 0) -> dict[str, Any]:
    """Random ranges of a random permutation of the items."""
    chance = random.Random(seed)
    cuts = sorted(chance.randint(0, items) for _ in range(workers - 1))
    indices = chance.sample(range(items), items)
    return {"indptr": np.array([0, *cuts, items], dtype=np.int32), "indices": np.array(indices, dtype=np.int32)}


class Walker:
    """A worker, stepped by the expressions of its dispatch. No table is read outside its elements."""

    def __init__(self, dispatch: Dispatch, g: Graph, items: int, worker: int, given: dict[str, Any]) -> None:
        self.dispatch, self.total, self.given = dispatch, g.var("items", 0, 100), {"items": items, **given}
        self.index = g.var(INDEX, 0, 2**40, U64)
        self.names = [INDEX, *(str(v.attr) for v in dispatch.state)]
        first = g.var(WORKER, 0, GRID_LIMIT - 1)
        self.state = self._step(dispatch.start(first, self.total), {WORKER: worker})

    def _step(self, values: tuple[Expr, ...], inputs: dict[str, Any]) -> dict[str, Any]:
        found = evaluate(values, {**self.given, **inputs})
        return {name: int(v[0]) for name, v in zip(self.names, found, strict=True)}

    @property
    def valid(self) -> bool:
        return bool(evaluate([self.dispatch.valid(self.index, self.total)], {**self.given, **self.state})[0][0])

    def advance(self, drawn: int = 0) -> None:
        self.state = self._step(self.dispatch.advance(self.index, self.total), {**self.state, DRAWN: drawn})


def walked(dispatch: Dispatch, g: Graph, items: int, worker: int, given: dict[str, Any]) -> list[int]:
    """What a worker visits by the expressions, stepped one by one."""
    walker, visited = Walker(dispatch, g, items, worker, given), []
    while walker.valid:
        visited.append(walker.state[INDEX])
        assert len(visited) <= items
        walker.advance()
    return visited


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("items", [0, 1, 5, 12])
@pytest.mark.parametrize("workers", [1, 3, 20])
def test_sequences_are_what_the_expressions_walk_and_cover_once(name: str, items: int, workers: int) -> None:
    g = Graph()
    total = g.var("items", 0, 100)
    dispatch = mode(name, g, total, workers)
    count = items if name == "single" else workers
    given = {WORKERS: count, **tables(items, workers, items)}
    visited: list[int] = []
    for worker in range(count):
        sequence = dispatch.sequence(worker, items, count, given)
        assert sequence.dtype == np.uint64
        assert walked(dispatch, g, items, worker, given) == sequence.tolist()
        visited += sequence.tolist()
    assert sorted(visited) == list(range(items))


@pytest.mark.parametrize("items", [0, 1, 5, 12, 40])
@pytest.mark.parametrize("workers", [1, 2, 7, 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_counter_gives_every_item_once_and_is_restored(items: int, workers: int, seed: int) -> None:
    """Workers of any speed, in any order, through two launches with one counter."""
    g = Graph()
    dispatch = mode("dynamic", g, g.var("items", 0, 100), workers)
    chance, counter = random.Random(seed), 0
    for _ in range(2):
        visited: list[int] = []
        waiting = list(range(workers))
        running: list[Walker] = []
        while waiting or running:
            if waiting and (not running or chance.random() < 0.3):
                worker = waiting.pop(chance.randrange(len(waiting)))
                running.append(Walker(dispatch, g, items, worker, {WORKERS: workers}))
                continue
            walker = chance.choice(running)
            if not walker.valid:
                running.remove(walker)
                continue
            visited.append(walker.state[INDEX])
            drawn = items
            if items > workers:  # as the emitted code draws
                ticket, counter = counter, counter + 1
                counter = 0 if ticket + 1 == items else counter
                drawn = workers + ticket
            walker.advance(drawn)
        assert sorted(visited) == list(range(items))
        assert counter == 0


@pytest.mark.parametrize("name", ["static", "ranges", "list"])
def test_a_worker_that_the_spec_does_not_have_finds_nothing(name: str) -> None:
    g = Graph()
    dispatch = mode(name, g, g.var("items", 0, 100), 3)
    for worker in (3, 5):
        assert walked(dispatch, g, 7, worker, tables(7, 3)) == []


def test_nothing_is_read_of_a_table_before_it_is_known_to_be_there() -> None:
    """Two workers, the second with an empty range at the end of the table: evaluating raises for a read outside."""
    g = Graph()
    dispatch = mode("list", g, g.var("items", 0, 100), 2)
    given = {"indptr": np.array([0, 3, 3]), "indices": np.array([2, 0, 1])}
    assert [walked(dispatch, g, 3, w, given) for w in range(3)] == [[2, 0, 1], [], []]
    with pytest.raises(IndexError):
        walked(dispatch, g, 3, 0, {"indptr": np.array([0, 4, 4]), "indices": np.array([2, 0, 1])})


@pytest.mark.parametrize("name", [*MODES, "dynamic"])
def test_the_advance_s_interval_holds_the_last_step(name: str) -> None:
    g = Graph()
    items = g.var("items", 0, 2**32 - 1)
    dispatch = mode(name, g, items, GRID_LIMIT)
    top = dispatch.advance(g.var(INDEX, 0, items.hi - 1), items)[0]
    least = {"single": items.hi, "ranges": items.hi, "list": items.hi - 1}
    assert top.hi >= least.get(name, items.hi - 1 + GRID_LIMIT)
    assert top.hi <= U64.hi


def test_sequences_past_32_bits_are_exact() -> None:
    sequence = Static(Graph().const(1), fixed=True).sequence(7, 2**34, 2**33, {})
    assert sequence.tolist() == [7, 2**33 + 7]
