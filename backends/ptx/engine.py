"""The engine `ptx`: the printed PTX, interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from backends.ptx import emitter
from backends.ptx.interpreter import Module, PtxTrap
from backends.tracing import answers_of, arguments, counter, restored, run_trace_kernel
from sched_compiler.evaluate import evaluate
from sched_compiler.program import Program
from sched_compiler.protocol import Source
from sched_compiler.registry import BackendError, TraceRequest

#: The target of a module that is only interpreted. A ring's is one where the hardware answers.
_ARCH, _RING_ARCH, _PTX = "sm_90a", "sm_100a", "8.0"


def trace(program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
    """Interpret the trace kernel for the followed workers; of a ring, all threads of all workers."""
    dispatch = program.schedule.dispatch
    arch = _ARCH if dispatch.ring is None else _RING_ARCH
    return interpret(Module.parse(emitter.source(program, arch, _PTX)), program, request, program.source(arch))


def interpret(
    module: Module, program: Program, request: TraceRequest, source: Source | None
) -> list[npt.NDArray[np.int64]]:
    """Interpret the trace kernel of a module. `source` is who answers a ring there."""
    schedule = program.schedule
    size, ring = schedule.worker_ctas, schedule.dispatch.ring is not None
    drawn = counter(program, source)
    given = [a if isinstance(a, np.ndarray) else a[0] for a in arguments(program, request, drawn)]
    grid, running, answers = request.workers * size, request.workers, {}
    if source == "hardware":  # a cluster for each item, most of which are cancelled before they start
        items = int(evaluate([schedule.items], dict(request.values))[0][0])
        running, grid = min(request.workers, items), items * size
        answers = dict(enumerate(answers_of(program, request)))

    def launch(
        tiles: npt.NDArray[np.generic], counts: npt.NDArray[np.uint64], capacity: int, first: int, ctas: int
    ) -> None:
        followed = np.arange(first, min(first + ctas, running * size), dtype=np.int64)
        passed: list[int | npt.NDArray[Any]] = [tiles, counts, capacity, first, ctas, *given]
        if len(followed):
            threads = program.block if ring else 1
            try:
                module.launch(program.entry, followed, grid, passed, size, threads=threads, answers=answers)
            except PtxTrap as e:
                raise BackendError(f"the interpreted kernel trapped: {e}") from None
        restored(drawn)

    return run_trace_kernel(program, request, launch)
