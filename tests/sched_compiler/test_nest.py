"""Nests: forward and inverse are inverse to one another, and each says why it is a bijection.

Random nests of every kind are in tests/test_random_specs.py; here are the smallest of each.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr, Graph, topological
from sched_compiler.nest import (
    Axis,
    Derived,
    Digit,
    Either,
    Group,
    Loop,
    Loops,
    Nest,
    Part,
    Partitioned,
    Pieces,
    Turn,
)


def whole(g: Graph, name: str, length: Expr | int) -> Axis:
    return Axis(name, g.lift(length), (Digit(name, g.const(1)),))


def split(g: Graph, name: str, length: Expr | int, by: int) -> Axis:
    return Axis(name, g.lift(length), (Digit(f"{name}.outer", g.const(by)), Digit(f"{name}.inner", g.const(1))))


def walk(g: Graph, nest: Nest, **values: int) -> list[tuple[int, ...]]:
    """The positions in order; checks the inverse and the intervals on the way."""
    size = int(evaluate([nest.size], values)[0][0])
    index = g.var("index", 0, max(nest.size.hi - 1, 1))
    positions = nest.forward(index)
    given = np.arange(size)
    found = [np.broadcast_to(p, (size,)) for p in evaluate(positions, {**values, "index": given})]
    for p, axis, column in zip(positions, nest.axes, found, strict=True):
        assert p.lo >= 0
        assert p.hi < max(axis.length.hi, 1)
        assert not size or column.max() <= p.hi
    inputs = [g.var(f"at{k}", 0, max(a.length.hi - 1, 1)) for k, a in enumerate(nest.axes)]
    back = evaluate([nest.inverse(inputs)], {**values, **{f"at{k}": c for k, c in enumerate(found)}})[0]
    assert np.broadcast_to(back, (size,)).tolist() == given.tolist()
    return list(zip(*(c.tolist() for c in found), strict=True))


@pytest.mark.parametrize("m", range(1, 9))
@pytest.mark.parametrize("by", [1, 3, 4, 9])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("run_time", [False, True])
def test_short_bands_come_last_upwards_and_first_downwards(m: int, by: int, down: bool, run_time: bool) -> None:
    g = Graph()
    length = g.var("m", 0, 50) if run_time else m
    nest = Loops((split(g, "m", length, by), whole(g, "n", 2)), (Loop(0, 0, down), Loop(1, 0), Loop(0, 1)))
    bands = [range(k, min(k + by, m)) for k in range(0, m, by)]
    want = [(p, n) for band in (reversed(bands) if down else bands) for n in range(2) for p in band]
    assert walk(g, nest, m=m) == want


@pytest.mark.parametrize("reverse", [False, True])
def test_serpentine_turns_with_the_parity_of_the_loop_outside(reverse: bool) -> None:
    g = Graph()
    nest = Loops((whole(g, "m", 3), whole(g, "n", 3)), (Loop(1, 0), Loop(0, 0, reverse, "n")))
    want = [(m, n) for n in range(3) for m in (range(3) if (n % 2 == 0) != reverse else reversed(range(3)))]
    assert walk(g, nest) == want


@pytest.mark.parametrize("m", [0, 1, 5])
def test_empty_boxes_have_maps_without_values(m: int) -> None:
    g = Graph()
    nest = Loops((split(g, "m", g.var("m", 0, 9), 2),), (Loop(0, 0), Loop(0, 1)))
    assert walk(g, nest, m=m) == [(p,) for p in range(m)]


@pytest.mark.parametrize("cut", range(5))
def test_pieces_follow_one_another(cut: int) -> None:
    g = Graph()
    axes = (whole(g, "m", 4), whole(g, "n", 2))
    at = g.var("cut", 0, 4)

    def part(low: Expr, high: Expr, loops: tuple[Loop, ...]) -> Part:
        inner = Loops((Axis("m", g.sub(high, low, within=(0, 4)), axes[0].digits), axes[1]), loops)
        return Part((low, g.const(0)), (high, g.const(2)), inner)

    upper = part(at, g.const(4), (Loop(0, 0), Loop(1, 0)))
    lower = part(g.const(0), at, (Loop(1, 0), Loop(0, 0)))
    want = [(m, n) for m in range(cut, 4) for n in range(2)] + [(m, n) for n in range(2) for m in range(cut)]
    assert walk(g, Pieces(axes, (upper, lower)), cut=cut) == want


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shift", range(6))
def test_turns_are_permutations(reverse: bool, shift: int) -> None:
    g = Graph()
    axes = (whole(g, "a", 2), whole(g, "b", 3))
    fused = whole(g, "ab", 6)
    turn = Turn(shift=g.var("shift", 0, 5))
    member = Turn(reverse=reverse)
    nest = Derived(axes, (Turn(), member), (Group((0, 1), turn),), Loops((fused,), (Loop(0, 0),)))
    order = [(a, 2 - b if reverse else b) for a, b in itertools.product(range(2), range(3))]
    assert walk(g, nest, shift=shift) == order[shift:] + order[:shift]
    reasons = " ".join(nest.reasons())
    assert "division with remainder" in reasons
    assert "permutation" in reasons


@pytest.mark.parametrize(("m", "n"), [(3, 4), (4, 3), (3, 3), (0, 2), (1, 1)])
def test_one_of_two_nests_is_chosen_by_the_parameters(m: int, n: int) -> None:
    g = Graph()
    axes = (whole(g, "m", g.var("m", 0, 9)), whole(g, "n", g.var("n", 0, 9)))
    rows, columns = Loops(axes, (Loop(0, 0), Loop(1, 0))), Loops(axes, (Loop(1, 0), Loop(0, 0)))
    nest = Either(g.lt(axes[0].length, axes[1].length), rows, columns)
    want = list(itertools.product(range(m), range(n)))
    assert walk(g, nest, m=m, n=n) == (want if m < n else sorted(want, key=lambda p: p[::-1]))
    assert len(nest.reasons()) == 3


@pytest.mark.parametrize("items", range(30))
@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("chunk", [None, 1, 2, 3])
@pytest.mark.parametrize("run_time", [False, True])
def test_partitions_walk_consecutive_items(items: int, count: int, chunk: int | None, run_time: bool) -> None:
    g = Graph()
    length = g.var("items", 0, 40) if run_time else items
    parts = g.var("count", 1, 9) if run_time else g.const(count)
    size = None if chunk is None else g.var("chunk", 1, 5) if run_time else g.const(chunk)
    nest = Partitioned(Loops((whole(g, "m", length),), (Loop(0, 0),)), parts, size)
    order = [p for (p,) in walk(g, nest, items=items, count=count, chunk=chunk or 0)]
    assert sorted(order) == list(range(items))
    for x in range(count):
        own = order[x::count]
        if chunk is None:
            assert own == list(range(own[0], own[0] + len(own))) if own else True
        else:
            full = items // (count * chunk)
            assert own[: full * chunk] == [b * count * chunk + x * chunk + k for b in range(full) for k in range(chunk)]
    if chunk is not None:
        rest = items - items % (count * chunk)
        assert order[rest:] == list(range(rest, items))


def test_the_divisors_of_static_nests_are_literals() -> None:
    g = Graph()
    nest = Loops((split(g, "m", 61, 8), whole(g, "n", 30)), (Loop(0, 0), Loop(1, 0), Loop(0, 1)))
    from sched_compiler.expr import topological
    from sched_compiler.lower import lower

    coords = lower(g, nest.forward(g.var("index", 0, 61 * 30 - 1)))
    assert not any(node.op in ("div", "mod") for node in topological(coords))


@pytest.mark.parametrize("bands", range(4))
@pytest.mark.parametrize("down", [False, True])
def test_bands_that_are_whole_by_construction_are_not_ragged(bands: int, down: bool) -> None:
    """Also where there may be none: a box without points has no index to decode."""
    g = Graph()
    many = g.var("bands", 0, 5)
    axis = split(g, "m", many * 4, 4)
    nest = Loops((axis, whole(g, "n", 3)), (Loop(0, 0, down), Loop(1, 0), Loop(0, 1)))
    order = range(bands)[::-1] if down else range(bands)
    assert walk(g, nest, bands=bands) == [(b * 4 + m, n) for b in order for n in range(3) for m in range(4)]
    choices = [e for p in nest.forward(g.var("index", 0, 59)) for e in topological([p]) if e.op in ("select", "lt")]
    assert choices == []
