"""The Program: a Schedule placed in a kernel, its expressions made cheap and sorted by when they are computed.

This is all that a backend sees. What depends on parameters alone is computed once (`invariants`); the rest is
computed for each tile.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sched_compiler.carry import Digits, plan
from sched_compiler.cost import instructions
from sched_compiler.dispatch import GRID_LIMIT, ClusterLaunchControl
from sched_compiler.expr import U32, U64, Dtype, Expr, Graph, RangeError, topological
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
    #: What a worker keeps beside its index: the dispatch's state, then the digits that are carried.
    state: tuple[Expr, ...]
    tile: tuple[Expr, ...]  # the coordinates of the current tile: as `coords`, or of the digits
    walk: Walk
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


@dataclass(frozen=True, slots=True)
class Walk:
    """How a worker gets from tile to tile: by decoding its index, or by carrying digits of it where that is cheaper."""

    decode: int  # instructions for each tile, as `sched_compiler.cost` estimates them
    carry: int | None  # None where no digits can be carried
    digits: int

    @property
    def carries(self) -> bool:
        return self.carry is not None and self.carry < self.decode

    def __str__(self) -> str:
        if self.carry is None:
            return f"Each tile is decoded from its index: about {self.decode} instructions."
        if self.carries:
            cheaper = f"about {self.carry} instructions; to decode the index would take {self.decode}"
            return f"{self.digits} digits of the index are carried from tile to tile: {cheaper}."
        dearer = f"to carry {self.digits} digits of it would take {self.carry}"
        return f"Each tile is decoded from its index: about {self.decode} instructions; {dearer}."


def place(schedule: Schedule) -> Program:
    """`schedule` in the trace kernel."""
    g, dispatch, index = schedule.graph, schedule.dispatch, schedule.any_index
    worker = g.var(WORKER, 0, GRID_LIMIT - 1)
    inverse = [] if schedule.inverse is None else [g.cast(schedule.inverse, schedule.index_type)]
    params = {p.name for p in schedule.params} | ({WORKERS} if not dispatch.fixed else set())
    start, advance = dispatch.start(worker, schedule.items), dispatch.advance(schedule.index, schedule.items)
    fixed = params if dispatch.loops else set[str]()
    types = [schedule.index_type, *(v.dtype for v in dispatch.state)]
    items = g.cast(schedule.items, schedule.index_type)
    rest = [dispatch.valid(index, schedule.items), items, dispatch.workers, schedule.in_bounds, *inverse]
    walked = _lowered(g, fixed, _kept(start, types), _kept(advance, types), schedule.coords, rest)
    begun, advanced, coords, (valid, items, workers, in_bounds, *found) = walked
    decode = instructions(g, [*advanced, *coords], params)
    try:
        walk, digits = _carried(schedule, start[0], advanced, decode, params)
    except RangeError:  # what no 64 bits hold by interval is not carried
        walk, digits = Walk(decode, None, 0), None
    written, state = coords, dispatch.state
    if digits is not None:
        begun, advanced = (*begun, *digits.start), (*advanced, *digits.advance)
        written, state = digits.coords, (*state, *digits.variables)
    return Program(
        schedule=schedule,
        identifier=identifier_of(schedule.name),
        invariants=tuple(_invariants([e for part in (*walked, begun, advanced, written) for e in part], params)),
        start=begun,
        valid=valid,
        advance=advanced,
        items=items,
        workers=workers,
        coords=coords,
        state=state,
        tile=written,
        walk=walk,
        in_bounds=in_bounds,
        inverse=found[0] if found else None,
    )


def _carried(
    schedule: Schedule, first: Expr, advanced: Sequence[Expr], decode: int, params: set[str]
) -> tuple[Walk, Digits | None]:
    """How to get from tile to tile where a decode takes so many instructions, and the lowered digits if they are kept.

    `first` is the first index; `advanced` the rest of a worker's state after a tile. Raises RangeError.
    """
    g, step = schedule.graph, schedule.dispatch.step
    planned = None if step is None else plan(schedule.coords, schedule.index)
    if step is None or planned is None:
        return Walk(decode, None, 0), None
    walk = Walk(decode, decode - planned.gain(), len(planned.variables))
    if not walk.carries:  # by far the most, and to write them by digits takes time
        return walk, None
    digits = planned.digits(first, step)
    types = [v.dtype for v in digits.variables]
    parts = _kept(digits.start, types), _kept(digits.advance, types), digits.coords
    begun, following, coords = _lowered(g, params, *parts)
    walk = replace(walk, carry=instructions(g, [*advanced, *following, *coords], params))
    return walk, Digits(digits.variables, begun, following, coords) if walk.carries else None


def _kept(values: Iterable[Expr], types: Iterable[Dtype]) -> list[Expr]:
    return [v.graph.cast(v, dtype) for v, dtype in zip(values, types, strict=True)]


def _lowered(g: Graph, fixed: set[str], *parts: Sequence[Expr]) -> list[tuple[Expr, ...]]:
    """All of these lowered together, so that they share what they have in common."""
    values = iter(lower(g, [e for part in parts for e in part], fixed))
    return [tuple(itertools.islice(values, len(part))) for part in parts]


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
    # half of a value is there wherever the value is
    for node in fixed & wanted:
        if node.op == "cast" and node.dtype.bits < node.args[0].dtype.bits:
            wanted.remove(node)
            wanted.add(node.args[0])
    return [node for node in order if node.args and node in fixed and node in wanted]
