"""Pieces tile their box for all parameter values, or the smallest position says that they do not."""

from __future__ import annotations

import itertools
import json
import random
import time
from typing import Any

import pytest

from sched_compiler import driver
from sched_compiler.build import build
from sched_compiler.loader import load
from sched_compiler.nest import pieces_of
from sched_compiler.tiling import Tiling, prove_tiling
from tests.support.engines import Case, assert_engines_agree
from tests.support.oracle import number, visits


def spec_of(
    space: dict[str, Any], pieces: list[Any], params: dict[str, tuple[int, int]] | None = None
) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "x",
        "params": {name: {"min": low, "max": high} for name, (low, high) in (params or {}).items()},
        "space": space,
        "order": {"pieces": [{"part": part} for part in pieces]},
        "dispatch": {"static": {"workers": 1}},
    }


def tiling(spec: dict[str, Any]) -> Tiling:
    schedule = build(load(json.dumps(spec))).schedule
    assert schedule.nest is not None
    ((_, pieces),) = pieces_of(schedule.nest)
    return prove_tiling(pieces, schedule.params)


def counts(spec: dict[str, Any], env: dict[str, int]) -> dict[tuple[int, ...], int]:
    """How often each position of the box, and around it, is covered."""
    extents = [number(e, env) for e in spec["space"].values()]
    found: dict[tuple[int, ...], int] = dict.fromkeys(itertools.product(*map(range, extents)), 0)
    for piece in spec["order"]["pieces"]:
        ranges = []
        for axis, extent in zip(spec["space"], extents, strict=True):
            low, high = (number(e, env) for e in piece["part"].get(axis, (0, extent)))
            ranges.append(range(low, high))
        for position in itertools.product(*ranges):
            found[position] = found.get(position, 2) + 1
    return found


@pytest.mark.parametrize("seed", range(300))
def test_random_boxes_are_judged_as_by_counting(seed: int) -> None:
    chance = random.Random(seed)
    m, n = chance.randint(1, 5), chance.randint(1, 5)
    pieces: list[Any] = [{"m": [0, m], "n": [0, n]}]
    for _ in range(chance.randint(1, 3)):
        part = pieces.pop(chance.randrange(len(pieces)))
        axis = chance.choice("mn")
        low, high = part[axis]
        at = chance.randint(low, high)
        pieces += [{**part, axis: [low, at]}, {**part, axis: [at, high]}]
    if chance.random() < 0.5:  # move one corner
        part = chance.choice(pieces)
        axis, end = chance.choice("mn"), chance.randrange(2)
        part[axis] = list(part[axis])
        part[axis][end] = max(0, part[axis][end] + chance.choice([-1, 1]))
    spec = spec_of({"m": m, "n": n}, pieces)
    tiles = all(count == 1 for count in counts(spec, {}).values())
    found = tiling(spec)
    assert found.proven == tiles, spec
    if found.fault is not None:
        assert counts(spec, {}).get(tuple(found.fault.position.values()), 0) != 1


@pytest.mark.parametrize(
    ("pieces", "params"),
    [
        ([{"m": [0, "a // 8 * 8"]}, {"m": ["a // 8 * 8", "a"]}], {"a": (0, 10**6)}),
        ([{"m": [0, "min(a, 5)"]}, {"m": ["min(a, 5)", "a"]}], {"a": (0, 10**6)}),
        ([{"m": [0, 4]}, {"m": [4, "a"]}], {"a": (4, 10**6)}),
    ],
)
def test_corners_in_one_order_are_proven_for_any_number_of_values(pieces: Any, params: Any) -> None:
    found = tiling(spec_of({"m": "a"}, pieces, params))
    assert found.proven
    assert "for all parameters" in found.how


@pytest.mark.parametrize("seed", range(60))
def test_the_first_of_several_faults_is_shown(seed: int) -> None:
    """In three axes, with boxes that overlap, leave gaps and are empty; first in the order of the axes."""
    chance = random.Random(seed)
    space = {axis: chance.randint(1, 3) for axis in "abc"}
    pieces = [
        {axis: sorted((chance.randint(0, n), chance.randint(0, n))) for axis, n in space.items()}
        for _ in range(chance.randint(1, 4))
    ]
    spec = spec_of(space, pieces)
    wrong = [position for position, count in sorted(counts(spec, {}).items()) if count != 1]
    found = tiling(spec)
    assert found.proven == (not wrong)
    if found.fault is not None:
        assert tuple(found.fault.position.values()) == wrong[0]
        assert len(found.fault.pieces) == counts(spec, {})[wrong[0]]


