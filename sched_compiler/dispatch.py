"""Dispatch: which worker gets which work index, and when. A mode is one class; orders know nothing of it.

A mode says, as expressions over the variables `worker`, `index` and `workers`, where a worker starts, whether an
index is work, and how it advances. The emitters print these; `sequence` is the same for NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sched_compiler.expr import Expr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Blocks of a grid along x (CUDA C++ Programming Guide, table of technical specifications).
GRID_LIMIT = 2**31 - 1


class Dispatch(Protocol):
    """One way to hand out work. A worker is a CTA, or a cluster where there is one."""

    @property
    def name(self) -> str: ...

    @property
    def workers(self) -> Expr:
        """The number of workers to launch: an expression of the parameters, or the variable `workers`."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether `workers` follows from the spec; otherwise it is as many as are launched."""
        ...

    @property
    def loops(self) -> bool:
        """Whether a worker may visit several items, so that work before its loop pays."""
        ...

    def start(self, worker: Expr, items: Expr) -> Expr:
        """Where a worker starts; past the end for a worker that the spec does not have."""
        ...

    def valid(self, index: Expr, items: Expr) -> Expr: ...

    def advance(self, index: Expr, items: Expr) -> Expr: ...

    def sequence(self, worker: int, items: int, workers: int) -> npt.NDArray[np.uint64]:
        """The indices that `worker` visits, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Single:
    """One work item for each worker."""

    workers: Expr
    name: str = "single"
    fixed: bool = True
    loops: bool = False

    def start(self, worker: Expr, items: Expr) -> Expr:
        return worker

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> Expr:
        return items

    def sequence(self, worker: int, items: int, workers: int) -> npt.NDArray[np.uint64]:
        import numpy as np  # only a trace needs it

        return np.arange(worker, min(worker + 1, items), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Static:
    """Worker w takes w, w + workers, w + 2*workers, ... below the number of items."""

    workers: Expr
    fixed: bool
    name: str = "static"
    loops: bool = True

    def start(self, worker: Expr, items: Expr) -> Expr:
        if not self.fixed:
            return worker
        # more workers may have been launched than the spec has: they would repeat the others' tiles
        g = worker.graph
        return g.select(g.lt(worker, self.workers), worker, items)

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> Expr:
        return index + self.workers

    def sequence(self, worker: int, items: int, workers: int) -> npt.NDArray[np.uint64]:
        import numpy as np  # only a trace needs it

        return np.arange(worker, items, workers, dtype=np.uint64)
