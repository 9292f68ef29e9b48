"""Every instruction of the PTX interpreter against Python's integers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from backends.ptx.interpreter import Module
from backends.ptx.syntax import PtxError
from backends.toolchain.errors import ToolMissing

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
OPERANDS = "abce"
DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def module(text: str) -> Module:
    return Module.parse(HEAD + text)


def edges(bits: int) -> list[int]:
    full, half = 1 << bits, 1 << bits - 1
    found = {0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 255, 256, half - 1, half, half + 1, full - 2, full - 1, full // 3}
    return sorted(value % full for value in found)


def samples(widths: list[int], seed: str) -> list[tuple[int, ...]]:
    """Operands: all pairs of edge values (a choice of them for more operands), and random ones."""
    draw = random.Random(seed)
    rows = list(itertools.product(*map(edges, widths)))
    rows = draw.sample(rows, min(len(rows), 400))
    rows += [tuple(draw.getrandbits(bits) for bits in widths) for _ in range(100)]
    return rows + [tuple(draw.randrange(1, 80) % (1 << bits) for bits in widths) for _ in range(100)]


def function(name: str, body: str, widths: list[int], result: int) -> str:
    """A function with `body`, which reads %a, %b, %c, %e of these widths and sets %d; one bit is a predicate."""
    names = OPERANDS[: len(widths)]
    sizes = [max(8, width) for width in widths]
    text = f".visible .func (.param .b64 out) {name}(\n"
    text += ",\n".join(f".param .b{size} p{name}" for name, size in zip(names, sizes, strict=True)) + "\n)\n{\n"
    text += f".reg .b{result} %d;\n.reg .b64 %wide;\n" if result > 1 else ".reg .pred %d;\n.reg .b64 %wide;\n"
    for name, width in zip(names, widths, strict=True):
        if width == 1:
            text += f".reg .pred %{name};\n.reg .b16 %t{name};\n"
            text += f"ld.param.u8 %t{name}, [p{name}];\nsetp.ne.u16 %{name}, %t{name}, 0;\n"
        else:
            text += f".reg .b{max(16, width)} %{name};\nld.param.b{width} %{name}, [p{name}];\n"
    text += body + ("\n" if result > 1 else "\nselp.u64 %wide, 1, 0, %d;\n")
    if result > 1:
        text += f"cvt.u64.u{result} %wide, %d;\n" if result < 64 else "mov.u64 %wide, %d;\n"
    return text + "st.param.b64 [out], %wide;\nret;\n}\n"


def evaluate(body: str, rows: Sequence[tuple[int, ...]], widths: list[int], result: int) -> list[int]:
    """What `body` (see `function`) makes of each row of operands."""
    columns: list[npt.NDArray[Any]] = [
        np.array([row[number] for row in rows], dtype=DTYPES[max(8, width)]) for number, width in enumerate(widths)
    ]
    results = module(function("f", body, widths, result)).call("f", columns)
    return [int(value) for value in results.view(np.uint64)[:, 0]]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def of(kind: str, value: int) -> int:
    bits = int(kind[1:])
    return signed(value, bits) if kind[0] == "s" else value


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def field_extract(kind: str, a: int, position: int, length: int) -> int:
    """bfe, as the PTX ISA spells it out."""
    bits = int(kind[1:])
    position, length = position & 0xFF, length & 0xFF
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(position + length - 1, bits - 1) & 1
    result = 0
    for bit in range(bits):
        result |= (a >> position + bit & 1 if bit < length and position + bit < bits else sign) << bit
    return result


def field_insert(bits: int, a: int, b: int, position: int, length: int) -> int:
    """bfi, as the PTX ISA spells it out."""
    position, length = position & 0xFF, length & 0xFF
    for bit in range(length):
        if position + bit < bits:
            b = b & ~(1 << position + bit) | (a >> bit & 1) << position + bit
    return b


def lookup(table: int, a: int, b: int, c: int) -> int:
    return sum((table >> (4 * (a >> n & 1) + 2 * (b >> n & 1) + (c >> n & 1)) & 1) << n for n in range(32))


Case = tuple[str, list[int], int, Callable[..., int]]


def cases() -> list[Case]:
    """Body, widths of the operands, width of the result, and the result as a number (its low bits count)."""
    found: list[Case] = []

    def add(text: str, widths: list[int], result: int, reference: Callable[..., int]) -> None:
        operands = "".join(f", %{name}" for name in OPERANDS[: len(widths)])
        found.append((f"{text} %d{operands};", widths, result, reference))

    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        n = int(kind[1:])
        two, three = [n, n], [n, n, n]
        add(f"add.{kind}", two, n, lambda a, b: a + b)
        add(f"sub.{kind}", two, n, lambda a, b: a - b)
        add(f"mul.lo.{kind}", two, n, lambda a, b: a * b)
        add(f"mul.hi.{kind}", two, n, lambda a, b, k=kind, n=n: of(k, a) * of(k, b) >> n)
        add(f"mad.lo.{kind}", three, n, lambda a, b, c: a * b + c)
        add(f"mad.hi.{kind}", three, n, lambda a, b, c, k=kind, n=n: (of(k, a) * of(k, b) >> n) + c)
        if n < 64:
            add(f"mul.wide.{kind}", two, 2 * n, lambda a, b, k=kind: of(k, a) * of(k, b))
            add(f"mad.wide.{kind}", [n, n, 2 * n], 2 * n, lambda a, b, c, k=kind: of(k, a) * of(k, b) + c)
        add(f"min.{kind}", two, n, lambda a, b, k=kind: min(of(k, a), of(k, b)))
        add(f"max.{kind}", two, n, lambda a, b, k=kind: max(of(k, a), of(k, b)))
        nonzero = f"or.b{n} %b, %b, 1;\n"
        found.append(
            (f"{nonzero}div.{kind} %d, %a, %b;", two, n, lambda a, b, k=kind: quotient(of(k, a), of(k, b | 1)))
        )
        found.append(
            (
                f"{nonzero}rem.{kind} %d, %a, %b;",
                two,
                n,
                lambda a, b, k=kind: of(k, a) - quotient(of(k, a), of(k, b | 1)) * of(k, b | 1),
            )
        )
        add(f"shr.{kind}", [n, 32], n, lambda a, b, k=kind: of(k, a) >> min(b, 100))
        add(f"selp.{kind}", [n, n, 1], n, lambda a, b, c: a if c else b)
        add(f"slct.{kind}.s32", [n, n, 32], n, lambda a, b, c: a if signed(c, 32) >= 0 else b)
        add(f"mov.{kind}", [n], n, lambda a: a)
        if n > 16:
            add(f"bfe.{kind}", [n, 32, 32], n, lambda a, b, c, k=kind: field_extract(k, a, b, c))
        if kind[0] == "s":
            add(f"abs.{kind}", [n], n, lambda a, k=kind: abs(of(k, a)))
            add(f"neg.{kind}", [n], n, lambda a: -a)
        comparisons: dict[str, Callable[[int, int], bool]] = {
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
        }
        if kind[0] == "u":
            comparisons |= {"lo": comparisons["lt"], "ls": comparisons["le"]}
            comparisons |= {"hi": comparisons["gt"], "hs": comparisons["ge"]}
        for name, compare in comparisons.items():
            add(f"setp.{name}.{kind}", two, 1, lambda a, b, k=kind, f=compare: f(of(k, a), of(k, b)))
    for n in (16, 32, 64):
        add(f"and.b{n}", [n, n], n, lambda a, b: a & b)
        add(f"or.b{n}", [n, n], n, lambda a, b: a | b)
        add(f"xor.b{n}", [n, n], n, lambda a, b: a ^ b)
        add(f"not.b{n}", [n], n, lambda a: ~a)
        add(f"cnot.b{n}", [n], n, lambda a: a == 0)
        add(f"shl.b{n}", [n, 32], n, lambda a, b: a << min(b, 100))
        add(f"shr.b{n}", [n, 32], n, lambda a, b: a >> min(b, 100))
        add(f"mov.b{n}", [n], n, lambda a: a)
        add(f"selp.b{n}", [n, n, 1], n, lambda a, b, c: a if c else b)
        add(f"setp.eq.b{n}", [n, n], 1, lambda a, b: a == b)
        add(f"setp.ne.b{n}", [n, n], 1, lambda a, b: a != b)
        if n > 16:
            add(f"popc.b{n}", [n], 32, lambda a: a.bit_count())
            add(f"bfind.u{n}", [n], 32, lambda a: (a.bit_length() - 1) % 2**32)
            add(f"bfind.s{n}", [n], 32, lambda a, n=n: ((a ^ -(a >> n - 1) % 2**n).bit_length() - 1) % 2**32)
            add(f"clz.b{n}", [n], 32, lambda a, n=n: n - a.bit_length())
            add(f"brev.b{n}", [n], n, lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2))
            add(f"bfi.b{n}", [n, n, 32, 32], n, lambda a, b, c, e, n=n: field_insert(n, a, b, c, e))
    for operation, combine in (
        ("and", lambda a, b: a & b),
        ("or", lambda a, b: a | b),
        ("xor", lambda a, b: a ^ b),
    ):
        add(f"{operation}.pred", [1, 1], 1, combine)
        add(f"setp.lt.{operation}.u32", [32, 32, 1], 1, lambda a, b, c, f=combine: f(a < b, bool(c)))
        found.append(
            (
                f"setp.ge.{operation}.s32 %d, %a, %b, !%c;",
                [32, 32, 1],
                1,
                lambda a, b, c, f=combine: f(signed(a, 32) >= signed(b, 32), not c),
            )
        )
        found.append(
            (
                f".reg .pred %first;\nsetp.eq.{operation}.s32 %first|%d, %a, %b, %c;",
                [32, 32, 1],
                1,
                lambda a, b, c, f=combine: f(a != b, bool(c)),
            )
        )
    add("not.pred", [1], 1, lambda a: not a)
    add("mov.pred", [1], 1, lambda a: a)
    for table in (0x80, 0xFE, 0x96, 0xCA, 0x1B):
        found.append(
            (f"lop3.b32 %d, %a, %b, %c, {table:#x};", [32, 32, 32], 32, lambda a, b, c, t=table: lookup(t, a, b, c))
        )
    for to, source in itertools.product(("u16", "s16", "u32", "s32", "u64", "s64"), repeat=2):
        add(f"cvt.{to}.{source}", [int(source[1:])], int(to[1:]), lambda a, k=source: of(k, a))
    for to, source in itertools.product(("u8", "s8"), ("u16", "s32", "u64")):
        # The register is wider than the type: the result is extended to it.
        add(f"cvt.{to}.{source}", [int(source[1:])], 32, lambda a, k=to: of(k, a & 0xFF))
        add(f"cvt.{source}.{to}", [32], int(source[1:]), lambda a, k=to: of(k, a & 0xFF))
    add("cvta.to.global.u64", [64], 64, lambda a: a)
    found.append(("mov.b64 %d, {%a, %b};", [32, 32], 64, lambda a, b: a | b << 32))
    found.append((".reg .b32 %low;\nmov.b64 {%low, %d}, %a;", [64], 32, lambda a: a >> 32))
    found.append(("add.s32 %d, %a, -7;", [32], 32, lambda a: a - 7))
    found.append(("add.u32 %d, %a, 0xFFFFFFF0U;", [32], 32, lambda a: a - 16))
    found.append(("mul.lo.u64 %d, %a, 0x123456789ABCDEF;", [64], 64, lambda a: a * 0x123456789ABCDEF))
    found.append(("sub.u16 %d, 5, %a;", [16], 16, lambda a: 5 - a))
    found.append(("add.u32 %d, 4000000000, 4000000000;", [32], 32, lambda a: 8000000000))
    guards = ".reg .pred %g;\nsetp.gt.u32 %g, %a, 9;\n@%g add.u32 %d, %a, 1;\n@!%g mov.u32 %d, 5;"
    found.append((guards, [32], 32, lambda a: a + 1 if a > 9 else 5))
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0].splitlines()[-1])
def test_instruction(case: Case) -> None:
    body, widths, result, reference = case
    rows = samples(widths, body)
    found = evaluate(body, rows, widths, result)
    mask = (1 << result) - 1
    expected = [int(reference(*row)) & mask for row in rows]
    wrong = [(row, got, want) for row, got, want in zip(rows, found, expected, strict=True) if got != want]
    assert not wrong, wrong[:3]


def test_every_bit_field() -> None:
    rows = [(0x8F3C_5A96, position, length) for position in (0, 1, 5, 30, 31, 32, 40, 255) for length in range(0, 70)]
    for kind in ("u32", "s32"):
        got = evaluate(f"bfe.{kind} %d, %a, %b, %c;", rows, [32, 32, 32], 32)
        assert got == [field_extract(kind, *row) for row in rows]
    into = [(0x0123_4567_89AB_CDEF, 0xFFFF_0000_FF00_F0F0, position, length) for _, position, length in rows]
    got = evaluate("bfi.b64 %d, %a, %b, %c, %e;", into, [64, 64, 32, 32], 64)
    assert got == [field_insert(64, *row) for row in into]


def test_the_assembler_knows_every_form_that_is_tested() -> None:
    nvjitlink = pytest.importorskip("backends.toolchain.nvjitlink")
    try:
        nvjitlink.version()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    functions = [
        function(f"f{number}", body, widths, result) for number, (body, widths, result, _) in enumerate(cases())
    ]
    nvjitlink.assemble(HEAD + "\n".join(functions), "sm_90a")


NUMBERS = [0.0, 0.5, 1.0, 3.0, 255.5, 2.0**21 - 0.5, 2.0**31, 2.0**32 - 256, 2.0**32, 1e30, -0.25, -3.5, 2.0**-20]
FLOATING = [
    ("add.f32 %d, %a, %b;", lambda a, b: a + b),
    ("mul.f32 %d, %a, %b;", lambda a, b: a * b),
    ("add.f32 %d, %a, 0f3F000000;", lambda a, b: a + np.float32(0.5)),
    ("rcp.approx.ftz.f32 %d, %a;", lambda a, b: np.float32(1) / a),
    ("cvt.rzi.u32.f32 %d, %a;", lambda a, b: int(min(max(float(a), 0), 2**32 - 1))),
]


def bits(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize(("body", "reference"), FLOATING, ids=lambda x: x if isinstance(x, str) else "")
def test_instructions_on_floating_point_numbers(body: str, reference: Callable[..., Any]) -> None:
    pairs = [(np.float32(a), np.float32(b)) for a, b in itertools.product(NUMBERS, NUMBERS)]
    got = evaluate(body, [(bits(a), bits(b)) for a, b in pairs], [32, 32], 32)
    with np.errstate(all="ignore"):
        wanted = [reference(a, b) for a, b in pairs]
    assert got == [w if isinstance(w, int) else bits(w) for w in wanted]


def test_whole_numbers_become_the_nearest_floating_point_number() -> None:
    values = [*edges(32), 2**24 + 1, 2**24 + 3, 2**25 + 2]
    got = evaluate("cvt.rn.f32.u32 %d, %a;", [(v,) for v in values], [32], 32)
    assert got == [bits(v) for v in values]


@pytest.mark.parametrize(
    "body",
    [
        "add.f32 %d, %a, 1;",
        "add.u32 %d, %a, 0f3F000000;",
        "rcp.f32 %d, %a;",
        "cvt.f32.u32 %d, %a;",
        "add.f32 %d, %a, %w;",
    ],
)
def test_what_is_no_instruction_on_floating_point_numbers_is_refused(body: str) -> None:
    with pytest.raises(PtxError):
        module(function("f", f".reg .b64 %w;\n{body}", [32], 32))


def test_the_assembler_knows_the_forms_on_floating_point_numbers() -> None:
    nvjitlink = pytest.importorskip("backends.toolchain.nvjitlink")
    bodies = [body for body, _ in FLOATING] + ["cvt.rn.f32.u32 %d, %a;"]
    functions = [function(f"f{number}", body, [32, 32], 32) for number, body in enumerate(bodies)]
    nvjitlink.assemble(HEAD + "\n".join(functions), "sm_90a")
