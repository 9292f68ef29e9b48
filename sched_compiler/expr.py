"""The expression layer of the IR: an immutable, hash-consed DAG of integer operations.

Every node has a machine type and an interval that holds its value. The operation of a node is defined on its
machine type, wrap-around included, so that the evaluator and the printers need no rules of their own:

===========  ==========================================================================================
const, var   a literal (``attr``), a named input (``attr``)
add sub mul  modulo 2^bits
div mod      floor division and its remainder; the divisor is at least 1
min max      of two values
lt le eq ne  comparison, giving ``pred``
and or xor   on ``pred``
not          on ``pred``
select       ``args[0] ? args[1] : args[2]``; both arms are evaluated
cast         to ``dtype``, modulo 2^bits
mulhi        upper half of the full unsigned product
shr          right shift by a constant: logical for unsigned types, arithmetic for signed ones
band         bitwise and of unsigned values
===========  ==========================================================================================

A node's interval may be narrower than its operands imply (``within``): the caller has shown that no other value is
ever *used*. In the arm of a ``select`` that is not taken such a node may hold anything, as it does on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Dtype:
    """A machine type. `pred` is a truth value."""

    name: str
    bits: int
    signed: bool
    lo: int
    hi: int


PRED = Dtype("pred", 1, False, 0, 1)
U32 = Dtype("u32", 32, False, 0, 2**32 - 1)
S32 = Dtype("s32", 32, True, -(2**31), 2**31 - 1)
U64 = Dtype("u64", 64, False, 0, 2**64 - 1)
S64 = Dtype("s64", 64, True, -(2**63), 2**63 - 1)

INT_TYPES = (U32, S32, U64, S64)


class RangeError(ArithmeticError):
    """A value's interval fits no machine type."""

    def __init__(self, lo: int, hi: int) -> None:
        self.lo, self.hi = lo, hi
        super().__init__(f"values from {lo} to {hi} fit no 64-bit type")


class DivisorError(ArithmeticError):
    """A divisor's interval holds zero or a negative value."""

    def __init__(self, lo: int, hi: int) -> None:
        self.lo, self.hi = lo, hi
        super().__init__(f"the divisor lies between {lo} and {hi}")


def fit(lo: int, hi: int) -> Dtype:
    """The cheapest type that holds every value from `lo` to `hi`: 32 bits before 64, unsigned before signed."""
    if lo >= 0:
        if hi <= U32.hi:
            return U32
        if hi <= U64.hi:
            return U64
    elif hi <= S32.hi and lo >= S32.lo:
        return S32
    elif hi <= S64.hi and lo >= S64.lo:
        return S64
    raise RangeError(lo, hi)


