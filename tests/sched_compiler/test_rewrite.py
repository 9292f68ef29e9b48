"""Rewriting: each rule acts where it should, and against brute force is exact wherever it acts."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from sched_compiler import rewrite
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import PRED, S64, U32, U64, Expr, Graph, RangeError, Rule, fit
from sched_compiler.rewrite import APPLICABLE, SIMPLIFY
from tests.support.random_expressions import MEANINGS, Source

RULES = [(op, rule) for op, rules in SIMPLIFY.items() for rule in rules]

Operands = Callable[[Graph, Expr, Expr, Expr], tuple[Expr, ...]]


def raw(g: Graph, op: str, args: tuple[Expr, ...]) -> Expr:
    """The operation as a node, past all rules, on a type that holds whatever it gives."""
    if op in ("and", "or", "xor", "not") or (op == "select" and args[1].dtype is PRED):
        return g.node(op, args, None, PRED, 0, 1)
    if op == "select":
        dtype = fit(min(a.lo for a in args[1:]), max(a.hi for a in args[1:]))
        return g.node(op, (args[0], *(g.cast(a, dtype) for a in args[1:])), None, dtype, dtype.lo, dtype.hi)
    wide = tuple(g.cast(a, S64) for a in args)
    if op in ("lt", "le", "eq"):
        return g.node(op, wide, None, PRED, 0, 1)
    return g.node(op, wide, None, S64, S64.lo, S64.hi)


def assert_equal(a: Expr, b: Expr, ranges: dict[str, range]) -> None:
    """For every combination of input values."""
    grid = np.array(list(itertools.product(*ranges.values())), dtype=np.int64)
    inputs = {name: grid[:, k] for k, name in enumerate(ranges)}
    left, right = (np.broadcast_to(v, (len(grid),)).astype(np.int64) for v in evaluate([a, b], inputs))
    np.testing.assert_array_equal(left, right, err_msg=f"{a!r} and {b!r}")
    assert b.lo <= right.min(), repr(b)
    assert right.max() <= b.hi, repr(b)


#: For each rule, operands on which it must act. x and y run from 0, d from 1; all are small.
ACTS: dict[str, list[Operands]] = {
    "div: x % d // d -> 0, and the same by a multiple of d": [
        lambda g, x, y, d: (x % d, d),
        lambda g, x, y, d: (x % d, d * (y + 1)),
    ],
    "mod: x % d % d -> x % d, and the same by a multiple of d": [
        lambda g, x, y, d: (x % d, d),
        lambda g, x, y, d: (x % d, d * 3),
    ],
    "add: 3 + x -> x + 3": [lambda g, x, y, d: (g.const(3), x)],
    "mul: 3 + x -> x + 3": [lambda g, x, y, d: (g.const(3), x)],
    "add: x + 0 -> x": [lambda g, x, y, d: (x, g.const(0))],
    "add: (x + 3) + 4 -> x + 7": [lambda g, x, y, d: (x + 3, g.const(4)), lambda g, x, y, d: (x + -9, g.const(2))],
    "add: (4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals": [
        lambda g, x, y, d: (g.select(g.lt(x, 3), 4, 7), g.const(5)),
        lambda g, x, y, d: (g.const(5), g.select(g.lt(x, 3), -4, 7)),
        lambda g, x, y, d: (g.select(g.lt(x, 3), 4, 7), g.select(g.lt(y, 2), 1, 0)),
    ],
    "div: (q * 4 + r) // 12 -> q // 3 for r below 4": [
        lambda g, x, y, d: (x * 4 + y % 4, g.const(12)),
        lambda g, x, y, d: (x * 3 + y % 2, g.const(6)),
    ],
    "mod: (q * 4 + r) % 12 -> q % 3 * 4 + r for r below 4": [
        lambda g, x, y, d: (x * 4 + y % 4, g.const(12)),
        lambda g, x, y, d: (x * 3 + y % 2, g.const(6)),
    ],
    "sub: x - 0 -> x": [lambda g, x, y, d: (x, g.const(0))],
    "sub: x - x -> 0": [lambda g, x, y, d: (x, x), lambda g, x, y, d: (g.cast(x, S64), x)],
    "sub: (x + 7) - 4 -> x + 3": [
        lambda g, x, y, d: (x + 7, g.const(4)),
        lambda g, x, y, d: (x + 4, g.const(7)),
        lambda g, x, y, d: (x + 4, g.const(4)),
    ],
    "sub: x - x // d * d -> x % d": [
        lambda g, x, y, d: (x, x // 3 * 3),
        lambda g, x, y, d: (x, x // d * d),
        lambda g, x, y, d: (x - 5, (x - 5) // 3 * 3),
    ],
    "sub: (4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals": [
        lambda g, x, y, d: (g.select(g.lt(x, 3), 4, 7), g.const(5)),
        lambda g, x, y, d: (g.const(5), g.select(g.lt(x, 3), 4, 7)),
    ],
    "mul: x * 1 -> x": [lambda g, x, y, d: (x, g.const(1))],
    "mul: x * 3 * 4 -> x * 12": [lambda g, x, y, d: (x * 3, g.const(4)), lambda g, x, y, d: ((x - 4) * 3, g.const(4))],
    "mul: (4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals": [
        lambda g, x, y, d: (g.select(g.lt(x, 3), 4, 7), g.const(5)),
        lambda g, x, y, d: (g.select(g.lt(x, 3), 4, -7), g.select(g.lt(y, 2), g.select(g.lt(x, 1), 3, 5), 2)),
    ],
    "div: x // 1 -> x": [lambda g, x, y, d: (x, g.const(1))],
    "div: x * 12 // 4 -> x * 3, and x * d // d -> x": [
        lambda g, x, y, d: (x * 12, g.const(4)),
        lambda g, x, y, d: (x * d, d),
        lambda g, x, y, d: (d * x, d),
        lambda g, x, y, d: ((x - 4) * 12, g.const(4)),
    ],
    "div: (q * d + r) // d -> q + r // d": [
        lambda g, x, y, d: (x * 4 + y, g.const(4)),
        lambda g, x, y, d: (x * d + y, d),
        lambda g, x, y, d: ((x - 3) * 4 + (y - 5), g.const(4)),
    ],
    "div: x // 3 // 4 -> x // 12": [
        lambda g, x, y, d: (x // 3, g.const(4)),
        lambda g, x, y, d: ((x - 9) // 3, g.const(4)),
    ],
    "div: (4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals": [
        lambda g, x, y, d: (g.select(g.lt(x, 3), 40, 7), g.const(5)),
        lambda g, x, y, d: (g.const(50), g.select(g.lt(x, 3), 4, 7)),
    ],
    "mod: (q * d + r) % d -> r % d, and q * d % d -> 0": [
        lambda g, x, y, d: (x * 4 + y, g.const(4)),
        lambda g, x, y, d: (x * d, d),
        lambda g, x, y, d: (x * d + y, d),
        lambda g, x, y, d: ((x - 3) * 4 + (y - 5), g.const(4)),
    ],
    "mod: x % 12 % 4 -> x % 4": [
        lambda g, x, y, d: (x % 12, g.const(4)),
        lambda g, x, y, d: ((x - 9) % 12, g.const(4)),
    ],
    "mod: (4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals": [
        lambda g, x, y, d: (g.select(g.lt(x, 3), 40, 7), g.const(5)),
    ],
    "min: min(x, y) -> x where x never exceeds y": [
        lambda g, x, y, d: (x, x),
        lambda g, x, y, d: (x, y + 30),
        lambda g, x, y, d: (x + 30, y),
    ],
    "max: max(x, y) -> y where x never exceeds y": [
        lambda g, x, y, d: (x, x),
        lambda g, x, y, d: (x, y + 30),
        lambda g, x, y, d: (x + 30, y),
    ],
    "lt: x < x -> false, x <= x -> true, x == x -> true": [lambda g, x, y, d: (x, g.cast(x, U64))],
    "le: x < x -> false, x <= x -> true, x == x -> true": [lambda g, x, y, d: (x, x)],
    "eq: x < x -> false, x <= x -> true, x == x -> true": [lambda g, x, y, d: (x, x)],
    "and: x and true -> x, x and false -> false, x or true -> true, x or false -> x, x and x -> x": [
        lambda g, x, y, d: (g.lt(x, y), g.true()),
        lambda g, x, y, d: (g.false(), g.lt(x, y)),
        lambda g, x, y, d: (g.lt(x, y), g.lt(x, y)),
    ],
    "or: x and true -> x, x and false -> false, x or true -> true, x or false -> x, x and x -> x": [
        lambda g, x, y, d: (g.lt(x, y), g.true()),
        lambda g, x, y, d: (g.false(), g.lt(x, y)),
        lambda g, x, y, d: (g.lt(x, y), g.lt(x, y)),
    ],
    "xor: x xor false -> x, x xor true -> not x, x xor x -> false": [
        lambda g, x, y, d: (g.lt(x, y), g.true()),
        lambda g, x, y, d: (g.false(), g.lt(x, y)),
        lambda g, x, y, d: (g.lt(x, y), g.lt(x, y)),
    ],
    "not: not not x -> x, and not of a constant": [
        lambda g, x, y, d: (g.logical_not(g.lt(x, y)),),
        lambda g, x, y, d: (g.true(),),
        lambda g, x, y, d: (g.false(),),
    ],
    "select: (a if not c else b) -> (b if c else a)": [lambda g, x, y, d: (g.logical_not(g.lt(x, y)), x, y)],
    "select: ((a if c else x) if c else b) -> (a if c else b), and the same on the other side": [
        lambda g, x, y, d: (g.lt(x, y), g.select(g.lt(x, y), x, d), y),
        lambda g, x, y, d: (g.lt(x, y), x, g.select(g.lt(x, y), d, y)),
    ],
    "select: (true if c else false) -> c, (false if c else true) -> not c": [
        lambda g, x, y, d: (g.lt(x, y), g.true(), g.false()),
        lambda g, x, y, d: (g.lt(x, y), g.false(), g.true()),
    ],
}


def rule_labels() -> dict[str, Rule]:
    """Rules by operation and docstring; those made for an operation have their maker's."""
    found: dict[str, Rule] = {}
    for op, rule in RULES:
        text = rule.__doc__ or getattr(rewrite, rule.__qualname__.split(".")[0]).__doc__
        found[f"{op}: {text.splitlines()[0]}"] = rule
    return found


