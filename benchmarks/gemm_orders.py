"""The order of tiles, their dispatch, and the speed of one GEMM: examples/tensor_cores under many orders.

    gemm_orders.py build DIR [ARCH]    compile every variant, where the compilers are
    gemm_orders.py run DIR             check, time and profile them, where a device is; about five minutes
    gemm_orders.py once DIR M N K      launch each variant once, for a profiler
    gemm_orders.py picture DIR FILE    draw results.json as SVG or PNG (needs Matplotlib)

`run` needs NumPy and cuda-bindings alone. PyTorch's or cuBLAS's product is timed beside the variants where it is
installed, and what they read is counted where Nsight Compute is (`ncu`). DIR gets results.json and results.txt.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, int, int]
Variant: TypeAlias = dict[str, Any]

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "tensor_cores"
TILE, THREADS, STAGES = (128, 256), 256, 4
SHARED = STAGES * (TILE[0] + TILE[1]) * 64 * 2

#: Shapes that are timed; of the first ones, what is read is counted too.
SHAPES: tuple[Shape, ...] = (
    (8192, 8192, 8192), (16384, 16384, 4096), (65536, 2560, 4096), (4096, 4096, 4096),
    (8100, 8200, 4000), (5000, 12345, 2048), (20000, 3000, 1000),
)  # fmt: skip
PROFILED = SHAPES[:3]
#: Shapes whose results are checked: none fills its tiles, some are not aligned, one has nothing to add up.
CHECKED: tuple[Shape, ...] = (
    (1, 1, 1), (300, 517, 200), (1000, 777, 333), (129, 2049, 72), (128, 256, 0), (0, 256, 64), (2500, 3000, 520),
)  # fmt: skip
REPETITIONS, WARM_UP = 7, 2
SMS = 132  # that the picture takes to run together
METRICS = {
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "l2_to_sm_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
}
NCU = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"

ORDERS: dict[str, Any] = {
    "row-major": {"loops": ["m", "n"]},
    "column-major": {"loops": ["n", "m"]},
    **{f"group-major m {g}": {"split": {"m": g}, "loops": ["m.outer", "n", "m.inner"]} for g in (4, 8, 16)},
    **{f"group-major n {g}": {"split": {"n": g}, "loops": ["n.outer", "m", "n.inner"]} for g in (4, 8, 16)},
    "serpentine m 8": {"split": {"m": 8}, "loops": ["m.outer", "n", "m.inner"], "serpentine": {"n": "m.outer"}},
    "hilbert": {"curve": "hilbert"},
}
DISPATCHES: dict[str, Any] = {mode: {mode: {"workers": "grid"}} for mode in ("static", "dynamic")}


def spec(order: str, dispatch: str) -> str:
    """The example's schedule in another order, under another dispatch."""
    bound = {"min": 0, "max": 65536}
    space = {"m": f"ceil_div(M, {TILE[0]})", "n": f"ceil_div(N, {TILE[1]})"}
    form = {"version": 1, "name": "gemm", "params": {"M": bound, "N": bound}, "space": space}
    return json.dumps({**form, "order": ORDERS[order], "dispatch": DISPATCHES[dispatch]})


def build(directory: Path, arch: str) -> None:
    """Every variant as a cubin, and variants.json, which says what they are."""
    from backends.toolchain import nvrtc
    from sched_compiler import check, emit_text

    directory.mkdir(parents=True, exist_ok=True)
    source = (EXAMPLE / "gemm.cu").read_text()
    tile = {"tile.cuh": (EXAMPLE / "tile.cuh").read_text()}
    variants: list[Variant] = []
    for order in ORDERS:
        for dispatch in DISPATCHES:
            headers = {"sched/gemm.cuh": emit_text(check(spec(order, dispatch)), "header", arch), **tile}
            compiled, entry = nvrtc.compile_with_headers(
                source, "gemm.cu", arch, "cubin", headers, entry=f"gemm<{STAGES}>"
            )
            file = f"{order}-{dispatch}.cubin".replace(" ", "_")
            (directory / file).write_bytes(compiled.blob)
            variants.append({"order": order, "dispatch": dispatch, "file": file, "entry": entry})
    (directory / "variants.json").write_text(json.dumps(variants, indent=1))
    print(f"{len(variants)} variants in {directory}")


# -- on the device ---------------------------------------------------------------------------------------------------


