"""Diagnostics as text for a terminal, as JSON, as SARIF 2.1.0, and as annotations of GitHub Actions."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from sched_compiler.artifact import JSON
from sched_compiler.diagnostics import CODES, Diagnostic, Span

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_BOLD, _BLUE, _RED, _YELLOW, _RESET = "\x1b[1m", "\x1b[1;34m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[0m"
#: Characters of a source line that are shown around a fault.
_SHOWN = 120
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_text(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], color: bool = False) -> str:
    """For people: each fault with the line it is on. `sources` maps file names to their text, as far as known."""
    lines = {file: _LINE_BREAK.split(text.removeprefix("\ufeff")) for file, text in sources.items()}
    return "\n".join(_block(diagnostic, lines.get(diagnostic.span.file), color) for diagnostic in diagnostics)


def _block(diagnostic: Diagnostic, lines: Sequence[str] | None, color: bool) -> str:
    span, severity = diagnostic.span, diagnostic.severity
    shade = _RED if severity == "error" else _YELLOW

    def paint(text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if color else text

    margin = " " * len(str(span.line))
    bar = paint(f"{margin} |", _BLUE)
    head = paint(f"{severity}[{diagnostic.code}]", shade) + paint(f": {_printable(diagnostic.message)}", _BOLD)
    result = [head, f"{margin}{paint('-->', _BLUE)} {_printable(span.file)}:{span.line}:{span.column}"]
    if lines is not None and span.line <= len(lines):
        shown, underline = _excerpt(lines[span.line - 1], span)
        number = paint(f"{span.line} |", _BLUE)
        result += [bar, f"{number} {shown}".rstrip(), f"{bar} {paint(underline, shade)}"]
    for label in ("found", "expected", "mend"):
        detail: str | None = getattr(diagnostic, label)
        if detail is not None:
            result.append(f"{margin} {paint('=', _BLUE)} {paint(label, _BOLD)}: {_printable(detail)}")
    return "\n".join(result) + "\n"


def _excerpt(line: str, span: Span) -> tuple[str, str]:
    """The line as a terminal shows it, cut around the fault if it is long, and what stands under it."""
    begin = min(span.column - 1, len(line))
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    end = max(begin + 1, min(end, len(line)))
    first = max(0, begin - _SHOWN // 2) if len(line) > _SHOWN else 0
    last = min(len(line), first + _SHOWN)
    before, ahead = _printable(line[first:begin]), "..." if first else ""
    shown = ahead + before + _printable(line[begin:last]) + ("..." if last < len(line) else "")
    width = max(1, _columns(_printable(line[begin : min(end, last)])))
    return shown, " " * _columns(ahead + before) + "^" * width


def _printable(text: str) -> str:
    """Text in which nothing can move the cursor or change the terminal's state."""
    return "".join(" " if char == "\t" else char if char.isprintable() else "\ufffd" for char in text)


def _columns(text: str) -> int:
    """The columns that a terminal needs for the text: wide characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def to_json(diagnostics: Iterable[Diagnostic]) -> str:
    """`{"diagnostics": [...]}`, see `Diagnostic.as_json`."""
    return json.dumps({"diagnostics": [diagnostic.as_json() for diagnostic in diagnostics]}, indent=2) + "\n"


def to_sarif(diagnostics: Iterable[Diagnostic], version: str | None = None) -> str:
    """A SARIF 2.1.0 log with one run; every code is a rule. `version` is the tool's own."""
    codes = list(CODES)
    driver: dict[str, JSON] = {"name": "schedc", "rules": [_rule(code) for code in codes]}
    if version is not None:
        driver["version"] = version
    results: list[JSON] = [_result(diagnostic, codes.index(diagnostic.code)) for diagnostic in diagnostics]
    run: JSON = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    log: JSON = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _rule(code: str) -> JSON:
    level = "warning" if code.startswith("W") else "error"
    return {"id": code, "shortDescription": {"text": CODES[code]}, "defaultConfiguration": {"level": level}}


def _result(diagnostic: Diagnostic, rule: int) -> JSON:
    span = diagnostic.span
    region: JSON = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
    place: JSON = {"physicalLocation": {"artifactLocation": {"uri": _uri(span.file)}, "region": region}}
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity,
        "message": {"text": _with_details(diagnostic, "; ")},
        "locations": [place],
    }


def _uri(file: str) -> str:
    """A relative URI reference for a relative path; a file URI for an absolute one."""
    path = Path(file)
    if path.is_absolute():
        return path.as_uri()
    return quote(path.as_posix().encode("utf-8", "surrogateescape"), safe="/")


def to_github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a line, which GitHub Actions shows beside the code."""
    return "".join(_command(diagnostic) for diagnostic in diagnostics)


def _command(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    properties = {"file": span.file, "line": span.line, "col": span.column}
    if span.end_line == span.line:  # GitHub takes columns only for annotations of one line
        properties |= {"endLine": span.end_line, "endColumn": span.end_column}
    properties["title"] = f"{diagnostic.code}: {CODES[diagnostic.code]}"
    listed = ",".join(f"{name}={_escaped(str(value), property=True)}" for name, value in properties.items())
    return f"::{diagnostic.severity} {listed}::{_escaped(_with_details(diagnostic, chr(10)))}\n"


def _with_details(diagnostic: Diagnostic, separator: str) -> str:
    details = [diagnostic.message]
    for label in ("found", "expected", "mend"):
        detail: str | None = getattr(diagnostic, label)
        if detail is not None:
            details.append(f"{label}: {detail}")
    return separator.join(details)


def _escaped(text: str, *, property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text
