"""Space-filling curves as nests: the curve of a power-of-two square that holds the box, points outside it skipped.

A square of side 2s is four quadrants of side s, which a curve walks one after another. How many points of the box lie
in a quadrant is the product of two clipped lengths, so an index is decoded from the largest square downwards: compare
it with the points of the quadrants that the curve meets earlier, subtract them, go on in the quadrant that is left.

Morton's curve meets (0, 0), (0, 1), (1, 0), (1, 1), rows first. Hilbert's first meets the two quadrants of one half,
then those of the other, beginning at (0, 0) or at the opposite corner (`flip`), the halves being of the rows or of
the columns (`swap`). In either half the quadrant on the diagonal through that corner comes first. With u the half, d
whether the quadrant is the second of its half, e = u xor flip:

    row    = e xor (d and swap)         flip' = e if d else flip
    column = row xor d                  swap' = swap xor u xor not d

This is the turning of Hilbert's curve (Hilbert 1891; e.g. Warren, Hacker's Delight, chapter 16) with its four
orientations as two bits. The orientation of the largest square is chosen so that the smallest begins with a step along
the columns: then a larger square's curve begins with the smaller one's, and which square holds the box does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sched_compiler.expr import Expr, Graph
from sched_compiler.nest import Axis, Loop, Loops, volume


def _sum(g: Graph, terms: Sequence[Expr], within: tuple[int, int]) -> Expr:
    """The sum, added up in pairs: a shallow tree, of whose sums of choices each is small."""
    terms = list(terms) or [g.const(0)]
    while len(terms) > 1:
        pairs = [g.add(a, b, within=within) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return g.narrow(terms[0], *within)


class Side(NamedTuple):
    """The points of one axis in the current square: `partial` where it lies at the box's `edge`, `full` elsewhere.

    A literal axis keeps two literals and one condition; another keeps its length as `partial`, always at the edge.
    """

    full: Expr
    partial: Expr
    edge: Expr

    @property
    def length(self) -> Expr:
        return self.edge.graph.select(self.edge, self.partial, self.full)

    def halves(self, step: Expr) -> tuple[Expr, Expr]:
        """The points of the lower and the upper half of the square, each `step` long where the box fills it."""
        g = step.graph
        low = g.min(self.partial, step)
        within = (max(self.partial.lo - step.hi, 0), max(self.partial.hi - step.lo, 0))
        high = g.sub(self.partial, low, within=within)
        return g.select(self.edge, low, step), g.select(self.edge, high, step)

    @classmethod
    def of(cls, length: Expr, full: Expr) -> Side:
        g = length.graph
        return cls(full, length, g.false() if length.value is not None and length.value == full.value else g.true())

    @classmethod
    def last_of(cls, length: Expr, full: Expr, last: Expr) -> Side:
        """The side of a square in a row of squares; `last` says whether it is the last."""
        g = length.graph
        tail = (length + (full - 1)) % full + 1
        if tail.value is None or full.value is None:
            return cls(full, g.select(last, tail, full), g.true())
        return cls(full, tail, last if tail.value != full.value else g.false())

    def half(self, step: Expr, halves: tuple[Expr, Expr], upper: Expr) -> Side:
        """The side of the half that is chosen, which is not empty."""
        g, (low, high) = step.graph, halves
        if self.partial.value is None or step.value is None:
            return Side(step, g.select(upper, high, low), self.edge)
        beyond = self.partial.value > step.value
        partial = self.partial.value - step.value if beyond else self.partial.value
        edge = g.logical_and(self.edge, upper) if beyond else self.edge
        return Side(step, g.const(partial), edge if partial != step.value else g.false())


class Level(NamedTuple):
    """A square of 2 * `side` values along both axes: its halves' points, and for Hilbert its orientation."""

    side: int
    rows: tuple[Expr, Expr]
    columns: tuple[Expr, Expr]
    whole: tuple[Expr, Expr]  # points along the rows, and along the columns
    swap: Expr
    flip: Expr
    most: int  # points of the box

    def points(self, rows: Expr, columns: Expr) -> Expr:
        return rows.graph.mul(rows, columns, within=(0, self.most))

    def first_half(self) -> Expr:
        """The points of the half that Hilbert's curve meets first."""
        g = self.swap.graph
        rows, columns = (g.select(self.flip, upper, lower) for lower, upper in (self.rows, self.columns))
        return g.select(self.swap, self.points(self.whole[0], columns), self.points(rows, self.whole[1]))

    def corner(self, row: Expr) -> Expr:
        """The points of the left quadrant of a half of the rows."""
        return self.points(row.graph.select(row, self.rows[1], self.rows[0]), self.columns[0])

    def diagonal(self, e: Expr) -> Expr:
        """The points of quadrant (e, e), which Hilbert's curve meets first in its half."""
        g = e.graph
        rows, columns = (g.select(e, upper, lower) for lower, upper in (self.rows, self.columns))
        return self.points(rows, columns)


