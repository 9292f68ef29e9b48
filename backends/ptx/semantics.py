"""Instructions to Python functions that carry them out for all threads of a group at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from . import arithmetic
from .access import atomic, load, map_address, store
from .arithmetic import UNSIGNED
from .memory import Array
from .operands import Control, Frame, Mask, Operands, Read, Step, write
from .syntax import Function, Group, Immediate, Operand, Pair, Parameter, PtxTrap, Register, Symbol
from .waiting import launch_control, mbarrier, meet, store_async


def compile_function(function: Function, addresses: Mapping[str, int]) -> list[Step | Control]:
    """One step for each instruction; `addresses` are those of the module's variables. Raises PtxError."""
    return [_compile(Operands(instruction, function, addresses)) for instruction in function.body]


def _compile(r: Operands) -> Step | Control:
    opcode, guard = r.instruction.opcode, r.instruction.guard
    if opcode in ("bra", "call", "ret", "exit", "trap"):
        return _control(r)
    step = _FORMS.get(opcode, _operation)(r)
    return step if guard is None or isinstance(step, Control) else _guarded(step, r.read(guard, 1))


def _operation(r: Operands) -> Step:
    if r.instruction.modifiers[-1:] == ("f32",):
        return _floating(r)
    known = arithmetic.OPERATIONS.get(r.name)
    if known is None:
        r.fail("is not interpreted")
    kinds, widths, shape, compute = known
    kind = r.type(kinds, widths)
    r.count(len(shape))
    bits = {"T": kind.bits, "W": 2 * kind.bits, "3": 32, "p": 1}
    slot = r.target(r.operands[0], bits[shape[0]]).slot
    reads = [r.read(o, bits[letter]) for o, letter in zip(r.operands[1:], shape[1:], strict=True)]
    if len(reads) == 2:
        first, second = reads
        return lambda frame, mask: write(frame, slot, compute(kind, first(frame), second(frame)), mask)
    return lambda frame, mask: write(frame, slot, compute(kind, *[read(frame) for read in reads]), mask)


def _floating(r: Operands) -> Step:
    known = arithmetic.FLOATING.get(r.name)
    if known is None:
        r.fail("is not interpreted")
    count, compute = known
    r.count(1 + count)
    slot = r.target(r.operands[0], 32).slot
    reads = [r.read(operand, 32, floating=True) for operand in r.operands[1:]]

    def run(frame: Frame, mask: Mask) -> None:
        with np.errstate(all="ignore"):
            values = compute(*(read(frame).view(np.float32) for read in reads))
        write(frame, slot, values.view(np.uint32), mask)

    return run


def _divide(r: Operands) -> Step:
    if r.name not in ("div", "rem"):
        r.fail("is not interpreted")
    kind = r.type("us", (16, 32, 64))
    r.count(3)
    slot = r.target(r.operands[0], kind.bits).slot
    a, b = (r.read(operand, kind.bits) for operand in r.operands[1:])
    compute = arithmetic.div if r.instruction.opcode == "div" else arithmetic.rem

    def divide(frame: Frame, mask: Mask) -> None:
        dividend, divisor = a(frame), b(frame)
        zero = divisor == 0
        if zero.any():
            at_fault = np.flatnonzero(zero if mask is None else zero & mask)
            if at_fault.size:
                raise PtxTrap("division by zero", r.instruction.line, r.instruction.text, int(at_fault[0]))
            divisor = np.where(zero, np.ones_like(divisor), divisor)
        write(frame, slot, compute(kind, dividend, divisor), mask)

    return divide


def _compare(r: Operands) -> Step:
    modifiers = r.instruction.modifiers
    kind = r.type("bus", (16, 32, 64))
    combine = arithmetic.COMBINE.get(modifiers[1]) if len(modifiers) == 3 else None
    if len(modifiers) != (2 if combine is None else 3):
        r.fail("is not interpreted")
    operations = dict(arithmetic.COMPARE)
    if kind.kind == "u":
        operations |= arithmetic.COMPARE_UNSIGNED
    elif kind.kind == "b":
        operations = {name: operations[name] for name in ("eq", "ne")}
    operation = operations.get(modifiers[0])
    if operation is None:
        r.fail(f"{modifiers[0]!r} does not compare {kind}")
    r.count(3 if combine is None else 4)
    target = r.operands[0]
    second = r.target(target.second, 1).slot if isinstance(target, Pair) else None
    first = r.target(target.first if isinstance(target, Pair) else target, 1).slot
    a, b = (r.read(operand, kind.bits) for operand in r.operands[1:3])
    also = r.read(r.operands[3], 1) if combine is not None else None

    def compare(frame: Frame, mask: Mask) -> None:
        truth = operation(arithmetic.typed(kind, a(frame)), arithmetic.typed(kind, b(frame)))
        opposite = ~truth
        if combine is not None and also is not None:
            other = also(frame)
            truth, opposite = combine(truth, other), combine(opposite, other)
        write(frame, first, truth, mask)
        if second is not None:
            write(frame, second, opposite, mask)

    return compare


