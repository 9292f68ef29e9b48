"""Verification of what tables say: the points they list, and the worker ranges. Exact, for every element."""

from __future__ import annotations

from collections.abc import Mapping

from sched_compiler.diagnostics import Diagnostic
from sched_compiler.dispatch import Table, Tables
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr
from sched_compiler.loader import LoadedSpec, Progress
from sched_compiler.schedule import Schedule
from sched_compiler.source import Path
from sched_compiler.tables import Fault, check_indices, check_points, check_ranges
from sched_compiler.verdict import Verdict


def uses_tables(schedule: Schedule) -> bool:
    return schedule.points is not None or isinstance(schedule.dispatch, Table)


def check_tables(
    schedule: Schedule, tables: Tables, values: Mapping[str, int], progress: Progress | None = None
) -> list[Fault]:
    """What is wrong with `tables` at these parameter values: the same that the generated validator checks."""

    def number(e: Expr) -> int:
        return int(evaluate([e], values)[0][0])

    faults: list[Fault | None] = []
    for table in schedule.tables:
        if len(tables[table.name]) != number(table.length):
            found, expected = f"{len(tables[table.name])} elements", str(number(table.length))
            faults.append(Fault(table.name, None, "E046", "the table has another length", found, expected))
    if any(faults):
        return [f for f in faults if f is not None]
    if schedule.points is not None:
        extents = [-(-number(a.extent) // a.cluster) for a in schedule.axes]
        listed = [tables[name] for name in schedule.points]
        axes = [a.name for a in schedule.axes]
        faults.append(check_points(schedule.points, listed, axes, extents, schedule.subset, progress))
    dispatch = schedule.dispatch
    if isinstance(dispatch, Table):
        faults.append(check_ranges(dispatch.indptr, tables[dispatch.indptr], number(dispatch.length), dispatch.subset))
        if dispatch.indices is not None:
            items = number(schedule.items)
            faults.append(check_indices(dispatch.indices, tables[dispatch.indices], items, dispatch.subset, progress))
    return [f for f in faults if f is not None]


def verify_points(
    schedule: Schedule, loaded: LoadedSpec, progress: Progress | None
) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Coverage and bounds of an order that is a list of points."""
    assert schedule.points is not None
    late = [name for name in schedule.points if name not in loaded.tables]
    if late:
        return _late(late, "coverage", "bounds"), ()
    listed = [loaded.tables[name] for name in schedule.points]
    axes = [a.name for a in schedule.axes]
    blocks = [schedule.graph.ceil_div(a.extent, a.cluster) for a in schedule.axes]
    least, most = [b.lo for b in blocks], [b.hi for b in blocks]
    # points must lie in the smallest box and be all of the largest: one look where these are the same
    fault = check_points(schedule.points, listed, axes, least, schedule.subset or least != most, progress)
    if fault is None and not schedule.subset and least != most:
        fault = check_points(schedule.points, listed, axes, most, False, progress)
    if fault is not None:
        verdicts = tuple(Verdict(p, "refuted", fault.message) for p in ("coverage", "bounds"))
        return verdicts, (diagnostic(fault, loaded, ("order", "points")),)
    count = len(listed[0])
    how = f"{count} listed points, each once" + ("" if schedule.subset else ", and all of them")
    return (Verdict("coverage", "proven", how), Verdict("bounds", "proven", f"{count} listed points looked at")), ()


def verify_ranges(
    schedule: Schedule, loaded: LoadedSpec, progress: Progress | None
) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Whether every item has one worker, under the dispatch `table`."""
    dispatch = schedule.dispatch
    assert isinstance(dispatch, Table)
    used = [dispatch.indptr, *([] if dispatch.indices is None else [dispatch.indices])]
    late = [name for name in used if name not in loaded.tables]
    path: Path = ("dispatch", "table", "indptr")
    if late:
        return _late(late, "dispatch"), ()
    length = dispatch.length
    indptr = loaded.tables[dispatch.indptr]
    fault = check_ranges(dispatch.indptr, indptr, length.lo, dispatch.subset)
    if fault is None and length.lo != length.hi and not dispatch.subset:
        message, last = "the ranges are fixed, but the number of items is not", str(int(indptr[-1]))
        fault = Fault(dispatch.indptr, None, "E046", message, last, f"{length.lo} to {length.hi} items")
    if fault is None and dispatch.indices is not None:
        path = ("dispatch", "table", "indices")
        listed = loaded.tables[dispatch.indices]
        fault = check_indices(dispatch.indices, listed, schedule.items.lo, dispatch.subset, progress)
        if fault is None and not dispatch.subset and len(listed) < schedule.items.hi:
            found, expected = f"{len(listed)} elements", f"{schedule.items.lo} to {schedule.items.hi} items"
            fault = Fault(dispatch.indices, None, "E060", "the list is fixed, but the items are not", found, expected)
    if fault is not None:
        return (Verdict("dispatch", "refuted", fault.message),), (diagnostic(fault, loaded, path),)
    how = f"{len(indptr) - 1} ranges of {int(indptr[-1])} positions, one after another"
    return (Verdict("dispatch", "proven", how),), ()


def diagnostic(fault: Fault, loaded: LoadedSpec, path: Path) -> Diagnostic:
    """The fault at its element, where that stands in the spec, or at the table, or where the table is used."""
    place: Path = path
    source = (loaded.spec.tables or {}).get(fault.table)
    message, found = fault.message, fault.found
    if source is not None and source.values is not None:
        place = ("tables", fault.table, "values")
        place = place if fault.element is None else (*place, fault.element)
    elif source is not None:
        place = ("tables", fault.table)
        if fault.element is not None:
            found = f"{found} (element {fault.element})" if "element" not in found else found
    return loaded.diagnostic(fault.code, place, f"{fault.table}: {message}", found=found, expected=fault.expected)


def _late(late: list[str], *properties: str) -> tuple[Verdict, ...]:
    how = f"for every {', '.join(late)} that passes its check (`validate_tables`, or the emitted validator)"
    return tuple(Verdict(p, "launch", how) for p in properties)
