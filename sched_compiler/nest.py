"""The nest layer of the IR: bijections between work indices and positions in a box.

A nest walks a box of axes. It knows its size, its forward map (index -> position along each axis), its inverse, and
why it is a bijection. Parts are bijections by construction, and so is what is composed of them; nothing is sampled.

Both maps of a loop nest come from one walk over its levels. Fix the loops outside a level. What remains is a product
over the axes, because a short band depends only on the outer parts of its own axis. Let the level run variable v of
axis A; let S be the number of points of A under any v but the last, T under the last (T <= S), and P the product of
what remains of the other axes. Upwards the short band comes last, so v = r // (S*P). Downwards it comes first: v is
the last value if r < T*P, else last - 1 - (r - T*P) // (S*P). The inverse adds up the iterations before v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sched_compiler.expr import Expr, Graph, may_wrap
from sched_compiler.rewrite import peel


@dataclass(frozen=True, slots=True)
class Digit:
    """One loop of an axis: `unit` positions of the axis lie under one value of it."""

    name: str
    unit: Expr


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of `length` scheduled positions (padding included), read as digits, most significant first."""

    name: str
    length: Expr
    digits: tuple[Digit, ...]

    @property
    def solid(self) -> Expr:
        """The length, or a multiple of the same bands that is not 0 where it is 0: an empty box has no index, so its
        maps are never used."""
        if self.length.lo >= 1:
            return self.length
        g, whole = self.length.graph, peel(self.length)
        if whole.op == "mul" and not may_wrap(whole) and (unit := whole.args[1].value):
            return g.max(whole.args[0], 1) * unit
        return g.max(self.length, 1)


class Nest(Protocol):
    """A bijection between 0..size-1 and the box of `axes`."""

    @property
    def axes(self) -> tuple[Axis, ...]: ...

    @property
    def size(self) -> Expr:
        """The number of iterations: the volume of the box, padding included."""
        ...

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        """The position along each axis of iteration `index`."""
        ...

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        """The iteration that visits `positions`."""
        ...

    def reasons(self) -> list[str]:
        """Why this is a bijection, one sentence for each part."""
        ...


def same(a: Expr, b: Expr) -> bool:
    """Whether two values are known to be equal: the same node, or the same literal."""
    return a is b or (a.value is not None and a.value == b.value)


def volume(axes: Sequence[Axis]) -> Expr:
    """The number of positions in a box of at least one axis."""
    graph = axes[0].length.graph
    total = graph.const(1)
    for axis in axes:
        total = total * axis.length
    return total


# -- loops ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: digit `digit` of axis number `axis`, downwards always, or downwards where `parity_of` is odd.

    Both together turn upwards where `parity_of` is odd.
    """

    axis: int
    digit: int
    reverse: bool = False
    parity_of: str | None = None


class Level(NamedTuple):
    """What is known at one loop once the loops outside it are fixed. See the module's docstring."""

    axis: int
    unit: Expr  # S: points of the axis under any value but the last
    tail: Expr  # T: points of the axis under the last value
    last: Expr
    others: Expr  # P: what remains of the other axes
    down: Expr

    @property
    def ragged(self) -> bool:
        """Whether the last value may hold fewer points than the others."""
        return not same(self.tail, self.unit)


