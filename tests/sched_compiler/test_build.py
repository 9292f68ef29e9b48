"""Building: widths follow from the ranges, padding is asked only where it can be, warnings point at their cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sched_compiler import driver
from sched_compiler.build import build
from sched_compiler.diagnostics import SpecError
from sched_compiler.dispatch import GRID_LIMIT
from sched_compiler.expr import S32, S64, U32, U64, Dtype, to_text
from sched_compiler.loader import load
from sched_compiler.schedule import Schedule


def spec(space: dict[str, Any], params: dict[str, tuple[int, int]] | None = None, **more: Any) -> str:
    form = {
        "version": 1,
        "name": "x",
        "params": {name: {"min": low, "max": high} for name, (low, high) in (params or {}).items()},
        "space": space,
        "dispatch": {"static": {"workers": 2}},
        **more,
    }
    return json.dumps(form)


def schedule(*arguments: Any, **more: Any) -> Schedule:
    return driver.check(spec(*arguments, **more)).schedule


@pytest.mark.parametrize(
    ("m", "workers", "dtype"),
    [
        (100, 2, U32),
        (2**31, 2, U32),
        (2**32 - 2, 2, U32),  # the last index, 2^32 - 3, and its stride: 2^32 - 1
        (2**32 - 1, 2, U64),
        (2**32 + 1, 2, U64),
        (2**31, GRID_LIMIT, U32),
        (2**31 + 2, GRID_LIMIT, U64),
    ],
)
def test_the_index_s_width_holds_its_last_advance(m: int, workers: int, dtype: Dtype) -> None:
    built = schedule({"m": m}, dispatch={"static": {"workers": workers}})
    assert built.index_type is dtype
    assert built.dispatch.advance(built.index, built.items)[0].hi <= built.index_type.hi


@pytest.mark.parametrize(("m", "dtype"), [(2**31, S32), (2**31 + 1, S64)])
def test_the_coordinates_width_holds_the_last_tile(m: int, dtype: Dtype) -> None:
    assert all(c.dtype is dtype for c in schedule({"m": m, "n": 1}).coords)


class TestInBounds:
    def test_nothing_is_asked_where_nothing_is_padded(self) -> None:
        assert schedule({"m": "a", "n": 4}, {"a": (0, 9)}).in_bounds.value == 1
        assert schedule({"m": 4}, cluster={"m": 2}).in_bounds.value == 1
        assert schedule({"m": "a * 2"}, {"a": (0, 9)}, cluster={"m": 2}).in_bounds.value == 1
        order = {"split": {"m": {"by": 4, "ragged": "pad"}}}
        assert schedule({"m": 8}, order=order).in_bounds.value == 1

    def test_only_padded_axes_are_asked(self) -> None:
        built = schedule({"m": "a", "n": 4}, {"a": (0, 9)}, cluster={"m": 2, "n": 2})
        assert to_text(built.in_bounds) == "tile.m < a"


class TestCounts:
    def test_items_are_clusters_and_tiles_are_tiles(self) -> None:
        built = schedule({"m": 5, "n": 3}, cluster={"m": 2, "n": 2})
        assert (built.items.value, built.tiles.value, built.cluster_size) == (6, 15, 4)
        assert built.static

    def test_padding_counts_as_items(self) -> None:
        built = schedule({"m": 5}, order={"split": {"m": {"by": 4, "ragged": "pad"}}})
        assert (built.items.value, built.tiles.value) == (8, 5)

    def test_run_time_extents_are_not_static(self) -> None:
        built = schedule({"m": "a"}, {"a": (2, 9)})
        assert (built.static, built.items.lo, built.items.hi) == (False, 2, 9)


def test_a_formula_has_no_inverse() -> None:
    built = driver.check(json.dumps({**json.loads(spec({"m": 4})), "map": {"m": "3 - i"}})).schedule
    assert built.inverse is None
    assert built.nest is None


@pytest.mark.parametrize("cluster", [{"m": 2, "n": 4}, {"n": 4, "m": 2}])
def test_the_first_named_axis_of_a_cluster_is_fastest(cluster: dict[str, int]) -> None:
    text = spec({"m": 2, "n": 4}, cluster=cluster, dispatch={"single": {}})
    (tiles,) = driver.trace(text).tiles
    first = next(iter(cluster))
    assert tiles[1] == ([1, 0] if first == "m" else [0, 1])
    assert sorted(tiles) == [[m, n] for m in range(2) for n in range(4)]


class TestWarnings:
    def found(self, text: str) -> list[tuple[str, int, int]]:
        report = driver.check_text(text)
        assert report.ok
        return [(d.code, d.span.line, d.span.column) for d in report.diagnostics]

    def test_an_unused_parameter(self) -> None:
        text = "version: 1\nname: x\nparams:\n  a: {min: 0, max: 9}\nspace: {m: 4}\ndispatch: single\n"
        assert self.found(text) == [("W002", 4, 3)]

    @pytest.mark.parametrize(
        "use", ["order: {loops: [m], rotate: {m: a}}", "order: {split: {m: a + 1}}", "order: {pieces: [{part: {m: [0, "
        '"4 if a < 99 else 0"]}}]}']
    )  # fmt: skip
    def test_a_parameter_used_anywhere_is_used(self, use: str) -> None:
        text = f"version: 1\nname: x\nparams:\n  a: {{min: 0, max: 9}}\nspace: {{m: 4}}\n{use}\ndispatch: single\n"
        assert self.found(text) == []

    def test_padding_without_effect(self) -> None:
        text = (
            "version: 1\nname: x\nspace: {m: 10}\norder:\n  split: {m: 4, m.outer: {by: 2, ragged: pad}}\n"
            "dispatch: single\n"
        )
        assert self.found(text) == [("W001", 5, 26)]
        assert driver.check(text).schedule.items.value == 10

    def test_padding_of_a_chain_has_an_effect(self) -> None:
        text = (
            "version: 1\nname: x\nspace: {m: 10}\norder:\n"
            "  split: {m: {by: 4, ragged: pad}, m.outer: {by: 2, ragged: pad}}\ndispatch: single\n"
        )
        assert self.found(text) == []
        assert driver.check(text).schedule.items.value == 16


def test_padding_that_would_repeat_points_is_refused() -> None:
    text = spec({"m": 10}, order={"split": {"m": 4, "m.inner": {"by": 3, "ragged": "pad"}}})
    assert [d.code for d in driver.check_text(text).diagnostics] == ["E043"]


def test_fused_ranges_may_multiply_past_64_bits_where_the_axis_does_not() -> None:
    """Each of the two members is bounded by what both may be together, not by the product of all bounds."""
    params = {"a": (0, 2**24), "b": (1, 2**24)}
    order = {"fuse": {"f": ["m", "n"]}, "split": {"f": {"by": 8, "ragged": "pad"}}, "reverse": ["n"]}
    text = spec({"m": "a", "n": "b"}, params, order=order)
    assert driver.check_text(text).ok
    tiles = driver.trace(text, values={"a": 3, "b": 2}, workers=1).tiles[0]
    assert len(tiles) == 8


def test_bands_known_only_at_launch_keep_the_index_within_its_range() -> None:
    """However long a band may be, the iterations before one are fewer than all."""
    params = {"a": (0, 2**31), "b": (0, 2**31), "c": (1, 2**20)}
    order = {"split": {"m": "c"}, "loops": ["m.outer", "n", "m.inner"]}
    text = spec({"m": "a", "n": "b"}, params, order=order)
    assert driver.check_text(text).ok
    (tiles,) = driver.trace(text, values={"a": 3, "b": 2, "c": 2}, workers=1).tiles
    assert tiles == [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]]


@pytest.mark.parametrize(
    ("extent", "message", "found"),
    [
        ("rows", "is not always a multiple", "1 at rows=1"),
        ("rows * 2 + more // 9", "is not always a multiple", "1 at rows=0, more=9"),
        ("5", "is not always a multiple", "5"),
        ("rows * rows + rows", "is not shown to be a multiple", "extents from 0 to 1000001000000"),
    ],
)
def test_a_ragged_cluster_is_refused_by_a_value_or_as_not_shown(extent: str, message: str, found: str) -> None:
    text = (
        "version: 1\nname: x\nparams: {rows: {min: 0, max: 1000000}, more: {min: 0, max: 1000000}}\n"
        f"space: {{m: {extent}}}\ncluster: {{m: 2, ragged: reject}}\ndispatch: {{static: {{workers: 4}}}}\n"
    )
    with pytest.raises(SpecError) as caught:
        build(load(text))
    (d,) = caught.value.diagnostics
    assert (d.code, d.found, d.expected) == ("E050", found, "multiples of 2")
    assert message in d.message
