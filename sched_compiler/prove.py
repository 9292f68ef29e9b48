"""Small proofs about expressions, for all values of the parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod

from sched_compiler.expr import Expr, RangeError
from sched_compiler.schedule import Parameter


def _factor(e: Expr) -> tuple[Expr, int]:
    """(x, c) with e = x * c, c a positive literal."""
    if e.op == "cast":
        return _factor(e.args[0])
    if e.op == "mul" and e.args[1].value is not None and e.args[1].value > 0:
        inner, c = _factor(e.args[0])
        return inner, c * e.args[1].value
    return e, 1


def _quotient(e: Expr) -> tuple[Expr, int]:
    """(u, n) with e = u // n, n a literal."""
    if e.op == "div" and e.args[1].value is not None:
        return e.args[0], e.args[1].value
    return e, 1


def at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b is shown for all values: by interval, by a common factor, or because b bounds a's minimum."""
    if a is b or a.hi <= b.lo:
        return True
    if a.op == "sub" and a.args[0] is b and a.args[1].lo >= 0:
        return True
    if a.op in ("min", "max"):
        return (any if a.op == "min" else all)(at_most(arg, b) for arg in a.args)
    if b.op in ("min", "max"):
        return (all if b.op == "min" else any)(at_most(a, arg) for arg in b.args)
    (x, c), (y, d) = _factor(a), _factor(b)
    common = gcd(c, d)
    c, d = c // common, d // common
    (u, n), (v, m) = _quotient(x), _quotient(y)
    if u is v and u.lo >= 0 and n % m == 0 and c <= n // m * d:  # u // n * (n // m) <= u // m
        return True
    try:
        return (y * d - x * c).lo >= 0
    except RangeError:
        return False


def assignments(params: Sequence[Parameter]) -> int:
    """How many combinations of parameter values there are."""
    return prod(p.var.hi - p.var.lo + 1 for p in params)


def all_values(params: Sequence[Parameter]) -> Iterator[dict[str, int]]:
    """Every combination of parameter values, smallest first."""
    for values in itertools.product(*(range(p.var.lo, p.var.hi + 1) for p in params)):
        yield {p.name: v for p, v in zip(params, values, strict=True)}


def small_values(params: Sequence[Parameter], most: int) -> Iterator[dict[str, int]]:
    """At most about `most` combinations: the smallest values of each range first, then its upper end."""
    if not params:
        yield {}
        return
    each = max(2, int(most ** (1 / len(params))))
    ranges = []
    for p in params:
        low = list(range(p.var.lo, min(p.var.hi, p.var.lo + each - 2) + 1))
        ranges.append([*low, p.var.hi] if p.var.hi not in low else low)
    choices = sorted(itertools.product(*(range(len(r)) for r in ranges)), key=lambda c: (sum(c), c))
    for choice in choices:
        yield {p.name: r[k] for p, r, k in zip(params, ranges, choice, strict=True)}
