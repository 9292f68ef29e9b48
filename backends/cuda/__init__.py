"""CUDA C++: a header for any kernel and the trace kernel, compiled by NVRTC."""

from __future__ import annotations

from backends.cuda import emitter, validator
from backends.cuda.sources import CudaSources
from backends.toolchain import nvjitlink, nvrtc, nvshmem
from backends.toolchain.resources import resources
from sched_compiler.artifact import LIBRARIES, Emit
from sched_compiler.program import Program
from sched_compiler.registry import Resources, SourceCompiler


def _asks_nvshmem(program: Program) -> bool:
    return any(p.nvshmem for p in program.schedule.params)


class CudaBackend:
    """See `sched_compiler.registry.Backend`."""

    name = "cuda"
    version = emitter.VERSION
    forms = ("cuda", "header", "declarations", "validator")
    emits: tuple[Emit, ...] = ("cubin", "ptx", "header", "ltoir", "object")

    sources: SourceCompiler | None = CudaSources()

    def text(self, program: Program, form: str, arch: str) -> str:
        if form == "cuda":
            return emitter.trace_source(program, program.source(arch))
        printers = {"header": emitter.header, "declarations": emitter.declarations, "validator": validator.validator}
        return printers[form](program)

    def build(self, program: Program, arch: str, emit: Emit) -> bytes:
        if emit == "header":
            return emitter.header(program).encode()
        if emit == "ltoir" or emit == "object":
            return nvrtc.compile_library(emitter.library(program), f"{program.identifier}.cu", arch, emit).blob
        source, name = self.text(program, "cuda", arch), f"{program.entry}.cu"
        if _asks_nvshmem(program):
            compiled = nvrtc.compile_object(source, name, arch, nvshmem.folders())
            return nvjitlink.link(compiled.blob, nvshmem.library().path.read_bytes(), arch).blob
        return nvrtc.compile(source, name, arch, emit).blob

    def resources(self, cubin: bytes, entry: str) -> Resources:
        return resources(cubin, entry)

    def architectures(self) -> tuple[str, ...]:
        return nvrtc.architectures()

    def supports(self, arch: str) -> bool:
        return nvrtc.supports(arch)

    def compiler(self) -> str:
        return f"nvrtc {nvrtc.version()}"

    def nvshmem(self, emit: Emit) -> str | None:
        if emit in ("header", *LIBRARIES):  # which gets the value from the kernel around it
            return ""
        return nvshmem.version() if emit == "cubin" else None

    def options(self, emit: Emit) -> tuple[str, ...]:
        return (*nvrtc.OPTIONS, *(nvrtc.LINKED_OPTIONS[emit] if emit == "ltoir" or emit == "object" else ()))