class Static(ctypes.Structure):
    """`sched::gemm::Arguments` under static dispatch."""

    _fields_ = (("M", ctypes.c_uint32), ("N", ctypes.c_uint32))


class Dynamic(ctypes.Structure):
    """The same under dynamic dispatch."""

    _fields_ = (("M", ctypes.c_uint32), ("N", ctypes.c_uint32), ("counter", ctypes.c_uint64))


class Gpu:
    """The first device, and what is needed of its driver. Raises RuntimeError where the driver refuses."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver: Any = driver
        self.call("cuInit", 0)
        device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", device))
        attributes = driver.CUdevice_attribute
        self.sms: int = self.call("cuDeviceGetAttribute", attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
        self.name = self.call("cuDeviceGetName", 100, device).split(b"\0")[0].decode()
        self.counter = int(self.call("cuMemAlloc", 8))
        self.call("cuMemsetD8", self.counter, 0, 8)

    def call(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self.driver, name)(*arguments)
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{name}: {status.name}")
        return results[0] if len(results) == 1 else tuple(results) or None

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        pointer = self.call("cuMemAlloc", max(size, 16))
        try:
            yield int(pointer)
        finally:
            self.call("cuMemFree", pointer)

    def upload(self, pointer: int, array: npt.NDArray[Any]) -> None:
        if array.nbytes:
            self.call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)

    def kernel(self, directory: Path, variant: Variant) -> Callable[[Sequence[int], Shape], None]:
        """Launches the variant, given the addresses of A, B and C."""
        module = self.call("cuModuleLoadData", (directory / variant["file"]).read_bytes())
        function = self.call("cuModuleGetFunction", module, variant["entry"].encode())
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, attribute, SHARED)

        def launch(pointers: Sequence[int], shape: Shape) -> None:
            m, n, _ = shape
            schedule = Static(m, n) if variant["dispatch"] == "static" else Dynamic(m, n, self.counter)
            values = (*map(ctypes.c_uint64, pointers), *map(ctypes.c_int32, shape), schedule)
            addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            parameters = ctypes.addressof(addresses)
            if m and n:
                self.call("cuLaunchKernel", function, self.sms, 1, 1, THREADS, 1, 1, SHARED, 0, parameters, 0)

        return launch

    def milliseconds(self, work: Callable[[], None]) -> float:
        begin, end = (self.call("cuEventCreate", 0) for _ in range(2))
        self.call("cuEventRecord", begin, 0)
        work()
        self.call("cuEventRecord", end, 0)
        self.call("cuEventSynchronize", end)
        took = float(self.call("cuEventElapsedTime", begin, end))
        for event in (begin, end):
            self.call("cuEventDestroy", event)
        return took


def bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return rounded


def wide(values: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def random_bf16(rows: int, columns: int, seed: int) -> npt.NDArray[np.uint16]:
    """Normally distributed; a long matrix repeats itself every 2^24 values, which no cache notices."""
    count = rows * columns
    some = bf16(np.random.default_rng(seed).standard_normal(min(count, (1 << 24) + 1), dtype=np.float32))
    return np.resize(some, count).reshape(rows, columns)


def right(gpu: Gpu, kernels: Sequence[Callable[[Sequence[int], Shape], None]]) -> int:
    """The number of results that were compared. Raises AssertionError for one that is wrong, or differs by a bit."""
    done = 0
    for shape in CHECKED:
        m, n, k = shape
        a, b = random_bf16(m, k, 1), random_bf16(n, k, 2)
        want = wide(a) @ wide(b).T
        first: npt.NDArray[np.uint16] | None = None
        with ExitStack() as stack:
            pointers = [stack.enter_context(gpu.memory(2 * size)) for size in (m * k, n * k, m * n)]
            gpu.upload(pointers[0], a)
            gpu.upload(pointers[1], b)
            for number, launch in enumerate(kernels):
                got = np.full((m, n), 0xFFFF, dtype=np.uint16)
                gpu.upload(pointers[2], got)
                launch(pointers, shape)
                gpu.call("cuCtxSynchronize")
                if got.nbytes:
                    gpu.call("cuMemcpyDtoH", got.ctypes.data, pointers[2], got.nbytes)
                error = np.abs(wide(got) - want)
                # half a unit of bf16's last place, and what sums in single precision lose
                assert bool((error <= np.abs(want) / 256 + 1e-4 * max(k, 1) ** 0.5).all()), (number, shape)
                first = got if first is None else first
                assert np.array_equal(got, first), (number, shape)
                done += 1
    return done


def peer(gpu: Gpu) -> tuple[str, Callable[[Sequence[int], Shape], None]] | None:
    """A library's product of the same operands; None where there is none."""
    for name in ("libcublas.so.13", "libcublas.so.12"):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        try:  # PyTorch brings the library, and loads it
            import torch

            library = ctypes.CDLL(str(next(Path(torch.__file__).parents[1].glob("nvidia/**/libcublas.so.1[23]"))))
        except (ImportError, OSError, StopIteration):
            return None
    handle, workspace = ctypes.c_void_p(), 64 << 20
    if library.cublasCreate_v2(ctypes.byref(handle)):
        return None
    room = int(gpu.call("cuMemAlloc", workspace))
    library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(room), ctypes.c_size_t(workspace))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def multiply(pointers: Sequence[int], shape: Shape) -> None:
        """Column-major, so C transposed = B times A transposed. 14: bf16, 68: single precision, -1: its choice."""
        (m, n, k), (a, b, c) = shape, map(ctypes.c_void_p, pointers)
        status = library.cublasGemmEx(
            handle, 1, 0, n, m, k, ctypes.byref(one), b, 14, k, a, 14, k, ctypes.byref(zero), c, 14, n, 68, -1
        )
        if status:
            raise RuntimeError(f"cublasGemmEx: {status}")

    return "cuBLAS", multiply


