"""Space-filling curves: the curve of the smallest square that holds the box, points outside it skipped."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from sched_compiler.curve import Curve
from sched_compiler.expr import Expr, Graph, topological
from sched_compiler.lower import lower
from sched_compiler.nest import Loop
from tests.sched_compiler.test_nest import split, walk, whole
from tests.support.engines import Case, assert_engines_agree
from tests.support.oracle import curve_of_square
from tests.test_random_specs import assert_is_the_written_loops

KINDS = ("hilbert", "morton")


def curve(g: Graph, kind: str, m: Expr | int, n: Expr | int) -> Curve:
    return Curve((whole(g, "m", m), whole(g, "n", n)), kind == "hilbert")


def order(kind: str, m: int, n: int) -> list[tuple[int, int]]:
    """The definition."""
    square = curve_of_square(kind, max(m - 1, n - 1, 0).bit_length())
    return [(row, column) for row, column in square if row < m and column < n]


def spec(kind: str, m: int | str, n: int | str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    axes = {"params": params or {}, "space": {"m": m, "n": n}, "order": {"curve": kind, **more}}
    return {"version": 1, "name": "curve", **axes, "dispatch": {"static": {"workers": 5}}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", range(21))
def test_small_boxes_of_every_shape(kind: str, m: int) -> None:
    g = Graph()
    run_time = curve(g, kind, g.var("m", 0, 20), g.var("n", 0, 20))
    for n in range(21):
        want = order(kind, m, n)
        assert walk(g, curve(g, kind, m, n)) == want
        assert walk(g, run_time, m=m, n=n) == want


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_larger_boxes(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    m, n = (chance.choice([1, 2, 3, 31, 32, 64, 100, 128, 255, chance.randint(1, 257)]) for _ in range(2))
    g = Graph()
    want = order(kind, m, n)
    assert walk(g, curve(g, kind, m, n)) == want
    rows = g.var("m", chance.randint(0, m), chance.choice([m + 1, 300, 65536, 1 << 31]))
    columns = g.var("n", chance.randint(0, n), chance.choice([n + 1, 300, 65536]))
    assert walk(g, curve(g, kind, rows, columns), m=m, n=n) == want
    assert walk(g, curve(g, kind, m, columns), n=n) == want


@pytest.mark.parametrize("levels", range(8))
def test_consecutive_tiles_of_hilberts_square_are_neighbours(levels: int) -> None:
    g = Graph()
    tiles = walk(g, curve(g, "hilbert", 1 << levels, 1 << levels))
    assert tiles[0] == (0, 0)
    assert tiles[1:2] == [(0, 1)][:levels]
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in itertools.pairwise(tiles))
    end = (1 << levels) - 1
    assert tiles[-1] == ((end, 0) if levels % 2 else (0, end))


@pytest.mark.parametrize("m", range(8))
@pytest.mark.parametrize("run_time", [False, True])
def test_the_curve_of_a_split_axis_walks_its_bands(m: int, run_time: bool) -> None:
    g = Graph()
    for n in range(8):
        lengths = (g.var("m", 0, 30), g.var("n", 0, 9)) if run_time else (m, n)
        nest = Curve((split(g, "m", lengths[0], 3), whole(g, "n", lengths[1])), True, (Loop(0, 0, reverse=True),))
        want = [
            (row, column)
            for band, column in order("hilbert", -(-m // 3), n)
            for row in reversed(range(3 * band, min(3 * band + 3, m)))
        ]
        assert walk(g, nest, m=m, n=n) == want


@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree_on_curves(kind: str) -> None:
    params = {"a": {"min": 0, "max": 65536}, "b": {"min": 0, "max": 300}}
    run_time = spec(kind, "a", "b", params)
    banded = spec(kind, "a", "b", params, split={"m": 3, "n": {"by": 2, "ragged": "pad"}}, loops=["n.inner", "m.inner"])
    shapes = [(0, 3), (1, 1), (1, 40), (40, 1), (5, 9), (16, 16), (17, 3), (33, 20)]
    cases = [Case(s, {"a": m, "b": n}) for s in (run_time, banded) for m, n in shapes]
    cases += [Case(spec(kind, m, n), {}) for m, n in shapes]
    for case in cases:
        assert_is_the_written_loops(dict(case.spec), dict(case.values))
    assert_engines_agree(cases)


# -- what a curve costs ---------------------------------------------------------------------------------------


def operations(kind: str, m: int, n: int) -> Counter[str]:
    g = Graph()
    nest = curve(g, kind, m, n)
    coords = lower(g, nest.forward(g.var("index", 0, m * n - 1)))
    return Counter(node.op for node in topological(coords) if node.args)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_row_costs_nothing(kind: str) -> None:
    assert operations(kind, 1, 1 << 20) == operations(kind, 1 << 20, 1) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_band_costs_one_division_and_the_turns(kind: str) -> None:
    """The squares of a long band are counted by one division; Hilbert's turns in them need a few operations each."""
    short, long = (operations(kind, 3, n).total() for n in (4, 1 << 20))
    assert long - short <= (8 * 18 if kind == "hilbert" else 12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_of_two_square_has_shifts_and_masks_alone(kind: str) -> None:
    assert not operations(kind, 64, 64).keys() & {"mul", "mulhi", "div", "sub", "min"}


@pytest.mark.parametrize(("most", "widest"), [(65536, 32), (65537, 64)])
def test_32_bits_suffice_where_the_number_of_tiles_fits_them(most: int, widest: int) -> None:
    g = Graph()
    nest = curve(g, "hilbert", g.var("m", 0, most), g.var("n", 0, most))
    coords = nest.forward(g.var("index", 0, nest.size.hi - 1))
    assert max(node.dtype.bits for node in topological(coords)) == widest
