"""Loads, stores and atomic operations as functions that carry them out for all threads of a group at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from . import arithmetic
from .arithmetic import UNSIGNED
from .memory import SHARED_BITS, Array
from .operands import Frame, Mask, Operands, Read, Step, write
from .syntax import Address, Group, Operand, Parameter, PtxTrap, Type

# What a memory access says of ordering, visibility and caches is nothing to threads that run in step.
_ORDERING = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys")
_CACHING = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")
_IGNORED = frozenset(_ORDERING + _CACHING)
_SPACES = frozenset(("global", "const", "param", "shared", "shared::cta", "shared::cluster"))
_ATOMICS: dict[str, tuple[str, Callable[..., int]]] = {
    "add": ("us", lambda old, b: old + b),
    "exch": ("b", lambda old, b: b),
    "cas": ("b", lambda old, b, c: c if old == b else old),
    "min": ("u", min),
    "max": ("u", max),
    "inc": ("u", lambda old, b: 0 if old >= b else old + 1),
    "dec": ("u", lambda old, b: b if old == 0 or old > b else old - 1),
    "and": ("b", lambda old, b: old & b),
    "or": ("b", lambda old, b: old | b),
    "xor": ("b", lambda old, b: old ^ b),
}


def _access(r: Operands) -> tuple[str, str, Type, int]:
    """Operation (of an atomic), space, type, and elements of a memory access."""
    space, vector, operation = "", 1, ""
    for modifier in r.instruction.modifiers[:-1]:
        if modifier in _SPACES and not space:
            space = modifier
        elif modifier in ("v2", "v4") and vector == 1:
            vector = int(modifier[1])
        elif modifier in _ATOMICS and not operation:
            operation = modifier
        elif modifier not in _IGNORED and not modifier.startswith(("L1::", "L2::")):
            r.fail(f"{modifier!r} is not interpreted")
    kind = r.type("bus", (8, 16, 32, 64, 128))
    space = space.partition("::")[0]
    if vector * kind.bytes > 16:
        r.fail("accesses more than 16 bytes")
    return operation, space, kind, vector


def _elements(r: Operands, operand: Operand, count: int) -> tuple[Operand, ...]:
    if count == 1:
        return (operand,)
    if not isinstance(operand, Group) or len(operand.items) != count:
        r.fail(f"takes {count} values in braces")
    return operand.items


def address_of(r: Operands, operand: Operand, space: str) -> Read:
    if not isinstance(operand, Address):
        r.fail("takes an address in brackets")
    bits = 32 if space == "shared" else 64
    offset = np.array([operand.offset & (1 << bits) - 1], dtype=UNSIGNED[bits])
    if operand.base is None:
        return lambda frame: offset
    base = r.read(operand.base, bits)
    return (lambda frame: base(frame) + offset) if operand.offset else base


def _parameter_slice(r: Operands, operand: Operand, size: int) -> tuple[int, slice]:
    """Which variable in parameter space an address means, and which of its bytes."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Parameter) or operand.base.slot < 0:
        r.fail("takes the address of a parameter")
    start = operand.offset
    if start < 0 or start + size > operand.base.size or start % size:
        r.fail(f"{size} bytes at {start} are not in {operand.base.name}, or not aligned")
    return operand.base.slot, slice(start, start + size)


def load(r: Operands) -> Step:
    operation, space, kind, count = _access(r)
    if operation:
        r.fail("is not interpreted")
    r.count(2)
    targets = [r.target(item, kind.bits, wider=True) for item in _elements(r, r.operands[0], count)]
    dtype = UNSIGNED[kind.bits]

    def put(frame: Frame, mask: Mask, loaded: list[Array]) -> None:
        for target, values in zip(targets, loaded, strict=True):
            wide = arithmetic.typed(kind, values).astype(UNSIGNED[target.bits])
            write(frame, target.slot, wide, mask)

    if space == "param":
        slot, part = _parameter_slice(r, r.operands[1], count * kind.bytes)

        def load_parameter(frame: Frame, mask: Mask) -> None:
            rows = np.ascontiguousarray(frame.spaces[slot][:, part]).view(dtype)
            put(frame, mask, [rows[:, number].copy() for number in range(count)])

        return load_parameter
    address = address_of(r, r.operands[1], space)

    def load(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, space)
        loaded = frame.memory.load(addresses, dtype, count, space, fault_of(r, active))
        if mask is not None:
            loaded = [_scatter(mask, values) for values in loaded]
        put(frame, mask, loaded)

    return load


