"""Whether pieces tile their box: each position in exactly one piece, for all values of the parameters.

Along each axis the corners of the pieces cut the box into intervals. Where the corners are shown to be in one order for
all values, a piece is a product of ranges of intervals, and the question is decided once for the cells between them.
Otherwise it is decided for every combination of values where there are few, and left open where there are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sched_compiler.evaluate import evaluate
from sched_compiler.expr import Expr
from sched_compiler.nest import Derived, Nest, Partitioned, Pieces, same
from sched_compiler.prove import all_values, assignments, at_most, small_values
from sched_compiler.schedule import Parameter

#: Combinations of parameter values that are tried one by one.
FEW = 20_000
#: Combinations that are searched for a counterexample where there are too many to try.
PROBES = 2_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A position that no piece or more than one visits, with the parameter values at which this is so."""

    position: dict[str, int]
    pieces: tuple[int, ...]
    values: dict[str, int]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The verdict on one list of pieces; `fault` is the smallest counterexample found."""

    proven: bool
    how: str
    fault: Fault | None = None


def pieces_of(nest: Nest) -> list[tuple[tuple[int, ...], Pieces]]:
    """Every list of pieces in a nest, with the piece numbers that lead to it."""
    if isinstance(nest, Derived | Partitioned):
        return pieces_of(nest.inner)
    if not isinstance(nest, Pieces):
        return []
    found: list[tuple[tuple[int, ...], Pieces]] = [((), nest)]
    for n, part in enumerate(nest.parts):
        found += [((n, *path), pieces) for path, pieces in pieces_of(part.nest)]
    return found


def prove_tiling(pieces: Pieces, params: Sequence[Parameter]) -> Tiling:
    """Decide whether `pieces` tile their box for every value of `params`."""
    cuts = [_ordered_cuts(pieces, k) for k in range(len(pieces.axes))]
    known = [c for c in cuts if c is not None]
    if len(known) == len(cuts) and _tiles(pieces, known):
        return Tiling(True, "the pieces' corners are in one order for all parameters, and each cell is in one piece")
    few = assignments(params) <= FEW
    fault = _first_fault(pieces, list(all_values(params) if few else small_values(params, PROBES)))
    if fault is not None:
        return Tiling(False, "counterexample", fault)
    if few:
        return Tiling(True, f"checked for each of {assignments(params)} combinations of parameter values")
    return Tiling(False, "the order of the pieces' corners depends on the parameters")


def _ordered_cuts(pieces: Pieces, k: int) -> list[Expr] | None:
    """The distinct corners along axis k from 0 to the axis's length, in order; None where the order is not shown."""
    length = pieces.axes[k].length
    points: list[Expr] = []
    for point in (length.graph.const(0), length, *(p for part in pieces.parts for p in (part.low[k], part.high[k]))):
        if not any(same(point, other) for other in points):
            points.append(point)
    ordered: list[Expr] = []
    for point in points:
        place = next((n for n, other in enumerate(ordered) if at_most(point, other)), len(ordered))
        if not all(at_most(other, point) for other in ordered[:place]):
            return None
        ordered.insert(place, point)
    if not all(at_most(a, b) for a, b in itertools.pairwise(ordered)):
        return None
    inside = not ordered or (ordered[0].value == 0 and same(ordered[-1], length))
    return ordered if inside else None


def _tiles(pieces: Pieces, cuts: list[list[Expr]]) -> bool:
    """Whether each cell between the cuts is in exactly one piece."""
    ranges = [
        [(_find(cuts[k], part.low[k]), _find(cuts[k], part.high[k])) for k in range(len(cuts))] for part in pieces.parts
    ]
    for cell in itertools.product(*(range(len(c) - 1) for c in cuts)):
        covering = sum(all(lo <= c < hi for c, (lo, hi) in zip(cell, box, strict=True)) for box in ranges)
        if covering != 1:
            return False
    return all(lo <= hi for box in ranges for lo, hi in box)


def _find(cuts: list[Expr], point: Expr) -> int:
    return next(n for n, cut in enumerate(cuts) if same(cut, point))


def _first_fault(pieces: Pieces, values: Sequence[Mapping[str, int]]) -> Fault | None:
    """The first position, at the first of these parameter values, that is not in exactly one piece."""
    corners = [e for part in pieces.parts for e in (*part.low, *part.high)] + [a.length for a in pieces.axes]
    inputs = {name: np.array([v[name] for v in values]) for name in values[0]}
    columns = [np.broadcast_to(v, len(values)).astype(np.int64) for v in evaluate(corners, inputs)]
    rank = len(pieces.axes)
    for n, row in enumerate(np.stack(columns, axis=1)):
        boxes = row[:-rank].reshape(len(pieces.parts), 2, rank)
        found = _fault_among(boxes, row[-rank:].tolist())
        if found is not None:
            position, where = found
            names = [axis.name for axis in pieces.axes]
            return Fault(dict(zip(names, position, strict=True)), where, dict(values[n]))
    return None


def _fault_among(boxes: npt.NDArray[np.int64], lengths: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(position, pieces) of the first fault of boxes, of shape (pieces, 2, rank), in a box of these lengths."""
    cuts = [
        sorted({0, length, *(int(c) for c in boxes[:, :, k].ravel() if 0 <= c <= length)})
        for k, length in enumerate(lengths)
    ]
    for corner in itertools.product(*(c[:-1] for c in cuts)):
        inside = np.all((boxes[:, 0] <= corner) & (np.array(corner) < boxes[:, 1]), axis=1)
        if inside.sum() != 1:
            return corner, tuple(int(n) for n in np.flatnonzero(inside))
    for n, (low, high) in enumerate(boxes):
        beyond = high > np.array(lengths)
        if np.all(low < high) and (np.any(low < 0) or np.any(beyond)):
            return tuple(int(c) for c in np.where(beyond, high - 1, low)), (n,)
    return None
