"""The engine `ptx`: the printed PTX, interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from backends.ptx import emitter
from backends.ptx.interpreter import Module
from backends.tracing import arguments, restored, run_trace_kernel
from sched_compiler.program import Program
from sched_compiler.registry import TraceRequest

#: The target of a module that is only interpreted.
_ARCH, _PTX = "sm_90a", "8.0"


def trace(program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
    """Interpret the trace kernel for the followed workers."""
    module = Module.parse(emitter.source(program, _ARCH, _PTX))
    size = program.schedule.cluster_size
    given = [a if isinstance(a, np.ndarray) else a[0] for a in arguments(program, request)]

    def launch(
        tiles: npt.NDArray[np.generic], counts: npt.NDArray[np.uint64], capacity: int, first: int, ctas: int
    ) -> None:
        followed = np.arange(first, first + ctas, dtype=np.int64)
        passed: list[int | npt.NDArray[Any]] = [tiles, counts, capacity, first, ctas, *given]
        module.launch(program.entry, followed, request.workers * size, passed, size)
        restored(program, given)

    return run_trace_kernel(program, request, launch)
