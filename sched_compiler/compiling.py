"""A spec compiled: the key that names what it gives, the build, the manifest.

Every function raises SpecError, and nothing else, for what a user can get wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sched_compiler import loader, registry
from sched_compiler.artifact import LIBRARIES, Artifact, Emit, product_version
from sched_compiler.build import MOST_SHARED
from sched_compiler.checking import Checked, check, prove
from sched_compiler.diagnostics import Diagnostic, Span, SpecError
from sched_compiler.dispatch import CLUSTERS, HARDWARE_QUEUE, ClusterLaunchControl
from sched_compiler.files import Files, normal
from sched_compiler.loader import LoadedSpec
from sched_compiler.manifest import (
    SCHEMA,
    kernel_parameters,
    manifest,
    misplaced,
    of_library,
    table_digest,
    trace_parameters,
)
from sched_compiler.program import generation
from sched_compiler.registry import (
    Backend,
    BackendError,
    LimitError,
    Resources,
    SourceCompiler,
    SourceError,
    ToolMissingError,
)
from sched_compiler.spec import Kernel
from sched_compiler.user_kernel import KernelFiles, UserKernel, diagnostics, gather, ready, refused

#: Changed whenever the IR gives other expressions for some spec.
IR_VERSION = "6"

#: The place of what stands in no file.
_REQUEST = Span("<request>", 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What to compile: the spec's text, and what it is to become.

    Files that the spec names stand in the folder `directory`, or are `files`, texts by path relative to the spec; with
    neither, none is read. Headers of a user's kernel are searched in the folders `include` as well, which are
    beginnings of paths where there are `files`. `confined` compiles a user's source in a sandbox, or not at all.
    """

    text: str
    file: str
    arch: str
    backend: str = "cuda"
    emit: Emit = "cubin"
    directory: str | None = None
    files: Mapping[str, str] | None = None
    include: tuple[str, ...] = ()
    confined: bool = False

    def beside(self) -> Files:
        """Where the files are that the spec names."""
        if self.files is not None:
            return Files(self.files, self.include)
        return Files(None if self.directory is None else Path(self.directory), self.include)

    def load(self) -> LoadedSpec:
        """The loaded spec. Raises SpecError."""
        return loader.load(self.text, self.file, self.beside().beside)


def artifact_key(request: CompileRequest) -> str:
    """The name of what `request` gives: 64 hexadecimal digits. Raises SpecError."""
    with tools():
        loaded = request.load()
        return _key(request, loaded, _gathered(request, loaded))


def compile_spec(request: CompileRequest) -> Artifact:
    """Compile a spec. Raises SpecError."""
    with tools():
        loaded = request.load()
        gathered = _gathered(request, loaded)
        key = _key(request, loaded, gathered)
        checked = prove(loaded)
        require_hardware(checked, request.arch, request.emit)
        if gathered is None:
            return _trace_kernel(request, key, checked)
        return _user_kernel(request, key, checked, gathered)


def _trace_kernel(request: CompileRequest, key: str, checked: Checked) -> Artifact:
    backend, program = backend_named(request.backend), checked.program
    try:
        blob = backend.build(program, request.arch, request.emit)
        resources = backend.resources(blob, program.entry) if request.emit == "cubin" else None
    except BackendError as e:
        raise backend_refused(checked.loaded, request.backend, e) from None
    if resources is not None and any(misplaced(trace_parameters(checked, request.arch), resources)):
        raise AssertionError(f"the cubin's parameters are {resources.offsets}, not the manifest's")
    versions = _versions(request, checked.loaded, backend)
    about = manifest(checked, request.arch, request.emit, key, blob, program.entry, versions, resources)
    if request.emit in LIBRARIES:
        declared = backend.text(program, "declarations", request.arch)
        about |= of_library(declared)
    return Artifact(key, request.emit, blob, about, files=_read(request, checked.loaded, None))


# -- kernels of users' own ------------------------------------------------------------------------------------


def _gathered(request: CompileRequest, loaded: LoadedSpec) -> KernelFiles | None:
    """The files of a user's kernel, where the artifact is made of them. Raises SpecError."""
    if not isinstance(loaded.spec.kernel, Kernel) or request.emit in ("header", *LIBRARIES):
        return None
    return gather(loaded, request.beside(), _source_compiler(request, loaded))


def _source_compiler(request: CompileRequest, loaded: LoadedSpec) -> SourceCompiler:
    compiler = backend_named(request.backend).sources
    if compiler is None:
        able = [name for name in registry.names() if registry.get(name).sources is not None]
        raise loaded.error(
            "E053", ("kernel", "source"), f"the backend {request.backend} compiles no sources", found=request.backend,
            expected=f"one of: {', '.join(able)}",
        )  # fmt: skip
    if request.emit not in compiler.emits:
        message, expected = f"a kernel of your own becomes no {request.emit}", f"one of: {', '.join(compiler.emits)}"
        raise loaded.error("E053", ("kernel",), message, found=request.emit, expected=expected)
    return compiler


