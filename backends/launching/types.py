"""The types of a kernel's arguments: how many bytes, which values, and how Python's values become bytes."""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

#: Codes of `struct`, standard sizes; bf16 is the upper half of an f32.
CODES = {
    "u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i", "u64": "Q", "s64": "q",
    "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64")


def bits_of(scalar: str) -> int:
    """Bits of a scalar type: 16 for `bf16`."""
    return int(scalar.lstrip("usbf"))


def bounds(scalar: str) -> tuple[int, int] | None:
    """The least and the greatest value of an integer type; None for another type."""
    if scalar not in CODES or scalar in FLOATS:
        return None
    bits = bits_of(scalar)
    return (0, 2**bits - 1) if scalar[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def as_integer(value: Any) -> int | None:
    """An integer of Python or NumPy; None for anything else, one that lies on a device among it."""
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "__dlpack__") or not hasattr(value, "__index__"):
        return None
    return operator.index(value)


def as_float(value: Any) -> float | None:
    """A number of Python or NumPy; None for anything else."""
    if hasattr(value, "__dlpack__") or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def packed(value: float, scalar: str) -> bytes | None:
    """The bytes of a number, lowest first; None where the type does not hold it."""
    try:
        if scalar != "bf16":
            return struct.pack(f"<{CODES[scalar]}", value)
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except (OverflowError, struct.error):
        return None
    if math.isnan(value):
        return b"\xc0\x7f"
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to nearest, ties to even
    if rounded & 0x7FFF == 0x7F80 and not math.isinf(value):
        return None
    return struct.pack("<H", rounded)


def held(element: str, wanted: str) -> bool:
    """Whether an array of `element` may be passed as a pointer to `wanted`.

    Whether integers have a sign is not told apart: few libraries have all unsigned types.
    """
    if wanted == "void" or element == wanted:
        return True
    return bounds(element) is not None and bounds(wanted) is not None and bits_of(element) == bits_of(wanted)
