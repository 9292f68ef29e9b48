"""The composed form as text: YAML for people, canonical JSON for cache keys."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from sched_compiler.formula import parse, to_text
from sched_compiler.spec import Dispatch, Kernel, Order, Piece, Spec, TableSource

_WIDTH = 100
# Text that every YAML reader takes for the same text without quotes, also between braces.
_PLAIN = re.compile(r"(?:[A-Za-z_(]|[0-9]+ )[A-Za-z0-9_. +*/%()<>=!-]*(?<! )")
_NOT_TEXT = frozenset(("null", "true", "false", "nan", "inf"))


def to_yaml(spec: Spec) -> str:
    """The spec as YAML in the language's short forms; loading it gives an equal spec."""
    form: dict[str, Any] = {"version": spec.version, "name": spec.name}
    if spec.params:
        form["params"] = {
            name: {"min": p.min, "max": p.max, **({} if p.source is None else {"from": p.source})}
            for name, p in spec.params.items()
        }
    if spec.tables:
        form["tables"] = {name: _table(table) for name, table in spec.tables.items()}
    form["space"] = dict(spec.space)
    if spec.order is not None:
        form["order"] = _order(spec.order)
    if spec.map is not None:
        form["map"] = dict(spec.map)
    if spec.cluster is not None:
        ragged = {} if spec.cluster.ragged == "pad" else {"ragged": spec.cluster.ragged}
        form["cluster"] = {**spec.cluster.shape, **ragged}
    if spec.expect is not None:
        form["expect"] = {"last": {axis: list(ends) for axis, ends in spec.expect.last.items()}}
    form["dispatch"] = {
        mode: {key: value for key, value in given.model_dump().items() if value is not None}
        for mode in Dispatch.model_fields
        if (given := getattr(spec.dispatch, mode)) is not None
    }
    if isinstance(spec.kernel, Kernel):
        form["kernel"] = _kernel(spec.kernel)
    lines: list[str] = []
    for key, value in form.items():
        # The order is what a reader looks at: a line for each of its steps.
        lines += _lines(key, value, "", block=key in ("order", "map"))
    return "\n".join(lines) + "\n"


def _kernel(kernel: Kernel) -> dict[str, Any]:
    """Only what differs from the defaults; arguments as a list, whose order is that of the kernel's parameters."""
    fields = ((name, getattr(kernel, name), info.default) for name, info in Kernel.model_fields.items())
    form: dict[str, Any] = {name: value for name, value, default in fields if value != default}
    form["block"] = kernel.block[0] if kernel.block[1:] == (1, 1) else list(kernel.block)
    form["arguments"] = [{name: kind} for name, kind in kernel.arguments.items()]
    return form


def _table(table: TableSource) -> Any:
    if table.values is not None:
        return list(table.values)
    return {"file": table.file} if table.file is not None else {"length": table.length}


def _order(order: Order) -> dict[str, Any]:
    """Only what differs from the defaults, in the order in which it is applied."""
    result: dict[str, Any] = {}
    if isinstance(order, Piece) and order.part:
        result["part"] = {axis: list(ends) for axis, ends in order.part.items()}
    if order.fuse:
        result["fuse"] = order.fuse
    if order.split:
        result["split"] = {
            axis: split.by if split.ragged == "short" else {"by": split.by, "ragged": split.ragged}
            for axis, split in order.split.items()
        }
    if order.pieces is not None:
        result["pieces"] = [_order(piece) for piece in order.pieces]
    for key in ("curve", "loops", "points", "subset"):
        if (value := getattr(order, key)) is not None:
            result[key] = value
    if order.raster is not None:
        result["raster"] = {"along": order.raster.along, "swizzle": order.raster.swizzle}
    for key in ("reverse", "serpentine", "rotate"):
        if value := getattr(order, key):
            result[key] = value
    if (partitions := order.partitions) is not None:
        chunked = {"count": partitions.count, "chunk": partitions.chunk}
        result["partitions"] = partitions.count if partitions.chunk is None else chunked
    return result


def _lines(key: str, value: Any, indent: str, *, block: bool) -> list[str]:
    flow = _flow(value)
    if not value or not isinstance(value, dict | list):
        return [f"{indent}{_text(key)}: {flow}"]
    short = len(indent) + len(key) + len(flow) + 2 <= _WIDTH
    if isinstance(value, list):
        if short and not any(isinstance(item, dict) for item in value):
            return [f"{indent}{_text(key)}: {flow}"]
        lines = [f"{indent}{_text(key)}:"]
        for item in value:
            if isinstance(item, dict) and item:
                inner = [line for k, v in item.items() for line in _lines(k, v, indent + "    ", block=False)]
                lines += [f"{indent}  - {inner[0].lstrip()}", *inner[1:]]
            else:
                lines.append(f"{indent}  - {_flow(item)}")
        return lines
    if short and not block:
        return [f"{indent}{_text(key)}: {flow}"]
    inner = [line for k, v in value.items() for line in _lines(k, v, indent + "  ", block=False)]
    return [f"{indent}{_text(key)}:", *inner]


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return json.dumps(text, ensure_ascii=False)


def canonical(spec: Spec) -> str:
    """Canonical JSON of what the spec means, for cache keys: equal for specs that differ only in how they are written.

    Defaults are written out and formulas are in canonical text. Mappings whose keys the user chose are lists of
    pairs, since their order has a meaning (of axes, of parameters of the kernel, of ranks in a cluster).
    """
    return json.dumps(_canonical(spec, ()), sort_keys=True, separators=(",", ":"))


#: Fields that hold formulas, at whatever depth below them.
_FORMULAS = frozenset(
    ("space", "map", "by", "rotate", "part", "workers", "length", "last", "swizzle", "count", "chunk", "shared_bytes")
)


def _canonical(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        # A field that is not given is left out, so that a field which a later version adds changes no key.
        return {name: _canonical(field, (*path, name)) for name, field in fields.items() if field is not None}
    if isinstance(value, dict):
        return [[key, _canonical(item, path)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_canonical(item, path) for item in value]
    if path and path[-1] in _FORMULAS:
        return to_text(parse(value))
    return value
