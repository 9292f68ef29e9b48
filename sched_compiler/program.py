"""The Program: a Schedule placed in a kernel, its expressions made cheap and sorted by when they are computed.

This is all that a backend sees. What depends on parameters alone is computed once (`invariants`); the rest is
computed for each tile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sched_compiler.dispatch import GRID_LIMIT, ClusterLaunchControl
from sched_compiler.expr import U32, U64, Dtype, Expr, topological
from sched_compiler.lower import lower
from sched_compiler.protocol import Protocol, Source, protocol
from sched_compiler.schedule import WORKER, WORKERS, Schedule

#: Threads of a block of the trace kernel, of which one records; a ring's consumers have theirs besides.
_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule ready to be printed. Expressions are lowered: no signed division, no division by a literal."""

    schedule: Schedule
    identifier: str
    #: Values that depend on parameters alone and are needed for each tile, operands first.
    invariants: tuple[Expr, ...]
    start: tuple[Expr, ...]  # the index and the dispatch's state, of the variable `$worker`
    valid: Expr  # of the variable `$index` and the state
    advance: tuple[Expr, ...]  # the index and the state, of the same
    items: Expr
    workers: Expr
    coords: tuple[Expr, ...]  # of the variables `$index` and `$rank`
    in_bounds: Expr  # of the variables `tile.AXIS`
    inverse: Expr | None  # of the variables `tile.AXIS`

    @property
    def coord_type(self) -> Dtype:
        return self.coords[0].dtype

    @property
    def block(self) -> int:
        """Threads of a block of the trace kernel."""
        ring = self.schedule.dispatch.ring
        return _BLOCK if ring is None else protocol(ring).block

    @property
    def recorder(self) -> int:
        """The thread that records: the first of a ring's first consumer, or else of the block."""
        ring = self.schedule.dispatch.ring
        return 0 if ring is None else protocol(ring).starts[0]

    def protocol(self, source: Source) -> Protocol | None:
        """The protocol of the dispatch's ring, answered by `source`; None where there is no ring."""
        ring = self.schedule.dispatch.ring
        return None if ring is None else protocol(replace(ring, source=source))

    def source(self, arch: str) -> Source | None:
        """Who answers the ring on `arch`; None where there is no ring, or nobody can."""
        dispatch = self.schedule.dispatch
        return dispatch.source(generation(arch)) if isinstance(dispatch, ClusterLaunchControl) else None

    def passed(self, source: Source | None) -> tuple[Passed, ...]:
        """What a kernel gets passed for its schedule, in order, where `source` answers a ring."""
        schedule = self.schedule
        found = [Passed(p.name, "parameter", p.var.dtype, p.var.lo, p.var.hi, p.nvshmem) for p in schedule.params]
        found += [Passed(t.name, "table", t.element, t.lo, t.hi) for t in schedule.tables]
        if source == "counter" or (schedule.dispatch.queue and schedule.dispatch.ring is None):
            element = U32 if source == "counter" else U64
            found.append(Passed("counter", "counter", element, 0, element.hi))
        return tuple(found)

    def launched(self, arch: str) -> Expr:
        """The number of workers to launch on `arch`: the variable `WORKERS` where it may be any."""
        if self.source(arch) == "counter":  # a ring whose items come from a counter, as under `dynamic`
            return self.schedule.graph.var(WORKERS, 1, GRID_LIMIT // self.schedule.worker_ctas)
        return self.workers

    @property
    def entry(self) -> str:
        """The trace kernel's name."""
        return f"{self.identifier}_trace"


@dataclass(frozen=True, slots=True)
class Passed:
    """A value, or for a table and a counter an address of values, of this type and between these bounds."""

    name: str
    role: Literal["parameter", "table", "counter"]
    element: Dtype
    lo: int
    hi: int
    nvshmem: bool = False  # the trace kernel asks NVSHMEM for it

    @property
    def pointer(self) -> bool:
        return self.role != "parameter"

    @property
    def type(self) -> str:
        return f"{self.element.name}{'*' if self.pointer else ''}"

    @property
    def size(self) -> int:
        """Bytes, and their alignment."""
        return 8 if self.pointer else self.element.bits // 8


def generation(arch: str) -> int:
    """90 for `sm_90a`."""
    return int(re.sub("[^0-9]", "", arch))


def identifier_of(name: str) -> str:
    """A spec's name as an identifier of C++ and PTX."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def place(schedule: Schedule) -> Program:
    """`schedule` in the trace kernel."""
    g, dispatch = schedule.graph, schedule.dispatch
    index = schedule.any_index
    worker = g.var(WORKER, 0, GRID_LIMIT - 1)
    inverse = [] if schedule.inverse is None else [g.cast(schedule.inverse, schedule.index_type)]
    params = {p.name for p in schedule.params} | ({WORKERS} if not dispatch.fixed else set())
    types = (schedule.index_type, *(v.dtype for v in dispatch.state))

    def kept(values: tuple[Expr, ...]) -> list[Expr]:
        return [g.cast(v, dtype) for v, dtype in zip(values, types, strict=True)]

    lowered = lower(
        g,
        [
            *kept(dispatch.start(worker, schedule.items)),
            dispatch.valid(index, schedule.items),
            *kept(dispatch.advance(schedule.index, schedule.items)),
            schedule.items,
            dispatch.workers,
            schedule.in_bounds,
            *schedule.coords,
            *inverse,
        ],
        fixed=params if dispatch.loops else (),
    )
    width, rank = len(types), len(schedule.coords)
    start, valid, advance = lowered[:width], lowered[width], lowered[width + 1 : 2 * width + 1]
    items, workers, in_bounds, *rest = lowered[2 * width + 1 :]
    return Program(
        schedule=schedule,
        identifier=identifier_of(schedule.name),
        invariants=tuple(_invariants(lowered, params)),
        start=tuple(start),
        valid=valid,
        advance=tuple(advance),
        items=items,
        workers=workers,
        coords=tuple(rest[:rank]),
        in_bounds=in_bounds,
        inverse=rest[rank] if inverse else None,
    )


def _invariants(roots: Sequence[Expr], params: set[str]) -> list[Expr]:
    """The largest computations that depend on parameters alone."""
    if not params:  # then they are literals
        return []
    order = topological(roots)
    fixed: set[Expr] = set()
    wanted = set(roots)
    for node in order:
        if (
            node.op == "const"
            or (node.op == "var" and node.attr in params)
            # an element is read where it is known to be there, which may be in the loop alone
            or (node.args and node.op != "load" and fixed.issuperset(node.args))
        ):
            fixed.add(node)
        else:
            wanted.update(node.args)
    return [node for node in order if node.args and node in fixed and node in wanted]
