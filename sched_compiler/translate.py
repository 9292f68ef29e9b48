"""Formulas of a spec into expressions, each fault reported at its place in the formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sched_compiler.expr import PRED, DivisorError, Expr, Graph, RangeError
from sched_compiler.formula import Binary, Conditional, Formula, Name, Number, Unary, parse
from sched_compiler.loader import LoadedSpec
from sched_compiler.source import Path

_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod", "min": "min", "max": "max", "ceil_div": "ceil_div",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", "and": "logical_and", "or": "logical_or",
}  # fmt: skip
_TRUTHS = ("and", "or")


@dataclass
class Translator:
    """Translates formulas over `names`; remembers which of them were used."""

    graph: Graph
    loaded: LoadedSpec
    names: Mapping[str, Expr]
    used: set[str] = field(default_factory=set)

    def integer(self, text: int | str, path: Path, *, at_least: int | None = None, what: str = "the value") -> Expr:
        """The integer formula at `path`. Raises SpecError, also where the value may be below `at_least`."""
        result = self._expect(parse(text), path, truth=False)
        if at_least is not None and result.lo < at_least:
            raise self.loaded.error(
                "E023",
                path,
                f"{what} may be below {at_least}",
                found=f"values from {result.lo} to {result.hi}",
                expected=f"at least {at_least} for all values of the parameters",
                mend=f"use max(..., {at_least}), or raise the lower bound of a parameter",
            )
        return result

    def _expect(self, formula: Formula, path: Path, *, truth: bool) -> Expr:
        result = self._translate(formula, path)
        if (result.dtype is PRED) is not truth:
            wanted, given = ("a condition", "a number") if truth else ("a number", "a condition")
            raise self.loaded.error(
                "E024", path, f"{wanted} is needed here", found=given, expected=wanted, column=formula.column,
                mend="compare with 0" if truth else "write `1 if condition else 0`",
            )  # fmt: skip
        return result

    def _translate(self, formula: Formula, path: Path) -> Expr:
        g = self.graph
        try:
            if isinstance(formula, Number):
                return g.const(formula.value)
            if isinstance(formula, Name):
                return self._name(formula, path)
            if isinstance(formula, Unary):
                if formula.op == "not":
                    return g.logical_not(self._expect(formula.operand, path, truth=True))
                return g.sub(0, self._expect(formula.operand, path, truth=False))
            if isinstance(formula, Conditional):
                condition = self._expect(formula.condition, path, truth=True)
                then = self._translate(formula.then, path)
                return g.select(condition, then, self._expect(formula.otherwise, path, truth=then.dtype is PRED))
            return self._binary(formula, path)
        except DivisorError as e:
            raise self.loaded.error(
                "E022", path, "the divisor may be zero or negative", found=str(e), expected="a divisor of at least 1",
                mend="use max(..., 1), or raise the lower bound of a parameter", column=formula.column,
            ) from None  # fmt: skip
        except RangeError as e:
            raise self.loaded.error(
                "E063", path, "a value does not fit 64 bits", found=str(e), column=formula.column,
                expected="values within 64 bits for all values of the parameters", mend="narrow the parameters' ranges",
            ) from None  # fmt: skip

    def _binary(self, formula: Binary, path: Path) -> Expr:
        truth = formula.op in _TRUTHS
        left = self._expect(formula.left, path, truth=truth)
        right = self._expect(formula.right, path, truth=truth)
        if formula.op == ">":
            return self.graph.lt(right, left)
        if formula.op == ">=":
            return self.graph.le(right, left)
        result: Expr = getattr(self.graph, _BINARY[formula.op])(left, right)
        return result

    def _name(self, formula: Name, path: Path) -> Expr:
        if formula.name not in self.names:
            declared = ", ".join(self.names) or "nothing"
            raise self.loaded.error(
                "E021", path, f"{formula.name} is not declared", found=formula.name, expected=f"one of: {declared}",
                mend=f"declare {formula.name} under params", column=formula.column,
            )  # fmt: skip
        self.used.add(formula.name)
        return self.names[formula.name]
