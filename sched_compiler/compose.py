"""From a document's data to the composed form: presets are expanded, short forms written out.

Nothing here raises for a user's fault: it is added to `Faults`, and a harmless value stands in for the wrong one.
"""

from __future__ import annotations

import itertools
from typing import Any

from sched_compiler.checks import check_formula, declared_params
from sched_compiler.compose_kernel import composed_kernel
from sched_compiler.faults import Faults, close_match, described, translated
from sched_compiler.presets import PRESETS, Argument, ArgumentError, Preset
from sched_compiler.source import Data, Path
from sched_compiler.spec import Dispatch, TableSource

_MODES = "single, static, table, dynamic or clc"


def composed(data: dict[str, Data], faults: Faults) -> dict[str, Any]:
    """The composed form, still unchecked. Where a fault leaves no sensible value, a harmless one stands in for it."""
    result: dict[str, Any] = {key: value for key, value in data.items() if key not in ("uses", "with")}
    for key in ("params", "tables", "space", "order", "map", "cluster", "dispatch", "expect"):
        if key in data and data[key] is None:
            message = f"`{key}` is empty"
            faults.add("E012", (key,), message, found="nothing", expected="a mapping", mend="remove it, or fill it in")
            result[key] = {"map": {}, "cluster": {}}.get(key)
            if key in ("params", "tables", "space", "order"):
                result[key] = {}
            if key == "dispatch":
                result[key] = {"single": {}}
    if "uses" in data:
        _use_preset(data, result, faults)
    elif "with" in data:
        message = "`with` gives arguments to a preset, but no preset is named"
        faults.add("E011", ("with",), message, expected="`uses`", mend="name the preset: `uses: ...`", key=True)
    if "map" in data and "order" in data and "uses" not in data:
        _exclude(("map",), ("order",), faults, "the formulas of `map` are the order")
    if isinstance(result.get("order"), dict):
        result["order"] = _order(result["order"], ("order",), faults)
    if isinstance(cluster := result.get("cluster"), dict) and data.get("cluster") is not None:
        faults.origin[("cluster", "shape")] = ("cluster",)
        result["cluster"] = {
            "shape": {key: value for key, value in cluster.items() if key != "ragged"},
            **({"ragged": cluster["ragged"]} if "ragged" in cluster else {}),
        }
    if "dispatch" in result:
        result["dispatch"] = _dispatch(result["dispatch"], faults)
    _tables(result, faults)
    if isinstance(expect := result.get("expect"), dict) and isinstance(last := expect.get("last"), dict):
        result["expect"] = {**expect, "last": _ranges(last)}
    if "kernel" in result:
        result["kernel"] = composed_kernel(result["kernel"], faults)
    if result.get("order") is None and result.get("map") is None and isinstance(result.get("space"), dict):
        result["order"] = {"loops": list(result["space"])}
    return result


def _exclude(first: Path, second: Path, faults: Faults, reason: str) -> None:
    """Two keys stand beside one another that must not: report the later of them."""
    spans = faults.document.key_spans
    early, late = sorted((first, second), key=lambda path: (spans[path].line, spans[path].column))
    mend = f"remove `{early[-1]}` or `{late[-1]}`"
    faults.add("E014", late, f"`{late[-1]}` cannot stand beside `{early[-1]}`: {reason}", mend=mend, key=True)


def _use_preset(data: dict[str, Data], result: dict[str, Any], faults: Faults) -> None:
    """Put the preset's composed form into `result`, or a stand-in where its arguments are wrong."""
    for key in ("space", "order", "map", "cluster", "expect"):
        if key in data:
            message = f"`{key}` cannot stand beside `uses`: the preset says it"
            advice = f"remove `{key}`, or remove `uses` and `with` (`schedc expand` prints the composed form)"
            faults.add("E014", (key,), message, mend=advice, key=True)
            result.pop(key, None)
    own_dispatch = "dispatch" not in data
    result["space"], result["order"] = {}, {}
    if own_dispatch:
        result["dispatch"] = {"single": {}}
    uses = data["uses"]
    if not isinstance(uses, str):
        expected = f"one of: {', '.join(PRESETS)}"
        faults.add("E012", ("uses",), "`uses` must name a preset", found=described(uses), expected=expected)
        return
    preset = PRESETS.get(uses)
    if preset is None:
        expected, found = f"one of: {', '.join(PRESETS)}", described(uses)
        mend = close_match(uses, PRESETS)
        faults.add("E030", ("uses",), "no preset has this name", found=found, expected=expected, mend=mend)
        return
    arguments = _arguments(preset, data.get("with", {}), faults, own_dispatch, declared_params(data))
    if arguments is None:
        return
    try:
        expansion = preset.expand(arguments)
    except ArgumentError as e:
        path: Path = ("with", e.argument) if e.item is None else ("with", e.argument, e.item)
        faults.add("E031", path, e.message, expected=preset.usage(), mend=e.mend)
        return
    result["space"], result["order"] = expansion.composed["space"], expansion.composed["order"]
    if "expect" in expansion.composed:
        result["expect"] = expansion.composed["expect"]
    own_params = expansion.composed.get("params", {})
    if own_params and isinstance(declared := data.get("params", {}), dict):
        assert isinstance(own_params, dict)
        result["params"] = {**own_params, **declared}
    if own_dispatch:
        result["dispatch"] = expansion.composed["dispatch"]
    given = data.get("params")
    redeclared = {("params", name) for name in given} if isinstance(given, dict) else set()
    for path, argument in expansion.origin.items():
        if (own_dispatch or path[0] != "dispatch") and path not in redeclared:
            faults.origin[path] = ("with", argument) if argument in arguments else ("uses",)
    for path in (("space",), ("order",), *([("dispatch",)] if own_dispatch else [])):
        faults.origin.setdefault(path, ("uses",))


