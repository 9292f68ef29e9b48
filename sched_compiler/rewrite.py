"""Rewrite rules: what is simplified while an expression is built.

`Graph` applies the rules of `SIMPLIFY` to every node that it makes. Each rule keeps the value of the node wherever it
is used, and is tested against brute force. What a rule says that it `acts_on` spares the others a look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from sched_compiler.node import U64, Expr, Rule, may_wrap

if TYPE_CHECKING:
    from sched_compiler.expr import Graph

# -- simplification at construction ---------------------------------------------------------------------------

#: The operations that the operands of a node have, in order; in a pattern "" stands for any.
Shape: TypeAlias = tuple[str, ...]
_PATTERNS: dict[Rule, tuple[Shape, ...]] = {}


def acts_on(*patterns: Shape) -> Callable[[Rule], Rule]:
    """Says the only shapes on which a rule can act, so that it is asked nowhere else."""

    def declared(rule: Rule) -> Rule:
        _PATTERNS[rule] = patterns
        return rule

    return declared


def _fits(shape: Shape, pattern: Shape) -> bool:
    """Whether operands may have what a pattern asks; under a cast there may be anything."""
    return all(asked in ("", op) or op == "cast" for op, asked in zip(shape, pattern, strict=True))


class Applicable(dict[Shape, tuple[Rule, ...]]):
    """The rules that may act on a node, by its operation and those of its operands; worked out when first asked."""

    def __missing__(self, key: Shape) -> tuple[Rule, ...]:
        op, *operands = key
        shape = tuple(operands)
        found = []
        for rule in SIMPLIFY.get(op, ()):
            patterns = _PATTERNS.get(rule)
            if patterns is None or any(_fits(shape, pattern) for pattern in patterns):
                found.append(rule)
        self[key] = tuple(found)
        return self[key]


APPLICABLE = Applicable()


def peel(e: Expr) -> Expr:
    """The node under casts that keep its value."""
    while e.op == "cast" and e.args[0].lo >= e.dtype.lo and e.args[0].hi <= e.dtype.hi:
        e = e.args[0]
    return e


def constant_on_the_right(op: str) -> Rule:
    """3 + x -> x + 3"""

    @acts_on(("const", ""))
    def rule(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
        a, b = args
        if a.op == "const" and b.op != "const":
            return g.add(b, a) if op == "add" else g.mul(b, a)
        return None

    return rule


@acts_on(("", "const"))
def add_zero(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x + 0 -> x"""
    a, b = args
    return a if b.value == 0 else None


