"""A loaded spec into a Schedule: axes, splits, fusions, order, cluster, dispatch as expressions."""

from __future__ import annotations

from dataclasses import dataclass

from sched_compiler.build_order import OrderBuilder
from sched_compiler.diagnostics import Diagnostic
from sched_compiler.dispatch import GRID_LIMIT, ClusterLaunchControl, Dispatch, Dynamic, Single, Static
from sched_compiler.dispatch import Table as TableDispatch
from sched_compiler.expr import S32, S64, Expr, Graph, RangeError, fit, to_text
from sched_compiler.loader import LoadedSpec
from sched_compiler.nest import Axis, Derived, Digit, Nest, same
from sched_compiler.protocol import MOST_CTAS, Consumer, Ring, protocol
from sched_compiler.prove import breaks_multiple
from sched_compiler.schedule import INDEX, RANK, WORKERS, Parameter, Schedule, SpaceAxis, TableInput, tile_input
from sched_compiler.source import Path
from sched_compiler.spec import ClusterLaunchControl as ClcSpec
from sched_compiler.spec import Kernel, Order, Table
from sched_compiler.translate import Translator

#: CTAs that a cluster may have on every GPU with clusters; 16 needs a launch attribute and not every GPU grants it.
PORTABLE_CLUSTER = 8
#: Bytes of dynamic shared memory that a CTA of any architecture can have.
MOST_SHARED = 227 << 10
#: Work items are counted in signed 64 bits.
MOST_ITEMS = S64.hi


@dataclass(frozen=True, slots=True)
class Built:
    """A schedule, and what its author should know of it."""

    schedule: Schedule
    warnings: tuple[Diagnostic, ...]
    shared_bytes: Expr | None = None  # dynamic shared memory of a CTA of a user's kernel


def build(loaded: LoadedSpec) -> Built:
    """The schedule that a spec describes. Raises SpecError where it describes none."""
    try:
        return _Builder(loaded).build()
    except RangeError as e:
        raise loaded.error(
            "E063", ("space",), "the arithmetic of this schedule does not fit 64 bits", found=str(e),
            expected="at most 2^63 - 1 work items", mend="narrow the parameters' ranges",
        ) from None  # fmt: skip


class _Table:
    """A table while its uses are found, which say what its elements can be."""

    def __init__(self, g: Graph, name: str, length: Expr, given: bool) -> None:
        self.g, self.name, self.length, self.given = g, name, length, given
        self.hi: int | None = None

    def at(self, index: Expr) -> Expr:
        return self.g.load(self.name, index, self.g.true(), 0, self.hi or 0)

    def input(self) -> TableInput:
        return TableInput(self.name, self.length, 0, self.hi or 0, self.given)


