"""CUDA C++: a header for any kernel and the trace kernel, compiled by NVRTC."""

from __future__ import annotations

from backends.cuda import emitter, validator
from backends.toolchain import nvrtc
from backends.toolchain.resources import resources
from sched_compiler.artifact import Emit
from sched_compiler.program import Program
from sched_compiler.registry import Resources


class CudaBackend:
    """See `sched_compiler.registry.Backend`."""

    name = "cuda"
    version = emitter.VERSION
    forms = ("cuda", "header", "validator")
    emits: tuple[Emit, ...] = ("cubin", "ptx", "header")

    def text(self, program: Program, form: str, arch: str) -> str:
        if form == "cuda":
            return emitter.trace_source(program, program.source(arch))
        return emitter.header(program) if form == "header" else validator.validator(program)

    def build(self, program: Program, arch: str, emit: Emit) -> bytes:
        if emit == "header":
            return emitter.header(program).encode()
        return nvrtc.compile(self.text(program, "cuda", arch), f"{program.entry}.cu", arch, emit).blob

    def resources(self, cubin: bytes, entry: str) -> Resources:
        return resources(cubin, entry)

    def architectures(self) -> tuple[str, ...]:
        return nvrtc.architectures()

    def supports(self, arch: str) -> bool:
        return nvrtc.supports(arch)

    def compiler(self) -> str:
        return f"nvrtc {nvrtc.version()}"

    def options(self, emit: Emit) -> tuple[str, ...]:
        return nvrtc.OPTIONS
