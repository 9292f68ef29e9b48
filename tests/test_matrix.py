"""Any order under any dispatch: every order of `specs/` under every mode visits what the order says, once.

What a combination cannot be is refused with a diagnostic, and which are is listed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sched_compiler import driver, loader
from sched_compiler.evaluate import evaluate
from sched_compiler.schedule import WORKERS
from sched_compiler.traces import decode
from tests.support.engines import Case, Rows, run_cuda
from tests.support.oracle import visits

SPECS = sorted((Path(__file__).parents[1] / "specs").rglob("*.yaml"))
WORKER_COUNT = 5
#: Tiles that the slow oracle walks.
MOST_WALKED = 5000
DISPATCHES: dict[str, Any] = {
    "single": "single",
    "static": {"static": {"workers": WORKER_COUNT}},
    "grid": {"static": {"workers": "grid"}},
    "ranges at launch": {"table": {"indptr": {"length": WORKER_COUNT + 1}}},
    "ranges": "ranges",
    "list": "list",
    "dynamic": "dynamic",
    "dynamic, fixed": {"dynamic": {"workers": WORKER_COUNT}},
    "clc": {"clc": {"depth": 2, "consumers": {"load": 1, "epilogue": 32}, "fallback": "dynamic"}},
}
#: Beyond this many items a list of them makes a spec too long.
MOST_LISTED = 4000

#: Three extents of so many tiles are still a grid.
MOST_EXTENT = 1000


def small(lo: int, hi: int, number: int) -> int:
    """A value in a parameter's range that keeps schedules small."""
    return min(max(lo, 9 + 2 * number), hi)


def composed(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """A spec's composed form without its dispatch, and small values for its parameters."""
    loaded = loader.load(path.read_text(), path.name, path.parent)
    spec = yaml.safe_load(loader.to_yaml(loaded.spec))
    spec.pop("dispatch")
    used = json.dumps(spec.get("order", {})) + json.dumps(spec.get("map", {}))
    spec["tables"] = {name: t for name, t in spec.get("tables", {}).items() if f'"{name}"' in used}
    values = {name: small(p.min, p.max, k) for k, (name, p) in enumerate(loaded.spec.params.items())}
    if "map" in spec:  # which is proven for all sizes where specs are checked: here, a few that are tried
        spec["params"] = {name: {"min": value - 1, "max": value + 1} for name, value in values.items()}
    for limits in spec.get("params", {}).values():  # one tile for each CTA, under some dispatches
        limits["max"] = min(limits["max"], MOST_EXTENT)
    return spec, values


def dispatched(spec: dict[str, Any], values: dict[str, int], name: str) -> Case | None:
    """The order under a dispatch; None where a fixed list has no one number of items to be of."""
    dispatch = DISPATCHES[name]
    if name in ("ranges", "list"):
        schedule = driver.check(json.dumps({**spec, "dispatch": "single"})).schedule
        count = schedule.items.value
        if count is None or (name == "list" and count > MOST_LISTED):
            return None
        cuts = np.linspace(0, count, WORKER_COUNT + 1).astype(int)
        indptr = [0, *(int(c) // 3 for c in cuts[1:-1]), count]
        dispatch = {"table": {"indptr": indptr}}
        if name == "list":
            step = next(k for k in (7, 11, 13, 17, 1) if math.gcd(k, max(count, 1)) == 1)
            dispatch["table"]["indices"] = [k * step % count for k in range(count)]
    return Case({**spec, "dispatch": dispatch}, values, WORKER_COUNT)


def combinations() -> Iterator[Any]:
    for path in SPECS:
        for name in DISPATCHES:
            yield pytest.param(path, name, id=f"{path.stem}-{name}")


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], list[Rows]]:
    """Every combination through one compiled executable."""
    cases = {}
    for path in SPECS:
        spec, values = composed(path)
        for name in DISPATCHES:
            if (case := dispatched(spec, values, name)) is not None:
                cases[path.stem, name] = case
    return dict(zip(cases, run_cuda(list(cases.values())), strict=True))


@pytest.mark.parametrize(("path", "name"), list(combinations()))
def test_every_order_under_every_dispatch(path: Path, name: str, compiled: dict[tuple[str, str], list[Rows]]) -> None:
    spec, values = composed(path)
    case = dispatched(spec, values, name)
    if case is None:  # the spec would have to be another for every value of a parameter, which is a diagnostic
        count = driver.check(json.dumps({**spec, "dispatch": "single"})).schedule.items
        assert count.value is None or count.value > MOST_LISTED
        if count.value is None:
            fixed = {"table": {"indptr": [0, int(evaluate([count], values)[0][0])]}}
            report = driver.check_text(json.dumps({**spec, "dispatch": fixed}))
            assert "E046" in [d.code for d in report.diagnostics]
        return
    report = driver.check_text(json.dumps(case.spec))
    assert report.ok, report.diagnostics
    schedule = case.checked.schedule
    inputs = {**values, **case.request.tables, WORKERS: WORKER_COUNT}
    items = int(evaluate([schedule.items], values)[0][0])
    order = decode(schedule, np.arange(items), inputs)
    walked = "map" not in spec and "points" not in spec.get("order", {})
    if walked and items * schedule.cluster_size <= MOST_WALKED:
        want = [(*tile, int(inside)) for tile, inside in visits(spec, values)]
        assert [tuple(row) for row in order.tolist()] == want
    rows = case.numpy()
    assert len(rows) == case.request.workers
    everything = np.concatenate(rows) if rows else order
    np.testing.assert_array_equal(everything[np.lexsort(everything.T)], order[np.lexsort(order.T)])
    if name in ("single", "ranges", "ranges at launch"):  # the order itself, dealt out in its order
        np.testing.assert_array_equal(everything, order)
    elif name != "list":
        np.testing.assert_array_equal(rows[0][:1], order[:1])
    for engine in (case.ptx(), [r[:, :-2] for r in compiled[path.stem, name]]):
        for got, wanted in zip(engine, rows, strict=True):
            np.testing.assert_array_equal(got, wanted)
