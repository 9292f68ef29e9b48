"""A spec's text into its composed form, every fault with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from sched_compiler.checks import check_formulas, check_names, validated
from sched_compiler.compose import composed
from sched_compiler.diagnostics import Diagnostic, Span, SpecError
from sched_compiler.faults import Faults, described, translated
from sched_compiler.files import Beside
from sched_compiler.render import canonical, to_yaml
from sched_compiler.source import Document, Path, read_document
from sched_compiler.spec import Spec

if TYPE_CHECKING:
    from sched_compiler.tables import Elements

__all__ = ["LoadedSpec", "Progress", "canonical", "load", "to_yaml"]

#: Told what is done and which part of it is done, from 0 to 1.
Progress: TypeAlias = "Callable[[str, float], None]"


@dataclass(frozen=True)
class LoadedSpec:
    """A spec in its composed form, and where each part of it came from. It can be pickled."""

    spec: Spec
    document: Document
    uses: str | None  # the preset's name, if the spec names one
    axes: tuple[str, ...]  # in the order of the space
    origin: dict[Path, Path] = field(repr=False)  # from paths of the composed form to the document's, where they differ
    tables: Mapping[str, Elements] = field(repr=False, default_factory=dict)  # those whose elements are given

    def span(self, path: Path) -> Span:
        """Where the value at `path` of the composed form was written, or else the nearest value around it.

        What a preset composed leads to the argument it came from; where that has its default, to the preset's name.
        """
        return self.document.span(self._source(path))

    def key_span(self, path: Path) -> Span:
        """Where the key of the value at `path` was written, or else the value's place."""
        source = translated(path, self.origin)
        return self.document.key_spans.get(source) or self.span(path)

    def diagnostic(
        self,
        code: str,
        path: Path,
        message: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        mend: str | None = None,
        column: int | None = None,
        key: bool = False,
    ) -> Diagnostic:
        """A diagnostic at `path`: at its value, its `key`, or the token at 0-based offset `column` of its formula.

        The offset is left out of account where a preset made the formula, so that it was written nowhere.
        """
        source = self._source(path)
        if key:
            span = self.key_span(path)
        elif column is not None and self._as_written(path, source):
            span = self.document.span_within(source, column)
        else:
            span = self.document.span(source)
        return Diagnostic(code, message, span, found, expected, mend)

    def error(
        self,
        code: str,
        path: Path,
        message: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        mend: str | None = None,
        column: int | None = None,
        key: bool = False,
    ) -> SpecError:
        """Like `diagnostic`, to be raised."""
        diagnostic = self.diagnostic(
            code, path, message, found=found, expected=expected, mend=mend, column=column, key=key
        )
        return SpecError([diagnostic])

    def _source(self, path: Path) -> Path:
        """The path in the document, of a value that stands there."""
        source = translated(path, self.origin)
        while source not in self.document.spans:
            source = source[:-1]
        if self.uses is not None and source in ((), ("with",)):
            return ("uses",)
        return source

    def _as_written(self, path: Path, source: Path) -> bool:
        """Whether the composed formula is the text that the user wrote, so that offsets in it mean something."""
        value: Any = self.spec
        for step in path:
            value = getattr(value, str(step), None) if isinstance(value, BaseModel) else _item(value, step)
        return isinstance(value, str) and value == self.document.value(source)


def _item(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):
        return None


def load(text: str, file: str = "<spec>", directory: Beside = None, progress: Progress | None = None) -> LoadedSpec:
    """Load a spec from its text. Raises `SpecError` with every fault that can be told, in the order of the text.

    Tables in files are read from `directory` (see `sched_compiler.files`); without one, none is read. `progress` is
    told how much of a file has been read.
    """
    document, noted = read_document(text, file)
    faults = Faults(document, noted)
    data = document.data
    if not isinstance(data, dict):
        expected, mend = "a mapping", "begin with `version: 1`"
        faults.add("E012", (), "a spec is a mapping", found=described(data), expected=expected, mend=mend)
        raise SpecError(faults.found)
    form = composed(data, faults)
    spec = validated(form, faults)
    check_names(data, form, faults)
    check_formulas(data, form, faults)
    faults.raise_all()
    assert spec is not None  # otherwise its faults were raised
    uses = data.get("uses")
    tables = _tables(spec, faults, directory, progress)
    faults.raise_all()
    preset = uses if isinstance(uses, str) else None
    return LoadedSpec(spec, document, preset, tuple(spec.space), faults.origin, tables)


def _tables(spec: Spec, faults: Faults, directory: Beside, progress: Progress | None) -> dict[str, Elements]:
    """The elements of the tables that are given."""
    if not spec.tables:
        return {}
    import numpy as np  # only where there are tables

    from sched_compiler.tables import TableError, read_table

    found: dict[str, Elements] = {}
    for name, source in spec.tables.items():
        if source.values is not None:
            found[name] = np.array(source.values, dtype=np.int64)
        elif source.file is not None:
            try:
                found[name] = read_table(source.file, directory, progress)
            except TableError as e:
                message = f"the table {name} cannot be read: {e}"
                faults.add("E047", ("tables", name, "file"), message, found=source.file, mend=e.mend)
    return found
