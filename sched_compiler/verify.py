"""Verification: each property of a schedule is proven for all parameter values, refuted, or left undecided.

A verdict says how it was reached. What cannot be decided is never passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sched_compiler.diagnostics import Diagnostic
from sched_compiler.evaluate import Array, evaluate
from sched_compiler.expr import Expr, may_wrap, topological
from sched_compiler.loader import LoadedSpec
from sched_compiler.prove import all_values, assignments, at_values, small_values
from sched_compiler.schedule import INDEX, RANK, Schedule
from sched_compiler.source import Path
from sched_compiler.tiling import Tiling, pieces_of, prove_tiling

Status = Literal["proven", "refuted", "undecided"]

#: Tiles of a formula that are tried one by one (a byte of memory each).
MOST_TILES = 1 << 24
#: Tiles of a formula over all combinations of its parameters that are tried one by one.
MOST_WORK = 1 << 24
#: What another combination of parameters costs, in tiles.
COMBINATION = 1 << 12
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one property, and how."""

    property: str
    status: Status
    how: str


@dataclass(frozen=True, slots=True)
class Verification:
    verdicts: tuple[Verdict, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def proven(self) -> bool:
        return all(v.status == "proven" for v in self.verdicts)


def verify(schedule: Schedule, loaded: LoadedSpec) -> Verification:
    """Decide coverage, bounds, overflow, division and the grid for `schedule`, built from `loaded`."""
    if schedule.nest is not None:
        coverage = _nest_coverage(schedule, loaded)
    else:
        coverage = _formula_coverage(schedule, loaded)
    arithmetic = _arithmetic(schedule)
    grid = Verdict("grid", "proven", f"at most {schedule.dispatch.workers.hi * schedule.cluster_size} CTAs along x")
    return Verification((*coverage.verdicts, *arithmetic, grid), coverage.diagnostics)


# -- composed orders ------------------------------------------------------------------------------------------


def _nest_coverage(schedule: Schedule, loaded: LoadedSpec) -> Verification:
    assert schedule.nest is not None
    diagnostics: list[Diagnostic] = []
    how: list[str] = []
    status: Status = "proven"
    for numbers, pieces in pieces_of(schedule.nest):
        path: Path = ("order", "pieces")
        for n in numbers:
            path = (*path, n, "pieces")
        tiling = prove_tiling(pieces, schedule.params)
        if not tiling.proven:
            status = "undecided" if tiling.fault is None else "refuted"
            diagnostics.append(_tiling_diagnostic(tiling, path, loaded))
        how.append(tiling.how)
    how = [*how, *dict.fromkeys(schedule.nest.reasons())]
    bounds = "digits stay below their extents by construction"
    if schedule.in_bounds.value != 1:
        bounds += "; padding is marked by in_bounds"
    verdicts = (Verdict("coverage", status, "; ".join(how)), Verdict("bounds", status, bounds))
    return Verification(verdicts, tuple(diagnostics))


def _tiling_diagnostic(tiling: Tiling, path: Path, loaded: LoadedSpec) -> Diagnostic:
    fault = tiling.fault
    if fault is None:
        return loaded.diagnostic(
            "E064", path, "it could not be decided whether the pieces tile the box", found=tiling.how,
            expected="corners whose order does not depend on parameters", mend="narrow the parameters' ranges",
        )  # fmt: skip
    where = ", ".join(f"{k}={v}" for k, v in fault.position.items())
    count = len(fault.pieces)
    if count == 0:
        found = f"({where}) is in no piece"
    elif count == 1:
        found = f"({where}) of piece {fault.pieces[0] + 1} is outside the box"
    else:
        found = f"({where}) is in pieces {' and '.join(str(n + 1) for n in fault.pieces)}"
    return loaded.diagnostic(
        "E045", path, "the pieces do not tile the box", found=found + at_values(fault.values),
        expected="every position in exactly one piece", mend="move the corners so that the pieces meet",
    )  # fmt: skip


# -- formulas -------------------------------------------------------------------------------------------------


def _formula_coverage(schedule: Schedule, loaded: LoadedSpec) -> Verification:
    """Try every tile, for every combination of parameters where there are few; keep the smallest counterexamples."""
    combinations = assignments(schedule.params)
    most = schedule.items.hi
    exhaustive = most <= MOST_TILES and combinations * most + (combinations - 1) * COMBINATION <= MOST_WORK
    tried = 0
    for values in all_values(schedule.params) if exhaustive else small_values(schedule.params, 64):
        if int(evaluate([schedule.items], values)[0][0]) > (MOST_TILES if exhaustive else CHUNK):
            continue
        faults = list(_formula_faults(schedule, loaded, values))
        tried += 1
        if faults:
            verdict = Verdict("coverage", "refuted", "counterexample")
            return Verification((verdict, Verdict("bounds", "refuted", "counterexample")), tuple(faults))
    if exhaustive:
        how = f"every tile tried ({most} tiles" + (
            f", {combinations} combinations of parameters)" if tried > 1 else ")"
        )
        return Verification((Verdict("coverage", "proven", how), Verdict("bounds", "proven", how)), ())
    how = f"{most} tiles for {combinations} combinations of parameters are too many to try"
    diagnostic = loaded.diagnostic(
        "E064", ("map",), "it could not be decided whether the formulas visit every tile once", found=how,
        expected=f"at most {MOST_WORK} tiles over all parameter values", mend="write the order as loops",
    )  # fmt: skip
    return Verification((Verdict("coverage", "undecided", how), Verdict("bounds", "undecided", how)), (diagnostic,))


def _formula_faults(schedule: Schedule, loaded: LoadedSpec, values: dict[str, int]) -> Iterator[Diagnostic]:
    extents = [int(e[0]) for e in evaluate([a.extent for a in schedule.axes], values)]
    total = math.prod(extents)
    names = [a.name for a in schedule.axes]
    if total == 0:
        return
    visits = np.zeros(total, dtype=np.uint8)
    outside: tuple[int, int, list[int]] | None = None
    for begin in range(0, total, CHUNK):
        index = np.arange(begin, min(begin + CHUNK, total), dtype=np.int64)
        coords = [np.broadcast_to(c, index.shape).astype(np.int64) for c in _coords(schedule, index, values)]
        wrong = np.stack([(c < 0) | (c >= e) for c, e in zip(coords, extents, strict=True)])
        if outside is None and wrong.any():
            k = int(np.flatnonzero(wrong.any(axis=0))[0])
            outside = (int(index[k]), int(np.flatnonzero(wrong[:, k])[0]), [int(c[k]) for c in coords])
        good = ~wrong.any(axis=0)
        linear = np.zeros(int(good.sum()), dtype=np.int64)
        for c, e in zip(coords, extents, strict=True):
            linear = linear * e + c[good]
        counts = np.bincount(linear, minlength=0) if linear.size else np.zeros(0, dtype=np.int64)
        visits[: counts.size] = np.minimum(visits[: counts.size] + np.minimum(counts, 2), 2)

    def tile(linear: int) -> str:
        numbers = [int(n) for n in np.unravel_index(linear, extents)]
        return "(" + ", ".join(f"{n}={v}" for n, v in zip(names, numbers, strict=True)) + ")"

    if outside is not None:
        i, axis, at = outside
        place = "(" + ", ".join(f"{n}={v}" for n, v in zip(names, at, strict=True)) + ")"
        yield loaded.diagnostic(
            "E062", ("map", names[axis]), f"a tile outside the space is visited: {place}",
            found=f"{names[axis]} = {at[axis]} for i = {i}{at_values(values)}",
            expected=f"0 <= {names[axis]} < {extents[axis]}",
        )  # fmt: skip
    if (visits > 1).any():
        repeated = int(np.flatnonzero(visits > 1)[0])
        first = _visitors(schedule, values, [int(n) for n in np.unravel_index(repeated, extents)], total)
        yield loaded.diagnostic(
            "E061", ("map",), f"a tile is visited more than once: {tile(repeated)}",
            found=f"i = {' and i = '.join(map(str, first))}{at_values(values)}", expected="every tile exactly once",
        )  # fmt: skip
    if (visits == 0).any():
        lost = int(np.flatnonzero(visits == 0)[0])
        yield loaded.diagnostic(
            "E060", ("map",), f"a tile is never visited: {tile(lost)}",
            found=f"{int((visits == 0).sum())} of {total} tiles lost{at_values(values)}",
            expected="every tile exactly once",
        )  # fmt: skip


def _coords(schedule: Schedule, index: Array, values: dict[str, int]) -> list[Array]:
    return evaluate(schedule.coords, {INDEX: index, RANK: 0, **values})


def _visitors(schedule: Schedule, values: dict[str, int], tile: list[int], total: int) -> list[int]:
    """The first two indices that visit `tile`."""
    found: list[int] = []
    for begin in range(0, total, CHUNK):
        index = np.arange(begin, min(begin + CHUNK, total), dtype=np.int64)
        coords = _coords(schedule, index, values)
        same = np.logical_and.reduce([np.broadcast_to(c == t, index.shape) for c, t in zip(coords, tile, strict=True)])
        found += [int(i) for i in index[same]]
        if len(found) >= 2:
            break
    return found[:2]


# -- arithmetic -----------------------------------------------------------------------------------------------


def roots(schedule: Schedule) -> list[Expr]:
    """Every expression that is printed for a schedule, the dispatch's included."""
    dispatch = schedule.dispatch
    valid = dispatch.valid(schedule.any_index, schedule.items)
    found = [*schedule.coords, schedule.in_bounds, schedule.items, dispatch.workers, valid]
    return [*found, schedule.inverse] if schedule.inverse is not None else found


def _arithmetic(schedule: Schedule) -> tuple[Verdict, Verdict]:
    """Overflow and division: each node's operation against its type and its divisor's interval."""
    by_interval = by_construction = divisions = 0
    widest = 32
    for node in topological(roots(schedule)):
        widest = max(widest, node.dtype.bits)
        if node.op in ("add", "sub", "mul"):
            if node.lo < node.dtype.lo or node.hi > node.dtype.hi:
                how = f"{node!r} leaves its type"
                return Verdict("overflow", "refuted", how), Verdict("division", "undecided", "not reached")
            if may_wrap(node):
                by_construction += 1
            else:
                by_interval += 1
        elif node.op in ("div", "mod"):
            divisions += 1
            if node.args[1].lo < 1:
                how = f"{node.args[1]!r} may be zero"
                return Verdict("overflow", "undecided", "not reached"), Verdict("division", "refuted", how)
    how = f"{by_interval} operations within {widest} bits by interval"
    if by_construction:
        how += f", {by_construction} by construction (a remainder, or the arm of a choice that is not taken)"
    how += f"; the index, its last advance included, fits {schedule.index_type.name}"
    return (
        Verdict("overflow", "proven", how),
        Verdict("division", "proven", f"{divisions} divisors are at least 1 by interval"),
    )
