"""The named schedulers: each is a function from its arguments to the composed form.

A preset is declared by `@preset(axes)`; its parameters, their types and their defaults are those of the function.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypeAlias, get_args, get_type_hints

from sched_compiler.formula import Binary, Formula, Name, Number, constant, parse, to_text
from sched_compiler.source import Data, Path


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be: an integer of at least `minimum` or a formula; true or false; or a table."""

    minimum: int | None  # None: true or false, or a table
    dispatch: bool = False  # used by the preset's own dispatch alone, so not needed where the spec gives another
    table: bool = False
    plain: bool = False  # an integer, no formula

    def __str__(self) -> str:
        if self.table:
            return "a list of integers, a file, or the name of a table"
        if self.minimum is None:
            return "true or false"
        if self.plain:
            return f"an integer of at least {self.minimum}"
        grid = ", or grid" if self.dispatch else ""
        return f"an integer of at least {self.minimum}, or a formula{grid}"


#: A number of tiles.
Extent: TypeAlias = Annotated[int | str, Kind(0)]
#: The size of a group, block or cluster.
Positive: TypeAlias = Annotated[int | str, Kind(1)]
#: A number of workers; `grid` for as many as are launched.
Workers: TypeAlias = Annotated[int | str, Kind(1, dispatch=True)]
#: A number of CTAs or threads that is compiled in: used by the preset's own dispatch alone.
Fixed: TypeAlias = Annotated[int, Kind(1, dispatch=True, plain=True)]
Flag: TypeAlias = Annotated[bool, Kind(None)]
#: A list of integers, `{file: ...}`, `{length: ...}`, or the name of one of the spec's tables.
Listed: TypeAlias = Annotated["str | list[Data] | dict[str, Data]", Kind(None, table=True)]
#: The worker ranges of a list: used by the preset's own dispatch alone.
Ranges: TypeAlias = Annotated["str | list[Data] | dict[str, Data]", Kind(None, dispatch=True, table=True)]


class ArgumentError(Exception):
    """An argument that is of the right kind, but not possible: at the argument, or at item `item` of it."""

    def __init__(self, argument: str, message: str, item: int | None = None, mend: str | None = None) -> None:
        self.argument, self.message, self.item, self.mend = argument, message, item, mend
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    kind: Kind
    required: bool
    nullable: bool


@dataclass(frozen=True, slots=True)
class Expansion:
    """The composed form of a preset, and from which argument each part of it came.

    `composed` has the keys space, order and dispatch, where needed also params and expect; `origin` leads from paths
    in it to argument names.
    """

    composed: dict[str, Data]
    origin: dict[Path, str]


@dataclass(frozen=True)
class Preset:
    name: str
    axes: tuple[str, ...]
    function: Callable[..., Expansion]

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        hints = get_type_hints(self.function, include_extras=True)
        result: dict[str, Argument] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            required = parameter.default is inspect.Parameter.empty
            options = (hints[name], *get_args(hints[name]))  # `Workers | None` holds its kind one level down
            kind: Kind = next(option.__metadata__[0] for option in options if hasattr(option, "__metadata__"))
            result[name] = Argument(name, kind, required, type(None) in options)
        return result

    def expand(self, arguments: Mapping[str, Data]) -> Expansion:
        """The composed form for checked arguments; those left out have their defaults.

        A required number of workers may be left out where the caller replaces the dispatch.
        """
        unused: dict[str, Data] = {
            a.name: [0] if a.kind.table else 1 for a in self.arguments.values() if a.required and a.kind.dispatch
        }
        return self.function(**{**unused, **arguments})

    def usage(self) -> str:
        """The parameters as a user writes them, defaults included."""
        parts = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            default = json.dumps(parameter.default) if not self.arguments[name].required else ""
            parts.append(f"{name}={default}" if default else name)
        return f"{self.name}({', '.join(parts)})"


PRESETS: dict[str, Preset] = {}


def preset(*axes: str) -> Callable[[Callable[..., Expansion]], Callable[..., Expansion]]:
    """Register the function under its own name, as a preset over these axes."""

    def register(function: Callable[..., Expansion]) -> Callable[..., Expansion]:
        PRESETS[function.__name__] = Preset(function.__name__, axes, function)
        return function

    return register