def _select_by_sign(r: Operands) -> Step:
    modifiers = r.instruction.modifiers
    if len(modifiers) != 2 or modifiers[1] != "s32":
        r.fail("is not interpreted")
    kind = r.type("bus", (16, 32, 64), modifiers[0])
    r.count(4)
    slot = r.target(r.operands[0], kind.bits).slot
    a, b = (r.read(operand, kind.bits) for operand in r.operands[1:3])
    sign = r.read(r.operands[3], 32)
    return lambda frame, mask: write(frame, slot, np.where(sign(frame).view(np.int32) >= 0, a(frame), b(frame)), mask)


def _lop3(r: Operands) -> Step:
    r.type("b", (32,))
    r.count(5)
    *sources, table = r.operands[1:]
    if len(r.instruction.modifiers) != 1 or not isinstance(table, Immediate):
        r.fail("is not interpreted")
    value = r.fit(table, 8)
    slot = r.target(r.operands[0], 32).slot
    a, b, c = (r.read(operand, 32) for operand in sources)
    return lambda frame, mask: write(frame, slot, arithmetic.lop3(value, a(frame), b(frame), c(frame)), mask)


def _convert(r: Operands) -> Step:
    if r.name in arithmetic.CONVERSIONS:
        return _convert_floating(r)
    if len(r.instruction.modifiers) != 2:
        r.fail("is not interpreted")
    to, of = (r.type("us", (8, 16, 32, 64), modifier) for modifier in r.instruction.modifiers)
    r.count(2)
    target = r.target(r.operands[0], to.bits, wider=True)
    source = r.read(r.operands[1], of.bits, wider=True)
    return lambda frame, mask: write(frame, target.slot, arithmetic.convert(to, of, target.bits, source(frame)), mask)


def _convert_floating(r: Operands) -> Step:
    to, compute = arithmetic.CONVERSIONS[r.name]
    if r.instruction.modifiers[-1] != to:
        r.fail("is not interpreted")
    r.count(2)
    slot, read = r.target(r.operands[0], 32).slot, r.read(r.operands[1], 32, floating=to == "f32")
    return lambda frame, mask: write(frame, slot, compute(read(frame)), mask)


def _convert_address(r: Operands) -> Step:
    """Addresses are the same in every space here."""
    modifiers = r.instruction.modifiers
    space = modifiers[1:-1] if modifiers[:1] == ("to",) else modifiers[:-1]
    if space not in (("global",), ("const",)):
        r.fail("is not interpreted")
    r.type("u", (64,))
    r.count(2)
    return _copy(r, r.operands[0], r.operands[1], 64)


def _copy(r: Operands, target: Operand, source: Operand, bits: int) -> Step:
    slot, read = r.target(target, bits).slot, r.read(source, bits)
    return lambda frame, mask: write(frame, slot, read(frame), mask)


def _move(r: Operands) -> Step:
    if len(r.instruction.modifiers) != 1:
        r.fail("is not interpreted")
    kind = r.type("bus", (1, 16, 32, 64))
    r.count(2)
    target, source = r.operands
    if isinstance(target, Group):
        return _unpack(r, target, source, kind.bits)
    if isinstance(source, Group):
        return _pack(r, target, source, kind.bits)
    return _copy(r, target, source, kind.bits)


def _part_bits(r: Operands, group: Group, bits: int) -> int:
    part = bits // max(len(group.items), 1)
    if part not in UNSIGNED or part * len(group.items) != bits or len(group.items) not in (2, 4):
        r.fail(f"{len(group.items)} parts do not make {bits} bits")
    return part


def _pack(r: Operands, target: Operand, source: Group, bits: int) -> Step:
    part = _part_bits(r, source, bits)
    slot = r.target(target, bits).slot
    reads = [r.read(item, part) for item in source.items]

    def pack(frame: Frame, mask: Mask) -> None:
        whole = np.zeros(1, UNSIGNED[bits])
        for number, read in enumerate(reads):
            whole = whole | read(frame).astype(UNSIGNED[bits]) << number * part
        write(frame, slot, whole, mask)

    return pack


