"""Lowering is exact over whole ranges, and leaves nothing slow behind."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from sched_compiler.driver import check
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import FDIV_LIMIT, RECIP_LIMIT, S32, S64, U32, U64, Expr, Graph, RangeError, topological
from sched_compiler.lower import lower, reciprocal
from sched_compiler.program import place
from tests.support.random_expressions import Source

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
DIVISORS = [*range(1, 40), 63, 64, 65, 100, 127, 128, 641, 1000, 65535, 65536, 65537, 2**31 - 1, 2**31, 2**31 + 1,
            2**32 - 2, 2**32 - 1, 4_294_967_291]  # fmt: skip


def boundaries(d: int, top: int) -> list[int]:
    """Where a wrong reciprocal shows first: both sides of multiples, at the ends of the range and in between."""
    quotients = {*range(5), *range(max(0, top // d - 4), top // d + 2), *(top // d * k // 17 for k in range(17))}
    found = {x for q in quotients for x in (q * d - 1, q * d, q * d + 1)}
    return sorted(x for x in {*found, 0, top - 1, top, top // 2} if 0 <= x <= top)


@pytest.mark.parametrize("top", [1, 7, 255, 65535, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 4_294_967_291, 2**32 - 1])
@pytest.mark.parametrize("bits", [32, 64])
def test_reciprocals_are_exact_at_all_boundaries(top: int, bits: int) -> None:
    for d in DIVISORS:
        found = reciprocal(d, top, bits)
        if found is not None:
            m, shift = found
            assert 0 <= m < 1 << bits
            assert 0 <= shift < bits
            assert all((x * m >> bits) >> shift == x // d for x in boundaries(d, top)), (d, top)


@pytest.mark.parametrize("top", [2**33, 2**40 + 17, 2**62, 2**63 - 1, 2**64 - 1])
def test_reciprocals_of_wide_values_are_exact_at_all_boundaries(top: int) -> None:
    found_some = 0
    for d in [*DIVISORS, 2**40 + 1, 2**63 - 1, 2**63 + 1]:
        found = reciprocal(d, top, 64)
        if found is not None:
            found_some += 1
            m, shift = found
            assert all((x * m >> 64) >> shift == x // d for x in boundaries(d, top)), (d, top)
    assert found_some > len(DIVISORS) // 2


@pytest.mark.parametrize("d", range(3, 60))
def test_reciprocals_are_exact_for_every_value_of_a_short_word(d: int) -> None:
    """The theorem holds for any width, so with 8 bits every value can be tried."""
    for top in range(1, 256):
        found = reciprocal(d, top, 8)
        if found is not None:
            m, shift = found
            assert all((x * m >> 8) >> shift == x // d for x in range(top + 1))


@pytest.mark.parametrize("low", [0, 1, -1, -7, -100])
@pytest.mark.parametrize("high", [0, 5, 200])
def test_division_by_literals_is_exact(low: int, high: int) -> None:
    if low > high:
        return
    g = Graph()
    x = g.var("x", low, high)
    values = np.arange(low, high + 1)
    divisors = [d for d in DIVISORS if d < 300]
    lowered = lower(g, [f(x, d) for d in divisors for f in (g.div, g.mod, g.ceil_div)])
    got = [np.broadcast_to(v, values.shape).tolist() for v in evaluate(lowered, {"x": values})]
    want = [f(values, d).tolist() for d in divisors for f in (np.floor_divide, np.mod, lambda v, d: -(-v // d))]
    assert got == want


@pytest.mark.parametrize("top", [2**31 - 1, 2**31, 2**32 - 1, 2**33, 2**63 - 1, 2**64 - 1])
def test_division_of_large_values_by_literals_is_exact(top: int) -> None:
    """4,294,967,291 // 7 and its kind: wrong where a trick for signed words is used."""
    for d in DIVISORS:
        g = Graph()
        x = g.var("x", 0, top)
        values = boundaries(d, top)
        inputs = {"x": np.array(values, dtype=np.uint64)}
        quotient, remainder = evaluate(lower(g, [x // d, x % d]), inputs)
        assert np.broadcast_to(quotient, (len(values),)).tolist() == [v // d for v in values], (d, top)
        assert np.broadcast_to(remainder, (len(values),)).tolist() == [v % d for v in values], (d, top)


@pytest.mark.parametrize(
    ("low", "high"), [(-(2**31), 2**31 - 1), (-(2**62), 2**62), (-(2**63) + 2**31, 2**63 - 1), (-9, 2**40)]
)
def test_signed_division_by_literals_is_exact(low: int, high: int) -> None:
    for d in (d for d in DIVISORS if d <= 2**31):
        g = Graph()
        x = g.var("x", low, high)
        values = [v for b in boundaries(d, high - low) for v in [low + b] if low <= v <= high]
        values += [v for v in (-d - 1, -d, -d + 1, -1, 0, 1, d - 1, d) if low <= v <= high]
        quotient, remainder = evaluate(lower(g, [x // d, x % d]), {"x": np.array(values)})
        assert quotient.tolist() == [v // d for v in values], d
        assert np.broadcast_to(remainder, (len(values),)).tolist() == [v % d for v in values], d


@pytest.mark.parametrize("fixed", [(), ("d",)])
@pytest.mark.parametrize("low", [0, -40])
def test_division_by_run_time_values_is_exact(low: int, fixed: tuple[str, ...]) -> None:
    g = Graph()
    x, d = g.var("x", low, 90), g.var("d", 1, 17)
    grid = np.array(list(itertools.product(range(low, 91), range(1, 18))))
    lowered = lower(g, [x // d, x % d], fixed)
    quotient, remainder = evaluate(lowered, {"x": grid[:, 0], "d": grid[:, 1]})
    assert quotient.tolist() == (grid[:, 0] // grid[:, 1]).tolist()
    assert remainder.tolist() == (grid[:, 0] % grid[:, 1]).tolist()


def known(e: Expr, fixed: set[str]) -> bool:
    """Whether `e` depends on these inputs alone."""
    return all(node.attr in fixed for node in topological([e]) if node.op == "var")


@pytest.mark.parametrize("top", [9, 2**16 - 2, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 4_294_967_291, 2**32 - 2, 2**32 - 1])
@pytest.mark.parametrize("most", [40, 2**16, RECIP_LIMIT, RECIP_LIMIT + 1, 2**32 - 1])
def test_one_reciprocal_for_a_divisor_that_does_not_change_is_exact(top: int, most: int) -> None:
    """The loop multiplies and shifts; one division is left, of the reciprocal, as cheap as its bits allow."""
    g = Graph()
    x, d = g.var("x", 0, top), g.var("d", 1, most)
    lowered = lower(g, [x // d, x % d], {"d"})
    divisions = [node for node in topological(lowered) if node.op in ("div", "fdiv", "recip")]
    product = (top + 1) * most
    wanted = ("fdiv", U32) if product <= FDIV_LIMIT else ("div", U32) if product <= U32.hi else ("div", U64)
    if product > FDIV_LIMIT and most <= RECIP_LIMIT:
        wanted = ("recip", U32)
    assert [(node.op, node.dtype) for node in divisions] == [wanted]
    changing = [node for node in topological(lowered) if node.args and not known(node, {"d"})]
    assert {node.op for node in changing} <= {"madhi", "shr", "mul", "add", "cast"}
    assert [node.op for node in changing].count("madhi") == 1
    assert all(node.dtype is U32 for node in changing)
    chance = random.Random(top)
    for divisor in [n for n in [*DIVISORS, *(chance.randint(1, most) for _ in range(40))] if n <= most]:
        values = [*boundaries(divisor, top), *(chance.randint(0, top) for _ in range(40))]
        quotient, remainder = evaluate(lowered, {"x": np.array(values), "d": divisor})
        assert quotient.tolist() == [v // divisor for v in values], divisor
        assert remainder.tolist() == [v % divisor for v in values], divisor


@pytest.mark.parametrize(("top", "most"), [(2**40, 2**23), (2**32, 2**31), (2**62, 3), (2**33, 2**32 - 1)])
def test_a_reciprocal_of_64_bits_where_it_is_exact(top: int, most: int) -> None:
    g = Graph()
    x, d = g.var("x", 0, top), g.var("d", 1, most)
    lowered = lower(g, [x // d, x % d], {"d"})
    exact = (top + 1) * most < 2**64
    assert any(node.op == "div" and not known(node, {"d"}) for node in topological(lowered)) != exact
    chance = random.Random(top)
    for divisor in [n for n in [*DIVISORS, most, *(chance.randint(1, most) for _ in range(40))] if n <= most]:
        values = [*boundaries(divisor, top), *(chance.randint(0, top) for _ in range(40))]
        quotient, remainder = evaluate(lowered, {"x": np.array(values, dtype=np.uint64), "d": divisor})
        assert quotient.tolist() == [v // divisor for v in values], divisor
        assert remainder.tolist() == [v % divisor for v in values], divisor


@pytest.mark.parametrize("low", [0, -40])
@pytest.mark.parametrize("fixed", [(), ("a", "b")])
def test_remainders_of_products_are_taken_apart_factor_by_factor(low: int, fixed: tuple[str, ...]) -> None:
    """Of loops of a and b iterations, the divisions are by a and by b, whatever is asked of the index."""
    g = Graph()
    x, a, b = g.var("x", low, 90), g.var("a", 1, 4), g.var("b", 1, 5)
    inner = x % (a * b)
    asked = [inner // a, inner % a, x // (a * b), inner, inner // b, inner % (b * 8 * a), x % (a * 8) // 4]
    grid = np.array(list(itertools.product(range(low, 91), range(1, 5), range(1, 6))))
    values = dict(zip("xab", grid.T, strict=True))
    got = evaluate(lower(g, asked, fixed), values)
    x_, a_, b_ = grid.T
    rest = x_ % (a_ * b_)
    expected = [rest // a_, rest % a_, x_ // (a_ * b_), rest, rest // b_, rest % (b_ * 8 * a_), x_ % (a_ * 8) // 4]
    for n, (found, wanted) in enumerate(zip(got, expected, strict=True)):
        assert np.broadcast_to(found, len(grid)).tolist() == wanted.tolist(), n
    if fixed and low == 0:
        decode = lower(g, [x // (a * b), inner // a, inner % a], fixed)
        assert Counter(node.op for node in topological(decode))["madhi"] == 2


def test_a_reciprocal_is_not_made_for_a_dividend_that_does_not_change_either() -> None:
    g = Graph()
    x, d = g.var("x", 0, 999), g.var("d", 1, 99)
    assert [node.op for node in topological(lower(g, [x // d], {"x", "d"}))] == ["var", "var", "fdiv"]


@pytest.mark.parametrize(("top", "op"), [(FDIV_LIMIT - 1, "fdiv"), (FDIV_LIMIT, "div")])
def test_small_dividends_are_divided_by_floating_point(top: int, op: str) -> None:
    g = Graph()
    x, d = g.var("x", 0, top), g.var("d", 1, U32.hi)
    quotient, remainder = lower(g, [x // d, x % d])
    assert quotient.op == op
    assert {node.op for node in topological([remainder]) if node.args} == {op, "mul", "sub"}


def test_floating_point_loses_less_than_the_distance_to_a_whole_number() -> None:
    """(x + 1/2) * (1/d), for every d, where it is nearest to a whole number; the reciprocal one unit off either way."""
    most = FDIV_LIMIT - 1
    d = np.arange(1, FDIV_LIMIT + 2)
    dividends = [np.clip(q * d + n, 0, most) for q in (1, most // d, most // d // 2) for n in (-1, 0)]
    pairs = [(x, d) for x in dividends] + [(np.arange(FDIV_LIMIT), np.full(FDIV_LIMIT, n)) for n in range(1, 20)]
    for x, divisor in pairs:
        exact = np.float32(1) / divisor.astype(np.float32)
        for inverse in (exact, np.nextafter(exact, np.float32(0)), np.nextafter(exact, np.float32(2))):
            product = (x.astype(np.float32) + np.float32(0.5)) * inverse
            assert product.dtype == np.float32
            assert np.array_equal(np.trunc(product).astype(np.int64), x // divisor)


def recip_by_machine(d: npt.NDArray[np.uint32], k: npt.NDArray[np.uint32], units: int) -> npt.NDArray[np.uint32]:
    """What the backends do for `recip`, the floating-point reciprocal so many units in the last place off."""
    bits = (np.float32(1) / d.astype(np.float32)).view(np.uint32) + np.uint32(units % 2**32)
    low = (bits + np.uint32((32 << 23) - 4) + (k << np.uint32(23))).view(np.float32).astype(np.uint64)
    assert low.max() < 2**32
    left = 2**32 - 1 - low * d % 2**32
    more = (left * low >> np.uint64(32)) >> k
    rest = left - more * d
    assert rest.max() < 2**32
    return (low + more + (rest >= d)).astype(np.uint32)


@pytest.mark.parametrize("units", [-1, 0, 1])
def test_a_reciprocal_that_begins_as_floating_point_is_exact(units: int) -> None:
    """For every divisor, and every shift with which it is asked for."""
    d = np.arange(1, RECIP_LIMIT + 1, dtype=np.uint32)
    log = np.frexp(d.astype(np.float64))[1].astype(np.uint32) - np.uint32(1)
    below = np.where(d > 1, np.frexp(np.maximum(d - 1, 1).astype(np.float64))[1] - 1, 0).astype(np.uint32)
    g = Graph()
    divisor, more = g.var("d", 1, RECIP_LIMIT), g.var("k", 0, 20)
    for k in (np.zeros_like(d), log, below):
        (exact,) = evaluate([g.recip(divisor, more)], {"d": d, "k": k})
        assert np.array_equal(recip_by_machine(d, k, units), exact)


@pytest.mark.parametrize("low", [0, -40])
def test_division_by_a_choice_of_literals_keeps_them_literals(low: int) -> None:
    g = Graph()
    x, y = g.var("x", low, 90), g.var("y", 0, 3)
    d = g.select(g.lt(y, 1), 3, g.select(g.lt(y, 2), 8, 7))
    grid = np.array(list(itertools.product(range(low, 91), range(4))))
    lowered = lower(g, [x // d, x % d])
    assert not any(node.op in ("div", "mod") for node in topological(lowered))
    divisors = np.array([3, 8, 7, 7])[grid[:, 1]]
    quotient, remainder = evaluate(lowered, {"x": grid[:, 0], "y": grid[:, 1]})
    assert quotient.tolist() == (grid[:, 0] // divisors).tolist()
    assert remainder.tolist() == (grid[:, 0] % divisors).tolist()


def assert_cheap(roots: list[Expr]) -> None:
    """No remainder, no signed division, no division by a literal that has a reciprocal."""
    for node in topological(roots):
        assert node.op != "mod", repr(node)
        if node.op == "div":
            x, d = node.args
            assert node.dtype in (U32, U64), repr(node)
            assert d.value is None or reciprocal(d.value, x.hi, node.dtype.bits) is None, repr(node)
        if node.op == "mulhi":
            assert node.dtype in (U32, U64)
        if node.op == "shr" and node.args[0].dtype in (S32, S64):
            assert node.args[1].value is not None


def test_random_expressions_become_cheap() -> None:
    chance = random.Random(3)
    for _ in range(1000):
        source = Source(chance)
        try:
            e, _ = source.number(4)
        except RangeError:
            continue
        assert_cheap(lower(source.g, [e]))


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_specs_become_cheap(path: Path) -> None:
    program = place(check(path.read_text(), path.name).schedule)
    inverse = [program.inverse] if program.inverse is not None else []
    assert_cheap([*program.start, program.valid, *program.advance, program.items, *program.coords, *inverse])
    fixed = check(path.read_text()).schedule.static
    if fixed:  # every divisor is one of a few constants
        assert not any(node.op == "div" for node in topological(program.coords))


def test_lowering_shares_the_quotient_with_its_remainder() -> None:
    g = Graph()
    x = g.var("x", 0, 10**6)
    count = Counter(node.op for node in topological(lower(g, [x // 30, x % 30])))
    assert count["mulhi"] == 1


def test_lowering_keeps_types() -> None:
    g = Graph()
    x = g.var("x", 0, 2**40)
    roots = [x // 3, x % 8, g.cast(x % 7, S32), g.lt(x // 5, 9)]
    assert [e.dtype for e in lower(g, roots)] == [e.dtype for e in roots]


@pytest.mark.parametrize("power", [30, 31, 32, 33, 40, 62])
@pytest.mark.parametrize("low", [-70, -(2**31)])
def test_no_shift_is_past_the_width_of_its_type(low: int, power: int) -> None:
    """Floor division of a 32-bit value that may be negative by powers of two as wide as its type, and wider."""
    g = Graph()
    x = g.var("x", low, 2**31 - 1)
    lowered = lower(g, [x // 2**power, x % 2**power])
    for node in topological(lowered):
        assert node.op != "shr" or node.args[1].lo < node.dtype.bits
    values = [low, low + 1, -3, -1, 0, 1, 5, 2**30, 2**31 - 1]
    quotient, remainder = evaluate(lowered, {"x": np.array(values)})
    assert quotient.tolist() == [v // 2**power for v in values]
    assert remainder.tolist() == [v % 2**power for v in values]


FIELDS: dict[str, tuple[Callable[[Graph, Expr], Expr], Callable[[int], int], dict[str, int]]] = {
    "above other bits": (lambda g, i: i // 256 * 8 + i % 8, lambda i: i // 256 * 8 + i % 8, {"shr": 1, "merge": 1}),
    "a part of them": (
        lambda g, i: i // 64 % 4 * 8 + i % 8, lambda i: i // 64 % 4 * 8 + i % 8, {"shr": 1, "band": 2, "bor": 1},
    ),
    "fewer below": (
        lambda g, i: i // 64 * 16 + i % 8, lambda i: i // 64 * 16 + i % 8, {"shr": 1, "band": 2, "bor": 1},
    ),
    "downwards": (lambda g, i: g.const(31) - i // 8 % 32, lambda i: 31 - i // 8 % 32, {"shr": 1, "band": 1, "bxor": 1}),
    "at times": (
        lambda g, i: g.select(g.lt(i, 500), i // 16 % 8, g.const(7) - i // 16 % 8) * 8 + i % 8,
        lambda i: (i // 16 % 8 if i < 500 else 7 - i // 16 % 8) * 8 + i % 8,
        {"lt": 1, "shr": 1, "band": 2, "bxor": 1, "select": 1, "bor": 1},
    ),
    "after a multiple": (
        lambda g, i: g.select(g.lt(i, 768), 0, g.sub(i, 768, within=(0, 255)) // 8),
        lambda i: 0 if i < 768 else (i - 768) // 8,
        {"lt": 1, "shr": 1, "band": 1, "select": 1},
    ),
    "of either": (
        lambda g, i: g.select(g.lt(i, 500), i // 8 % 16, i // 16 % 16),
        lambda i: i // 8 % 16 if i < 500 else i // 16 % 16,
        {"lt": 1, "shr": 2, "select": 1, "band": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("wide", [False, True])
def test_fields_of_bits_are_put_together_exactly(name: str, wide: bool) -> None:
    build, meaning, expected = FIELDS[name]
    g = Graph()
    i = g.var("i", 0, 2**40 if wide else 1023)
    values = [v for v in [*range(1024), *(2**k + d for k in range(10, 41) for d in (-1, 0, 7))] if v <= i.hi]
    if name == "after a multiple":
        values = [v for v in values if v < 1024]
    lowered = lower(g, [build(g, i)])
    (got,) = evaluate(lowered, {"i": np.array(values, dtype=np.uint64)})
    assert np.broadcast_to(got, (len(values),)).tolist() == [meaning(v) for v in values]
    if not wide:
        counted = Counter(node.op for node in topological(lowered))
        assert {op: n for op, n in counted.items() if op not in ("const", "var", "cast")} == expected


def test_a_quotient_that_others_wait_for_is_added_last() -> None:
    """a + x % d, of 32 and of 64 bits, wrap-around included."""
    for top, most, large in ((2**20, 2**10, 2**24), (2**32 - 1, 2**20, 2**24), (2**40, 2**22, 2**31)):
        g = Graph()
        x, d, a = g.var("x", 0, top), g.var("d", 1, most), g.var("a", 0, large)
        (total,) = lower(g, [a * 8 + x % d], {"d"})
        product, first = total.args
        assert (total.op, product.op, first.op) == ("add", "mul", "add")
        chance = random.Random(top)
        rows = [(chance.randint(0, top), chance.randint(1, most), chance.randint(0, large)) for _ in range(200)]
        rows += [(top, n, m) for n in (1, 2, most) for m in (0, 1, large)]
        inputs = {n: np.array([row[k] for row in rows], dtype=np.uint64) for k, n in enumerate("xda")}
        (found,) = evaluate([total], inputs)
        assert found.tolist() == [m * 8 + v % n for v, n, m in rows]
