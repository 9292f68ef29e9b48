"""Expressions: types and intervals hold every value, equal computations are one node, misuse is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sched_compiler.evaluate import evaluate
from sched_compiler.expr import (
    INT_TYPES,
    PRED,
    S32,
    S64,
    U32,
    U64,
    DivisorError,
    Dtype,
    Expr,
    Graph,
    RangeError,
    fit,
    to_text,
    topological,
)
from sched_compiler.lower import lower
from tests.support.random_expressions import Source

EXPRESSIONS = 3000
POINTS = 40


@pytest.mark.parametrize("seed", range(6))
def test_every_value_lies_in_its_interval_and_is_what_integers_give(seed: int) -> None:
    """Also after lowering. Wrap-around never shows, since types follow from intervals."""
    chance = random.Random(seed)
    built = 0
    for _ in range(EXPRESSIONS // 6):
        source = Source(chance)
        try:
            e, meaning = source.truth(3) if chance.random() < 0.2 else source.number(4)
        except RangeError:
            continue
        (low,) = lower(source.g, [e])
        points = [source.values() for _ in range(POINTS)]
        want = [meaning(point) for point in points]
        inputs = {name: np.array([p[name] for p in points], dtype=object) for name in "xyz"}
        for form in (e, low):
            got = np.broadcast_to(evaluate([form], inputs)[0], (POINTS,)).tolist()
            assert list(map(int, got)) == want, (to_text(e), points)
            assert form.lo <= min(want), to_text(e)
            assert max(want) <= form.hi, to_text(e)
            assert form.dtype.lo <= form.lo <= form.hi <= form.dtype.hi
        built += 1
    assert built > EXPRESSIONS // 12


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_small_inputs_are_never_too_narrow_at_any_node(seed: int) -> None:
    """Every combination of small inputs, every node. Nodes in an arm that is not taken are exempt by definition."""
    chance = random.Random(100 + seed)
    for _ in range(150):
        g = Graph()
        x, y = g.var("x", chance.randint(-3, 2), 4), g.var("y", 1, chance.randint(2, 5))
        a, b, c = chance.sample([x + y, x - y, x * y, x // y, x % y, g.min(x, y), g.max(x, y), g.ceil_div(x, y)], 3)
        e = a * b + c - chance.randint(-2, 2)
        grid = np.array([(p, q) for p in range(x.lo, x.hi + 1) for q in range(y.lo, y.hi + 1)])
        order = topological([e])
        for node, values in zip(order, evaluate(order, {"x": grid[:, 0], "y": grid[:, 1]}), strict=True):
            assert node.lo <= values.min(), to_text(node)
            assert values.max() <= node.hi, to_text(node)


@pytest.mark.parametrize(
    ("lo", "hi", "dtype"),
    [
        (0, 0, U32), (0, 2**32 - 1, U32), (0, 2**32, U64), (5, 2**64 - 1, U64),
        (-1, 0, S32), (-1, 2**31 - 1, S32), (-(2**31), 0, S32), (-1, 2**31, S64), (-(2**31) - 1, 0, S64),
        (-(2**63), 2**63 - 1, S64),
    ],
)  # fmt: skip
def test_fit_is_the_cheapest_type_at_its_boundaries(lo: int, hi: int, dtype: Dtype) -> None:
    assert fit(lo, hi) is dtype


@pytest.mark.parametrize(("lo", "hi"), [(0, 2**64), (-1, 2**63), (-(2**63) - 1, 0)])
def test_what_fits_no_type_is_refused(lo: int, hi: int) -> None:
    with pytest.raises(RangeError):
        fit(lo, hi)


def test_arithmetic_past_64_bits_is_refused() -> None:
    g = Graph()
    x = g.var("x", 0, 2**40)
    with pytest.raises(RangeError):
        x * x
    assert (g.var("y", 0, 2**31) * g.var("z", 0, 2**31)).dtype is U64


@pytest.mark.parametrize("operation", ["div", "mod", "ceil_div"])
@pytest.mark.parametrize("low", [0, -1])
def test_a_divisor_that_may_be_zero_is_refused(operation: str, low: int) -> None:
    g = Graph()
    with pytest.raises(DivisorError):
        getattr(g, operation)(g.var("x", 0, 9), g.var("d", low, 5))


class TestOneNode:
    def test_equal_computations_are_one_node(self) -> None:
        g = Graph()
        x, y = g.var("x", 0, 99), g.var("y", 1, 9)
        assert x // y is x // y
        assert x + 3 is g.add(3, x)
        assert g.var("x", 0, 99) is x
        assert (x * y) % 5 is (x * y) % 5

    def test_different_intervals_are_different_nodes(self) -> None:
        g = Graph()
        assert g.var("x", 0, 99) is not g.var("x", 0, 98)
        assert g.const(3, U32) is not g.const(3, S32)

    def test_graphs_do_not_share(self) -> None:
        assert Graph().const(1) is not Graph().const(1)

    def test_topological_order_lists_each_node_once_operands_first(self) -> None:
        g = Graph()
        x = g.var("x", 0, 99)
        e: Expr = x
        for n in range(1, 200):  # a DAG whose tree has 2^199 leaves
            e = g.min(e * 2 % (n + 50), e + 1)
        order = topological([e])
        place = {node.id: k for k, node in enumerate(order)}
        assert len(place) == len(order) < 1000
        assert all(place[a.id] < place[node.id] for node in order for a in node.args)


class TestNarrow:
    def test_narrows_only_inwards(self) -> None:
        g = Graph()
        x = g.var("x", 2, 10)
        assert g.narrow(x, 0, 99) is x
        assert (g.narrow(x, 4, 99).lo, g.narrow(x, 4, 99).hi) == (4, 10)
        assert g.narrow(x, 5, 5).value == 5
        assert g.narrow(x, 11, 20) is x  # nothing is left: no value is ever used

    def test_keeps_type_and_operation(self) -> None:
        g = Graph()
        e = g.var("x", 0, 9) - g.var("y", 0, 9)
        narrowed = g.narrow(e, 0, 9)
        assert (narrowed.op, narrowed.dtype, narrowed.lo) == ("sub", S32, 0)


class TestCast:
    def test_to_the_same_type_is_nothing(self) -> None:
        g = Graph()
        x = g.var("x", 0, 9)
        assert g.cast(x, U32) is x

    def test_there_and_back_is_nothing(self) -> None:
        g = Graph()
        x = g.var("x", 0, 9)
        assert g.cast(g.cast(x, U64), U32) is x

    def test_narrowing_is_not_skipped(self) -> None:
        """A value that does not fit loses its upper bits, and a later widening does not bring them back."""
        g = Graph()
        x = g.var("x", 0, 2**40)
        back = g.cast(g.cast(x, U32), U64)
        assert evaluate([back], {"x": np.array([2**32 + 5, 7])})[0].tolist() == [5, 7]

    def test_the_interval_of_a_value_that_wraps_is_the_whole_type(self) -> None:
        g = Graph()
        x = g.var("x", -5, 3)
        wrapped = g.cast(g.cast(x, S64), U64)
        assert (wrapped.lo, wrapped.hi) == (0, U64.hi)
        assert g.band(wrapped, 7).op == "band"

    @pytest.mark.parametrize("through", INT_TYPES)
    @pytest.mark.parametrize("to", INT_TYPES)
    def test_is_modulo_the_type_s_size(self, through: Dtype, to: Dtype) -> None:
        g = Graph()
        values = [-(2**63), -(2**31) - 1, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1]
        cast = g.cast(g.cast(g.var("x", S64.lo, S64.hi), through), to)

        def wrapped(value: int, dtype: Dtype) -> int:
            value %= 2**dtype.bits
            return value - 2**dtype.bits if value > dtype.hi else value

        want = [wrapped(wrapped(v, through), to) for v in values]
        assert evaluate([cast], {"x": np.array(values)})[0].tolist() == want
        assert [g.cast(g.cast(g.const(v, S64), through), to).value for v in values] == want


class TestFolding:
    def test_an_input_with_one_value_is_a_literal(self) -> None:
        assert Graph().var("x", 4, 4).value == 4

    def test_comparisons_are_decided_by_intervals(self) -> None:
        g = Graph()
        x, y = g.var("x", 0, 9), g.var("y", 9, 20)
        assert g.le(x, y).value == 1
        assert g.lt(y, x).value == 0
        assert g.eq(x, g.var("z", 10, 12)).value == 0
        assert g.ne(x, g.var("z", 10, 12)).value == 1
        assert g.lt(x, y).value is None

    def test_a_choice_that_is_decided_leaves_the_arm(self) -> None:
        g = Graph()
        x, y = g.var("x", 0, 9), g.var("y", 0, 9)
        assert g.select(g.true(), x, y) is x
        assert g.select(g.false(), x, y) is y
        assert g.select(g.lt(x, 5), y, y) is y

    def test_remainders_below_the_divisor_are_the_value(self) -> None:
        g = Graph()
        x = g.var("x", 0, 7)
        assert x % 8 is x
        assert (x // 8).value == 0


def test_text_has_all_inner_parentheses_and_no_casts() -> None:
    g = Graph()
    x = g.var("x", 0, 99)
    e = g.select(g.lt(x, 5), g.cast(x // 3, S64) - 7, g.min(x, 4))
    assert to_text(e) == "((x // 3) - 7) if (x < 5) else min(x, 4)"
    assert to_text(g.true()) == "true"
    assert g.true().dtype is PRED
