"""PTX printed directly from the expressions and assembled by nvJitLink: no C++ compiler in the way."""

from __future__ import annotations

from backends.ptx import emitter
from backends.toolchain import nvjitlink
from backends.toolchain.resources import resources
from sched_compiler.artifact import Emit
from sched_compiler.program import Program
from sched_compiler.registry import Resources


class PtxBackend:
    """See `sched_compiler.registry.Backend`."""

    name = "ptx"
    version = emitter.VERSION
    forms = ("ptx",)
    emits: tuple[Emit, ...] = ("cubin", "ptx")

    sources = None

    def text(self, program: Program, form: str, arch: str) -> str:
        return emitter.source(program, arch, nvjitlink.ptx_version(arch))

    def build(self, program: Program, arch: str, emit: Emit) -> bytes:
        if emit == "ptx":
            return self.text(program, "ptx", arch).encode()
        return nvjitlink.assemble(emitter.kernel_module(program, arch, nvjitlink.ptx_version(arch)), arch).blob

    def resources(self, cubin: bytes, entry: str) -> Resources:
        return resources(cubin, entry)

    def architectures(self) -> tuple[str, ...]:
        from backends.toolchain import nvrtc

        # nvJitLink cannot be asked for a list; NVRTC of the same release knows the names
        return tuple(arch for arch in nvrtc.architectures() if nvjitlink.supports(arch))

    def supports(self, arch: str) -> bool:
        return nvjitlink.supports(arch)

    def compiler(self) -> str:
        return f"nvjitlink {nvjitlink.version()}"

    def nvshmem(self, emit: Emit) -> str | None:
        return None  # its headers are C++

    def options(self, emit: Emit) -> tuple[str, ...]:
        return nvjitlink.OPTIONS if emit == "cubin" else ()
