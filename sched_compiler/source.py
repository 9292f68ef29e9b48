"""YAML text to plain data, with the place of every key and value kept.

The text is read as YAML 1.2's core schema (of which JSON is a part), less what a spec has no use for: anchors,
aliases, tags, merge keys and several documents are refused. The event stream is read without recursion, so no
nesting can exhaust the stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from sched_compiler.diagnostics import Diagnostic, Span, SpecError

#: What a document holds: null, booleans, integers, floats, text, lists, and mappings with text keys.
Data: TypeAlias = "bool | int | float | str | list[Data] | dict[str, Data] | None"
#: The keys and list positions that lead from the root to a value.
Path: TypeAlias = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_FAULTS = 100
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# Control characters and surrogates, which YAML excludes; a byte-order mark inside the text; and NEL, LS and PS,
# which YAML 1.1 and 1.2 disagree about (a line break or not), so that lines could not be counted reliably.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TOKEN = re.compile(r"[A-Za-z0-9_]+|//|[<>=!]=|.")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """Plain data, and where each part of it stands in `text` (which has lost its byte-order mark)."""

    data: Data
    text: str
    file: str
    spans: dict[Path, Span] = field(repr=False)
    key_spans: dict[Path, Span] = field(repr=False)

    def value(self, path: Path) -> Data:
        """The value at `path`; `KeyError` where there is none."""
        value: Any = self.data
        for step in path:
            try:
                value = value[step]
            except (TypeError, IndexError) as error:
                raise KeyError(path) from error
        return value  # type: ignore[no-any-return]

    def span(self, path: Path) -> Span:
        """Where the value at `path` stands, or else the nearest enclosing value that has a place."""
        while path not in self.spans:
            path = path[:-1]
        return self.spans[path]

    def span_within(self, path: Path, column: int) -> Span:
        """Where the token at 0-based offset `column` of the text value at `path` stands.

        Folded and block scalars have other line breaks and indents than the value, but the same visible characters
        in the same order, so these are counted. With escapes in the scalar that is not so: then its whole span.
        """
        whole = self.span(path)
        try:
            value = self.value(path)
        except KeyError:
            return whole
        if not isinstance(value, str):
            return whole
        starts = [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]
        begin = starts[whole.line - 1] + whole.column - 1
        end = starts[whole.end_line - 1] + whole.end_column - 1
        quote = self.text[begin : begin + 1]
        if quote == '"' and "\\" in self.text[begin:end]:
            return whole
        if quote in ("|", ">"):
            begin = starts[whole.line]  # the header line (indicators, a comment) is not part of the value
        elif quote in ('"', "'"):
            begin, end = begin + 1, end - 1
        visible = [offset for offset in range(begin, end) if not self.text[offset].isspace()]
        rank = sum(not char.isspace() for char in value[:column])
        if not visible:
            return whole
        token = _TOKEN.match(value, column)
        if token is None or rank >= len(visible):
            offset, length = visible[-1] + 1, 0
        else:
            offset, length = visible[rank], len(token[0])
        line = next(number for number in range(len(starts), 0, -1) if starts[number - 1] <= offset)
        start = offset - starts[line - 1] + 1
        return Span(self.file, line, start, line, start + length)


class _Frame:
    """A mapping or list whose end has not been read yet."""

    __slots__ = ("end", "flow", "key", "path", "skip", "start", "value")

    def __init__(self, path: Path, value: Any, start: tuple[int, int], flow: bool) -> None:
        self.path = path
        self.value = value
        self.start = self.end = start
        self.flow = flow
        self.key: str | None = None  # of a mapping: the key whose value comes next
        self.skip = False  # that value belongs to a refused key


def load_document(text: str, file: str) -> Document:
    """Read `text`; raises `SpecError` with E002 to E006 (E012 for keys and integers that no spec can have)."""
    document, faults = read_document(text, file)
    if faults:
        raise SpecError(faults)
    return document


def read_document(text: str, file: str) -> tuple[Document, list[Diagnostic]]:
    """Like `load_document`, but faults that leave the rest readable (keys given twice, ...) are returned beside it."""
    text = _admissible(text, file)
    reader = _Reader(text, file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.read(event)
    except yaml.MarkedYAMLError as error:
        raise SpecError([*reader.faults, _syntax_fault(error, text, file)]) from None
    except yaml.YAMLError as error:
        # Characters are checked beforehand, so this is an escape sequence or an encoding the reader rejects.
        fault = Diagnostic("E002", f"the text is not valid YAML: {_sentence(str(error))}", Span(file, 1, 1, 1, 1))
        raise SpecError([*reader.faults, fault]) from None
    if reader.fatal:
        raise SpecError(reader.faults)
    if () not in reader.spans:
        message, mend = "the text is empty: there is no spec in it", "begin with `version: 1`"
        raise SpecError([Diagnostic("E002", message, Span(file, 1, 1, 1, 1), expected="a mapping", mend=mend)])
    return Document(reader.root, text, file, reader.spans, reader.key_spans), reader.faults


def _admissible(text: str, file: str) -> str:
    """The text without its byte-order mark, once its size and characters are known to be sound."""
    text = text.removeprefix("\ufeff")
    # The byte count is at least the character count, so that a huge text is refused before it is encoded.
    size = len(text)
    bad = None
    if size <= MAX_BYTES:
        bad = _UNPRINTABLE.search(text)
        if bad is None and not text.isascii():
            size = len(text.encode())
    if size > MAX_BYTES:
        message = f"the text is longer than {MAX_BYTES // 1024} KiB"
        raise SpecError([Diagnostic("E005", message, Span(file, 1, 1, 1, 1), expected=f"at most {MAX_BYTES} bytes")])
    if bad is not None:
        breaks = list(_LINE_BREAK.finditer(text, 0, bad.start()))
        line, column = len(breaks) + 1, bad.start() - (breaks[-1].end() if breaks else 0) + 1
        code = ord(bad[0])
        # A byte that is no UTF-8 comes as a lone surrogate (Python's `surrogateescape`).
        what = f"byte 0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"character U+{code:04X}"
        message = f"the {what} cannot stand in a spec"
        mend = "remove it, and save the file as UTF-8"
        raise SpecError([Diagnostic("E006", message, Span(file, line, column, line, column + 1), mend=mend)])
    if text.lstrip()[:1] in ("{", "[") and "\t" in text:
        # JSON allows tabs between tokens where some YAML readers do not; a blank keeps the columns.
        text = re.sub(r'"(?:[^"\\]|\\.)*"|\t', lambda match: " " if match[0] == "\t" else match[0], text)
    return text


class _Reader:
    """Builds data and spans from YAML events."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.root: Data = None
        self.spans: dict[Path, Span] = {}
        self.key_spans: dict[Path, Span] = {}
        self.faults: list[Diagnostic] = []
        self.fatal = False
        self._stack: list[_Frame] = []

    def read(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            mend = "write the value out where it is used"
            self._fault("E004", f"the alias `*{event.anchor}` is not part of the spec language", event, mend=mend)
            self._place(None, self._span(event))
        elif kind is yaml.DocumentStartEvent and self.spans:
            message = "a second document begins here, but a file holds one spec"
            self._stop("E002", message, event, mend="put each spec into a file of its own")

    def _span(self, event: Any) -> Span:
        start, end = event.start_mark, event.end_mark
        return Span(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1)

    def _fault(
        self,
        code: str,
        message: str,
        place: Any,
        *,
        found: str | None = None,
        expected: str | None = None,
        mend: str | None = None,
        readable: bool = False,
    ) -> None:
        """Note a fault at an event or span; unless `readable`, nothing can be said about what follows from it."""
        span = place if isinstance(place, Span) else self._span(place)
        self.faults.append(Diagnostic(code, message, span, found, expected, mend))
        self.fatal |= not readable
        if len(self.faults) >= MAX_FAULTS:
            raise SpecError(self.faults)

    def _stop(self, code: str, message: str, place: Any, **details: str | None) -> None:
        self._fault(code, message, place, **details)  # type: ignore[arg-type]
        raise SpecError(self.faults)

    def _refuse_decoration(self, event: Any) -> None:
        if event.anchor is not None:
            message = f"the anchor `&{event.anchor}` is not part of the spec language"
            self._fault("E004", message, event, mend="remove it, and write the value out where it is used")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"the tag `{tag}` is not part of the spec language"
            self._fault("E004", message, event, mend='remove it; to write a number as text, quote it: "8"')

    def _open(self, event: Any, value: Any) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            found = "a mapping" if isinstance(value, dict) else "a list"
            mend = "if this is a template such as `{{ x }}`, fill it in first; text with braces is quoted"
            self._stop("E012", "a key must be a single word", event, found=found, expected="a name", mend=mend)
        self._refuse_decoration(event)
        if len(self._stack) >= MAX_DEPTH:
            message = f"the text is nested more than {MAX_DEPTH} levels deep"
            self._stop("E005", message, event, expected=f"at most {MAX_DEPTH} levels")
        start = (event.start_mark.line + 1, event.start_mark.column + 1)
        path: Path = ()
        if frame is not None:
            path = (*frame.path, len(frame.value) if frame.key is None else frame.key)
        self._stack.append(_Frame(path, value, start, bool(event.flow_style)))

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if frame.flow:  # a block collection ends with its last entry; the event is at the next token
            frame.end = (event.end_mark.line + 1, event.end_mark.column + 1)
        self._place(frame.value, Span(self.file, *frame.start, *frame.end))

    def _scalar(self, event: Any) -> None:
        self._refuse_decoration(event)
        text = event.value
        if event.style == '"' and (bad := _UNPRINTABLE.search(text)):
            message = f"the character U+{ord(bad[0]):04X} cannot stand in a spec"
            self._fault("E006", message, event, readable=True)
        span = self._span(event)
        if event.style in ("|", ">"):
            span = self._block_scalar_span(span)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._key(frame, text, span, plain=event.implicit[0])
        elif not event.implicit[0]:
            self._place(text, span)
        else:
            if text == "" and frame is not None and frame.key is not None:
                span = self.key_spans[(*frame.path, frame.key)]  # nothing is written: the key is what can be shown
            self._place(self._plain(text, span), span)

    def _block_scalar_span(self, span: Span) -> Span:
        """The event of a block scalar ends where the next token begins: take the end of its last visible line."""
        lines = _LINE_BREAK.split(self.text)
        last = min(span.end_line - (span.end_column == 1), len(lines))
        while last > span.line and not lines[last - 1].strip():
            last -= 1
        return Span(span.file, span.line, span.column, last, len(lines[last - 1].rstrip()) + 1)

    def _key(self, frame: _Frame, key: str, span: Span, *, plain: bool) -> None:
        frame.key = key
        frame.end = (span.end_line, span.end_column)
        frame.skip = False
        path = (*frame.path, key)
        if plain and key == "<<":
            mend = "write the merged entries out"
            self._fault("E004", "the merge key `<<` is not part of the spec language", span, mend=mend)
        if plain and key in _CONSTANTS:
            found = "null" if key and _CONSTANTS[key] is None else key.lower() or "nothing"
            mend = f'quote it: "{key}"' if key else "give the key a name"
            self._fault("E012", "a key must be text", span, found=found, expected="a name", mend=mend, readable=True)
        if key in frame.value or (path in self.key_spans and not self._inside_skipped()):
            frame.skip = True
            first = self.key_spans[path]
            message = f"the key `{key}` stands twice in this mapping"
            found = f"the first `{key}` is on line {first.line}"
            self._fault("E003", message, span, found=found, mend="remove one of the two", readable=True)
        self.key_spans.setdefault(path, span)

    def _inside_skipped(self) -> bool:
        return any(frame.skip for frame in self._stack[:-1])

    def _place(self, value: Data, span: Span) -> None:
        """Put a finished value into the mapping or list that is open."""
        if not self._stack:
            self.root = value
            self.spans[()] = span
            return
        frame = self._stack[-1]
        frame.end = max(frame.end, (span.end_line, span.end_column))
        if isinstance(frame.value, list):
            self.spans.setdefault((*frame.path, len(frame.value)), span)
            frame.value.append(value)
            return
        if frame.key is None:  # an alias as a key: its fault has been noted
            frame.key = ""
            self.key_spans.setdefault((*frame.path, ""), span)
            frame.skip = True
            return
        if not frame.skip:
            self.spans.setdefault((*frame.path, frame.key), span)
            frame.value[frame.key] = value
        frame.key = None

    def _plain(self, text: str, span: Span) -> Data:
        """The value of an unquoted scalar by YAML 1.2's core schema."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text):
            # Python refuses to convert very long digit strings, so the length is looked at first.
            digits = text.lstrip("+-").lstrip("0")
            value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(digits) <= 24 else INT64_MAX + 1
            if not INT64_MIN <= value <= INT64_MAX:
                found = text if len(text) <= 40 else f"an integer of {len(text)} characters"
                expected = "an integer from -2^63 to 2^63-1"
                message = "the integer does not fit 64 bits"
                self._fault("E012", message, span, found=found, expected=expected, readable=True)
                return 0
            return value
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _syntax_fault(error: yaml.MarkedYAMLError, text: str, file: str) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    end = len(text.rstrip())
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    if mark is None or mark.index >= end:
        # The reader met the end of the text: the last visible character is a better place than a line that
        # may not exist.
        breaks = list(_LINE_BREAK.finditer(text, 0, end))
        line, column = len(breaks) + 1, end - (breaks[-1].end() if breaks else 0) + 1
    width = int(mark is not None and mark.index < end)  # at the end there is no character to underline
    span = Span(file, line, column, line, column + width)
    problem = _sentence(error.problem or "the text cannot be read")
    message = f"the text is not valid YAML: {problem}"
    if error.context:
        message += f", {_sentence(error.context)}"
    context = error.context_mark
    if context is not None and context.line + 1 < line:
        message += f" that begins on line {context.line + 1}"
    mend = None
    rest = text[mark.index :] if mark is not None and "cannot start any token" in problem else ""
    if "nesting depth" in problem:  # the YAML reader has a limit of its own, which it may meet while reading ahead
        message = f"the text is nested more than {MAX_DEPTH} levels deep"
        return Diagnostic("E005", message, span, expected=f"at most {MAX_DEPTH} levels")
    if rest.startswith("\t") or "'\\t'" in problem:
        mend = "indent with spaces, not tabs"
    elif rest.startswith(("%", "@", "`")):
        mend = f"quote the text that begins with `{rest[0]}`"
    elif "mapping values" in problem:
        mend = "put each `key: value` on a line of its own, and quote text that holds `: `"
    return Diagnostic("E002", message, span, mend=mend)