@preset("m", "n")
def cluster_persistent_2d(
    num_m_tiles: Extent,
    num_n_tiles: Extent,
    num_clusters: Workers,
    l2_group_size: Positive = 8,
    cluster_m: Positive = 1,
    cluster_n: Positive = 1,
    serpentine: Flag = False,
) -> Expansion:
    """Clusters of tiles in bands of `l2_group_size` rows, or in square blocks walked in a serpentine.

    The cluster is a part of the order here: its tiles are single work items that follow one another, rows fastest.
    """
    clusters: dict[str, Data] = {}
    origin: dict[Path, str] = {("space", "m"): "num_m_tiles", ("space", "n"): "num_n_tiles"}
    outer, inner = {"m": "m", "n": "n"}, []
    for axis, size, argument in (("n", cluster_n, "cluster_n"), ("m", cluster_m, "cluster_m")):
        if not _is_one(size):
            clusters = {axis: {"by": size, "ragged": "pad"}, **clusters}
            outer[axis] = f"{axis}.outer"
            inner.append(f"{axis}.inner")
            origin[("order", "split", axis)] = origin[("order", "split", axis, "by")] = argument
    m, n, group = outer["m"], outer["n"], l2_group_size
    if serpentine:
        rows, columns = _ceil_div(num_m_tiles, cluster_m), _ceil_div(num_n_tiles, cluster_n)
        order = _serpentine(m, n, rows, columns, group, inner, clusters)
        origin |= {("order",): "l2_group_size", ("order", "split"): "l2_group_size"}
    else:
        order = {"split": {**clusters, m: group}, "loops": [f"{m}.outer", n, f"{m}.inner", *inner]}
        origin |= _from_split(m, "l2_group_size")
    space: dict[str, Data] = {"m": num_m_tiles, "n": num_n_tiles}
    return _static(space, order, num_clusters, "num_clusters", origin)


def _serpentine(
    m: str, n: str, rows: int | str, columns: int | str, size: int | str, inner: list[str], clusters: dict[str, Data]
) -> dict[str, Data]:
    """Full blocks of size x size, odd block columns upwards; then the right strip, then the bottom strip.

    `m` and `n` are the axes of clusters, `rows` and `columns` their extents. Pieces that are empty for every value
    of the parameters are left out; a piece that covers the whole space is the order itself.
    """
    full_rows, full_columns = _whole(rows, size), _whole(columns, size)
    blocks: dict[str, Data] = {
        "split": {m: size, n: size},
        "loops": [f"{n}.outer", f"{m}.outer", f"{m}.inner", f"{n}.inner", *inner],
        "serpentine": {f"{m}.outer": f"{n}.outer"},
    }
    right: dict[str, Data] = {"loops": [m, n, *inner]}
    bottom: dict[str, Data] = {"loops": [n, m, *inner]}
    pieces: list[Data] = []
    for piece, m_range, n_range in (
        (blocks, (0, full_rows), (0, full_columns)),
        (right, (0, rows), (full_columns, columns)),
        (bottom, (full_rows, rows), (0, full_columns)),
    ):
        if m_range[0] == m_range[1] or n_range[0] == n_range[1]:
            continue
        part: dict[str, Data] = {}
        if m_range != (0, rows):
            part[m] = list(m_range)
        if n_range != (0, columns):
            part[n] = list(n_range)
        if not part:
            split = piece.get("split", {})
            assert isinstance(split, dict)
            return {**piece, **({"split": {**clusters, **split}} if clusters or split else {})}
        pieces.append({"part": part, **piece})
    order: dict[str, Data] = {"split": clusters} if clusters else {}
    return {**order, "pieces": pieces} if pieces else {**order, "loops": [m, n, *inner]}


@preset("m", "n", "k")
def group_major_3d(
    m_tiles: Extent, n_tiles: Extent, k_tiles: Extent, group_rows: Positive, step: Workers = 1
) -> Expansion:
    """Bands of `group_rows` rows; in a band k slowest, then n, rows fastest. `step` workers."""
    space: dict[str, Data] = {"m": m_tiles, "n": n_tiles, "k": k_tiles}
    order: dict[str, Data] = {"split": {"m": group_rows}, "loops": ["m.outer", "k", "n", "m.inner"]}
    origin = {("space", axis): f"{axis}_tiles" for axis in space} | _from_split("m", "group_rows")
    return _static(space, order, step, "step", origin)


