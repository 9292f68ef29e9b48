"""The operands of an instruction, judged when a module is read.

A register of the wrong width, a literal that does not fit, an operation or modifier that is not interpreted: all are
PtxErrors with a line, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from .arithmetic import UNSIGNED
from .memory import Array, Memory
from .syntax import TYPES, Function, Immediate, Instruction, Not, Operand, PtxError, Register, Special, Symbol, Type

if TYPE_CHECKING:
    from .waiting import Threads

Mask: TypeAlias = "Array | None"  # which threads take part; None for all of them


@dataclass(slots=True)
class Frame:
    """A function's state: one array for each register, one row of bytes a thread for each variable in `spaces`.

    What is the same for all threads may stand in arrays of one row.
    """

    registers: list[Array]
    spaces: list[Array]
    specials: Mapping[str, Array]
    memory: Memory
    threads: Threads


Step: TypeAlias = Callable[[Frame, Mask], None]
Read: TypeAlias = Callable[[Frame], Array]


@dataclass(frozen=True, slots=True)
class Control:
    """An instruction that says where to go on, or when: `kind` is bra, call, ret, exit, trap or wait."""

    kind: str
    instruction: Instruction
    guard: Read | None
    target: int = 0  # bra: number of the instruction
    function: str = ""  # call
    arguments: tuple[Read, ...] = ()  # call: rows of bytes, or values
    results: tuple[Callable[[Frame, Mask, Array], None], ...] = field(default=())
    #: wait: which of these threads, all those that wait here, may go on; and what happens to them.
    ready: Callable[[Frame, Array], Array] | None = None
    passed: Step | None = None
    threaded: bool = False  # wait: a block of one thread does not


def write(frame: Frame, slot: int, values: Array, mask: Mask) -> None:
    """Set a register of the threads in `mask`."""
    if mask is None:
        frame.registers[slot][...] = values
    else:
        np.copyto(frame.registers[slot], values, where=mask)


class Operands:
    """One instruction, and what its operands mean in its function. Every method raises PtxError."""

    def __init__(self, instruction: Instruction, function: Function, addresses: Mapping[str, int]) -> None:
        self.instruction = instruction
        self.function = function
        self.addresses = addresses
        self.operands = instruction.operands
        self.name = ".".join((instruction.opcode, *instruction.modifiers[:-1]))

    def fail(self, reason: str) -> NoReturn:
        raise PtxError(f"{self.instruction.text}: {reason}", self.instruction.line)

    def count(self, *allowed: int) -> None:
        if len(self.operands) not in allowed:
            self.fail(f"takes {' or '.join(map(str, allowed))} operands")

    def guard(self) -> Read | None:
        guard = self.instruction.guard
        return None if guard is None else self.read(guard, 1)

    def type(self, kinds: str, widths: tuple[int, ...], modifier: str | None = None) -> Type:
        if modifier is None:
            modifier = self.instruction.modifiers[-1] if self.instruction.modifiers else ""
        found = TYPES.get(modifier)
        if found is None or found.bits not in widths or (found.kind not in kinds and found.kind != "pred"):
            self.fail(f"is not interpreted for type {modifier!r}")
        return found

    def fit(self, operand: Immediate, bits: int) -> int:
        if not -(1 << bits - 1) <= operand.value < 1 << bits:
            self.fail(f"{operand.value} does not fit {bits} bits")
        return operand.value & (1 << bits) - 1

    def read(self, operand: Operand, bits: int, wider: bool = False, floating: bool = False) -> Read:
        """The values of a source operand of exactly `bits`, or of a wider register where that is allowed."""
        if isinstance(operand, Register):
            if operand.bits != bits and not (wider and operand.bits > bits > 1):
                self.fail(f"takes a register of {bits} bits, not of {operand.bits}")
            slot = operand.slot
            return lambda frame: frame.registers[slot]
        if isinstance(operand, Immediate):
            if operand.floating is not floating:
                self.fail(f"takes {'a floating-point number' if floating else 'an integer'}")
            # An array, for scalars would warn when they wrap around; a single element, for it is the same everywhere.
            constant = np.array([self.fit(operand, bits)], dtype=UNSIGNED[bits])
            return lambda frame: constant
        if isinstance(operand, Special):
            if bits != 32:
                self.fail(f"{operand.name} has 32 bits, not {bits}")
            name = operand.name
            return lambda frame: frame.specials[name]
        if isinstance(operand, Not) and bits == 1:
            read = self.read(operand.register, 1)
            return lambda frame: ~read(frame)
        if isinstance(operand, Symbol) and bits in (32, 64) and operand.name in self.addresses:
            place = self.addresses[operand.name]
            if place >> bits:
                self.fail(f"the address of {operand.name} does not fit {bits} bits")
            address = np.array([place], dtype=UNSIGNED[bits])
            return lambda frame: address
        self.fail(f"takes a value of {bits} bits")

    def target(self, operand: Operand, bits: int, wider: bool = False) -> Register:
        if not isinstance(operand, Register):
            self.fail("writes to a register only")
        self.read(operand, bits, wider)
        return operand
