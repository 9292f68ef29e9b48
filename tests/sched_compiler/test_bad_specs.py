"""Specs that load and describe no schedule, or one that does not hold: the exact code and place of each fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sched_compiler.driver import check_text
from sched_compiler.report import to_text

ROOT = Path(__file__).parents[1] / "bad_specs"
BUILD = sorted((ROOT / "build").glob("*.yaml"))
EXPECT = re.compile(r"^# expect: ([EW]\d{3}) (\d+):(\d+)$", re.MULTILINE)


@pytest.mark.parametrize("path", BUILD, ids=lambda p: p.stem)
def test_bad_spec(path: Path) -> None:
    text = path.read_text()
    expected = {(code, int(line), int(column)) for code, line, column in EXPECT.findall(text)}
    assert expected, "a bad spec says what is expected of it"
    report = check_text(text, str(path))
    assert {(d.code, d.span.line, d.span.column) for d in report.diagnostics} == expected
    assert report.ok == all(code.startswith("W") for code, _, _ in expected)
    lines = text.splitlines()
    for d in report.diagnostics:
        assert d.span.file == str(path)
        assert (d.span.line, d.span.column) < (d.span.end_line, d.span.end_column)
        assert d.span.end_line <= len(lines)
        assert d.span.end_column <= len(lines[d.span.end_line - 1]) + 1
        assert d.mend or d.expected, "it says how to go on"
    shown = to_text(report.diagnostics, {str(path): text})
    assert all(f"[{code}]" in shown for code, _, _ in expected)


def test_bad_specs_are_many() -> None:
    assert len(BUILD) >= 30