def store(r: Operands) -> Step:
    operation, space, kind, count = _access(r)
    if operation or space == "const":
        r.fail("is not interpreted")
    r.count(2)
    reads = [r.read(item, kind.bits, wider=True) for item in _elements(r, r.operands[1], count)]
    dtype = UNSIGNED[kind.bits]
    if space == "param":
        slot, part = _parameter_slice(r, r.operands[0], count * kind.bytes)

        def store_parameter(frame: Frame, mask: Mask) -> None:
            space = frame.spaces[slot]
            values = [np.broadcast_to(read(frame).astype(dtype), len(space)) for read in reads]
            rows = np.stack(values, axis=1).view(np.uint8)
            np.copyto(space[:, part], rows, where=True if mask is None else mask[:, None])

        return store_parameter
    address = address_of(r, r.operands[0], space)

    def store(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, space)
        values = [values_of(read(frame).astype(dtype), active) for read in reads]
        frame.memory.store(addresses, values, space, fault_of(r, active))

    return store


def atomic(r: Operands) -> Step:
    operation, space, kind, count = _access(r)
    kinds, change = _ATOMICS.get(operation, ("", None))
    whole = kind.bits in (32, 64) and count == 1
    if change is None or kind.kind not in kinds or not whole or space not in ("", "global"):
        r.fail("is not interpreted")
    returns = r.instruction.opcode == "atom"
    r.count((3 if returns else 2) + (operation == "cas"))
    slot = r.target(r.operands[0], kind.bits).slot if returns else None
    at, *sources = r.operands[1:] if returns else r.operands
    address = address_of(r, at, space)
    reads = [r.read(source, kind.bits) for source in sources]

    def atomic(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, space)
        values = [values_of(read(frame), active) for read in reads]
        dtype = UNSIGNED[kind.bits]
        old = frame.memory.exchange(addresses, dtype, space, fault_of(r, active), change, values)
        if slot is not None:
            write(frame, slot, old if mask is None else _scatter(mask, old), mask)

    return atomic


def active_addresses(r: Operands, frame: Frame, mask: Mask, address: Read, space: str) -> tuple[Array, Array]:
    """The threads that take part, and the address of each."""
    active = np.arange(len(frame.specials["%ctaid.x"])) if mask is None else np.flatnonzero(mask)
    addresses = values_of(address(frame), active)
    if space == "shared":
        ranks = values_of(frame.specials["%cluster_ctarank"], active).astype(np.int64)
        addresses = frame.memory.shared_addresses(addresses, active // frame.threads.block, ranks, fault_of(r, active))
    return active, addresses


def map_address(r: Operands) -> Step:
    """`mapa`: a shared address as one in the shared memory of another CTA of the cluster."""
    if r.instruction.modifiers != ("shared::cluster", "u32"):
        r.fail("is not interpreted")
    r.count(3)
    slot = r.target(r.operands[0], 32).slot
    address, rank = r.read(r.operands[1], 32), r.read(r.operands[2], 32)

    def map_address(frame: Frame, mask: Mask) -> None:
        offset = address(frame) & np.uint32((1 << SHARED_BITS) - 1)
        write(frame, slot, (rank(frame) + np.uint32(1)) << np.uint32(SHARED_BITS) | offset, mask)

    return map_address


def fault_of(r: Operands, active: Array) -> Callable[[int, int, str], NoReturn]:
    def fault(place: int, address: int, reason: str) -> NoReturn:
        raise PtxTrap(reason, r.instruction.line, r.instruction.text, int(active[place]), address)

    return fault


def values_of(values: Array, active: Array) -> Array:
    """The values of the active threads, in their order."""
    return values[active] if len(values) > 1 else np.repeat(values, len(active))


def _scatter(mask: Array, values: Array) -> Array:
    """Values of the active threads, each in its thread's place."""
    spread = np.zeros(len(mask), values.dtype)
    spread[mask] = values
    return spread
