"""Running many specs through all engines at once: one C++ compile serves them all."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.cuda.host import Harness
from backends.ptx.engine import trace as trace_ptx
from sched_compiler import driver
from sched_compiler.evaluate import evaluate
from sched_compiler.program import Program, place
from sched_compiler.registry import TraceRequest
from sched_compiler.schedule import WORKERS
from sched_compiler.traces import trace_numpy
from tests.support.random_tables import random_tables

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A spec as data, parameter values, and the workers to follow (all of them by default)."""

    spec: Mapping[str, Any]
    values: Mapping[str, int]
    workers: int | None = None  # for `grid` and for a ring, and only there
    follow: Sequence[int] | None = None
    tables: Mapping[str, Any] | None = None  # those that arrive at launch; random ones by default
    responses: Sequence[Sequence[int]] | None = None  # of a ring, for each worker

    @functools.cached_property
    def checked(self) -> driver.Checked:
        return driver.check(json.dumps(self.spec))

    @functools.cached_property
    def program(self) -> Program:
        return place(self.checked.schedule)

    @functools.cached_property
    def request(self) -> TraceRequest:
        schedule = self.checked.schedule
        if self.responses is not None:
            count = len(self.responses)
        elif schedule.dispatch.workers.attr != WORKERS and schedule.dispatch.ring is None:
            count = int(evaluate([schedule.dispatch.workers], dict(self.values))[0][0])
        else:
            assert self.workers is not None
            count = self.workers
        if self.tables is None:
            tables = random_tables(self.checked, dict(self.values), 0)
        else:
            tables = {**self.checked.loaded.tables, **self.tables}
        return TraceRequest(
            self.values, count, range(count) if self.follow is None else self.follow, tables, self.responses
        )

    def numpy(self) -> list[Rows]:
        return trace_numpy(self.checked.schedule, self.request)

    def ptx(self) -> list[Rows]:
        return trace_ptx(self.program, self.request)


def run_cuda(cases: Sequence[Case], options: Sequence[str] = ("-O0",)) -> list[list[Rows]]:
    """Rows of each worker of each case: coordinates, in bounds, index, tile_to_index.

    Compiling takes longer than running, so nothing is optimised unless `options` of the host compiler say so.
    """
    with Harness([case.program for case in cases], options) as harness:
        return harness.run([(n, case.request) for n, case in enumerate(cases)])


def assert_engines_agree(cases: Sequence[Case], ptx: bool = True) -> None:
    """NumPy, the header on the host, and the interpreted PTX give the same tiles; the header's inverse inverts."""
    for case, compiled in zip(cases, run_cuda(cases), strict=True):
        interpreted = case.ptx() if ptx else case.numpy()
        for want, cpp, ptx_rows in zip(case.numpy(), compiled, interpreted, strict=True):
            context = f"{json.dumps(case.spec)} at {case.values}"
            np.testing.assert_array_equal(cpp[:, :-2], want, err_msg=f"cuda: {context}")
            np.testing.assert_array_equal(cpp[:, -1], cpp[:, -2], err_msg=f"tile_to_index: {context}")
            np.testing.assert_array_equal(ptx_rows, want, err_msg=f"ptx: {context}")
