"""Random composed specs: the compiler's maps are the written loops, and all engines agree.

`SCHEDC_EXAMPLES` is the number of specs, `SCHEDC_SEED` the first seed. A failure names its seed and shows the spec.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_compiler import driver
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import to_text
from sched_compiler.formula import MAX_LENGTH
from sched_compiler.schedule import tile_input
from sched_compiler.traces import decode
from tests.support.engines import Case, assert_engines_agree
from tests.support.oracle import visits
from tests.support.random_specs import RandomChoices, random_spec

T = TypeVar("T")
EXAMPLES = int(os.environ.get("SCHEDC_EXAMPLES", "2000"))
SEED = int(os.environ.get("SCHEDC_SEED", "0"))
BATCH = 100  # specs that share one C++ compile
MAPS = 300


def assert_is_the_written_loops(spec: dict[str, Any], values: dict[str, int]) -> Case:
    """Forward map, inverse, bounds and count of one spec against the oracle."""
    case = Case(spec, values, workers=7)
    schedule = case.checked.schedule
    want = visits(spec, values)
    items = int(evaluate([schedule.items], values)[0][0])
    assert items * schedule.cluster_size == len(want)
    assert items <= schedule.items.hi
    rows = decode(schedule, np.arange(items), values)
    assert [(tuple(row[:-1]), bool(row[-1])) for row in rows.tolist()] == want
    inside = [tile for tile, in_bounds in want if in_bounds]  # the oracle follows the loops, and could lose a tile too
    extents = [int(e[0]) for e in evaluate([axis.extent for axis in schedule.axes], values)]
    assert sorted(inside) == list(itertools.product(*map(range, extents)))
    if items:
        for coordinate, column in zip(schedule.coords, rows.T, strict=False):
            assert coordinate.lo <= column.min()
            assert column.max() <= coordinate.hi
        tiles = {tile_input(axis.name): rows[:, k] for k, axis in enumerate(schedule.axes)}
        assert schedule.inverse is not None
        (index,) = evaluate([schedule.inverse], {**values, **tiles})
        expected = np.repeat(np.arange(items), schedule.cluster_size)
        assert np.array_equal(np.broadcast_to(index, expected.shape), expected)
    return case


@pytest.mark.parametrize("first", range(SEED, SEED + EXAMPLES, BATCH))
def test_random_specs_are_the_written_loops_in_every_engine(first: int) -> None:
    cases = []
    for seed in range(first, min(first + BATCH, SEED + EXAMPLES)):
        spec, values = random_spec(RandomChoices(seed))
        try:
            cases.append(assert_is_the_written_loops(spec, values))
        except Exception as error:
            error.add_note(f"seed {seed}: {json.dumps(spec)} at {values}")
            raise
    assert_engines_agree(cases)


class DrawnChoices:
    """Choices that Hypothesis makes, so that it can shrink what fails."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, lo: int, hi: int) -> int:
        return self._draw(st.integers(lo, hi))

    def pick(self, options: Sequence[T]) -> T:
        return options[self._draw(st.integers(0, len(options) - 1))]


@st.composite
def specs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, int]]:
    return random_spec(DrawnChoices(draw))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(specs())
def test_drawn_specs_are_the_written_loops(drawn: tuple[dict[str, Any], dict[str, int]]) -> None:
    assert_is_the_written_loops(*drawn)


# -- formulas that a spec's author could have written -----------------------------------------------------------


def composed(choices: RandomChoices, fixed: bool) -> dict[str, Any]:
    """A random spec of single tiles without padding; its parameters at their values if they are to be fixed."""
    for _ in range(1000):
        spec, values = random_spec(choices)
        # a curve's formulas share so much that written out they are long beyond measure
        if "cluster" not in spec and '"pad"' not in json.dumps(spec) and '"curve"' not in json.dumps(spec):
            if fixed:
                spec["params"] = {name: {"min": value, "max": value} for name, value in values.items()}
            return {**spec, "dispatch": {"static": {"workers": 3}}}
    raise AssertionError("no spec without padding")


def mapped(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The formulas that a composed spec compiles to, as a spec of its own, unless they are too long."""
    schedule = driver.check(json.dumps(spec)).schedule
    formulas = {
        axis.name: to_text(c).replace("$index", "i") for axis, c in zip(schedule.axes, schedule.coords, strict=True)
    }
    if max(map(len, formulas.values())) > MAX_LENGTH:
        return None
    extents = {axis.name: to_text(axis.extent) for axis in schedule.axes}
    params = {p.name: {"min": p.var.lo, "max": p.var.hi} for p in schedule.params if p.var.op == "var"}
    form = {"version": 1, "name": "mapped", "params": params, "space": extents, "map": formulas}
    return {**form, "dispatch": spec["dispatch"]}


@functools.cache
def mapped_specs() -> list[dict[str, Any]]:
    """Formulas without parameters."""
    found = (mapped(composed(RandomChoices(seed), fixed=True)) for seed in itertools.count())
    return list(itertools.islice((form for form in found if form is not None), MAPS))


def tiles_of(spec: dict[str, Any]) -> list[tuple[int, ...]]:
    """The formulas evaluated as Python, which they also are."""
    total = 1
    for extent in spec["space"].values():
        total *= int(extent)
    codes = [compile(text, axis, "eval") for axis, text in spec["map"].items()]
    names = {"__builtins__": {}, "min": min, "max": max}
    return [tuple(int(eval(code, names, {"i": i})) for code in codes) for i in range(total)]


def test_formulas_of_composed_specs_are_proven() -> None:
    for mapped in mapped_specs():
        report = driver.check_text(json.dumps(mapped))
        assert report.ok, (mapped, report.diagnostics)


def test_a_wrong_constant_in_a_formula_is_found_out() -> None:
    """`ok` is exactly what brute force says; a refutation says something that is true."""
    chance = random.Random(SEED)
    refuted = 0
    for original in mapped_specs():
        axis = chance.choice(list(original["map"]))
        text = original["map"][axis]
        numbers = list(re.finditer(r"\d+", text))
        if not numbers:
            continue
        place = chance.choice(numbers)
        wrong = max(0, int(place.group()) + chance.choice([-2, -1, 1, 2, 5]))
        changed = text[: place.start()] + str(wrong) + text[place.end() :]
        mapped = {**original, "map": {**original["map"], axis: changed}}
        report = driver.check_text(json.dumps(mapped))
        codes = {d.code for d in report.diagnostics}
        if "E022" in codes:  # a divisor that may be zero is refused before any tile is tried
            continue
        tiles = tiles_of(mapped)
        extents = [int(extent) for extent in mapped["space"].values()]
        inside = {t for t in tiles if all(0 <= c < e for c, e in zip(t, extents, strict=True))}
        context = (mapped, report.diagnostics)
        assert report.ok == (len(inside) == len(tiles)), context
        assert ("E060" in codes) == (len(inside) < len(tiles)), context
        assert ("E062" in codes) == any(t not in inside for t in tiles), context
        assert ("E061" in codes) == (len([t for t in tiles if t in inside]) > len(inside)), context
        refuted += not report.ok
    assert refuted > MAPS // 3