@preset("batch", "head", "m_block")
def flash_attention_linear(
    num_batches: Extent, num_heads: Extent, num_m_blocks: Extent, num_ctas: Workers
) -> Expansion:
    """Batches, their heads, their blocks of query rows, in this order."""
    space, origin = _attention(num_batches, num_heads, num_m_blocks)
    return _static(space, {"loops": ["batch", "head", "m_block"]}, num_ctas, "num_ctas", origin)


@preset("batch", "head", "m_block")
def flash_attention_lpt(
    num_batches: Extent,
    num_heads: Extent,
    num_m_blocks: Extent,
    l2_swizzle: Positive,
    num_ctas: Workers | None = None,
) -> Expansion:
    """Longest tile first: causal attention gives higher blocks more keys. `l2_swizzle` heads share the cache."""
    space, origin = _attention(num_batches, num_heads, num_m_blocks)
    order: dict[str, Data] = {
        "fuse": {"hb": ["batch", "head"]},
        "split": {"hb": l2_swizzle},
        "loops": ["hb.outer", "m_block", "hb.inner"],
        "reverse": ["m_block"],
    }
    origin |= _from_split("hb", "l2_swizzle")
    if num_ctas is None:
        return Expansion({"space": space, "order": order, "dispatch": {"single": {}}}, origin)
    return _static(space, order, num_ctas, "num_ctas", origin)


@preset("m", "n")
def rank_aware_group_major(
    m_clusters: Extent, n_clusters: Extent, group_size: Positive, world_size: Positive
) -> Expansion:
    """The rows of other ranks first, in bands of `group_size`, and this rank's own rows last.

    The run-time parameter `rank` is declared by the preset, from 0 to `world_size` - 1. Rank r owns the rows from
    r*m // world_size to below (r + 1)*m // world_size; where `world_size` does not divide m, the rows that come last
    may be fewer.
    """
    rows, world = parse(m_clusters), parse(world_size)
    ranks = constant(world)
    if ranks is None:
        message = "`world_size` must be an integer: the range of `rank` follows from it"
        raise ArgumentError("world_size", message)
    rank = Name("rank")
    own = Binary("//", rows, world)
    remote = _folded(Binary("-", rows, own))

    def bound(first: Formula) -> int | str:
        return _folded(Binary("//", Binary("*", first, rows), world))

    shift = bound(Binary("+", rank, Number(1)))
    others: dict[str, Data] = {
        "part": {"m": [0, remote]}, "split": {"m": group_size}, "loops": ["m.outer", "n", "m.inner"],
    }  # fmt: skip
    last: dict[str, Data] = {"part": {"m": [remote, m_clusters]}, "loops": ["n", "m"]}
    space: dict[str, Data] = {"m": m_clusters, "n": n_clusters}
    composed: dict[str, Data] = {
        "params": {"rank": {"min": 0, "max": ranks - 1}},
        "space": space,
        "order": {"rotate": {"m": shift}, "pieces": [others, last]},
        "expect": {"last": {"m": [bound(rank), shift]}},
        "dispatch": {"static": {"workers": "grid"}},
    }
    pieces: Path = ("order", "pieces", 0)
    origin: dict[Path, str] = {
        ("space", "m"): "m_clusters", ("space", "n"): "n_clusters", ("order", "rotate"): "world_size",
        ("order", "pieces"): "world_size", (*pieces, "split"): "group_size", ("expect",): "world_size",
        ("params", "rank"): "world_size",
    }  # fmt: skip
    return Expansion(composed, origin)


