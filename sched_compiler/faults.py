"""The faults of one document, collected while the rest of it is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.source import MAX_FAULTS, Data, Document, Path


@dataclass
class Faults:
    """Faults found so far, each at a path of the document."""

    document: Document
    found: list[Diagnostic]
    #: Leads from paths of the composed form to those of the document, where they differ.
    origin: dict[Path, Path] = field(default_factory=dict)

    def add(
        self,
        code: str,
        path: Path,
        message: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        mend: str | None = None,
        key: bool = False,
        column: int | None = None,
    ) -> None:
        """Note a fault at the value at `path`, or at its key, or at a 0-based offset within its text."""
        path = translated(path, self.origin)
        if key and path in self.document.key_spans:
            span = self.document.key_spans[path]
        else:
            span = self.document.span(path) if column is None else self.document.span_within(path, column)
        self.found.append(Diagnostic(code, message, span, found, expected, mend))
        if len(self.found) >= MAX_FAULTS:
            self.raise_all()

    def raise_all(self) -> None:
        """Raise `SpecError` with what was found, in the order of the text; nothing happens if nothing was."""
        if self.found:
            unique = dict.fromkeys(self.found)
            raise SpecError(sorted(unique, key=lambda d: (d.span.line, d.span.column, d.code)))


def translated(path: Path, origin: Mapping[Path, Path]) -> Path:
    """`path` with its longest prefix that `origin` knows replaced."""
    for length in range(len(path), 0, -1):
        if path[:length] in origin:
            return origin[path[:length]] + path[length:]
    return path


def described(value: Data) -> str:
    """A value as a diagnostic shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return repr(text) if isinstance(value, str) else text


def close_match(word: str, allowed: Iterable[str]) -> str | None:
    """A mend, where `word` looks like a slip for one of the allowed words."""
    import difflib  # only needed once something is wrong

    match = difflib.get_close_matches(word[:64], list(allowed), 1)
    return f"did you mean `{match[0]}`?" if match else None
