"""Nodes of the expression layer: machine types, order, text. What the operations mean is told in `expr.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sched_compiler.expr import Graph


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
    """A node. Nodes of one `Graph` are equal exactly when they are the same object.

    `Graph.node` alone makes them, and fills them in: there are hundreds in a schedule, and a constructor is slow.
    """

    __slots__ = ("args", "attr", "dtype", "graph", "hi", "id", "lo", "op", "value")

    graph: Graph
    op: str
    args: tuple[Expr, ...]
    attr: int | str | None
    dtype: Dtype
    lo: int
    hi: int
    id: int
    value: int | None  # the literal's value, or None

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
    seen: set[Expr] = set()
    below: list[Expr] = []  # nodes whose operands are being listed
    left = [iter(roots)]  # what is to be listed before each of them, and then
    while left:
        for node in left[-1]:
            if node not in seen:
                seen.add(node)
                if node.args and node.id not in known:
                    below.append(node)
                    left.append(reversed(node.args))
                    break
                order.append(node)
        else:
            left.pop()
            if below:
                order.append(below.pop())
    return order


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "fdiv": "//", "mod": "%", "lt": "<", "le": "<=", "eq": "==",
    "and": "and", "or": "or", "shr": ">>", "band": "&", "bor": "|", "bxor": "^",
}  # fmt: skip


def to_text(e: Expr) -> str:
    """The expression in the language of specs; casts are left out, parentheses inside are complete."""
    return _written([e], topological([e]), frozenset())[1][0]


def equations(roots: Sequence[Expr]) -> tuple[dict[str, str], list[str]]:
    """`roots` in the language of specs, and the definitions of what they use more than once: $0, $1, ..."""
    order = topological(roots)
    uses = Counter(_uncast(arg) for node in order if node.op != "cast" for arg in node.args)
    return _written(roots, order, {node for node, n in uses.items() if n > 1})


def _uncast(e: Expr) -> Expr:
    while e.op == "cast":
        e = e.args[0]
    return e


def _written(roots: Sequence[Expr], order: Iterable[Expr], named: Set[Expr]) -> tuple[dict[str, str], list[str]]:
    definitions: dict[str, str] = {}
    operands: dict[Expr, str] = {}
    alone: dict[Expr, str] = {}
    for node in order:
        args = list(map(operands.__getitem__, node.args))
        if node.op == "cast":
            operands[node], alone[node] = args[0], alone[node.args[0]]
            continue
        text = _operation_text(node, args)
        if node in named and node.args:
            name = f"${len(definitions)}"
            definitions[name] = text
            operands[node] = alone[node] = name
        else:
            simple = not node.args or node.op in ("min", "max", "mulhi", "madhi", "recip", "neg", "log2")
            operands[node], alone[node] = text if simple else f"({text})", text
    return definitions, [alone[root] for root in roots]


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
    if node.op == "load":
        element = f"{node.attr}[{args[0]}]"
        return element if node.args[1].value == 1 else f"{element} if {args[1]} else 0"
    return f"not {args[0]}" if node.op == "not" else f"{node.op}({', '.join(args)})"
