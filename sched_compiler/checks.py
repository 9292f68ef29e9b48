"""What is checked of a composed form before anything is built from it: keys and types, names, formulas.

Nothing here raises for a user's fault: it is added to `Faults`, and the rest is looked at all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from pydantic import ValidationError

from sched_compiler.check_kernel import check_kernel
from sched_compiler.faults import Faults, close_match, described
from sched_compiler.formula import RESERVED, FormulaError, misplaced, names, parse
from sched_compiler.protocol import MOST_CONSUMERS, MOST_CTAS, MOST_DEPTH, MOST_THREADS, WARP
from sched_compiler.source import Data, Path
from sched_compiler.spec import (
    Cluster,
    ClusterLaunchControl,
    Dispatch,
    Dynamic,
    Expect,
    Kernel,
    Model,
    Order,
    Param,
    Partitions,
    Piece,
    Raster,
    Single,
    Spec,
    Split,
    Static,
    Table,
    TableSource,
)

MAX_AXES = 8
MAX_PARAMS = 16
MAX_TABLES = 16
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_EXPECTED = {
    "formula_type": "an integer or a formula",
    "int_type": "an integer",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a pair [from, to]",
}


_BLOCK = "a number of threads, or a list of those along x, y and z"


def validated(form: dict[str, Any], faults: Faults) -> Spec | None:
    """The spec, if keys and types are right."""
    try:
        return Spec.model_validate(form)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=True):
            place = item["loc"]
            if place[:1] == ("kernel",):  # then comes which of its two forms it has
                place = ("kernel", *place[2:])
            _type_fault(item["type"], place, item["input"], item.get("ctx", {}), faults)
        return None


def _type_fault(kind: str, path: Path, value: Any, context: Mapping[str, Any], faults: Faults) -> None:
    name = f"`{path[-1]}`" if isinstance(path[-1], str) else f"item {path[-1] + 1} of `{path[-2]}`"
    if kind == "extra_forbidden":
        allowed = _allowed(path[:-1])
        expected, mend = f"one of: {', '.join(allowed)}" if allowed else "nothing", close_match(str(path[-1]), allowed)
        message = f"the key {name} is unknown here"
        faults.add("E010", path, message, found=name, expected=expected, mend=mend, key=True)
    elif kind == "missing":
        message = f"{name} is missing"
        expected = "`space` (or `uses`, to name a preset)" if path == ("space",) else name
        mend = "add `dispatch: single`, or `dispatch: {static: {workers: 66}}`" if path == ("dispatch",) else None
        faults.add("E011", path[:-1], message, expected=expected, mend=mend)
    else:
        expected = (
            _BLOCK
            if path == ("kernel", "block")
            else _EXPECTED.get(kind) or str(context.get("expected", "another value")).replace("'", "")
        )
        mend = _type_mend(kind, path, value, expected)
        if path[:2] == ("kernel", "defines") and kind == "formula_type":
            expected, mend = "an integer or text", "quote it" if isinstance(value, bool | float) else None
        if path in (("version",), ("name",)) and kind != "literal_error":
            mend = "quote it" if path == ("name",) and isinstance(value, int | float) else mend
        faults.add("E012", path, f"{name} must be {expected}", found=described(value), expected=expected, mend=mend)


def _type_mend(kind: str, path: Path, value: Any, expected: str) -> str | None:
    scalar = isinstance(value, int | str) and not isinstance(value, bool)
    if path == ("version",):
        return "write `version: 1`"
    if kind == "list_type" and scalar:
        return f"write `[{value}]`"
    if kind == "literal_error" and isinstance(value, str):
        return close_match(value, expected.split(" or "))
    if kind == "model_type" and scalar and path[:1] == ("params",):
        return f"give its range: `{path[-1]}: {{min: {value}, max: {value}}}`"
    if path == ("dispatch", "static") and scalar:
        return f"write `static: {{workers: {value}}}`"
    if kind == "int_type" and path[:3] == ("dispatch", "clc", "consumers"):
        return "write its number of threads: 1, or whole warps"
    if kind == "int_type" and path[:1] == ("cluster",) and isinstance(value, str):
        return "the shape of a cluster is fixed when compiling: write integers"
    return None


def _allowed(path: Path) -> list[str]:
    """The keys that a mapping at `path` may have."""
    model: type[Model] = Spec
    if path == ():
        return ["version", "name", "params", "uses", "with", *list(Spec.model_fields)[3:]]
    if path[0] == "params":
        model = Param
    elif path[0] == "cluster":
        model = Cluster
    elif path[0] == "tables":
        model = TableSource
    elif path[0] == "expect":
        model = Expect
    elif path[0] == "kernel":
        model = Kernel
    elif path[0] == "dispatch":
        modes: dict[str, type[Model]] = {"single": Single, "static": Static, "table": Table, "dynamic": Dynamic}
        modes["clc"] = ClusterLaunchControl
        model = modes.get(str(path[-1]), Dispatch)
    elif path[0] == "order":
        model = Order
        if len(path) > 1:
            named: dict[str, type[Model]] = {"raster": Raster, "partitions": Partitions}
            model = Split if path[-2] == "split" else named.get(str(path[-1]), Piece)
    return [info.alias or name for name, info in model.model_fields.items()]


def check_names(data: dict[str, Data], form: Mapping[str, Any], faults: Faults) -> None:
    """Names of the spec, its parameters and axes: their form, their number, and that none stands for two things."""
    version = data.get("version")
    if version == 1 and type(version) is not int:  # true and 1.0 are equal to 1, but they are not it
        message, mend = "`version` must be 1", "write `version: 1`"
        faults.add("E012", ("version",), message, found=described(version), expected="1", mend=mend)
    name = data.get("name")
    if isinstance(name, str) and not NAME.fullmatch(name):
        expected = "a letter, then letters, digits, `_`, `.` or `-`, 64 characters at most"
        faults.add("E013", ("name",), "this is not a name", found=described(name), expected=expected)
    params = _mapping(data.get("params"))
    preset = "uses" in data
    for number, (param, value) in enumerate(params.items()):
        _identifier(("params", param), "a parameter", faults)
        reserved = "it is a word of the formula language" if param in RESERVED else None
        if param == "grid":
            reserved = "it is a word of `workers`"
        if param == "i" and "map" in data:
            reserved = "in `map` it is the work index"
        if reserved:
            message = f"no parameter can be called `{param}`: {reserved}"
            faults.add("E013", ("params", param), message, mend="choose another name", key=True)
        if number == MAX_PARAMS:
            message, expected = "there are too many parameters", f"at most {MAX_PARAMS}"
            faults.add("E012", ("params", param), message, found=str(len(params)), expected=expected, key=True)
        bounds = _mapping(value)
        low, high = bounds.get("min"), bounds.get("max")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            message = f"the range of `{param}` is empty: min is above max"
            faults.add("E012", ("params", param, "min"), message, found=str(low), expected=f"at most {high}")
    _check_tables(form, params, faults)
    _check_ring(_mapping(_mapping(form.get("dispatch")).get("clc")), faults)
    check_kernel(_mapping(form.get("kernel")), params, faults)
    if not preset:
        _check_axes(data, params, faults)
        _check_fused(_mapping(form.get("order")), ("order",), params, faults)
    shape = _mapping(data.get("cluster"))
    if ("cluster",) in faults.document.spans and not preset and isinstance(data["cluster"], dict):
        for axis, size in shape.items():
            if axis != "ragged" and isinstance(size, int) and not isinstance(size, bool) and size < 1:
                message = f"the cluster's extent along `{axis}` must be at least 1"
                faults.add("E012", ("cluster", axis), message, found=str(size), expected="an integer of at least 1")
        if not any(axis != "ragged" for axis in shape):
            message = "a cluster has an extent along an axis"
            faults.add("E012", ("cluster",), message, expected="an extent for an axis, as `{m: 2}`")


def _check_tables(form: Mapping[str, Any], params: Mapping[str, Data], faults: Faults) -> None:
    """Names of tables, and that what is used as one is one."""
    tables = _mapping(form.get("tables"))
    for number, name in enumerate(tables):
        path: Path = ("tables", name)
        _identifier(path, "a table", faults)
        if name in params or name in RESERVED:
            meaning = "a parameter is" if name in params else "it is a word of the formula language"
            message = f"no table can be called `{name}`: {meaning}"
            faults.add("E013", path, message, mend="choose another name", key=True)
        if number == MAX_TABLES:
            message, expected = "there are too many tables", f"at most {MAX_TABLES}"
            faults.add("E012", path, message, found=str(len(tables)), expected=expected, key=True)
    order = _mapping(form.get("order"))
    if "subset" in order and "points" not in order:
        message = "`subset` is said of `points`, which are not here"
        faults.add("E014", ("order", "subset"), message, mend="remove it", key=True)
    expect = form.get("expect")
    if isinstance(expect, dict) and expect.get("last") == {}:
        faults.add("E012", ("expect", "last"), "no tiles are expected last", expected="a range of an axis")
    points = _mapping(order.get("points"))
    ranges = _mapping(_mapping(form.get("dispatch")).get("table"))
    uses: list[tuple[Path, Any]] = [(("order", "points", axis), name) for axis, name in points.items()]
    uses += [(("dispatch", "table", key), ranges[key]) for key in ("indptr", "indices") if key in ranges]
    for path, name in uses:
        if isinstance(name, str) and name not in tables:
            expected = f"a list, or one of: {', '.join(tables)}" if tables else "a list, or the name of a table"
            mend = close_match(name, tables) or f"declare it: `tables: {{{name}: [...]}}`"
            faults.add("E047", path, "no table has this name", found=name, expected=expected, mend=mend)


def _check_ring(clc: Mapping[str, Any], faults: Faults) -> None:
    """Names and numbers of a ring's consumers, its depth and its group."""
    path: Path = ("dispatch", "clc")
    for key, most in (("depth", MOST_DEPTH), ("cta_group", MOST_CTAS)):
        value = clc.get(key)
        if _is_integer(value) and not 1 <= value <= most:
            faults.add("E012", (*path, key), f"`{key}` is from 1 to {most}", found=str(value), expected=f"1 to {most}")
    if "consumers" not in clc:
        return
    consumers, path = _mapping(clc["consumers"]), (*path, "consumers")
    if clc["consumers"] == {} or len(consumers) > MOST_CONSUMERS:
        message, expected = f"a ring has 1 to {MOST_CONSUMERS} consumers", "`{name: threads, ...}`"
        faults.add("E012", path, message, found=str(len(consumers)), expected=expected)
    warps = 1  # the scheduler's
    for name, threads in consumers.items():
        _identifier((*path, name), "a consumer", faults)
        if not _is_integer(threads):
            continue
        if threads != 1 and (threads < 1 or threads % WARP):
            message, whole = f"`{name}` has neither one thread nor whole warps", -(-max(threads, 1) // WARP) * WARP
            expected = f"1, or a multiple of {WARP}"
            faults.add("E012", (*path, name), message, found=str(threads), expected=expected, mend=f"write {whole}")
        warps += -(-threads // WARP)
    if warps * WARP > MOST_THREADS:
        message = "a block has no room for these consumers, each with warps of its own, and a warp for the scheduler"
        expected = f"at most {MOST_THREADS}"
        faults.add("E052", path, message, found=f"{warps * WARP} threads", expected=expected, mend="use fewer threads")


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_axes(data: dict[str, Data], params: Mapping[str, Data], faults: Faults) -> None:
    space = data.get("space")
    if space == {}:
        faults.add("E012", ("space",), "a space has at least one axis", found="none", expected="`{axis: extent, ...}`")
    for number, axis in enumerate(_mapping(space)):
        path: Path = ("space", axis)
        _identifier(path, "an axis", faults)
        if number == MAX_AXES:
            message, expected = "there are too many axes", f"at most {MAX_AXES}"
            faults.add("E012", path, message, found=str(len(_mapping(space))), expected=expected, key=True)


def _check_fused(order: Mapping[str, Any], path: Path, params: Mapping[str, Data], faults: Faults) -> None:
    for axis in _mapping(order.get("fuse")):
        where = (*path, "fuse", axis)
        _identifier(where, "a fused axis", faults)
    pieces = order.get("pieces")
    for number, piece in enumerate(pieces if isinstance(pieces, list) else []):
        _check_fused(_mapping(piece), (*path, "pieces", number), params, faults)


def _identifier(path: Path, what: str, faults: Faults) -> None:
    name = str(path[-1])
    if not IDENTIFIER.fullmatch(name):
        expected = "a letter or `_`, then letters, digits or `_`, 64 characters at most"
        message = f"{what} cannot have this name"
        faults.add("E013", path, message, found=described(name), expected=expected, key=True)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# -- formulas -------------------------------------------------------------------------------------------------------


def declared_params(data: Mapping[str, Any]) -> set[str] | None:
    """The parameters' names; None where they cannot be told, so that nothing should be said about undeclared ones."""
    params = data.get("params", {})
    return set(params) if isinstance(params, dict) else None


def check_formulas(data: dict[str, Data], form: Mapping[str, Any], faults: Faults) -> None:
    """Every formula can be parsed, uses declared names alone, and has numbers and conditions in their places."""
    params = declared_params(form)
    for path, value in _formulas(form):
        if isinstance(value, str) and not (value == "grid" and path[-1] == "workers"):
            check_formula(
                value,
                path,
                faults,
                params,
                with_index=path[0] == "map",
                axes=_mapping(form.get("space")),
                tables=_mapping(form.get("tables")),
            )


def _formulas(form: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every place of the composed form that can hold a formula, with what stands there."""
    for key in ("space", "map"):
        for name, value in _mapping(form.get(key)).items():
            yield (key, name), value
    yield from _order_formulas(_mapping(form.get("order")), ("order",))
    for mode in ("static", "dynamic"):
        given = _mapping(_mapping(form.get("dispatch")).get(mode))
        yield ("dispatch", mode, "workers"), given.get("workers")
    for name, table in _mapping(form.get("tables")).items():
        yield ("tables", name, "length"), _mapping(table).get("length")
    yield ("kernel", "shared_bytes"), _mapping(form.get("kernel")).get("shared_bytes")
    yield from _range_formulas(_mapping(_mapping(form.get("expect")).get("last")), ("expect", "last"))


def _order_formulas(order: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for axis, split in _mapping(order.get("split")).items():
        yield (*path, "split", axis, "by"), _mapping(split).get("by")
    for axis, value in _mapping(order.get("rotate")).items():
        yield (*path, "rotate", axis), value
    for key, field in (("raster", "swizzle"), ("partitions", "count"), ("partitions", "chunk")):
        yield (*path, key, field), _mapping(order.get(key)).get(field)
    yield from _range_formulas(_mapping(order.get("part")), (*path, "part"))
    pieces = order.get("pieces")
    for number, piece in enumerate(pieces if isinstance(pieces, list | tuple) else []):
        yield from _order_formulas(_mapping(piece), (*path, "pieces", number))


def _range_formulas(ranges: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for axis, ends in ranges.items():
        for number, end in enumerate(ends if isinstance(ends, tuple) else ()):
            yield (*path, axis, number), end


def check_formula(
    text: str,
    path: Path,
    faults: Faults,
    params: set[str] | None,
    *,
    with_index: bool,
    axes: Iterable[str] = (),
    tables: Iterable[str] = (),
) -> None:
    try:
        formula = parse(text)
    except FormulaError as error:
        message = f"this formula cannot be parsed: {error.message}"
        found, expected, mend = error.found, error.expected, error.mend
        faults.add("E020", path, message, found=found, expected=expected, mend=mend, column=error.column)
        return
    for node, condition in misplaced(formula):
        needed, given = ("a condition", "a number") if condition else ("a number", "a condition")
        mend = "compare it with 0" if condition else "write `1 if condition else 0`"
        message = f"{needed} is needed here"
        faults.add("E024", path, message, found=given, expected=needed, mend=mend, column=node.column)
    if params is None:
        return
    known = params | {"i"} if with_index else params
    for place in sorted(names(formula) - {n for n in names(formula) if n.name in known}, key=lambda n: n.column):
        mend = close_match(place.name, known) or f"declare it: `params: {{{place.name}: {{min: 1, max: 65536}}}}`"
        if place.name in tables:
            mend = "a formula is over parameters; it cannot read a table"
        elif place.name in axes:
            mend = "a formula is over parameters; it cannot use an axis"
        elif place.name == "grid":
            mend = "`grid` stands alone, for a number of workers"
        elif place.name == "i":
            mend = "the work index `i` is known in `map` alone"
        expected = f"one of: {', '.join(sorted(known))}" if known else "an integer: no parameters are declared"
        message = f"`{place.name}` is not declared"
        faults.add("E021", path, message, found=place.name, expected=expected, mend=mend, column=place.column)
