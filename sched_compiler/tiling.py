"""Whether pieces tile their box: each position in exactly one piece, for all values of the parameters.

Along each axis the corners of the pieces cut the box into intervals. Where the corners are shown to be in one order for
all values, a piece is a product of ranges of intervals, and the question is decided once for the cells between them.
Otherwise it is decided for every combination of values where there are few, and left open where there are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from sched_compiler.expr import Expr
from sched_compiler.nest import Pieces, same
from sched_compiler.prove import PROBES, all_values, assignments, at_most, small_values
from sched_compiler.schedule import Parameter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Combinations of parameter values that are tried one by one.
FEW = 20_000
#: Coordinates that are compared in one step: a bound on memory.
AT_ONCE = 4_000_000

#: A box by its corners along each axis: the first position, and one beyond the last.
Box: TypeAlias = tuple[list[int], list[int]]


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
    boxes: dict[int, Box] = {}
    for n, part in enumerate(pieces.parts):
        low, high = ([_find(c, corner[k]) for k, c in enumerate(cuts)] for corner in (part.low, part.high))
        if any(lo > hi for lo, hi in zip(low, high, strict=True)):
            return False
        if all(lo < hi for lo, hi in zip(low, high, strict=True)):
            boxes[n] = low, high
    return _tile(boxes, [len(c) - 1 for c in cuts], 0)


def _find(cuts: list[Expr], point: Expr) -> int:
    return next(n for n, cut in enumerate(cuts) if same(cut, point))


def _first_fault(pieces: Pieces, values: Sequence[Mapping[str, int]]) -> Fault | None:
    """The first position, at the first of these parameter values, that is not in exactly one piece."""
    import numpy as np  # most orders are shown to tile without

    from sched_compiler.evaluate import evaluate

    corners = [e for part in pieces.parts for e in (*part.low, *part.high)] + [a.length for a in pieces.axes]
    inputs = {name: np.array([v[name] for v in values]) for name in values[0]}
    columns = [np.broadcast_to(v, len(values)).astype(np.int64) for v in evaluate(corners, inputs)]
    count, rank = len(pieces.parts), len(pieces.axes)
    table = np.stack(columns, axis=1)
    step = max(1, AT_ONCE // (count * count * rank))
    for begin in range(0, len(values), step):
        rows = table[begin : begin + step]
        boxes, lengths = rows[:, :-rank].reshape(-1, count, 2, rank), rows[:, -rank:]
        for n in np.flatnonzero(~_tiling_rows(boxes, lengths)):
            position, where = _fault_among(boxes[n].tolist(), lengths[n].tolist())
            names = [axis.name for axis in pieces.axes]
            return Fault(dict(zip(names, position, strict=True)), where, dict(values[begin + int(n)]))
    return None


def _tiling_rows(boxes: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """For each row, whether its boxes, of shape (rows, pieces, 2, rank), tile the box of `lengths`, (rows, rank).

    They do when none sticks out, no two meet, and their volumes add up to the box's. Empty ones do not count.
    """
    import numpy as np

    low, high = boxes[:, :, 0], boxes[:, :, 1]
    full = _all(low < high)
    good = _all(_all((low >= 0) & (high <= lengths[:, None])) | ~full)
    # Python's integers where 64 bits might not hold a volume; those that meet are not told apart by their sum
    exact = np.prod(lengths.astype(np.float64), axis=1).max(initial=0) < 2.0**62
    sizes = np.where(full[:, :, None], high - low, 0).astype(np.int64 if exact else object)
    volume = np.prod(lengths if exact else lengths.astype(object), axis=1)
    good[good] = (np.prod(sizes[good], axis=2).sum(axis=1) == volume[good]).astype(bool)
    for k in range(1, boxes.shape[1]):
        left = np.flatnonzero(good)
        if not left.size:
            break
        one, others = slice(k, k + 1), slice(0, k)
        meet = _all((low[left, one] < high[left, others]) & (low[left, others] < high[left, one]))
        good[left] = ~(meet & full[left, others] & full[left, one]).any(axis=1)
    return good


def _all(truths: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Along the last axis."""
    import numpy as np

    result: npt.NDArray[np.bool_] = np.logical_and.reduce(truths, axis=-1)
    return result


def _fault_among(boxes: Sequence[Sequence[list[int]]], lengths: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(position, pieces) of the first fault of boxes, given as [low, high], that do not tile a box of these lengths."""
    clipped = {
        n: ([max(c, 0) for c in low], [min(c, length) for c, length in zip(high, lengths, strict=True)])
        for n, (low, high) in enumerate(boxes)
    }
    covering = {n: box for n, box in clipped.items() if all(lo < hi for lo, hi in zip(*box, strict=True))}
    if not _tile(covering, lengths, 0):
        position: list[int] = []
        for k, length in enumerate(lengths):  # the first slab along each axis whose rest is not tiled
            for at in sorted({0, *(c for box in covering.values() for c in (box[0][k], box[1][k]) if c < length)}):
                slab = {n: box for n, box in covering.items() if box[0][k] <= at < box[1][k]}
                if not _tile(slab, lengths, k + 1):
                    break
            covering = slab
            position.append(at)
        return tuple(position), tuple(covering)
    for n, (low, high) in enumerate(boxes):
        beyond = [c > length for c, length in zip(high, lengths, strict=True)]
        if all(lo < hi for lo, hi in zip(low, high, strict=True)) and (min(low) < 0 or any(beyond)):
            return tuple(hi - 1 if out else lo for lo, hi, out in zip(low, high, beyond, strict=True)), (n,)
    raise AssertionError("these boxes tile their box")


def _tile(boxes: Mapping[int, Box], lengths: list[int], axis: int) -> bool:
    """Whether boxes inside a box of these lengths tile it, looking only at the axes from `axis` on."""
    spans = [list(zip(low[axis:], high[axis:], strict=True)) for low, high in boxes.values()]
    if sum(prod(hi - lo for lo, hi in span) for span in spans) != prod(lengths[axis:]):
        return False
    return not any(
        all(lo < beyond and begin < hi for (lo, hi), (begin, beyond) in zip(one, other, strict=True))
        for one, other in itertools.combinations(spans, 2)
    )
