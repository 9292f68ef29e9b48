"""Advance without decode: the digits of the index are kept, and the step is added to them with carries.

The divisors by which coordinates divide the index form a chain, each a multiple of the one before: c1, c2, ..., cn. So
the index is a numeral of mixed radix, with digits (index // ck) % (ck+1 / ck), the last one without the remainder. What
the coordinates compute from the index by division they have from digits by multiplication, or find there as it is.

Adding the step to a digit gives less than twice its radix, the carry included: one comparison brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sched_compiler.cost import division
from sched_compiler.expr import Expr, Graph, fit, may_wrap
from sched_compiler.rewrite import peel

#: The variable of each digit, least significant first; no name that a user can give begins with `$`.
DIGIT = "$digit"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of a literal and of other values, by which products that are written differently are the same."""

    value: int
    factors: tuple[Expr, ...] = ()  # in order of their ids

    def times(self, other: Product) -> Product:
        return Product(self.value * other.value, tuple(sorted((*self.factors, *other.factors), key=lambda e: e.id)))

    def by(self, other: Product) -> Product | None:
        """The quotient, if it is a product of some of the factors and a whole number."""
        left = list(self.factors)
        for factor in other.factors:
            if factor not in left:
                return None
            left.remove(factor)
        return None if self.value % other.value else Product(self.value // other.value, tuple(left))

    def expression(self, g: Graph) -> Expr:
        result = g.const(1)
        for factor in self.factors:
            result = result * factor
        return result * self.value


ONE = Product(1)


def product(e: Expr) -> Product:
    e = peel(e)
    if e.value is not None:
        return Product(e.value)
    if e.op == "mul" and not may_wrap(e):
        return product(e.args[0]).times(product(e.args[1]))
    return Product(1, (e,))


@dataclass(frozen=True, slots=True)
class Span:
    """The value (index // low) % (high / low); without `high` there is no remainder."""

    low: Product
    high: Product | None


@dataclass(frozen=True, slots=True)
class Digits:
    """What a worker keeps beside its index: the digits, from the first index on, and the coordinates by them."""

    variables: tuple[Expr, ...]
    start: tuple[Expr, ...]
    advance: tuple[Expr, ...]
    coords: tuple[Expr, ...]


def plan(coords: Sequence[Expr], index: Expr) -> Plan | None:
    """How `coords` divide `index`; None if they do not."""
    spans = _spans(coords, index)
    chain = _chain(index.graph, spans)
    return Plan(coords, index, chain, spans) if chain else None


def _spans(coords: Sequence[Expr], index: Expr) -> dict[Expr, Span]:
    """What nodes take from the index."""
    found = {index: Span(ONE, None)}
    moving = {index}  # what changes with the index, and so is no divisor
    for node in index.graph.needed(coords):
        if moving.isdisjoint(node.args):
            continue
        moving.add(node)
        span = found.get(peel(node.args[0]))
        if span is None:
            continue
        if node.op == "cast" and peel(node) is not node:
            found[node] = span
        elif node.op in ("div", "mod") and node.args[1] not in moving:
            cut = span.low.times(product(node.args[1]))
            if span.high is None or span.high.by(cut) is not None:
                found[node] = Span(cut, span.high) if node.op == "div" else Span(span.low, cut)
    return found


def _chain(g: Graph, spans: dict[Expr, Span]) -> list[Product]:
    """Divisors of the index, each a multiple of the one before; of others, what depends on them divides as before."""
    cuts = {cut for span in spans.values() for cut in (span.low, span.high) if cut not in (None, ONE)}
    chain: list[Product] = []
    for cut in sorted(cuts, key=lambda c: (c.expression(g).hi, c.value, [f.id for f in c.factors])):
        ratio = cut.by(chain[-1] if chain else ONE)
        radix = None if ratio is None else ratio.expression(g)
        if radix is not None and radix.lo >= 1 and radix.hi > 1:
            chain.append(cut)
    return chain


class Plan:
    """The digits that coordinates need, before anything is written by them."""

    def __init__(self, coords: Sequence[Expr], index: Expr, chain: Sequence[Product], spans: dict[Expr, Span]) -> None:
        self.g, self.coords, self.index, self.spans = index.graph, coords, index, spans
        self.cuts = [ONE, *chain]
        ratios = [high.by(low) for low, high in zip(self.cuts, chain, strict=False)]
        self.radices = [ratio.expression(self.g) for ratio in ratios if ratio is not None]
        # of the values that are used: an index past the end may have a larger last digit, which nothing reads
        last = [node.hi for node, span in spans.items() if span == Span(chain[-1], None)]
        top = min([*last, index.hi // chain[-1].expression(self.g).lo])
        tops = [*(radix.hi - 1 for radix in self.radices), top]
        self.variables = [self.g.var(f"{DIGIT}{k}", 0, top, fit(0, top)) for k, top in enumerate(tops)]

    def gain(self) -> int:
        """Instructions that are saved for each tile, about; below zero where it is cheaper to divide."""
        quotients: dict[tuple[Expr, Expr], int] = {}
        remainders: set[tuple[Expr, Expr]] = set()
        for node, span in self.spans.items():
            if node.op in ("div", "mod") and self.kept(span) is not None:
                pair = peel(node.args[0]), peel(node.args[1])
                quotients[pair] = division(*pair)
                if node.op == "mod":
                    remainders.add(pair)
        # an addition, a comparison and a subtraction; the carry chooses what is added
        carried = [(4 if k else 3) * (v.dtype.bits // 32) for k, v in enumerate(self.variables)]
        return sum(quotients.values()) + len(remainders) - sum(carried[:-1]) - 2

    def digits(self, start: Expr, step: Expr) -> Digits:
        """For an index that starts at `start` and advances by `step`."""
        return Digits(tuple(self.variables), self.of(start), self.after(self.of(step)), self.written())

    def of(self, value: Expr) -> tuple[Expr, ...]:
        """The digits of a value."""
        shifted = [value // cut.expression(self.g) for cut in self.cuts]
        return (*(v % radix for v, radix in zip(shifted, self.radices, strict=False)), shifted[-1])

    def after(self, step: Sequence[Expr]) -> tuple[Expr, ...]:
        """The digits after a step of these digits."""
        g, carry = self.g, self.g.false()
        found: list[Expr] = []
        for digit, radix, add in zip(self.variables, self.radices, step, strict=False):
            total = g.add(digit, g.select(carry, add + 1, add), within=(0, 2 * radix.hi - 1))
            untouched = add.value == 0 and carry.value == 0
            carry = g.false() if untouched else g.le(radix, total)
            back = g.select(carry, g.sub(total, radix, within=(0, digit.hi)), total)
            found.append(g.narrow(back, 0, digit.hi))
        return (*found, self.variables[-1] + g.select(carry, step[-1] + 1, step[-1]))

    def written(self) -> tuple[Expr, ...]:
        """The coordinates by digits."""
        new: dict[Expr, Expr] = {}
        for node in self.g.needed(self.coords):
            span = self.spans.get(node) if node.args else None
            kept = None if span is None else self.kept(span)
            if kept is not None:
                value = self.value(kept, (node.lo, node.hi))
            else:
                value = self.g.rebuild(node.op, tuple(map(new.__getitem__, node.args)), node)
            new[node] = self.g.cast(value, node.dtype)
        return tuple(new[e] for e in self.coords)

    def kept(self, span: Span) -> tuple[int, int] | None:
        """The first digit of a span, and the one past its last; None where they are not kept."""
        if span.low not in self.cuts or not (span.high is None or span.high in self.cuts):
            return None
        return self.cuts.index(span.low), len(self.cuts) if span.high is None else self.cuts.index(span.high)

    def value(self, digits: tuple[int, int], within: tuple[int, int]) -> Expr:
        """These digits put together; no part of the value exceeds the whole, which lies `within`."""
        low, high = digits
        if low == high:  # a remainder divided by its own divisor
            return self.g.const(0)
        result, bounds = self.variables[high - 1], (0, within[1])
        for k in reversed(range(low, high - 1)):
            result = self.g.add(self.g.mul(result, self.radices[k], within=bounds), self.variables[k], within=bounds)
        return self.g.narrow(result, *within)
