"""Whether a `map` visits every tile once: there is nothing to prove it by, so every tile is tried."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from sched_compiler.diagnostics import Diagnostic
from sched_compiler.evaluate import Array, evaluate
from sched_compiler.loader import LoadedSpec
from sched_compiler.prove import all_values, assignments, at_values, small_values
from sched_compiler.schedule import INDEX, RANK, Schedule
from sched_compiler.verdict import Verdict

#: Tiles of a formula that are tried one by one (a byte of memory each).
MOST_TILES = 1 << 24
#: Tiles of a formula over all combinations of its parameters that are tried one by one.
MOST_WORK = 1 << 24
#: What another combination of parameters costs, in tiles.
COMBINATION = 1 << 12
CHUNK = 1 << 18


def formula_coverage(schedule: Schedule, loaded: LoadedSpec) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Try every tile, for every combination of parameters where there are few; keep the smallest counterexamples."""
    combinations = assignments(schedule.params)
    most = schedule.items.hi
    exhaustive = most <= MOST_TILES and combinations * most + (combinations - 1) * COMBINATION <= MOST_WORK
    tried = 0
    for values in all_values(schedule.params) if exhaustive else small_values(schedule.params, 64):
        if int(evaluate([schedule.items], values)[0][0]) > (MOST_TILES if exhaustive else CHUNK):
            continue
        faults = list(_faults(schedule, loaded, values))
        tried += 1
        if faults:
            verdict = Verdict("coverage", "refuted", "counterexample")
            return (verdict, Verdict("bounds", "refuted", "counterexample")), tuple(faults)
    if exhaustive:
        how = f"every tile tried ({most} tiles" + (
            f", {combinations} combinations of parameters)" if tried > 1 else ")"
        )
        return (Verdict("coverage", "proven", how), Verdict("bounds", "proven", how)), ()
    how = f"{most} tiles for {combinations} combinations of parameters are too many to try"
    diagnostic = loaded.diagnostic(
        "E064", ("map",), "it could not be decided whether the formulas visit every tile once", found=how,
        expected=f"at most {MOST_WORK} tiles over all parameter values", mend="write the order as loops",
    )  # fmt: skip
    return (Verdict("coverage", "undecided", how), Verdict("bounds", "undecided", how)), (diagnostic,)


def _faults(schedule: Schedule, loaded: LoadedSpec, values: dict[str, int]) -> Iterator[Diagnostic]:
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