def grid(m: list[str], n: list[str]) -> list[dict[str, list[str]]]:
    """The pieces between corners along two axes."""
    return [
        {"m": [a, b], "n": [c, d]} for a, b in itertools.pairwise(["0", *m]) for c, d in itertools.pairwise(["0", *n])
    ]


def sums(name: str, count: int) -> list[str]:
    return [" + ".join(f"{name}{k}" for k in range(n + 1)) for n in range(count)]


def test_corners_that_are_sums_are_in_order() -> None:
    m, n = sums("a", 7), sums("b", 7)
    params = {f"{axis}{k}": (0, 100) for axis in "ab" for k in range(7)}
    found = tiling(spec_of({"m": m[-1], "n": n[-1]}, grid(m, n), params))
    assert found.proven
    assert "for all parameters" in found.how


@pytest.mark.parametrize("names", ["abmn", "abcdefghijkl"])
def test_many_open_orders_are_undecided_in_a_moment(names: str) -> None:
    others = itertools.cycle(names)
    corners = [f"{next(others)} * {next(others)} % 50" for _ in range(6)]
    m, n = ([f"min({x}, ({' + '.join(corners[: k + 1])}))" for k in range(6)] + [x] for x in names[-2:])
    spec = spec_of({"m": names[-2], "n": names[-1]}, grid(m, n), dict.fromkeys(names, (1, 1000)))
    begin = time.perf_counter()
    found = tiling(spec)
    assert time.perf_counter() - begin < 4  # half a second on a quiet machine
    assert (found.proven, found.fault) == (False, None)


def test_few_values_are_tried_one_by_one() -> None:
    found = tiling(spec_of({"m": 9}, [{"m": [0, "a * a % 7"]}, {"m": ["a * a % 7", 9]}], {"a": (0, 50)}))
    assert found.proven
    assert tiling(spec_of({"m": 5}, [{"m": [0, "a * a % 7"]}, {"m": ["a * a % 7", 5]}], {"a": (0, 2)})).proven


def test_a_counterexample_has_the_smallest_values() -> None:
    found = tiling(spec_of({"m": 9}, [{"m": [0, "a"]}, {"m": ["min(a, 3)", 9]}], {"a": (0, 9)}))
    assert not found.proven
    assert found.fault is not None
    assert (found.fault.values, found.fault.position, found.fault.pieces) == ({"a": 4}, {"m": 3}, (0, 1))


def test_a_piece_outside_the_box_is_a_fault() -> None:
    found = tiling(spec_of({"m": 3}, [{"m": [0, 3]}, {"m": [3, 5]}]))
    assert not found.proven
    assert found.fault is not None
    assert found.fault.pieces == (1,)


def test_a_piece_that_ends_before_it_begins_is_empty() -> None:
    """Its size is none, not a number that wraps: the pieces after it begin where it would."""
    pieces = [{"m": ["a", 2]}, {"m": [0, "min(a, 2)"]}, {"m": [2, 4]}]
    cases = [Case(spec_of({"m": 4}, pieces, {"a": (0, 4)}), {"a": a}) for a in range(5)]
    for case in cases:
        (rows,) = case.numpy()
        assert sorted(rows[:, 0].tolist()) == [0, 1, 2, 3]
    assert_engines_agree(cases)


def test_a_piece_that_begins_past_a_short_band_is_empty() -> None:
    """The corner is a whole number of bands and may lie past the axis's end, where the last band is short."""
    part = {"m.outer": [0, "min(2, ceil_div(a, 3))"]}, {"m.outer": ["min(2, ceil_div(a, 3))", "ceil_div(a, 3)"]}
    spec = spec_of({"m": "a"}, list(reversed(part)), {"a": (4, 10)})
    spec["order"]["split"] = {"m": 3}
    for a in range(4, 11):
        want = [tile for tile, _ in visits(spec, {"a": a})]
        assert [tuple(t) for t in driver.trace(json.dumps(spec), values={"a": a}).tiles[0]] == want
