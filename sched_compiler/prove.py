"""Small proofs about expressions, for all values of the parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod

from sched_compiler.expr import Expr, RangeError, may_wrap, topological
from sched_compiler.schedule import Parameter

#: Combinations of parameter values that are searched for a counterexample where there are too many to try.
PROBES = 2_000


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


def _add_terms(e: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Add `factor` times `e` to a sum of nodes times literals; the literal that is left over."""
    if e.value is not None:
        return e.value * factor
    if e.op == "cast" and e.dtype.lo <= e.args[0].lo and e.args[0].hi <= e.dtype.hi:
        return _add_terms(e.args[0], factor, terms)
    if e.op in ("add", "sub") and not may_wrap(e):
        a, b = e.args
        return _add_terms(a, factor, terms) + _add_terms(b, factor if e.op == "add" else -factor, terms)
    if e.op == "mul" and e.args[1].value is not None and not may_wrap(e):
        return _add_terms(e.args[0], factor * e.args[1].value, terms)
    terms[e] = terms.get(e, 0) + factor
    return 0


def _sum_at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b is shown once what both have in common has been taken away."""
    terms: dict[Expr, int] = {}
    least = _add_terms(b, 1, terms) + _add_terms(a, -1, terms)
    return least + sum(factor * (e.lo if factor > 0 else e.hi) for e, factor in terms.items()) >= 0


def at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b is shown for all values: by interval, common factors or summands, or a minimum's bound."""
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
        if (y * d - x * c).lo >= 0:
            return True
    except RangeError:
        pass
    return _sum_at_most(a, b)


def assignments(params: Sequence[Parameter]) -> int:
    """How many combinations of parameter values there are."""
    return prod(p.var.hi - p.var.lo + 1 for p in params)


def all_values(params: Sequence[Parameter]) -> Iterator[dict[str, int]]:
    """Every combination of parameter values, smallest first."""
    for values in itertools.product(*(range(p.var.lo, p.var.hi + 1) for p in params)):
        yield {p.name: v for p, v in zip(params, values, strict=True)}


def at_values(values: Mapping[str, int]) -> str:
    """The parameter values of a counterexample, in words."""
    return " at " + ", ".join(f"{k}={v}" for k, v in values.items()) if values else ""


def breaks_multiple(e: Expr, of: int, params: Sequence[Parameter]) -> str | None:
    """The first of small parameter values at which `e` is no multiple of `of`, and its value there; None if none is."""
    import numpy as np  # only when something is wrong

    from sched_compiler.evaluate import evaluate

    used = topological([e])
    params = [p for p in params if p.var in used]
    values = list(small_values(params, PROBES))
    inputs = {p.name: np.array([v[p.name] for v in values]) for p in params}
    found = np.broadcast_to(evaluate([e], inputs)[0], len(values))
    wrong = np.flatnonzero(found.astype(object) % of)
    return f"{int(found[wrong[0]])}{at_values(values[wrong[0]])}" if wrong.size else None


def small_values(params: Sequence[Parameter], most: int) -> Iterator[dict[str, int]]:
    """At most `most` combinations: the smallest values of each range first, then its upper end."""
    if not params:
        yield {}
        return
    each = 2
    while (each + 1) ** len(params) <= most:
        each += 1
    ranges = []
    for p in params:
        low = list(range(p.var.lo, min(p.var.hi, p.var.lo + each - 2) + 1))
        ranges.append([*low, p.var.hi] if p.var.hi not in low else low)
    choices = sorted(itertools.product(*(range(len(r)) for r in ranges)), key=lambda c: (sum(c), c))
    if len(choices) > most:  # two values of each of many parameters
        choices = [*choices[: most - 1], choices[-1]]
    for choice in choices:
        yield {p.name: r[k] for p, r, k in zip(params, ranges, choice, strict=True)}