@dataclass(frozen=True, slots=True)
class Loops:
    """Nested loops, slowest first, over all digits of all axes; an axis's digits come in order of significance."""

    axes: tuple[Axis, ...]
    loops: tuple[Loop, ...]

    @property
    def size(self) -> Expr:
        return volume(self.axes)

    def _walk(self, value_at: Callable[[Level], Expr]) -> None:
        """Visit the levels, slowest first; `value_at` gives the value of each loop's variable."""
        g = self.axes[0].length.graph
        lengths = [axis.solid for axis in self.axes]
        values: dict[str, Expr] = {}
        for loop in self.loops:
            digit = self.axes[loop.axis].digits[loop.digit]
            length = lengths[loop.axis]
            if length.hi <= digit.unit.lo:  # a single value: nothing to decide
                values[digit.name] = g.const(0)
                continue
            last, tail = length - 1, digit.unit
            if digit.unit.value != 1:
                last = g.ceil_div(length, digit.unit) - 1
                tail = (length + (digit.unit - 1)) % digit.unit + 1
            others = g.const(1)
            for k, other in enumerate(lengths):
                if k != loop.axis and other.value != 1:
                    others = others * other
            down = g.true() if loop.reverse else g.false()
            if loop.parity_of is not None:
                odd = g.eq(values[loop.parity_of] % 2, 1)
                down = g.logical_not(odd) if loop.reverse else odd
            level = Level(loop.axis, digit.unit, tail, last, others, down)
            value = value_at(level)
            values[digit.name] = value
            lengths[loop.axis] = g.select(g.eq(value, last), tail, digit.unit) if level.ragged else digit.unit

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g = index.graph
        positions = [g.const(0) for _ in self.axes]
        rest = index

        def decode(level: Level) -> Expr:
            nonlocal rest
            last, top = level.last, level.last.hi
            full = level.unit * level.others
            value, left = g.div(rest, full, within=(0, top)), rest % full
            if level.down.value != 0:  # downwards, or downwards at times
                down, left_down = g.sub(last, value, within=(0, top)), left
                if level.ragged:
                    short = level.tail * level.others
                    first = g.lt(rest, short)
                    after = g.sub(rest, short, within=(0, max(0, rest.hi - short.lo)))
                    down = g.select(first, last, g.sub(last, g.div(after, full) + 1, within=(0, top)))
                    left_down = g.select(first, rest, after % full)
                value, left = g.select(level.down, down, value), g.select(level.down, left_down, left)
            rest = left
            within = (0, self.axes[level.axis].solid.hi - 1)
            band = g.mul(value, level.unit, within=within)
            positions[level.axis] = g.add(positions[level.axis], band, within=within)
            return value

        self._walk(decode)
        return tuple(positions)

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g = positions[0].graph
        left = list(positions)
        index, within = g.const(0), (0, max(volume(self.axes).hi - 1, 0))

        def encode(level: Level) -> Expr:
            nonlocal index
            last, top = level.last, level.last.hi
            value = g.div(left[level.axis], level.unit, within=(0, top))
            left[level.axis] = left[level.axis] % level.unit
            full = level.unit * level.others
            before = g.mul(value, full, within=within)  # iterations come before this one, so there are fewer of them
            if level.down.value != 0:  # downwards, or downwards at times
                if level.ragged:
                    ahead = g.mul(g.sub(last, value + 1, within=(0, top)), full, within=within)
                    down = g.select(g.eq(value, last), 0, g.add(level.tail * level.others, ahead, within=within))
                else:
                    down = g.mul(g.sub(last, value, within=(0, top)), full, within=within)
                before = g.select(level.down, down, before)
            index = g.add(index, before, within=within)
            return value

        self._walk(encode)
        return index

    def reasons(self) -> list[str]:
        names = [self.axes[loop.axis].digits[loop.digit].name for loop in self.loops]
        return [f"loops {', '.join(names)}: a mixed-radix numeral with one value for each point"]


# -- pieces ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-box, `low[k]` to below `low[k] + nest.axes[k].length` along axis k, and the nest that walks it."""

    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    nest: Nest


@dataclass(frozen=True, slots=True)
class Pieces:
    """Sub-boxes walked one after another. A bijection where the parts tile the box (see `sched_compiler.tiling`)."""

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]

    @property
    def size(self) -> Expr:
        return volume(self.axes)

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g = index.graph
        starts: list[Expr] = []
        start = g.const(0)
        maps: list[tuple[Expr, ...]] = []
        for part in self.parts:
            size = part.nest.size
            local = g.sub(index, start, within=(0, max(0, min(size.hi - 1, index.hi - start.lo))))
            positions = part.nest.forward(local)
            maps.append(tuple(self._place(k, part, p) for k, p in enumerate(positions)))
            starts.append(start)
            start = start + size
        result = maps[-1]
        for begin, positions in zip(reversed(starts[1:]), reversed(maps[:-1]), strict=True):
            before = g.lt(index, begin)
            result = tuple(g.select(before, p, q) for p, q in zip(positions, result, strict=True))
        return result

    def _place(self, k: int, part: Part, position: Expr) -> Expr:
        """A position within a part as one in the whole box."""
        g = position.graph
        return g.narrow(position + part.low[k], 0, self.axes[k].solid.hi - 1)

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g = positions[0].graph
        start = g.const(0)
        found: list[tuple[Expr, Expr]] = []
        for part in self.parts:
            inside = g.true()
            local: list[Expr] = []
            for k, p in enumerate(positions):
                inside = g.logical_and(inside, g.logical_and(g.le(part.low[k], p), g.lt(p, part.high[k])))
                top = max(part.nest.axes[k].solid.hi - 1, 0)
                local.append(g.sub(p, part.low[k], within=(0, top)))
            found.append((inside, start + part.nest.inverse(local)))
            start = start + part.nest.size
        result = found[-1][1]
        for inside, index in reversed(found[:-1]):
            result = g.select(inside, index, result)
        return g.narrow(result, 0, max(volume(self.axes).hi - 1, 0))

    def reasons(self) -> list[str]:
        own = [f"{len(self.parts)} pieces that tile the box, one after another"]
        return own + [reason for part in self.parts for reason in part.nest.reasons()]


