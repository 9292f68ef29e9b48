"""On a device: the example kernel, whose tile loop is the generated header, multiplies matrices right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.launch import Device

EXAMPLE = Path(__file__).parents[2] / "examples" / "user_kernel"
BLOCK = (32, 32, 1)


def built(arch: str) -> bytes:
    spec = importlib.util.spec_from_file_location("user_kernel_build", EXAMPLE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cubin: bytes = module.build(arch)
    return cubin


@pytest.mark.parametrize("blocks", [1, 7, 132, 500])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(32, 32, 32), (1, 1, 1), (31, 65, 17), (257, 129, 100), (640, 480, 96), (1000, 33, 5)]
)
def test_every_element_is_right(m: int, n: int, k: int, blocks: int, device: Device) -> None:
    random = np.random.default_rng(m * n * k + blocks)
    a = random.integers(-4, 5, (m, k)).astype(np.float32)  # small integers: sums are exact in any order
    b = random.integers(-4, 5, (k, n)).astype(np.float32)
    c = np.full((m, n), np.nan, dtype=np.float32)
    with device.kernel(built(device.arch), "gemm") as gemm:
        gemm(blocks, BLOCK, [a, b, c, (m, "u32"), (n, "u32"), (k, "u32")])
    np.testing.assert_array_equal(c, a @ b)
