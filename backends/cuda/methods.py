"""The functions of the header's struct as data, printed in three ways: in the struct, declared, and defined outside it.

A header defines everything in place. For a build that links, a kernel sees declarations, and a library defines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: A head that would be wider stands on several lines.
WIDTH = 160
#: Where a header's function may be called: on the host too; on the device, or in a host compiler alone; in CUDA only.
Side: TypeAlias = Literal["everywhere", "device", "cuda"]
_SPECIFIER: dict[Side, str] = {"everywhere": "SCHED_FUNCTION", "device": "SCHED_DEVICE", "cuda": "__device__"}
#: What is true wherever a compiler of CUDA reads, its pass for the host included.
CUDA = "#if defined(__CUDACC__) || defined(__CUDACC_RTC__)"


@dataclass(frozen=True, slots=True)
class Method:
    """A function of the struct. `result` is empty for a constructor; `comment` and `body` are lines."""

    result: str
    name: str
    arguments: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    comment: tuple[str, ...] = ()
    initialisers: tuple[str, ...] = ()
    const: bool = False
    static: bool = False
    explicit: bool = False
    flat: bool = False  # on one line in the struct
    side: Side = "everywhere"

    def _comment(self) -> str:
        return "".join(f"  // {line}\n" for line in self.comment)

    def _before(self, specifier: str) -> str:
        words = ("static" if self.static else "", specifier, "explicit" if self.explicit else "", self.result)
        return " ".join(word for word in words if word)

    def _head(self, start: str, indent: str, end: str) -> str:
        """From `start`, which ends with the name, to what follows the initialisers."""
        const = " const" if self.const else ""
        initialisers = f" : {', '.join(self.initialisers)}" if self.initialisers else ""
        head = f"{indent}{start}({', '.join(self.arguments)}){const}{initialisers}{end}"
        if len(head) < WIDTH or "\n" in head:
            return head
        arguments = f",\n{indent}    ".join(self.arguments)
        if len(self.arguments) > 1:
            arguments = f"\n{indent}    {arguments}"
        initialisers = f",\n{indent}      ".join(self.initialisers)
        if initialisers:
            initialisers = f"\n{indent}    : {initialisers}"
        return f"{indent}{start}({arguments}){const}{initialisers}{end}"

    def inline(self) -> str:
        """The definition in the struct."""
        head = self._head(f"{self._before(_SPECIFIER[self.side])} {self.name}", "  ", " {")
        return f"{self._comment()}{head}{_braced(self.body, '  ', self.flat)}"

    def declaration(self) -> str:
        """The declaration in the struct, for the device."""
        plain = Method(self.result, self.name, self.arguments, const=self.const)
        head = plain._head(f"{self._before('__device__')} {self.name}", "  ", ";")
        return f"{self._comment()}{head}\n"

    def definition(self, struct: str) -> str:
        """The definition outside `struct`, for the device. A trailing result is looked up in the struct."""
        start = f"__device__ {'auto ' if self.result else ''}{struct}::{self.name}"
        if not self.result:
            return f"{self._head(start, '', ' {')}{_braced(self.body, '', False)}"
        const = " const" if self.const else ""
        head = f"{start}({', '.join(self.arguments)}){const} -> {self.result} {{"
        return f"{head}{_braced(self.body, '', False)}"


#: What stands in a struct: text as it is, for types and fields, and functions.
Member: TypeAlias = str | Method


def inline(members: Iterable[Member]) -> str:
    """The inside of the struct with every function defined in place."""
    text, guarded = "", False
    for member in members:
        only = isinstance(member, Method) and member.side == "cuda"
        if only != guarded:
            text += f"{CUDA}\n" if only else "#endif\n"
            guarded = only
        text += member if isinstance(member, str) else member.inline()
    return text + ("#endif\n" if guarded else "")


def declarations(members: Iterable[Member]) -> str:
    """The inside of the struct with every function declared."""
    return "".join(m if isinstance(m, str) else m.declaration() for m in members)


def definitions(struct: str, members: Iterable[Member]) -> str:
    """All functions, outside the struct."""
    return "".join(m.definition(struct) for m in members if isinstance(m, Method))


def indented(lines: Sequence[str], depth: int) -> str:
    """Lines of a body; those of the preprocessor begin at the margin."""
    margin = "  " * depth
    return "".join([f"{line}\n" if line.startswith("#") else f"{margin}{line}\n" for line in lines])


def _braced(body: Sequence[str], indent: str, flat: bool) -> str:
    """What follows an opening brace."""
    if flat or not body:
        inner = " ".join(body)
        return f"{f' {inner} ' if inner else ''}}}\n"
    return f"\n{indented(body, len(indent) // 2 + 1)}{indent}}}\n"
