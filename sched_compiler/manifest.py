"""The manifest of an artifact: what is needed to load and launch it, as data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sched_compiler.artifact import JSON, Emit, product_version
from sched_compiler.checking import Checked
from sched_compiler.dispatch import GRID_LIMIT, WORKERS
from sched_compiler.expr import Expr, equations, to_text
from sched_compiler.kernel import argument_type
from sched_compiler.loader import LoadedSpec
from sched_compiler.program import Passed, Program
from sched_compiler.registry import Resources

if TYPE_CHECKING:
    from sched_compiler.user_kernel import UserKernel

#: Changed whenever a key or a manifest changes its meaning.
SCHEMA = 1

Parameter = dict[str, Any]


def describe(checked: Checked) -> dict[str, Any]:
    """The schedule's formulas, in the language of specs, over parameters, `$index`, `$rank`, `$workers`, `tile.AXIS`.

    `where` defines the values `$0`, `$1`, ... that the others share, in an order in which each can be computed.
    """
    schedule = checked.schedule
    extents, coords = [a.extent for a in schedule.axes], list(schedule.coords)
    totals = [schedule.items, schedule.tiles, schedule.dispatch.workers, schedule.in_bounds]
    inverse = [] if schedule.inverse is None else [schedule.inverse]
    where, texts = equations([*extents, *coords, *totals, *inverse])
    names = [a.name for a in schedule.axes]
    rank = len(names)
    tables = [
        {"name": t.name, "length": to_text(t.length), "min": t.lo, "max": t.hi, "given": t.given}
        for t in schedule.tables
    ]
    items, tiles, workers, in_bounds = texts[2 * rank : 2 * rank + 4]
    return {
        "name": schedule.name,
        "axes": [{"name": name, "extent": text} for name, text in zip(names, texts[:rank], strict=True)],
        "parameters": [{"name": p.name, "min": p.var.lo, "max": p.var.hi} for p in schedule.params],
        "items": items,
        "tiles": tiles,
        "cluster": [a.cluster for a in schedule.axes],
        **({"tables": tables} if tables else {}),
        "dispatch": {"kind": schedule.dispatch.name, "workers": workers},
        "tile": dict(zip(names, texts[rank : 2 * rank], strict=True)),
        "in_bounds": in_bounds,
        "index": texts[-1] if inverse else None,
        "where": where,
        "index_type": schedule.index_type.name,
        "verdicts": [{"property": v.property, "status": v.status, "how": v.how} for v in checked.verification.verdicts],
    }


def manifest(
    checked: Checked,
    arch: str,
    emit: Emit,
    key: str,
    blob: bytes,
    entry: str,
    versions: Mapping[str, str],
    resources: Resources | None,
    kernel: UserKernel | None = None,
) -> dict[str, JSON]:
    """What is needed to load and launch the artifact. Formulas are in the language of specs, over the parameters."""
    program = checked.program
    parameters = trace_parameters(checked, arch) if kernel is None else kernel_parameters(kernel, arch)
    own: dict[str, Any] = {}
    if kernel is not None:
        own = {
            "expression": kernel.spec.entry,
            "sources": [{"path": path, "sha256": _sha256(text.encode())} for path, text in sources(kernel)],
        }
        if kernel.others:
            own["schedules"] = [describe(other) for other in kernel.others]
    return {
        "schema": SCHEMA,
        "key": key,
        "digest": _sha256(blob),
        "bytes": len(blob),
        "name": program.schedule.name,
        "emit": emit,
        "backend": versions["backend"],
        "arch": arch,
        "entry": entry,
        "parameters": list(parameters),
        "launch": _launch(program, arch, kernel),
        "resources": None if resources is None else {
            "registers": resources.registers,
            "static_shared_bytes": resources.static_shared_bytes,
            "local_bytes": resources.local_bytes,
        },
        **own,
        "schedule": describe(checked),
        "versions": {"sched_compiler": product_version()} | {k: v for k, v in versions.items() if k != "backend"},
    }  # fmt: skip


def of_library(declarations: str) -> dict[str, JSON]:
    """What is otherwise in the manifest of a library, which has no kernel: what kernels are compiled with instead."""
    return {"entry": None, "parameters": None, "launch": None, "declarations": _sha256(declarations.encode())}


def sources(kernel: UserKernel) -> list[tuple[str, str]]:
    """Paths and texts of what the user wrote for the kernel, in the order of paths."""
    return sorted(kernel.source.files.items())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- parameters -----------------------------------------------------------------------------------------------


def trace_parameters(checked: Checked, arch: str) -> list[Parameter]:
    """Those of the trace kernel, in order and with their offsets."""
    program = checked.program
    pointer = {"bits": 64, "size": 8}
    parameters: list[Parameter] = [
        {"name": "tiles", "type": f"{program.coord_type.name}*", "role": "output", **pointer},
        {"name": "counts", "type": "u64*", "role": "output", **pointer},
        {"name": "capacity", "type": "u64", "role": "trace", "bits": 64, "size": 8},
        {"name": "first", "type": "u32", "role": "trace", "bits": 32, "size": 4},
        {"name": "ctas", "type": "u32", "role": "trace", "bits": 32, "size": 4},
    ]
    parameters += [_passed(checked, p) for p in program.passed(program.source(arch)) if not p.nvshmem]
    return _placed(parameters)


def kernel_parameters(kernel: UserKernel, arch: str) -> list[Parameter]:
    """Those of a kernel of the user's own, in order and with their offsets."""
    return _placed([_argument(kernel, name, kind, arch) for name, kind in kernel.spec.arguments.items()])


