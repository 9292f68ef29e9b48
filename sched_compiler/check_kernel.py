"""What is checked of a kernel of the user's own before anything is read or compiled: paths, names, numbers, types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from sched_compiler.faults import Faults, close_match, described
from sched_compiler.kernel import EXPECTED, INTEGERS, SCALARS, argument_type
from sched_compiler.source import Path

MOST_ARGUMENTS = 64
MOST_SCHEDULES = 16
MOST_DEFINES = 64
MOST_THREADS = 1024
#: Threads of a block along x, y, z.
MOST_ALONG = (1024, 1024, 64)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
#: A kernel's name, with namespaces and template arguments; no more of C++ than that.
_ENTRY = re.compile(
    r"(?:::)?[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*(?:<[A-Za-z0-9_:<>,.()\[\]{}&|^~!?=*/%'+ -]*>)?",
    re.ASCII,
)
#: The value of a macro: one line, which ends there.
_DEFINE = re.compile(r"(?:[ -~]{0,199}[ -\[\]-~])?", re.ASCII)


def check_kernel(kernel: Mapping[str, Any], params: Mapping[str, Any], faults: Faults) -> None:
    """Add what is wrong with `kernel`, a mapping of the composed form, which may still have wrong types."""
    if not kernel:
        return
    _path(kernel.get("source"), ("kernel", "source"), faults)
    schedules = kernel.get("schedules")
    for n, name in enumerate(schedules if isinstance(schedules, list) else ()):
        _path(name, ("kernel", "schedules", n), faults)
        if n == MOST_SCHEDULES:
            _many(("kernel", "schedules"), "schedules", len(schedules or ()), MOST_SCHEDULES, faults)
    entry = kernel.get("entry")
    if isinstance(entry, str) and (not _ENTRY.fullmatch(entry) or len(entry) > 400):
        expected = "a name, or one with template arguments, as `gemm<128, 256>`"
        faults.add("E013", ("kernel", "entry"), "this is no kernel's name", found=described(entry), expected=expected)
    _block(kernel.get("block"), faults)
    arguments = kernel.get("arguments")
    for n, (name, kind) in enumerate(arguments.items() if isinstance(arguments, dict) else ()):
        if n == MOST_ARGUMENTS:
            _many(("kernel", "arguments"), "arguments", len(arguments or ()), MOST_ARGUMENTS, faults)
        _argument(name, kind, params, faults)
    defines = kernel.get("defines")
    for n, (name, value) in enumerate(defines.items() if isinstance(defines, dict) else ()):
        path: Path = ("kernel", "defines", name)
        if n == MOST_DEFINES:
            _many(("kernel", "defines"), "macros", len(defines or ()), MOST_DEFINES, faults)
        if not _IDENTIFIER.fullmatch(name):
            faults.add("E013", path, "no macro can have this name", found=described(name), expected="a name", key=True)
        if isinstance(value, str) and not _DEFINE.fullmatch(value):
            expected = "ASCII on one line, with no backslash at its end, 200 characters at most"
            faults.add("E012", path, "no macro can have this value", found=described(value), expected=expected)


def _many(path: Path, what: str, number: int, most: int, faults: Faults) -> None:
    faults.add("E012", path, f"there are too many {what}", found=str(number), expected=f"at most {most}")


def _path(name: Any, path: Path, faults: Faults) -> None:
    if not isinstance(name, str):
        return
    if not name or PurePosixPath(name).is_absolute() or "\\" in name or len(name) > 400 or not name.isprintable():
        expected = "a path relative to the spec, with `/` between its parts"
        faults.add("E012", path, "this is no file beside the spec", found=described(name), expected=expected)


def _block(block: Any, faults: Faults) -> None:
    if not isinstance(block, tuple) or not all(isinstance(n, int) and not isinstance(n, bool) for n in block):
        return
    for n, (threads, most) in enumerate(zip(block, MOST_ALONG, strict=True)):
        if not 1 <= threads <= most:
            message = f"a block has 1 to {most} threads along {'xyz'[n]}"
            faults.add("E052", ("kernel", "block", n), message, found=str(threads), expected=f"1 to {most}")
            return
    x, y, z = block
    if x * y * z > MOST_THREADS:
        found, expected = f"{x * y * z} threads", f"at most {MOST_THREADS}"
        faults.add("E052", ("kernel", "block"), "a block has too many threads", found=found, expected=expected)


def _argument(name: str, kind: Any, params: Mapping[str, Any], faults: Faults) -> None:
    path: Path = ("kernel", "arguments", name)
    if not _IDENTIFIER.fullmatch(name):
        expected = "a letter or `_`, then letters, digits or `_`"
        message = "an argument cannot have this name"
        faults.add("E013", path, message, found=described(name), expected=expected, key=True)
    if not isinstance(kind, str):
        return
    found = argument_type(kind)
    if found is None:
        mend = _in_our_words(kind) or close_match(kind, (*SCALARS, "void*", "tensormap", "schedule"))
        faults.add("E012", path, "no argument has this type", found=described(kind), expected=EXPECTED, mend=mend)
    elif name in params and found.kind != "schedule":
        low, high = _range(params[name])
        if kind not in INTEGERS:
            message = f"`{name}` is a parameter of the spec, so that its argument is an integer"
            mend = "give the argument another name, if it is not the parameter"
            faults.add("E012", path, message, found=kind, expected=f"one of: {', '.join(INTEGERS)}", mend=mend)
        elif low is not None and high is not None and not INTEGERS[kind][0] <= low <= high <= INTEGERS[kind][1]:
            message = f"the parameter `{name}` has values that {kind} does not hold"
            fitting = next(
                (t for t, (lo, hi) in INTEGERS.items() if t[1:] in ("32", "64") and lo <= low and high <= hi), None
            )
            mend = f"write {fitting}" if fitting else None
            faults.add("E023", path, message, found=f"{low} to {high}", expected="a type that holds them", mend=mend)


#: What C++ calls the types of arguments.
_OF_CPP = {
    "float": "f32", "double": "f64", "int": "s32", "unsigned": "u32", "unsigned int": "u32", "int32_t": "s32",
    "uint32_t": "u32", "int64_t": "s64", "uint64_t": "u64", "size_t": "u64", "long long": "s64", "half": "f16",
    "unsigned long long": "u64", "__half": "f16", "__nv_bfloat16": "bf16", "char": "s8", "int8_t": "s8",
    "uint8_t": "u8", "unsigned char": "u8", "short": "s16", "CUtensorMap": "tensormap",
}  # fmt: skip


def _in_our_words(kind: str) -> str | None:
    """A mend, where the type is one of C++."""
    name = kind.removeprefix("const ").rstrip("* ").removesuffix(" const")
    found = _OF_CPP.get(name)
    return f"write `{found}{'*' if '*' in kind else ''}`" if found else None


def _range(param: Any) -> tuple[int | None, int | None]:
    bounds = param if isinstance(param, dict) else {}
    low, high = bounds.get("min"), bounds.get("max")
    return (low if isinstance(low, int) else None), (high if isinstance(high, int) else None)
