"""Digits that are carried are those of the decoded index, for every index, step and radix; and they are kept only where
that is cheaper."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from sched_compiler import SpecError, check
from sched_compiler.carry import Digits, Product, plan, product
from sched_compiler.cost import instructions
from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.expr import U32, U64, Expr, Graph
from sched_compiler.lower import lower
from sched_compiler.program import Program, Walk, place
from tests.support.engines import Case, assert_engines_agree
from tests.support.random_specs import RandomChoices, random_spec

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


def digits(coords: list[Expr], index: Expr, start: Expr, step: Expr) -> Digits | None:
    planned = plan(coords, index)
    return None if planned is None else planned.digits(start, step)


#: Extents of three loops that make an index of 64 bits.
WIDE = "params: {M: {min: 0, max: 100000}, N: {min: 0, max: 100000}, K: {min: 1, max: 100000}}"


def walked(of: Digits, coords: list[Expr], values: dict[str, int], first: int, steps: int, step: int) -> None:
    """The coordinates by carried digits, against the decode of first, first + step, ..."""
    names = [str(v.attr) for v in of.variables if v.op == "var"]
    kinds = [NUMPY[v.dtype.name] for v in of.variables]
    kept = [v.astype(kind) for v, kind in zip(evaluate(of.start, {**values, "first": first}), kinds, strict=True)]
    for n in range(steps):
        state = {"index": first + n * step} | dict(
            zip(names, (v for v, e in zip(kept, of.variables, strict=True) if e.op == "var"), strict=True)
        )
        found = [int(v[0]) for v in evaluate(of.coords, {**values, **state})]
        wanted = [int(v[0]) for v in evaluate(coords, {**values, "index": first + n * step})]
        assert found == wanted, n
        after = evaluate(of.advance, {**values, **state})
        kept = [v.astype(kind) for v, kind in zip(after, kinds, strict=True)]


@pytest.mark.parametrize("run_time", [False, True])
@pytest.mark.parametrize(("a", "b", "c"), list(itertools.product([1, 2, 5, 8], [1, 3, 4], [2, 7])))
def test_digits_of_loops(a: int, b: int, c: int, run_time: bool) -> None:
    """Three loops, every step below and beyond each radix, from every first index."""
    for step in range(1, a * b * c + 2):
        g = Graph()
        lengths = [g.var(n, 1, 9) if run_time else g.const(v) for n, v in zip("abc", (a, b, c), strict=True)]
        _, y, z = lengths
        index, first = g.var("index", 0, 9**3 - 1), g.var("first", 0, 9**3 - 1)
        rest = index % (y * z)
        coords = [index // (y * z), rest // z, rest % z]
        of = digits(coords, index, first, g.const(step))
        if of is None:
            assert not run_time
            assert b * c == 1 or c == 1
            continue
        values = dict(zip("abc", (a, b, c), strict=True)) if run_time else {}
        for start in range(min(step, 4)):
            walked(of, coords, values, start, (a * b * c - start + step - 1) // step, step)


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_digits_of_any_divisions_of_an_index(first: int) -> None:
    """Quotients and remainders one of another, by products of a few factors, with nothing simplified before."""
    for seed in range(first, first + 100):
        chance, g = random.Random(seed), Graph()
        factors = [g.var("n", 1, 3), g.var("k", 1, 4), g.const(2), g.const(1)]
        index, start = g.var("index", 0, 999), g.var("first", 0, 999)

        def divided(x: Expr, g: Graph = g, chance: random.Random = chance, factors: list[Expr] = factors) -> Expr:
            op = chance.choice(["div", "mod"])
            d = g.const(1)
            for factor in chance.choices(factors, k=chance.randint(1, 3)):
                d = d * factor
            lo, hi = (x.lo // d.hi, x.hi // d.lo) if op == "div" else (0, min(x.hi, d.hi - 1))
            return g.node(op, (x, g.cast(d, U32)), None, U32, lo, hi)

        coords = []
        for _ in range(3):
            e = index
            for _ in range(chance.randint(1, 4)):
                e = divided(e)
            coords.append(e)
        step = chance.randint(1, 30)
        of = digits(coords, index, start, g.const(step))
        if of is not None:
            walked(of, coords, {"n": chance.randint(1, 3), "k": chance.randint(1, 4)}, chance.randint(0, 9), 30, step)


#: Splits by the same parameter again, and by one: a part that is never more than one value.
REPEATED: list[tuple[dict[str, Any], list[str]]] = [
    ({"m": "n", "m.outer": 1, "m.outer.outer": 4}, ["m.outer.outer.outer", "m.outer.outer.inner", "m.outer.inner"]),
    ({"m": "n", "m.outer": "n"}, ["m.outer.outer", "m.outer.inner"]),
    ({"m": "n", "m.outer": 1}, ["m.outer.outer", "m.outer.inner"]),
    ({"m": "n", "m.inner": "n"}, ["m.outer", "m.inner.outer"]),
]


@pytest.mark.parametrize("most", [9, 1291, 40_000])
@pytest.mark.parametrize("workers", [5, "grid"])
def test_splits_by_the_same_parameter_in_every_engine(workers: int | str, most: int) -> None:
    count = 4 if workers == "grid" else None
    cases = []
    for k, (split, loops) in enumerate(REPEATED):
        last = "m.inner.inner" if "m.inner" in split else "m.inner"
        spec = {
            "version": 1, "name": f"repeated-{k}", "params": {"n": {"min": 1, "max": most}},
            "space": {"m": 5, "n": "n"}, "order": {"split": split, "loops": [*loops, "n", last]},
            "dispatch": {"static": {"workers": workers}},
        }  # fmt: skip
        cases += [Case(spec, {"n": n}, workers=count) for n in (1, 2, 3, 5, 7)]
    assert_engines_agree(cases)


def test_digits_of_an_index_of_64_bits() -> None:
    g = Graph()
    index, first = g.var("index", 0, 2**63), g.var("first", 0, 2**63)
    n, k = g.var("n", 1, 2**31 - 1), g.var("k", 1, 2**31 - 1)
    coords = [index // (n * k), index % (n * k) // k, index % k]
    step = g.var("step", 1, 2**31 - 1)
    of = digits(coords, index, first, step)
    assert of is not None
    assert [v.dtype for v in of.variables] == [U32, U32, U64]
    for n_, k_, step_ in itertools.product((1, 2, 2**31 - 1), (1, 3, 2**31 - 1), (1, 132, 2**31 - 1)):
        for start in (0, 2**31, 2**62):
            walked(of, coords, {"n": n_, "k": k_, "step": step_}, start, 5, step_)


def test_what_is_no_numeral_stays_a_decode() -> None:
    g = Graph()
    index, d = g.var("index", 0, 999), g.var("d", 1, 9)
    assert digits([index, index + d], index, index, g.const(1)) is None
    assert digits([(index - 5) // 3], index, index, g.const(1)) is None
    of = digits([index // 6, index % 4, index % 6], index, index, g.const(1))  # 4 and 6 are no chain
    assert of is not None
    assert len(of.variables) == 2


def test_a_divisor_that_changes_with_the_index_is_no_radix() -> None:
    g = Graph()
    index, first = g.var("index", 0, 999), g.var("first", 0, 999)
    coords = [index // (index % 3 + 1), index % (index // 40 + 1)]
    of = digits(coords, index, first, g.const(7))
    assert of is not None
    assert [v.hi for v in of.variables] == [2, 333]
    walked(of, coords, {}, 0, 140, 7)


def test_products_are_the_same_however_they_are_written() -> None:
    g = Graph()
    a, b = g.var("a", 1, 9), g.var("b", 1, 9)
    assert product(a * b * 6) == product(b * 2 * (a * 3))
    assert product(a * b * 6).by(product(b * 2)) == Product(3, (a,))
    assert product(a * 6).by(product(a * 4)) is None
    assert product(a * 6).by(product(b)) is None
    assert product(a * a).by(product(a)) == Product(1, (a,))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_specs_with_digits_carried_wherever_it_is_possible(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "carries", property(lambda walk: walk.carry is not None))
    cases = []
    for seed in range(first, first + 100):
        spec, values = random_spec(RandomChoices(seed))
        spec["dispatch"] = {"static": {"workers": 1 + seed % 7}}
        cases.append(Case(spec, values))
    carried = [case for case in cases if case.program.walk.carries]
    assert len(carried) > 40
    assert_engines_agree(carried)


WIDE_ORDERS: dict[str, dict[str, Any]] = {
    "loops": {"loops": ["k", "n", "m"]},
    "bands": {"split": {"m": 8}, "loops": ["m.outer", "k", "n", "m.inner"]},
    "serpentine": {"split": {"m": 4}, "loops": ["m.outer", "n", "k", "m.inner"], "serpentine": {"n": "m.outer"}},
    "reversed": {"loops": ["n", "k", "m"], "reverse": ["k"], "rotate": {"m": 3}},
}


@pytest.mark.parametrize("order", WIDE_ORDERS)
@pytest.mark.parametrize("workers", [5, "grid"])
def test_wide_indices_are_carried_in_every_engine(order: str, workers: int | str) -> None:
    limits = {"min": 0, "max": 100_000}
    spec = {
        "version": 1, "name": f"wide-{order}", "params": dict.fromkeys("MNK", limits),
        "space": {"m": "M", "n": "N", "k": "K"}, "order": WIDE_ORDERS[order],
        "dispatch": {"static": {"workers": workers}},
    }  # fmt: skip
    count = 3 if workers == "grid" else None
    shapes = [(0, 3, 4), (1, 1, 1), (5, 7, 3), (16, 2, 9), (13, 1, 6), (8, 8, 8)]
    cases = [Case(spec, dict(zip("MNK", shape, strict=True)), workers=count) for shape in shapes]
    assert all(case.program.walk.carries for case in cases)
    assert_engines_agree(cases)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_cheaper_way_is_taken(path: Path) -> None:
    program = place(check(path.read_text(), path.name).schedule)
    walk = program.walk
    assert walk.carries == (walk.carry is not None and walk.carry < walk.decode)
    assert (program.tile == program.coords) != walk.carries
    assert len(program.start) == len(program.advance) == len(program.state) + 1
    assert str(walk.decode) in str(walk)


REFUSED_ONCE = {
    "a serpentine in bands as long as they like": (
        "{px: {min: 1, max: 1048576}, pm: {min: 1, max: 2048}, h: {min: 1, max: 65536}}", "{x: px, m: pm}",
        "order: {split: {m: h}, loops: [m.outer, m.inner, x], serpentine: {m.inner: m.outer}}",
    ),
    "nested divisions": (
        "{a: {min: 1, max: 1048576}, b: {min: 1, max: 1048576}, c: {min: 1, max: 1048576}}", "{m: a, n: b, k: c}",
        "map: {m: i // c // b, n: i // c % b, k: i % c}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_ONCE)
def test_what_cannot_be_carried_is_decoded(name: str) -> None:
    params, space, order = REFUSED_ONCE[name]
    text = f"version: 1\nname: x\nparams: {params}\nspace: {space}\n{order}\ndispatch: {{static: {{workers: 132}}}}\n"
    place(check(text).schedule)


@pytest.mark.parametrize("first", [0, 100, 200])
def test_no_schedule_is_refused_for_its_digits(first: int) -> None:
    """Random specs whose parameters may be far larger: what a queue may walk, a static dispatch may walk."""
    for seed in range(first, first + 100):
        spec, _ = random_spec(RandomChoices(seed))
        for k, limits in enumerate(spec.get("params", {}).values()):
            limits["max"] <<= (seed * 7 + k * 5) % 23
        spec["dispatch"] = {"dynamic": {"workers": 7}}
        try:
            check(json.dumps(spec))
        except SpecError:
            continue
        spec["dispatch"] = {"static": {"workers": 7}}
        place(check(json.dumps(spec)).schedule)


def program_of(order: str, dispatch: str, limits: str = WIDE) -> Program:
    text = f"version: 1\nname: x\n{limits}\nspace: {{m: M, n: N, k: K}}\norder: {order}\ndispatch: {dispatch}\n"
    return place(check(text).schedule)


def test_digits_are_kept_where_the_step_is_known() -> None:
    assert program_of("{loops: [m, n, k]}", "{static: {workers: 132}}").walk.carries
    assert program_of("{loops: [m, n, k]}", "{static: {workers: grid}}").walk.carries
    assert program_of("{loops: [m, n, k]}", "{dynamic: {workers: 132}}").walk.carry is None
    narrow = WIDE.replace("100000", "100")
    assert program_of("{loops: [m, n, k]}", "single", narrow).walk.carry is None
    assert not program_of("{loops: [m, n, k]}", "{static: {workers: 132}}", narrow).walk.carries


def test_costs() -> None:
    """As disassembled: a shift, a reciprocal with its shift, product and sum in one, two for a sum of 64 bits."""
    g = Graph()
    x, d, wide = g.var("x", 0, 2**31 - 1), g.var("d", 1, 2**20), g.var("wide", 0, 2**40)

    def cost(*roots: Expr) -> int:
        return instructions(g, lower(g, roots, {"d"}), {"d"})

    assert cost(x // 8) == 1
    assert cost(x // d) == 2
    assert cost(x // d, x % d) == 3
    assert cost(d * 5 + 3) == 0
    assert cost(wide + 1) == 2
    assert cost(wide // d) == 11
    assert cost(wide // g.var("d", 1, 2**30)) > 50
