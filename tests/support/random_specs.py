"""Random composed specs, written against a source of choices: Hypothesis and plain generators can both drive it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tests.support.oracle import number

T = TypeVar("T")
Data = dict[str, Any]


class Choices(Protocol):
    def integer(self, lo: int, hi: int) -> int: ...
    def pick(self, options: Sequence[T]) -> T: ...


class RandomChoices:
    """Choices from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, lo: int, hi: int) -> int:
        return self._random.randint(lo, hi)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)


def _chance(c: Choices, percent: int) -> bool:
    """True for that share of choices; shrinking leads to False."""
    return c.integer(1, 100) > 100 - percent


@dataclass
class _Axis:
    """An axis in scope: its loops, most significant first, and how many values the first of them has."""

    name: str
    count: int
    text: int | str | None  # the count as a formula; None where it is too intricate for a corner of a piece
    leaves: list[str]
    padded: set[str] = field(default_factory=set)


@dataclass
class _Generator:
    c: Choices
    narrow: bool  # every parameter's range holds two values, so that pieces are decided by trying
    params: Data = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)

    def parameter(self, name: str, value: int, lo: int, hi: int) -> str:
        if name not in self.values:
            self.values[name] = value
            self.params[name] = {"min": value, "max": value + 1} if self.narrow else {"min": lo, "max": hi}
        return name

    def shift(self) -> str:
        return self.parameter("shift", self.c.integer(-5, 30), -5, 30)

    def band(self) -> tuple[int | str, int]:
        """The size of a band as written, and its value."""
        by: int | str = self.c.pick([1, 2, 2, 3, 4, 5, 8])
        if _chance(self.c, 15):
            name = self.parameter("band", self.c.integer(1, 6), 1, self.c.pick([6, 40]))
            by = self.c.pick([name, f"{name} * 2", f"ceil_div({name}, 2)", f"{name} + 1", f"min({name}, 3)"])
        return by, number(by, self.values)

    # -- orders -----------------------------------------------------------------------------------------------

    def order(self, scope: Sequence[_Axis], *, whole: bool, depth: int, pieces: int) -> Data:
        """An order over `scope`; `whole` where it is the space, `pieces` the percentage of piecewise orders."""
        c = self.c
        order: Data = {}
        axes = [replace(a, leaves=list(a.leaves), padded=set(a.padded)) for a in scope]
        members = self._fuse(axes, order, depth)
        for axis in axes:
            for _ in range(c.pick([0, 0, 1, 1, 2, 3])):
                self._split(axis, order, whole=whole)
        if _chance(c, pieces):
            order["pieces"] = self._pieces(axes, depth)
        elif len(axes) == 2 and _chance(c, 20):
            order["curve"] = c.pick(["hilbert", "morton"])
            rest = [replace(a, leaves=a.leaves[1:]) for a in axes]
            self._loops(rest, members, order)
        elif len(axes) == 2 and all(a.leaves == [a.name] for a in axes) and _chance(c, 60):
            along = c.pick(["auto", "auto", axes[0].name, axes[1].name])
            order["raster"] = c.pick([along, {"along": along}, {"along": along, "swizzle": self.band()[0]}])
        else:
            self._loops(axes, members, order)
        if whole and _chance(c, 20):
            count, chunk = (c.pick([1, 2, 3, 4, 8, self.band()[0]]) for _ in range(2))
            order["partitions"] = c.pick([count, {"count": count}, {"count": count, "chunk": chunk}])
        if any(a.padded for a in axes if a.name in order.get("fuse", {})):
            members = members[1:]  # the slowest cannot be turned: padding may fill its last row only partly
        if members and _chance(c, 30):
            order.setdefault("reverse", []).append(c.pick(members))
        rotate = {
            name: c.pick([1, 2, 7, f"{self.shift()}", f"{self.shift()} * 3 - 7"])
            for name in [*(a.name for a in axes), *members]
            if _chance(c, 12)
        }
        return {**order, **({"rotate": rotate} if rotate else {})}

    def _fuse(self, axes: list[_Axis], order: Data, depth: int) -> list[str]:
        """Fuse two or three whole axes, in any order; gives their names."""
        c = self.c
        free = [a for a in axes if a.leaves == [a.name]]
        if len(free) < 2 or not _chance(c, 25):
            return []
        members: list[_Axis] = []
        for _ in range(c.pick([2, 2, 3]) if len(free) > 2 else 2):
            members.append(c.pick([a for a in free if a not in members]))
        count, texts = 1, [a.text for a in members]
        for a in members:
            count *= a.count
        known = None if None in texts else " * ".join(f"({t})" for t in texts)
        name = f"fu{depth}" if depth else "fu"
        fused = _Axis(name, count, count if all(isinstance(t, int) for t in texts) else known, [name])
        axes[axes.index(next(a for a in axes if a in members))] = fused
        axes[:] = [a for a in axes if a not in members]
        order["fuse"] = {name: [a.name for a in members]}
        return [a.name for a in members]

    def _split(self, axis: _Axis, order: Data, *, whole: bool) -> None:
        c = self.c
        leaf = c.pick(axis.leaves)
        by, size = self.band()
        first = leaf == axis.leaves[0]
        # Where padding shows: the axis and its outermost parts, as far as each split pads. Elsewhere it does nothing.
        chain = leaf == axis.name or (first and leaf.rpartition(".")[0] in axis.padded)
        pad = whole and first and _chance(c, 30)
        order.setdefault("split", {})[leaf] = {"by": by, "ragged": "pad"} if pad else by
        if pad and chain:
            axis.padded.add(leaf)
        if first:
            axis.count = -(-axis.count // size)
            if axis.text is not None:
                axis.text = axis.count if isinstance(axis.text, int) and by == size else f"ceil_div({axis.text}, {by})"
        at = axis.leaves.index(leaf)
        axis.leaves[at : at + 1] = [f"{leaf}.outer", f"{leaf}.inner"]

    def _loops(self, axes: Sequence[_Axis], members: Sequence[str], order: Data) -> None:
        c = self.c
        loops: list[str] = []
        pools = [list(a.leaves) for a in axes]
        if not any(pools):
            return
        if _chance(c, 90):
            while any(pools):
                loops.append(c.pick([p for p in pools if p]).pop(0))
            order["loops"] = loops
        else:
            loops = [leaf for pool in pools for leaf in pool]
        reverse: list[str] = []
        for axis in axes:
            if len(axis.leaves) > 1 and "curve" not in order and _chance(c, 10):
                reverse.append(axis.name)
            else:
                reverse += [leaf for leaf in axis.leaves if _chance(c, 20)]
        if reverse:
            order["reverse"] = reverse
        serpentine = {loop: c.pick(loops[:n]) for n, loop in enumerate(loops) if n and _chance(c, 20)}
        if serpentine:
            order["serpentine"] = serpentine

    def _pieces(self, axes: Sequence[_Axis], depth: int) -> list[Data]:
        """The box cut by straight lines, each part with an order of its own. Pieces may be empty."""
        c = self.c
        Corner = tuple[int, int | str | None]  # noqa: N806  value, and text
        whole: list[tuple[Corner, Corner]] = [((0, 0), (a.count, a.text)) for a in axes]
        boxes = [list(whole)]
        for _ in range(c.pick([0, 1, 1, 2, 3])):
            box = boxes.pop(c.integer(0, len(boxes) - 1))
            k = c.integer(0, len(axes) - 1)
            (low, low_text), (high, high_text) = box[k]
            at: Corner
            if isinstance(low_text, int) and isinstance(high_text, int):
                at = (middle := c.integer(low, high), middle)
            elif low_text == 0 and high_text is not None and box[k] == whole[k]:
                n = c.integer(0, 4)
                middle_text = c.pick([
                    f"({high_text}) // 2", f"min({n}, {high_text})", f"ceil_div({high_text}, 3)",
                    f"max(({high_text}) - {n}, 0)",
                ])  # fmt: skip
                at = (number(middle_text, self.values), middle_text)
            else:
                boxes.append(box)
                continue
            boxes += [[*box[:k], (box[k][0], at), *box[k + 1 :]], [*box[:k], (at, box[k][1]), *box[k + 1 :]]]
        if _chance(c, 50):
            boxes.reverse()
        pieces = []
        for box in boxes:
            part: Data = {}
            scope: list[_Axis] = []
            for axis, bounds, all_of_it in zip(axes, box, whole, strict=True):
                (low, low_text), (high, high_text) = bounds
                if bounds != all_of_it or (high_text is not None and _chance(c, 20)):
                    part[axis.leaves[0]] = [low_text, high_text]
                text: int | str | None = high_text if low_text == 0 else None
                if isinstance(low_text, int) and isinstance(high_text, int):
                    text = high_text - low_text
                scope.append(_Axis(axis.name, high - low, text, axis.leaves))
            order = self.order(scope, whole=False, depth=depth + 1, pieces=20 if depth < 1 else 0)
            pieces.append({**({"part": part} if part else {}), **order})
        return pieces

    # -- the whole --------------------------------------------------------------------------------------------

    def spec(self, name: str, pieces: int) -> Data:
        c = self.c
        axes = ["m", "n", "k"][: c.pick([1, 2, 2, 2, 3])]
        top = 14 if len(axes) < 3 else 7
        space: Data = {}
        extents: dict[str, int] = {}
        wide = _chance(c, 15)  # ranges for which 32 bits do not suffice
        most = {1: 1 << 33, 2: 1 << 24, 3: 1 << 16}[len(axes)] if wide else 500
        for a in axes:
            extents[a] = e = c.pick([0, 1, 1, 2, 3, c.integer(1, top), c.integer(1, top), c.integer(1, top)])
            kind = c.pick(["literal", "literal", "run time", "run time", "problem"])
            if kind == "literal":
                space[a] = e
            elif kind == "run time":  # known only at launch
                space[a] = self.parameter(f"{a}_tiles", e, c.pick([0, min(1, e)]), c.pick([e + 3, most]))
            else:
                size = c.pick([1, 4, 128])
                length = max(0, e * size - c.integer(0, size - 1))
                space[a] = f"ceil_div({self.parameter(a.upper(), length, 0, most * size)}, {size})"
        cluster: dict[str, int] = {}
        if _chance(c, 20):
            cluster = {a: c.pick([1, 2, 2, 3]) for a in axes[:2] if _chance(c, 70)} or {axes[-1]: c.pick([2, 4, 8])}
            if len(cluster) == 2 and _chance(c, 50):
                cluster = dict(reversed(cluster.items()))
            if max(cluster.values()) == 3:  # at most eight CTAs
                cluster = {a: min(n, 3 if k == 0 else 2) for k, (a, n) in enumerate(cluster.items())}
        blocks = []
        for a in axes:
            size = cluster.get(a, 1)
            count = -(-extents[a] // size)
            text = count if isinstance(space[a], int) else space[a] if size == 1 else f"ceil_div({space[a]}, {size})"
            blocks.append(_Axis(a, count, text, [a]))
        order = self.order(blocks, whole=True, depth=0, pieces=pieces)
        workers = c.pick([c.integer(1, 9), c.integer(1, 200), "grid", "formula"])
        if workers == "formula":
            workers = f"max({self.shift()}, 1) + 1"
        launchable = not wide and ("band" not in self.params or self.narrow)  # wide bands can pad without measure
        dispatch: Data = {"static": {"workers": workers}}
        if launchable and _chance(c, 25):
            dispatch = {"single": {}}
        elif _chance(self.c, 15):
            dispatch = self.c.pick(
                [{"dynamic": {"workers": workers}}, {"table": {"indptr": {"length": self.c.integer(2, 6)}}}]
            )
        spec: Data = {"version": 1, "name": name, "params": self.params, "space": space, "order": order}
        return {**spec, **({"cluster": cluster} if cluster else {}), "dispatch": dispatch}


def random_spec(c: Choices, name: str = "random") -> tuple[Data, dict[str, int]]:
    """A composed spec as data, and values for its parameters."""
    piecewise = _chance(c, 30)
    generator = _Generator(c, narrow=piecewise)
    spec = generator.spec(name, 90 if piecewise else 0)
    return spec, generator.values
