"""The reference evaluator: exactly the machine's types, wrap-around included."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.expr import INT_TYPES, PRED, S32, S64, U32, U64, Dtype, Expr, Graph

EDGES = {
    U32: [0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1],
    S32: [-(2**31), -(2**31) + 1, -7, -1, 0, 1, 7, 2**31 - 1],
    U64: [0, 1, 7, 2**32 - 1, 2**32, 2**63, 2**64 - 2, 2**64 - 1],
    S64: [-(2**63), -(2**63) + 1, -(2**32), -1, 0, 1, 2**32, 2**63 - 1],
}


def wrapped(value: int, dtype: Dtype) -> int:
    size: int = 1 << dtype.bits
    return (value - dtype.lo) % size + dtype.lo


def at_edges(op: str, dtype: Dtype, result: Dtype | None = None) -> list[tuple[int, int, int]]:
    """(a, b, op of a and b) for all pairs of edges of the type."""
    g = Graph()
    x, y = g.var("a", dtype.lo, dtype.hi, dtype), g.var("b", dtype.lo, dtype.hi, dtype)
    kind = result or dtype
    node = g.node(op, (x, y), None, kind, kind.lo, kind.hi)
    pairs = list(itertools.product(EDGES[dtype], repeat=2))
    inputs = {n: np.array([p[k] for p in pairs], dtype=NUMPY[dtype.name]) for k, n in enumerate("ab")}
    (values,) = evaluate([node], inputs)
    assert values.dtype == NUMPY[kind.name]
    return [(a, b, int(value)) for (a, b), value in zip(pairs, values, strict=True)]


@pytest.mark.parametrize("dtype", INT_TYPES, ids=lambda d: d.name)
def test_sums_and_products_wrap(dtype: Dtype) -> None:
    for a, b, value in at_edges("add", dtype):
        assert value == wrapped(a + b, dtype)
    for a, b, value in at_edges("sub", dtype):
        assert value == wrapped(a - b, dtype)
    for a, b, value in at_edges("mul", dtype):
        assert value == wrapped(a * b, dtype)


@pytest.mark.parametrize("dtype", INT_TYPES, ids=lambda d: d.name)
def test_division_is_floored(dtype: Dtype) -> None:
    for op, meaning in (("div", operator.floordiv), ("mod", operator.mod)):
        for a, b, value in at_edges(op, dtype):
            if b >= 1:
                assert value == meaning(a, b), (op, a, b)


@pytest.mark.parametrize("dtype", INT_TYPES, ids=lambda d: d.name)
def test_comparisons_are_of_the_type(dtype: Dtype) -> None:
    for op, meaning in (("lt", int.__lt__), ("le", int.__le__), ("eq", int.__eq__)):
        for a, b, value in at_edges(op, dtype, PRED):
            assert value == meaning(a, b)
    for a, b, value in at_edges("min", dtype):
        assert value == min(a, b)
    for a, b, value in at_edges("max", dtype):
        assert value == max(a, b)


@pytest.mark.parametrize("dtype", [U32, U64], ids=lambda d: d.name)
def test_upper_halves_of_products(dtype: Dtype) -> None:
    for a, b, value in at_edges("mulhi", dtype):
        assert value == a * b >> dtype.bits


def test_upper_halves_of_products_and_an_addend() -> None:
    g = Graph()
    a, b, c = g.var("a", 0, U32.hi), g.var("b", 0, U32.hi), g.var("c", 0, U64.hi)
    cases = [
        (x, y, z)
        for x, y, z in itertools.product(EDGES[U32], EDGES[U32], [0, 1, 2**32 - 1, 2**32, 2**63])
        if x * y + z <= U64.hi
    ]
    inputs = {n: np.array([case[k] for case in cases], dtype=np.uint64) for k, n in enumerate("abc")}
    (values,) = evaluate([g.madhi(a, b, c)], inputs)
    assert values.tolist() == [x * y + z >> 32 for x, y, z in cases]


@pytest.mark.parametrize("dtype", [U32, U64], ids=lambda d: d.name)
def test_logarithms_and_negatives(dtype: Dtype) -> None:
    g = Graph()
    x = g.var("x", 1, dtype.hi)
    powers = [1 << k for k in range(dtype.bits)]
    inputs = sorted({v for p in powers for v in (p - 1, p, p + 1) if 1 <= v <= dtype.hi} | {dtype.hi})
    logarithms, negatives = evaluate([g.log2(x), g.neg(x)], {"x": np.array(inputs, dtype=NUMPY[dtype.name])})
    assert logarithms.tolist() == [v.bit_length() - 1 for v in inputs]
    assert negatives.tolist() == [dtype.hi + 1 - v for v in inputs]


@pytest.mark.parametrize("dtype", INT_TYPES, ids=lambda d: d.name)
def test_shifts_by_what_is_known_later(dtype: Dtype) -> None:
    g = Graph()
    x, count = g.var("x", dtype.lo, dtype.hi, dtype), g.var("count", 0, dtype.bits - 1)
    pairs = list(itertools.product(EDGES[dtype], [0, 1, 7, dtype.bits - 1]))
    inputs = {"x": np.array([p[0] for p in pairs], dtype=NUMPY[dtype.name]), "count": np.array([p[1] for p in pairs])}
    node = g.shr(x, count)
    (values,) = evaluate([node], inputs)
    assert values.tolist() == [v >> c for v, c in pairs]
    assert (node.lo, node.hi) == (dtype.lo, dtype.hi)


@pytest.mark.parametrize("dtype", INT_TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("count", [1, 5, 31])
def test_shifts_are_floor_divisions(dtype: Dtype, count: int) -> None:
    g = Graph()
    x = g.var("x", dtype.lo, dtype.hi, dtype)
    (values,) = evaluate([g.shr(x, count)], {"x": np.array(EDGES[dtype], dtype=NUMPY[dtype.name])})
    assert values.tolist() == [v >> count for v in EDGES[dtype]]


def test_truths() -> None:
    g = Graph()
    a, b = (g.eq(g.var(n, 0, 1), 1) for n in "ab")
    inputs = {"a": np.array([0, 0, 1, 1]), "b": np.array([0, 1, 0, 1])}
    got = evaluate(
        [g.logical_and(a, b), g.logical_or(a, b), g.logical_not(a), g.select(a, b, g.logical_not(b))], inputs
    )
    assert [v.tolist() for v in got] == [
        [False, False, False, True],
        [False, True, True, True],
        [True, True, False, False],
        [True, False, False, True],
    ]


def test_inputs_are_broadcast() -> None:
    g = Graph()
    x, y = g.var("x", 0, 9), g.var("y", 0, 9)
    (values,) = evaluate([x * 10 + y], {"x": np.arange(3)[:, None], "y": np.arange(2)[None, :]})
    assert values.tolist() == [[0, 1], [10, 11], [20, 21]]
    assert evaluate([g.const(5)], {})[0].tolist() == [5]


def test_an_arm_that_is_not_taken_may_divide_by_zero() -> None:
    g = Graph()
    d = g.var("d", 0, 9)
    divided = g.node("div", (g.const(7), d), None, U32, 0, 7)
    safe: Expr = g.select(g.lt(d, 1), 0, divided)
    assert evaluate([safe], {"d": np.array([0, 2])})[0].tolist() == [0, 3]


def test_a_missing_input_is_named() -> None:
    with pytest.raises(KeyError, match="x"):
        evaluate([Graph().var("x", 0, 9)], {})
