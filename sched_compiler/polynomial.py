"""Polynomials with integer coefficients over named atoms, and how they are written in SMT-LIB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

#: The atoms of a product, sorted; () is 1.
Monomial: TypeAlias = tuple[str, ...]
#: Monomials with coefficients that are not zero.
Polynomial: TypeAlias = Mapping[Monomial, int]


def constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def atom(name: str) -> Polynomial:
    return {(name,): 1}


def add(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """a + factor * b"""
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, 0) + factor * c
    return {monomial: c for monomial, c in total.items() if c}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    total: dict[Monomial, int] = {}
    for m, c in a.items():
        for n, d in b.items():
            product = tuple(sorted(m + n))
            total[product] = total.get(product, 0) + c * d
    return {monomial: c for monomial, c in total.items() if c}


def single(a: Polynomial) -> tuple[Monomial, int] | None:
    """The only monomial and its coefficient."""
    return next(iter(a.items())) if len(a) == 1 else None


def common(a: Monomial, b: Monomial) -> Monomial:
    """The greatest common divisor."""
    return tuple(sorted((Counter(a) & Counter(b)).elements()))


def divided(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, if that is a monomial."""
    left = Counter(a)
    left.subtract(Counter(b))
    return tuple(sorted(left.elements())) if min(left.values(), default=0) >= 0 else None


def number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


def name(monomial: Monomial) -> str:
    """The variable that stands for a product, quoted."""
    return f"|{'*'.join(monomial)}|" if monomial else "1"


def text(a: Polynomial) -> str:
    """A sum of literals times variables, one for each product."""
    terms = [
        number(c) if not monomial else name(monomial) if c == 1 else f"(* {number(c)} {name(monomial)})"
        for monomial, c in sorted(a.items())
    ]
    return "0" if not terms else terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"
