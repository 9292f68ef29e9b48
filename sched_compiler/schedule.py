"""The Schedule: what a spec means, as expressions. Everything that is printed or proven is derived from it."""

from __future__ import annotations

from dataclasses import dataclass

from sched_compiler.dispatch import DRAWN, WORKERS, Dispatch
from sched_compiler.expr import Dtype, Expr, Graph, element_type
from sched_compiler.nest import Nest

__all__ = [
    "DRAWN", "INDEX", "RANK", "WORKER", "WORKERS", "Parameter", "Schedule", "SpaceAxis", "TableInput", "tile_input",
]  # fmt: skip

#: Inputs of a schedule's expressions that are no parameters; no name that a user can give begins with `$`.
INDEX = "$index"
RANK = "$rank"
WORKER = "$worker"


def tile_input(axis: str) -> str:
    """The input that holds a scheduled tile's coordinate along `axis`."""
    return f"tile.{axis}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value known only at launch, between `var.lo` and `var.hi`."""

    name: str
    var: Expr


@dataclass(frozen=True, slots=True)
class TableInput:
    """A list of integers that is read on the device: `length` elements, each between `lo` and `hi`.

    `given` says that its elements stand in the spec, where they are verified; others arrive at launch.
    """

    name: str
    length: Expr
    lo: int
    hi: int
    given: bool

    @property
    def element(self) -> Dtype:
        return element_type(self.lo, self.hi)


@dataclass(frozen=True, slots=True)
class SpaceAxis:
    """A named axis of the tile space: coordinates 0 to below `extent`, in clusters of `cluster` tiles."""

    name: str
    extent: Expr
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule over a tile space.

    `index` and `rank` are variables: the work index, and the CTA's rank in its cluster; `coords` depend on both.
    `in_bounds` and `inverse` depend on the variables `tile`, the coordinates of a scheduled tile. All may depend on
    the parameters.
    """

    name: str
    graph: Graph
    params: tuple[Parameter, ...]
    tables: tuple[TableInput, ...]
    axes: tuple[SpaceAxis, ...]
    dispatch: Dispatch
    index: Expr
    index_type: Dtype  # holds every index that a worker can reach, the one past the end included
    rank: Expr
    items: Expr  # work items: tiles, or clusters of tiles, padding included
    coords: tuple[Expr, ...]
    tile: tuple[Expr, ...]
    in_bounds: Expr  # false for padding
    inverse: Expr | None  # None for a `map` formula, and for a list of points
    nest: Nest | None  # None likewise
    points: tuple[str, ...] | None = None  # the tables that list each axis's coordinates
    subset: bool = False  # whether the points need not be all of the space

    @property
    def cluster_size(self) -> int:
        """CTAs of one cluster."""
        size = 1
        for axis in self.axes:
            size *= axis.cluster
        return size

    @property
    def worker_ctas(self) -> int:
        """CTAs of one worker: those of a cluster, or of a group that takes one tile together."""
        ring = self.dispatch.ring
        return self.cluster_size if ring is None else ring.ctas

    @property
    def tiles(self) -> Expr:
        """Tiles that are visited, padding excluded."""
        if self.subset:
            return self.items * self.cluster_size
        total = self.graph.const(1)
        for axis in self.axes:
            total = total * axis.extent
        return total

    @property
    def any_index(self) -> Expr:
        """The work index before it is known to be valid."""
        return self.graph.var(INDEX, 0, self.index_type.hi, self.index_type)

    @property
    def static(self) -> bool:
        """Whether every extent is known at compile time."""
        return all(axis.extent.value is not None for axis in self.axes)
