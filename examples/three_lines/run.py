"""The plain kernel beside the scheduled one, on a device: `run.py [M N K]`, by default 8192 8192 4096.

Checks both against NumPy at a small size first. Needs CuPy, and the product's extra `gpu`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from backends.toolchain import nvrtc
from sched_compiler import CompileRequest, compile_spec, load

HERE = Path(__file__).resolve().parent
TILE = 128


def plain(arch: str) -> Callable[..., None]:
    """The plain kernel, which any loader launches: one block for each tile."""
    cubin = nvrtc.compile((HERE / "plain.cu").read_text(), "plain.cu", arch, "cubin").blob
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        function = cupy.RawModule(path=file.name).get_function("gemm")

    def multiply(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        grid = (-(-n // TILE), -(-m // TILE))
        function(grid, (256,), (a, b, c, np.int32(m), np.int32(n), np.int32(k)))

    return multiply


def scheduled(arch: str) -> Callable[..., None]:
    """The scheduled kernel: as many blocks as run at the same time, each of which takes tile after tile."""
    spec = HERE / "gemm.yaml"
    kernel = load(compile_spec(CompileRequest(spec.read_text(), str(spec), arch, "cuda", "cubin", directory=str(HERE))))
    workers = 2 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def multiply(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        kernel(A=a, B=b, C=c, M=m, N=n, K=k, workers=workers)

    return multiply


def milliseconds(work: Callable[[], None]) -> float:
    """The fastest of some repetitions."""
    times = []
    for _ in range(10):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return float(min(times))


def main() -> int:
    m, n, k = (int(a) for a in sys.argv[1:]) if len(sys.argv) > 1 else (8192, 8192, 4096)
    capability = cupy.cuda.Device().compute_capability
    arch = f"sm_{capability}{'a' if int(capability) >= 90 else ''}"
    for name, multiply in (("plain", plain(arch)), ("scheduled", scheduled(arch))):
        a, b = cupy.random.standard_normal((2, 300, 300), dtype=np.float32)
        c = cupy.full((300, 300), np.nan, dtype=np.float32)
        multiply(a, b, c, 300, 300, 300)
        np.testing.assert_allclose(c.get(), a.get().astype(np.float64) @ b.get(), rtol=1e-3, atol=1e-3)
        a = cupy.random.standard_normal((m, k), dtype=np.float32)
        b = cupy.random.standard_normal((k, n), dtype=np.float32)
        c = cupy.empty((m, n), dtype=np.float32)
        took = milliseconds(lambda a=a, b=b, c=c, f=multiply: f(a, b, c, m, n, k))  # type: ignore[misc]
        print(f"{name:<10} {m} x {n} x {k}: {took:7.2f} ms, {2 * m * n * k / took / 1e9:6.1f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
