"""What the assembler says of a user's kernel, said of its source.

The assembler knows lines of PTX alone. Compiled with line information, PTX says of each instruction where it comes
from, in `.loc` directives before it: of an `asm` statement the line of the statement, and where the function that holds
it was inlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_SAID = re.compile(
    r"^ptxas (?:(?P<file>.*), line (?P<line>[0-9]+); )?(?P<kind>error|fatal)\s*: (?P<text>.*)$", re.MULTILINE
)
_ABORTED = "Ptx assembly aborted"
_FILE = re.compile(r'^\s*\.file\s+(?P<number>[0-9]+)\s+"(?P<name>[^"]*)"')
_LOC = re.compile(r"^\s*\.loc\s+(?P<at>[0-9]+ [0-9]+ [0-9]+)(?:.*\binlined_at (?P<inlined>[0-9]+ [0-9]+ [0-9]+))?")
_OCTAL = re.compile(rb"\\([0-7]{3})")
_QUOTED = re.compile(r"'([\w$]+)'")
#: Steps of inlining that are told.
_MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of the assembler: the line of PTX (from 1) where it said one, and what it said."""

    line: int | None
    text: str


def refusals(log: str) -> list[Refusal]:
    """What the assembler refused, but for its last words, which say that it did; none where a compiler spoke."""
    found = [Refusal(int(m["line"]) if m["line"] else None, m["text"].strip()) for m in _SAID.finditer(log)]
    told = [r for r in found if not r.text.startswith(_ABORTED)]
    return list(dict.fromkeys(told)) or found


def in_source(log: str, ptx: str, named: Callable[[str], str]) -> str:
    """The same in the form of the compiler's messages, as far as a place is found; `log` is about the text `ptx`.

    `named` gives the name that a file has in the compiler's own messages, from the one that it has in PTX.
    """
    lines, files, inlined = ptx.split("\n"), dict[str, str](), dict[str, str]()
    for text in lines:
        if found := _FILE.match(text):
            name = _OCTAL.sub(lambda m: bytes([int(m[1], 8)]), found["name"].encode()).decode(errors="replace")
            files[found["number"]] = named(name)
        elif (loc := _LOC.match(text)) and loc["inlined"]:
            inlined.setdefault(loc["at"], loc["inlined"])
    told = []
    for refusal in refusals(log):
        at = _place(lines, refusal)
        if at is None:
            told.append(f"ptxas error: {refusal.text}")
            continue
        of = "" if refusal.line is None else f", of `{lines[refusal.line - 1].strip()}`"
        places = [(files.get(number, "?"), line) for number, line, _ in map(str.split, _steps(at, inlined))]
        uses = "".join(f', inlined at line {line} of "{file}"' for file, line in places[1:])
        file, line = places[0]
        told.append(f"{file}({line}): error: {refusal.text}{of} (ptxas{uses})")
    return "\n\n".join(told)


def _place(lines: list[str], refusal: Refusal) -> str | None:
    """File, line and column of what was refused, as `.loc` has them."""
    if refusal.line is not None:
        return _last_loc(lines[: refusal.line])
    for name in _QUOTED.findall(refusal.text):  # a function: one that is here, or one that is called and is nowhere
        word = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
        named = [n for n, text in enumerate(lines) if word.search(text)]
        begins = [n for n in named if re.search(r"\.(?:entry|func)\b", lines[n]) and ".extern" not in lines[n]]
        if begins:
            return next((loc["at"] for text in lines[begins[-1] :] if (loc := _LOC.match(text))), None)
        if named and (at := _last_loc(lines[: named[-1]])) is not None:
            return at
    return None


def _last_loc(lines: list[str]) -> str | None:
    return next((loc["at"] for text in reversed(lines) if (loc := _LOC.match(text))), None)


def _steps(at: str, inlined: dict[str, str]) -> list[str]:
    """A place, where it was inlined, where that was, and so on."""
    steps = [at]
    while (more := inlined.get(steps[-1])) is not None and more not in steps and len(steps) < _MOST_STEPS:
        steps.append(more)
    return steps
