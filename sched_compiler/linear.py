"""Expressions as linear integer arithmetic in SMT-LIB, for proofs about all values of run-time parameters.

Every node becomes a polynomial over atoms: inputs, quotients and remainders (`x = q * d + r, 0 <= r < d`), and choices.
Each *product* of atoms is a variable of its own, of which only the facts are told that proofs about index maps use:
how two products with a common factor compare, and what a product is where one of its factors is a known sum. That
weakens what is assumed, so what follows from it is true; and it can be decided, which products in general cannot.

Intervals are taken at their word, so nodes must not be narrowed to what is used of them (`within`); formulas of specs,
as translated, are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from sched_compiler.expr import PRED, Expr, topological
from sched_compiler.polynomial import (
    Monomial,
    Polynomial,
    add,
    atom,
    common,
    constant,
    divided,
    multiply,
    name,
    single,
    text,
)
from sched_compiler.rewrite import peel

#: Products of more atoms than this are told nothing of; sums of more terms are atoms of their own.
MOST_FACTORS, MOST_TERMS = 5, 12
#: Products of which facts are told, and comparisons of two of them.
MOST_PRODUCTS, MOST_COMPARISONS = 60, 3_000

_OPERATORS = {
    "lt": "<", "le": "<=", "eq": "=", "and": "and", "or": "or", "xor": "xor", "not": "not", "select": "ite",
}  # fmt: skip

#: A number's polynomial, or a condition's variable.
Value = Polynomial | str
Divisor = tuple[Monomial, int]
_Key = tuple[object, ...]


def _frozen(a: Polynomial) -> frozenset[tuple[Monomial, int]]:
    return frozenset(a.items())


def _number(a: Value) -> Polynomial:
    assert not isinstance(a, str)
    return a


def _quotient(a: Divisor, b: Divisor) -> Divisor | None:
    """a / b, if it is whole."""
    rest = divided(a[0], b[0])
    return None if rest is None or a[1] % b[1] else (rest, a[1] // b[1])


@dataclass
class Atoms:
    """Names by content, which are the same in every encoding; and what divides what, found while encoding."""

    names: dict[_Key, str] = field(default_factory=dict)
    divisors: dict[_Key, set[Divisor]] = field(default_factory=dict)

    def name(self, kind: str, *content: object) -> str:
        return self.names.setdefault((kind, *content), f"${kind}{len(self.names)}")


class Encoding:
    """The facts about some expressions, for one or more values of the index."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.facts: list[str] = []
        self._conditions: dict[str, None] = {}
        self._integers: dict[str, None] = {}
        self._nonneg: set[str] = set()
        self._terms: dict[Monomial, set[int]] = {}  # products, and the coefficients they are used with
        self._known: set[str] = set()  # atoms that are defined
        self._below: dict[str, Divisor] = {}
        self._remainder_of: dict[str, tuple[Polynomial, Divisor]] = {}
        self._divisions: list[tuple[Polynomial, Polynomial]] = []
        #: atom or product -> what it is, and the condition under which it is that
        self._sums: list[tuple[Monomial, Polynomial, str]] = []

    # -- what is said -----------------------------------------------------------------------------------------

    def variable(self, name: str, lo: int, hi: int) -> None:
        self._integers[name] = None
        if lo >= 0:
            self._nonneg.add(name)
        self.require(f"(<= {text(constant(lo))} |{name}| {text(constant(hi))})")

    def require(self, fact: str) -> None:
        self.facts.append(f"(assert {fact})")

    def written(self, a: Value) -> str:
        if isinstance(a, str):
            return f"|{a}|" if a.startswith("$") else a
        for monomial, c in a.items():
            if len(monomial) > 1:
                self._terms.setdefault(monomial, set()).add(abs(c))
        return text(a)

    def is_nonnegative(self, a: Polynomial) -> bool:
        return all(c > 0 and self._nonneg.issuperset(monomial) for monomial, c in a.items())

    # -- expressions ------------------------------------------------------------------------------------------

    def values(
        self, roots: Iterable[Expr], index: Mapping[str, str], forced: Mapping[int, Value] | None = None
    ) -> dict[int, Value]:
        """The value of every node below `roots`, its inputs renamed by `index`.

        `forced` are values that nodes are known to have, by another name.
        """
        found: dict[int, Value] = {}
        for node in topological(roots):
            value = self._value(node, [found[a.id] for a in node.args], index)
            known = (forced or {}).get(node.id)
            if known is not None and known != value:
                self.require(f"(= {self.written(value)} {self.written(known)})")
                value = known
            found[node.id] = value
        return found

    def _value(self, node: Expr, args: Sequence[Value], index: Mapping[str, str]) -> Value:
        op = node.op
        if op == "const":
            return ("true" if node.lo else "false") if node.dtype is PRED else constant(node.lo)
        if op == "var":
            return atom(index.get(str(node.attr), str(node.attr)))
        if op == "cast":
            return args[0]
        if node.dtype is PRED:
            return self._condition(f"({_OPERATORS[op]} {' '.join(self.written(a) for a in args)})")
        if op == "select":
            condition, a, b = args
            return self._choice(self.written(condition), _number(a), _number(b), node.lo)
        a, b = (_number(arg) for arg in args)
        if op in ("add", "sub"):
            return self._short(add(a, b, 1 if op == "add" else -1))
        if op == "mul":
            return self._short(multiply(a, b))
        if op in ("div", "mod"):
            return self._short(self._divided(a, b, peel(node.args[0]).lo >= 0)[op == "mod"])
        assert op in ("min", "max"), op
        at_most = self.written(self._condition(f"(<= {self.written(a)} {self.written(b)})"))
        return self._choice(at_most, *((a, b) if op == "min" else (b, a)), node.lo)

    def _short(self, a: Polynomial) -> Polynomial:
        """The same, as an atom where it is long."""
        if len(a) <= MOST_TERMS and all(len(monomial) <= MOST_FACTORS for monomial in a):
            return a
        name = self.atoms.name("p", _frozen(a))
        self._define(name, f"(= |{name}| {self.written(a)})", self.is_nonnegative(a))
        return atom(name)

    def _define(self, name: str, fact: str, nonneg: bool) -> None:
        if name not in self._known:
            self._known.add(name)
            self._integers[name] = None
            self.require(fact)
        if nonneg and name not in self._nonneg:
            self._nonneg.add(name)
            self.require(f"(<= 0 |{name}|)")

    def _condition(self, meaning: str) -> str:
        name = self.atoms.name("c", meaning)
        if name not in self._conditions:
            self._conditions[name] = None
            self.require(f"(= |{name}| {meaning})")
        return name

    def _choice(self, condition: str, a: Polynomial, b: Polynomial, lo: int) -> Polynomial:
        name = self.atoms.name("s", condition, _frozen(a), _frozen(b))
        if name not in self._known:
            self._sums += [((name,), a, condition), ((name,), b, f"(not {condition})")]
        self._define(name, f"(= |{name}| (ite {condition} {self.written(a)} {self.written(b)}))", lo >= 0)
        return atom(name)

    # -- division ---------------------------------------------------------------------------------------------

    def _divided(self, x: Polynomial, d: Polynomial, nonneg: bool) -> tuple[Polynomial, Polynomial]:
        """Floor of x / d, and the remainder; d is at least 1, x at least 0 if `nonneg`."""
        divisor = single(d)
        if divisor is None:
            return self._atoms_of(x, d, nonneg)
        monomial, by = divisor
        whole, rest = self._multiples(x, divisor)
        if whole:  # (w * d + r) // d = w + r // d
            q, r = self._divided(rest, d, self.is_nonnegative(rest))
            return add(whole, q), r
        if not x or (x.keys() == {()} and not monomial):
            value = x.get((), 0)
            return constant(value // by), constant(value % by)
        one = single(x)
        below = self._below.get(one[0][0]) if one is not None and one[1] == 1 and len(one[0]) == 1 else None
        if below is not None and below[0] == monomial and below[1] <= by:
            return {}, x
        part = self._part(x, divisor)
        if part is not None:  # x // (a * b) = x // a // b, and x % (a * b) = x // a % b * a + x % a
            first = {part[0]: part[1]}
            rest_of = _quotient(divisor, part)
            assert rest_of is not None
            q, low = self._divided(x, first, nonneg)
            q, high = self._divided(q, {rest_of[0]: rest_of[1]}, nonneg)
            return q, add(multiply(high, first), low)
        return self._atoms_of(x, d, nonneg)

    def _multiples(self, x: Polynomial, d: Divisor) -> tuple[Polynomial, Polynomial]:
        """(w, r) with x = w * d + r, the coefficients of multiples of d's monomial in r below d's in size."""
        whole: Polynomial = {}
        rest: Polynomial = {}
        for monomial, c in x.items():
            left = divided(monomial, d[0])
            times = abs(c) // d[1] * (1 if c > 0 else -1) if left is not None else 0
            if left is not None and times:
                whole = add(whole, {left: times})
            rest = add(rest, {monomial: c - times * d[1]})
        return whole, rest

    def _part(self, x: Polynomial, d: Divisor) -> Divisor | None:
        """The largest divisor of d by which x is divided somewhere, if there is one; remembers that d divides x."""
        seen = self.atoms.divisors.setdefault((_frozen(x),), set())
        seen.add(d)
        one = single(x)
        origin = self._remainder_of.get(one[0][0]) if one is not None and one[1] == 1 and one[0] else None
        if origin is not None and _quotient(origin[1], d) is not None:  # x is y % e, and d divides e
            self.atoms.divisors.setdefault((_frozen(origin[0]),), set()).add(d)
        parts = [e for e in seen if e not in (d, ((), 1)) and _quotient(d, e) is not None]
        return max(parts, key=lambda e: (len(e[0]), e[1], e[0])) if parts else None

    def _atoms_of(self, x: Polynomial, d: Polynomial, nonneg: bool) -> tuple[Polynomial, Polynomial]:
        content = (_frozen(x), _frozen(d))
        q, r = self.atoms.name("q", *content), self.atoms.name("r", *content)
        divisor, one = single(d), single(x)
        if q not in self._known:
            self._integers[r] = None
            product = multiply(atom(q), d)
            equal = f"(= {self.written(x)} {self.written(add(product, atom(r)))})"
            self._define(r, f"(and (<= 0 |{r}|) (< |{r}| {self.written(d)}) {equal})", True)
            self._divisions.append((atom(q), d))
            if divisor is not None:
                self._below[r], self._remainder_of[r] = divisor, (x, divisor)
            if one is not None and one[1] == 1 and one[0]:
                self._sums.append((one[0], add(product, atom(r)), "true"))
        self._define(q, "true", nonneg)
        return atom(q), atom(r)

    # -- products ---------------------------------------------------------------------------------------------

    def script(self, bounds: Collection[Polynomial], exact: bool = False) -> str:
        """Everything that is known, as SMT-LIB; products are exactly that if `exact`, else some facts are told.

        Quotients are compared with `bounds`.
        """
        kept, self.facts = self.facts, list(self.facts)
        for q, d in self._divisions:
            for bound in bounds:
                product = self.written(multiply(bound, d))
                self.require(f"(=> (<= {self.written(bound)} {self.written(q)}) (<= {product} "
                             f"{self.written(multiply(q, d))}))")  # fmt: skip
        self._tell_products()
        products = self._products()
        if exact:
            for m in products:
                self.require(f"(= {name(m)} (* {' '.join(f'|{a}|' for a in m)}))")
        declared = [f"(declare-const |{c}| Bool)" for c in self._conditions]
        declared += [f"(declare-const |{i}| Int)" for i in self._integers]
        declared += [f"(declare-const {name(m)} Int)" for m in products]
        said, self.facts = self.facts, kept
        return "\n".join([*declared, *dict.fromkeys(said)])

    def _products(self) -> list[Monomial]:
        return sorted(self._terms, key=lambda m: (len(m), m))

    def _tell_products(self) -> None:
        told: set[object] = set()
        for _ in range(3):  # facts name further products
            for m in self._products()[:MOST_PRODUCTS]:
                self._tell_sign(m, told)
                for part, total, when in self._sums:
                    left = divided(m, part)
                    if left is not None and (m, part, when) not in told:
                        told.add((m, part, when))
                        product = multiply(total, {left: 1})
                        if len(product) <= MOST_TERMS and all(len(n) <= MOST_FACTORS for n in product):
                            self.require(f"(=> {when} (= {name(m)} {self.written(product)}))")
            for m, n in combinations(self._products()[:MOST_PRODUCTS], 2):
                self._compare(m, n, told)

    def _tell_sign(self, m: Monomial, told: set[object]) -> None:
        if m in told:
            return
        told.add(m)
        if self._nonneg.issuperset(m):
            self.require(f"(<= 0 {name(m)})")
        for a in dict.fromkeys(m):
            rest = divided(m, (a,))
            assert rest is not None
            other = self.written({rest: 1})
            self.require(f"(=> (= |{a}| 0) (= {name(m)} 0))")
            self.require(f"(=> (= |{a}| 1) (= {name(m)} {other}))")
            if self._nonneg.issuperset(m):
                self.require(f"(=> (<= 1 |{a}|) (<= {other} {name(m)}))")

    def _compare(self, m: Monomial, n: Monomial, told: set[object]) -> None:
        """c * u * g and d * v * g compare as c * u and d * v do, where g is positive."""
        g = common(m, n)
        if not g:
            return
        u, v = divided(m, g), divided(n, g)
        assert u is not None
        assert v is not None
        for c in sorted({1, *self._terms[m]}):
            for d in sorted({1, *self._terms[n]}):
                if (m, n, c, d) in told or len(told) > MOST_COMPARISONS:
                    continue
                told.add((m, n, c, d))
                factor = self.written({g: 1})
                left, right = self.written({u: c}), self.written({v: d})
                a, b = self.written({m: c}), self.written({n: d})
                self.require(f"(=> (= {left} {right}) (= {a} {b}))")
                self.require(f"(=> (and (<= 1 {factor}) (< {left} {right})) (<= (+ {a} {factor}) {b}))")
                self.require(f"(=> (and (<= 1 {factor}) (< {right} {left})) (<= (+ {b} {factor}) {a}))")
