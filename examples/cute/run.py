"""The CuTe GEMM on a device: `run.py [M N K]`, by default 8192 8192 4096.

Checks a ragged size against a product in double precision, then measures. Needs PyTorch, and the product's extra `gpu`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sched_compiler import CompileRequest, compile_spec, load

HERE = Path(__file__).resolve().parent


def compiled() -> Any:
    """The kernel, for the first device."""
    spec = HERE / "gemm.yaml"
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    return load(compile_spec(CompileRequest(spec.read_text(), str(spec), arch, "cuda", "cubin", directory=str(HERE))))


def multiply(kernel: Any, a: Any, b: Any) -> Any:
    """A times B transposed."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.bfloat16, device="cuda")
    kernel(A=a, B=b, C=c, M=m, N=n, K=k)
    return c


def main() -> int:
    m, n, k = (int(a) for a in sys.argv[1:]) if len(sys.argv) > 1 else (8192, 8192, 4096)
    kernel = compiled()

    a, b = (torch.randn((rows, 328), device="cuda", dtype=torch.bfloat16) for rows in (1000, 777))
    got, want = multiply(kernel, a, b).double(), a.double() @ b.double().T
    torch.testing.assert_close(got, want, rtol=2**-8, atol=1e-2)

    a, b = (torch.randn((rows, k), device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        multiply(kernel, a, b)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    took = float(np.median(times))
    print(f"{m} x {n} x {k}: {took:.2f} ms, {2 * m * n * k / took / 1e9:.1f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
