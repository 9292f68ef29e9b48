"""Small proofs are sound: what is shown holds for every value."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr, Graph
from sched_compiler.prove import all_values, assignments, at_most, small_values
from sched_compiler.schedule import Parameter


@pytest.mark.parametrize("seed", range(20))
def test_at_most_is_sound(seed: int) -> None:
    chance = random.Random(seed)
    g = Graph()
    x, y = g.var("x", 0, 12), g.var("y", 0, 12)
    values = [(a, b) for a in range(13) for b in range(13)]

    def draw(depth: int) -> Expr:
        if depth == 0:
            return chance.choice([x, y, g.const(chance.randint(0, 12))])
        a, b, n = draw(depth - 1), draw(depth - 1), chance.randint(1, 5)
        return chance.choice(
            [a // n * n, g.ceil_div(a, n) * n, a // n, g.min(a, b), g.max(a, b), a + b, a * n, a % n, a - n]
        )

    shown = 0
    for _ in range(60):
        a, b = draw(2), draw(2)
        if at_most(a, b):
            shown += 1
            inputs = {"x": [p for p, _ in values], "y": [q for _, q in values]}
            left, right = evaluate([a, b], {k: np.array(v) for k, v in inputs.items()})
            assert (left.astype(np.int64) <= right.astype(np.int64)).all(), (a, b)
    assert shown


class TestShows:
    """What the presets' pieces need."""

    def test_whole_blocks_do_not_pass_the_axis(self) -> None:
        g = Graph()
        m = g.var("m", 0, 10**9)
        assert at_most(m // 8 * 8, m)
        assert at_most(g.const(0), m // 8 * 8)
        assert not at_most(m, m // 8 * 8)

    def test_blocks_of_clusters(self) -> None:
        g = Graph()
        m = g.ceil_div(g.var("m", 0, 10**6), 2)
        assert at_most(m // 8 * 8 * 2, m * 2)
        assert at_most(m // 8 * 16, m * 2)

    def test_minimum_and_maximum(self) -> None:
        g = Graph()
        x, y = g.var("x", 0, 9), g.var("y", 0, 9)
        assert at_most(g.min(x, y), x)
        assert at_most(x, g.max(x, y))
        assert not at_most(g.max(x, y), x)

    def test_nothing_is_said_of_what_overflows(self) -> None:
        g = Graph()
        x, y = g.var("x", 0, 2**62), g.var("y", 0, 2**62)
        assert not at_most(x, y)


def test_values_are_enumerated_smallest_first() -> None:
    g = Graph()
    params = [Parameter("a", g.var("a", 1, 3)), Parameter("b", g.var("b", 0, 1))]
    assert assignments(params) == 6
    assert next(iter(all_values(params))) == {"a": 1, "b": 0}
    assert len(list(all_values(params))) == 6
    assert list(all_values([])) == [{}]
    assert assignments([]) == 1


def test_small_values_hold_both_ends_and_stay_few() -> None:
    g = Graph()
    params = [Parameter(n, g.var(n, 1, 10**6)) for n in "abc"]
    found = list(small_values(params, 2000))
    assert len(found) <= 2000
    assert found[0] == {"a": 1, "b": 1, "c": 1}
    assert {"a": 10**6, "b": 10**6, "c": 10**6} in found
    assert all(1 <= v <= 10**6 for values in found for v in values.values())
    assert list(small_values([], 10)) == [{}]
    many = [Parameter(f"p{n}", g.var(f"p{n}", 0, 9)) for n in range(16)]
    found = list(small_values(many, 100))
    assert len(found) == 100
    assert (found[0]["p3"], found[-1]["p3"]) == (0, 9)


def test_sums_are_compared_without_what_they_share() -> None:
    g = Graph()
    x, y, z = g.var("x", 0, 9), g.var("y", 0, 9), g.var("z", -3, 9)
    assert at_most(x, x + y)
    assert at_most(x + y, y + x)
    assert at_most(x + y * 2 + 1, y * 3 + x + 1)
    assert at_most(x + z, y + x + z)
    assert not at_most(x, x + z)
    assert not at_most(x + y, x)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_small_values_use_what_they_may(count: int) -> None:
    g = Graph()
    params = [Parameter(f"p{k}", g.var(f"p{k}", 1, 1000)) for k in range(count)]
    for root in (2, 4, 6):
        found = list(small_values(params, root**count))
        assert len(found) == root**count
        assert dict.fromkeys(found[0], root - 1) in found