def _user_kernel(request: CompileRequest, key: str, checked: Checked, gathered: KernelFiles) -> Artifact:
    backend, compiler = backend_named(request.backend), _source_compiler(request, checked.loaded)
    kernel = ready(gathered, checked, compiler)
    for other in kernel.others:
        require_hardware(other, request.arch, request.emit)
    if request.confined and (reason := compiler.sandbox()) is not None:
        raise checked.loaded.error("E077", ("kernel", "source"), "no sources are compiled here", found=reason)
    try:
        built = compiler.build(kernel.source, request.arch, request.emit, request.confined)
    except SourceError as e:
        raise refused(kernel, e.log, e.messages) from None
    except LimitError as e:
        raise checked.loaded.error(
            "E072", ("kernel", "source"), "the source does not compile within the limits", found=str(e)
        ) from None
    resources = backend.resources(built.blob, built.entry) if request.emit == "cubin" else None
    if resources is not None:
        _require_arguments(kernel, request.arch, resources)
        _require_launch(kernel, resources)
    versions = _versions(request, checked.loaded, backend)
    if kernel.source.bundles:
        versions["headers"] = ", ".join(compiler.versions(kernel.source.bundles))
    about = manifest(checked, request.arch, request.emit, key, built.blob, built.entry, versions, resources, kernel)
    warnings, files = tuple(diagnostics(kernel, built.messages)), _read(request, checked.loaded, gathered)
    return Artifact(key, request.emit, built.blob, about, warnings, files)


def _require_arguments(kernel: UserKernel, arch: str, resources: Resources) -> None:
    """Refuse arguments that are not the compiled kernel's parameters. Raises SpecError."""
    parameters = kernel_parameters(kernel, arch)
    wrong = next(misplaced(parameters, resources), None)
    if wrong is None:
        return
    loaded, there = kernel.own.loaded, len(resources.offsets)
    if there != len(parameters):
        raise loaded.error(
            "E076", ("kernel", "arguments"), f"{kernel.spec.entry} has another number of parameters",
            found=f"{len(parameters)} arguments in the spec, {there} in the source",
            expected="one for each parameter of the kernel, in order",
        )  # fmt: skip
    parameter, (offset, size) = parameters[wrong], resources.offsets[wrong]
    raise loaded.error(
        "E076", ("kernel", "arguments", parameter["name"]),
        f"the parameter at this place of {kernel.spec.entry} is another",
        found=f"{parameter['type']}: {parameter['size']} bytes at offset {parameter['offset']}",
        expected=f"{size} bytes at offset {offset}, as compiled",
    )  # fmt: skip


def _require_launch(kernel: UserKernel, resources: Resources) -> None:
    """Refuse a launch that is not the one that the kernel is compiled for. Raises SpecError."""
    loaded, block, size = kernel.own.loaded, kernel.spec.block, kernel.own.schedule.worker_ctas
    threads = block[0] * block[1] * block[2]
    if resources.cluster not in (None, (size, 1, 1)):
        raise loaded.error(
            "E076", ("kernel", "entry"), f"{kernel.spec.entry} is compiled for clusters of another shape",
            found=f"__cluster_dims__{resources.cluster}", expected=f"{size} CTAs along x, as the schedule has them",
        )  # fmt: skip
    if resources.required_threads not in (None, block) or threads > (resources.most_threads or threads):
        most = resources.required_threads or f"at most {resources.most_threads} threads"
        raise loaded.error(
            "E076", ("kernel", "block"), f"{kernel.spec.entry} is compiled for another block",
            found=f"{threads} threads", expected=f"{most}, as the source says",
        )  # fmt: skip
    shared = kernel.shared_bytes.lo + resources.static_shared_bytes
    if shared > MOST_SHARED:
        raise loaded.error(
            "E052", ("kernel", "shared_bytes"), "no architecture has so much shared memory for a CTA",
            found=f"{shared} bytes, {resources.static_shared_bytes} of them static", expected=f"at most {MOST_SHARED}",
        )  # fmt: skip


def files_of(request: CompileRequest, loaded: LoadedSpec) -> tuple[dict[str, str], tuple[str, ...]]:
    """What an artifact is made of besides its spec. Raises SpecError.

    First the texts of a user's kernel, by the paths under which a service takes them; then the files of this machine.
    """
    with tools():
        gathered = _gathered(request, loaded)
    texts: dict[str, str] = {}
    if gathered is not None:
        texts = {normal(name): gathered.files.text(normal(name)) for name in gathered.spec.schedules or ()}
        texts |= gathered.texts
    return texts, _read(request, loaded, gathered)


def _read(request: CompileRequest, loaded: LoadedSpec, gathered: KernelFiles | None) -> tuple[str, ...]:
    """The files of this machine that took part, besides the spec."""
    if request.directory is None or request.files is not None:
        return ()
    read = {Path(request.directory) / t.file for t in (loaded.spec.tables or {}).values() if t.file is not None}
    if gathered is not None:
        read |= {gathered.files.place(path) for path in gathered.texts}
        for name, other in zip(gathered.spec.schedules or (), gathered.others, strict=True):
            path = gathered.files.place(name)
            read |= {path, *(path.parent / t.file for t in (other.spec.tables or {}).values() if t.file is not None)}
    return tuple(sorted(map(str, read)))


