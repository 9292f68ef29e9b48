"""Partitions: index i runs on partition i % count, and each partition walks consecutive items of any order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sched_compiler import driver
from tests.support.engines import Case, assert_engines_agree
from tests.test_random_specs import assert_is_the_written_loops

PARAMS = {"rows": {"min": 0, "max": 65536}, "p": {"min": 1, "max": 9}, "c": {"min": 1, "max": 40}}
WALKS: dict[str, dict[str, Any]] = {
    "loops": {"split": {"m": 4}, "loops": ["m.outer", "n", "m.inner"]},
    "curve": {"curve": "hilbert"},
    "raster": {"raster": {"along": "n", "swizzle": 3}},
    "pieces": {"pieces": [{"part": {"n": [0, 2]}, "loops": ["n", "m"]}, {"part": {"n": [2, 5]}, "curve": "morton"}]},
}


def spec(walk: str, rows: int | str, partitions: Any) -> dict[str, Any]:
    order = {**WALKS[walk], "partitions": partitions}
    form = {"version": 1, "name": "dealt", "params": PARAMS, "space": {"m": rows, "n": 5}, "order": order}
    return {**form, "dispatch": {"single": {}}}


@pytest.mark.parametrize("walk", WALKS)
def test_any_order_can_be_dealt_out(walk: str) -> None:
    cases = []
    for rows, count, chunk in itertools.product((0, 1, 7, 33), (1, 3, 8), (None, 1, 4, 40)):
        values = {"rows": rows, "p": count, "c": chunk or 1}
        literal = count if chunk is None else {"count": count, "chunk": chunk}
        formula: Any = "p" if chunk is None else {"count": "p", "chunk": "c"}
        cases += [Case(spec(walk, rows, literal), values), Case(spec(walk, "rows", formula), values)]
    for case in cases:
        assert_is_the_written_loops(dict(case.spec), dict(case.values))
    assert_engines_agree(cases[::3])


def test_pieces_under_partitions_are_still_proven() -> None:
    form = spec("pieces", "rows", 8)
    form["order"]["pieces"][1]["part"]["n"] = [3, 5]
    report = driver.check_text(str(form).replace("'", '"'))
    assert [d.code for d in report.diagnostics if d.code != "W002"] == ["E045"]
