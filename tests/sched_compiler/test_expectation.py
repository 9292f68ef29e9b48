"""What a spec expects of its order: held against a plain walk, and only ever a warning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sched_compiler import driver


def rank_aware(m: int, n: int, group: int, world: int) -> str:
    arguments = {"m_clusters": m, "n_clusters": n, "group_size": group, "world_size": world}
    return json.dumps({"version": 1, "name": "x", "uses": "rank_aware_group_major", "with": arguments})


def early_rows(text: str, m: int, world: int, rank: int) -> list[int]:
    """Own rows of which a tile comes before another rank's, by the trace alone."""
    (tiles,) = driver.trace(text, values={"rank": rank}, workers=1).tiles
    own = range(rank * m // world, (rank + 1) * m // world)
    last_remote = max((k for k, (row, _) in enumerate(tiles) if row not in own), default=-1)
    return sorted({row for row, _ in tiles[: last_remote + 1] if row in own})


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("m", [0, 1, 2, 7, 8, 10, 12])
def test_own_rows_come_last_or_the_warning_names_those_that_do_not(m: int, world: int) -> None:
    text = rank_aware(m, 3, 2, world)
    report = driver.check_text(text)
    assert report.ok
    (order,) = (v for v in report.verdicts if v.property == "order")
    broken = {rank: rows for rank in range(world) if (rows := early_rows(text, m, world, rank))}
    assert (order.status == "proven") == (not broken)
    assert [d.code for d in report.diagnostics] == (["W004"] if broken else [])
    if m % world == 0:
        assert not broken
    if broken:
        rank, rows = next(iter(broken.items()))
        found = report.diagnostics[0].found or ""
        assert found.startswith(f"m = {', '.join(map(str, rows))} at rank={rank}")


def test_every_broken_combination_is_named_while_they_are_few() -> None:
    (d,) = driver.check_text(rank_aware(10, 3, 4, 4)).diagnostics
    assert d.found == "m = 2 at rank=1; m = 7 at rank=3"


def spec(**more: Any) -> str:
    base = {"version": 1, "name": "x", "params": {"rows": {"min": 0, "max": 10**6}}, "space": {"m": "rows", "n": 4}}
    return json.dumps({**base, "dispatch": "single", **more})


def test_what_cannot_be_tried_whole_is_undecided_and_no_fault() -> None:
    report = driver.check_text(spec(order={"loops": ["n", "m"]}, expect={"last": {"n": [3, 4]}}))
    (order,) = (v for v in report.verdicts if v.property == "order")
    assert (order.status, report.ok) == ("undecided", True)
    assert [d.code for d in report.diagnostics] == ["W003"]


def test_the_smallest_parameters_are_shown() -> None:
    report = driver.check_text(spec(order={"loops": ["m", "n"]}, expect={"last": {"n": ["rows * 0 + 3", 4]}}))
    assert [(d.code, d.found) for d in report.diagnostics] == [("W004", "n = 3 at rows=2")]
    assert report.ok


@pytest.mark.parametrize("rows", [[2, 0, 1], {"length": 3}])
def test_listed_points_are_looked_at_where_they_are_known(rows: Any) -> None:
    base = {"version": 1, "name": "x", "tables": {"rows": rows}, "space": {"m": 3}, "dispatch": "single"}
    wish = {"order": {"points": {"m": "rows"}}, "expect": {"last": {"m": [0, 1]}}}
    report = driver.check_text(json.dumps({**base, **wish}))
    assert report.ok
    assert [d.code for d in report.diagnostics] == ["W004" if isinstance(rows, list) else "W003"]


def test_padding_is_not_expected_last() -> None:
    order = {"split": {"m": {"by": 4, "ragged": "pad"}}, "loops": ["n", "m.outer", "m.inner"]}
    base = {"version": 1, "name": "x", "space": {"m": 3, "n": 2}, "dispatch": "single", "order": order}
    assert not driver.check_text(json.dumps({**base, "expect": {"last": {"n": [1, 2]}}})).diagnostics
