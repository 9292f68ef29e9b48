"""What the integer operations of PTX do to arrays of values, one value for each thread.

Values are unsigned integers of the exact width, whatever the type says: signed operations see them through a view.
Arrays wrap around by themselves, as PTX does; a predicate is an array of bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .memory import Array
from .syntax import Type

UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: np.dtype("V16"),  # bytes, to be moved and no more
}
SIGNED: dict[int, np.dtype[Any]] = {bits: np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)}

#: The function of an operation: from the instruction's type and the operands to the result.
Compute: TypeAlias = Callable[..., Array]


def typed(kind: Type, values: Array) -> Array:
    """The values as the type sees them: signed if it is signed."""
    return values.view(SIGNED[kind.bits]) if kind.kind == "s" else values


def _raw(values: Array) -> Array:
    raw: Array = values.view(UNSIGNED[8 * values.dtype.itemsize])
    return raw


def _widened(kind: Type, values: Array) -> Array:
    """The values in twice as many bits (at most 64)."""
    dtypes = SIGNED if kind.kind == "s" else UNSIGNED
    return typed(kind, values).astype(dtypes[2 * kind.bits])


def mul_wide(kind: Type, a: Array, b: Array) -> Array:
    return _raw(_widened(kind, a) * _widened(kind, b))


def mul_hi(kind: Type, a: Array, b: Array) -> Array:
    high: Array
    if kind.bits < 64:
        high = (mul_wide(kind, a, b) >> kind.bits).astype(UNSIGNED[kind.bits])
        return high
    low = 0xFFFFFFFF
    cross_1, cross_2 = (a & low) * (b >> 32), (a >> 32) * (b & low)
    carry = ((a & low) * (b & low) >> 32) + (cross_1 & low) + (cross_2 & low) >> 32
    high = (a >> 32) * (b >> 32) + (cross_1 >> 32) + (cross_2 >> 32) + carry
    if kind.kind == "s":
        # A negative factor was read as 2**64 more than it is.
        high = high - np.where(typed(kind, a) < 0, b, 0) - np.where(typed(kind, b) < 0, a, 0)
    return high


def div(kind: Type, a: Array, b: Array) -> Array:
    """Quotient, rounded towards zero; no `b` may be zero."""
    quotient: Array
    if kind.kind == "u":
        quotient = a // b
        return quotient
    negative_a, negative_b = typed(kind, a) < 0, typed(kind, b) < 0
    quotient = np.where(negative_a, -a, a) // np.where(negative_b, -b, b)
    return np.where(negative_a != negative_b, -quotient, quotient)


def rem(kind: Type, a: Array, b: Array) -> Array:
    """Remainder, of the sign of `a`; no `b` may be zero."""
    remainder: Array = a - div(kind, a, b) * b
    return remainder


def _absolute(kind: Type, a: Array) -> Array:
    return np.where(typed(kind, a) < 0, -a, a)


def _shl(kind: Type, a: Array, amount: Array) -> Array:
    inside = amount < kind.bits
    return np.where(inside, a << np.where(inside, amount, 0).astype(a.dtype), 0).astype(a.dtype)


def _shr(kind: Type, a: Array, amount: Array) -> Array:
    if kind.kind == "s":
        clamped = np.minimum(amount, kind.bits - 1).astype(SIGNED[kind.bits])
        return _raw(typed(kind, a) >> clamped)
    inside = amount < kind.bits
    return np.where(inside, a >> np.where(inside, amount, 0).astype(a.dtype), 0).astype(a.dtype)


def _popc(kind: Type, a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def _clz(kind: Type, a: Array) -> Array:
    smeared, step = a, 1
    while step < kind.bits:
        smeared = smeared | smeared >> step
        step *= 2
    return kind.bits - _popc(kind, smeared)


def _bfind(kind: Type, a: Array) -> Array:
    """Number of the highest bit that is set, or that is not the sign; all ones where there is none."""
    magnitude = np.where(typed(kind, a) < 0, ~a, a) if kind.kind == "s" else a
    return (np.uint32(kind.bits - 1) - _clz(kind, magnitude).astype(np.uint32)).astype(np.uint32)


def _brev(kind: Type, a: Array) -> Array:
    step, ones = kind.bits // 2, (1 << kind.bits) - 1
    while step:
        low = ones // ((1 << step) + 1)  # step ones, step zeros, and so on
        a = (a >> step) & low | (a & low) << step
        step //= 2
    return a


def _select(kind: Type, a: Array, b: Array, condition: Array) -> Array:
    return np.where(condition, a, b)


def _field(kind: Type, position: Array, length: Array) -> tuple[Array, Array, Array]:
    """Position and length of a bit field, and how many of its bits lie inside the value."""
    position, length = (position & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
    return position, length, np.clip(kind.bits - position, 0, length)


def _ones(count: Array) -> Array:
    """This many ones, from the lowest bit on; at most 64."""
    count = count.astype(np.uint64)
    return np.where(count < 64, (np.uint64(1) << count % 64) - np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))


def _bfe(kind: Type, a: Array, position: Array, length: Array) -> Array:
    position, length, inside = _field(kind, position, length)
    wide, ones = a.astype(np.uint64), _ones(inside)
    found = wide >> np.minimum(position, kind.bits - 1).astype(np.uint64) & ones
    if kind.kind == "s":
        top = np.clip(position + length - 1, 0, kind.bits - 1).astype(np.uint64)
        negative = (length > 0) & (wide >> top & 1 != 0)
        found = np.where(negative, found | ~ones, found)
    return found.astype(a.dtype)


def _bfi(kind: Type, a: Array, b: Array, position: Array, length: Array) -> Array:
    position, _, inside = _field(kind, position, length)
    shift = (position % 64).astype(np.uint64)  # where it matters nothing is inside
    ones = _ones(inside) << shift
    return (b.astype(np.uint64) & ~ones | a.astype(np.uint64) << shift & ones).astype(a.dtype)


def lop3(table: int, a: Array, b: Array, c: Array) -> Array:
    """The bitwise function whose value for a, b, c is bit 4a + 2b + c of `table`."""
    result = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def convert(to: Type, of: Type, bits: int, values: Array) -> Array:
    """The low bits of `values` read as `of`, turned into `to`, extended to a register of `bits`."""
    read = typed(of, values.astype(UNSIGNED[of.bits]))
    return typed(to, _raw(read.astype(SIGNED[to.bits]))).astype(UNSIGNED[bits])


def _truncated(values: Array) -> Array:
    """Rounded towards zero, to the nearest number that an unsigned one can be; nothing from what is no number."""
    numbers = np.nan_to_num(values.view(np.float32).astype(np.float64), nan=0.0)
    return np.clip(numbers, 0, 2**32 - 1).astype(np.uint32)


#: Conversion -> the type that it reads, and its function.
CONVERSIONS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "cvt.rn.f32": ("u32", lambda a: a.astype(np.float32).view(np.uint32)),
    "cvt.rzi.u32": ("f32", _truncated),
}
#: Operation on floating-point numbers of 32 bits -> how many operands it has, and its function.
FLOATING: dict[str, tuple[int, Callable[..., Array]]] = {
    "add": (2, np.add),
    "mul": (2, np.multiply),
    "rcp.approx.ftz": (1, np.reciprocal),
}

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMPARE_UNSIGNED = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}

#: Operation -> kinds and widths of its type, widths of result and operands, and its function. Of the widths, T is the
#: type's own, W twice that, 3 is 32 bits and p a predicate.
OPERATIONS: dict[str, tuple[str, tuple[int, ...], str, Compute]] = {
    "add": ("us", (16, 32, 64), "TTT", lambda t, a, b: a + b),
    "sub": ("us", (16, 32, 64), "TTT", lambda t, a, b: a - b),
    "mul.lo": ("us", (16, 32, 64), "TTT", lambda t, a, b: a * b),
    "mul.hi": ("us", (16, 32, 64), "TTT", mul_hi),
    "mul.wide": ("us", (16, 32), "WTT", mul_wide),
    "mad.lo": ("us", (16, 32, 64), "TTTT", lambda t, a, b, c: a * b + c),
    "mad.hi": ("us", (16, 32, 64), "TTTT", lambda t, a, b, c: mul_hi(t, a, b) + c),
    "mad.wide": ("us", (16, 32), "WTTW", lambda t, a, b, c: mul_wide(t, a, b) + c),
    "min": ("us", (16, 32, 64), "TTT", lambda t, a, b: _raw(np.minimum(typed(t, a), typed(t, b)))),
    "max": ("us", (16, 32, 64), "TTT", lambda t, a, b: _raw(np.maximum(typed(t, a), typed(t, b)))),
    "abs": ("s", (16, 32, 64), "TT", _absolute),
    "neg": ("s", (16, 32, 64), "TT", lambda t, a: -a),
    "and": ("b", (1, 16, 32, 64), "TTT", lambda t, a, b: a & b),
    "or": ("b", (1, 16, 32, 64), "TTT", lambda t, a, b: a | b),
    "xor": ("b", (1, 16, 32, 64), "TTT", lambda t, a, b: a ^ b),
    "not": ("b", (1, 16, 32, 64), "TT", lambda t, a: ~a),
    "cnot": ("b", (16, 32, 64), "TT", lambda t, a: (a == 0).astype(a.dtype)),
    "shl": ("b", (16, 32, 64), "TT3", _shl),
    "shr": ("bus", (16, 32, 64), "TT3", _shr),
    "popc": ("b", (32, 64), "3T", _popc),
    "clz": ("b", (32, 64), "3T", _clz),
    "bfind": ("us", (32, 64), "3T", _bfind),
    "brev": ("b", (32, 64), "TT", _brev),
    "bfe": ("us", (32, 64), "TT33", _bfe),
    "bfi": ("b", (32, 64), "TTT33", _bfi),
    "selp": ("bus", (16, 32, 64), "TTTp", _select),
}
