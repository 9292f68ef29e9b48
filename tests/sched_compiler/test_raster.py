"""Rasters: bands of one axis walked along the other, which one being chosen as CUTLASS chooses it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sched_compiler import driver
from sched_compiler.expr import topological
from sched_compiler.nest import Derived, Either, Loops
from tests.support.engines import Case, assert_engines_agree
from tests.test_random_specs import assert_is_the_written_loops

PARAMS = {"a": {"min": 0, "max": 65536}, "b": {"min": 0, "max": 300}, "s": {"min": 1, "max": 8}}


def spec(m: int | str, n: int | str, raster: Any, **more: Any) -> dict[str, Any]:
    order = {"raster": raster, **more}
    form = {"version": 1, "name": "raster", "params": PARAMS, "space": {"m": m, "n": n}, "order": order}
    return {**form, "dispatch": {"static": {"workers": 5}}}


def loops(m: int, n: int, along: str, swizzle: int) -> dict[str, Any]:
    """What it stands for."""
    across = "m" if along == "n" else "n"
    order = {"split": {across: swizzle}, "loops": [f"{across}.outer", along, f"{across}.inner"]}
    return {**spec(m, n, "auto"), "order": order}


def tiles(form: dict[str, Any], **values: int) -> list[list[list[int]]]:
    return driver.trace(json.dumps(form), values={"a": 0, "b": 0, "s": 1, **values}).tiles


@pytest.mark.parametrize("m", range(0, 21, 3))
@pytest.mark.parametrize("n", range(0, 21, 2))
def test_a_raster_is_the_bands_it_stands_for(m: int, n: int) -> None:
    for swizzle in (1, 3, 8):
        for along in ("m", "n", "auto"):
            chosen = along if along != "auto" else "m" if n > m else "n"
            want = tiles(loops(m, n, chosen, swizzle))
            assert tiles(spec(m, n, {"along": along, "swizzle": swizzle})) == want
            run_time = spec("a", "b", {"along": along, "swizzle": "s"})
            assert tiles(run_time, a=m, b=n, s=swizzle) == want


def test_engines_agree_on_rasters() -> None:
    cases = [
        Case(spec("a", "b", {"along": along, "swizzle": "s"}), {"a": m, "b": n, "s": swizzle})
        for along in ("auto", "m", "n")
        for m, n, swizzle in ((0, 2, 1), (1, 1, 1), (9, 9, 8), (5, 9, 2), (9, 5, 4), (40, 1, 8))
    ]
    for case in cases:
        assert_is_the_written_loops(dict(case.spec), dict(case.values))
    assert_engines_agree(cases)


@pytest.mark.parametrize(("m", "n"), [(8, 9), (9, 9), (9, 8), ("a + 301", "b"), ("a", "a")])
def test_extents_that_leave_no_choice_leave_one_nest(m: int | str, n: int | str) -> None:
    nest = driver.check(json.dumps(spec(m, n, "auto"))).schedule.nest
    assert isinstance(nest, Derived)
    assert isinstance(nest.inner, Loops)


def test_a_choice_is_made_once_and_walks_the_box_either_way() -> None:
    checked = driver.check(json.dumps(spec("a", "b", {"along": "auto", "swizzle": 8})))
    assert isinstance(checked.schedule.nest, Derived)
    assert isinstance(checked.schedule.nest.inner, Either)
    assert sum(node.op == "le" for node in topological(checked.schedule.coords)) == 1


def test_a_raster_of_fused_axes_and_in_a_piece() -> None:
    form = spec(6, 10, {"along": "hb", "swizzle": 2}, fuse={"hb": ["h", "n"]}, reverse=["n"])
    form["space"] = {"m": 6, "h": 2, "n": 5}
    assert_is_the_written_loops(form, {"a": 0, "b": 0, "s": 1})
    pieces = [
        {"part": {"m": [0, 4]}, "raster": {"along": "m", "swizzle": 3}},
        {"part": {"m": [4, 6]}, "raster": "auto"},
    ]
    assert_is_the_written_loops({**spec(6, 10, "auto"), "order": {"pieces": pieces}}, {"a": 0, "b": 0, "s": 1})
