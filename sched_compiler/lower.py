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

from sched_compiler.expr import FDIV_LIMIT, RECIP_LIMIT, S32, S64, U32, U64, Dtype, Expr, Graph, fit, may_wrap
from sched_compiler.rewrite import MOST_LEAVES, leaves, multiple_of, peel


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


def multiplies(x: Expr, d: Expr) -> bool:
    """Whether x // d, of which 64 bits hold both, is a multiplication where d is known before the loop."""
    return x.hi <= U32.hi >= d.hi or (x.hi + 1) * d.hi <= U64.hi


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
        divided = {node: self.divided(node) for node in order if node.op == "div" or node.op == "mod"}
        divisions = {(x, d) for x, d, _ in divided.values()}
        for node in order:
            if not node.args:
                new[node] = node
                continue
            op, args = node.op, tuple(map(new.__getitem__, node.args))
            if op == "select" and args[0].op == "not":
                args = (args[0].args[0], args[2], args[1])
            if op == "div":
                x, d, n = divided[node]
                value = new[x]
                for factor in self.factors(x, d, divisions):
                    value = self.quotient(value, new[factor])
                if n is not None:
                    (n,) = self.run([n])  # which may be no operand of anything
                    value = self.remainder(value, n, node.lo, node.hi)
                result = self.g.narrow(value, node.lo, node.hi)
            elif op == "mod":
                x, d, _ = divided[node]
                result = self.remainder(new[x], new[d], node.lo, node.hi)
            elif op == "add" and (fields := self.joined(args, node, uses)):
                result = self.g.narrow(fields, node.lo, node.hi)
            elif op == "add" and (shorter := self.last(args, node, uses)):
                result = shorter
            elif op == "sub" and (flipped := self.difference(args[0], args[1], node)):
                result = self.g.narrow(flipped, node.lo, node.hi)
            elif op in ("eq", "le", "lt") and (tested := self.bit(op, args)):
                result = tested
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

    def divided(self, node: Expr) -> tuple[Expr, Expr, Expr | None]:
        """(x, d, n) of a division: x // d or x % d, or (x // d) % n instead of x % (d * n) // d.

        So x % (d * n) is not needed, nor a reciprocal of d * n. Literals are left: they may have bits in common.
        """
        x, d = peel(node.args[0]), peel(node.args[1])
        n, bound = None, d
        while x.op == "mod" and x.args[1].value is None:
            times = multiple_of(x.args[1], bound)
            if times is None or times.lo < 1:
                break
            n, bound, x = n or times, x.args[1], peel(x.args[0])
        return x, d, n if node.op == "div" else None

    def factors(self, x: Expr, d: Expr, divisions: Container[tuple[Expr, Expr]]) -> tuple[Expr, ...]:
        """What x is divided by, in turn, for x // d: d, or two factors of it where x is divided by the first anyway."""
        if d.op == "mul" and not may_wrap(d):
            a, b = peel(d.args[0]), peel(d.args[1])
            if (x, a) in divisions:
                return a, b
            if (x, b) in divisions:
                return b, a
        return (d,)

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
            if multiplies(x, d) and self.fixed(d) and not self.fixed(x):
                return g.narrow(self._by_fixed(x, d) if dtype is U32 else self._by_fixed_wide(x, d), lo, hi)
            if dtype is U32 and x.hi < FDIV_LIMIT:
                return g.fdiv(g.cast(x, U32), g.cast(d, U32))
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
        """x // d of 32-bit values, with a reciprocal m of 32 bits and a shift s that do not change in the loop.

        With t = 2^(32 + s) - 1, m = t // d and r = t % d, (x + 1) * m / 2^(32 + s) is (x + 1) / d less
        (x + 1) * (1 + r) / (d * 2^(32 + s)), which is at most 1 / d where (x + 1) * (1 + r) <= 2^(32 + s): then the
        quotient is the floor of the former. As 1 + r <= d, s = 0 will do while (x + 1) * d < 2^32, and ceil(log2 d) - 1
        while x < 2^31. Beyond that s = floor(log2 d), with which m fits 32 bits and either 1 + r <= 2^s, or the
        reciprocal rounded up is exact without the 1 that is added to x (Robison, "N-bit unsigned division via N-bit
        multiply-add", 2005). With 2^21 in place of 2^32, a small reciprocal comes from floating point alone.
        """
        g = self.g
        d, x = g.cast(d, U32), g.cast(x, U32)
        if (x.hi + 1) * d.hi <= FDIV_LIMIT:
            shift = g.const(0)
            m = added = g.mul(g.fdiv(g.const(FDIV_LIMIT - 1), d), (1 << 32) // FDIV_LIMIT)
        elif (x.hi + 1) * d.hi < 1 << 32:
            shift = g.const(0)
            m = added = self._ratio(shift, d)
        elif x.hi < 1 << 31:
            shift = g.log2(g.max(d - 1, 1))
            m = added = self._ratio(shift, d)
        else:
            shift = g.log2(d)
            low = self._ratio(shift, d)
            product = g.node("mul", (g.cast(low, U32), d), None, U32, 0, U32.hi)
            rest = g.node("sub", (g.const(U32.hi), product), None, U32, 0, d.hi - 1)  # of the lower halves
            down = g.lt(g.shr(rest, shift), 1)
            m, added = g.select(down, low, g.add(low, 1, within=(0, U32.hi))), g.select(down, low, g.const(0, U64))
        added = g.cast(added, U64)
        factor = g.cast(m, U32) if m is not added else g.node("cast", (added,), None, U32, m.lo, m.hi)
        return g.shr(g.madhi(x, factor, added), shift)

    def _by_fixed_wide(self, x: Expr, d: Expr) -> Expr:
        """The same with s = 0 and 64 bits in place of 32."""
        g = self.g
        after = g.node("add", (g.cast(x, U64), g.const(1, U64)), None, U64, x.lo + 1, x.hi + 1)
        return g.mulhi(after, g.cast(g.div(g.const(U64.hi), d), U64))

    def _ratio(self, shift: Expr, d: Expr) -> Expr:
        """(2^(32 + shift) - 1) // d, which fits 32 bits."""
        g = self.g
        if d.hi <= RECIP_LIMIT:
            return g.recip(d, shift)
        if shift.value == 0:
            return g.div(g.const(U32.hi), d)
        t = g.shr(g.const(U64.hi), g.sub(32, shift))
        return g.node("div", (t, g.cast(d, U64)), None, U64, t.lo // d.hi, U32.hi)

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
        quotient, unsigned = self.quotient(x, d), fit(0, max(x.hi, d.hi))
        if x.lo >= 0 and d.value is None and not self.fixed(x) and (negative := self.negative(peel(d), unsigned)):
            back = g.node("mul", (g.cast(quotient, unsigned), negative), None, unsigned, 0, unsigned.hi)
            return g.node("add", (back, g.cast(x, unsigned)), None, unsigned, lo, hi)
        multiple = g.mul(quotient, d, within=(min(0, x.lo - d.hi + 1), x.hi))
        dtype = fit(min(x.lo, multiple.lo, lo), max(x.hi, multiple.hi, hi))
        # not g.sub: it would see a remainder in this, and write it as one
        return g.node("sub", (g.cast(x, dtype), g.cast(multiple, dtype)), None, dtype, lo, hi)

    def negative(self, d: Expr, dtype: Dtype) -> Expr | None:
        """2^bits - d where that is known before the loop, or one of two such; what is added is not subtracted."""
        g = self.g
        if d.value is not None:
            return g.const(dtype.hi + 1 - d.value, dtype)
        if self.fixed(d):
            return g.neg(g.cast(d, dtype))
        if d.op != "select":
            return None
        a, b = (self.negative(peel(arm), dtype) for arm in d.args[1:])
        return None if a is None or b is None else g.select(d.args[0], a, b)

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

    def last(self, args: tuple[Expr, ...], node: Expr, uses: Mapping[Expr, int]) -> Expr | None:
        """a + (q * d + x) -> q * d + (a + x), modulo 2^bits: the quotient is what is waited for."""
        g, dtype = self.g, node.dtype
        for k in (0, 1):
            a, rest = args[k], args[1 - k]
            if rest.op != "add" or dtype.signed or uses[node.args[1 - k]] > 1 or node.args[1 - k].op != "mod":
                continue
            product, x = rest.args
            if product.op == "mul" and rest.dtype is a.dtype is dtype:
                first = g.node("add", (a, x), None, dtype, 0, dtype.hi)
                return g.node("add", (product, first), None, dtype, node.lo, node.hi)
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

    def bit(self, op: str, args: tuple[Expr, ...]) -> Expr | None:
        """x % 16 >= 8 and x // 8 % 2 == 1 -> x & 8 is not 0: one instruction sets a predicate by it."""
        g, a, b = self.g, peel(args[0]), peel(args[1])
        field, value = (b, a.value) if op == "le" else (a, b.value)
        if value is None or field.op != "band" or field.args[1].value != 2 * value - 1 or value & (value - 1):
            return None
        if op == "eq" and value != 1:
            return None
        x, count = field.args[0], field.args[0].args[1].value if field.args[0].op == "shr" else None
        if count is not None:
            x, value = x.args[0], value << count
        clear = g.eq(g.node("band", (x, g.const(value, x.dtype)), None, x.dtype, 0, value), 0)
        return clear if op == "lt" else g.logical_not(clear)

    def choice(self, args: tuple[Expr, ...], node: Expr, uses: Mapping[Expr, int]) -> Expr | None:
        """(x & 7 if c else y & 7) -> (x if c else y) & 7"""
        g, a, b = self.g, peel(args[1]), peel(args[2])
        if a.op != "band" or b.op != "band" or a.args[1] is not b.args[1]:
            return None
        if any(uses[arm] > 1 for arm in node.args[1:]):
            return None
        mask = a.args[1].value
        return None if mask is None else g.band(g.select(args[0], a.args[0], b.args[0]), mask)
