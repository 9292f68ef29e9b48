"""Diagnostics: what a user is told when something is wrong with their input.

A diagnostic is data first; `sched_compiler.report` turns it into text, JSON, SARIF and annotations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sched_compiler.artifact import JSON

Severity = Literal["error", "warning"]

#: Every code the product can give, with its one-line meaning. Codes are stable: never reuse one.
CODES: dict[str, str] = {
    # E00x: the text itself
    "E002": "the text is not valid YAML",
    "E003": "a key stands twice in one mapping",
    "E004": "YAML anchors, aliases, tags and merge keys are not part of the spec language",
    "E005": "the text is nested too deeply or is too large",
    "E006": "the text holds a character that no spec can hold",
    # E01x: the shape of the spec
    "E010": "a key is unknown here",
    "E011": "a required key is missing",
    "E012": "a value has the wrong type or is not one of the allowed ones",
    "E013": "a name is not an identifier, is reserved, or is used twice",
    "E014": "two keys exclude one another",
    # E02x: formulas
    "E020": "a formula cannot be parsed",
    "E021": "a formula names something that is not declared",
    "E022": "a divisor may be zero or negative",
    "E023": "a value may leave the range that is allowed here",
    "E024": "a formula is used as a number where it is a condition, or the other way round",
    # E03x: presets
    "E030": "no preset has this name",
    "E031": "a preset's argument is unknown, missing, or has the wrong value",
    # E04x: the order
    "E040": "an axis is unknown here",
    "E041": "loops must list every remaining axis exactly once",
    "E042": "an inner part stands before its outer part",
    "E043": "an axis is split, fused or restricted in a way that is not possible",
    "E044": "a serpentine or rotation cannot be applied to this axis",
    "E045": "the pieces do not tile the box",
    "E046": "a table does not fit its use: its length, its range, or the order of its elements",
    "E047": "a table is unknown here, or cannot be read",
    "E048": "a curve or raster does not fit the axes",
    "E049": "partitions are given where they cannot be",
    # E05x: cluster, dispatch, target
    "E050": "a cluster does not fit the space or the hardware",
    "E052": "the launch would exceed a limit of the hardware",
    "E053": "the architecture or backend is unknown",
    "E054": "the arrivals that free a slot do not agree with the consumers",
    "E055": "the architecture has no hardware for this dispatch",
    # E06x: verification
    "E060": "a tile is never visited",
    "E061": "a tile is visited more than once",
    "E062": "a tile outside the space is visited",
    "E063": "the arithmetic does not fit 64 bits",
    "E064": "undecided: the property could be neither proven nor refuted",
    # E07x: running and compiling
    "E070": "a run-time parameter is missing, unknown, or outside its declared range",
    "E071": "the backend's compiler refused the generated source",
    "E072": "the compiler took longer or needed more memory than is allowed",
    "E073": "a tool that this needs is not installed",
    "E074": "a file that the kernel is made of cannot be read",
    "E075": "the compiler refused the kernel's source",
    "E076": "the arguments are not the parameters of the compiled kernel",
    "E077": "sources are not compiled here",
    # E08x: the service and the command line
    "E080": "the request is malformed",
    "E081": "the request body is too large",
    "E082": "no artifact has this key",
    "E083": "the server cannot be reached or answered with an error",
    # W: warnings, errors under --strict
    "W001": "padding has no effect here",
    "W002": "a parameter or a table is declared but never used",
    "W003": "it is not decided whether the order is what the spec expects of it",
    "W004": "the order is not what the spec expects of it",
    "W005": "the compiler warns of something in the kernel's source",
}


class Span(NamedTuple):
    """A region of a file. Lines and columns count from 1; columns count characters; the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault, where it is, and how to mend it."""

    code: str
    message: str
    span: Span
    found: str | None = None
    expected: str | None = None
    mend: str | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unregistered diagnostic code {self.code}")

    @property
    def severity(self) -> Severity:
        return "warning" if self.code.startswith("W") else "error"

    def as_json(self) -> dict[str, JSON]:
        """The diagnostic as one flat object; found, expected and mend are null where there is nothing to say."""
        span = self.span
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "file": span.file,
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
            "found": self.found,
            "expected": self.expected,
            "mend": self.mend,
        }


class SpecError(Exception):
    """The user's input is wrong: one diagnostic or more, each with its place."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        places = ((d.code, f"{d.span.file}:{d.span.line}:{d.span.column}", d.message) for d in self.diagnostics)
        super().__init__("; ".join(" ".join(place) for place in places))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Diagnostic, ...]]]:
        return SpecError, (self.diagnostics,)
