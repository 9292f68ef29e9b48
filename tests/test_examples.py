"""The examples run as they stand: the demo against the real service, each kernel for the architectures that it names,
and, but for what only hardware does, on the host."""

from __future__ import annotations

import difflib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.toolchain.cubin import describe
from sched_compiler import triples
from sched_compiler.driver import check_text
from tests.support import examples, kernels
from tests.support.kernels import Array


def _benchmark() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "gemm_orders.py"
    found = importlib.util.spec_from_file_location("gemm_orders", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


gemm_orders = _benchmark()
bf16, wide = gemm_orders.bf16, gemm_orders.wide

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
#: Each spec with a kernel, the architectures that it is for, and the bytes of its kernel's parameters.
MULTIPLY, POINTER_TO_COUNTER = [8, 8, 8, 4, 4, 4], 16
KERNELS: dict[str, tuple[list[str], list[int]]] = {
    "three_lines/gemm": (["sm_80", "sm_90a", "sm_100a", "sm_120a"], [*MULTIPLY, 8]),
    "tensor_cores/gemm": (["sm_90a", "sm_100a"], [*MULTIPLY, 8]),
    "tensor_cores/dynamic": (["sm_90a", "sm_100a"], [*MULTIPLY, POINTER_TO_COUNTER]),
    "tensor_cores/table": (["sm_90a"], [*MULTIPLY, 24]),
    "tensor_cores/clc": (["sm_90a", "sm_100a"], [*MULTIPLY, POINTER_TO_COUNTER]),
    "tensor_cores/small_shared": (["sm_80", "sm_120a"], [*MULTIPLY, 8]),
    "ragged_batches/scores": (["sm_80", "sm_90a", "sm_100a", "sm_120a"], [8, 8, 8, 8, 4, 4, 40]),
    "cute/gemm": (["sm_90a"], [*MULTIPLY, 8]),
}
#: The registers that a thread may have where a block of so many runs at all.
MOST_REGISTERS = 255


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_the_demo_compiles_every_spec_and_ends_well(tmp_path: Path) -> None:
    done = run(sys.executable, str(EXAMPLES / "compile_everything.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    specs = sorted(path.stem for path in (ROOT / "specs").glob("*.yaml"))
    rows = [line.split() for line in done.stdout.splitlines() if re.search(r" sm_\d+", line)]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (spec, backend, arch) for spec in specs for backend in ("cuda", "ptx") for arch in ("sm_90a", "sm_100a")
    ]
    assert all(row[1] == "proven" and int(row[4]) > 0 and int(row[5]) > 0 for row in rows)
    assert done.stdout.endswith("service stopped\n")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_fails_where_the_service_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDC_WORKERS", "none")
    done = run(sys.executable, str(EXAMPLES / "compile_everything.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "the service did not start" in done.stderr


def test_the_example_specs_hold() -> None:
    for path in EXAMPLES.rglob("*.yaml"):
        report = check_text(path.read_text(encoding="utf-8"), str(path), path.parent)
        assert report.ok, report
        assert report.diagnostics == ()


@pytest.mark.parametrize(("name", "arch"), [(name, arch) for name, (archs, _) in KERNELS.items() for arch in archs])
def test_a_kernel_compiles_and_spills_nothing(name: str, arch: str) -> None:
    artifact = examples.built(EXAMPLES / f"{name}.yaml", arch)
    (kernel,) = describe(artifact.blob)
    assert [p.size for p in sorted(kernel.parameters, key=lambda p: p.index)] == KERNELS[name][1]
    assert kernel.local == 0
    assert kernel.registers <= MOST_REGISTERS


def test_three_lines_are_three_lines() -> None:
    folder = EXAMPLES / "three_lines"
    plain, scheduled = ((folder / file).read_text().splitlines() for file in ("plain.cu", "scheduled.cu"))
    differences = [line for line in difflib.ndiff(plain, scheduled) if line[0] in "+-"]
    assert [line[0] for line in differences].count("+") == 3
    told = (folder / "README.md").read_text()
    for line in differences:
        assert f"\n{line[0]}{line[2:]}\n" in told


def test_the_scheduled_kernel_compiles_with_nvcc(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = EXAMPLES / "three_lines"
    (tmp_path / "sched").mkdir()
    (tmp_path / "sched" / "gemm.cuh").write_text(examples.header(folder / "gemm.yaml", "sm_90a"))
    command = ["nvcc", "-cubin", "-arch=sm_90a", "-std=c++17", f"-I{tmp_path}", "-o", "out.cubin"]
    done = run(*command, str(folder / "scheduled.cu"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (kernel,) = describe((tmp_path / "out.cubin").read_bytes())
    assert kernel.entry == "gemm"


# -- on the host -----------------------------------------------------------------------------------------------------

DISPATCHES: dict[str, Any] = {
    "static": {"static": {"workers": "grid"}}, "dynamic": {"dynamic": {"workers": "grid"}}, "single": "single",
}  # fmt: skip


def schedule_of(dispatch: str, m: int, n: int) -> tuple[np.generic | Array, ...]:
    """The schedule's arguments."""
    return (np.uint32(m), np.uint32(n), *([np.zeros(1, np.uint64)] if dispatch == "dynamic" else []))


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_three_lines_multiply(dispatch: str, tmp_path: Path) -> None:
    folder = EXAMPLES / "three_lines"
    header = examples.header(folder / "gemm.yaml", "sm_80", DISPATCHES[dispatch])
    program = kernels.compiled((folder / "scheduled.cu").read_text(), {"sched/gemm.cuh": header}, "gemm", tmp_path)
    for m, n, k in ((1, 1, 1), (130, 257, 17), (300, 129, 9), (5, 128, 0), (0, 3, 4)):
        chance = np.random.default_rng(m)
        a, b = (chance.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        c = np.full((m, n), np.nan, np.float32)
        schedule = schedule_of(dispatch, m, n)
        blocks = -(-m // 128) * -(-n // 128) if dispatch == "single" else 3
        kernels.launch(program, (blocks, 1), 256, [a, b, c, np.int32(m), np.int32(n), np.int32(k), schedule])
        np.testing.assert_array_equal(c, a @ b)
        assert all(not s.any() for s in schedule if isinstance(s, np.ndarray)), "the counter is set back"


def test_the_plain_kernel_multiplies(tmp_path: Path) -> None:
    program = kernels.compiled((EXAMPLES / "three_lines" / "plain.cu").read_text(), {}, "gemm", tmp_path)
    m, n, k = 300, 129, 20
    a, b = np.ones((m, k), np.float32), np.arange(k * n, dtype=np.float32).reshape(k, n) % 7
    c = np.full((m, n), np.nan, np.float32)
    kernels.launch(program, (2, 3), 256, [a, b, c, np.int32(m), np.int32(n), np.int32(k)])
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("stages", "early", "dispatch"), [(4, False, "static"), (2, True, "dynamic"), (3, False, "static")]
)
def test_tensor_cores_multiply(stages: int, early: bool, dispatch: str, tmp_path: Path) -> None:
    """With instructions of the host's own: what the indices, the barriers and the groups of copies are."""
    folder = EXAMPLES / "tensor_cores"
    tile = (folder / "tile.cuh").read_text()
    begin, end = tile.index("// -- instructions"), tile.index("// -- global to shared memory")
    tile = f'{tile[:begin]}#include "tensor_cores_on_host.hpp"\n{tile[end:]}'
    source = (folder / "gemm.cu").read_text()
    source = re.sub(r"extern __shared__ .* shared\[\];", "unsigned char* shared = nullptr;", source)
    headers = {"sched/gemm.cuh": examples.header(folder / "gemm.yaml", "sm_80", DISPATCHES[dispatch]), "tile.cuh": tile}
    begin_early = "#define EARLY\n" if early else ""
    program = kernels.compiled(f"{begin_early}{source}", headers, f"gemm<{stages}>", tmp_path)
    for m, n, k in ((1, 1, 1), (130, 257, 72), (129, 300, 200), (5, 129, 0), (0, 3, 4), (257, 511, 65)):
        chance = np.random.default_rng(m)
        a, b = (bf16(chance.integers(-4, 5, (rows, k)).astype(np.float32)) for rows in (m, n))
        c = np.full((m, n), 0xFFFF, np.uint16)
        schedule = schedule_of(dispatch, m, n)
        kernels.launch(program, (2, 1), 256, [a, b, c, np.int32(m), np.int32(n), np.int32(k), schedule])
        np.testing.assert_array_equal(c, bf16((wide(a) @ wide(b).T).astype(np.float32)))


@pytest.mark.parametrize("lengths", [[], [0], [100, 0, 1, 64, 130]])
def test_ragged_batches_score(lengths: list[int], tmp_path: Path) -> None:
    folder, heads, dim, workers = EXAMPLES / "ragged_batches", 3, 10, 4
    header = examples.header(folder / "scores.yaml", "sm_80")
    source = (folder / "scores.cu").read_text()
    program = kernels.compiled(source, {"sched/ragged.cuh": header}, "scores", tmp_path)
    begins = np.cumsum([0, *lengths]).astype(np.int32)
    chance = np.random.default_rng(0)
    keys = chance.integers(-4, 5, (begins[-1], heads, dim)).astype(np.float32)
    queries = chance.integers(-4, 5, (len(lengths), heads, dim)).astype(np.float32)
    scores = np.full((begins[-1], heads), np.nan, np.float32)
    tables = triples(lengths, heads, 64, workers)
    items = np.uint32(len(tables["b_indices"]))
    schedule: tuple[np.generic | Array, ...] = (items, np.uint32(workers), *tables.values())
    arguments: list[kernels.Argument] = [keys, queries, scores, begins, np.int32(heads), np.int32(dim), schedule]
    kernels.launch(program, (workers, 1), 256, arguments)
    batch = np.repeat(np.arange(len(lengths)), lengths)
    np.testing.assert_array_equal(scores, (keys * queries[batch]).sum(axis=2))


# -- the benchmark ---------------------------------------------------------------------------------------------------


def test_the_profilers_answer_is_read() -> None:
    text = (
        "==PROF== Connected\nshape\n"
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","gemm","dram__bytes_read.sum","byte","1,234"\n"0","7","gemm","other","","9"\n'
        '"0","7","gemm","lts__t_sector_hit_rate.pct","%","81.5"\n"1","7","gemm","dram__bytes_read.sum","byte","5"\n'
    )
    assert gemm_orders.counted(text) == [
        {"dram_read_bytes": 1234.0, "l2_hit_percent": 81.5}, {"dram_read_bytes": 5.0},
    ]  # fmt: skip
    assert gemm_orders.counted("==ERROR== no permission\n") == []


def test_every_order_of_the_benchmark_holds() -> None:
    for order in gemm_orders.ORDERS:
        for dispatch in gemm_orders.DISPATCHES:
            assert check_text(gemm_orders.spec(order, dispatch), order).ok
