"""On a device: for every spec, both backends, and several values of each run-time parameter, the trace is NumPy's.

Set SCHEDC_GPU_RESULTS to a file name to keep what was run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.launch import Device
from sched_compiler import driver, registry
from sched_compiler.evaluate import evaluate
from sched_compiler.program import place
from sched_compiler.protocol import Source
from sched_compiler.registry import TraceRequest
from sched_compiler.schedule import WORKERS
from sched_compiler.traces import Rows, trace_numpy
from tests.support.random_tables import random_tables

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.yaml"))
#: Tiles of the largest case of a spec.
MOST = 1 << 19


@pytest.fixture(scope="session")
def kept() -> Iterator[list[dict[str, Any]]]:
    """What was run, written where SCHEDC_GPU_RESULTS says."""
    results: list[dict[str, Any]] = []
    yield results
    if "SCHEDC_GPU_RESULTS" in os.environ:
        Path(os.environ["SCHEDC_GPU_RESULTS"]).write_text(json.dumps(results, indent=1) + "\n")


def assignments(checked: driver.Checked) -> list[dict[str, int]]:
    """Values for the parameters: the ends of their ranges, and some between, as far as the tiles stay few."""
    params = checked.schedule.params
    picks = [0, 1, 2, 3, 7, 8, 9, 16, 61, 100, 128, 1000, 4097, 65536, 1048576]
    found: list[dict[str, int]] = []
    for n, pick in enumerate(picks):
        values = {}
        for k, p in enumerate(params):
            value = picks[(n + 3 * k) % len(picks)] if k else pick
            values[p.name] = min(max(value, p.var.lo), p.var.hi)
        items = int(evaluate([checked.schedule.items], dict(values))[0][0]) * checked.schedule.cluster_size
        if items <= MOST and values not in found:
            found.append(values)
    return found


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_device_trace_is_numpys(path: Path, backend: str, device: Device, kept: list[dict[str, Any]]) -> None:
    checked = driver.check(path.read_text(), str(path))
    program = place(checked.schedule)
    cubin = registry.get(backend).build(program, device.arch, "cubin")
    cases = assignments(checked)
    assert cases
    assert len(cases) > 2 or not checked.schedule.params
    for values in cases:
        for workers in worker_counts(checked, values, program.source(device.arch)):
            tables = random_tables(checked, values, workers)
            request = TraceRequest(values, workers, range(workers), tables)
            begin = time.perf_counter()
            rows = device.trace(cubin, program, request)
            seconds = time.perf_counter() - begin
            expected = trace_numpy(checked.schedule, request)
            assert len(rows) == len(expected)
            if checked.schedule.dispatch.queue:  # who gets what is decided on the device
                assert_all_once(rows, expected, cancelled=program.source(device.arch) == "hardware")
                continue
            for w, (got, want) in enumerate(zip(rows, expected, strict=True)):
                np.testing.assert_array_equal(got, want, err_msg=f"worker {w} of {workers} at {values}")
            kept.append(
                {
                    "spec": path.name, "backend": backend, "arch": device.arch, "values": values, "workers": workers,
                    "tiles": sum(len(r) for r in expected), "equal": True, "seconds": round(seconds, 4),
                }
            )  # fmt: skip


def assert_all_once(rows: list[Rows], expected: list[Rows], cancelled: bool) -> None:
    """Every tile once over all workers; each worker's first is its own, unless it was `cancelled` before it began."""
    for got, want in zip(rows, expected, strict=True):
        if len(got) or not cancelled:
            np.testing.assert_array_equal(got[:1], want[:1])
    got, want = (np.concatenate(r) for r in (rows, expected))
    np.testing.assert_array_equal(got[np.lexsort(got.T)], want[np.lexsort(want.T)])


def worker_counts(checked: driver.Checked, values: dict[str, int], source: Source | None) -> list[int]:
    """The spec's number of workers; several where it is as many as are launched, as it is under a ring's counter."""
    if source == "counter":
        return [1, 66, 132, 133, 1000]
    if checked.schedule.dispatch.workers.attr == WORKERS:
        return [1, 131, 132, 133, 1000]
    return [int(evaluate([checked.schedule.dispatch.workers], dict(values))[0][0])]
