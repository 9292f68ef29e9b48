"""An order of the spec language into a nest: fuse, then split, then loops, pieces, a curve or a raster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sched_compiler.curve import Curve
from sched_compiler.expr import Expr, Graph
from sched_compiler.loader import LoadedSpec
from sched_compiler.nest import (
    Axis,
    Derived,
    Digit,
    Either,
    Group,
    Loop,
    Loops,
    Nest,
    Part,
    Partitioned,
    Pieces,
    Turn,
    member_length,
    same,
    volume,
)
from sched_compiler.prove import at_most
from sched_compiler.source import Path
from sched_compiler.spec import Order, Piece, Split
from sched_compiler.translate import Translator

#: Loops of one nest. The formulas grow with the number of ragged splits; real orders have fewer than ten.
MOST_LOOPS = 32
#: Pieces of one list. How they tile their box takes time that grows with the power of the number of axes.
MOST_PIECES = 64


@dataclass
class _Working:
    """An axis while an order is applied to it: what it was made of, and the digits it has been split into."""

    name: str
    length: Expr
    members: tuple[int, ...]
    digits: list[Digit]
    #: The axis and its outermost parts, as far down as every split pads: only there padding shows.
    padded: list[str] = field(default_factory=list)


@dataclass
class OrderBuilder:
    """Builds nests from orders; collects warnings as (path, message, mend)."""

    graph: Graph
    loaded: LoadedSpec
    formulas: Translator
    warnings: list[tuple[Path, str, str]] = field(default_factory=list)

    def build(self, scope: Sequence[Axis], order: Order, path: Path, *, whole: bool = True) -> Nest:
        """The nest of `order` over the axes in `scope`. `whole`: the scope is the space, not a piece of it."""
        working = self._fuse(scope, order, path)
        self._split(working, order, path, whole=whole)
        axes = tuple(Axis(w.name, w.length, tuple(w.digits)) for w in working)
        inner = self._partitioned(self._walk(axes, order, path), order, path, whole=whole)
        group_turns, axis_turns = self._turns(scope, working, order, path)
        return Derived(
            axes=tuple(scope),
            turns=tuple(axis_turns),
            groups=tuple(Group(w.members, turn) for w, turn in zip(working, group_turns, strict=True)),
            inner=inner,
        )

    def _walk(self, axes: tuple[Axis, ...], order: Order, path: Path) -> Nest:
        if order.pieces is not None:
            return self._pieces(axes, order, path)
        if order.curve is not None:
            return self._curve(axes, order, path)
        return self._raster(axes, order, path) if order.raster is not None else self._loops(axes, order, path)

    # -- axes -------------------------------------------------------------------------------------------------

    def _fuse(self, scope: Sequence[Axis], order: Order, path: Path) -> list[_Working]:
        position = {axis.name: k for k, axis in enumerate(scope)}
        digits = {d.name for axis in scope for d in axis.digits}
        fused: dict[int, str] = {}
        working: dict[int, _Working] = {}
        for name, members in order.fuse.items():
            where = (*path, "fuse", name)
            if name in position or name in digits:
                raise self.loaded.error("E013", where, f"{name} is already an axis", found=name, expected="a new name")
            if len(members) < 2:
                raise self.loaded.error(
                    "E043", where, "fuse joins at least two axes", found=str(len(members)), expected="two axes or more"
                )
            for n, member in enumerate(members):
                if member not in position or position[member] in fused:
                    raise self._unknown(
                        (*where, n), member, [a for a in position if position[a] not in fused], "an axis not yet fused"
                    )
                if len(scope[position[member]].digits) > 1:
                    raise self.loaded.error(
                        "E043", (*where, n), f"{member} has been split and cannot be fused", found=member,
                        expected="a whole axis", mend="fuse first, then split the fused axis",
                    )  # fmt: skip
                fused[position[member]] = name
            length = self.graph.const(1)
            for member in members:
                length = length * scope[position[member]].length
            numbers = tuple(position[member] for member in members)
            working[min(numbers)] = _Working(name, length, numbers, [Digit(name, self.graph.const(1))])
        for k, axis in enumerate(scope):
            if k not in fused:
                working[k] = _Working(axis.name, axis.length, (k,), list(axis.digits))
        return [working[k] for k in sorted(working)]

    def _split(self, working: list[_Working], order: Order, path: Path, *, whole: bool) -> None:
        for name in sorted(order.split, key=lambda n: n.count(".")):  # an axis before its parts
            split, where = order.split[name], (*path, "split", name)
            axis = next((w for w in working if any(d.name == name for d in w.digits)), None)
            if axis is None:
                known = [d.name for w in working for d in w.digits]
                raise self._unknown(where, name, known, "an axis or a part of one", key=True)
            by = self.formulas.integer(split.by, (*where, "by"), at_least=1, what="the size of a band")
            place = next(k for k, d in enumerate(axis.digits) if d.name == name)
            unit = axis.digits[place].unit
            outer = Digit(f"{name}.outer", by * unit)
            if split.ragged == "pad":
                self._pad(axis, name, place, outer.unit, split, where, whole=whole)
            axis.digits[place : place + 1] = [outer, Digit(f"{name}.inner", unit)]

    def _pad(
        self, axis: _Working, name: str, place: int, band: Expr, split: Split, where: Path, *, whole: bool
    ) -> None:
        """Lengthen the axis to whole bands, where the padded part is the axis or its outermost part."""
        g = self.graph
        if place > 0:
            outside = axis.digits[place - 1].unit
            if (outside % band).value != 0:
                raise self.loaded.error(
                    "E043", where, f"padding {name} would schedule points of the next band twice",
                    found=f"bands of {split.by} in a band that they do not divide", expected="a divisor",
                    mend="pad the outer split, or choose a divisor",
                )  # fmt: skip
        elif name == axis.name or not whole or name.rpartition(".")[0] in axis.padded:
            padded = g.ceil_div(axis.length, band) * band
            if not whole and not same(padded, axis.length):
                raise self.loaded.error(
                    "E043", where, f"padding {name} would stick out of the piece",
                    found=f"a length that is not a multiple of {split.by}", expected="a piece of whole bands",
                    mend="split the axis with padding outside the pieces",
                )  # fmt: skip
            axis.length = padded
            axis.padded.append(name)
            return
        if (axis.length % band).value != 0:
            self.warnings.append(
                (where, f"padding {name} has no effect: points past the end of {axis.name} are skipped",
                 f"pad {axis.name} as well, or drop `ragged: pad` here")
            )  # fmt: skip

    def _turns(
        self, scope: Sequence[Axis], working: list[_Working], order: Order, path: Path
    ) -> tuple[list[Turn], list[Turn]]:
        """Rotations of whole axes, and reversals of axes that are not loops of their own."""
        shifts: dict[str, Expr] = {}
        lengths = {w.name: self.graph.max(w.length, 1) for w in working}
        for w in working:
            whole = Axis(w.name, w.length, tuple(w.digits))
            lengths |= {scope[k].name: member_length(scope, w.members, k, whole) for k in w.members}
        for name, amount in order.rotate.items():
            where = (*path, "rotate", name)
            if name not in lengths:
                if any(d.name == name for w in working for d in w.digits):
                    raise self.loaded.error(
                        "E044", where, f"{name} is a part of an axis; only a whole axis can be rotated", found=name,
                        expected=f"one of: {', '.join(lengths)}",
                    )  # fmt: skip
                raise self._unknown(where, name, list(lengths), "an axis", key=True)
            shifts[name] = self.formulas.integer(amount, where) % lengths[name]
        fused = {k for w in working if len(w.members) > 1 for k in w.members}
        for w in working:
            self._require_whole_rows(scope, w, order, path)
        groups = [Turn(shift=shifts.get(w.name)) for w in working]
        turns = [
            Turn(reverse=axis.name in order.reverse, shift=shifts.get(axis.name)) if k in fused else Turn()
            for k, axis in enumerate(scope)
        ]
        return groups, turns

    def _require_whole_rows(self, scope: Sequence[Axis], axis: _Working, order: Order, path: Path) -> None:
        """Refuse to turn the slowest member of a fused axis whose padding leaves a row of it partly filled."""
        if len(axis.members) == 1 or not axis.padded:
            return
        slowest = scope[axis.members[0]].name
        row = volume([scope[k] for k in axis.members[1:]])
        if (axis.length % self.graph.max(row, 1)).value == 0:
            return
        for key, turned in (("reverse", slowest in order.reverse), ("rotate", slowest in order.rotate)):
            if turned:
                raise self.loaded.error(
                    "E044", (*path, key), f"{slowest} cannot be turned: padding fills its last row only partly",
                    found=f"{axis.name}, padded", expected=f"whole rows of {slowest}",
                    mend=f"turn {axis.name} instead, or drop the padding",
                )  # fmt: skip

    # -- loops ------------------------------------------------------------------------------------------------

    def _loops(self, axes: tuple[Axis, ...], order: Order, path: Path) -> Loops:
        where = {d.name: (k, n) for k, axis in enumerate(axes) for n, d in enumerate(axis.digits)}
        loops_path = (*path, "loops")
        names = list(where) if order.loops is None else order.loops
        if len(where) > MOST_LOOPS:
            raise self.loaded.error(
                "E043",
                loops_path,
                "there are too many loops",
                found=str(len(where)),
                expected=f"at most {MOST_LOOPS}",
                mend="split less",
            )
        seen: list[str] = []
        for n, name in enumerate(names):
            if name not in where:
                raise self._unknown((*loops_path, n), name, list(where), "a loop")
            if name in seen:
                raise self.loaded.error(
                    "E041", (*loops_path, n), f"{name} stands twice in loops", found=name, expected="each loop once"
                )
            axis, digit = where[name]
            ahead = next((d.name for d in axes[axis].digits[:digit] if d.name not in seen), None)
            if ahead is not None:
                raise self.loaded.error(
                    "E042", (*loops_path, n), f"{name} stands before {ahead}, whose inner part it is",
                    found=f"{name} first", expected=f"{ahead} first", mend=f"move {ahead} before {name}",
                )  # fmt: skip
            seen.append(name)
        missing = [name for name in where if name not in seen]
        if missing:
            raise self.loaded.error(
                "E041", loops_path, f"loops leaves out {', '.join(missing)}", found=f"[{', '.join(seen)}]",
                expected=f"every one of: {', '.join(where)}", mend=f"add {', '.join(missing)}",
            )  # fmt: skip
        down = self._reversed(axes, order, path)
        parity = self._serpentine(seen, axes, order, path)
        return Loops(axes, tuple(Loop(*where[name], name in down, parity.get(name)) for name in seen))

    def _reversed(self, axes: tuple[Axis, ...], order: Order, path: Path) -> set[str]:
        """The loops that run downwards: a reversed axis reverses every loop it has been split into."""
        members = {m for group in order.fuse.values() for m in group}
        down: set[str] = set()
        for n, name in enumerate(order.reverse):
            parts = {d.name for a in axes for d in a.digits if d.name == name or d.name.startswith(name + ".")}
            if not parts and name not in members:
                known = [a.name for a in axes] + [d.name for a in axes for d in a.digits if d.name != a.name]
                raise self._unknown((*path, "reverse", n), name, known, "an axis or a loop")
            if parts & down or name in order.reverse[:n]:
                raise self.loaded.error(
                    "E044", (*path, "reverse", n), f"{name} is reversed twice", found=name, expected="each loop once"
                )
            down |= parts
        return down

    def _serpentine(self, loops: list[str], axes: tuple[Axis, ...], order: Order, path: Path) -> dict[str, str]:
        for name, by in order.serpentine.items():
            where = (*path, "serpentine", name)
            if name not in loops:
                raise self._unknown(where, name, loops, "a loop", key=True)
            if by not in loops:
                raise self._unknown(where, by, loops, "a loop")
            if loops.index(by) >= loops.index(name):
                raise self.loaded.error(
                    "E044", where, f"{name} cannot turn with {by}, which does not stand outside it",
                    found=f"loops: [{', '.join(loops)}]", expected=f"{by} before {name} in loops",
                )  # fmt: skip
        return dict(order.serpentine)

    # -- pieces -----------------------------------------------------------------------------------------------

    def _pieces(self, axes: tuple[Axis, ...], order: Order, path: Path) -> Nest:
        assert order.pieces is not None
        if not order.pieces:
            raise self.loaded.error("E045", (*path, "pieces"), "there is no piece", expected="one piece or more")
        if len(order.pieces) > MOST_PIECES:
            raise self.loaded.error(
                "E045", (*path, "pieces"), "there are too many pieces", found=str(len(order.pieces)),
                expected=f"at most {MOST_PIECES}",
            )  # fmt: skip
        self._nothing_turned(order, path, "pieces", "reverse it in each piece", "give each piece its own serpentine")
        parts = tuple(self._part(axes, piece, (*path, "pieces", n)) for n, piece in enumerate(order.pieces))
        return Pieces(axes, parts)

    def _part(self, axes: tuple[Axis, ...], piece: Piece, path: Path) -> Part:
        g = self.graph
        low, high = [g.const(0) for _ in axes], [axis.length for axis in axes]
        outermost = {axis.digits[0].name: k for k, axis in enumerate(axes)}
        for name, (begin, end) in piece.part.items():
            where = (*path, "part", name)
            if name not in outermost:
                raise self._unknown(where, name, list(outermost), "an axis, by its outermost part", key=True)
            k = outermost[name]
            unit = axes[k].digits[0].unit
            first = self.formulas.integer(begin, (*where, 0), at_least=0, what="the first point of a part")
            beyond = self.formulas.integer(end, (*where, 1), at_least=0, what="the end of a part")
            low[k] = first * unit
            high[k] = beyond * unit
            if unit.value != 1 and not at_most(high[k], axes[k].length):  # the axis's last band may be short
                high[k] = g.min(high[k], axes[k].length)
        scope = tuple(Axis(a.name, self._between(lo, h), a.digits) for a, lo, h in zip(axes, low, high, strict=True))
        return Part(tuple(low), tuple(high), self.build(scope, piece, path, whole=False))

    def _between(self, low: Expr, high: Expr) -> Expr:
        """The number of positions from `low` to below `high`: none where `low` is above `high`."""
        g = self.graph
        reached = high if at_most(low, high) else g.max(high, low)
        return g.sub(reached, low, within=(0, max(0, high.hi - low.lo)))

    def _nothing_turned(self, order: Order, path: Path, walk: str, reverse: str, serpentine: str) -> None:
        """Refuse `serpentine`, and `reverse` of anything but members of fused axes, which the walk never sees."""
        if order.serpentine:
            raise self.loaded.error(
                "E014", (*path, "serpentine"), f"serpentine cannot stand beside {walk}", mend=serpentine
            )
        fused = {m for group in order.fuse.values() for m in group}
        for n, name in enumerate(order.reverse):
            if name not in fused:
                raise self.loaded.error(
                    "E044", (*path, "reverse", n), f"{name} is walked by the {walk}", found=name,
                    expected="a member of a fused axis", mend=reverse,
                )  # fmt: skip

    # -- curves and rasters -----------------------------------------------------------------------------------

    def _curve(self, axes: tuple[Axis, ...], order: Order, path: Path) -> Nest:
        """A curve over the outermost digits, and loops over the others."""
        self._require_two(axes, (*path, "curve"), "a curve")
        under = tuple(Axis(axis.name, axis.length, axis.digits[1:]) for axis in axes)
        if order.loops is not None and not any(axis.digits for axis in under):
            raise self.loaded.error(
                "E014", (*path, "loops"), "loops cannot stand beside curve: it leaves nothing to walk",
                mend="remove loops or curve",
            )  # fmt: skip
        walked = [axis.digits[0].name for axis in axes]
        places: list[tuple[str, Path, str]] = [
            *(("E041", (*path, "loops", n), name) for n, name in enumerate(order.loops or [])),
            *(("E044", (*path, "serpentine", name), name) for name in order.serpentine),
            *(("E044", (*path, "serpentine", name), by) for name, by in order.serpentine.items()),
            *(("E044", (*path, "reverse", n), name) for n, name in enumerate(order.reverse)),
        ]
        rest = [digit.name for axis in under for digit in axis.digits]
        for code, where, name in places:
            if name in walked or (where[-2] == "reverse" and any(w.startswith(f"{name}.") for w in walked)):
                raise self.loaded.error(
                    code, where, f"{name} is walked by the curve", found=name,
                    expected=f"one of: {', '.join(rest)}" if rest else "none: the curve walks both axes",
                )  # fmt: skip
        return Curve(axes, order.curve == "hilbert", self._loops(under, order, path).loops)

    def _raster(self, axes: tuple[Axis, ...], order: Order, path: Path) -> Nest:
        """Bands of one axis walked along the other; which one is decided by the extents where `auto` is asked for.

        CUTLASS rasterizes along M where there are more tiles along N, else along N, also where they are equal
        (cutlass/gemm/kernel/tile_scheduler_params.h, PersistentTileSchedulerSm90Params::get_rasterization_order).
        """
        assert order.raster is not None
        where = (*path, "raster")
        self._require_two(axes, where, "a raster")
        if any(len(axis.digits) > 1 for axis in axes):
            parts = [digit.name for axis in axes for digit in axis.digits]
            raise self.loaded.error(
                "E048", where, "a raster walks whole axes", found=", ".join(parts), expected="axes that are not split",
                mend="write the bands as split and loops",
            )  # fmt: skip
        self._nothing_turned(order, path, "raster", "write split, loops and reverse", "write split and loops")
        names = [axis.name for axis in axes]
        along, swizzle = order.raster.along, order.raster.swizzle
        if along not in (*names, "auto"):
            raise self._unknown((*where, "along"), along, [*names, "auto"], "an axis")
        width = self.formulas.integer(swizzle, (*where, "swizzle"), at_least=1, what="the width of a band")
        ways = [self._bands(axes, k, width) for k in (1, 0)]  # of the rows along the columns, and the reverse
        if along != "auto":
            return ways[0] if along == names[1] else ways[1]
        columns = self.graph.le(axes[1].length, axes[0].length)
        if columns.value is not None:
            return ways[0] if columns.value else ways[1]
        return Either(columns, *ways)

    def _bands(self, axes: tuple[Axis, ...], along: int, width: Expr) -> Loops:
        """Bands of `width` positions of the other axis, walked along axis `along`, positions of a band fastest."""
        across = 1 - along
        name, one = axes[across].name, self.graph.const(1)
        digits = (Digit(f"{name}.outer", width), Digit(f"{name}.inner", one))
        split = Axis(name, axes[across].length, digits)
        both = (split, axes[along]) if across == 0 else (axes[along], split)
        return Loops(both, (Loop(across, 0), Loop(along, 0), Loop(across, 1)))

    def _require_two(self, axes: tuple[Axis, ...], where: Path, walk: str) -> None:
        if len(axes) != 2:
            raise self.loaded.error(
                "E048", where, f"{walk} walks two axes", found=", ".join(axis.name for axis in axes),
                expected="two axes", mend="fuse axes until two are left" if len(axes) > 2 else "use loops",
            )  # fmt: skip

    def _partitioned(self, nest: Nest, order: Order, path: Path, *, whole: bool) -> Nest:
        """The nest with its indices dealt out to partitions, if they are asked for."""
        if order.partitions is None:
            return nest
        where = (*path, "partitions")
        if not whole:
            raise self.loaded.error(
                "E049", where, "partitions cannot stand in a piece: the GPU deals out the indices of the whole order",
                found="partitions of a piece", expected="partitions beside pieces", key=True,
            )  # fmt: skip
        count, chunk = order.partitions.count, order.partitions.chunk
        parts = self.formulas.integer(count, (*where, "count"), at_least=1, what="the number of partitions")
        if chunk is None:
            return Partitioned(nest, parts, None)
        return Partitioned(
            nest, parts, self.formulas.integer(chunk, (*where, "chunk"), at_least=1, what="the size of a chunk")
        )

    # -- diagnostics ------------------------------------------------------------------------------------------

    def _unknown(self, where: Path, name: str, known: list[str], what: str, *, key: bool = False) -> Exception:
        import difflib  # only when something is wrong

        close = difflib.get_close_matches(name, known, 1)
        parts = [k for k in known if k.startswith(name + ".")]
        mend = f"did you mean {close[0]}?" if close else None
        if parts:
            mend = f"{name} has been split: use {' and '.join(parts)}"
        return self.loaded.error(
            "E040", where, f"{name} is not {what} here", found=name, expected=f"one of: {', '.join(known)}", mend=mend,
            key=key,
        )  # fmt: skip
