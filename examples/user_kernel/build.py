"""Compiles kernel.cu with the schedule of gemm.yaml: `build.py [ARCH [FILE]]`, by default gemm.sm_90a.cubin.

NVRTC reads no files here, so the header goes where the kernel includes it. A build with nvcc needs no script:

    schedc emit gemm.yaml --to header -o schedule.cuh
    nvcc -cubin -arch=sm_90a -o gemm.cubin kernel.cu
"""

from __future__ import annotations

import sys
from pathlib import Path

from backends.toolchain import nvrtc
from backends.toolchain.errors import ToolchainError
from sched_compiler import SpecError, check, emit_text

HERE = Path(__file__).resolve().parent
INCLUDE = '#include "schedule.cuh"\n'


def build(arch: str) -> bytes:
    """The cubin. Raises SpecError unless the schedule is proven, ToolchainError where NVRTC refuses the kernel."""
    spec, kernel = HERE / "gemm.yaml", HERE / "kernel.cu"
    header = emit_text(check(spec.read_text(encoding="utf-8"), spec.name), "header", arch)
    source = kernel.read_text(encoding="utf-8").replace(INCLUDE, header.replace("#pragma once\n", ""), 1)
    return nvrtc.compile(source, kernel.name, arch, "cubin").blob


def main() -> int:
    arch = sys.argv[1] if len(sys.argv) > 1 else "sm_90a"
    output = Path(sys.argv[2] if len(sys.argv) > 2 else f"gemm.{arch}.cubin")
    try:
        cubin = build(arch)
    except (SpecError, ToolchainError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    output.write_bytes(cubin)
    print(f"{output}: {len(cubin)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
