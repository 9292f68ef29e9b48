"""Where a text of C++ names headers, or the moment of its compile, in whatever way the language lets it be written.

Lines that go on behind a backslash are put together first, then comments and the insides of raw strings are blanked;
in what is left a directive is a line that begins with `#`.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SPLICE = re.compile(r"\\\r?\n")
_BLANK = r"[ \t\f\v]*"
#: What may hold the signs of a directive and is none; of these, comments and raw strings are blanked. Every alternative
#: begins with a letter of its own, by which the search is fast.
_LEXEME = re.compile(
    r"/(?P<comment>/[^\n]*|\*.*?(?:\*/|\Z))"
    r"|R(?:(?<![A-Za-z0-9_]R)|(?<=u8R)|(?<=[uUL]R))\"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\""
    r"|\"(?:[^\"\\\n]|\\.)*\""
    r"|'(?<![A-Za-z0-9_]')(?:[^'\\\n]|\\.)*'"
    rf"|#{_BLANK}include(?:_next)?{_BLANK}<[^>\n]*>|%:{_BLANK}include(?:_next)?{_BLANK}<[^>\n]*>",
    re.MULTILINE | re.DOTALL,
)
_MOMENT = re.compile(rf"{_LEXEME.pattern}|(?P<moment>\b__(?:DATE|TIME)__\b)", _LEXEME.flags)
_DIRECTIVE = re.compile(
    rf"^{_BLANK}(?:#|%:){_BLANK}(?:include(?:_next)?\b{_BLANK}(?P<file>[^\n]*)|(?:el)?if\b(?P<condition>[^\n]*))",
    re.MULTILINE,
)
#: The question whether a header is there, which is answered from memory as well.
_QUESTION = re.compile(rf"\b__has_include(?:_next)?{_BLANK}\({_BLANK}(?P<file>\"[^\"\n]+\"|<[^>\n]+>|[A-Za-z_]\w*)")
_FILE = re.compile(r'"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>')
#: CUTLASS includes CCCL's headers through this macro.
_MACRO = re.compile(r"CUDA_STD_HEADER\((\w+)\)")


@dataclass(frozen=True, slots=True)
class Named:
    """A header's name, from `begin` to `end` in the text. `name` is None where it is a macro's value; `macro` says that
    it is one that is known all the same."""

    begin: int
    end: int
    name: str | None
    quoted: bool
    macro: bool = False


@functools.lru_cache(maxsize=8192)
def named(text: str) -> tuple[Named, ...]:
    """Every place where `text` includes a header or asks for one, in order."""
    joined, there = _joined(text)
    if "include" not in joined:
        return ()

    def blanked(lexeme: re.Match[str]) -> str:
        return lexeme[0] if lexeme["comment"] is lexeme["mark"] is None else " " * len(lexeme[0])

    clean = _LEXEME.sub(blanked, joined)
    return tuple(
        Named(there(begin), there(end - 1) + 1, name, quoted, macro)
        for begin, end, name, quoted, macro in _found(clean)
    )


def moments(text: str) -> Iterator[tuple[int, int, str]]:
    """Where `text` takes the date or the time of the compile: from, to, and which."""
    joined, there = _joined(text)
    if "__DATE__" in joined or "__TIME__" in joined:
        for lexeme in _MOMENT.finditer(joined):
            if lexeme["moment"]:
                yield there(lexeme.start()), there(lexeme.end() - 1) + 1, lexeme[0]


def _joined(text: str) -> tuple[str, Callable[[int], int]]:
    """The text with its lines put together, and what gives the place in it of one in that."""
    begins, shifts = list[int](), [0]  # of what follows each splice: its place in the joined text, and what is missing
    for splice in _SPLICE.finditer(text):
        begins.append(splice.start() - shifts[-1])
        shifts.append(shifts[-1] + len(splice[0]))
    return _SPLICE.sub("", text), lambda offset: offset + shifts[bisect_right(begins, offset)]


def _found(clean: str) -> Iterator[tuple[int, int, str | None, bool, bool]]:
    for directive in _DIRECTIVE.finditer(clean):
        if directive["file"] is not None:
            begin, operand = directive.start("file"), directive["file"].rstrip()
            if macro := _MACRO.match(operand):
                yield begin, begin + macro.end(), f"cccl/cuda/std/{macro[1]}", False, True
            elif operand:
                yield from _file(begin, operand)
        else:
            for question in _QUESTION.finditer(directive["condition"]):
                yield from _file(directive.start("condition") + question.start("file"), question["file"])


def _file(begin: int, operand: str) -> Iterator[tuple[int, int, str | None, bool, bool]]:
    file = _FILE.match(operand)
    if file is None:
        yield begin, begin + len(operand), None, False, False
    else:
        yield begin, begin + file.end(), file["quoted"] or file["angled"], file["quoted"] is not None, False
