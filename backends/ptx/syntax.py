"""A PTX module as data: functions of instructions, with every name resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


class PtxError(Exception):
    """The text is not PTX, or not of the part of PTX that is interpreted. `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class PtxTrap(Exception):  # noqa: N818 - the name that hardware has for it
    """A thread did what no program may do: `text` is the instruction, `lane` the thread's place among those launched.

    `address` is the one that the instruction used, or None where the fault is of another kind.
    """

    def __init__(self, reason: str, line: int, text: str, lane: int, address: int | None = None) -> None:
        super().__init__(reason, line, text, lane, address)
        self.reason = reason
        self.line = line
        self.text = text
        self.lane = lane
        self.address = address

    def __str__(self) -> str:
        where = "" if self.address is None else f" at address {self.address:#x}"
        return f"line {self.line}: {self.text}: {self.reason}{where} in lane {self.lane}"


@dataclass(frozen=True, slots=True)
class Type:
    """A fundamental type: kind `u`, `s` or `b` with 8 to 64 bits, `b` with 128, `f` with 32, kind `pred` with one."""

    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        return self.bits // 8

    def __str__(self) -> str:
        return self.kind if self.kind == "pred" else f"{self.kind}{self.bits}"


TYPES = {f"{kind}{bits}": Type(kind, bits) for kind in "usb" for bits in (8, 16, 32, 64)}
TYPES |= {"b128": Type("b", 128), "f32": Type("f", 32), "pred": Type("pred", 1)}


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a function: `slot` is its number there. Predicates have one bit."""

    slot: int
    bits: int


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal; of a floating-point number, its bits."""

    value: int
    floating: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as %ctaid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A label, a function or a variable of the module."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A variable in parameter space: `slot` is its number in the function, `size` its bytes.

    A parameter that a function takes in a register has that `register` instead, and no slot.
    """

    name: str
    slot: int
    size: int
    register: Register | None = None


@dataclass(frozen=True, slots=True)
class Address:
    base: Register | Symbol | Parameter | None
    offset: int


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate operand."""

    register: Register


@dataclass(frozen=True, slots=True)
class Pair:
    """The two destinations p|q of setp."""

    first: Register
    second: Register


@dataclass(frozen=True, slots=True)
class Group:
    """Operands in braces (a vector) or in parentheses (the lists of a call)."""

    items: tuple[Operand, ...]


Operand: TypeAlias = "Register | Immediate | Special | Symbol | Parameter | Address | Not | Pair | Group"


@dataclass(frozen=True, slots=True)
class Instruction:
    line: int
    text: str
    guard: Register | Not | None
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the module in global or constant space, with its first bytes."""

    name: str
    space: str
    data: bytes
    element: int  # bytes of one


@dataclass(slots=True)
class Function:
    name: str
    entry: bool
    line: int
    parameters: list[Parameter] = field(default_factory=list)
    results: list[Parameter] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)  # bits of each slot
    spaces: list[int] = field(default_factory=list)  # bytes of each variable in parameter space
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    required_threads: tuple[int, int, int] | None = None
    maximal_threads: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    explicit_cluster: bool = False


@dataclass(slots=True)
class Source:
    """A parsed module."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)  # offset of each variable in a block's shared memory
    shared_bytes: int = 0
