"""Whether a `map` visits every tile once: every tile is tried where they are few, else z3 proves or refutes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sched_compiler.bijective import Clash, Prover
from sched_compiler.diagnostics import Diagnostic
from sched_compiler.evaluate import Array, evaluate
from sched_compiler.loader import LoadedSpec
from sched_compiler.prove import all_values, assignments, at_values, small_values
from sched_compiler.schedule import INDEX, RANK, Schedule
from sched_compiler.smt import Solver, available
from sched_compiler.verdict import Verdict

#: Tiles of a formula that are tried one by one (a byte of memory each).
MOST_TILES = 1 << 24
#: Tiles of a formula over all combinations of its parameters that are tried one by one.
MOST_WORK = 1 << 24
#: What another combination of parameters costs, in tiles.
COMBINATION = 1 << 12
#: Combinations that are tried where they are too many for all.
PROBES = 216  # six values of each of three
CHUNK = 1 << 18


def formula_coverage(schedule: Schedule, loaded: LoadedSpec) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Try every tile, for every combination of parameters, where there are few; else try some and prove the rest.

    What is wrong is shown by the smallest counterexample that is found.
    """
    combinations = assignments(schedule.params)
    most = schedule.items.hi
    if most > MOST_TILES or combinations * most + (combinations - 1) * COMBINATION > MOST_WORK:
        return _proven(schedule, loaded)
    faults = _first_faults(schedule, loaded, all_values(schedule.params))
    if faults is not None:
        return _refuted(faults[1])
    how = f"every tile tried ({most} tiles" + (
        f", {combinations} combinations of parameters)" if combinations > 1 else ")"
    )
    return (Verdict("coverage", "proven", how), Verdict("bounds", "proven", how)), ()


def _proven(schedule: Schedule, loaded: LoadedSpec) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    """Where there is too much to try: a counterexample among small parameters, proof, or neither."""
    combinations = assignments(schedule.params)
    some = (v for v in small_values(schedule.params, PROBES) if _count(schedule, v) <= CHUNK)
    faults = _first_faults(schedule, loaded, some)
    if faults is not None and all(faults[0][p.name] < p.var.lo + PROBES for p in schedule.params):
        return _refuted(faults[1])
    how = f"{schedule.items.hi} tiles for {combinations} combinations of parameters are too many to try"
    mend = "install the extra `proof` (z3), or write the order as loops"
    if available():
        found = Prover(schedule, Solver()).prove()
        if found is True:
            values = ", for all parameter values" if combinations > 1 else ""
            return (
                Verdict("coverage", "proven", f"z3: no two indices lead to one tile{values}"),
                Verdict("bounds", "proven", f"z3: no index leads outside{values}"),
            ), ()
        if found is not None:
            return _refuted(tuple(_clash(schedule, loaded, found)))
        how += ", and z3 finds neither proof nor counterexample"
        mend = "narrow the parameters' ranges, or write the order as loops"
    if faults is not None:
        return _refuted(faults[1])
    diagnostic = loaded.diagnostic(
        "E064", ("map",), "it could not be decided whether the formulas visit every tile once", found=how,
        expected=f"at most {MOST_WORK} tiles over all parameter values, or formulas that z3 can decide", mend=mend,
    )  # fmt: skip
    return (Verdict("coverage", "undecided", how), Verdict("bounds", "undecided", how)), (diagnostic,)


def _refuted(faults: tuple[Diagnostic, ...]) -> tuple[tuple[Verdict, ...], tuple[Diagnostic, ...]]:
    return tuple(Verdict(name, "refuted", "counterexample") for name in ("coverage", "bounds")), faults


def _first_faults(
    schedule: Schedule, loaded: LoadedSpec, trials: Iterable[dict[str, int]]
) -> tuple[dict[str, int], tuple[Diagnostic, ...]] | None:
    """The first parameter values that are wrong, and what is wrong there."""
    for values in trials:
        faults = tuple(_faults(schedule, loaded, values))
        if faults:
            return values, faults
    return None


def _count(schedule: Schedule, values: dict[str, int]) -> int:
    return int(evaluate([schedule.items], values)[0][0])


def _clash(schedule: Schedule, loaded: LoadedSpec, clash: Clash) -> Iterator[Diagnostic]:
    """What is wrong at the counterexample's parameters; only what it shows where there are too many tiles to try."""
    values, names = clash.values, [a.name for a in schedule.axes]
    if _count(schedule, values) <= MOST_TILES:
        yield from _faults(schedule, loaded, values)
        return
    tile = [int(c[0]) for c in _coords(schedule, np.array([clash.first], dtype=np.int64), values)]
    extents = [int(e[0]) for e in evaluate([a.extent for a in schedule.axes], values)]
    if clash.second is None:
        axis = next(k for k, (c, e) in enumerate(zip(tile, extents, strict=True)) if not 0 <= c < e)
        yield _outside(loaded, names, tile, axis, extents[axis], clash.first, values)
    else:
        yield _repeated(loaded, names, tile, [clash.first, clash.second], values)


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

    def tile(linear: int) -> list[int]:
        return [int(n) for n in np.unravel_index(linear, extents)]

    if outside is not None:
        i, axis, at = outside
        yield _outside(loaded, names, at, axis, extents[axis], i, values)
    if (visits > 1).any():
        repeated = tile(int(np.flatnonzero(visits > 1)[0]))
        yield _repeated(loaded, names, repeated, _visitors(schedule, values, repeated, total), values)
    if (visits == 0).any():
        lost = tile(int(np.flatnonzero(visits == 0)[0]))
        yield loaded.diagnostic(
            "E060", ("map",), f"a tile is never visited: {_place(names, lost)}",
            found=f"{int((visits == 0).sum())} of {total} tiles lost{at_values(values)}",
            expected="every tile exactly once",
        )  # fmt: skip


def _place(names: Sequence[str], tile: Sequence[int]) -> str:
    return "(" + ", ".join(f"{n}={v}" for n, v in zip(names, tile, strict=True)) + ")"


def _outside(
    loaded: LoadedSpec,
    names: Sequence[str],
    tile: Sequence[int],
    axis: int,
    extent: int,
    i: int,
    values: dict[str, int],
) -> Diagnostic:
    return loaded.diagnostic(
        "E062", ("map", names[axis]), f"a tile outside the space is visited: {_place(names, tile)}",
        found=f"{names[axis]} = {tile[axis]} for i = {i}{at_values(values)}", expected=f"0 <= {names[axis]} < {extent}",
    )  # fmt: skip


def _repeated(
    loaded: LoadedSpec, names: Sequence[str], tile: Sequence[int], visitors: Sequence[int], values: dict[str, int]
) -> Diagnostic:
    return loaded.diagnostic(
        "E061", ("map",), f"a tile is visited more than once: {_place(names, tile)}",
        found=f"i = {' and i = '.join(map(str, visitors))}{at_values(values)}", expected="every tile exactly once",
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