def _argument(kernel: UserKernel, name: str, text: str, arch: str) -> Parameter:
    kind = argument_type(text)
    assert kind is not None
    if kind.kind == "schedule":
        struct, program = kernel.schedule_of(text)
        checked = next(c for c in (kernel.own, *kernel.others) if c.program is program)
        fields = _placed([_passed(checked, p) for p in program.passed(header_source(program))])
        for field in fields:
            del field["order"]
        align = max((field["size"] for field in fields), default=1)
        size = -(-max((f["offset"] + f["size"] for f in fields), default=1) // align) * align
        return {
            "name": name, "type": f"sched::{struct}::Arguments", "role": "schedule", "schedule": struct,
            "size": size, "align": align, "fields": fields,
        }  # fmt: skip
    parameter = {"name": name, "type": text, "role": "argument", "size": kind.size}
    if kind.kind == "opaque":
        return {**parameter, "align": kind.align}
    parameter["bits"] = kind.size * 8
    own = next((p for p in kernel.own.schedule.params if p.name == name), None)
    if own is not None and kind.kind == "scalar":
        parameter |= {"role": "parameter", "min": own.var.lo, "max": own.var.hi}
    return parameter


def header_source(program: Program) -> Any:
    """Who answers a ring as far as a header knows, which is for every architecture: a counter, if it may be one."""
    ring = program.schedule.dispatch.ring
    return None if ring is None or not getattr(program.schedule.dispatch, "fallback", None) else "counter"


def _passed(checked: Checked, passed: Passed) -> Parameter:
    size = passed.size
    found: Parameter = {"name": passed.name, "type": passed.type, "role": passed.role, "bits": size * 8, "size": size}
    if passed.role == "parameter":
        found |= {"min": passed.lo, "max": passed.hi}
    if passed.role == "table":
        table = next(t for t in checked.schedule.tables if t.name == passed.name)
        found |= {"length": to_text(table.length), "min": table.lo, "max": table.hi}
        if table.given:
            found["sha256"] = table_digest(checked.loaded, table.name)
    return found


def _placed(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Each with its order and its offset in bytes, as C++ places the members of a struct."""
    offset = 0
    for k, parameter in enumerate(parameters):
        align = parameter.pop("align", parameter["size"])
        offset = -(-offset // align) * align
        parameter["order"], parameter["offset"] = k, offset
        offset += parameter["size"]
    return list(parameters)


def table_digest(loaded: LoadedSpec, table: str) -> str:
    """SHA-256 of a table's elements as 64-bit integers, lowest byte first."""
    import numpy as np  # only where there are tables

    return hashlib.sha256(np.ascontiguousarray(loaded.tables[table], dtype="<i8").tobytes()).hexdigest()


# -- launch ---------------------------------------------------------------------------------------------------


def _launch(program: Program, arch: str, kernel: UserKernel | None) -> dict[str, Any]:
    schedule = program.schedule
    size, workers = schedule.worker_ctas, schedule.dispatch.workers
    if program.source(arch) == "counter":  # any number, as under `dynamic`
        workers = schedule.graph.var(WORKERS, 1, GRID_LIMIT // size)
    shared = 0 if kernel is None else kernel.shared_bytes
    return {
        "grid": [_times(workers, size), "1", "1"],
        "cluster": [size, 1, 1],
        "block": [program.block, 1, 1] if kernel is None else list(kernel.spec.block),
        "unit": "CTA",
        "workers": to_text(workers),
        "dynamic_shared_bytes": shared if isinstance(shared, int) else _number_or_text(shared),
        "co_resident": False,
    }


def _number_or_text(value: Expr) -> int | str:
    return to_text(value) if value.value is None else value.value


def _times(workers: Expr, size: int) -> str:
    """The number of CTAs along x, in the language of specs."""
    return to_text(workers) if size == 1 else to_text(workers * size)


def misplaced(parameters: Sequence[Parameter], resources: Resources) -> Iterator[int]:
    """The orders of parameters that the compiled kernel has elsewhere, or not at all."""
    for k in range(max(len(parameters), len(resources.offsets))):
        given = (parameters[k]["offset"], parameters[k]["size"]) if k < len(parameters) else None
        if given != (resources.offsets[k] if k < len(resources.offsets) else None):
            yield k
