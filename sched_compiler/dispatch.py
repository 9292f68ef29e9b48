"""Dispatch: which worker gets which work index, and when. A mode is one class; orders know nothing of it.

A mode says, as expressions, where a worker starts, whether its index is work, and how it advances. What a worker
keeps is its index and the mode's own `state`; `start` and `advance` give a value for each. The emitters print these;
`sequence` is the same for NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sched_compiler.expr import Expr, Graph, fit
from sched_compiler.protocol import NONE_LEFT, Ring, Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Blocks of a grid along x (CUDA C++ Programming Guide, table of technical specifications).
GRID_LIMIT = 2**31 - 1
#: The first architectures with clusters in hardware, and with a queue of clusters that can be asked.
CLUSTERS, HARDWARE_QUEUE = 90, 100

#: Variables that a mode's expressions may use; no name that a user can give begins with `$`.
WORKERS = "$workers"  # as many as are launched
DRAWN = "$drawn"  # what the queue gave
_POSITION, _END = "$position", "$end"

Tables: TypeAlias = "Mapping[str, npt.NDArray[Any]]"
Indices: TypeAlias = "npt.NDArray[np.uint64]"


class Dispatch(Protocol):
    """One way to hand out work. A worker is a CTA, or a cluster where there is one."""

    @property
    def name(self) -> str: ...

    @property
    def workers(self) -> Expr:
        """The number of workers to launch: an expression of the parameters, or the variable `WORKERS`."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether a worker needs no telling how many workers were launched."""
        ...

    @property
    def loops(self) -> bool:
        """Whether a worker may visit several items, so that work before its loop pays."""
        ...

    @property
    def queue(self) -> bool:
        """Whether later items come from a queue that all workers share, so that which worker gets what is decided at
        run time. `advance` is then of the variable `DRAWN`, one item that is drawn ahead."""
        ...

    @property
    def step(self) -> Expr | None:
        """What is added to the index for the next one, where it is the same every time."""
        ...

    @property
    def ring(self) -> Ring | None:
        """The ring through which items reach the threads of a worker, in place of `start` and `advance`."""
        ...

    @property
    def state(self) -> tuple[Expr, ...]:
        """The variables that a worker keeps beside its index."""
        ...

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        """The first index, then the state. The index is past the end for a worker that the spec does not have."""
        ...

    def valid(self, index: Expr, items: Expr) -> Expr: ...

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        """The next index, then the next state."""
        ...

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        """The indices that `worker` visits, in order; for a queue, where every worker takes equally long and worker w
        asks w-th."""
        ...


