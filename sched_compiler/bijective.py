"""Whether formulas send the work indices to the tiles of the box one to one, for all values of the parameters.

There are as many indices as tiles, so it is enough that no index leads outside and no two lead to one tile. Both are
asked of z3 as the search for a counterexample, first over what `linear.py` tells of products, then over the products
themselves. Steps on the way to the contradiction (*lemmas*: two indices of one tile agree in this quotient, too) are
asked one by one and kept. A counterexample counts only where the evaluator sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr, topological
from sched_compiler.linear import Atoms, Encoding, Value
from sched_compiler.schedule import INDEX, RANK, Schedule
from sched_compiler.smt import Solver

#: Steps of z3 for a question that a simple fact answers, and for one about products as they are.
SHORT, LONG = 1_500_000, 8_000_000
#: Steps to make a counterexample smaller.
SHRINKING = 8_000_000
INDICES = FIRST, SECOND = ("$i", "$j")
#: How often an encoding is made anew with what it showed of divisors.
PASSES = 6
#: Nodes whose values at the two indices may be shown to agree.
_LEMMAS = ("div", "mod", "select", "min", "max", "lt", "le", "eq", "and", "or", "not")


@dataclass(frozen=True, slots=True)
class Clash:
    """Indices that lead outside (`second` is None) or to one tile, at these parameter values."""

    values: dict[str, int]
    first: int
    second: int | None

    def at(self, name: str) -> int:
        """The value of a parameter or an index."""
        value = {**self.values, FIRST: self.first, SECOND: self.second}[name]
        assert value is not None
        return value

    def real(self, schedule: Schedule) -> bool:
        """Whether the formulas, evaluated, do that."""
        inputs = {RANK: 0, **self.values}
        size, *extents = (int(e[0]) for e in evaluate([schedule.items, *(a.extent for a in schedule.axes)], inputs))
        if not 0 <= self.first < size:
            return False
        first = [int(c[0]) for c in evaluate(schedule.coords, {INDEX: self.first, **inputs})]
        if self.second is None:
            return not all(0 <= c < e for c, e in zip(first, extents, strict=True))
        second = [int(c[0]) for c in evaluate(schedule.coords, {INDEX: self.second, **inputs})]
        return self.first < self.second < size and first == second


#: A counterexample, True where there is none, None where that is not known.
Finding: TypeAlias = "Clash | Literal[True] | None"
#: A question's text, products told in facts or exactly.
_Script: TypeAlias = Callable[[bool], str]


@dataclass
class Prover:
    """The proof for one schedule."""

    schedule: Schedule
    solver: Solver
    _atoms: Atoms = field(default_factory=Atoms)
    _inside: set[int] = field(default_factory=set)  # axes whose coordinates are known to stay inside
    _most: dict[str, int] = field(default_factory=dict)  # of parameters and indices, to find smaller counterexamples

    def prove(self) -> Finding:
        """A small counterexample; True where there is none; None where that is not known."""
        for axis in range(len(self.schedule.axes)):
            script = partial(self._leads_outside, axis)
            found = self._decide(script, [FIRST])
            if isinstance(found, Clash):
                return self._smallest(found, script, [FIRST])
            if found is None:
                return None
            self._inside.add(axis)
        found = self._injective()
        if isinstance(found, Clash):
            return self._smallest(found, partial(self._meet, set()), INDICES)
        return found

    # -- questions --------------------------------------------------------------------------------------------

    def _encode(self, indices: Sequence[str], agreed: set[int]) -> tuple[Encoding, list[dict[int, Value]]]:
        """What is known of indices in range, and the nodes' values at them; at the second as at the first if agreed."""
        s = self.schedule
        roots = [s.items, *(a.extent for a in s.axes), *s.coords]
        for _ in range(PASSES):
            known = {x: len(d) for x, d in self._atoms.divisors.items()}
            encoding = Encoding(self._atoms)
            for p in s.params:
                if p.var.op == "var":
                    encoding.variable(p.name, p.var.lo, min(p.var.hi, self._most.get(p.name, p.var.hi)))
            found: list[dict[int, Value]] = []
            for index in indices:
                encoding.variable(index, 0, min(s.index.hi, self._most.get(index, s.index.hi)))
                forced = {k: v for k, v in found[0].items() if k in agreed} if found else {}
                values = encoding.values(roots, {INDEX: index}, forced)
                encoding.require(f"(< |{index}| {encoding.written(values[s.items.id])})")
                for axis in sorted(self._inside):
                    encoding.require(self._is_inside(encoding, values, axis))
                found.append(values)
            if known == {x: len(d) for x, d in self._atoms.divisors.items()}:  # else something divides in parts
                break
        return encoding, found

    def _is_inside(self, encoding: Encoding, values: dict[int, Value], axis: int) -> str:
        x = encoding.written(values[self.schedule.coords[axis].id])
        return f"(and (<= 0 {x}) (< {x} {encoding.written(values[self.schedule.axes[axis].extent.id])}))"

    def _script(self, encoding: Encoding, values: dict[int, Value], exact: bool) -> str:
        extents = [values[a.extent.id] for a in self.schedule.axes]
        return encoding.script([e for e in extents if not isinstance(e, str)], exact)

    def _leads_outside(self, axis: int, exact: bool) -> str:
        encoding, (values,) = self._encode([FIRST], set())
        encoding.require(f"(not {self._is_inside(encoding, values, axis)})")
        return self._script(encoding, values, exact)

    def _meet(self, agreed: set[int], exact: bool, differ: Expr | None = None) -> str:
        """Two indices lead to one tile; their values of `differ` are not the same."""
        encoding, (first, second) = self._encode([FIRST, SECOND], agreed)
        encoding.require(f"(< |{FIRST}| |{SECOND}|)")
        for c in self.schedule.coords:
            encoding.require(f"(= {encoding.written(first[c.id])} {encoding.written(second[c.id])})")
        if differ is not None:
            encoding.require(f"(not (= {encoding.written(first[differ.id])} {encoding.written(second[differ.id])}))")
        return self._script(encoding, first, exact)

    # -- answers ----------------------------------------------------------------------------------------------

    def _ask(self, script: str, indices: Sequence[str], steps: int) -> Finding:
        names = [p.name for p in self.schedule.params if p.var.op == "var"]
        answer = self.solver.ask(script, [*names, *indices], steps)
        if answer.found != "sat":
            return True if answer.found == "unsat" else None
        values = {p.name: answer.values.get(p.name, p.var.lo) for p in self.schedule.params}
        clash = Clash(values, answer.values[FIRST], answer.values.get(SECOND))
        return clash if clash.real(self.schedule) else None

    def _decide(self, script: _Script, indices: Sequence[str], steps: Sequence[int] = (SHORT, LONG)) -> Finding:
        found = self._ask(script(False), indices, SHORT)
        for most in steps:
            if found is not None:
                break
            found = self._ask(script(True), indices, most)
        return found

    def _injective(self) -> Finding:
        agreed: set[int] = set()
        open_ = [n for n in topological(self.schedule.coords) if n.op in _LEMMAS]
        for exact in (False, True):
            found = self._ask(self._meet(agreed, exact), INDICES, SHORT)
            more = True
            while found is None and more:
                more = False
                for node in list(open_):
                    if self._ask(self._meet(agreed, exact, node), INDICES, SHORT) is True:
                        agreed.add(node.id)
                        open_.remove(node)
                        more = True
                if more:
                    found = self._ask(self._meet(agreed, exact), INDICES, SHORT)
            if found is not None:
                return found
        return self._ask(self._meet(agreed, True), INDICES, LONG)

    def _smallest(self, clash: Clash, script: _Script, indices: Sequence[str]) -> Clash:
        """A counterexample with small parameters, the first as small as can be, then the next; then its indices."""
        self.solver = Solver(SHRINKING)
        for name in [*(p.name for p in self.schedule.params if p.var.op == "var"), *indices]:
            var = next((p.var for p in self.schedule.params if p.name == name), None)
            low, high = var.lo if var is not None else 0, clash.at(name)
            while low < high:
                self._most[name] = (low + high) // 2
                found = self._decide(script, indices, (SHORT,))
                if isinstance(found, Clash):
                    clash, high = found, found.at(name)
                else:
                    low = self._most[name] + 1
            self._most[name] = high
        return clash