def _arguments(
    preset: Preset, given: Data, faults: Faults, own_dispatch: bool, params: set[str] | None
) -> dict[str, Data] | None:
    """The arguments, or None where one is wrong."""
    before = len(faults.found)
    if given is None and ("with",) not in faults.document.spans:
        given = {}
    if not isinstance(given, dict):
        faults.add("E031", ("with",), "`with` must be a mapping", found=described(given), expected=preset.usage())
        return None
    for name, value in given.items():
        argument = preset.arguments.get(name)
        if argument is None:
            message, mend = f"{preset.name} has no argument `{name}`", close_match(name, preset.arguments)
            faults.add("E031", ("with", name), message, expected=preset.usage(), mend=mend, key=True)
        else:
            _argument(argument, value, ("with", name), faults, params, preset)
    missing = [
        argument.name
        for argument in preset.arguments.values()
        if argument.required and argument.name not in given and (own_dispatch or not argument.kind.dispatch)
    ]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        message = f"{preset.name} needs {listed}"
        mend = f"add {listed} to `with`"
        place: Path = ("with",) if ("with",) in faults.document.spans else ("uses",)
        faults.add("E031", place, message, expected=preset.usage(), mend=mend, key=place == ("with",))
    return given if len(faults.found) == before else None


def _argument(
    argument: Argument, value: Data, path: Path, faults: Faults, params: set[str] | None, preset: Preset
) -> None:
    kind = argument.kind
    if (value is None and argument.nullable) or (kind.minimum is None and isinstance(value, bool)):
        return
    if kind.table:
        if not isinstance(value, str | list | dict):
            message = f"`{argument.name}` must be {kind}"
            faults.add("E031", path, message, found=described(value), expected=preset.usage())
        return
    if kind.dispatch and not kind.plain and value == "grid":  # as many as are launched, as in a spec's own dispatch
        return
    if kind.minimum is not None and isinstance(value, str) and not kind.plain:
        check_formula(value, path, faults, params, with_index=False)
        return
    if kind.minimum is None or isinstance(value, bool) or not isinstance(value, int) or value < kind.minimum:
        message = f"`{argument.name}` must be {kind}{' (or null)' if argument.nullable else ''}"
        faults.add("E031", path, message, found=described(value), expected=preset.usage())


#: The ways to walk the axes, of which an order has one, and what each is.
_WALKS = {"loops": "a list", "pieces": "a list", "curve": "hilbert or morton", "raster": "a mapping"}
_REASONS = {
    "pieces": "the pieces are walked one after another",
    "curve": "the curve walks the axes",
    "raster": "the raster walks the axes",
}


def _order(order: dict[str, Any], path: Path, faults: Faults) -> dict[str, Any]:
    """Write out the short forms of an order and of its pieces."""
    result = dict(order)
    for key, expected in (*_WALKS.items(), ("partitions", "a number or a mapping")):
        if key in result and result[key] is None:
            faults.add("E012", (*path, key), f"`{key}` is empty", found="nothing", expected=expected)
            del result[key]
    for first, second in itertools.combinations([key for key in _WALKS if key in order], 2):
        if {first, second} != {"loops", "curve"}:  # loops may walk what a curve leaves
            _exclude((*path, first), (*path, second), faults, _REASONS[first if first == "pieces" else second])
    if isinstance(raster := result.get("raster"), str):
        result["raster"] = {"along": raster}
    if isinstance(partitions := result.get("partitions"), int | str):
        result["partitions"] = {"count": partitions}
    if "points" in order and "pieces" in path:
        message, mend = "a piece cannot list points", "list all points of the space in `order`"
        faults.add("E014", (*path, "points"), message, mend=mend, key=True)
        del result["points"]
    for key in result if "points" in result else ():
        if key not in ("points", "subset"):
            _exclude((*path, "points"), (*path, key), faults, "the points are the order")
    if isinstance(split := result.get("split"), dict):
        result["split"] = {a: by if isinstance(by, dict | list) else {"by": by} for a, by in split.items()}
    if isinstance(pieces := result.get("pieces"), list):
        result["pieces"] = [
            _order(piece, (*path, "pieces", n), faults) if isinstance(piece, dict) else piece
            for n, piece in enumerate(pieces)
        ]
    if isinstance(part := result.get("part"), dict):
        result["part"] = _ranges(part)
    if result.get("subset") is False:
        del result["subset"]
    return result