@contextmanager
def operands(gpu: Gpu, shape: Shape) -> Iterator[list[int]]:
    """Addresses of random A and B, and of C."""
    m, n, k = shape
    with ExitStack() as stack:
        pointers = [stack.enter_context(gpu.memory(2 * size)) for size in (m * k, n * k, m * n)]
        gpu.upload(pointers[0], random_bf16(m, k, 1))
        gpu.upload(pointers[1], random_bf16(n, k, 2))
        yield pointers


def timed(gpu: Gpu, works: dict[str, Callable[[Sequence[int], Shape], None]], shape: Shape) -> dict[str, float]:
    """TFLOP/s of each, from the median of repetitions that take turns, so that clocks and heat meet all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    with operands(gpu, shape) as pointers:
        for repetition in range(-WARM_UP, REPETITIONS):
            for name, work in works.items():
                took = gpu.milliseconds(lambda work=work: work(pointers, shape))  # type: ignore[misc]
                if repetition >= 0:
                    times[name].append(took)
    m, n, k = shape
    return {name: 2.0 * m * n * k / statistics.median(t) / 1e9 for name, t in times.items()}


def once(directory: Path, shape: Shape) -> None:
    gpu = Gpu()
    kernels = [gpu.kernel(directory, v) for v in variants(directory)]
    with operands(gpu, shape) as pointers:
        for launch in kernels:
            launch(pointers, shape)
        gpu.call("cuCtxSynchronize")


def profiled(directory: Path, shape: Shape) -> list[dict[str, float]] | str:
    """What each variant reads and writes, in the order of variants.json; or why that is not known."""
    count = len(variants(directory))
    command = [
        NCU, "--csv", "--print-units", "base", "--metrics", ",".join(METRICS.values()), "--launch-count", str(count),
        sys.executable, __file__, "once", str(directory), *map(str, shape),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{NCU}: {e}"
    found = counted(done.stdout)
    if len(found) != count:
        said = (done.stdout + done.stderr)[-500:]
        return f"{NCU}: {len(found)} of {count} launches, exit code {done.returncode}: {said}"
    return found


def counted(text: str) -> list[dict[str, float]]:
    """The metrics of each launch from Nsight Compute's CSV, which has a line for each launch and metric."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    names = {metric: name for name, metric in METRICS.items()}
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        if row.get("Metric Name") in names:
            value = float(row["Metric Value"].replace(",", ""))
            found.setdefault(int(row["ID"]), {})[names[row["Metric Name"]]] = value
    return [found[number] for number in sorted(found)]


def variants(directory: Path) -> list[Variant]:
    read: list[Variant] = json.loads((directory / "variants.json").read_text())
    return read


