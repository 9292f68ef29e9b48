"""Diagnostics as text, JSON, SARIF and annotations."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from sched_compiler.diagnostics import CODES, Diagnostic, Span, SpecError
from sched_compiler.loader import load
from sched_compiler.report import to_github, to_json, to_sarif, to_text

TEXT = "version: 1\nname: x\nspace: {m: t / 2}\ndispatch: single\n"


def diagnostics(text: str, file: str = "specs/a.yaml") -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        load(text, file)
    return caught.value.diagnostics


def at(line: int, column: int, end_line: int, end_column: int, file: str = "a.yaml", **details: str) -> Diagnostic:
    message = details.pop("message", "a fault")
    return Diagnostic("E012", message, Span(file, line, column, end_line, end_column), **details)


class TestText:
    def test_whole(self) -> None:
        text = to_text(diagnostics(TEXT), {"specs/a.yaml": TEXT})
        assert text.splitlines()[:5] == [
            "error[E020]: this formula cannot be parsed: `/` cannot stand in a formula",
            " --> specs/a.yaml:3:14",
            "  |",
            "3 | space: {m: t / 2}",
            "  |              ^",
        ]
        assert "  = mend: write `//` for floor division" in text

    def test_underline_spans_the_fault(self) -> None:
        assert to_text([at(1, 3, 1, 6)], {"a.yaml": "a: bcd"}).splitlines()[4] == "  |   ^^^"

    def test_fault_of_several_lines_is_underlined_to_the_end_of_its_first(self) -> None:
        assert to_text([at(1, 3, 2, 2)], {"a.yaml": "a: bcd\n ef"}).splitlines()[4] == "  |   ^^^^"

    def test_empty_span_has_a_caret(self) -> None:
        assert to_text([at(1, 5, 1, 5)], {"a.yaml": "a: b"}).splitlines()[4] == "  |     ^"

    def test_wide_characters_take_two_columns(self) -> None:
        assert to_text([at(1, 3, 1, 4)], {"a.yaml": "表: b"}).splitlines()[4] == "  |    ^"

    def test_unknown_source_and_line(self) -> None:
        for sources in ({}, {"a.yaml": "a: 1"}):
            assert to_text([at(9, 1, 9, 2)], sources) == "error[E012]: a fault\n --> a.yaml:9:1\n"

    def test_long_line_is_cut_around_the_fault(self) -> None:
        line = "a" * 5000 + "X" + "b" * 5000
        shown, under = to_text([at(1, 5001, 1, 5002)], {"a.yaml": line}).splitlines()[3:5]
        assert len(shown) < 140
        assert shown[under.index("^")] == "X"

    def test_no_control_character_reaches_the_terminal(self) -> None:
        fault = at(1, 1, 1, 2, message="\x1b[2J", found="\x07", file="\x1b.yaml")
        text = to_text([fault], {"\x1b.yaml": "\x1b[31m\tx\x00"})
        assert text.replace("\n", "").isprintable()

    def test_color(self) -> None:
        plain = to_text(diagnostics(TEXT), {"specs/a.yaml": TEXT})
        colored = to_text(diagnostics(TEXT), {"specs/a.yaml": TEXT}, color=True)
        assert "\x1b" not in plain
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain

    def test_warning(self) -> None:
        warning = Diagnostic("W002", "a parameter is never used", Span("a.yaml", 1, 1, 1, 2))
        assert to_text([warning], {}).startswith("warning[W002]: ")


def test_json() -> None:
    (fault,) = diagnostics(TEXT)
    (item,) = json.loads(to_json([fault]))["diagnostics"]
    assert item == fault.as_json()
    assert (item["code"], item["severity"], item["file"]) == ("E020", "error", "specs/a.yaml")
    assert (item["line"], item["column"], item["end_line"], item["end_column"]) == (3, 14, 3, 15)
    assert item["mend"] == "write `//` for floor division"


class TestSarif:
    """What the 2.1.0 schema asks of the parts that are used here, and what its consumers ask beyond it."""

    def log(self, *faults: Diagnostic, version: str | None = None) -> dict[str, Any]:
        log: dict[str, Any] = json.loads(to_sarif(faults, version))
        return log

    def test_structure(self) -> None:
        log = self.log(*diagnostics(TEXT), at(1, 1, 1, 1), version="1.2.3")
        assert set(log) == {"$schema", "version", "runs"}
        assert log["version"] == "2.1.0"
        (run,) = log["runs"]
        assert set(run) == {"tool", "columnKind", "results"}
        assert run["columnKind"] == "unicodeCodePoints"
        driver = run["tool"]["driver"]
        assert (driver["name"], driver["version"]) == ("schedc", "1.2.3")
        assert [rule["id"] for rule in driver["rules"]] == list(CODES)
        for rule in driver["rules"]:
            assert set(rule) == {"id", "shortDescription", "defaultConfiguration"}
            assert rule["shortDescription"] == {"text": CODES[rule["id"]]}
            assert rule["defaultConfiguration"]["level"] in ("error", "warning")
        for result in run["results"]:
            assert set(result) == {"ruleId", "ruleIndex", "level", "message", "locations"}
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["message"]["text"]
            (place,) = result["locations"]
            region = place["physicalLocation"]["region"]
            assert set(region) == {"startLine", "startColumn", "endLine", "endColumn"}
            assert all(type(value) is int and value >= 1 for value in region.values())
            assert (region["startLine"], region["startColumn"]) <= (region["endLine"], region["endColumn"])

    def test_no_results(self) -> None:
        assert self.log()["runs"][0]["results"] == []

    @pytest.mark.parametrize("file", ["a b.yaml", "ü/é.yaml", "a#b?c%20.yaml", "x:y.yaml", "<stdin>", "-"])
    def test_relative_uri(self, file: str) -> None:
        log = self.log(at(1, 1, 1, 1, file))
        uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
        assert unquote(uri) == file

    def test_absolute_uri(self) -> None:
        log = self.log(at(1, 1, 1, 1, "/a b.yaml"))
        uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri == "file:///a%20b.yaml"


class TestGithub:
    def test_command(self) -> None:
        assert to_github([at(3, 14, 3, 15, found="x")]) == (
            "::error file=a.yaml,line=3,col=14,endLine=3,endColumn=15,"
            "title=E012%3A a value has the wrong type or is not one of the allowed ones::a fault%0Afound: x\n"
        )

    def test_several_lines(self) -> None:
        assert to_github([at(3, 14, 4, 2)]).startswith("::error file=a.yaml,line=3,col=14,title=")

    def test_escapes(self) -> None:
        command = to_github([at(1, 1, 1, 2, "a,b:c%\n.yaml", message="50%\r\n::error::x")])
        assert command.count("\n") == 1
        assert "file=a%2Cb%3Ac%25%0A.yaml," in command
        assert command.endswith("::50%25%0D%0A::error::x\n")

    def test_warning(self) -> None:
        assert to_github([Diagnostic("W002", "x", Span("a", 1, 1, 1, 2))]).startswith("::warning ")
