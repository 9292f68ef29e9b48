"""Random expressions together with what they mean in Python's integers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from sched_compiler.expr import Expr, Graph

#: The meaning of an expression at the values of its inputs.
Meaning = Callable[[Mapping[str, int]], int]

MEANINGS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "ceil_div": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
}
_LITERALS = (0, 1, 2, 3, 4, 7, 8, 12, 64, 100, -3, 2**31 - 1, 2**32 - 5)
_SPANS = (0, 1, 5, 100, 65536, 2**31, 2**32 - 1, 2**33)


class Source:
    """Draws expressions over three inputs, x, y and z, of one graph."""

    def __init__(self, chance: random.Random, lows: tuple[int, ...] = (0, 0, 0, 1, -5, -1000)) -> None:
        self.chance, self.g = chance, Graph()
        self.inputs: dict[str, Expr] = {}
        for name in "xyz":
            low = chance.choice(lows)
            self.inputs[name] = self.g.var(name, low, low + chance.choice(_SPANS))
        self.ranges = {name: (e.lo, e.hi) for name, e in self.inputs.items()}

    def values(self) -> dict[str, int]:
        """An end of each input's range, or something between."""
        return {
            name: self.chance.choice([low, high, self.chance.randint(low, high)])
            for name, (low, high) in self.ranges.items()
        }

    def number(self, depth: int) -> tuple[Expr, Meaning]:
        """Raises RangeError where what was drawn does not fit 64 bits."""
        chance, g = self.chance, self.g
        if depth == 0 or chance.random() < 0.2:
            if chance.random() < 0.6:
                name = chance.choice("xyz")
                return self.inputs[name], lambda v: v[name]
            literal = chance.choice(_LITERALS)
            return g.const(literal), lambda v: literal
        op = chance.choice(["add", "sub", "mul", "div", "mod", "div", "mod", "ceil_div", "min", "max", "select"])
        if op == "select":
            condition, holds = self.truth(depth - 1)
            (a, then), (b, otherwise) = self.number(depth - 1), self.number(depth - 1)
            return g.select(condition, a, b), lambda v: then(v) if holds(v) else otherwise(v)
        return self._binary(op, depth)

    def truth(self, depth: int) -> tuple[Expr, Meaning]:
        chance, g = self.chance, self.g
        if depth > 0 and chance.random() < 0.4:
            op = chance.choice(["and", "or", "xor", "not", "select"])
            (a, p), (b, q), (c, r) = (self.truth(depth - 1) for _ in range(3))
            if op == "not":
                return g.logical_not(a), lambda v: 1 - p(v)
            if op == "select":
                return g.select(c, a, b), lambda v: p(v) if r(v) else q(v)
            if op == "and":
                return g.logical_and(a, b), lambda v: p(v) & q(v)
            if op == "xor":
                return g.logical_xor(a, b), lambda v: p(v) ^ q(v)
            return g.logical_or(a, b), lambda v: p(v) | q(v)
        return self._binary(chance.choice(["lt", "le", "eq", "ne"]), depth)

    def _binary(self, op: str, depth: int) -> tuple[Expr, Meaning]:
        (a, left), (b, right) = (self.number(max(depth - 1, 0)) for _ in range(2))
        meaning = MEANINGS[op]
        if op in ("div", "mod", "ceil_div") and b.lo < 1:
            b, any_divisor = self.g.max(b, 1), right
            return getattr(self.g, op)(a, b), lambda v: meaning(left(v), max(any_divisor(v), 1))
        result: Expr = getattr(self.g, op)(a, b)
        return result, lambda v: meaning(left(v), right(v))
