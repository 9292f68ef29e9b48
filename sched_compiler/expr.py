"""The expression layer of the IR: an immutable, hash-consed DAG of integer operations.

Every node has a machine type and an interval that holds its value. The operation of a node is defined on its
machine type, wrap-around included, so that the evaluator and the printers need no rules of their own:

===========  ==========================================================================================
const, var   a literal (``attr``), a named input (``attr``)
add sub mul  modulo 2^bits
div mod      floor division and its remainder; the divisor is at least 1
fdiv         the same as ``div``, the dividend below ``FDIV_LIMIT``; 32 bits, unsigned. Machines use floating point
min max      of two values
lt le eq ne  comparison, giving ``pred``
and or xor   on ``pred``
not          on ``pred``
select       ``args[0] ? args[1] : args[2]``; both arms are evaluated
load         ``args[1] ? table[args[0]] : 0``, the table's name in ``attr``; nothing is read unless ``args[1]`` holds
cast         to ``dtype``, modulo 2^bits
recip        ``(2^(32 + args[1]) - 1) // args[0]``, which fits 32 bits; at most ``RECIP_LIMIT``, and 20 more bits
mulhi        upper half of the full unsigned product
madhi        upper half of ``args[0] * args[1] + args[2]``, which is below 2^64; factors of 32 bits, an addend of 64
neg          2^bits less an unsigned value, modulo 2^bits
log2         number of the highest bit that is set, of an unsigned value; some number where none is
shr          right shift by ``args[1]`` bits: logical for unsigned types, arithmetic for signed ones
band         bitwise and of unsigned values
bor bxor     bitwise or, exclusive or, of unsigned values
merge        the bits of `args[1]` where those of `args[2]`, 2^k - 1, are set, of `args[0]` elsewhere; 32 bits, unsigned
===========  ==========================================================================================

A node's interval may be narrower than its operands imply (``within``): the caller has shown that no other value is
ever *used*. In the arm of a ``select`` that is not taken such a node may hold anything, as it does on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from sched_compiler.node import (
    INT_TYPES,
    PRED,
    S32,
    S64,
    U32,
    U64,
    DivisorError,
    Dtype,
    Expr,
    RangeError,
    Rule,
    equations,
    fit,
    may_wrap,
    to_text,
    topological,
)
from sched_compiler.rewrite import APPLICABLE, Shape

__all__ = [
    "FDIV_LIMIT", "INT_TYPES", "PRED", "RECIP_LIMIT", "S32", "S64", "U32", "U64", "DivisorError", "Dtype", "Expr",
    "Graph", "RangeError", "Rule", "element_type", "equations", "fit", "may_wrap", "to_text", "topological",
]  # fmt: skip


#: Where a quotient of whole numbers can be had from floating point of 24 bits: (x + 1/2) * (1/d), rounded down. Every
#: such (x + 1/2) / d is at least 1/2d away from a whole number, and less than that is lost in the reciprocal (one unit
#: in the last place, of PTX's `rcp.approx`) and the product (half a unit), together 1.5 * 2^-23 of at most 2^21 / d.
FDIV_LIMIT = 1 << 21


#: The largest divisor whose reciprocal of 32 bits begins as one of floating point. Four units in the last place less
#: than `rcp.approx` it is q, below 2^(32+k) / d by no more than 1 and 2^-20.6 of it. So 2^(32+k) - 1 - q*d fits 32 bits
#: for k to 20, its upper product with q, shifted by k, is its quotient by d or one less, and the remainder says which.
RECIP_LIMIT = 1 << 20


def element_type(lo: int, hi: int) -> Dtype:
    """The type of a table's elements: what C and NumPy programs use for indices."""
    return S32 if S32.lo <= lo and hi <= S32.hi else S64


