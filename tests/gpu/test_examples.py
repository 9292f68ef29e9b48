"""On a device: the examples' kernels on shapes that fill their tiles or do not, against sums in double precision.

Operands are small integers, so that sums are exact in any order and results are right to the last bit; random ones
besides, whose results must be the same bits under every dispatch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.launch import Device
from sched_compiler import load, triples
from sched_compiler.registry import ToolMissingError
from tests.support import examples

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPES = [
    (1, 1, 1), (128, 256, 64), (300, 517, 200), (1000, 777, 333), (129, 2049, 72), (128, 256, 0), (0, 256, 64),
    (256, 0, 64), (2500, 3000, 520),
]  # fmt: skip


@pytest.fixture(scope="module")
def torch(device: Device) -> Any:
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not found.cuda.is_available():
        pytest.skip("PyTorch sees no device")
    return found


def kernel(name: str, device: Device, dispatch: Any = None) -> Any:
    return load(examples.built(EXAMPLES / f"{name}.yaml", device.arch, dispatch))


def integers(torch: Any, rows: int, columns: int, kind: Any, seed: int) -> Any:
    chance = np.random.default_rng(seed)
    return torch.from_numpy(chance.integers(-4, 5, (rows, columns)).astype(np.float32)).cuda().to(kind)


@pytest.mark.parametrize("dispatch", [None, {"dynamic": {"workers": "grid"}}, "single"], ids=str)
@pytest.mark.parametrize("workers", [None, 1, 7])
def test_three_lines(dispatch: Any, workers: int | None, device: Device, torch: Any) -> None:
    multiply = kernel("three_lines/gemm", device, dispatch)
    for m, n, k in SHAPES:
        a, b = integers(torch, m, k, torch.float32, 1), integers(torch, k, n, torch.float32, 2)
        c = torch.full((m, n), torch.nan, device="cuda")
        given = {} if workers is None or dispatch == "single" else {"workers": workers}
        multiply(A=a, B=b, C=c, M=m, N=n, K=k, **given)
        torch.cuda.synchronize()
        np.testing.assert_array_equal(c.cpu().numpy(), (a.double() @ b.double()).cpu().numpy())


def product(torch: Any, multiply: Any, name: str, a: Any, b: Any, workers: int | None = None) -> Any:
    (m, k), n = a.shape, b.shape[0]
    c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)
    given: dict[str, Any] = {} if workers is None else {"workers": workers}
    if name == "table":
        ranges = workers or torch.cuda.get_device_properties().multi_processor_count
        items = -(-m // 128) * -(-n // 256)
        given = {"ranges": ranges, "ends": np.arange(ranges + 1) * items // ranges}
    multiply(A=a, B=b, C=c, M=m, N=n, K=k, **given)
    torch.cuda.synchronize()
    return c


@pytest.mark.parametrize("workers", [None, 1, 7])
@pytest.mark.parametrize("name", ["gemm", "dynamic", "table", "small_shared", "clc"])
def test_tensor_cores(name: str, workers: int | None, device: Device, torch: Any) -> None:
    if name == "clc" and not device.arch.endswith("a"):
        pytest.skip("clusters need sm_90 or later")
    multiply = kernel(f"tensor_cores/{name}", device)
    if name == "clc" and device.arch != "sm_90a" and workers is not None:
        pytest.skip("the hardware's queue has a cluster for each item")
    first = kernel("tensor_cores/gemm", device)
    for m, n, k in SHAPES:
        a, b = integers(torch, m, k, torch.bfloat16, 1), integers(torch, n, k, torch.bfloat16, 2)
        want = (a.double() @ b.double().T).to(torch.bfloat16)
        assert torch.equal(product(torch, multiply, name, a, b, workers), want), (m, n, k)
        a, b = (torch.randn((rows, k), device="cuda", dtype=torch.bfloat16) for rows in (m, n))
        got = product(torch, multiply, name, a, b, workers)
        torch.testing.assert_close(got.double(), a.double() @ b.double().T, rtol=2**-8, atol=2e-2)
        assert torch.equal(got, product(torch, first, "gemm", a, b)), (m, n, k)


def test_tensor_cores_take_operands_at_any_address(device: Device, torch: Any) -> None:
    multiply, m, n, k = kernel("tensor_cores/gemm", device), 200, 300, 136
    a, b = integers(torch, m, k, torch.bfloat16, 1), integers(torch, n, k, torch.bfloat16, 2)
    for shift in (1, 2, 4, 8):
        c = torch.full((m * n + shift,), torch.nan, device="cuda", dtype=torch.bfloat16)[shift:].view(m, n)
        moved = torch.empty((m * k + shift,), device="cuda", dtype=torch.bfloat16)[shift:].view(m, k)
        moved.copy_(a)
        multiply(A=moved, B=b, C=c, M=m, N=n, K=k)
        torch.cuda.synchronize()
        assert torch.equal(c, (a.double() @ b.double().T).to(torch.bfloat16)), shift


@pytest.mark.parametrize("lengths", [[], [0], [1], [1000, 0, 17, 4096, 64, 65], [0] * 50 + [5] * 50], ids=len)
@pytest.mark.parametrize("workers", [1, 132])
def test_ragged_batches(lengths: list[int], workers: int, device: Device, torch: Any) -> None:
    heads, dim, rows = 3, 100, sum(lengths)
    keys = integers(torch, rows, heads * dim, torch.float32, 1).view(rows, heads, dim)
    queries = integers(torch, len(lengths), heads * dim, torch.float32, 2).view(len(lengths), heads, dim)
    scores = torch.full((rows, heads), torch.nan, device="cuda")
    begins = torch.from_numpy(np.cumsum([0, *lengths]).astype(np.int32)).cuda()
    tables = triples(lengths, heads, 64, workers)
    kernel("ragged_batches/scores", device)(
        keys=keys, queries=queries, scores=scores, begins=begins, heads=heads, dim=dim,
        num_items=len(tables["b_indices"]), num_workers=workers, **tables,
    )  # fmt: skip
    torch.cuda.synchronize()
    batch = np.repeat(np.arange(len(lengths)), lengths)
    want = (keys.double().cpu().numpy() * queries.double().cpu().numpy()[batch]).sum(axis=2)
    np.testing.assert_array_equal(scores.cpu().numpy(), want)


def test_cute(device: Device, torch: Any) -> None:
    try:
        multiply = kernel("cute/gemm", device)
    except ToolMissingError as e:
        pytest.skip(str(e))
    for m, n, k in SHAPES:
        k = -(-k // 8) * 8  # rows are copied 16 bytes at a time
        a, b = integers(torch, m, k, torch.bfloat16, 1), integers(torch, n, k, torch.bfloat16, 2)
        want = (a.double() @ b.double().T).to(torch.bfloat16)
        assert torch.equal(product(torch, multiply, "cute", a, b), want), (m, n, k)
