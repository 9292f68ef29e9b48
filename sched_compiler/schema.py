"""JSON Schema of the spec language, in the forms that users write, for editors and other tools.

It is made from the models and the presets. What depends on more than one place in a spec (that loops name every axis,
that formulas name declared parameters, that a schedule covers its box) is left to `schedc check`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias, get_args

from sched_compiler.checks import IDENTIFIER, MAX_AXES, MAX_PARAMS, MAX_TABLES, NAME
from sched_compiler.formula import MAX_LENGTH, RESERVED
from sched_compiler.kernel import SCALARS
from sched_compiler.presets import PRESETS, Preset
from sched_compiler.protocol import MOST_CONSUMERS, MOST_CTAS, MOST_DEPTH, MOST_THREADS, WARP
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

Schema: TypeAlias = "dict[str, Any]"

#: Keys of an order that exclude one another.
_EXCLUSIVE = (
    ("loops", "pieces"),
    ("loops", "raster"),
    ("pieces", "curve"),
    ("pieces", "raster"),
    ("curve", "raster"),
    ("raster", "serpentine"),
)
_FORMULA = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_LENGTH,
    "description": "Integer arithmetic over parameters: + - * // % min max ceil_div, comparisons, `a if c else b`.",
}


def json_schema() -> Schema:
    """The schema (draft 2020-12) of a spec: a composed form, or a preset with its arguments."""
    properties = _described(
        Spec,
        {
            "version": ({"const": 1}, "The version of the spec language."),
            "name": (
                {"type": "string", "pattern": f"^{NAME.pattern}$"},
                "The schedule's name: it names the struct, the kernel and the files that are made.",
            ),
            "params": (
                _mapping(_ref("param"), "parameter", at_most=MAX_PARAMS),
                "Values known only at launch, each with the range that is promised for it.",
            ),
            "tables": (
                _mapping(_ref("table"), "parameter", at_most=MAX_TABLES),
                "Lists of integers that the schedule reads: written here, in files beside the spec, or given later.",
            ),
            "space": (
                {**_mapping(_ref("extent"), "axis", at_most=MAX_AXES), "minProperties": 1},
                "The box of tiles: named axes, and how many tiles each has.",
            ),
            "order": (_ref("order"), "The loops over the axes, in whose order tiles are visited."),
            "map": (
                _mapping(_ref("formula"), "axis"),
                "Instead of `order`: each coordinate as a formula of the work index `i`. It is checked, not trusted.",
            ),
            "cluster": (_ref("cluster"), "The scheduled item is a cluster of CTAs, with this many along each axis."),
            "expect": (
                _object(
                    Expect,
                    {
                        "last": (
                            {**_ref("part"), "minProperties": 1},
                            "Ranges of axes whose tiles come after all others.",
                        ),
                    },
                ),
                "What the order is meant for. It is checked, and a warning says where it does not hold.",
            ),
            "dispatch": (_ref("dispatch"), "Which worker takes which work items."),
            "kernel": (
                {"anyOf": [{"const": "trace"}, _ref("kernel")], "default": "trace"},
                "What is built around the schedule: the kernel that records it, or one of your own.",
            ),
        },
    )
    properties["uses"] = {"enum": list(PRESETS), "description": "A named scheduler, in place of `space` and `order`."}
    properties["with"] = {"type": "object", "description": "The arguments of the named scheduler."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tile schedule",
        "description": "A tile schedule: a box of tiles, the order in which they are visited, and who visits them.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "required": ["version", "name"],
        "if": {"required": ["uses"]},
        "then": {
            "properties": dict.fromkeys(("space", "order", "map", "cluster", "expect"), False),
            "allOf": [_with(preset) for preset in PRESETS.values()],
        },
        "else": {
            "required": ["space", "dispatch"],
            "properties": {"with": False},
            "not": {"required": ["order", "map"]},
        },
        "$defs": _definitions(),
    }


def _definitions() -> Schema:
    order = _order_properties()
    piece = {"part": {**_ref("part"), "description": "The sub-box that is walked."}, **order}
    return {
        "axis": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$", "description": "The name of an axis."},
        "parameter": {
            "type": "string",
            "pattern": f"^{IDENTIFIER.pattern}$",
            "not": {"enum": [*sorted(RESERVED), "grid"]},
            "description": "The name of a parameter.",
        },
        "loop": {
            "type": "string",
            "pattern": rf"^{IDENTIFIER.pattern}(\.(outer|inner))*$",
            "description": "An axis, or a part of one that has been split: `m`, `m.outer`, `m.outer.inner`.",
        },
        "formula": {"anyOf": [{"type": "integer"}, _FORMULA], "description": "An integer, or a formula."},
        "extent": _number(0),
        "positive": _number(1),
        "param": _object(Param, {
            "min": ({"type": "integer"}, "The smallest value that is promised."),
            "max": ({"type": "integer"}, "The largest value that is promised; it sizes the arithmetic."),
            "source": ({"enum": ["nvshmem"]}, "The kernel asks NVSHMEM for it, instead of getting it passed."),
        }),
        "table": {
            "anyOf": [
                {"type": "array", "items": {"type": "integer"}},
                _object(TableSource, {
                    "values": ({"type": "array", "items": {"type": "integer"}}, "Its elements."),
                    "file": ({"type": "string"}, "A file beside the spec: .npy, .json, or text with commas or lines."),
                    "length": (_number(0), "How many elements it has; it arrives at launch."),
                }) | {"minProperties": 1, "maxProperties": 1},
            ],
            "description": "A list of integers.",
        },
        "tableUse": {
            "anyOf": [{"type": "string"}, _ref("table")],
            "description": "The name of a table, or the table itself.",
        },
        "split": {
            "anyOf": [
                _ref("positive"),
                _object(Split, {
                    "by": (_ref("positive"), "The number of points of a band."),
                    "ragged": (
                        _choice(Split, "ragged"),
                        "Whether the last band is short, or runs in full with what sticks out marked out of bounds.",
                    ),
                }),
            ],
            "description": "The size of a band.",
        },
        "part": {
            **_mapping(
                {"type": "array", "prefixItems": [_ref("extent"), _ref("extent")], "items": False, "minItems": 2,
                 "description": "From (included), to (excluded)."},
                "loop",
            ),
            "description": "The sub-box: a range of each axis by its outermost part; the others are covered whole.",
        },
        "order": _closed(order, Order) | {"description": "A loop nest over the axes."},
        "piece": _closed(piece, Piece) | {"description": "A sub-box with an order of its own."},
        "cluster": {
            "type": "object",
            "properties": {"ragged": _described(Cluster, {
                "shape": ({}, ""),
                "ragged": (
                    _choice(Cluster, "ragged"),
                    "Where extents are no multiples of the cluster: mark what sticks out, or reject the spec.",
                ),
            })["ragged"]},
            "additionalProperties": {"type": "integer", "minimum": 1, "description": "CTAs along this axis."},
            "propertyNames": _ref("axis"),
            "minProperties": 1,
            "not": {"required": ["ragged"], "maxProperties": 1},
            "description": "CTAs of a cluster along each axis; the first-named axis runs fastest in the rank.",
        },
        "dispatch": _dispatch(),
        "kernel": _kernel(),
    }  # fmt: skip


def _order_properties() -> Schema:
    loops = {"type": "array", "items": _ref("loop")}
    return _described(Order, {
        "fuse": (
            _mapping({"type": "array", "items": _ref("axis"), "minItems": 2}, "axis"),
            "New axes, each made of two or more; the last-named runs fastest.",
        ),
        "split": (
            _mapping(_ref("split"), "loop"),
            "Bands: `{m: 8}` makes `m.outer` (bands) and `m.inner` (points of a band).",
        ),
        "loops": (loops, "Every remaining axis or part once, slowest first. Default: as the axes are declared."),
        "reverse": (loops, "Axes or loops that run downwards."),
        "serpentine": (
            _mapping(_ref("loop"), "loop"),
            "`{m.outer: n.outer}` runs the first downwards whenever the value of the second is odd.",
        ),
        "rotate": (_mapping(_ref("formula"), "axis"), "Start an axis at this value, and wrap at its end."),
        "pieces": (
            {"type": "array", "items": _ref("piece"), "minItems": 1},
            "In place of `loops`: sub-boxes walked one after another. It is proven that they tile the box.",
        ),
        "points": (
            _mapping(_ref("tableUse"), "axis"),
            "In place of all others: every axis's coordinates, one for each work item, from tables.",
        ),
        "subset": ({"type": "boolean"}, "Whether the points need not be all of the space; none may stand twice."),
        "curve": (
            {"enum": ["hilbert", "morton"]},
            "A space-filling curve over two axes; of a split axis over its outermost part. `loops` walk the rest.",
        ),
        "raster": (_raster(), "In place of `loops`: two axes in CUTLASS's manner."),
        "partitions": (
            _partitions(),
            "Consecutive indices run on different partitions of the GPU; each partition walks consecutive items.",
        ),
    })  # fmt: skip


def _raster() -> Schema:
    along = _ref("axis")
    mapping = _object(Raster, {
        "along": ({**along}, "The axis along which a band is walked, or `auto`: the shorter, the second if equal."),
        "swizzle": (_number(1) | {"default": 1}, "The width of a band."),
    })  # fmt: skip
    return {"anyOf": [along, mapping]}


def _partitions() -> Schema:
    mapping = _object(Partitions, {
        "count": (_number(1), "The number of partitions: index i runs on partition i % count."),
        "chunk": (_number(1), "Consecutive items of a partition. Default: one range of the whole order."),
    })  # fmt: skip
    return {"anyOf": [*_number(1)["anyOf"], mapping]}


def _dispatch() -> Schema:
    modes: dict[str, tuple[Schema, str]] = {
        "single": (
            {"anyOf": [_object(Single, {}), {"type": "null"}]},
            "One work item for each worker: as many workers as items.",
        ),
        "static": (
            _object(Static, {
                "workers": (
                    {"anyOf": [{"const": "grid"}, *_number(1)["anyOf"]]},
                    "The number of workers, CTAs or clusters; `grid` for as many as are launched.",
                ),
            }),
            "Worker w takes items w, w + workers, w + 2*workers, ...",
        ),
        "table": (
            _object(Table, {
                "indptr": (_ref("tableUse"), "Where each worker's range begins, and at last where the last one ends."),
                "indices": (_ref("tableUse"), "The work indices that the ranges are of; without it, all in order."),
                "subset": ({"type": "boolean"}, "Whether items may be left out."),
            }),
            "Worker w takes positions indptr[w] to below indptr[w + 1].",
        ),
        "dynamic": (
            {"anyOf": [_object(Dynamic, {
                "workers": (
                    {"anyOf": [{"const": "grid"}, *_number(1)["anyOf"]]},
                    "The number of workers to launch; `grid`, the default, for any number.",
                ),
            }), {"type": "null"}]},
            "Worker w takes item w, then what a counter in global memory gives.",
        ),
        "clc": (
            {"anyOf": [_clc(), {"type": "null"}]},
            "A cluster takes its own item, then those of clusters that have not started (cluster launch control).",
        ),
    }  # fmt: skip
    mapping = {
        "type": "object",
        "properties": _described(Dispatch, modes),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {
        "anyOf": [{"enum": ["single", "dynamic", "clc"]}, mapping],
        "description": "Exactly one way to hand out the work items.",
    }


def _clc() -> Schema:
    threads = {
        "anyOf": [{"const": 1}, {"type": "integer", "minimum": WARP, "maximum": MOST_THREADS, "multipleOf": WARP}],
        "description": "Threads of the consumer in each CTA: one, or whole warps.",
    }
    long = {
        "type": "object",
        "properties": {"threads": threads},
        "required": ["threads"],
        "additionalProperties": False,
    }
    consumer = {"anyOf": [*threads["anyOf"], long], "description": threads["description"]}
    consumers = {**_mapping(consumer, "axis", at_most=MOST_CONSUMERS), "minProperties": 1}

    def optional(schema: Schema) -> Schema:
        return {"anyOf": [schema, {"type": "null"}]}

    def upto(most: int) -> Schema:
        return {"type": "integer", "minimum": 1, "maximum": most}

    return _object(ClusterLaunchControl, {
        "depth": (optional(upto(MOST_DEPTH)) | {"default": 1}, "Slots of the ring: answers that may be ahead."),
        "consumers": (
            optional(consumers) | {"default": {"worker": 1}},
            "Who takes every item, by name: the number of threads in each CTA, 1 or whole warps.",
        ),
        "cta_group": (
            optional(upto(MOST_CTAS)),
            "CTAs that take an item together; by default, and at any rate where there is a cluster, its CTAs.",
        ),
        "fallback": (optional({"const": "dynamic"}), "What answers below sm_100: a counter in global memory (sm_90)."),
        "finish_arrivals": (
            optional({"type": "integer"}), "The arrivals that free a slot, consumers times CTAs: checked, not needed.",
        ),
    })  # fmt: skip


def _kernel() -> Schema:
    name = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    path = {"type": "string", "minLength": 1, "description": "A path relative to the spec."}
    scalars, opaque = "|".join(SCALARS), r"tensormap|bytes\[[1-9][0-9]{0,3}\](@[0-9]+)?"
    kind = {"type": "string", "pattern": rf"^((?:{scalars})\*?|void\*|{opaque}|schedule|sched::[A-Za-z_]\w*)$"}
    argument = {"type": "object", "additionalProperties": kind, "minProperties": 1, "maxProperties": 1}
    threads = {"type": "integer", "minimum": 1, "maximum": MOST_THREADS}
    define = {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 200}]}
    headers, options = (_listed(get_args(Kernel.model_fields[field].annotation)[0]) for field in ("headers", "options"))
    return _object(Kernel, {
        "source": ({**path}, "CUDA C++ that includes `<sched/NAME.cuh>`: a file beside the spec."),
        "entry": ({"type": "string", "minLength": 1}, "The kernel: a name, or one with template arguments."),
        "block": (
            {"anyOf": [threads, {"type": "array", "items": threads, "minItems": 1, "maxItems": 3}]},
            "Threads of a CTA, along x, y and z.",
        ),
        "shared_bytes": (_number(0) | {"default": 0}, "Dynamic shared memory of a CTA."),
        "arguments": (
            {"anyOf": [{"type": "array", "items": argument}, _mapping(kind, "axis")]},
            "The kernel's parameters in order, each with its type; one of type `schedule` is `sched::NAME::Arguments`.",
        ),
        "headers": (headers, "Bundles of headers that the source may include."),
        "schedules": ({"type": "array", "items": path}, "Specs of further schedules that the source includes."),
        "defines": (
            {"type": "object", "additionalProperties": define, "propertyNames": name}, "Macros of the source.",
        ),
        "options": (options, "What the compiler is asked for besides."),
    })  # fmt: skip


def _listed(annotation: Any) -> Schema:
    """A list of the words of a `list[Literal[...]]`."""
    (words,) = get_args(annotation)
    return {"type": "array", "items": {"enum": list(get_args(words))}, "uniqueItems": True}


# -- presets ------------------------------------------------------------------------------------------------------


def _with(preset: Preset) -> Schema:
    """What a preset demands of `with`; what its own dispatch needs only where no other dispatch is given."""
    arguments = preset.arguments.values()
    needed = [a.name for a in arguments if a.required and not a.kind.dispatch]
    own = [a.name for a in arguments if a.required and a.kind.dispatch]
    parameters = inspect.signature(preset.function).parameters
    properties: Schema = {}
    for a in arguments:
        schema = {"type": "boolean"} if a.kind.minimum is None else _number(a.kind.minimum)
        if a.kind.table:
            schema = _ref("tableUse")
        elif a.kind.plain:
            schema = {"anyOf": [{"type": "integer", "minimum": a.kind.minimum}]}
        elif a.kind.dispatch:
            schema = {"anyOf": [{"const": "grid"}, *schema["anyOf"]]}
        if a.nullable:
            schema = {"anyOf": [*schema["anyOf"], {"type": "null"}]}
        use = "; not needed where `dispatch` is given" if a.kind.dispatch else ""
        properties[a.name] = {**schema, "description": f"{str(a.kind).capitalize()}{use}."}
        if not a.required:
            properties[a.name]["default"] = parameters[a.name].default
    form = {
        "type": "object",
        "description": inspect.getdoc(preset.function) or preset.usage(),
        "properties": properties,
        "additionalProperties": False,
        "required": needed,
    }
    result: Schema = {"properties": {"with": form}}
    if needed:
        result["required"] = ["with"]
    if own:
        result["anyOf"] = [
            {"required": ["dispatch"]},
            {"required": ["with"], "properties": {"with": {"required": own}}},
        ]
    return {"if": {"properties": {"uses": {"const": preset.name}}}, "then": result}


# -- parts ----------------------------------------------------------------------------------------------------------


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _number(minimum: int) -> Schema:
    """An integer of at least `minimum`, or a formula, which is held to it by `schedc check`."""
    what = f"An integer of at least {minimum}, or a formula that is never below it."
    return {"anyOf": [{"type": "integer", "minimum": minimum}, _FORMULA], "description": what}


def _mapping(values: Schema, keys: str, at_most: int | None = None) -> Schema:
    bound = {} if at_most is None else {"maxProperties": at_most}
    return {"type": "object", "additionalProperties": values, "propertyNames": _ref(keys), **bound}


def _choice(model: type[Model], field: str) -> Schema:
    info = model.model_fields[field]
    return {"enum": list(get_args(info.annotation)), "default": info.default}


def _described(model: type[Model], properties: Mapping[str, tuple[Schema, str]]) -> Schema:
    """The properties with their descriptions, in the order of the model's fields, of which none may be forgotten."""
    result: Schema = {}
    for name, info in model.model_fields.items():
        schema, text = properties[name]
        result[info.alias or name] = {**schema, "description": text}
    return result


def _closed(properties: Schema, model: type[Model]) -> Schema:
    required = [name for name, info in model.model_fields.items() if info.is_required()]
    result: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if "loops" in properties:
        result["not"] = {"anyOf": [{"required": list(pair)} for pair in _EXCLUSIVE]}
        others = [name for name in properties if name not in ("points", "subset")]
        result["dependentRequired"] = {"subset": ["points"]}
        result["dependentSchemas"] = {"points": {"properties": dict.fromkeys(others, False)}}
    if "part" in properties:
        result["properties"] = {**properties, "points": False, "subset": False}
    return {**result, **({"required": required} if required else {})}


def _object(model: type[Model], properties: Mapping[str, tuple[Schema, str]]) -> Schema:
    return _closed(_described(model, properties), model)