class _Builder:
    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded, self.spec = loaded, loaded.spec
        self.g = Graph()
        self.params = tuple(
            Parameter(name, self.g.var(name, p.min, p.max), p.source is not None)
            for name, p in self.spec.params.items()
        )
        self.names = {p.name: p.var for p in self.params}
        self.formulas = Translator(self.g, loaded, self.names)
        self.warnings: list[Diagnostic] = []
        self.tables = self._tables()

    def build(self) -> Built:
        axes = self._axes()
        blocks = tuple(
            Axis(a.name, self.g.ceil_div(a.extent, a.cluster), (Digit(a.name, self.g.const(1)),)) for a in axes
        )
        points = self.spec.order.points if self.spec.order is not None else None
        nest = self._nest(blocks) if self.spec.map is None and points is None else None
        if points is not None:
            items = self._listed(blocks, points)
        else:
            items = nest.size if nest is not None else self._volume(axes)
        if items.hi > MOST_ITEMS:
            raise RangeError(items.lo, items.hi)
        size = 1
        for axis in axes:
            size *= axis.cluster
        dispatch = self._dispatch(items, size)
        top = max(items.hi - 1, 0)
        index_type = fit(0, max(items.hi, GRID_LIMIT, dispatch.advance(self.g.var(INDEX, 0, top), items)[0].hi))
        index = self.g.var(INDEX, 0, top, index_type)
        if points is not None:
            positions = tuple(self.tables[points[a.name]].at(index) for a in blocks)
        else:
            positions = nest.forward(index) if nest is not None else self._mapped(index)
        rank = self.g.var(RANK, 0, size - 1)
        coords = self._coords(axes, positions, rank)
        tile = tuple(self.g.var(tile_input(a.name), c.lo, c.hi, c.dtype) for a, c in zip(axes, coords, strict=True))
        schedule = Schedule(
            name=self.spec.name,
            graph=self.g,
            params=self.params,
            tables=tuple(t.input() for t in self.tables.values()),
            axes=axes,
            dispatch=dispatch,
            index=index,
            index_type=index_type,
            rank=rank,
            items=items,
            coords=coords,
            tile=tile,
            in_bounds=self._in_bounds(axes, nest, tile),
            inverse=self._inverse(nest, axes, tile) if nest is not None else None,
            nest=nest,
            points=None if points is None else tuple(points[a.name] for a in axes),
            subset=points is not None and bool(self.spec.order and self.spec.order.subset),
        )
        shared_bytes = self._shared_bytes()
        self._unused()
        return Built(schedule, tuple(self.warnings), shared_bytes)

    # -- space ------------------------------------------------------------------------------------------------

    def _axes(self) -> tuple[SpaceAxis, ...]:
        cluster = self.spec.cluster
        shape = dict(cluster.shape) if cluster is not None else {}
        for name in shape:
            if name not in self.spec.space:
                raise self.loaded.error(
                    "E040", ("cluster", "shape", name), f"{name} is not an axis of the space", found=name,
                    expected=f"one of: {', '.join(self.spec.space)}", key=True,
                )  # fmt: skip
        axes: list[SpaceAxis] = []
        for name, text in self.spec.space.items():
            extent = self.formulas.integer(text, ("space", name), at_least=0, what=f"the extent of {name}")
            axes.append(SpaceAxis(name, extent, shape.get(name, 1)))
            if cluster is not None and cluster.ragged == "reject" and (extent % shape.get(name, 1)).value != 0:
                ragged = breaks_multiple(extent, shape[name], self.params)
                shown = "always" if ragged is not None else "shown to be"
                raise self.loaded.error(
                    "E050", ("cluster", "shape", name),
                    f"the extent of {name} is not {shown} a multiple of the cluster",
                    found=ragged or f"extents from {extent.lo} to {extent.hi}", expected=f"multiples of {shape[name]}",
                    mend="drop `ragged: reject`, or make the extent a multiple",
                )  # fmt: skip
        size = 1
        for n in shape.values():
            size *= n
        if size > PORTABLE_CLUSTER:
            raise self.loaded.error(
                "E050", ("cluster",), f"a cluster of {size} CTAs cannot be launched on every GPU", found=f"{size} CTAs",
                expected=f"at most {PORTABLE_CLUSTER}", mend="make the cluster smaller",
            )  # fmt: skip
        # the rank runs along the cluster's axes in the order in which the cluster names them
        return tuple(axes)

    def _volume(self, axes: tuple[SpaceAxis, ...]) -> Expr:
        total = self.g.const(1)
        for axis in axes:
            total = total * axis.extent
        return total

    def _nest(self, blocks: tuple[Axis, ...]) -> Nest:
        orders = OrderBuilder(self.g, self.loaded, self.formulas)
        nest = orders.build(blocks, self.spec.order or Order(), ("order",))
        self.warnings += [self.loaded.diagnostic("W001", p, message, mend=mend) for p, message, mend in orders.warnings]
        return nest

    def _mapped(self, index: Expr) -> tuple[Expr, ...]:
        assert self.spec.map is not None
        for name in self.spec.map:
            if name not in self.spec.space:
                raise self.loaded.error(
                    "E040", ("map", name), f"{name} is not an axis of the space", found=name,
                    expected=f"one of: {', '.join(self.spec.space)}", key=True,
                )  # fmt: skip
        missing = [name for name in self.spec.space if name not in self.spec.map]
        if missing:
            raise self.loaded.error(
                "E041", ("map",), f"map says nothing of {', '.join(missing)}", found=", ".join(self.spec.map),
                expected=f"a formula for each of: {', '.join(self.spec.space)}",
            )  # fmt: skip
        if self.spec.cluster is not None:
            raise self.loaded.error(
                "E050",
                ("cluster",),
                "a map formula gives single tiles, not clusters",
                mend="drop cluster, or use order",
            )
        formulas = Translator(self.g, self.loaded, {"i": index, **self.names}, self.formulas.used)
        return tuple(formulas.integer(self.spec.map[name], ("map", name)) for name in self.spec.space)

    def _coords(self, axes: tuple[SpaceAxis, ...], positions: tuple[Expr, ...], rank: Expr) -> tuple[Expr, ...]:
        """Tile coordinates of the CTA with this rank: the cluster's first-named axis is fastest."""
        offsets: dict[str, Expr] = {}
        for name, width in (self.spec.cluster.shape if self.spec.cluster is not None else {}).items():
            offsets[name] = rank % width
            rank = rank // width
        coords = [
            position * axis.cluster + offsets.get(axis.name, 0) for axis, position in zip(axes, positions, strict=True)
        ]
        narrow = all(S32.lo <= c.lo and c.hi <= S32.hi for c in coords)
        return tuple(self.g.cast(c, S32 if narrow else S64) for c in coords)

    def _in_bounds(self, axes: tuple[SpaceAxis, ...], nest: Nest | None, tile: tuple[Expr, ...]) -> Expr:
        """Whether a scheduled tile lies in the space: asked only of axes that are padded or do not fill clusters."""
        padded = nest.padded if isinstance(nest, Derived) else ()
        result = self.g.true()
        for k, (axis, t) in enumerate(zip(axes, tile, strict=True)):
            if k in padded or (axis.extent % axis.cluster).value != 0:
                result = self.g.logical_and(result, self.g.lt(t, axis.extent))
        return result

    def _inverse(self, nest: Nest, axes: tuple[SpaceAxis, ...], tile: tuple[Expr, ...]) -> Expr:
        return nest.inverse([t // a.cluster for t, a in zip(tile, axes, strict=True)])

    # -- tables -----------------------------------------------------------------------------------------------

    def _tables(self) -> dict[str, _Table]:
        found: dict[str, _Table] = {}
        for name, source in (self.spec.tables or {}).items():
            given = self.loaded.tables.get(name)
            if given is not None:
                length = self.g.const(len(given))
            else:
                assert source.length is not None
                length = self.formulas.integer(
                    source.length, ("tables", name, "length"), at_least=0, what=f"the length of {name}"
                )
            found[name] = _Table(self.g, name, length, given is not None)
        return found

    def _table(self, name: str, hi: int) -> _Table:
        """The table, from here on known to hold values up to `hi`."""
        table = self.tables[name]
        table.hi = max(table.hi or 0, hi)
        return table

    def _listed(self, blocks: tuple[Axis, ...], points: dict[str, str]) -> Expr:
        """The number of listed points: the length of every axis's table."""
        for name in points:
            if name not in self.spec.space:
                raise self.loaded.error(
                    "E040", ("order", "points", name), f"{name} is not an axis of the space", found=name,
                    expected=f"one of: {', '.join(self.spec.space)}", key=True,
                )  # fmt: skip
        missing = [axis.name for axis in blocks if axis.name not in points]
        if missing:
            raise self.loaded.error(
                "E041", ("order", "points"), f"points says nothing of {', '.join(missing)}",
                found=", ".join(points) or "nothing", expected=f"a table for each of: {', '.join(self.spec.space)}",
            )  # fmt: skip
        tables = [self._table(points[axis.name], max(axis.length.hi - 1, 0)) for axis in blocks]
        first = tables[0].length
        for axis, table in zip(blocks, tables, strict=True):
            if not same(table.length, first):
                raise self.loaded.error(
                    "E046", ("order", "points", axis.name), "the tables of the points differ in length",
                    found=f"{to_text(table.length)} elements", expected=f"{to_text(first)}, as {tables[0].name} has",
                )  # fmt: skip
        return first

    def _ranges(self, spec: Table, items: Expr) -> TableDispatch:
        """Ranges of the order, or of a list of work indices."""
        indptr = self._table(spec.indptr, 0)
        path = ("dispatch", "table", "indptr")
        if indptr.length.lo < 1:
            raise self.loaded.error(
                "E046", path, "indptr has an element for each worker, and one more", expected="at least one element",
                found=f"{to_text(indptr.length)} elements",
            )  # fmt: skip
        length = items
        if spec.indices is not None:
            length = self._table(spec.indices, max(items.hi - 1, 0)).length
        self._table(spec.indptr, length.hi)
        return TableDispatch(indptr.length - 1, length, spec.indptr, spec.indices, subset=bool(spec.subset))

    # -- dispatch ---------------------------------------------------------------------------------------------

    def _dispatch(self, items: Expr, cluster_size: int) -> Dispatch:
        spec = self.spec.dispatch
        where: Path
        result: Dispatch
        ctas = cluster_size
        launched = self.g.var(WORKERS, 1, GRID_LIMIT // ctas)
        if spec.single is not None:
            result, where = Single(items), ("dispatch", "single")
        elif spec.table is not None:
            result, where = self._ranges(spec.table, items), ("dispatch", "table")
        elif spec.dynamic is not None:
            where = ("dispatch", "dynamic")
            result = Dynamic(self._workers(spec.dynamic.workers, where) or launched, launched)
        elif spec.clc is not None:
            result, where = self._ring(spec.clc, items, cluster_size), ("dispatch", "clc")
            ctas = result.ring.ctas
        else:
            assert spec.static is not None
            where = ("dispatch", "static")
            workers = self._workers(spec.static.workers, where)
            result = Static(workers or launched, fixed=workers is not None)
        most = GRID_LIMIT // ctas
        if result.workers.hi > most:
            raise self.loaded.error(
                "E052", where, "the grid may exceed what can be launched",
                found=f"up to {result.workers.hi} workers of {ctas} CTA{'s' if ctas > 1 else ''}",
                expected=f"at most {GRID_LIMIT} CTAs along x",
                mend="narrow the parameters' ranges" + ("" if spec.static else ", or use dispatch static"),
            )  # fmt: skip
        return result

    def _ring(self, spec: ClcSpec, items: Expr, cluster_size: int) -> ClusterLaunchControl:
        """One cluster for each item, and the ring through which its CTAs learn of others."""
        ctas = cluster_size if spec.cta_group is None else spec.cta_group
        if cluster_size > MOST_CTAS or (self.spec.cluster is not None and ctas != cluster_size):
            shown = "cluster" if cluster_size > MOST_CTAS else "dispatch"
            path: Path = ("cluster",) if shown == "cluster" else ("dispatch", "clc", "cta_group")
            raise self.loaded.error(
                "E050", path, "under dispatch clc the CTAs of a group are those of the cluster, and are 1 or 2",
                found=f"a cluster of {cluster_size} CTAs, a group of {ctas}", expected=f"at most {MOST_CTAS} of both",
                mend="make the cluster smaller" if shown == "cluster" else f"write `cta_group: {cluster_size}`",
            )  # fmt: skip
        ring = Ring(spec.depth, tuple(Consumer(name, threads) for name, threads in spec.consumers.items()), ctas)
        arrivals = protocol(ring).empty
        if spec.finish_arrivals not in (None, arrivals):
            raise self.loaded.error(
                "E054", ("dispatch", "clc", "finish_arrivals"), "a slot is free after another number of arrivals",
                found=str(spec.finish_arrivals),
                expected=f"{arrivals}: one of each of {len(ring.consumers)} consumers in each of {ctas} CTAs",
                mend=f"write {arrivals}, or leave it out",
            )  # fmt: skip
        return ClusterLaunchControl(items, ring, spec.fallback is not None)

    def _workers(self, text: int | str, where: Path) -> Expr | None:
        """The number of workers; None where as many work as are launched."""
        if text == "grid":
            return None
        return self.formulas.integer(text, (*where, "workers"), at_least=1, what="the number of workers")

    def _shared_bytes(self) -> Expr | None:
        kernel, path = self.spec.kernel, ("kernel", "shared_bytes")
        if not isinstance(kernel, Kernel):
            return None
        size = self.formulas.integer(kernel.shared_bytes, path, at_least=0, what="the shared memory")
        if size.lo > MOST_SHARED:
            message, expected = "no architecture has so much shared memory for a CTA", f"at most {MOST_SHARED}"
            raise self.loaded.error("E052", path, message, found=str(size.lo), expected=expected)
        return size

    def _unused(self) -> None:
        for table in self.tables.values():
            if table.hi is None:
                message, mend = f"{table.name} is never used", f"remove {table.name}"
                self.warnings.append(
                    self.loaded.diagnostic("W002", ("tables", table.name), message, mend=mend, key=True)
                )
        kernel = self.spec.kernel
        passed = kernel.arguments if isinstance(kernel, Kernel) else {}
        for name in self.names:
            if name not in self.formulas.used and name not in passed:
                self.warnings.append(
                    self.loaded.diagnostic(
                        "W002", ("params", name), f"{name} is never used", mend=f"remove {name}", key=True
                    )
                )