def _unpack(r: Operands, target: Group, source: Operand, bits: int) -> Step:
    part = _part_bits(r, target, bits)
    read = r.read(source, bits)
    slots = [r.target(item, part).slot for item in target.items]

    def unpack(frame: Frame, mask: Mask) -> None:
        parts = [(read(frame) >> number * part).astype(UNSIGNED[part]) for number in range(len(slots))]
        for slot, values in zip(slots, parts, strict=True):
            write(frame, slot, values, mask)

    return unpack


def _nothing(r: Operands) -> Step:
    """What orders accesses, or passes time, is nothing to threads of which one acts at a time."""
    return lambda frame, mask: None


def _store(r: Operands) -> Step:
    return store_async(r) if r.instruction.modifiers[:1] == ("async",) else store(r)


def _guarded(step: Step, guard: Read) -> Step:
    def run(frame: Frame, mask: Mask) -> None:
        chosen = guard(frame) if mask is None else guard(frame) & mask
        if chosen.all():
            step(frame, None)
        elif chosen.any():
            step(frame, chosen)

    return run


def _control(r: Operands) -> Control:
    instruction = r.instruction
    guard = r.guard()
    if set(instruction.modifiers) - {"uni"}:
        r.fail("is not interpreted")
    if instruction.opcode == "call":
        return _call(r, guard)
    if instruction.opcode != "bra":
        r.count(0)
        return Control(instruction.opcode, instruction, guard)
    r.count(1)
    label = r.operands[0]
    if not isinstance(label, Symbol) or label.name not in r.function.labels:
        r.fail("goes to no label of this function")
    return Control("bra", instruction, guard, target=r.function.labels[label.name])


def _call(r: Operands, guard: Read | None) -> Control:
    before = [operand for operand in r.operands if isinstance(operand, Symbol)]
    if len(before) != 1 or not all(isinstance(operand, Group | Symbol) for operand in r.operands):
        r.fail("takes results in parentheses, a function, and arguments in parentheses")
    at = r.operands.index(before[0])
    if at > 1 or len(r.operands) - at > 2:
        r.fail("takes results in parentheses, a function, and arguments in parentheses")
    results = [item for group in r.operands[:at] if isinstance(group, Group) for item in group.items]
    arguments = [item for group in r.operands[at + 1 :] if isinstance(group, Group) for item in group.items]
    return Control(
        "call",
        r.instruction,
        guard,
        function=before[0].name,
        arguments=tuple(_argument(r, item) for item in arguments),
        results=tuple(_result(r, item) for item in results),
    )


def _argument(r: Operands, operand: Operand) -> Read:
    """The bytes of an argument, one row a thread."""
    if isinstance(operand, Parameter) and operand.slot >= 0:
        slot = operand.slot
        return lambda frame: frame.spaces[slot]
    if isinstance(operand, Register) and operand.bits > 1:
        read = r.read(operand, operand.bits)
        return lambda frame: read(frame)[:, None].view(np.uint8)
    r.fail("passes parameters and registers only")


def _result(r: Operands, operand: Operand) -> Callable[[Frame, Mask, Array], None]:
    """Puts the bytes of a result, one row a thread, where the call wants them."""
    if isinstance(operand, Parameter) and operand.slot >= 0:
        slot = operand.slot
        return lambda frame, mask, rows: np.copyto(
            frame.spaces[slot], rows, where=True if mask is None else mask[:, None]
        )
    if isinstance(operand, Register) and operand.bits > 1:
        register = operand
        return lambda frame, mask, rows: write(
            frame, register.slot, np.ascontiguousarray(rows).view(UNSIGNED[register.bits])[:, 0], mask
        )
    r.fail("returns to parameters and registers only")


#: Instructions that are no plain operation on values of one type.
_FORMS: dict[str, Callable[[Operands], Step | Control]] = {
    "ld": load,
    "st": _store,
    "mapa": map_address,
    "atom": atomic,
    "red": atomic,
    "mov": _move,
    "cvt": _convert,
    "cvta": _convert_address,
    "setp": _compare,
    "slct": _select_by_sign,
    "lop3": _lop3,
    "div": _divide,
    "rem": _divide,
    "bar": meet,
    "barrier": meet,
    "mbarrier": mbarrier,
    "clusterlaunchcontrol": launch_control,
    **dict.fromkeys(("membar", "fence", "nanosleep"), _nothing),
}
