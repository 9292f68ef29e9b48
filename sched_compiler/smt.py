"""Satisfiability of formulas in SMT-LIB, by z3 where it is installed: one text gives one answer, on any machine."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: z3's own count of steps, some millions a second, that one proof may take in all.
STEPS = 16_000_000
#: Milliseconds after which a single question is given up on slow machines; the steps end first elsewhere.
PATIENCE = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether there are such values; some, if there are and integers were asked for."""

    found: Literal["sat", "unsat", "unknown"]
    values: dict[str, int]


def available() -> bool:
    """Whether z3 can be used."""
    try:
        importlib.import_module("z3")
    except ImportError:
        return False
    return True


class Solver:
    """Answers questions until `steps` are used up."""

    def __init__(self, steps: int = STEPS) -> None:
        self._z3: Any = importlib.import_module("z3")
        self.left = steps

    def ask(self, script: str, wanted: Sequence[str] = (), steps: int = STEPS) -> Answer:
        """Whether the assertions of `script` hold for some values, those of `wanted` among them."""
        z3 = self._z3
        steps = min(steps, self.left)
        if steps <= 0:
            return Answer("unknown", {})
        context = z3.Context()  # nothing is left of earlier questions
        solver = z3.Solver(ctx=context)
        solver.set("random_seed", 0)
        solver.set("rlimit", steps)
        solver.set("timeout", PATIENCE)
        values: dict[str, int] = {}
        try:
            solver.from_string(script)
            found = str(solver.check())
            if found == "sat":
                model = solver.model()
                given = {n: model.eval(z3.Int(n, context), model_completion=True) for n in wanted}
                values = {n: v.as_long() for n, v in given.items() if z3.is_int_value(v)}
        except z3.Z3Exception:  # out of memory
            found = "unknown"
        statistics = solver.statistics()
        used = statistics.get_key_value("rlimit count") if "rlimit count" in statistics.keys() else steps  # noqa: SIM118
        self.left -= int(used)
        if found == "sat":
            return Answer("sat", values) if len(values) == len(wanted) else Answer("unknown", {})
        return Answer("unsat", {}) if found == "unsat" else Answer("unknown", {})
