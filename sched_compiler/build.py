"""A loaded spec into a Schedule: axes, splits, fusions, order, cluster, dispatch as expressions."""

from __future__ import annotations

from dataclasses import dataclass

from sched_compiler.build_order import OrderBuilder
from sched_compiler.diagnostics import Diagnostic
from sched_compiler.dispatch import GRID_LIMIT, Dispatch, Single, Static
from sched_compiler.expr import S32, S64, Expr, Graph, RangeError, fit
from sched_compiler.loader import LoadedSpec
from sched_compiler.nest import Axis, Derived, Digit, Nest
from sched_compiler.prove import breaks_multiple
from sched_compiler.schedule import INDEX, RANK, WORKERS, Parameter, Schedule, SpaceAxis, tile_input
from sched_compiler.spec import Order
from sched_compiler.translate import Translator

#: CTAs that a cluster may have on every GPU with clusters; 16 needs a launch attribute and not every GPU grants it.
PORTABLE_CLUSTER = 8
#: Work items are counted in signed 64 bits.
MOST_ITEMS = S64.hi


@dataclass(frozen=True, slots=True)
class Built:
    """A schedule, and what its author should know of it."""

    schedule: Schedule
    warnings: tuple[Diagnostic, ...]


def build(loaded: LoadedSpec) -> Built:
    """The schedule that a spec describes. Raises SpecError where it describes none."""
    try:
        return _Builder(loaded).build()
    except RangeError as e:
        raise loaded.error(
            "E063", ("space",), "the arithmetic of this schedule does not fit 64 bits", found=str(e),
            expected="at most 2^63 - 1 work items", mend="narrow the parameters' ranges",
        ) from None  # fmt: skip


class _Builder:
    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded, self.spec = loaded, loaded.spec
        self.g = Graph()
        self.params = tuple(Parameter(name, self.g.var(name, p.min, p.max)) for name, p in self.spec.params.items())
        self.names = {p.name: p.var for p in self.params}
        self.formulas = Translator(self.g, loaded, self.names)
        self.warnings: list[Diagnostic] = []

    def build(self) -> Built:
        axes = self._axes()
        blocks = tuple(
            Axis(a.name, self.g.ceil_div(a.extent, a.cluster), (Digit(a.name, self.g.const(1)),)) for a in axes
        )
        nest = self._nest(blocks) if self.spec.map is None else None
        items = nest.size if nest is not None else self._volume(axes)
        if items.hi > MOST_ITEMS:
            raise RangeError(items.lo, items.hi)
        size = 1
        for axis in axes:
            size *= axis.cluster
        dispatch = self._dispatch(items, size)
        top = max(items.hi - 1, 0)
        index_type = fit(0, max(items.hi, GRID_LIMIT, dispatch.advance(self.g.var(INDEX, 0, top), items).hi))
        index = self.g.var(INDEX, 0, top, index_type)
        positions = nest.forward(index) if nest is not None else self._mapped(index)
        rank = self.g.var(RANK, 0, size - 1)
        coords = self._coords(axes, positions, rank)
        tile = tuple(self.g.var(tile_input(a.name), c.lo, c.hi, c.dtype) for a, c in zip(axes, coords, strict=True))
        schedule = Schedule(
            name=self.spec.name,
            graph=self.g,
            params=self.params,
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
        )
        self._unused()
        return Built(schedule, tuple(self.warnings))

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

    # -- dispatch ---------------------------------------------------------------------------------------------

    def _dispatch(self, items: Expr, cluster_size: int) -> Dispatch:
        dispatch = self.spec.dispatch
        most = GRID_LIMIT // cluster_size
        result: Dispatch
        if dispatch.single is not None:
            result, where = Single(items), ("dispatch", "single")
        else:
            assert dispatch.static is not None
            where, text = ("dispatch", "static"), dispatch.static.workers
            if text == "grid":
                return Static(self.g.var(WORKERS, 1, most), fixed=False)
            path = ("dispatch", "static", "workers")
            result = Static(self.formulas.integer(text, path, at_least=1, what="the number of workers"), fixed=True)
        if result.workers.hi > most:
            raise self.loaded.error(
                "E052", where, "the grid may exceed what can be launched",
                found=f"up to {result.workers.hi} workers of {cluster_size} CTA{'s' if cluster_size > 1 else ''}",
                expected=f"at most {GRID_LIMIT} CTAs along x",
                mend="use dispatch static, or narrow the parameters' ranges",
            )  # fmt: skip
        return result

    def _unused(self) -> None:
        for name in self.names:
            if name not in self.formulas.used:
                self.warnings.append(
                    self.loaded.diagnostic(
                        "W002", ("params", name), f"{name} is never used", mend=f"remove {name}", key=True
                    )
                )