@acts_on(("", "const"))
def sub_zero(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x - 0 -> x"""
    a, b = args
    return a if b.value == 0 else None


def sub_self(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x - x -> 0"""
    return g.const(0) if peel(args[0]) is peel(args[1]) else None


@acts_on(("add", "const"))
def add_constants(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(x + 3) + 4 -> x + 7"""
    a, b = peel(args[0]), args[1]
    if b.value is not None and a.op == "add" and a.args[1].value is not None and not may_wrap(a):
        return g.add(peel(a.args[0]), b.value + a.args[1].value)
    return None


@acts_on(("add", "const"))
def sub_constants(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(x + 7) - 4 -> x + 3"""
    a, b = peel(args[0]), args[1]
    if b.value is not None and a.op == "add" and a.args[1].value is not None and not may_wrap(a):
        rest = a.args[1].value - b.value
        x = peel(a.args[0])
        return g.add(x, rest) if rest >= 0 else g.sub(x, -rest)
    return None


@acts_on(("", "mul"))
def sub_whole_multiples(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x - x // d * d -> x % d"""
    x, product = peel(args[0]), peel(args[1])
    if product.op == "mul" and not may_wrap(product):
        quotient, d = peel(product.args[0]), peel(product.args[1])
        if quotient.op == "div":
            divisor = peel(quotient.args[1])
            same = divisor is d or (d.value is not None and divisor.value == d.value)
            if same and peel(quotient.args[0]) is x:
                return g.mod(x, d)
    return None


@acts_on(("mul", "const"))
def mul_constants(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x * 3 * 4 -> x * 12"""
    a, b = peel(args[0]), args[1]
    if b.value is not None and b.value > 0 and a.op == "mul" and a.args[1].value is not None and not may_wrap(a):
        return g.mul(peel(a.args[0]), a.args[1].value * b.value)
    return None


@acts_on(("", "const"))
def mul_one(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x * 1 -> x"""
    a, b = args
    return a if b.value == 1 else None


@acts_on(("", "const"))
def div_one(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x // 1 -> x"""
    a, b = args
    return a if b.value == 1 else None


def multiple_of(e: Expr, d: Expr) -> Expr | None:
    """q where e is q * d without wrapping, else None."""
    e, d = peel(e), peel(d)
    if e.op == "mul" and not may_wrap(e):
        x, y = peel(e.args[0]), peel(e.args[1])
        if y is d:
            return x
        if x is d:
            return y
        if y.value is not None and d.value is not None and y.value % d.value == 0:
            return e.graph.mul(x, y.value // d.value)
    return None


@acts_on(("mul", ""))
def div_of_multiple(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x * 12 // 4 -> x * 3, and x * d // d -> x"""
    return multiple_of(args[0], args[1])


@acts_on(("add", ""))
def div_of_sum(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(q * d + r) // d -> q + r // d"""
    a, d = peel(args[0]), args[1]
    if a.op == "add" and not may_wrap(a):
        q = multiple_of(a.args[0], d)
        if q is not None:
            return g.add(q, g.div(peel(a.args[1]), d))
    return None


def _multiple_of_part(a: Expr, d: Expr) -> tuple[Expr, int, Expr] | None:
    """(q, c, r) where a is q * c + r without wrapping, c divides d and r lies between 0 and c, else None."""
    if d.value is None or a.op != "add" or may_wrap(a):
        return None
    product, r = peel(a.args[0]), peel(a.args[1])
    if product.op != "mul" or may_wrap(product) or product.args[1].value is None:
        return None
    c = product.args[1].value
    if c < 1 or d.value % c or d.value == c or r.lo < 0 or r.hi >= c:
        return None
    return peel(product.args[0]), c, r


@acts_on(("add", "const"))
def div_of_digits(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(q * 4 + r) // 12 -> q // 3 for r below 4"""
    found = _multiple_of_part(peel(args[0]), args[1])
    if found is None or args[1].value is None:
        return None
    q, c, _ = found
    return g.div(q, args[1].value // c)


@acts_on(("add", "const"))
def mod_of_digits(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(q * 4 + r) % 12 -> q % 3 * 4 + r for r below 4"""
    found = _multiple_of_part(peel(args[0]), args[1])
    if found is None or args[1].value is None:
        return None
    q, c, r = found
    return g.add(g.mul(g.mod(q, args[1].value // c), c), r)


@acts_on(("div", "const"))
def div_of_div(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x // 3 // 4 -> x // 12"""
    a, d = peel(args[0]), args[1]
    if d.value is not None and a.op == "div" and a.args[1].value is not None:
        product = a.args[1].value * d.value
        if product <= U64.hi:
            return g.div(peel(a.args[0]), product)
    return None


@acts_on(("mul", ""), ("add", ""))
def mod_of_sum(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(q * d + r) % d -> r % d, and q * d % d -> 0"""
    a, d = peel(args[0]), args[1]
    if multiple_of(a, d) is not None:
        return g.const(0)
    if a.op == "add" and not may_wrap(a) and multiple_of(a.args[0], d) is not None:
        return g.mod(peel(a.args[1]), d)
    return None


@acts_on(("mod", "const"))
def mod_of_mod(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x % 12 % 4 -> x % 4"""
    a, d = peel(args[0]), args[1]
    if d.value is not None and a.op == "mod" and a.args[1].value is not None and a.args[1].value % d.value == 0:
        return g.mod(peel(a.args[0]), d)
    return None


def _within(e: Expr, d: Expr) -> bool:
    """Whether e is a remainder that d exceeds: of d itself, or of what d is a multiple of."""
    if e.op != "mod":
        return False
    of = peel(e.args[1])
    return of is d or multiple_of(d, of) is not None


@acts_on(("mod", ""))
def div_of_mod(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x % d // d -> 0, and the same by a multiple of d"""
    return g.const(0) if _within(peel(args[0]), peel(args[1])) else None


@acts_on(("mod", ""))
def mod_of_smaller_mod(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x % d % d -> x % d, and the same by a multiple of d"""
    a = peel(args[0])
    return a if _within(a, peel(args[1])) else None


def leaves(e: Expr) -> int:
    """How many literals a tree of selects chooses from; 0 if it is anything else."""
    if e.op == "const":
        return 1
    e = peel(e)
    if e.op != "select":
        return 0
    then = leaves(e.args[1])
    otherwise = leaves(e.args[2]) if then else 0
    return then + otherwise if otherwise else 0


#: A choice between more literals than this is computed once instead of everything that follows from it many times.
MOST_LEAVES = 8


def choose_among_results(op: str) -> Rule:
    """(4 if c else 3) * 5 -> (20 if c else 15): divisors stay literals"""

    @acts_on(("select", ""), ("", "select"))
    def rule(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
        a, b = peel(args[0]), peel(args[1])
        many = leaves(a)
        if not many or not 1 < many * leaves(b) <= MOST_LEAVES:
            return None
        build = getattr(g, op)
        if a.op == "select":
            return g.select(a.args[0], build(peel(a.args[1]), b), build(peel(a.args[2]), b))
        return g.select(b.args[0], build(a, peel(b.args[1])), build(a, peel(b.args[2])))

    return rule


def min_by_interval(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """min(x, y) -> x where x never exceeds y"""
    a, b = args
    if a.hi <= b.lo or a is b:
        return a
    return b if b.hi <= a.lo else None


def max_by_interval(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """max(x, y) -> y where x never exceeds y"""
    a, b = args
    if a.hi <= b.lo or a is b:
        return b
    return a if b.hi <= a.lo else None


def compare_self(truth: bool) -> Rule:
    """x < x -> false, x <= x -> true, x == x -> true"""

    def rule(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
        if peel(args[0]) is peel(args[1]):
            return g.true() if truth else g.false()
        return None

    return rule


def and_or_constant(op: str) -> Rule:
    """x and true -> x, x and false -> false, x or true -> true, x or false -> x, x and x -> x"""

    def rule(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
        neutral = 1 if op == "and" else 0
        for a, b in (args, args[::-1]):
            if a.op == "const":
                return b if a.lo == neutral else a
        return args[0] if args[0] is args[1] else None

    return rule


def xor_constant(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """x xor false -> x, x xor true -> not x, x xor x -> false"""
    for a, b in (args, args[::-1]):
        if a.op == "const":
            return g.logical_not(b) if a.lo else b
    return g.false() if args[0] is args[1] else None


def not_not(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """not not x -> x, and not of a constant"""
    a = args[0]
    if a.op == "const":
        return g.false() if a.lo else g.true()
    return a.args[0] if a.op == "not" else None


@acts_on(("not", "", ""))
def select_of_not(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(a if not c else b) -> (b if c else a)"""
    c, a, b = args
    return g.select(c.args[0], b, a) if c.op == "not" else None


@acts_on(("", "select", ""), ("", "", "select"))
def select_of_select(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """((a if c else x) if c else b) -> (a if c else b), and the same on the other side"""
    c, a, b = args
    if a.op == "select" and a.args[0] is c:
        return g.select(c, a.args[1], b)
    if b.op == "select" and b.args[0] is c:
        return g.select(c, a, b.args[2])
    return None


@acts_on(("", "const", "const"))
def select_of_truths(g: Graph, args: tuple[Expr, ...]) -> Expr | None:
    """(true if c else false) -> c, (false if c else true) -> not c"""
    c, a, b = args
    if a.op == b.op == "const" and a.dtype is c.dtype:
        return c if a.lo else g.logical_not(c)
    return None


SIMPLIFY: dict[str, tuple[Rule, ...]] = {
    "add": (constant_on_the_right("add"), add_zero, add_constants, choose_among_results("add")),
    "sub": (sub_zero, sub_self, sub_constants, sub_whole_multiples, choose_among_results("sub")),
    "mul": (constant_on_the_right("mul"), mul_one, mul_constants, choose_among_results("mul")),
    "div": (
        div_one,
        div_of_multiple,
        div_of_sum,
        div_of_digits,
        div_of_div,
        div_of_mod,
        choose_among_results("div"),
    ),
    "mod": (mod_of_sum, mod_of_digits, mod_of_mod, mod_of_smaller_mod, choose_among_results("mod")),
    "min": (min_by_interval,),
    "max": (max_by_interval,),
    "lt": (compare_self(False),),
    "le": (compare_self(True),),
    "eq": (compare_self(True),),
    "and": (and_or_constant("and"),),
    "or": (and_or_constant("or"),),
    "xor": (xor_constant,),
    "not": (not_not,),
    "select": (select_of_not, select_of_select, select_of_truths),
}