def run(directory: Path) -> None:
    gpu = Gpu()
    listed = variants(directory)
    kernels = [gpu.kernel(directory, v) for v in listed]
    print(f"{gpu.name}: {right(gpu, kernels)} results are right, and for each shape all of the same bits", flush=True)
    library = peer(gpu)
    results: list[dict[str, Any]] = []
    for shape in SHAPES:
        works = {f"{v['order']}, {v['dispatch']}": kernel for v, kernel in zip(listed, kernels, strict=True)}
        if library is not None:
            works[library[0]] = library[1]
        speeds = timed(gpu, works, shape)
        reads = profiled(directory, shape) if shape in PROFILED else []
        if isinstance(reads, str):
            print(reads, flush=True)
            reads = []
        rows: list[dict[str, Any]] = [{"name": name, "tflops": round(speed, 1)} for name, speed in speeds.items()]
        for row, read in zip(rows, reads, strict=False):
            row |= read
        results.append({"shape": shape, "rows": rows})
        (directory / "results.json").write_text(json.dumps({"device": gpu.name, "results": results}, indent=1))
        print(table(shape, rows), flush=True)
    (directory / "results.txt").write_text("\n".join(table(r["shape"], r["rows"]) for r in results))


def table(shape: Sequence[int], rows: list[dict[str, Any]]) -> str:
    """The rows, fastest first."""
    lines = [f"{' x '.join(map(str, shape))}", f"  {'order, dispatch':<26} TFLOP/s  L2 hits  from DRAM  L2 to SMs"]
    for row in sorted(rows, key=lambda row: -row["tflops"]):
        line = f"  {row['name']:<26} {row['tflops']:7.1f}"
        if "l2_hit_percent" in row:
            dram, crossbar = row["dram_read_bytes"] / 1e9, row["l2_to_sm_bytes"] / 1e9
            line += f"  {row['l2_hit_percent']:6.1f}% {dram:7.2f} GB {crossbar:7.2f} GB"
        lines.append(line)
    return "\n".join(lines) + "\n"


# -- the picture -----------------------------------------------------------------------------------------------------


def picture(directory: Path, file: Path) -> None:
    """For each order: when tiles run (in orange the first that run together), what is read from DRAM, and the speed.

    Of the shape for which most is read.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    from sched_compiler import trace

    mpl.rcParams["svg.hashsalt"] = "orders"  # the same file from the same numbers
    read = json.loads((directory / "results.json").read_text())
    result = max(read["results"], key=lambda r: max(row.get("dram_read_bytes", 0) for row in r["rows"]))
    m, n, k = result["shape"]
    rows = {row["name"]: row for row in result["rows"]}
    grid = (-(-m // TILE[0]), -(-n // TILE[1]))
    figure, axes = plt.subplots(3, len(ORDERS), figsize=(2 * len(ORDERS), 6), height_ratios=(3, 1, 1))
    figure.suptitle(f"C = A Bᵀ in bf16, {m} x {n} x {k}, {read['device']}, static dispatch")
    for column, order in enumerate(ORDERS):
        walked = trace(spec(order, "static"), values={"M": m, "N": n}, workers=1).tiles[0]
        when = np.zeros(grid)
        for position, tile in enumerate(walked):
            when[tile[0], tile[1]] = position
        row = rows[f"{order}, static"]
        top, bytes_read, speed = axes[:, column]
        top.imshow(when, aspect="auto", cmap="Greys_r", vmax=1.6 * when.max())
        top.imshow(np.where(when < SMS, 1.0, np.nan), aspect="auto", cmap="autumn", vmin=0, vmax=2)
        top.set_title(order, fontsize=9)
        top.set_xticks([])
        top.set_yticks([])
        most = max(other.get("dram_read_bytes", 0) for other in rows.values()) / 1e9 or 1
        bars = (
            (bytes_read, row.get("dram_read_bytes", 0) / 1e9, most, "GB"),
            (speed, row["tflops"], max(other["tflops"] for other in rows.values() if "," in other["name"]), "TFLOP/s"),
        )
        for axis, value, end, unit in bars:
            axis.barh([0], [value], color="#447799")
            axis.set_xlim(0, end)
            axis.set_yticks([])
            axis.set_xlabel(f"{value:.4g} {unit}", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["build", directory, *arch]:
            build(Path(directory), arch[0] if arch else "sm_90a")
        case ["run", directory]:
            run(Path(directory))
        case ["once", directory, m, n, k]:
            once(Path(directory), (int(m), int(n), int(k)))
        case ["picture", directory, file]:
            picture(Path(directory), Path(file))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