def test_every_rule_has_its_cases() -> None:
    assert set(ACTS) == set(rule_labels())
    assert len(rule_labels()) == len(RULES)


@pytest.mark.parametrize("name", list(ACTS))
def test_rule_acts_and_is_exact(name: str) -> None:
    rule, op = rule_labels()[name], name.partition(":")[0]
    for operands in ACTS[name]:
        g = Graph()
        x, y, d = g.var("x", 0, 25), g.var("y", 0, 11), g.var("d", 1, 6)
        args = operands(g, x, y, d)
        result = rule(g, args)
        assert result is not None, args
        assert rule in APPLICABLE[op, *(a.op for a in args)]  # it says that it acts on such operands
        assert_equal(raw(g, op, args), result, {"x": range(26), "y": range(12), "d": range(1, 7)})


def test_whatever_a_rule_does_to_random_operands_is_exact() -> None:
    chance = random.Random(7)
    acted: Counter[str] = Counter()
    labels = {id(rule): name for name, rule in rule_labels().items()}
    for _ in range(4000):
        source = Source(chance)
        g = source.g
        for name in "xyz":  # small ranges, so that all values are tried
            low = chance.choice([0, 0, 1, -4])
            source.inputs[name] = g.var(name, low, low + chance.choice([1, 4, 6]))
        op, rule = chance.choice(RULES)
        try:
            if op in ("and", "or", "xor", "not"):
                args = tuple(source.truth(2)[0] for _ in range(1 if op == "not" else 2))
            elif op == "select":
                args = (source.truth(1)[0], source.number(2)[0], source.number(2)[0])
            else:
                args = (source.number(2)[0], source.number(2)[0])
                if op in ("div", "mod"):
                    args = (args[0], g.max(args[1], 1))
            if op in MEANINGS and max(abs(v) for a in args for v in (a.lo, a.hi)) > 2**30:
                continue
            result = rule(g, args)
        except RangeError:
            continue
        if result is not None:
            acted[labels[id(rule)]] += 1
            assert rule in APPLICABLE[op, *(a.op for a in args)]
            ranges = {name: range(e.lo, e.hi + 1) for name, e in source.inputs.items()}
            assert_equal(raw(g, op, args), result, ranges)
    assert sum(acted.values()) > 300, acted


class TestWrapping:
    """A sum or product that may wrap is not taken apart."""

    def test_sums(self) -> None:
        g = Graph()
        x = g.var("x", 0, U32.hi)
        wraps = g.add(x, 3, within=(0, U32.hi))
        assert (wraps + 4).args[0] is not x
        assert g.sub(wraps, 3, within=(0, U32.hi)) is not x

    def test_products(self) -> None:
        g = Graph()
        x = g.var("x", 0, U32.hi)
        wraps = g.mul(x, 6, within=(0, U32.hi))
        assert (wraps // 3).op == "div"
        assert (wraps % 3).op == "mod"
