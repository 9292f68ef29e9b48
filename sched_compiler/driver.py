"""The verbs of the product as functions: load, check, expand, trace, emit, compile. The CLI and the service are thin.

Every function raises SpecError, and nothing else, for what a user can get wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sched_compiler import loader, registry
from sched_compiler.artifact import JSON, Artifact, Emit, product_version
from sched_compiler.build import Built, build
from sched_compiler.diagnostics import Diagnostic, Span, SpecError
from sched_compiler.dispatch import CLUSTERS, GRID_LIMIT, HARDWARE_QUEUE, WORKERS, ClusterLaunchControl
from sched_compiler.expr import Expr, RangeError, equations, to_text
from sched_compiler.loader import LoadedSpec, Progress
from sched_compiler.program import Program, generation, place
from sched_compiler.registry import Backend, BackendError, ToolMissingError, TraceRequest
from sched_compiler.responses import fault_of
from sched_compiler.schedule import Schedule
from sched_compiler.spec import Dispatch, Dynamic, Static
from sched_compiler.verdict import Verdict
from sched_compiler.verify import Verification, verify

if TYPE_CHECKING:
    from sched_compiler.traces import Trace

#: Changed whenever a key or a manifest changes its meaning.
SCHEMA = 1
#: Changed whenever the IR gives other expressions for some spec.
IR_VERSION = "2"

Engine = Literal["numpy", "cuda", "ptx", "gpu"]
#: The place of what stands in no file.
_REQUEST = Span("<request>", 1, 1, 1, 1)
#: Tiles that one trace may hold.
MOST_TRACED = 1 << 24


# -- load, check ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Whether a spec holds, and everything found about it."""

    file: str
    diagnostics: tuple[Diagnostic, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Every property is proven and nothing is an error; warnings do not count."""
        return all(v.holds() for v in self.verdicts) and not any(d.severity == "error" for d in self.diagnostics)

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": self.ok,
            "diagnostics": [d.as_json() for d in self.diagnostics],
            "verdicts": [{"property": v.property, "status": v.status, "how": v.how} for v in self.verdicts],
        }


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec that has been built, verified and placed in its kernel."""

    loaded: LoadedSpec
    built: Built
    verification: Verification
    program: Program

    @property
    def schedule(self) -> Schedule:
        return self.built.schedule


def check_text(
    text: str, file: str = "<spec>", directory: Path | None = None, progress: Progress | None = None
) -> CheckReport:
    """Everything that can be said of a spec. Never raises for what stands in it.

    Here and below, tables in files are read from `directory` and below it; without one, none is read.
    """
    try:
        checked = _checked(loader.load(text, file, directory, progress), progress)
    except SpecError as e:
        return CheckReport(file, e.diagnostics, ())
    diagnostics = (*checked.verification.diagnostics, *checked.built.warnings)
    return CheckReport(file, diagnostics, checked.verification.verdicts)


def check(text: str, file: str = "<spec>", directory: Path | None = None) -> Checked:
    """The built and proven spec. Raises SpecError unless every property is proven."""
    return prove(loader.load(text, file, directory))


def prove(loaded: LoadedSpec) -> Checked:
    """Build and verify a loaded spec. Raises SpecError unless every property is proven."""
    checked = _checked(loaded)
    if not checked.verification.proven:
        raise SpecError(checked.verification.diagnostics)
    return checked


def _checked(loaded: LoadedSpec, progress: Progress | None = None) -> Checked:
    built = build(loaded)
    verification = verify(built.schedule, loaded, progress)
    try:
        program = place(built.schedule)
    except RangeError as e:
        raise loaded.error(
            "E063", ("space",), "the arithmetic of this schedule does not fit 64 bits", found=str(e),
            mend="narrow the parameters' ranges",
        ) from None  # fmt: skip
    if not verification.proven and not verification.diagnostics:
        open_ = [v for v in verification.verdicts if not v.holds()]
        found = "; ".join(f"{v.property}: {v.how}" for v in open_)
        diagnostic = loaded.diagnostic("E064", (), "a property of the schedule is not proven", found=found)
        verification = replace(verification, diagnostics=(diagnostic,))
    return Checked(loaded, built, verification, program)


def expand(text: str, file: str = "<spec>", directory: Path | None = None) -> str:
    """The composed form of a spec, as YAML."""
    return loader.to_yaml(loader.load(text, file, directory).spec)


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


# -- trace ----------------------------------------------------------------------------------------------------


def trace(
    text: str,
    file: str = "<spec>",
    *,
    values: Mapping[str, int] | None = None,
    workers: int | None = None,
    engine: Engine = "numpy",
    follow: Sequence[int] | None = None,
    tables: Mapping[str, Any] | None = None,
    directory: Path | None = None,
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
    try:
        return registry.engine(engine)(checked.program, request)
    except ToolMissingError as e:
        raise checked.loaded.error("E073", (), f"the engine {engine} needs what is not here", found=str(e)) from None
    except BackendError as e:
        raise _refused(checked.loaded, engine, e) from None


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


# -- emit, compile --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What to compile: the spec's text, and what it is to become."""

    text: str
    file: str
    arch: str
    backend: str = "cuda"
    emit: Emit = "cubin"
    directory: str | None = None  # of tables in files

    def load(self) -> LoadedSpec:
        """The loaded spec. Raises SpecError."""
        return loader.load(self.text, self.file, None if self.directory is None else Path(self.directory))


def artifact_key(request: CompileRequest) -> str:
    """The name of what `request` gives: 64 hexadecimal digits. Raises SpecError."""
    with _tools():
        return _key(request, request.load())


def compile_spec(request: CompileRequest) -> Artifact:
    """Compile a spec. Raises SpecError."""
    with _tools():
        return _compile(request, request.load())


def _compile(request: CompileRequest, loaded: LoadedSpec) -> Artifact:
    key = _key(request, loaded)
    backend = backend_named(request.backend)
    checked = prove(loaded)
    _require_hardware(checked, request.arch, request.emit)
    program = checked.program
    try:
        blob = backend.build(program, request.arch, request.emit)
        resources = backend.resources(blob, program.entry) if request.emit == "cubin" else None
    except BackendError as e:
        raise _refused(loaded, request.backend, e) from None
    manifest = _manifest(request, key, blob, checked, program, backend, resources)
    return Artifact(key, request.emit, blob, manifest)


def emit_text(checked: Checked, to: str, arch: str = "sm_90a") -> str:
    """`checked` as text: cuda (the header and the trace kernel), ptx, header, or json (the schedule's formulas)."""
    program = checked.program
    if to == "json":
        return json.dumps(describe(checked), indent=2) + "\n"
    try:
        backend = registry.printing(to)
    except KeyError:
        forms = [form for name in registry.names() for form in registry.get(name).forms]
        raise SpecError([request_fault("text", to, [*forms, "json"])]) from None
    with _tools():
        _require_architecture(backend, arch)
        _require_hardware(checked, arch, to)
        return backend.text(program, to, arch)


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


def backend_named(name: str) -> Backend:
    """The backend called `name`. Raises SpecError where there is none."""
    try:
        return registry.get(name)
    except KeyError:
        raise SpecError([request_fault("backend", name, registry.names())]) from None


def _require_architecture(backend: Backend, arch: str) -> None:
    """Refuse an architecture that the backend's compiler does not know. Raises SpecError."""
    if not re.fullmatch(r"sm_[0-9]{2,3}[a-z]?", arch, re.ASCII) or not backend.supports(arch):
        raise SpecError([request_fault("architecture", arch, backend.architectures())])


def supports(checked: Checked, arch: str) -> bool:
    """Whether the kernels of a spec run on `arch`, as far as its dispatch goes."""
    return _missing_hardware(checked, arch) is None


def _require_hardware(checked: Checked, arch: str, form: str) -> None:
    """Refuse an architecture that cannot do what the dispatch needs. Raises SpecError.

    A header is for every architecture; it refuses by itself where it is included.
    """
    missing = _missing_hardware(checked, arch)
    ring = checked.schedule.dispatch.ring is not None
    if missing is not None and form not in (("header", "validator") if ring else ("header", "cuda", "validator")):
        raise SpecError([missing])


def _missing_hardware(checked: Checked, arch: str) -> Diagnostic | None:
    schedule, error = checked.schedule, checked.loaded.diagnostic
    dispatch, number = schedule.dispatch, generation(arch)
    if isinstance(dispatch, ClusterLaunchControl):
        source, path = dispatch.source(number), ("dispatch", "clc")
        if source is None:
            first = CLUSTERS if dispatch.fallback else HARDWARE_QUEUE
            instead = "use dispatch dynamic" if dispatch.fallback else "add `fallback: dynamic` to `clc` (sm_90)"
            return error(
                "E055", path, f"dispatch clc needs {'clusters' if dispatch.fallback else 'cluster launch control'}",
                found=arch, expected=f"sm_{first} or later", mend=f"compile for another architecture, or {instead}",
            )  # fmt: skip
        if source == "hardware" and dispatch.ring.ctas > 1 and arch[-1].isdigit():
            message = "an answer for all CTAs of a cluster is a feature of the architecture's own instructions"
            return error("E055", path, message, found=arch, expected=f"{arch}a", mend=f"compile for {arch}a")
    elif schedule.cluster_size > 1 and dispatch.queue and number < CLUSTERS:
        return error(
            "E050", ("cluster",), f"under dispatch {dispatch.name} the CTAs of a cluster need hardware clusters",
            found=arch, expected=f"sm_{CLUSTERS} or later",
            mend="compile for another architecture, or use dispatch static",
        )  # fmt: skip
    return None


@contextmanager
def _tools() -> Iterator[None]:
    """A compiler that is not installed is a diagnostic."""
    try:
        yield
    except ToolMissingError as e:
        raise SpecError([Diagnostic("E073", str(e), _REQUEST)]) from None


def request_fault(what: str, found: str, expected: Sequence[str]) -> Diagnostic:
    """A diagnostic about the request itself, which stands in no file."""
    return Diagnostic("E053", f"no {what} has this name", _REQUEST, found[:80], f"one of: {', '.join(expected)}")


def _not_built(request: CompileRequest, backend: Backend) -> Diagnostic:
    message = f"the backend {request.backend} builds no {request.emit[:80]}"
    builds = f"one of: {', '.join(backend.emits)}"
    others = [name for name in registry.names() if request.emit in registry.get(name).emits]
    mend = f"take the backend {' or '.join(others)}, or another form" if others else None
    return Diagnostic("E053", message, _REQUEST, request.emit[:80], builds, mend)


def _key(request: CompileRequest, loaded: LoadedSpec) -> str:
    backend = backend_named(request.backend)
    if request.emit not in backend.emits:
        raise SpecError([_not_built(request, backend)])
    _require_architecture(backend, request.arch)
    inputs = {
        "schema": SCHEMA,
        "spec": loader.canonical(loaded.spec),
        "versions": [IR_VERSION, backend.version],
        "backend": request.backend,
        "emit": request.emit,
        "options": list(backend.options(request.emit)),
        "arch": request.arch,
        "compiler": backend.compiler(),
    }
    files = {n: _digest(loaded, n) for n, t in (loaded.spec.tables or {}).items() if t.file is not None}
    if files:  # a file's name says nothing of what is in it
        inputs["tables"] = files
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(loaded: LoadedSpec, table: str) -> str:
    """SHA-256 of a table's elements as 64-bit integers, lowest byte first."""
    import numpy as np  # only where there are tables

    return hashlib.sha256(np.ascontiguousarray(loaded.tables[table], dtype="<i8").tobytes()).hexdigest()


def _refused(loaded: LoadedSpec, backend: str, error: BackendError) -> SpecError:
    return loaded.error("E071", (), f"{backend} refused the generated source", found=error.log[:2000])


def _manifest(
    request: CompileRequest,
    key: str,
    blob: bytes,
    checked: Checked,
    program: Program,
    backend: Backend,
    resources: registry.Resources | None,
) -> dict[str, JSON]:
    """What is needed to load and launch the artifact. Formulas are in the language of specs, over the parameters."""
    schedule = checked.schedule
    size, source = schedule.worker_ctas, program.source(request.arch)
    pointer = {"bits": 64, "size": 8}
    coordinates = program.coord_type
    parameters: list[dict[str, Any]] = [
        {"name": "tiles", "type": f"{coordinates.name}*", "role": "output", **pointer},
        {"name": "counts", "type": "u64*", "role": "output", **pointer},
        {"name": "capacity", "type": "u64", "role": "trace", "bits": 64, "size": 8},
        {"name": "first", "type": "u32", "role": "trace", "bits": 32, "size": 4},
        {"name": "ctas", "type": "u32", "role": "trace", "bits": 32, "size": 4},
    ]
    for p in schedule.params:
        bits = p.var.dtype.bits
        parameters.append(
            {"name": p.name, "type": p.var.dtype.name, "role": "parameter", "bits": bits, "size": bits // 8,
             "min": p.var.lo, "max": p.var.hi}
        )  # fmt: skip
    for table in schedule.tables:
        at = {"length": to_text(table.length), "min": table.lo, "max": table.hi}
        if table.given:
            at["sha256"] = _digest(checked.loaded, table.name)
        parameters.append({"name": table.name, "type": f"{table.element.name}*", "role": "table", **pointer, **at})
    if source == "counter" or (schedule.dispatch.queue and schedule.dispatch.ring is None):
        element = "u32" if source == "counter" else "u64"
        parameters.append({"name": "counter", "type": f"{element}*", "role": "counter", **pointer})
    workers = schedule.dispatch.workers
    if source == "counter":  # any number, as under `dynamic`
        workers = schedule.graph.var(WORKERS, 1, GRID_LIMIT // size)
    offset = 0
    for k, parameter in enumerate(parameters):
        offset = -(-offset // parameter["size"]) * parameter["size"]
        parameter["order"], parameter["offset"] = k, offset
        offset += parameter["size"]
    if resources is not None and tuple((p["offset"], p["size"]) for p in parameters) != resources.offsets:
        raise AssertionError(f"the cubin's parameters are {resources.offsets}, the manifest's {parameters}")
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "key": key,
        "digest": hashlib.sha256(blob).hexdigest(),
        "bytes": len(blob),
        "name": schedule.name,
        "emit": request.emit,
        "backend": request.backend,
        "arch": request.arch,
        "entry": program.entry,
        "parameters": parameters,
        "launch": {
            "grid": [_times(workers, size), "1", "1"],
            "cluster": [size, 1, 1],
            "block": [program.block, 1, 1],
            "unit": "CTA",
            "workers": to_text(workers),
            "dynamic_shared_bytes": 0,
            "co_resident": False,
        },
        "resources": None if resources is None else {
            "registers": resources.registers,
            "static_shared_bytes": resources.static_shared_bytes,
            "local_bytes": resources.local_bytes,
        },
        "schedule": describe(checked),
        "versions": {
            "sched_compiler": product_version(),
            "ir": IR_VERSION,
            "emitter": backend.version,
            "compiler": backend.compiler(),
        },
    }  # fmt: skip
    return manifest


def _times(workers: Expr, size: int) -> str:
    """The number of CTAs along x, in the language of specs."""
    return to_text(workers) if size == 1 else to_text(workers * size)


def capabilities() -> dict[str, Any]:
    """What this installation can compile for, asked of its compilers."""
    found: dict[str, Any] = {}
    for name in registry.names():
        backend = registry.get(name)
        found[name] = {
            "architectures": list(backend.architectures()),
            "emits": list(backend.emits),
            "compiler": backend.compiler(),
        }
    return {"version": product_version(), "backends": found, "emits": list(get_args(Emit))}


def warm_up() -> None:
    """Load what the first compile would load: every backend, and its compiler."""
    text = "{version: 1, name: warm-up, space: {m: 1}, dispatch: {single: {}}}"
    for name in registry.names():
        compile_spec(CompileRequest(text, "<warm-up>", registry.get(name).architectures()[-1], name))
    check(text.replace("dispatch", "map: {m: i}, dispatch"), "<warm-up>")  # with NumPy
