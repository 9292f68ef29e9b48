"""Verification: each property of a schedule is proven for all parameter values, refuted, or left undecided.

A verdict says how it was reached. What cannot be decided is never passed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from sched_compiler.diagnostics import Diagnostic
from sched_compiler.dispatch import GRID_LIMIT, ClusterLaunchControl, Table
from sched_compiler.expr import Expr, may_wrap
from sched_compiler.loader import LoadedSpec, Progress
from sched_compiler.nest import pieces_of
from sched_compiler.protocol import Consumer, Ring, protocol
from sched_compiler.prove import at_values
from sched_compiler.schedule import WORKER, Schedule
from sched_compiler.source import Path
from sched_compiler.tiling import Tiling, prove_tiling
from sched_compiler.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Verification:
    verdicts: tuple[Verdict, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def proven(self) -> bool:
        return all(v.holds() for v in self.verdicts)


def verify(schedule: Schedule, loaded: LoadedSpec, progress: Progress | None = None) -> Verification:
    """Decide coverage, bounds, overflow, division and the grid for `schedule`, built from `loaded`.

    Also what a table of worker ranges says, and what the spec expects of the order. `progress` is told how far a long
    check is.
    """
    if schedule.nest is not None:
        coverage = _nest_coverage(schedule, loaded)
    elif schedule.points is not None:
        from sched_compiler.verify_tables import verify_points  # with NumPy, here and below

        coverage = Verification(*verify_points(schedule, loaded, progress))
    else:
        from sched_compiler.tried import formula_coverage  # with NumPy, which most specs do not need

        coverage = Verification(*formula_coverage(schedule, loaded))
    ranges = Verification((), ())
    if isinstance(schedule.dispatch, Table):
        from sched_compiler.verify_tables import verify_ranges

        ranges = Verification(*verify_ranges(schedule, loaded, progress))
    wished = Verification((), ())
    if loaded.spec.expect is not None and coverage.proven:
        from sched_compiler.expectation import verify_expectation

        wished = Verification(*verify_expectation(schedule, loaded))
    arithmetic = _arithmetic(schedule)
    grid = Verdict("grid", "proven", f"at most {schedule.dispatch.workers.hi * schedule.worker_ctas} CTAs along x")
    dispatch = schedule.dispatch
    shared = (_protocol(dispatch),) if isinstance(dispatch, ClusterLaunchControl) else ()
    parts = (coverage, ranges, wished)
    return Verification(
        (*coverage.verdicts, *ranges.verdicts, *wished.verdicts, *arithmetic, grid, *shared),
        tuple(d for part in parts for d in part.diagnostics),
    )


# -- rings ----------------------------------------------------------------------------------------------------


def _protocol(dispatch: ClusterLaunchControl) -> Verdict:
    """The steps of the ring's roles, run in every order that can matter."""
    alike = tuple(Consumer(f"{n}", 1 if c.threads == 1 else 32) for n, c in enumerate(dispatch.ring.consumers))
    return _explored(replace(dispatch.ring, consumers=alike), dispatch.fallback)


@functools.cache
def _explored(ring: Ring, fallback: bool) -> Verdict:
    """The verdict of a ring; what its consumers are called, and how many warps they have, is nothing to the steps."""
    from sched_compiler.model import check  # only a ring needs it

    states, longest = 0, ring.depth + 1  # one more request than slots: the first slot is used again
    # the hardware may say at any time that nothing is left, so that shorter walks are among those of the longest
    runs = [(ring, longest)]
    if fallback:
        runs += [(replace(ring, source="counter"), items) for items in (0, 1, longest + 1)]
    for described, items in runs:
        found = check(protocol(described), items)
        if found.fault is not None:
            return Verdict("protocol", "refuted", f"{described.source}, {items} items: {found.fault}")
        states += found.states
    sources = " and of a counter" if fallback else ""
    how = f"no deadlock, race or lost item in {states} states of a ring of {ring.depth}, with up to {longest} answers"
    return Verdict("protocol", "proven", f"{how} of the hardware's queue{sources}")


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


# -- arithmetic -----------------------------------------------------------------------------------------------


def roots(schedule: Schedule) -> list[Expr]:
    """Every expression that is printed for a schedule, the dispatch's included."""
    dispatch = schedule.dispatch
    valid = dispatch.valid(schedule.any_index, schedule.items)
    worker = schedule.graph.var(WORKER, 0, GRID_LIMIT - 1)
    steps = [*dispatch.start(worker, schedule.items), *dispatch.advance(schedule.index, schedule.items)]
    found = [*schedule.coords, schedule.in_bounds, schedule.items, dispatch.workers, valid, *steps]
    return [*found, schedule.inverse] if schedule.inverse is not None else found


def _arithmetic(schedule: Schedule) -> tuple[Verdict, Verdict]:
    """Overflow and division: each node's operation against its type and its divisor's interval."""
    by_interval = by_construction = divisions = 0
    widest = 32
    for node in schedule.graph.needed(roots(schedule)):
        if node.dtype.bits > widest:
            widest = node.dtype.bits
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
