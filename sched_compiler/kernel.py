"""A kernel of the user's own: the types of its arguments, as a spec names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: Bytes of each scalar type.
SCALARS = {
    "u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
}  # fmt: skip
#: Integer types, with the values that they hold.
INTEGERS = {f"{sign}{bits}": (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            for sign in "us" for bits in (8, 16, 32, 64)}  # fmt: skip
#: Bytes of all of a kernel's arguments, which every architecture takes.
MOST_ARGUMENT_BYTES = 4096
_BYTES = re.compile(r"bytes\[([1-9][0-9]{0,3})\](?:@(1|2|4|8|16|32|64|128))?", re.ASCII)
_SCHEDULE = re.compile(r"sched::([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)

EXPECTED = (
    f"{', '.join(SCALARS)}, one of them or `void` with `*`, `tensormap`, `bytes[N]`, `bytes[N]@ALIGNMENT`, "
    "`schedule`, or `sched::NAME`"
)


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """What a kernel gets passed. `size` and `align` are bytes, 0 for a schedule, whose arguments decide them."""

    text: str
    kind: Literal["scalar", "pointer", "opaque", "schedule"]
    size: int
    align: int
    schedule: str | None = None  # of a schedule: its struct's name, or None for the spec's own


def argument_type(text: str) -> ArgumentType | None:
    """The type that `text` names, in the language of specs; None for what names none."""
    if text in SCALARS:
        return ArgumentType(text, "scalar", SCALARS[text], SCALARS[text])
    if text.endswith("*") and text[:-1] in (*SCALARS, "void"):
        return ArgumentType(text, "pointer", 8, 8)
    if text == "tensormap":  # CUtensorMap
        return ArgumentType(text, "opaque", 128, 64)
    if found := _BYTES.fullmatch(text):
        size = int(found[1])
        return ArgumentType(text, "opaque", size, int(found[2] or min(size & -size, 8)))
    if text == "schedule":
        return ArgumentType(text, "schedule", 0, 0)
    if found := _SCHEDULE.fullmatch(text):
        return ArgumentType(text, "schedule", 0, 0, found[1])
    return None