# -- keys and versions ----------------------------------------------------------------------------------------


def _key(request: CompileRequest, loaded: LoadedSpec, gathered: KernelFiles | None) -> str:
    backend = backend_named(request.backend)
    if request.emit not in backend.emits:
        raise SpecError([_not_built(request, backend)])
    require_architecture(backend, request.arch)
    inputs: dict[str, Any] = {
        "schema": SCHEMA,
        "spec": loader.canonical(loaded.spec),
        "versions": [IR_VERSION, backend.version],
        "backend": request.backend,
        "emit": request.emit,
        "options": list(backend.options(request.emit)),
        "arch": request.arch,
        "compiler": backend.compiler(),
    }
    asking = asks_nvshmem(loaded)
    if asking is not None and gathered is None:
        build = backend.nvshmem(request.emit)
        if build is None:
            raise loaded.error(
                "E053", ("params", asking, "source"), f"{request.backend} cannot ask NVSHMEM in a {request.emit}",
                found=f"{asking} comes from nvshmem", expected="backend cuda, and a cubin, a header or a library",
            )  # fmt: skip
        inputs["nvshmem"] = build
    if files := _tables_in_files(loaded):  # a file's name says nothing of what is in it
        inputs["tables"] = files
    if gathered is not None:
        compiler = _source_compiler(request, loaded)
        inputs["files"] = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in gathered.texts.items()}
        inputs["headers"] = list(compiler.versions(gathered.spec.headers or ()))
        inputs["schedules"] = [[loader.canonical(other.spec), _tables_in_files(other)] for other in gathered.others]
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _tables_in_files(loaded: LoadedSpec) -> dict[str, str]:
    return {n: table_digest(loaded, n) for n, t in (loaded.spec.tables or {}).items() if t.file is not None}


def _versions(request: CompileRequest, loaded: LoadedSpec, backend: Backend) -> dict[str, str]:
    found = {"backend": request.backend, "ir": IR_VERSION, "emitter": backend.version, "compiler": backend.compiler()}
    if asks_nvshmem(loaded):
        found["nvshmem"] = backend.nvshmem(request.emit) or ""
    return found


def asks_nvshmem(loaded: LoadedSpec) -> str | None:
    """The first parameter that the kernel asks NVSHMEM for."""
    return next((name for name, p in loaded.spec.params.items() if p.source is not None), None)


def backend_named(name: str) -> Backend:
    """The backend called `name`. Raises SpecError where there is none."""
    try:
        return registry.get(name)
    except KeyError:
        raise SpecError([request_fault("backend", name, registry.names())]) from None


def require_architecture(backend: Backend, arch: str) -> None:
    """Refuse an architecture that the backend's compiler does not know. Raises SpecError."""
    if not re.fullmatch(r"sm_[0-9]{2,3}[a-z]?", arch, re.ASCII) or not backend.supports(arch):
        raise SpecError([request_fault("architecture", arch, backend.architectures())])


def supports(checked: Checked, arch: str) -> bool:
    """Whether the kernels of a spec run on `arch`, as far as its dispatch goes."""
    return _missing_hardware(checked, arch) is None


def require_hardware(checked: Checked, arch: str, form: str) -> None:
    """Refuse an architecture that cannot do what the dispatch needs. Raises SpecError.

    A header is for every architecture; it refuses by itself where it is included.
    """
    missing = _missing_hardware(checked, arch)
    ring = checked.schedule.dispatch.ring is not None
    if missing is not None and form not in ("header", "declarations", "validator", *(() if ring else ("cuda",))):
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
def tools() -> Iterator[None]:
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


def backend_refused(loaded: LoadedSpec, backend: str, error: BackendError) -> SpecError:
    return loaded.error("E071", (), f"{backend} refused the generated source", found=error.log[:2000])


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
    return {"version": product_version(), "backends": found, "emits": list(get_args(Emit)), "sources": _sources()}


def _sources() -> dict[str, Any]:
    """Whether kernels of users' own are compiled in a sandbox, why not, and with which bundles of headers."""
    compilers = [c for name in registry.names() if (c := registry.get(name).sources) is not None]
    headers: dict[str, Any] = {}
    for compiler in compilers:
        for bundle in compiler.bundles:
            try:
                headers[bundle] = list(compiler.versions([bundle]))
            except ToolMissingError as e:
                headers[bundle] = str(e)
    reason = compilers[0].sandbox() if compilers else "no backend compiles sources"
    return {"compiled": reason is None, "reason": reason, "headers": headers}


def warm_up() -> None:
    """Load what the first compile would load: every backend, and its compiler."""
    text = "{version: 1, name: warm-up, space: {m: 1}, dispatch: {single: {}}}"
    for name in registry.names():
        compile_spec(CompileRequest(text, "<warm-up>", registry.get(name).architectures()[-1], name))
    check(text.replace("dispatch", "map: {m: i}, dispatch"), "<warm-up>")  # with NumPy
