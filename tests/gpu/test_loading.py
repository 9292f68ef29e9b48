"""On a device: kernels that are loaded and called from PyTorch, CuPy and others, captured in graphs, and refused."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sched_compiler
from backends.launch import Device
from sched_compiler import CompileRequest, LaunchError, compile_spec, driver, emit_launcher
from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.registry import TraceRequest
from sched_compiler.schedule import WORKERS
from sched_compiler.traces import Rows, trace_numpy
from tests.gpu.recording_kernel import SHARED, recording_kernel
from tests.support.random_tables import random_tables

ROOT = Path(__file__).parents[2]
#: Of every dispatch, with and without clusters, with tables of the spec and of the launch.
SPECS = {
    "gemm_group_major": {"m_tiles": 61}, "clusters_2x1": {"M": 5000, "N": 4000}, "attention_by_heads": {"m_blocks": 9},
    "rank_aware_group_major": {"rank": 2}, "rotated_columns": {}, "gemm_dynamic": {"m_tiles": 100},
    "clusters_dynamic": {"m_tiles": 37}, "gemm_clc_fallback": {"m_tiles": 37}, "indexed_triple": {},
    "listed_items": {}, "ragged_batches": {"num_items": 3000, "num_workers": 70},
}  # fmt: skip

# libraries warn while they are imported, of what is none of our doing
pytestmark = pytest.mark.filterwarnings("ignore")


def library(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)


@pytest.fixture
def torch(device: Device) -> Any:
    found = library("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch sees no device")
    return found


@pytest.fixture
def cupy(device: Device) -> Any:
    return library("cupy")


@pytest.fixture(scope="session")
def recording(device: Device) -> tuple[bytes, dict[str, Any]]:
    return recording_kernel(device.arch)


# -- trace kernels --------------------------------------------------------------------------------------------


class Tracing:
    """The trace kernel of a spec, loaded, with room for what it records."""

    def __init__(self, torch: Any, text: str, arch: str, values: Mapping[str, int]) -> None:
        self.torch = torch
        self.checked = driver.check(text)
        schedule = self.checked.schedule
        middle = {p.name: (p.var.lo + p.var.hi) // 2 for p in schedule.params}
        self.values = {name: dict(values).get(name, middle[name]) for name in middle}
        self.artifact = compile_spec(CompileRequest(text, "x", arch))
        self.kernel: Any = sched_compiler.load(self.artifact)
        self.items = int(evaluate([schedule.items], dict(self.values))[0][0])
        self.tables = random_tables(self.checked, dict(self.values), 1)
        source = self.checked.program.source(arch)
        self.any_workers = schedule.dispatch.workers.attr == WORKERS or source == "counter"
        self.workers = 100
        if not self.any_workers:
            self.workers = int(evaluate([schedule.dispatch.workers], dict(self.values))[0][0])
        self.ctas = self.workers * schedule.worker_ctas
        width, element = len(schedule.axes) + 1, NUMPY[self.checked.program.coord_type.name]
        kind = {4: torch.int32, 8: torch.int64}[np.dtype(element).itemsize]
        self.tiles = torch.empty((max(self.ctas, 1), max(self.items, 1), width), dtype=kind, device="cuda")
        self.counts = torch.empty(max(self.ctas, 1), dtype=torch.int64, device="cuda")
        self.clear()

    def clear(self) -> None:
        self.tiles.fill_(-1)
        self.counts.zero_()

    def arguments(self) -> dict[str, Any]:
        own = {"tiles": self.tiles, "counts": self.counts, "capacity": self.items, "first": 0, "ctas": self.ctas}
        if "first" in self.values:  # a parameter of the spec
            own["trace_first"] = own.pop("first")
        return {**own, **self.values, **self.tables}

    def launch(self, **how: Any) -> None:
        if self.any_workers:
            how.setdefault("workers", self.workers)
        self.kernel(**self.arguments(), **how)

    def rows(self) -> list[Rows]:
        """For each worker its tiles: those of one cluster stand in the order of rank."""
        self.torch.cuda.synchronize()
        tiles, counts = self.tiles.cpu().numpy(), self.counts.cpu().numpy()
        schedule = self.checked.schedule
        size, ctas, found = schedule.cluster_size, schedule.worker_ctas, []
        for w in range(self.workers):
            own = tiles[w * ctas : w * ctas + size, : int(counts[w * ctas])].astype(np.int64)
            found.append(own.transpose(1, 0, 2).reshape(-1, tiles.shape[2]))
        return found

    def check(self) -> None:
        """Every worker's tiles are NumPy's; under a queue, all workers' together."""
        request = TraceRequest(self.values, self.workers, range(self.workers), self.tables)
        expected, rows = trace_numpy(self.checked.schedule, request), self.rows()
        if not self.checked.schedule.dispatch.queue:
            for got, want in zip(rows, expected, strict=True):
                np.testing.assert_array_equal(got, want)
            return
        got, want = np.concatenate(rows), np.concatenate(expected)
        np.testing.assert_array_equal(got[np.lexsort(got.T)], want[np.lexsort(want.T)])