@preset("b", "h", "q")
def indexed_triple(
    b_indices: Listed,
    h_indices: Listed,
    q_indices: Listed,
    tiles_indptr: Ranges,
    num_b: Extent | None = None,
    num_h: Extent | None = None,
    num_q: Extent | None = None,
) -> Expansion:
    """The listed points (batch, head, query block), worker w those from `tiles_indptr[w]` to below the next.

    No point may stand twice. The space is as large as the points need, unless `num_b`, `num_h` and `num_q` say more;
    they are needed where the lists do not stand in the spec itself.
    """
    space: dict[str, Data] = {}
    points: dict[str, Data] = {}
    origin: dict[Path, str] = {("dispatch",): "tiles_indptr", ("dispatch", "table", "indptr"): "tiles_indptr"}
    axes = (("b", b_indices, num_b), ("h", h_indices, num_h), ("q", q_indices, num_q))
    for axis, listed, extent in axes:
        argument = f"{axis}_indices"
        space[axis] = _extent_of(argument, listed) if extent is None else extent
        points[axis] = listed
        origin[("space", axis)] = argument if extent is None else f"num_{axis}"
        origin[("order", "points", axis)] = argument
    order: dict[str, Data] = {"points": points, "subset": True}
    dispatch: dict[str, Data] = {"table": {"indptr": tiles_indptr}}
    return Expansion({"space": space, "order": order, "dispatch": dispatch}, origin)


@preset("m", "n")
def cluster_launch_control(
    num_m_tiles: Extent,
    num_n_tiles: Extent,
    l2_group_size: Positive,
    cta_group: Fixed = 1,
    finish_arrivals: Fixed | None = None,
) -> Expansion:
    """Bands of `l2_group_size` rows; a cluster takes its own tile, then those of clusters that it cancels.

    Each response of the hardware's queue is a CTA id, whose tile is id // `cta_group`: all CTAs of a group take the
    same tile. `finish_arrivals` follows from the consumers of the dispatch; where it is given, it must agree.
    """
    clc: dict[str, Data] = {"cta_group": cta_group}
    if finish_arrivals is not None:
        clc["finish_arrivals"] = finish_arrivals
    composed: dict[str, Data] = {
        "space": {"m": num_m_tiles, "n": num_n_tiles},
        "order": {"split": {"m": l2_group_size}, "loops": ["m.outer", "n", "m.inner"]},
        "dispatch": {"clc": clc},
    }
    origin: dict[Path, str] = {
        ("space", "m"): "num_m_tiles", ("space", "n"): "num_n_tiles", **_from_split("m", "l2_group_size"),
        ("dispatch",): "cta_group", **{("dispatch", "clc", name): name for name in clc},
    }  # fmt: skip
    return Expansion(composed, origin)


#: Coordinates are below this, so that extents are 64-bit integers.
_FARTHEST = 2**63 - 1


def _extent_of(argument: str, listed: str | list[Data] | dict[str, Data]) -> int:
    """How far an axis must reach to hold the listed coordinates."""
    if not isinstance(listed, list):
        name = f"num_{argument[0]}"
        message = f"how far {argument} goes is not known before it is read: `{name}` is needed"
        raise ArgumentError(argument, message, mend=f"add `{name}`, the extent of {argument[0]}")
    top = 0
    for k, value in enumerate(listed):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _FARTHEST:
            raise ArgumentError(argument, f"a coordinate is an integer of at least 0 and below {_FARTHEST}", k)
        top = max(top, value + 1)
    return top


def _attention(batches: int | str, heads: int | str, blocks: int | str) -> tuple[dict[str, Data], dict[Path, str]]:
    space: dict[str, Data] = {"batch": batches, "head": heads, "m_block": blocks}
    names = ("num_batches", "num_heads", "num_m_blocks")
    return space, {("space", axis): name for axis, name in zip(space, names, strict=True)}


def _static(
    space: dict[str, Data], order: dict[str, Data], workers: int | str, argument: str, origin: dict[Path, str]
) -> Expansion:
    composed: dict[str, Data] = {"space": space, "order": order, "dispatch": {"static": {"workers": workers}}}
    return Expansion(composed, {**origin, ("dispatch",): argument, ("dispatch", "static", "workers"): argument})


def _from_split(axis: str, argument: str) -> dict[Path, str]:
    return {("order", "split", axis): argument, ("order", "split", axis, "by"): argument}


def _is_one(value: int | str) -> bool:
    return constant(parse(value)) == 1


def _ceil_div(value: int | str, by: int | str) -> int | str:
    return value if _is_one(by) else _folded(Binary("ceil_div", parse(value), parse(by)))


def _whole(value: int | str, by: int | str) -> int | str:
    """The largest multiple of `by` that is not above `value`."""
    return value if _is_one(by) else _folded(Binary("*", Binary("//", parse(value), parse(by)), parse(by)))


def _folded(formula: Formula) -> int | str:
    value = constant(formula)
    return to_text(formula) if value is None else value
