"""Lowering: divisions become what machines do well, before anything is printed. The value of every node is kept.

A division by a literal is a shift, or a multiplication by a reciprocal that is exact for the dividend's interval. A
division by a value that does not change in a loop is a multiplication by a reciprocal that is computed once, before it.
Quotient and remainder share one multiplication. No signed division is left.

What powers of two leave are fields of bits, which are put together without arithmetic: machines merge several bitwise
operations into one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import chain

from sched_compiler.expr import S32, S64, U32, U64, Dtype, Expr, Graph, fit
from sched_compiler.rewrite import MOST_LEAVES, leaves, peel


def reciprocal(d: int, top: int, bits: int) -> tuple[int, int] | None:
    """(m, s) with x // d == (x * m >> bits) >> s for every x from 0 to `top`, m below 2^bits; None if there is none.

    With m = ceil(2^k / d) and e = m*d - 2^k, the quotient is exact while x*e < 2^k (Granlund and Montgomery, 1994).
    The smallest k is taken, so that small values need no shift.
    """
    for k in range(bits, 2 * bits):
        m = -(-(1 << k) // d)
        if m >> bits:
            return None
        if top * (m * d - (1 << k)) < 1 << k:
            return m, k - bits
    return None


def lower(g: Graph, roots: Iterable[Expr], fixed: Container[str] = ()) -> list[Expr]:
    """The same values by cheaper operations. `fixed` names the inputs that do not change in the loop around them."""
    return _Lowering(g, fixed).run(list(roots))


class _Lowering:
    def __init__(self, g: Graph, fixed: Container[str]) -> None:
        self.g, self.names = g, fixed
        self._fixed: dict[Expr, bool] = {}

    def run(self, roots: list[Expr]) -> list[Expr]:
        new: dict[Expr, Expr] = {}
        order = self.g.needed(roots)
        uses = Counter(chain(*(node.args for node in order)))
        for node in order:
            if not node.args:
                new[node] = node
                continue
            op, args = node.op, tuple(map(new.__getitem__, node.args))
            if op == "div":
                x, d = args
                result = self.g.narrow(self.quotient(x, d), node.lo, node.hi)
            elif op == "mod":
                x, d = args
                result = self.remainder(x, d, node.lo, node.hi)
            elif op == "add" and (fields := self.joined(args, node, uses)):
                result = self.g.narrow(fields, node.lo, node.hi)
            elif op == "sub" and (flipped := self.difference(args[0], args[1], node)):
                result = self.g.narrow(flipped, node.lo, node.hi)
            elif op == "select" and (chosen := self.choice(args, node, uses)):
                result = self.g.narrow(chosen, node.lo, node.hi)
            else:
                result = self.g.rebuild(op, args, node)
            new[node] = result if result.dtype is node.dtype else self.g.cast(result, node.dtype)
        return [new[root] for root in roots]

    def fixed(self, e: Expr) -> bool:
        """Whether `e` is known before the loop."""
        if e not in self._fixed:
            nodes, found = [e], {e}
            for node in nodes:  # to which it adds
                if node.op == "var" and node.attr not in self.names:
                    self._fixed[e] = False
                    break
                new = [a for a in node.args if a not in found]
                found.update(new)
                nodes += new
            else:
                self._fixed.update(dict.fromkeys(nodes, True))
        return self._fixed[e]

    def quotient(self, x: Expr, d: Expr) -> Expr:
        """x // d, the divisor at least 1."""
        g = self.g
        x, d = peel(x), peel(d)
        if d.op == "select" and self._spreads(d):
            c, a, b = d.args
            return g.select(c, self.quotient(x, a), self.quotient(x, b))
        if x.lo < 0:
            return self._of_negative(x, d)
        lo, hi = x.lo // d.hi, x.hi // d.lo
        if d.value is None:
            dtype = fit(0, max(x.hi, d.hi))
            if dtype is U32 and self.fixed(d) and not self.fixed(x):
                return g.narrow(self._by_fixed(x, d), lo, hi)
            return g.node("div", (g.cast(x, dtype), g.cast(d, dtype)), None, dtype, lo, hi)
        if d.value > x.hi:
            return g.const(0)
        dtype = fit(0, x.hi)
        x = g.cast(x, dtype)
        if d.value & (d.value - 1) == 0:
            count = d.value.bit_length() - 1
            if x.op == "band" and x.args[1].value is not None:  # the field first, which others may use
                return self.field(g.shr(x.args[0], count), x.args[1].value >> count)
            return g.shr(x, count)
        found = reciprocal(d.value, x.hi, dtype.bits)
        if found is None:
            return g.node("div", (x, g.const(d.value, dtype)), None, dtype, lo, hi)
        multiplier, shift = found
        return g.narrow(g.shr(g.mulhi(x, g.const(multiplier, dtype)), shift), lo, hi)

    def _spreads(self, d: Expr) -> bool:
        """Whether a choice of divisors is better taken among quotients: every divisor has a cheap one."""
        if 0 < leaves(d) <= MOST_LEAVES:
            return True
        return all(arm.op == "const" or self.fixed(arm) for arm in map(peel, d.args[1:])) and not self.fixed(d)

    def _by_fixed(self, x: Expr, d: Expr) -> Expr:
        """x // d for 32-bit values, with a reciprocal m = (2^b - 1) // d of b bits, which does not change in the loop.

        With r = (2^b - 1) % d, (x + 1) * m = (x + 1) * (2^b - 1 - r) / d, so that the product's upper half is the
        floor of (x + 1) / d less (x + 1) * (1 + r) / (d * 2^b). As 1 + r <= d, the latter is below 1 / d where
        (x + 1) * d < 2^b; hence the floor is x // d, also for d = 1. 64 bits are always enough.
        """
        g = self.g
        dtype = U32 if (x.hi + 1) * d.hi < 1 << 32 else U64
        m = g.node("div", (g.const(dtype.hi, dtype), g.cast(d, dtype)), None, dtype, dtype.hi // d.hi, dtype.hi // d.lo)
        # not g.add: it would take the narrowest type, and the upper half is that of a product of `dtype`
        after = g.node("add", (g.cast(x, dtype), g.const(1, dtype)), None, dtype, x.lo + 1, x.hi + 1)
        return g.cast(g.mulhi(after, m), U32)

    def _of_negative(self, x: Expr, d: Expr) -> Expr:
        """Floor division where the dividend may be negative: -1 - (-1 - x) // d."""
        g = self.g
        if d.value is not None and d.value > max(-x.lo, x.hi):  # a shift by so much would be past the type's width
            return g.select(g.lt(x, 0), -1, 0)
        if d.value is not None and d.value & (d.value - 1) == 0:
            return g.shr(g.cast(x, S32 if x.dtype.bits == 32 else S64), d.value.bit_length() - 1)
        below = g.sub(g.const(-1), self.quotient(g.sub(g.const(-1), x, within=(0, -1 - x.lo)), d))
        if x.hi < 0:
            return below
        return g.select(g.lt(x, 0), below, self.quotient(g.narrow(x, 0, x.hi), d))

    def remainder(self, x: Expr, d: Expr, lo: int, hi: int) -> Expr:
        """x % d, between `lo` and `hi`, from the quotient."""
        g = self.g
        if d.value is not None and d.value & (d.value - 1) == 0:
            x = peel(x)
            return self.field(g.cast(x, U32 if x.dtype.bits == 32 and d.value <= 1 << 32 else U64), d.value - 1)
        multiple = g.mul(self.quotient(x, d), d, within=(min(0, x.lo - d.hi + 1), x.hi))
        dtype = fit(min(x.lo, multiple.lo, lo), max(x.hi, multiple.hi, hi))
        # not g.sub: it would see a remainder in this, and write it as one
        return g.node("sub", (g.cast(x, dtype), g.cast(multiple, dtype)), None, dtype, lo, hi)

    # -- fields of bits -----------------------------------------------------------------------------------------

    def field(self, x: Expr, mask: int) -> Expr:
        """The bits of `mask`, 2^k - 1, in an unsigned value."""
        if x.op == "band" and x.args[1].value is not None:
            return self.g.band(x.args[0], x.args[1].value & mask)
        return self.g.band(x, mask)

    def joined(self, args: tuple[Expr, ...], node: Expr, uses: Mapping[Expr, int]) -> Expr | None:
        """q * 2^b + r as the bits of q above the b bits of r, where that costs no more."""
        g, dtype = self.g, node.dtype
        if dtype.signed:
            return None
        for k in (0, 1):
            high, low = peel(args[k]), peel(args[1 - k])
            if high.op != "mul" or low.op != "band" or low.args[1].value is None or uses[node.args[1 - k]] > 1:
                continue
            unit = high.args[1].value
            if unit is None or unit < 2 or unit & (unit - 1) or low.args[1].value >= unit:
                continue
            above = self.shifted(peel(high.args[0]), unit.bit_length() - 1, dtype)
            if above is None:
                continue
            full = above.op == "band" and above.args[1].value == dtype.hi ^ (unit - 1)
            if full and dtype is U32 and low.dtype is U32 and low.args[1].value == unit - 1:
                return g.merge(above.args[0], low.args[0], unit - 1)
            return g.bor(g.cast(above, dtype), g.cast(low, dtype))
        return None

    def shifted(self, q: Expr, count: int, dtype: Dtype) -> Expr | None:
        """q * 2^count by a shift to the right that is shorter; None where there is none."""
        g, second = self.g, q.args[1].value if len(q.args) > 1 else None
        if q.value is not None:
            return g.const(q.value << count, dtype) if q.value << count <= dtype.hi else None
        if q.op == "shr" and q.dtype is dtype and second is not None and second >= count:
            x, mask = g.shr(q.args[0], second - count), dtype.hi ^ ((1 << count) - 1)
            return g.node("band", (x, g.const(mask, dtype)), None, dtype, x.lo >> count << count, x.hi)
        if q.op == "band" and q.dtype is dtype and second is not None:
            inner = self.shifted(peel(q.args[0]), count, dtype) if q.args[0].op == "shr" else None
            if inner is None or inner.op != "band":
                return None
            mask = second << count
            return g.node("band", (inner.args[0], g.const(mask, dtype)), None, dtype, 0, min(mask, inner.hi))
        if q.op == "bxor" and second is not None:
            inner = self.shifted(peel(q.args[0]), count, dtype)
            return None if inner is None else g.bxor(inner, second << count)
        if q.op == "select":
            then, otherwise = (self.shifted(peel(a), count, dtype) for a in q.args[1:])
            return None if then is None or otherwise is None else g.select(q.args[0], then, otherwise)
        return None

    def difference(self, a: Expr, b: Expr, node: Expr) -> Expr | None:
        """2^k - 1 - x with the bits of x turned, where x is a field of no more bits; x - c as a field of x.

        The latter where c is a multiple of 2^k and x - c is below 2^k wherever it is used.
        """
        g, x, dtype = self.g, peel(a), node.dtype
        a, b = peel(a), peel(b)
        if dtype.signed:
            return None
        if a.value is not None and not a.value & (a.value + 1) and b.op == "band" and b.dtype is dtype:
            mask = b.args[1].value
            return None if mask is None or mask & ~a.value else g.bxor(b, a.value)
        if b.value is not None and x.dtype is dtype:
            ones = (1 << node.hi.bit_length()) - 1
            return g.band(x, ones) if b.value & ones == 0 else None
        return None

    def choice(self, args: tuple[Expr, ...], node: Expr, uses: Mapping[Expr, int]) -> Expr | None:
        """(x & 7 if c else y & 7) -> (x if c else y) & 7"""
        g, a, b = self.g, peel(args[1]), peel(args[2])
        if a.op != "band" or b.op != "band" or a.args[1] is not b.args[1]:
            return None
        if any(uses[arm] > 1 for arm in node.args[1:]):
            return None
        mask = a.args[1].value
        return None if mask is None else g.band(g.select(args[0], a.args[0], b.args[0]), mask)
