"""Verification: what is wrong is refuted by its smallest counterexample, and what is undecided never passes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sched_compiler import driver, tried, verify
from sched_compiler.diagnostics import Diagnostic
from sched_compiler.verdict import Verdict

PROPERTIES = ["coverage", "bounds", "overflow", "division", "grid"]


def report(space: dict[str, Any], formulas: dict[str, Any], **params: tuple[int, int]) -> driver.CheckReport:
    spec = {
        "version": 1,
        "name": "x",
        "params": {name: {"min": low, "max": high} for name, (low, high) in params.items()},
        "space": space,
        "map": formulas,
        "dispatch": {"static": {"workers": 2}},
    }
    return driver.check_text(json.dumps(spec))


def by_code(found: driver.CheckReport) -> dict[str, Diagnostic]:
    assert not found.ok
    return {d.code: d for d in found.diagnostics}


class TestFormulas:
    def test_a_permutation_is_proven(self) -> None:
        found = report({"m": 5, "n": 7}, {"m": "i * 12 % 35 // 7", "n": "i * 12 % 35 % 7"})
        assert found.ok
        assert [v.property for v in found.verdicts] == PROPERTIES
        assert "35 tiles" in found.verdicts[0].how

    def test_the_first_lost_and_the_first_repeated_tile_are_shown(self) -> None:
        found = by_code(report({"m": 6}, {"m": "i if i < 4 else 2"}))
        assert set(found) == {"E060", "E061"}
        assert (found["E060"].message, found["E060"].found) == ("a tile is never visited: (m=4)", "2 of 6 tiles lost")
        assert found["E061"].message == "a tile is visited more than once: (m=2)"
        assert found["E061"].found == "i = 2 and i = 4"

    def test_the_first_tile_outside_is_shown(self) -> None:
        found = by_code(report({"m": 4, "n": 2}, {"m": "i // 2", "n": "i % 2 + i // 6"}))
        assert found["E062"].found == "n = 2 for i = 7"
        assert found["E062"].expected == "0 <= n < 2"
        assert "(m=3, n=2)" in found["E062"].message

    def test_negative_coordinates_are_outside(self) -> None:
        assert by_code(report({"m": 4}, {"m": "i - 1"}))["E062"].found == "m = -1 for i = 0"

    def test_the_smallest_parameters_that_fail_are_shown(self) -> None:
        found = by_code(report({"m": "a", "n": "b"}, {"m": "i // 4", "n": "i % 4"}, a=(0, 9), b=(1, 9)))
        assert found["E061" if "E061" in found else "E062"].found is not None
        assert all("a=1, b=" in str(d.found) or "a=2, b=" in str(d.found) for d in found.values())

    def test_all_combinations_of_few_parameters_are_tried(self) -> None:
        found = report({"m": "a", "n": "b"}, {"m": "i // max(b, 1)", "n": "i % max(b, 1)"}, a=(0, 20), b=(0, 20))
        assert found.ok
        assert "441 combinations" in found.verdicts[0].how

    def test_one_bad_combination_among_many_is_found(self) -> None:
        formula = "i if a != 357 else max(i, 1)"
        found = by_code(report({"m": "a"}, {"m": formula}, a=(1, 500)))
        assert found["E060"].found == "1 of 357 tiles lost at a=357"

    def test_what_cannot_be_tried_or_proven_is_undecided_and_does_not_pass(self) -> None:
        shuffled = "i * 7919 % (a * a)"
        found = report({"m": "a", "n": "a"}, {"m": f"{shuffled} // a", "n": f"{shuffled} % a"}, a=(1, 10**6))
        assert [d.code for d in found.diagnostics] == ["E064"]
        assert not found.ok
        assert [v.status for v in found.verdicts[:2]] == ["undecided", "undecided"]

    def test_among_too_many_a_small_counterexample_is_still_found(self) -> None:
        assert "a=2" in str(by_code(report({"m": "a"}, {"m": "i // 2"}, a=(1, 10**6)))["E060"].found)

    def test_a_large_formula_is_tried_whole(self) -> None:
        """More than one chunk; a fault in the last tile."""
        n = tried.CHUNK + 3
        assert report({"m": n}, {"m": "i"}).ok
        found = by_code(report({"m": n}, {"m": f"min(i, {n - 2})"}))
        assert found["E060"].message == f"a tile is never visited: (m={n - 1})"
        assert found["E061"].found == f"i = {n - 2} and i = {n - 1}"

    @pytest.mark.parametrize("m", [0, 1])
    def test_empty_and_single_spaces(self, m: int) -> None:
        assert report({"m": m, "n": 1}, {"m": "i", "n": 0}).ok

    def test_places_lead_to_the_formula(self) -> None:
        text = "version: 1\nname: x\nspace: {m: 4}\nmap:\n  m: i + 1\ndispatch: single\n"
        found = {d.code: (d.span.line, d.span.column) for d in driver.check_text(text).diagnostics}
        assert found == {"E060": (5, 3), "E062": (5, 6)}


class TestComposed:
    def test_every_property_has_a_verdict_with_its_reason(self) -> None:
        text = "version: 1\nname: x\nparams: {a: {min: 0, max: 99}}\nspace: {m: a, n: 4}\ndispatch: single\n"
        found = driver.check_text(text)
        assert found.ok
        assert [(v.property, v.status) for v in found.verdicts] == [(p, "proven") for p in PROPERTIES]
        assert all(v.how for v in found.verdicts)

    def test_padding_is_named(self) -> None:
        text = "version: 1\nname: x\nspace: {m: 3}\ncluster: {m: 2}\ndispatch: single\n"
        verdicts = {v.property: v.how for v in driver.check_text(text).verdicts}
        assert "in_bounds" in verdicts["bounds"]

    def test_pieces_are_refuted_by_a_position(self) -> None:
        pieces = "[{part: {m: [0, a]}}, {part: {m: [3, 6]}}]"
        text = f"version: 1\nname: x\nparams: {{a: {{min: 2, max: 4}}}}\nspace: {{m: 6}}\norder: {{pieces: {pieces}}}\n"
        (d,) = driver.check_text(text + "dispatch: single\n").diagnostics
        assert (d.code, d.found) == ("E045", "(m=2) is in no piece at a=2")

    def test_pieces_that_cannot_be_decided_do_not_pass(self) -> None:
        """The corners are in order for all values, which no rule shows and which are too many to try."""
        first, second = "a % 8 * (b % 2)", "a % 8"
        text = (
            "version: 1\nname: x\nparams: {a: {min: 0, max: 100000}, b: {min: 0, max: 100000}}\nspace: {m: 10}\n"
            "order:\n"
            f'  pieces: [{{part: {{m: [0, "{first}"]}}}}, {{part: {{m: ["{first}", "{second}"]}}}}, '
            f'{{part: {{m: ["{second}", 10]}}}}]\ndispatch: single\n'
        )
        found = driver.check_text(text)
        assert not found.ok
        assert [(d.code, d.span.line) for d in found.diagnostics] == [("E064", 6)]
        assert driver.check_text(text.replace("100000", "100")).ok

    def test_a_verdict_that_is_not_proven_is_never_ok(self) -> None:
        for status in ("refuted", "undecided"):
            verdict = Verdict("coverage", status, "")
            assert not verify.Verification((verdict,), ()).proven
            assert not driver.CheckReport("x", (), (verdict,)).ok