def tracing(torch: Any, name: str, device: Device, **values: int) -> Tracing:
    text = (ROOT / "specs" / f"{name}.yaml").read_text()
    return Tracing(torch, text, device.arch, {**SPECS[name], **values})


@pytest.mark.parametrize("name", SPECS)
def test_trace_kernels_of_every_dispatch(name: str, torch: Any, device: Device) -> None:
    traced = tracing(torch, name, device)
    for _ in range(3):  # the counter is where it was
        traced.clear()
        traced.launch()
        traced.check()


def test_the_number_of_workers_is_found_by_default(torch: Any, device: Device) -> None:
    traced = tracing(torch, "gemm_dynamic", device)
    planned = traced.kernel.plan(**traced.arguments())
    held = torch.cuda.get_device_properties(0).multi_processor_count * traced.kernel.device.resident(0)
    assert planned.workers == min(traced.items, held)
    traced.workers = traced.ctas = planned.workers
    traced.tiles = torch.full((traced.ctas, traced.items, 3), -1, dtype=traced.tiles.dtype, device="cuda")
    traced.counts = torch.zeros(traced.ctas, dtype=torch.int64, device="cuda")
    traced.kernel(**traced.arguments())
    traced.check()


def test_nothing_to_do_is_no_launch(torch: Any, device: Device) -> None:
    traced = tracing(torch, "attention_by_heads", device, m_blocks=0)
    assert traced.kernel.plan(**traced.arguments()).empty
    traced.launch()
    torch.cuda.synchronize()
    assert int(traced.counts.sum()) == 0


# -- a kernel of the user's own -------------------------------------------------------------------------------


def outputs(torch: Any) -> dict[str, Any]:
    return {
        "visits": torch.zeros((40, 30), dtype=torch.int32, device="cuda"),
        "sums": torch.zeros((40, 30), dtype=torch.float32, device="cuda"),
        "seen": torch.zeros(2, dtype=torch.int32, device="cuda"),
        "stride": 30, "scale": 0.5, "M": 37 * 128 - 5, "N": 29 * 128,
    }  # fmt: skip


def test_structs_clusters_and_shared_memory_reach_a_kernel(torch: Any, recording: Any) -> None:
    kernel, given = sched_compiler.load(recording), outputs(torch)
    for n in range(1, 4):
        kernel(**given, workers=None if n == 1 else 7 * n)
        torch.cuda.synchronize()
        assert given["seen"].tolist() == [2, 77]
        assert (given["visits"][:37, :29] == n).all()
        assert int(given["visits"].sum()) == n * 37 * 29
        assert float(given["sums"].sum()) == n * 37 * 29 / 2
    kernel.close()


def test_the_callers_counter_is_left_at_zero(torch: Any, recording: Any) -> None:
    kernel, given = sched_compiler.load(recording), outputs(torch)
    counter = torch.zeros(1, dtype=torch.int64, device="cuda")
    kernel(**given, counter=counter, workers=5)
    torch.cuda.synchronize()
    assert int(counter) == 0
    assert int(given["visits"].sum()) == 37 * 29


# -- libraries and streams ------------------------------------------------------------------------------------