class Band(NamedTuple):
    """Squares of 2^`levels` values one after another along `axis`, where the other axis ends in the first of them.

    Both curves walk them upwards: Hilbert's would run downwards only with `flip` set and `swap` set (where the rows
    end) or not set (where the columns do), and no chain of lower halves of that axis leads there from the origin.
    """

    axis: int
    levels: int
    top: int  # the last square's number is at most this
    points: Expr  # of every square but the last


class Quadrant(NamedTuple):
    """One of four quadrants: the half of the rows and of the columns, and for Hilbert u, d, e."""

    row: Expr
    column: Expr
    half: Expr
    second: Expr
    diagonal: Expr


@dataclass(frozen=True, slots=True)
class Curve:
    """A space-filling curve over the outermost digits of two axes; `loops` walk what lies under one value of both.

    In `loops` the digits are numbered without the outermost.
    """

    axes: tuple[Axis, ...]  # two
    hilbert: bool
    loops: tuple[Loop, ...] = ()

    @property
    def size(self) -> Expr:
        return volume(self.axes)

    def _walk(self, band: Callable[[Band], Expr], choose: Callable[[Level], Quadrant]) -> Loops:
        """Visit the band, if there is one, and the levels, the largest square first.

        The result walks what is left under one value of both axes.
        """
        g = self.axes[0].length.graph
        units = [axis.digits[0].unit for axis in self.axes]
        counts = [g.ceil_div(axis.length, unit).hi for axis, unit in zip(self.axes, units, strict=True)]
        halvings = [max(count - 1, 0).bit_length() for count in counts]  # until one value is left
        most = self.size.hi
        levels, long = min(halvings), int(halvings[1] > halvings[0])
        sides = [Side.of(axis.length, unit * (1 << levels)) for axis, unit in zip(self.axes, units, strict=True)]
        swap, flip = (g.true() if self.hilbert and halvings[long] % 2 == 0 else g.false()), g.false()
        if halvings[long] > levels:
            step = sides[long].full
            last = g.ceil_div(self.axes[long].solid, step) - 1
            value = band(Band(long, levels, last.hi, self.axes[1 - long].solid * step))
            sides[long] = Side.last_of(self.axes[long].solid, step, g.eq(value, last))
            turns = halvings[long] - levels if self.hilbert and levels else 0  # a single row or column has no turns
            for k in reversed(range(turns)):
                swap, flip = self._turned(swap, flip, g.le(1 << k, value % (2 << k)), long)
        for k in reversed(range(levels)):
            steps = [unit * (1 << k) for unit in units]
            rows, columns = (side.halves(step) for side, step in zip(sides, steps, strict=True))
            chosen = choose(Level(1 << k, rows, columns, (sides[0].length, sides[1].length), swap, flip, most))
            if self.hilbert:
                swap = g.logical_not(g.logical_xor(g.logical_xor(swap, chosen.half), chosen.second))
                flip = g.select(chosen.second, chosen.diagonal, flip)
            sides = [sides[0].half(steps[0], rows, chosen.row), sides[1].half(steps[1], columns, chosen.column)]
        under = [
            Axis(axis.name, side.length if axis.digits[1:] else g.const(1), axis.digits[1:])
            for axis, side in zip(self.axes, sides, strict=True)
        ]
        return Loops(tuple(under), self.loops)

    @staticmethod
    def _turned(swap: Expr, flip: Expr, upper: Expr, long: int) -> tuple[Expr, Expr]:
        """The orientation of the half of a band: the formulas above where the other axis is in its lower half."""
        g = swap.graph
        lower_swap = g.logical_not(g.logical_xor(swap, flip))
        if long == 1:
            return g.select(upper, flip, lower_swap), g.select(upper, swap, flip)
        return g.select(upper, g.logical_not(flip), lower_swap), g.select(upper, g.logical_not(swap), flip)

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g = index.graph
        rest = index
        values: tuple[list[Expr], list[Expr]] = ([], [])

        def band(band: Band) -> Expr:
            nonlocal rest
            value, rest = g.div(rest, band.points, within=(0, band.top)), rest % band.points
            values[band.axis].append(value * (1 << band.levels))
            return value

        def passes(points: Expr) -> Expr:
            """Whether the curve has passed this many points; they are subtracted."""
            nonlocal rest
            passed = g.le(points, rest)
            if points.value is not None and points.value & (points.value - 1) == 0 and 0 < rest.hi < 2 * points.value:
                rest = rest % points
            else:
                rest = g.select(passed, g.sub(rest, points, within=(0, max(rest.hi - points.lo, 0))), rest)
            return passed

        def decode(level: Level) -> Quadrant:
            nonlocal rest
            if self.hilbert:
                half = passes(level.first_half())
                e = g.logical_xor(level.flip, half)
                second = passes(level.diagonal(e))
                row = g.logical_xor(e, g.logical_and(second, level.swap))
                column = g.logical_xor(row, second)
            else:
                row = half = e = passes(level.points(level.rows[0], level.whole[1]))
                column = second = passes(level.corner(row))
            largest = max(points.hi for points in level.rows) * max(points.hi for points in level.columns)
            rest = g.narrow(rest, 0, max(largest - 1, 0))
            for found, upper in zip(values, (row, column), strict=True):
                found.append(g.select(upper, level.side, 0))
            return Quadrant(row, column, half, second, e)

        under = self._walk(band, decode)
        positions = []
        for axis, found, inner in zip(self.axes, values, under.forward(rest), strict=True):
            within = (0, axis.solid.hi - 1)
            outer = g.mul(_sum(g, found, within), axis.digits[0].unit, within=within)
            positions.append(g.add(outer, inner, within=within))
        return tuple(positions)

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g = positions[0].graph
        units = [axis.digits[0].unit for axis in self.axes]
        values = [p // unit for p, unit in zip(positions, units, strict=True)]
        left = [p % unit for p, unit in zip(positions, units, strict=True)]
        within = (0, max(self.size.hi - 1, 0))
        before: list[Expr] = []

        def band(band: Band) -> Expr:
            value = g.div(values[band.axis], 1 << band.levels, within=(0, band.top))
            before.append(g.mul(value, band.points, within=within))
            return value

        def encode(level: Level) -> Quadrant:
            row, column = (g.le(level.side, value % (2 * level.side)) for value in values)
            if self.hilbert:
                e, second = g.select(level.swap, column, row), g.logical_xor(row, column)
                half = g.logical_xor(level.flip, e)
                earlier = ((half, level.first_half()), (second, level.diagonal(e)))
            else:
                e, half, second = row, row, column
                earlier = ((row, level.points(level.rows[0], level.whole[1])), (column, level.corner(row)))
            before.extend(g.narrow(g.select(passed, points, 0), *within) for passed, points in earlier)
            return Quadrant(row, column, half, second, e)

        under = self._walk(band, encode)
        return _sum(g, [*before, under.inverse(left)], within)

    def reasons(self) -> list[str]:
        names = " and ".join(axis.digits[0].name for axis in self.axes)
        kind = "hilbert" if self.hilbert else "morton"
        own = f"{kind} curve over {names}: squares of four quadrants, each with as many indices as it has points"
        inner = [self.axes[loop.axis].digits[loop.digit + 1].name for loop in self.loops]
        return [own, *([f"loops {', '.join(inner)}: a mixed-radix numeral under each value"] if inner else [])]