class Graph:
    """Owns the nodes of one schedule and builds new ones, simplified and typed.

    Operands may be given as Python integers. Results that are the same computation are the same node.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._literals: dict[int, Expr] = {}  # of the cheapest type
        self._true = self.node("const", (), 1, PRED, 1, 1)
        self._false = self.node("const", (), 0, PRED, 0, 0)

    # -- leaves -----------------------------------------------------------------------------------------------

    def const(self, value: int, dtype: Dtype | None = None) -> Expr:
        """A literal, by default of the cheapest type."""
        if dtype is not None:
            return self.node("const", (), value, dtype, value, value)
        found = self._literals.get(value)
        if found is None:
            found = self._literals[value] = self.node("const", (), value, fit(value, value), value, value)
        return found

    def var(self, name: str, lo: int, hi: int, dtype: Dtype | None = None) -> Expr:
        """An input between `lo` and `hi`, both included; a literal where there is no other value."""
        if lo == hi:
            return self.const(lo, dtype)
        return self.node("var", (), name, dtype or fit(lo, hi), lo, hi)

    def true(self) -> Expr:
        return self._true

    def false(self) -> Expr:
        return self._false

    def lift(self, value: Expr | int) -> Expr:
        return self.const(value) if isinstance(value, int) else value

    # -- arithmetic -------------------------------------------------------------------------------------------

    def add(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        return self._arithmetic("add", a, b, a.lo + b.lo, a.hi + b.hi, within)

    def sub(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if b.op == "div" and b.args[0] is a and a.lo >= 0:  # x - x // d never falls as x grows
            d = b.args[1]
            return self._arithmetic("sub", a, b, a.lo - a.lo // d.lo, a.hi - a.hi // d.hi, within)
        return self._arithmetic("sub", a, b, a.lo - b.hi, a.hi - b.lo, within)

    def mul(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if a.lo >= 0 and b.lo >= 0:
            return self._arithmetic("mul", a, b, a.lo * b.lo, a.hi * b.hi, within)
        corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        return self._arithmetic("mul", a, b, min(corners), max(corners), within)

    def div(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        """Floor division. Raises DivisorError unless `b` is shown to be at least 1."""
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        lo = a.lo // (b.hi if a.lo >= 0 else b.lo)
        hi = a.hi // (b.lo if a.hi >= 0 else b.hi)
        return self._arithmetic("div", a, b, lo, hi, within)

    def mod(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        """Remainder of floor division, never negative. Raises DivisorError unless `b` is at least 1."""
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        if a.lo >= 0 and a.hi < b.lo:
            return self.narrow(a, *within) if within else a
        if a.lo == a.hi and b.lo == b.hi:
            return self.const(a.lo % b.lo)
        hi = b.hi - 1 if a.lo < 0 else min(a.hi, b.hi - 1)
        return self._arithmetic("mod", a, b, 0, hi, within)

    def min(self, a: Expr | int, b: Expr | int) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        return self._arithmetic("min", a, b, min(a.lo, b.lo), min(a.hi, b.hi), None)

    def max(self, a: Expr | int, b: Expr | int) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        return self._arithmetic("max", a, b, max(a.lo, b.lo), max(a.hi, b.hi), None)

    def ceil_div(self, a: Expr | int, b: Expr | int) -> Expr:
        """Ceiling of a / b. Raises DivisorError unless `b` is shown to be at least 1."""
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        lo = -(-a.lo // (b.lo if a.lo < 0 else b.hi))
        hi = -(-a.hi // (b.hi if a.hi < 0 else b.lo))
        return self.div(a + (b - 1), b, within=(lo, hi))

    def narrow(self, e: Expr, lo: int, hi: int) -> Expr:
        """The same value, known to lie between `lo` and `hi`."""
        if lo <= e.lo and e.hi <= hi:
            return e
        lo, hi = max(lo, e.lo), min(hi, e.hi)
        if lo > hi:
            return e
        if lo == hi:
            return self.const(lo)
        return self.node(e.op, e.args, e.attr, e.dtype, lo, hi)

    # -- truth ------------------------------------------------------------------------------------------------

    def lt(self, a: Expr | int, b: Expr | int) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if a.hi < b.lo:
            return self.true()
        if a.lo >= b.hi:
            return self.false()
        return self._compare("lt", a, b)

    def le(self, a: Expr | int, b: Expr | int) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if a.hi <= b.lo:
            return self.true()
        if a.lo > b.hi:
            return self.false()
        return self._compare("le", a, b)

    def eq(self, a: Expr | int, b: Expr | int) -> Expr:
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if a.hi < b.lo or b.hi < a.lo:
            return self.false()
        if a.lo == a.hi == b.lo == b.hi:
            return self.true()
        return self._compare("eq", a, b)

    def ne(self, a: Expr | int, b: Expr | int) -> Expr:
        return self.logical_not(self.eq(a, b))

    def logical_and(self, a: Expr, b: Expr) -> Expr:
        return self._build(("and", a.op, b.op), (a, b), PRED, 0, 1)

    def logical_or(self, a: Expr, b: Expr) -> Expr:
        return self._build(("or", a.op, b.op), (a, b), PRED, 0, 1)

    def logical_xor(self, a: Expr, b: Expr) -> Expr:
        """Whether one of two conditions holds, but not both."""
        return self._build(("xor", a.op, b.op), (a, b), PRED, 0, 1)

    def logical_not(self, a: Expr) -> Expr:
        return self._build(("not", a.op), (a,), PRED, 0, 1)

    def select(self, condition: Expr, a: Expr | int, b: Expr | int) -> Expr:
        """`a` where the condition holds, else `b`."""
        a = a if isinstance(a, Expr) else self.const(a)
        b = b if isinstance(b, Expr) else self.const(b)
        if condition.op == "const":
            return a if condition.lo else b
        if a is b:
            return a
        lo, hi = a.lo if a.lo < b.lo else b.lo, a.hi if a.hi > b.hi else b.hi
        dtype = a.dtype
        if dtype is not b.dtype or (dtype is not PRED and dtype is not U32):  # otherwise no type is cheaper
            dtype = fit(lo, hi)
            a, b = self.cast(a, dtype), self.cast(b, dtype)
        return self._build(("select", condition.op, a.op, b.op), (condition, a, b), dtype, lo, hi)

    def load(self, table: str, index: Expr, guard: Expr, lo: int, hi: int) -> Expr:
        """Element `index` of a table whose elements lie between `lo` and `hi`; 0, and nothing read, without `guard`.

        Elements are 32-bit signed integers where `hi` allows it, else 64-bit ones.
        """
        if guard.value == 0:
            return self.const(0)
        return self.node("load", (index, guard), table, element_type(lo, hi), min(lo, 0), max(hi, 0))

    # -- machine operations, made by lowering -----------------------------------------------------------------

    def cast(self, e: Expr, dtype: Dtype) -> Expr:
        """The value in another type, modulo 2^bits where it does not fit."""
        if e.dtype is dtype:
            return e
        if e.op == "const":
            value = (e.lo - dtype.lo) % 2**dtype.bits + dtype.lo
            return self.node("const", (), value, dtype, value, value)
        fits = e.lo >= dtype.lo and e.hi <= dtype.hi
        inner = e.args[0] if e.op == "cast" else None
        if inner is not None and (
            (inner.lo >= e.dtype.lo and inner.hi <= e.dtype.hi) or min(inner.dtype.bits, e.dtype.bits) >= dtype.bits
        ):
            direct = self.cast(inner, dtype)
            return self.narrow(direct, e.lo, e.hi) if fits else direct
        return self.node("cast", (e,), None, dtype, e.lo if fits else dtype.lo, e.hi if fits else dtype.hi)

    def mulhi(self, a: Expr, b: Expr) -> Expr:
        """Upper half of the unsigned product of two values of one unsigned type."""
        bits = a.dtype.bits
        return self.node("mulhi", (a, b), None, a.dtype, a.lo * b.lo >> bits, a.hi * b.hi >> bits)

    def madhi(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Upper half of a * b + c, which is below 2^64, of unsigned values of 32, 32 and 64 bits."""
        lo, hi = a.lo * b.lo + c.lo >> 32, a.hi * b.hi + c.hi >> 32
        return self.node("madhi", (a, b, c), None, U32, lo, hi)

    def fdiv(self, a: Expr, b: Expr) -> Expr:
        """Floor division of unsigned values of 32 bits, `a` below `FDIV_LIMIT`, `b` at least 1."""
        return self.node("fdiv", (a, b), None, U32, a.lo // b.hi, a.hi // b.lo)

    def recip(self, d: Expr, more: Expr) -> Expr:
        """(2^(32 + more) - 1) // d, which fits 32 bits, d at most `RECIP_LIMIT`; both unsigned of 32 bits."""
        lo = min((1 << 32 + more.lo) // d.hi, U32.hi)
        return self.node("recip", (d, more), None, U32, lo, U32.hi)

    def neg(self, a: Expr) -> Expr:
        """What is added in place of subtracting `a`, of an unsigned type and at least 1."""
        top = a.dtype.hi + 1
        return self.node("neg", (a,), None, a.dtype, top - a.hi, top - a.lo)

    def log2(self, a: Expr) -> Expr:
        """Floor of the logarithm of an unsigned value, at least 1, to base 2."""
        lo, hi = a.lo.bit_length() - 1, a.hi.bit_length() - 1
        return self.const(lo) if lo == hi else self.node("log2", (a,), None, U32, lo, hi)

    def shr(self, a: Expr, count: Expr | int) -> Expr:
        """Floor division by 2^count, 0 <= count < bits."""
        if not isinstance(count, int):
            if count.value is None:
                lo, hi = (min(v >> count.lo, v >> count.hi) for v in (a.lo, a.hi))
                return self.node("shr", (a, count), None, a.dtype, lo, max(hi, a.hi >> count.lo))
            count = count.value
        if count == 0:
            return a
        if a.lo >> count == a.hi >> count:
            return self.const(a.lo >> count)
        return self.node("shr", (a, self.const(count, U32)), None, a.dtype, a.lo >> count, a.hi >> count)

    def band(self, a: Expr, mask: int) -> Expr:
        """Bitwise and of an unsigned value with a literal 2^k - 1."""
        if a.lo >= 0 and a.hi <= mask:
            return a
        return self.node("band", (a, self.const(mask, a.dtype)), None, a.dtype, 0, min(mask, max(a.hi, 0)))

    def bor(self, a: Expr, b: Expr) -> Expr:
        """Bitwise or of two values of one unsigned type that have no bit in common: their sum."""
        return self.node("bor", (a, b), None, a.dtype, a.lo + b.lo, min(a.hi + b.hi, a.dtype.hi))

    def bxor(self, a: Expr, ones: int) -> Expr:
        """`ones - a`, for an unsigned value that has no bit but those of `ones`."""
        return self.node("bxor", (a, self.const(ones, a.dtype)), None, a.dtype, max(ones - a.hi, 0), ones - a.lo)

    def merge(self, high: Expr, low: Expr, mask: int) -> Expr:
        """The bits of `low` in `mask`, 2^k - 1, and of `high` above it; both of 32 bits and unsigned."""
        top = (high.hi & ~mask) + min(mask, low.hi)
        args = (high, low, self.const(mask, high.dtype))
        return self.node("merge", args, None, high.dtype, high.lo & ~mask, top)

    # -- order ------------------------------------------------------------------------------------------------

    def needed(self, roots: Iterable[Expr]) -> list[Expr]:
        """What `topological` gives, in the order in which the nodes were made: operands were made first."""
        nodes, found = self._nodes.values(), set(roots)
        for node in reversed(nodes):
            if node in found:
                found.update(node.args)
        return [node for node in nodes if node in found]

    # -- construction -----------------------------------------------------------------------------------------

    def node(self, op: str, args: tuple[Expr, ...], attr: int | str | None, dtype: Dtype, lo: int, hi: int) -> Expr:
        """The one node with these contents; no simplification."""
        key = (op, args, attr, dtype.name, lo, hi)
        found = self._nodes.get(key)
        if found is None:
            found = Expr()
            found.graph, found.op, found.args, found.attr = self, op, args, attr
            found.dtype, found.lo, found.hi, found.id = dtype, lo, hi, len(self._nodes)
            found.value = lo if op == "const" else None
            self._nodes[key] = found
        return found

    def _arithmetic(self, op: str, a: Expr, b: Expr, lo: int, hi: int, within: tuple[int, int] | None) -> Expr:
        if within is not None:
            least, most = within
            lo, hi = least if least > lo else lo, most if most < hi else hi
            if lo > hi:  # no value is ever used: keep the node, with the interval the caller gave
                lo, hi = within
        if lo == hi:
            return self.const(lo)
        for rule in APPLICABLE[op, a.op, b.op]:
            better = rule(self, (a, b))
            if better is not None:
                return self.narrow(better, lo, hi)
        if a.dtype is U32 and b.dtype is U32 and lo >= 0 and hi <= U32.hi:  # as `fit` would find
            return self.node(op, (a, b), None, U32, lo, hi)
        dtype = fit(min(lo, a.lo, b.lo), max(hi, a.hi, b.hi))
        return self.node(op, (self.cast(a, dtype), self.cast(b, dtype)), None, dtype, lo, hi)

    def _compare(self, op: str, a: Expr, b: Expr) -> Expr:
        for rule in APPLICABLE[op, a.op, b.op]:
            better = rule(self, (a, b))
            if better is not None:
                return better
        if not a.dtype is b.dtype is U32:
            dtype = fit(min(a.lo, b.lo), max(a.hi, b.hi))
            a, b = self.cast(a, dtype), self.cast(b, dtype)
        return self.node(op, (a, b), None, PRED, 0, 1)

    def _build(self, shape: Shape, args: tuple[Expr, ...], dtype: Dtype, lo: int, hi: int) -> Expr:
        """`shape` is the operation, and those of its operands."""
        for rule in APPLICABLE[shape]:
            better = rule(self, args)
            if better is not None:
                return better
        return self.node(shape[0], args, None, dtype, lo, hi)

    def rebuild(self, op: str, args: tuple[Expr, ...], original: Expr) -> Expr:
        """`original`'s operation on new operands, keeping its type and what is known of its interval."""
        if args == original.args:
            return original
        return self.node(op, args, original.attr, original.dtype, original.lo, original.hi)