def _ranges(part: dict[str, Any]) -> dict[str, Any]:
    """Pairs `[from, to]` as tuples; what is no pair is left for the check of types."""
    return {a: tuple(ends) if isinstance(ends, list) and len(ends) == 2 else ends for a, ends in part.items()}


def _tables(result: dict[str, Any], faults: Faults) -> None:
    """Write out the short forms of tables: every table has a name, and where one is used its name stands."""
    given = result.get("tables")
    tables: dict[str, Any] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        tables[name] = _table(value, ("tables", name), ("tables", name), faults)
    taken = {*tables, *(result["params"] if isinstance(result.get("params"), dict) else ())}

    def named(value: Any, name: str, path: Path) -> Any:
        if not isinstance(value, dict | list):
            return value
        while name in taken:
            name += "_"
        taken.add(name)
        tables[name] = _table(value, path, ("tables", name), faults)
        return name

    order = result.get("order")
    if isinstance(order, dict) and isinstance(points := order.get("points"), dict):
        order["points"] = {a: named(v, f"{a}_indices", ("order", "points", a)) for a, v in points.items()}
    dispatch = result.get("dispatch")
    if isinstance(dispatch, dict) and isinstance(mode := dispatch.get("table"), dict):
        both = {key: named(mode[key], key, ("dispatch", "table", key)) for key in ("indptr", "indices") if key in mode}
        dispatch["table"] = {**mode, **both}
        if mode.get("subset") is False:
            del dispatch["table"]["subset"]
    if tables or given:
        result["tables"] = tables if isinstance(given, dict | None) else given


def _table(value: Any, path: Path, place: Path, faults: Faults) -> Any:
    """The table that stands at `path`, for `place` in the composed form."""
    path = translated(path, faults.origin)
    faults.origin[place] = path
    if isinstance(value, list):
        faults.origin[*place, "values"] = path
        return {"values": value}
    if isinstance(value, dict) and sum(key in value for key in TableSource.model_fields) != 1:
        expected = "a list of integers, `{file: ...}`, or `{length: ...}`"
        faults.add("E011", path, "a table is a list, a file, or a length", found="a mapping", expected=expected)
        return {"values": []}
    if value is None:
        faults.add(
            "E012", path, "the table is empty", found="nothing", expected="a list; `[]` for one without elements"
        )
        return {"values": []}
    return value


def _dispatch(dispatch: Data, faults: Faults) -> Any:
    """Write out the short forms of a dispatch; exactly one mode is left."""
    if isinstance(dispatch, str):
        if dispatch not in Dispatch.model_fields:
            expected, mend = _MODES, close_match(dispatch, Dispatch.model_fields)
            found = described(dispatch)
            faults.add("E012", ("dispatch",), "there is no such dispatch", found=found, expected=expected, mend=mend)
            return {"single": {}}
        return {dispatch: {}}
    if not isinstance(dispatch, dict):
        return dispatch
    if not dispatch:
        faults.add("E011", ("dispatch",), "a dispatch has one mode", found="none", expected=_MODES)
        return {"single": {}}
    modes = [mode for mode in dispatch if mode in Dispatch.model_fields]
    for mode in modes[1:]:
        reason = "a dispatch has one mode"
        _exclude(("dispatch", modes[0]), ("dispatch", mode), faults, reason)
    rest = {mode: {} if value is None else value for mode, value in dispatch.items()}
    if isinstance(clc := rest.get("clc"), dict):
        rest["clc"] = _clc(clc, faults)
    return rest if modes else {"single": {}, **rest}


def _clc(clc: dict[str, Data], faults: Faults) -> dict[str, Any]:
    """Write out the long form of a consumer: its number of threads; what is null has its default."""
    result: dict[str, Any] = {key: value for key, value in clc.items() if value is not None}
    if isinstance(consumers := result.get("consumers"), dict):
        written: dict[str, Any] = {}
        for name, value in consumers.items():
            written[name] = value
            if isinstance(value, dict) and list(value) == ["threads"]:
                path: Path = ("dispatch", "clc", "consumers", name)
                faults.origin[path] = translated((*path, "threads"), faults.origin)
                written[name] = value["threads"]
        result["consumers"] = written
    return result