@dataclass(frozen=True, slots=True)
class Single:
    """One work item for each worker."""

    workers: Expr
    name: str = "single"
    fixed: bool = True
    loops: bool = False
    queue: bool = False
    ring: None = None
    state: tuple[Expr, ...] = ()
    step: None = None

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        return (worker,)

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        return (items,)

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        import numpy as np  # only a trace needs it

        return np.arange(worker, min(worker + 1, items), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Static:
    """Worker w takes w, w + workers, w + 2*workers, ... below the number of items."""

    workers: Expr
    fixed: bool
    name: str = "static"
    loops: bool = True
    queue: bool = False
    ring: None = None
    state: tuple[Expr, ...] = ()

    @property
    def step(self) -> Expr:
        return self.workers

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        if not self.fixed:
            return (worker,)
        # more workers may have been launched than the spec has: they would repeat the others' tiles
        g = worker.graph
        return (g.select(g.lt(worker, self.workers), worker, items),)

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        return (index + self.workers,)

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        import numpy as np  # only a trace needs it

        return np.arange(worker, items, workers, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Table:
    """Worker w takes the positions `indptr[w]` to below `indptr[w + 1]` of the order, or of the list `indices`.

    `length` is the number of positions; `workers` the number of ranges. No element is read before it is known to be
    there: not for a worker without a range, and not at or beyond the end of one.
    """

    workers: Expr
    length: Expr
    indptr: str
    indices: str | None = None
    subset: bool = False  # whether not every item needs a worker
    name: str = "table"
    fixed: bool = True
    loops: bool = True
    queue: bool = False
    ring: None = None

    @property
    def state(self) -> tuple[Expr, ...]:
        g, top = self.length.graph, max(self.length.hi, 1)
        end = g.var(_END, 0, top, fit(0, top))
        # one past the end is reached, and compared with it
        return (end,) if self.indices is None else (g.var(_POSITION, 0, top + 1, fit(0, top + 1)), end)

    @property
    def step(self) -> Expr | None:
        return self.length.graph.const(1) if self.indices is None else None

    def _bound(self, g: Graph, number: Expr, guard: Expr) -> Expr:
        return g.load(self.indptr, number, guard, 0, self.length.hi)

    def _item(self, position: Expr, end: Expr, items: Expr) -> Expr:
        """The work index at a position: nothing is read where there is none."""
        g = position.graph
        assert self.indices is not None
        return g.load(self.indices, position, g.lt(position, end), 0, max(items.hi - 1, 0))

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        g = worker.graph
        known = g.lt(worker, self.workers)
        begin, end = self._bound(g, worker, known), self._bound(g, worker + 1, known)
        if self.indices is None:
            return (begin, end)
        return (self._item(begin, end, items), begin, end)

    def valid(self, index: Expr, items: Expr) -> Expr:
        first, end = (index, *self.state)[-2:]
        return index.graph.lt(first, end)

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        if self.indices is None:
            return (index + 1, *self.state)
        position, end = self.state
        following = position.graph.narrow(position, 0, self.length.hi) + 1
        return (self._item(following, end, items), following, end)

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        import numpy as np  # only a trace needs it

        begin, end = (int(v) for v in tables[self.indptr][worker : worker + 2])
        if self.indices is None:
            return np.arange(begin, end, dtype=np.uint64)
        return np.asarray(tables[self.indices][begin:end]).astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Worker w takes item w, then what a counter in global memory gives: W, W + 1, ... for W workers.

    Every worker draws until it draws an item past the end, and each draws one of those: `items` tickets in all, where
    there are more items than workers, and none at all otherwise. So whoever draws ticket `items - 1` is the last to
    touch the counter, and sets it back to 0 for the next launch. No worker waits for another.
    """

    workers: Expr  # to launch
    launched: Expr  # the variable `WORKERS`
    name: str = "dynamic"
    fixed: bool = False
    loops: bool = True
    queue: bool = True
    ring: None = None
    state: tuple[Expr, ...] = ()
    step: None = None

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        return (worker,)

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        top = items.hi + self.launched.hi
        return (index.graph.var(DRAWN, 0, top, fit(0, top)),)

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        import numpy as np  # only a trace needs it

        return np.arange(worker, items, workers, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class ClusterLaunchControl:
    """Cluster w takes item w, then the items of clusters that have not started: the hardware cancels one for it.

    An answer is the first CTA id of the cancelled cluster, or `NONE_LEFT`. It reaches the consumers of `ring`, whose
    CTAs are those of one worker. Where `fallback` is given, a counter answers on hardware that has no such queue.
    """

    workers: Expr  # to launch: one for each item, most of which are cancelled
    ring: Ring
    fallback: bool
    name: str = "clc"
    fixed: bool = True
    loops: bool = True
    queue: bool = True
    state: tuple[Expr, ...] = ()
    step: None = None

    def start(self, worker: Expr, items: Expr) -> tuple[Expr, ...]:
        return (worker,)

    def valid(self, index: Expr, items: Expr) -> Expr:
        return index.graph.lt(index, items)

    def advance(self, index: Expr, items: Expr) -> tuple[Expr, ...]:
        return (index.graph.var(DRAWN, 0, items.hi, fit(0, items.hi)),)

    def source(self, generation: int) -> Source | None:
        """Who answers on architecture sm_`generation`; None where nobody can."""
        if generation >= HARDWARE_QUEUE:
            return "hardware"
        return "counter" if self.fallback and generation >= CLUSTERS else None

    def answers(self, items: int, workers: int) -> list[list[int]]:
        """What the queue answers each of `workers` clusters that run at first: they ask in turn."""
        ids = range(0, items * self.ring.ctas, self.ring.ctas)
        return [[*ids[w + workers :: workers], NONE_LEFT] for w in range(workers)]

    def walk(self, worker: int, items: int, answers: Sequence[int]) -> Indices:
        """The indices that `worker` visits, given what the queue answers it."""
        import numpy as np  # only a trace needs it

        own = [worker] if worker < items else []
        return np.array([*own, *(a // self.ring.ctas for a in answers if a != NONE_LEFT)], dtype=np.uint64)

    def sequence(self, worker: int, items: int, workers: int, tables: Tables) -> Indices:
        import numpy as np  # only a trace needs it

        return np.arange(worker, items, workers, dtype=np.uint64)
