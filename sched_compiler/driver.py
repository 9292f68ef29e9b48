"""The verbs of the product as functions: load, check, expand, trace, emit, compile. The CLI and the service are thin.

Every function raises SpecError, and nothing else, for what a user can get wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from sched_compiler import loader, registry
from sched_compiler.checking import Checked, CheckReport, check, check_text, expand, prove
from sched_compiler.compiling import (
    IR_VERSION,
    CompileRequest,
    artifact_key,
    asks_nvshmem,
    backend_named,
    backend_refused,
    capabilities,
    compile_spec,
    request_fault,
    require_architecture,
    require_hardware,
    supports,
    tools,
    warm_up,
)
from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.dispatch import GRID_LIMIT, WORKERS, ClusterLaunchControl
from sched_compiler.files import Beside
from sched_compiler.loader import LoadedSpec
from sched_compiler.manifest import SCHEMA, describe
from sched_compiler.registry import BackendError, ToolMissingError, TraceRequest
from sched_compiler.responses import fault_of
from sched_compiler.schedule import Schedule
from sched_compiler.spec import Dispatch, Dynamic, Static

if TYPE_CHECKING:
    from sched_compiler.traces import Trace

__all__ = [
    "IR_VERSION", "MOST_TRACED", "SCHEMA", "CheckReport", "Checked", "CompileRequest", "Engine", "artifact_key",
    "backend_named", "capabilities", "check", "check_text", "compile_spec", "describe", "emit_text", "expand", "prove",
    "request_fault", "supports", "trace", "validate_tables", "warm_up",
]  # fmt: skip

Engine = Literal["numpy", "cuda", "ptx", "gpu"]
#: Tiles that one trace may hold.
MOST_TRACED = 1 << 24


# -- trace ----------------------------------------------------------------------------------------------------


def validate_tables(
    checked: Checked, tables: Mapping[str, Any], values: Mapping[str, int] | None = None
) -> tuple[Diagnostic, ...]:
    """What is wrong with tables that arrive at launch, at these parameter values; nothing if they may be used.

    `tables` holds lists or arrays of integers by name, for every table whose elements do not stand in the spec.
    """
    from sched_compiler.verify_tables import check_tables, diagnostic, uses_tables

    given = _values(checked.loaded, checked.schedule, values or {})
    complete = _complete_tables(checked, tables)
    faults = check_tables(checked.schedule, complete, given) if uses_tables(checked.schedule) else []
    return tuple(diagnostic(fault, checked.loaded, ("tables", fault.table)) for fault in faults)


def _complete_tables(checked: Checked, tables: Mapping[str, Any]) -> dict[str, Any]:
    """All tables of a schedule, those that arrive at launch from `tables`. Raises SpecError."""
    import numpy as np  # only where there are tables

    loaded, late = checked.loaded, [t.name for t in checked.schedule.tables if not t.given]
    faults: list[Diagnostic] = []
    found: dict[str, Any] = dict(loaded.tables)
    for name in tables:
        if name not in late:
            known = ", ".join(late) or "no table arrives at launch"
            faults.append(_launch_fault(loaded, name, "a table", f"one of: {known}"))
    for name in late:
        array = np.asarray(tables[name]) if name in tables else None
        if array is None:
            mend = f"give --table {name}=FILE"
            faults.append(_launch_fault(loaded, name, "no table", "a list of integers", mend=mend))
        elif array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            faults.append(_launch_fault(loaded, name, f"an array of {array.dtype}", "a list of integers"))
        else:
            found[name] = array.astype(np.int64) if not array.size else array
    if faults:
        raise SpecError(faults)
    return found


def trace(
    text: str,
    file: str = "<spec>",
    *,
    values: Mapping[str, int] | None = None,
    workers: int | None = None,
    engine: Engine = "numpy",
    follow: Sequence[int] | None = None,
    tables: Mapping[str, Any] | None = None,
    directory: Beside = None,
    responses: Any = None,
) -> Trace:
    """The tiles of each worker, in order, at these parameter values.

    `workers` overrides the spec's number, except under `single` and `table`, which have one for each item or range.
    `follow` lists the workers to follow; all of them by default. `tables` holds those that arrive at launch. Under
    `clc`, `workers` are the clusters that run at first; `responses` lists instead, for each of them, the CTA ids that
    the hardware's queue answers. Raises SpecError for a value that is missing or out of its range.
    """
    from sched_compiler.evaluate import evaluate  # with NumPy, which only a trace needs
    from sched_compiler.traces import Trace

    loaded = loader.load(text, file, directory)
    if workers is not None:
        loaded = _with_workers(loaded, workers)
    checked = prove(loaded)
    schedule = checked.schedule
    given = _values(loaded, schedule, values or {})
    complete = _complete_tables(checked, tables or {})
    wrong = validate_tables(checked, tables or {}, given) if len(complete) > len(loaded.tables) else ()
    if wrong:
        raise SpecError(wrong)
    if responses is not None or isinstance(schedule.dispatch, ClusterLaunchControl):
        workers = _clusters(checked, given, workers, responses, engine)
    elif schedule.dispatch.workers.attr == WORKERS:
        raise loaded.error(
            "E070", ("dispatch", schedule.dispatch.name, "workers"), "how many workers are launched is not in the spec",
            found="grid", expected="a number of workers", mend="give --workers N",
        )  # fmt: skip
    items, count = (int(v[0]) for v in evaluate([schedule.items, schedule.dispatch.workers], given))
    if isinstance(schedule.dispatch, ClusterLaunchControl):
        assert workers is not None
        count = workers
    followed = range(count) if follow is None else follow
    share = -(-items // count) if count else 0  # of the busiest worker
    if schedule.dispatch.queue or schedule.dispatch.name == "table":
        share = items
    tiles = min(items, share * len(followed)) * schedule.cluster_size
    if tiles > MOST_TRACED:
        raise SpecError([_launch_fault(loaded, "tiles", str(tiles), f"at most {MOST_TRACED} to trace")])
    if len(followed) > MOST_TRACED:
        raise SpecError([_launch_fault(loaded, "workers", str(len(followed)), f"at most {MOST_TRACED} to follow")])
    for w in followed if follow is not None else ():
        if not 0 <= w < count:
            raise SpecError([_launch_fault(loaded, "worker", str(w), f"0 to {count - 1}")])
    request = TraceRequest(given, count, followed, complete, responses)
    return Trace(loaded.axes, count, _run(checked, request, engine))


def _clusters(checked: Checked, values: Mapping[str, int], workers: int | None, responses: Any, engine: Engine) -> int:
    """How many clusters run at first under `clc`."""
    from sched_compiler.evaluate import evaluate

    loaded, dispatch = checked.loaded, checked.schedule.dispatch
    if not isinstance(dispatch, ClusterLaunchControl):
        message = "responses are those of the hardware's queue, which this dispatch does not ask"
        raise loaded.error("E070", ("dispatch",), message, found=dispatch.name, expected="clc")
    items = int(evaluate([checked.schedule.items], dict(values))[0][0])
    if responses is not None:
        fault = fault_of(responses, items, dispatch.ring.ctas)
        if fault is not None:
            raise loaded.error("E070", ("dispatch",), fault.message, found=fault.found, expected=fault.expected)
        if workers not in (None, len(responses)):
            raise SpecError([_launch_fault(loaded, "workers", str(workers), f"{len(responses)}, as responses are for")])
        return len(responses)
    if workers is None and engine == "gpu":  # the device decides which of them run
        return items
    if workers is None:
        raise loaded.error(
            "E070", ("dispatch",), "how many clusters run at first is decided by the hardware", found="nothing",
            expected="a number of workers, or the responses of the hardware's queue",
            mend="give --workers N, or --responses FILE",
        )  # fmt: skip
    if not 1 <= workers <= GRID_LIMIT:
        raise SpecError([_launch_fault(loaded, "workers", str(workers), f"1 to {GRID_LIMIT}")])
    return workers


def _with_workers(loaded: LoadedSpec, workers: int) -> LoadedSpec:
    """The spec with another number of workers, where its dispatch has one to choose."""
    dispatch = loaded.spec.dispatch
    if dispatch.static is None and dispatch.dynamic is None:
        return loaded
    if not 1 <= workers <= GRID_LIMIT:
        raise SpecError([_launch_fault(loaded, "workers", str(workers), f"1 to {GRID_LIMIT}")])
    other = Dispatch(static=Static(workers=workers)) if dispatch.static else Dispatch(dynamic=Dynamic(workers=workers))
    return replace(loaded, spec=loaded.spec.model_copy(update={"dispatch": other}))


def _run(checked: Checked, request: TraceRequest, engine: Engine) -> list[Any]:
    if engine == "numpy":
        from sched_compiler.traces import trace_numpy

        return trace_numpy(checked.schedule, request)
    if engine == "gpu" and (asking := asks_nvshmem(checked.loaded)) is not None:
        raise checked.loaded.error(
            "E073", ("params", asking, "source"), "the engine gpu runs no job of NVSHMEM",
            found=f"{asking} comes from it", mend="pass the parameter, to trace on a device",
        )  # fmt: skip
    try:
        return registry.engine(engine)(checked.program, request)
    except ToolMissingError as e:
        raise checked.loaded.error("E073", (), f"the engine {engine} needs what is not here", found=str(e)) from None
    except BackendError as e:
        raise backend_refused(checked.loaded, engine, e) from None


def _values(loaded: LoadedSpec, schedule: Schedule, values: Mapping[str, int]) -> dict[str, int]:
    """Parameter values, complete and in range."""
    declared = {p.name: (p.var.lo, p.var.hi) for p in schedule.params}
    faults: list[Diagnostic] = []
    for name, value in values.items():
        if name not in declared:
            known = ", ".join(declared) or "no parameters"
            faults.append(_launch_fault(loaded, name, str(value), f"one of: {known}"))
        elif not declared[name][0] <= value <= declared[name][1]:
            lo, hi = declared[name]
            faults.append(_launch_fault(loaded, name, str(value), f"{lo} to {hi}"))
    for name, (lo, hi) in declared.items():
        if name not in values:
            faults.append(_launch_fault(loaded, name, "no value", f"{lo} to {hi}", mend=f"give --set {name}={lo}"))
    if faults:
        raise SpecError(faults)
    return dict(values)


def _launch_fault(loaded: LoadedSpec, name: str, found: str, expected: str, mend: str | None = None) -> Diagnostic:
    path: tuple[str, ...] = ("params", name) if name in loaded.spec.params else ()
    if name in (loaded.spec.tables or {}):
        path = ("tables", name)
    return loaded.diagnostic(
        "E070", path, f"{name}: this launch is not possible", found=found, expected=expected, mend=mend
    )


# -- emit -----------------------------------------------------------------------------------------------------


def emit_text(checked: Checked, to: str, arch: str = "sm_90a") -> str:
    """`checked` as text: cuda (the header and the trace kernel), ptx, header, declarations (of what a kernel is linked
    with), validator, or json (the schedule's formulas)."""
    program = checked.program
    if to == "json":
        return json.dumps(describe(checked), indent=2) + "\n"
    try:
        backend = registry.printing(to)
    except KeyError:
        forms = [form for name in registry.names() for form in registry.get(name).forms]
        raise SpecError([request_fault("text", to, [*forms, "json"])]) from None
    with tools():
        require_architecture(backend, arch)
        require_hardware(checked, arch, to)
        return backend.text(program, to, arch)