def test_arrays_of_cupy(cupy: Any, recording: Any) -> None:
    kernel = sched_compiler.load(recording)
    visits, sums = cupy.zeros((40, 30), cupy.int32), cupy.zeros((40, 30), cupy.float32)
    seen, stream = cupy.zeros(2, cupy.uint32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    kernel(visits=visits, sums=sums, seen=seen, stride=30, scale=1.0, M=128, N=3 * 128, stream=stream)
    stream.synchronize()
    assert visits.sum() == 3
    with pytest.raises(LaunchError, match="not contiguous"):
        kernel(visits=visits[:, ::2], sums=sums, seen=seen, stride=30, scale=1.0, M=128, N=3 * 128)


class DlpackAlone:
    """A tensor of which only DLPack is seen."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)


def test_arrays_through_dlpack_and_addresses(torch: Any, recording: Any) -> None:
    kernel, given = sched_compiler.load(recording), outputs(torch)
    kernel(**{**given, "visits": DlpackAlone(given["visits"]), "sums": given["sums"].data_ptr()})
    torch.cuda.synchronize()
    assert int(given["visits"].sum()) == 37 * 29
    with pytest.raises(LaunchError, match="found an array of s64"):
        kernel(**{**given, "visits": DlpackAlone(given["visits"].long())})


@pytest.mark.parametrize("kind", ["torch", "handle", "protocol", "cuda.core", "current"])
def test_streams(kind: str, torch: Any, recording: Any) -> None:
    kernel, given = sched_compiler.load(recording), outputs(torch)
    stream: Any = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what is launched elsewhere comes before this ends
        given["visits"].fill_(1)
        if kind == "current":
            kernel(**given)
    if kind == "protocol":
        passed: Any = type("Stream", (), {"__cuda_stream__": lambda _: (0, stream.cuda_stream)})()
    elif kind == "cuda.core":
        library("cuda.core")
        passed = importlib.import_module("cuda.core").Stream.from_handle(stream.cuda_stream)
    else:
        passed = stream if kind == "torch" else stream.cuda_stream
    if kind != "current":
        kernel(**given, stream=passed)
    torch.cuda.synchronize()
    assert (given["visits"][:37, :29] == 2).all()


def test_launches_on_two_streams_at_once(torch: Any, recording: Any) -> None:
    kernel, given = sched_compiler.load(recording), outputs(torch)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream in streams:
            kernel(**given, workers=10, stream=stream)
    torch.cuda.synchronize()
    assert (given["visits"][:37, :29] == 200).all()


# -- graphs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False])
def test_a_captured_launch_is_replayed(warm: bool, torch: Any, recording: Any) -> None:
    """Also where the stream of the capture was never launched on before."""
    kernel, given = sched_compiler.load(recording), outputs(torch)
    if warm:
        kernel(**given)
        torch.cuda.synchronize()
        given["visits"].zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(**given)
    torch.cuda.synchronize()
    assert int(given["visits"].sum()) == 0
    for n in range(1, 101):
        graph.replay()
        torch.cuda.synchronize()
        assert (given["visits"][:37, :29] == n).all()


@pytest.mark.parametrize("name", ["gemm_dynamic", "clusters_dynamic", "gemm_clc_fallback", "ragged_batches"])
def test_a_captured_trace_kernel_is_replayed(name: str, torch: Any, device: Device) -> None:
    traced = tracing(torch, name, device)
    traced.launch()  # uploads the tables
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        traced.clear()
        traced.launch()
    for n in range(100):
        graph.replay()
        if n % 20 == 0:
            traced.check()
    traced.check()


# -- refusals -------------------------------------------------------------------------------------------------


def test_what_is_refused_launches_nothing(torch: Any, recording: Any) -> None:
    kernel, good = sched_compiler.load(recording), outputs(torch)
    wrong: list[tuple[str, Any, str]] = [
        ("visits", np.zeros((40, 30), np.int32), "host memory"),
        ("visits", good["visits"].cpu(), "host memory"),
        ("visits", good["visits"].t(), "not contiguous"),
        ("visits", good["visits"].float(), "array of f32"),
        ("sums", good["sums"].bfloat16(), "array of bf16"),
        ("visits", 0, "null pointer"),
        ("visits", [0], "a list"),
        ("M", -1, "found -1"), ("M", 65537, "found 65537"), ("M", 1.5, "found 1.5"),
        ("M", torch.tensor(3, device="cuda"), "an array of s64"),
        ("stride", 2**31, "found 2147483648"),
        ("scale", "x", "found 'x'"),
        ("counter", torch.zeros(0, dtype=torch.int64, device="cuda"), "found 0 elements"),
        ("tiles", 1, "filled from M, N, counter"),
        ("other", 1, "does not have"),
        ("workers", 0, "found 0"), ("workers", 2**30, "found 1073741824"),
        ("stream", "main", "found a str"),
    ]  # fmt: skip
    for name, value, text in wrong:
        with pytest.raises(LaunchError, match=text) as caught:
            kernel(**{**good, name: value})
        assert [fault.argument for fault in caught.value.faults] == [name]
    for name in good:
        with pytest.raises(LaunchError, match=f"{name}: found no value"):
            kernel(**{k: v for k, v in good.items() if k != name})
    torch.cuda.synchronize()
    assert int(good["visits"].sum()) == 0


def test_a_second_devices_array_is_refused(torch: Any, recording: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one device alone")
    kernel, given = sched_compiler.load(recording, device=0), outputs(torch)
    with pytest.raises(LaunchError, match="found an array on device 1"):
        kernel(**{**given, "visits": given["visits"].to("cuda:1")})


def test_tables_are_refused(torch: Any, device: Device) -> None:
    traced = tracing(torch, "ragged_batches", device)
    indptr = traced.tables["tiles_indptr"]
    short = torch.from_numpy(np.asarray(indptr[:-1], np.int32)).cuda()
    for table, text in ((indptr[:-1], "found 70 elements"), (short, "at least 71"), (indptr + 10**6, "at element")):
        with pytest.raises(LaunchError, match=text):
            traced.kernel(**{**traced.arguments(), "tiles_indptr": table})
    traced.kernel(**{**traced.arguments(), "tiles_indptr": torch.from_numpy(np.asarray(indptr, np.int32)).cuda()})
    traced.check()


def test_another_architectures_kernel_is_refused(device: Device) -> None:
    text = (ROOT / "specs" / "gemm_group_major.yaml").read_text()
    other = "sm_80" if device.arch != "sm_80" else "sm_90a"
    with pytest.raises(LaunchError, match="device: found compute capability"):
        sched_compiler.load(compile_spec(CompileRequest(text, "x", other)))


def test_more_shared_memory_than_there_is(torch: Any, recording: Any) -> None:
    cubin, manifest = recording
    larger = {**manifest, "launch": {**manifest["launch"], "dynamic_shared_bytes": f"{3 * SHARED} + M"}}
    with pytest.raises(LaunchError, match="shared memory: found"):
        sched_compiler.load((cubin, larger))(**outputs(torch))


# -- C++ ------------------------------------------------------------------------------------------------------

_MAIN = """
extern "C" int run(CUfunction function, CUstream stream, CUdeviceptr tiles, CUdeviceptr counts, CUdeviceptr counter,
                   unsigned m_tiles, unsigned ctas, unsigned workers, char* message, unsigned size) {
  sched_launch::gemm_dynamic::Arguments a;
  a.tiles = tiles;
  a.counts = counts;
  a.capacity = m_tiles * 32ull;
  a.ctas = ctas;
  a.m_tiles = m_tiles;
  a.counter = counter;
  const sched_launch::Status status = sched_launch::gemm_dynamic::launch(function, a, stream, workers);
  std::strncpy(message, status.message.c_str(), size - 1);
  return status ? 0 : 1;
}
"""


def test_the_launcher_in_cpp(torch: Any, device: Device, tmp_path: Path) -> None:
    found = [*Path("/usr/local").glob("cuda*/include/cuda.h")]
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or []) if nvidia else []:
        found += Path(folder).glob("*/include/cuda.h")
    compiler = shutil.which("g++")
    if not found or compiler is None:
        pytest.skip("g++ and cuda.h are needed")
    traced = tracing(torch, "gemm_dynamic", device)
    text = (ROOT / "specs" / "gemm_dynamic.yaml").read_text()
    header = emit_launcher(CompileRequest(text, "x", device.arch))
    (tmp_path / "run.cpp").write_text(header.replace("#pragma once", "") + _MAIN)
    target = tmp_path / "run.so"
    options = ["-std=c++17", "-shared", "-fPIC", "-isystem", str(found[0].parent), "-o", str(target)]
    subprocess.run([compiler, *options, str(tmp_path / "run.cpp")], check=True)
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    run, message = ctypes.CDLL(str(target)).run, ctypes.create_string_buffer(500)
    api: Any = importlib.import_module("cuda.bindings.driver")
    _, module = api.cuModuleLoadData(traced.artifact.blob)
    _, function = api.cuModuleGetFunction(module, b"gemm_dynamic_trace")
    counter = torch.zeros(1, dtype=torch.int64, device="cuda")

    def call(m_tiles: int, workers: int) -> int:
        pointers = (traced.tiles.data_ptr(), traced.counts.data_ptr(), counter.data_ptr())
        code: int = run(
            ctypes.c_void_p(int(function)), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            *map(ctypes.c_uint64, pointers), m_tiles, traced.ctas, workers, message, len(message),
        )  # fmt: skip
        return code

    for _ in range(3):
        traced.clear()
        assert call(traced.values["m_tiles"], traced.workers) == 0, message.value
        traced.check()
    assert call(traced.values["m_tiles"], 0) == 0, message.value  # as many as the device holds
    torch.cuda.synchronize()
    assert int(counter) == 0
    assert call(65537, 0) == 1
    assert message.value == b"gemm-dynamic: m_tiles: found 65537, expected 0 to 65536"