class Expr:
    """A node. Nodes of one `Graph` are equal exactly when they are the same object."""

    __slots__ = ("args", "attr", "dtype", "graph", "hi", "id", "lo", "op")

    def __init__(
        self,
        graph: Graph,
        op: str,
        args: tuple[Expr, ...],
        attr: int | str | None,
        dtype: Dtype,
        lo: int,
        hi: int,
        ident: int,
    ) -> None:
        self.graph, self.op, self.args, self.attr = graph, op, args, attr
        self.dtype, self.lo, self.hi, self.id = dtype, lo, hi, ident

    @property
    def value(self) -> int | None:
        """The literal's value, or None."""
        return self.lo if self.op == "const" else None

    def __add__(self, other: Expr | int) -> Expr:
        return self.graph.add(self, other)

    def __sub__(self, other: Expr | int) -> Expr:
        return self.graph.sub(self, other)

    def __mul__(self, other: Expr | int) -> Expr:
        return self.graph.mul(self, other)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return self.graph.div(self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return self.graph.mod(self, other)

    def __repr__(self) -> str:
        return f"<{to_text(self)}: {self.dtype.name} [{self.lo}, {self.hi}]>"


#: A rewrite at construction: the operands of an operation -> an equal, cheaper node, or None.
Rule: TypeAlias = "Callable[[Graph, tuple[Expr, ...]], Expr | None]"


class Graph:
    """Owns the nodes of one schedule and builds new ones, simplified and typed.

    Operands may be given as Python integers. Results that are the same computation are the same node.
    """

    def __init__(self) -> None:
        from sched_compiler.rewrite import SIMPLIFY  # the rules build nodes, so they import this module

        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._rules: dict[str, tuple[Rule, ...]] = SIMPLIFY

    # -- leaves -----------------------------------------------------------------------------------------------

    def const(self, value: int, dtype: Dtype | None = None) -> Expr:
        """A literal, by default of the cheapest type."""
        return self.node("const", (), value, dtype or fit(value, value), value, value)

    def var(self, name: str, lo: int, hi: int, dtype: Dtype | None = None) -> Expr:
        """An input between `lo` and `hi`, both included; a literal where there is no other value."""
        if lo == hi:
            return self.const(lo, dtype)
        return self.node("var", (), name, dtype or fit(lo, hi), lo, hi)

    def true(self) -> Expr:
        return self.node("const", (), 1, PRED, 1, 1)

    def false(self) -> Expr:
        return self.node("const", (), 0, PRED, 0, 0)

    def lift(self, value: Expr | int) -> Expr:
        return self.const(value) if isinstance(value, int) else value

    # -- arithmetic -------------------------------------------------------------------------------------------

    def add(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a, b = self.lift(a), self.lift(b)
        return self._arithmetic("add", a, b, a.lo + b.lo, a.hi + b.hi, within)

    def sub(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a, b = self.lift(a), self.lift(b)
        return self._arithmetic("sub", a, b, a.lo - b.hi, a.hi - b.lo, within)

    def mul(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        a, b = self.lift(a), self.lift(b)
        corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        return self._arithmetic("mul", a, b, min(corners), max(corners), within)

    def div(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        """Floor division. Raises DivisorError unless `b` is shown to be at least 1."""
        a, b = self.lift(a), self.lift(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        lo = a.lo // (b.hi if a.lo >= 0 else b.lo)
        hi = a.hi // (b.lo if a.hi >= 0 else b.hi)
        return self._arithmetic("div", a, b, lo, hi, within)

    def mod(self, a: Expr | int, b: Expr | int, within: tuple[int, int] | None = None) -> Expr:
        """Remainder of floor division, never negative. Raises DivisorError unless `b` is at least 1."""
        a, b = self.lift(a), self.lift(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        if a.lo >= 0 and a.hi < b.lo:
            return self.narrow(a, *within) if within else a
        if a.lo == a.hi and b.lo == b.hi:
            return self.const(a.lo % b.lo)
        hi = b.hi - 1 if a.lo < 0 else min(a.hi, b.hi - 1)
        return self._arithmetic("mod", a, b, 0, hi, within)

    def min(self, a: Expr | int, b: Expr | int) -> Expr:
        a, b = self.lift(a), self.lift(b)
        return self._arithmetic("min", a, b, min(a.lo, b.lo), min(a.hi, b.hi), None)

    def max(self, a: Expr | int, b: Expr | int) -> Expr:
        a, b = self.lift(a), self.lift(b)
        return self._arithmetic("max", a, b, max(a.lo, b.lo), max(a.hi, b.hi), None)

    def ceil_div(self, a: Expr | int, b: Expr | int) -> Expr:
        """Ceiling of a / b. Raises DivisorError unless `b` is shown to be at least 1."""
        a, b = self.lift(a), self.lift(b)
        if b.lo < 1:
            raise DivisorError(b.lo, b.hi)
        lo = -(-a.lo // (b.lo if a.lo < 0 else b.hi))
        hi = -(-a.hi // (b.hi if a.hi < 0 else b.lo))
        return self.div(a + (b - 1), b, within=(lo, hi))

    def narrow(self, e: Expr, lo: int, hi: int) -> Expr:
        """The same value, known to lie between `lo` and `hi`."""
        lo, hi = max(lo, e.lo), min(hi, e.hi)
        if (lo == e.lo and hi == e.hi) or lo > hi:
            return e
        if lo == hi:
            return self.const(lo)
        return self.node(e.op, e.args, e.attr, e.dtype, lo, hi)

    # -- truth ------------------------------------------------------------------------------------------------

    def lt(self, a: Expr | int, b: Expr | int) -> Expr:
        a, b = self.lift(a), self.lift(b)
        if a.hi < b.lo:
            return self.true()
        if a.lo >= b.hi:
            return self.false()
        return self._compare("lt", a, b)

    def le(self, a: Expr | int, b: Expr | int) -> Expr:
        a, b = self.lift(a), self.lift(b)
        if a.hi <= b.lo:
            return self.true()
        if a.lo > b.hi:
            return self.false()
        return self._compare("le", a, b)

    def eq(self, a: Expr | int, b: Expr | int) -> Expr:
        a, b = self.lift(a), self.lift(b)
        if a.hi < b.lo or b.hi < a.lo:
            return self.false()
        if a.lo == a.hi == b.lo == b.hi:
            return self.true()
        return self._compare("eq", a, b)

    def ne(self, a: Expr | int, b: Expr | int) -> Expr:
        return self.logical_not(self.eq(a, b))

    def logical_and(self, a: Expr, b: Expr) -> Expr:
        return self._build("and", (a, b), PRED, 0, 1)

    def logical_or(self, a: Expr, b: Expr) -> Expr:
        return self._build("or", (a, b), PRED, 0, 1)

    def logical_xor(self, a: Expr, b: Expr) -> Expr:
        """Whether one of two conditions holds, but not both."""
        return self._build("xor", (a, b), PRED, 0, 1)

    def logical_not(self, a: Expr) -> Expr:
        return self._build("not", (a,), PRED, 0, 1)

    def select(self, condition: Expr, a: Expr | int, b: Expr | int) -> Expr:
        """`a` where the condition holds, else `b`."""
        a, b = self.lift(a), self.lift(b)
        if condition.op == "const":
            return a if condition.lo else b
        if a is b:
            return a
        lo, hi = min(a.lo, b.lo), max(a.hi, b.hi)
        if a.dtype is PRED:
            return self._build("select", (condition, a, b), PRED, lo, hi)
        dtype = fit(lo, hi)
        return self._build("select", (condition, self.cast(a, dtype), self.cast(b, dtype)), dtype, lo, hi)

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

    def shr(self, a: Expr, count: int) -> Expr:
        """Floor division by 2^count, 0 <= count < bits."""
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

    # -- construction -----------------------------------------------------------------------------------------

    def node(self, op: str, args: tuple[Expr, ...], attr: int | str | None, dtype: Dtype, lo: int, hi: int) -> Expr:
        """The one node with these contents; no simplification."""
        key = (op, args, attr, dtype.name, lo, hi)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Expr(self, op, args, attr, dtype, lo, hi, len(self._nodes))
        return found

    def _arithmetic(self, op: str, a: Expr, b: Expr, lo: int, hi: int, within: tuple[int, int] | None) -> Expr:
        if within is not None:
            lo, hi = max(lo, within[0]), min(hi, within[1])
            if lo > hi:  # no value is ever used: keep the node, with the interval the caller gave
                lo, hi = within
        if lo == hi:
            return self.const(lo)
        for rule in self._rules.get(op, ()):
            better = rule(self, (a, b))
            if better is not None:
                return self.narrow(better, lo, hi)
        dtype = fit(min(lo, a.lo, b.lo), max(hi, a.hi, b.hi))
        return self.node(op, (self.cast(a, dtype), self.cast(b, dtype)), None, dtype, lo, hi)

    def _compare(self, op: str, a: Expr, b: Expr) -> Expr:
        for rule in self._rules.get(op, ()):
            better = rule(self, (a, b))
            if better is not None:
                return better
        dtype = fit(min(a.lo, b.lo), max(a.hi, b.hi))
        return self.node(op, (self.cast(a, dtype), self.cast(b, dtype)), None, PRED, 0, 1)

    def _build(self, op: str, args: tuple[Expr, ...], dtype: Dtype, lo: int, hi: int) -> Expr:
        for rule in self._rules.get(op, ()):
            better = rule(self, args)
            if better is not None:
                return better
        return self.node(op, args, None, dtype, lo, hi)

    def rebuild(self, op: str, args: tuple[Expr, ...], original: Expr) -> Expr:
        """`original`'s operation on new operands, keeping its type and what is known of its interval."""
        if args == original.args:
            return original
        return self.node(op, args, original.attr, original.dtype, original.lo, original.hi)


def may_wrap(node: Expr) -> bool:
    """Whether an add, sub or mul may leave its type, by the intervals of its operands.

    Where it does, no value that it then has is used (see the module's docstring).
    """
    a, b = node.args
    if node.op == "add":
        lo, hi = a.lo + b.lo, a.hi + b.hi
    elif node.op == "sub":
        lo, hi = a.lo - b.hi, a.hi - b.lo
    else:
        corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        lo, hi = min(corners), max(corners)
    return lo < node.dtype.lo or hi > node.dtype.hi


def topological(roots: Iterable[Expr], known: Container[int] = ()) -> list[Expr]:
    """Every node that `roots` need, operands first, each once; not looking below nodes whose id is `known`."""
    order: list[Expr] = []
    seen: set[int] = set()
    stack: list[Expr | None] = []  # a node after None is one whose operands are done
    for root in roots:
        stack.append(root)
        while stack:
            node = stack.pop()
            if node is None:
                done = stack.pop()
                assert done is not None
                order.append(done)
            elif node.id not in seen:
                seen.add(node.id)
                if not node.args or node.id in known:
                    order.append(node)
                else:
                    stack += (node, None)
                    stack += [a for a in node.args if a.id not in seen]
    return order


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "lt": "<", "le": "<=", "eq": "==",
    "and": "and", "or": "or", "shr": ">>", "band": "&",
}  # fmt: skip


def to_text(e: Expr) -> str:
    """The expression in the language of specs; casts are left out, parentheses inside are complete."""
    return _written([e], frozenset())[1][0]


def equations(roots: Sequence[Expr]) -> tuple[dict[str, str], list[str]]:
    """`roots` in the language of specs, and the definitions of what they use more than once: $0, $1, ..."""
    uses: dict[int, int] = {}
    for node in topological(roots):
        if node.op == "cast":
            continue
        for arg in node.args:
            arg = _uncast(arg)
            uses[arg.id] = uses.get(arg.id, 0) + 1
    return _written(roots, frozenset(k for k, n in uses.items() if n > 1))


def _uncast(e: Expr) -> Expr:
    while e.op == "cast":
        e = e.args[0]
    return e


def _written(roots: Sequence[Expr], named: frozenset[int]) -> tuple[dict[str, str], list[str]]:
    definitions: dict[str, str] = {}
    operands: dict[int, str] = {}
    alone: dict[int, str] = {}
    for node in topological(roots):
        args = [operands[a.id] for a in node.args]
        if node.op == "cast":
            operands[node.id], alone[node.id] = args[0], alone[node.args[0].id]
            continue
        text = _operation_text(node, args)
        if node.id in named and node.args:
            name = f"${len(definitions)}"
            definitions[name] = text
            operands[node.id] = alone[node.id] = name
        else:
            simple = not node.args or node.op in ("min", "max", "mulhi")
            operands[node.id], alone[node.id] = text if simple else f"({text})", text
    return definitions, [alone[root.id] for root in roots]


def _operation_text(node: Expr, args: list[str]) -> str:
    if node.op == "const":
        return str(node.attr) if node.dtype is not PRED else str(bool(node.attr)).lower()
    if node.op == "var":
        return str(node.attr)
    if node.op in _INFIX:
        return f"{args[0]} {_INFIX[node.op]} {args[1]}"
    if node.op == "select":
        return f"{args[1]} if {args[0]} else {args[2]}"
    if node.op == "xor":
        return f"not {args[1]} if {args[0]} else {args[1]}"
    return f"not {args[0]}" if node.op == "not" else f"{node.op}({', '.join(args)})"
