"""What a spec expects of its order: `expect: {last: {m: [from, to]}}`, that these rows come after all others.

It is wished for, not needed: where it does not hold, every tile is still visited once, and the diagnostic says which
rows come too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sched_compiler.diagnostics import Diagnostic
from sched_compiler.dispatch import Tables
from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr, to_text
from sched_compiler.loader import LoadedSpec
from sched_compiler.prove import all_values, assignments, at_values, small_values
from sched_compiler.schedule import Schedule
from sched_compiler.traces import Rows, decode
from sched_compiler.translate import Translator
from sched_compiler.verdict import Verdict

#: Tiles that are tried one by one, over all combinations of parameters.
MOST_TILES = 1 << 22
#: Combinations that are tried where there are too many for all, and the tiles of each.
SAMPLES, SAMPLE_TILES = 64, 1 << 16
#: Rows that a diagnostic names.
MOST_NAMED = 8
#: Combinations of parameters that a diagnostic names, where there are no more than so many in all.
MOST_BROKEN, MOST_COMBINATIONS = 4, 256


@dataclass(frozen=True, slots=True)
class _Range:
    axis: int
    name: str
    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class _Trial:
    """Parameter values, the number of items, and the bounds of each range."""

    values: dict[str, int]
    items: int
    bounds: list[int]


def verify_expectation(schedule: Schedule, loaded: LoadedSpec) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Whether tiles of the ranges come last, tried tile by tile; the smallest parameters at which they do not."""
    expect = loaded.spec.expect
    assert expect is not None
    formulas = Translator(schedule.graph, loaded, {p.name: p.var for p in schedule.params})
    names = [a.name for a in schedule.axes]
    ranges: list[_Range] = []
    for name, (low, high) in expect.last.items():
        if name not in names:
            raise loaded.error(
                "E040", ("expect", "last", name), f"{name} is not an axis of the space", found=name,
                expected=f"one of: {', '.join(names)}", key=True,
            )  # fmt: skip
        ends = [formulas.integer(end, ("expect", "last", name, k)) for k, end in enumerate((low, high))]
        extent = schedule.axes[names.index(name)].extent
        if extent.hi and (ends[0].lo >= ends[1].hi or ends[0].lo >= extent.hi):
            raise loaded.error(
                "E023", ("expect", "last", name), "the range holds no tile", found=f"{to_text(ends[0])} to below "
                f"{to_text(ends[1])}", expected=f"a range within 0 to below {to_text(extent)}",
            )  # fmt: skip
        ranges.append(_Range(names.index(name), name, *ends))
    if schedule.points is not None and any(name not in loaded.tables for name in schedule.points):
        how = "the order arrives at launch"
        return (Verdict("order", "undecided", how, advisory=True),), (_undecided(how, loaded),)
    combinations = assignments(schedule.params)
    exhaustive = combinations * max(schedule.items.hi, 64) <= MOST_TILES
    chosen = list(all_values(schedule.params) if exhaustive else small_values(schedule.params, SAMPLES))
    trials = _trials(schedule, ranges, chosen)
    if not exhaustive:
        trials = [trial for trial in trials if trial.items <= SAMPLE_TILES]
    tried = len(trials)
    broken: list[str] = []
    for trial, rows in _decoded(schedule, trials, loaded.tables):
        if early := _early(rows, ranges, trial):
            broken.append(_described(early, ranges, trial.values))
            if len(broken) > MOST_BROKEN or not _few(schedule):
                break
    if broken:
        more = "; and others" if len(broken) > MOST_BROKEN else ""
        return _broken("; ".join(broken[:MOST_BROKEN]) + more, loaded)
    if exhaustive:
        how = f"the expected tiles come last: every tile tried, for {tried} combinations of parameters"
        return (Verdict("order", "proven", how, advisory=True),), ()
    how = f"tried for {tried} of {combinations} combinations of parameters, of which others have too many tiles to try"
    return (Verdict("order", "undecided", how, advisory=True),), (_undecided(how, loaded),)


def _trials(schedule: Schedule, ranges: list[_Range], chosen: list[dict[str, int]]) -> list[_Trial]:
    """What there is to try with each of these parameter values."""
    columns = {p.name: np.array([values[p.name] for values in chosen]) for p in schedule.params}
    bounds = [e for r in ranges for e in (r.low, r.high)]
    found = [np.broadcast_to(v, len(chosen)).tolist() for v in evaluate([schedule.items, *bounds], columns)]
    return [_Trial(values, items, ends) for values, items, *ends in zip(chosen, *found, strict=True)]


def _decoded(schedule: Schedule, trials: list[_Trial], tables: Tables) -> Iterator[tuple[_Trial, Rows]]:
    """The tiles of each trial in order, as `decode` gives them; of many small ones at once."""
    begin = 0
    while begin < len(trials):
        end, tiles = begin + 1, trials[begin].items
        while end < len(trials) and tiles + trials[end].items <= SAMPLE_TILES:
            tiles += trials[end].items
            end += 1
        group = trials[begin:end]
        index = np.concatenate([np.arange(trial.items) for trial in group])
        each = np.array([trial.items for trial in group]) * schedule.cluster_size
        values = {p.name: np.repeat([trial.values[p.name] for trial in group], each) for p in schedule.params}
        rows = decode(schedule, index, {**values, **tables})
        yield from zip(group, np.split(rows, np.cumsum(each)[:-1]), strict=True)
        begin = end


def _early(rows: Rows, ranges: list[_Range], trial: _Trial) -> list[tuple[int, ...]]:
    """The positions along the ranges' axes of tiles that are expected last, but come before another."""
    expected = rows[:, -1] == 1
    for k, r in enumerate(ranges):
        low, high = trial.bounds[2 * k : 2 * k + 2]
        expected &= (rows[:, r.axis] >= low) & (rows[:, r.axis] < high)
    others = np.flatnonzero(~expected & (rows[:, -1] == 1))
    if not others.size:
        return []
    early = np.flatnonzero(expected[: int(others[-1])])
    columns = rows[early][:, [r.axis for r in ranges]]
    return sorted({tuple(int(v) for v in row) for row in columns})


def _few(schedule: Schedule) -> bool:
    """Whether every combination of parameters is worth a name."""
    return assignments(schedule.params) <= MOST_COMBINATIONS


def _described(early: list[tuple[int, ...]], ranges: list[_Range], values: dict[str, int]) -> str:
    names = ", ".join(r.name for r in ranges)
    shown = ", ".join(str(v[0]) if len(v) == 1 else str(v) for v in early[:MOST_NAMED])
    more = f" and {len(early) - MOST_NAMED} more" if len(early) > MOST_NAMED else ""
    return f"{names} = {shown}{more}{at_values(values)}"


def _broken(found: str, loaded: LoadedSpec) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    diagnostic = loaded.diagnostic(
        "W004", ("expect", "last"), "tiles that are expected last come before others", found=found,
        expected="every other tile before them", mend="change the order or its sizes, or drop the expectation",
    )  # fmt: skip
    return (Verdict("order", "refuted", f"before others come {found}", advisory=True),), (diagnostic,)


def _undecided(how: str, loaded: LoadedSpec) -> Diagnostic:
    return loaded.diagnostic(
        "W003", ("expect", "last"), "it is not decided whether these tiles come last", found=how,
        mend="narrow the parameters' ranges, or drop the expectation",
    )  # fmt: skip
