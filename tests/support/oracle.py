"""The meaning of a composed spec, by its definition: written loops that visit the box, points outside it skipped.

Deliberately slow and unlike the compiler: every point of an axis is listed with the values of its loops, and a loop
runs over the values that really occur under the loops outside it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

Point = tuple[int, ...]


def number(value: Any, env: Mapping[str, int]) -> int:
    """An extent or bound of a test spec: an integer, or a formula that is also Python."""
    if isinstance(value, int):
        return value
    names = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, **env}
    return int(eval(value, {"__builtins__": {}}, names))  # the tests' own text


def visits(spec: Mapping[str, Any], env: Mapping[str, int]) -> list[tuple[Point, bool]]:
    """Every scheduled tile in order, and whether it lies in the space."""
    extents = {name: number(e, env) for name, e in spec["space"].items()}
    cluster = {k: v for k, v in spec.get("cluster", {}).items() if k != "ragged"}
    blocks = {name: -(-e // cluster.get(name, 1)) for name, e in extents.items()}
    order = spec.get("order") or {}
    axes = {name: {"length": n, "parts": [(name, 1)]} for name, n in blocks.items()}
    result: list[tuple[Point, bool]] = []
    ranks = list(itertools.product(*(range(cluster[a]) for a in reversed(cluster))))
    for point in walk(axes, order, env):
        for rank in ranks:
            offset = dict(zip(reversed(cluster), rank, strict=True))
            tile = tuple(p * cluster.get(a, 1) + offset.get(a, 0) for a, p in zip(extents, point, strict=True))
            result.append((tile, all(t < e for t, e in zip(tile, extents.values(), strict=True))))
    return result


def walk(scope: dict[str, Any], order: Mapping[str, Any], env: Mapping[str, int]) -> list[Point]:
    """Positions along the axes in `scope`, in the order in which they are visited."""
    fuse = order.get("fuse", {})
    inside = {m for members in fuse.values() for m in members}
    axes: dict[str, Any] = {}
    for name, axis in scope.items():
        for fused, members in fuse.items():
            if name == next(s for s in scope if s in members):
                length = 1
                for m in members:
                    length *= scope[m]["length"]
                axes[fused] = {"length": length, "parts": [(fused, 1)]}
        if name not in inside:
            axes[name] = dict(axis)
    splits: dict[str, tuple[int, bool]] = {}
    for name, split in order.get("split", {}).items():
        by = split["by"] if isinstance(split, dict) else split
        splits[name] = (number(by, env), isinstance(split, dict) and split.get("ragged") == "pad")
    walked: list[dict[str, int]] = []
    if "pieces" in order:
        lengths = {name: _scheduled(axis, splits) for name, axis in axes.items()}
        for piece in order["pieces"]:
            low, sub = {}, {}
            for name, axis in axes.items():
                parts = _parts(axis["parts"], splits)
                first, unit = parts[0]
                begin, end = piece.get("part", {}).get(first, (0, None))
                low[name] = number(begin, env) * unit
                high = lengths[name] if end is None else min(number(end, env) * unit, lengths[name])
                sub[name] = {"length": high - low[name], "parts": parts}
            for point in walk(sub, piece, env):
                walked.append({n: p + low[n] for n, p in zip(sub, point, strict=True)})
    elif "raster" in order:
        walked = _raster(axes, order["raster"], env)
        lengths = {name: axis["length"] for name, axis in axes.items()}
    else:
        walked = _loops(axes, splits, order)
        lengths = {name: _scheduled(axis, splits) for name, axis in axes.items()}
    visited = [_outer(point, scope, fuse, order, lengths, env) for point in walked]
    return _dealt(visited, order["partitions"], env) if "partitions" in order else visited


def _dealt(visited: list[Point], partitions: Any, env: Mapping[str, int]) -> list[Point]:
    """The order in which indices are dealt out: each partition has a queue, and takes from it when it is its turn."""
    form = partitions if isinstance(partitions, dict) else {"count": partitions}
    count = number(form["count"], env)
    if form.get("chunk") is not None:
        chunk = number(form["chunk"], env)
        full = len(visited) - len(visited) % (count * chunk)
        blocks = [visited[k : k + count * chunk] for k in range(0, full, count * chunk)]
        queues = [[b[x * chunk : (x + 1) * chunk] for x in range(count)] for b in blocks]
        return [queue[pos] for block in queues for pos in range(chunk) for queue in block] + visited[full:]
    left = list(visited)
    ranges = []
    for x in range(count):
        size = -(-len(left) // (count - x))
        ranges.append(left[:size])
        left = left[size:]
    return [ranges[i % count][i // count] for i in range(len(visited))]


def _raster(axes: dict[str, Any], raster: Any, env: Mapping[str, int]) -> list[dict[str, int]]:
    form = raster if isinstance(raster, dict) else {"along": raster}
    (m, rows), (n, columns) = ((name, axis["length"]) for name, axis in axes.items())
    swizzle = number(form.get("swizzle", 1), env)
    along = form["along"]
    if along == "auto":
        along = m if columns > rows else n
    found = []
    across, length, other = (m, rows, columns) if along == n else (n, columns, rows)
    for band in range(0, length, swizzle):
        for a in range(other):
            for c in range(band, min(band + swizzle, length)):
                found.append({across: c, along: a})
    return [{m: p[m], n: p[n]} for p in found]


@functools.cache
def curve_of_square(kind: str, levels: int) -> list[tuple[int, int]]:
    """Every (row, column) of a square of 2^levels, in the order in which the curve visits them.

    Morton's is sorted by its interleaved bits. Hilbert's is drawn by a turtle, which begins to the right at (0, 0);
    where its first step would not be along the columns, rows and columns are exchanged.
    """
    side = 1 << levels
    if kind == "morton":
        every = itertools.product(range(side), range(side))
        return sorted(every, key=lambda p: [(c >> k) & 1 for k in reversed(range(levels)) for c in p])
    text = "A"
    for _ in range(levels):
        text = "".join({"A": "+BF-AFA-FB+", "B": "-AF+BFB+FA-"}.get(letter, letter) for letter in text)
    (row, column), (down, right) = (0, 0), (0, 1)
    points = [(0, 0)]
    for letter in text:
        if letter == "F":
            row, column = row + down, column + right
            points.append((abs(row), abs(column)))
        elif letter in "+-":
            down, right = (-right, down) if letter == "+" else (right, -down)
    return [(c, r) for r, c in points] if points[1:2] == [(1, 0)] else points


def _parts(parts: list[tuple[str, int]], splits: dict[str, tuple[int, bool]]) -> list[tuple[str, int]]:
    """Loops of an axis and how many positions lie under one value of each."""
    result: list[tuple[str, int]] = []
    for name, unit in parts:
        if name in splits:
            outer, inner = (f"{name}.outer", unit * splits[name][0]), (f"{name}.inner", unit)
            result += _parts([outer, inner], splits)
        else:
            result.append((name, unit))
    return result


def _runs(name: str, value: int, extent: int, splits: dict[str, tuple[int, bool]]) -> bool:
    """Whether an unpadded axis or part lets this value run; a padded one asks its outer part."""
    if name not in splits:
        return value < extent
    by, pad = splits[name]
    if not pad and value >= extent:
        return False
    return _runs(f"{name}.outer", value // by, -(-extent // by), splits) if pad else True


def _scheduled(axis: Mapping[str, Any], splits: dict[str, tuple[int, bool]]) -> int:
    name, unit = axis["parts"][0]
    count = 0
    while _runs(name, count // unit, -(-axis["length"] // unit), splits) and (unit == 1 or count < axis["length"]):
        count += 1
    return count


def _loops(axes: dict[str, Any], splits: dict[str, tuple[int, bool]], order: Mapping[str, Any]) -> list[dict[str, int]]:
    parts = {name: _parts(axis["parts"], splits) for name, axis in axes.items()}
    points: dict[str, list[tuple[int, dict[str, int]]]] = {}
    for name, axis in axes.items():
        points[name] = []
        for p in range(_scheduled(axis, splits)):
            values, rest = {}, p
            for part, unit in parts[name]:
                values[part], rest = rest // unit, rest % unit
            points[name].append((p, values))
    loops = order.get("loops") or [part for name in axes for part, _ in parts[name]]
    owner = {part: name for name in axes for part, _ in parts[name]}
    down = {part for part in owner for r in order.get("reverse", []) if part == r or part.startswith(r + ".")}
    serpentine = order.get("serpentine", {})
    result: list[dict[str, int]] = []
    walked: list[str] = []
    if "curve" in order:
        walked = [parts[name][0][0] for name in axes]
        loops = order.get("loops") or [part for name in axes for part, _ in parts[name][1:]]

    def run(depth: int, fixed: dict[str, int]) -> None:
        if depth == len(loops):
            point = {}
            for name in axes:
                point[name] = next(p for p, v in points[name] if all(fixed[k] == v[k] for k in v))
            result.append(point)
            return
        loop = loops[depth]
        under = [v for _, v in points[owner[loop]] if all(fixed[k] == v[k] for k in v if k in fixed)]
        values = sorted({v[loop] for v in under})
        if loop in down:
            values.reverse()
        if loop in serpentine and fixed[serpentine[loop]] % 2 == 1:
            values.reverse()
        for value in values:
            run(depth + 1, {**fixed, loop: value})

    if not walked:
        run(0, {})
        return result
    most = max((v[loop] for name, loop in zip(axes, walked, strict=True) for _, v in points[name]), default=0)
    there = [{v[loop] for _, v in points[name]} for name, loop in zip(axes, walked, strict=True)]
    for point in curve_of_square(order["curve"], most.bit_length()):
        if all(value in occurring for value, occurring in zip(point, there, strict=True)):
            run(0, dict(zip(walked, point, strict=True)))
    return result


def _outer(
    point: dict[str, int],
    scope: dict[str, Any],
    fuse: Mapping[str, list[str]],
    order: Mapping[str, Any],
    lengths: dict[str, int],
    env: Mapping[str, int],
) -> Point:
    """Rotate, take fused axes apart, turn their members."""
    rotate = order.get("rotate", {})

    def turned(name: str, position: int, length: int, *, reverse: bool) -> int:
        if reverse and name in order.get("reverse", []):
            position = length - 1 - position
        if name in rotate:
            position = (position + number(rotate[name], env)) % length
        return position

    result: dict[str, int] = {}
    for name, position in point.items():
        position = turned(name, position, lengths[name], reverse=False)
        if name not in fuse:
            result[name] = position
            continue
        members = fuse[name]
        padded = lengths[name]
        for m in members[1:]:
            padded = -(-padded // scope[m]["length"])
        for m in reversed(members[1:]):
            position, result[m] = divmod(position, scope[m]["length"])
        result[members[0]] = position
        for k, m in enumerate(members):
            result[m] = turned(m, result[m], padded if k == 0 else scope[m]["length"], reverse=True)
    return tuple(result[name] for name in scope)