# -- a choice of nests, and a permutation of indices ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Either:
    """One of two nests over the same box: `first` where `condition`, which depends on parameters alone, holds."""

    condition: Expr
    first: Nest
    second: Nest

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.first.axes

    @property
    def size(self) -> Expr:
        return self.first.size

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g, ways = index.graph, (self.first.forward(index), self.second.forward(index))
        return tuple(g.select(self.condition, a, b) for a, b in zip(*ways, strict=True))

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g = self.condition.graph
        return g.select(self.condition, self.first.inverse(positions), self.second.inverse(positions))

    def reasons(self) -> list[str]:
        own = "one of two nests over the same box, by a condition on the parameters"
        return [own, *self.first.reasons(), *self.second.reasons()]


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A nest whose indices are dealt out: index i belongs to partition i % `count`.

    Each partition walks `chunk` consecutive iterations of `inner` at a time; what does not fill a block of
    count * chunk keeps its index. Without `chunk` each walks one range, the first size % count ranges longer by one.
    """

    inner: Nest
    count: Expr  # at least 1
    chunk: Expr | None  # at least 1

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.inner.axes

    @property
    def size(self) -> Expr:
        return self.inner.size

    @property
    def _within(self) -> tuple[int, int]:
        return 0, max(self.size.hi - 1, 0)

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g, within = index.graph, self._within
        if self.chunk is not None:
            return self.inner.forward(self._transposed(index, self.count, self.chunk))
        part, place = index % self.count, index // self.count
        longer = g.min(part, self.size % self.count)  # ranges before this one that are longer by one
        begin = g.add(g.mul(part, self.size // self.count, within=within), longer, within=within)
        return self.inner.forward(g.add(begin, place, within=within))

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g, within = positions[0].graph, self._within
        item = self.inner.inverse(positions)
        if self.chunk is not None:
            return self._transposed(item, self.chunk, self.count)
        length, longer = self.size // self.count, self.size % self.count
        split = g.mul(longer, length + 1, within=(0, self.size.hi))
        after, least = g.sub(item, split, within=within), g.max(length, 1)
        first = g.lt(item, split)
        part = g.select(first, item // (length + 1), g.add(longer, after // least, within=(0, self.count.hi - 1)))
        place = g.select(first, item % (length + 1), after % least)
        return g.add(g.mul(place, self.count, within=within), part, within=within)

    def _transposed(self, index: Expr, columns: Expr, rows: Expr) -> Expr:
        """Every full block, taken for a matrix of so many rows and columns, read column by column."""
        g, within = index.graph, self._within
        block = columns * rows
        inside = index % block
        moved = g.add(
            g.mul(inside % columns, rows, within=(0, block.hi - 1)), inside // columns, within=(0, block.hi - 1)
        )
        begin = g.mul(index // block, block, within=within)
        blocked = g.mul(self.size // block, block, within=(0, self.size.hi))
        return g.narrow(g.select(g.lt(index, blocked), g.add(begin, moved, within=within), index), *within)

    def reasons(self) -> list[str]:
        own = "indices dealt out to partitions: a transposition of full blocks, the rest in place"
        if self.chunk is None:
            own = "indices dealt out to partitions: a transposition of ranges whose lengths differ by one at most"
        return [own, *self.inner.reasons()]


# -- axes made of axes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """A permutation of one axis: run it downwards, then start it at `shift` and wrap."""

    reverse: bool = False
    shift: Expr | None = None  # between 0 and the axis's length, excluded

    def forward(self, g: Graph, position: Expr, length: Expr) -> Expr:
        top = length.hi - 1
        if self.reverse:
            position = g.sub(length - 1, position, within=(0, top))
        if self.shift is not None:
            moved = position + self.shift
            if length.value is not None and length.value & (length.value - 1) == 0:
                position = moved % length  # a mask
            else:
                position = g.select(g.lt(moved, length), moved, g.sub(moved, length, within=(0, top)))
        return g.narrow(position, 0, top)

    def inverse(self, g: Graph, position: Expr, length: Expr) -> Expr:
        top = length.hi - 1
        if self.shift is not None:
            wrapped = g.sub(position + length, self.shift, within=(0, top + self.shift.hi))
            ahead = g.sub(position, self.shift, within=(0, top))
            position = g.narrow(g.select(g.lt(position, self.shift), wrapped, ahead), 0, top)
        if self.reverse:
            position = g.sub(length - 1, position, within=(0, top))
        return g.narrow(position, 0, top)


@dataclass(frozen=True, slots=True)
class Group:
    """One axis of the inner nest: the outer axes it is fused from (last fastest), turned before it is taken apart."""

    members: tuple[int, ...]
    turn: Turn


def member_length(axes: Sequence[Axis], members: Sequence[int], k: int, fused: Axis) -> Expr:
    """The scheduled length of axis k, one of the `members` of `fused`: the slowest takes up the padding."""
    if k != members[0]:
        return axes[k].solid
    length = fused.solid
    for faster in members[1:]:
        length = length.graph.ceil_div(length, axes[faster].solid)
    return length


@dataclass(frozen=True, slots=True)
class Derived:
    """A nest over axes that are fused, rotated or reversed axes of this box."""

    axes: tuple[Axis, ...]
    turns: tuple[Turn, ...]  # one for each axis of this box
    groups: tuple[Group, ...]  # one for each axis of the inner nest
    inner: Nest

    @property
    def size(self) -> Expr:
        return self.inner.size

    def forward(self, index: Expr) -> tuple[Expr, ...]:
        g = index.graph
        positions: dict[int, Expr] = {}
        for group, axis, position in zip(self.groups, self.inner.axes, self.inner.forward(index), strict=True):
            rest = group.turn.forward(g, position, axis.solid)
            for k in reversed(group.members):
                length = self.axes[k].solid
                slowest = k == group.members[0]
                positions[k] = rest if slowest else rest % length
                rest = rest if slowest else rest // length
        return tuple(self.turns[k].forward(g, positions[k], self._length(k)) for k in range(len(self.axes)))

    @property
    def padded(self) -> tuple[int, ...]:
        """The axes whose scheduled positions may exceed their lengths."""
        found: list[int] = []
        for group, axis in zip(self.groups, self.inner.axes, strict=True):
            whole = volume([self.axes[k] for k in group.members])
            if not same(axis.length, whole):
                found.append(group.members[0])
        return tuple(found)

    def _length(self, k: int) -> Expr:
        group, axis = next(pair for pair in zip(self.groups, self.inner.axes, strict=True) if k in pair[0].members)
        return member_length(self.axes, group.members, k, axis)

    def inverse(self, positions: Sequence[Expr]) -> Expr:
        g = positions[0].graph
        inner: list[Expr] = []
        for group, axis in zip(self.groups, self.inner.axes, strict=True):
            total, top = g.const(0), axis.solid.hi - 1
            for k in group.members:
                length = self._length(k)
                # the lengths' ranges multiply to more than the fused axis can have
                slower = g.mul(total, length, within=(0, top))
                total = g.add(slower, self.turns[k].inverse(g, positions[k], length), within=(0, top))
            inner.append(group.turn.inverse(g, total, axis.solid))
        return self.inner.inverse(inner)

    def reasons(self) -> list[str]:
        own: list[str] = []
        for group, axis in zip(self.groups, self.inner.axes, strict=True):
            if len(group.members) > 1:
                names = ", ".join(self.axes[k].name for k in group.members)
                own.append(f"{axis.name} fuses {names}: division with remainder is a bijection")
            turns = [group.turn, *(self.turns[k] for k in group.members)]
            if any(turn.reverse or turn.shift is not None for turn in turns):
                own.append(f"{axis.name} is reversed or rotated: a permutation of the axis")
        return own + self.inner.reasons()


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
