"""What `decode.py build FOLDER` made, on a device: `decode_run.py FOLDER`. Needs cuda-bindings and NumPy alone.

One block of one warp walks the tiles of worker 0. Cycles are of the warm loop: the fewest of many launches, taken in
turn with the others'. Where there is ncu, the instructions that a warp executes are counted by its `inst_executed`.
Both are for each tile, less those of the bare loop.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

WORKERS, ROUNDS = 132, 50
TABLES = ([0, 0, 0, 1, 1, 2, 2, 0], [0, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0], [0, 7, 7])


def _call(name: str, *arguments: Any) -> Any:
    from cuda.bindings import driver

    status, *results = getattr(driver, name)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{name}: {status.name}")
    return results[0] if len(results) == 1 else results


def _uploaded(data: bytes) -> int:
    address = int(_call("cuMemAlloc", len(data)))
    _call("cuMemcpyHtoD", address, data, len(data))
    return address


def _launch(function: Any, values: list[tuple[int, bytes]]) -> None:
    """`values` are what each parameter holds."""
    held = [ctypes.create_string_buffer(data, len(data)) for _, data in values]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
    _call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
    _call("cuCtxSynchronize")


class Kernel:
    """A cubin with what it is launched with."""

    def __init__(self, blob: bytes, case: dict[str, Any], contender: str) -> None:
        self.case, self.contender, self.fewest = case, contender, 2**62
        module = _call("cuModuleLoadData", blob)
        self.function = _call("cuModuleGetFunction", module, b"kernel")
        self.cycles = _uploaded(bytes(8))
        words = np.array(case["values"], dtype=np.uint32)
        self.values = [self.cycles.to_bytes(8, "little")]
        if contender == "cutlass":
            made = _uploaded(bytes(120))
            rows, columns = (int(v).to_bytes(4, "little") for v in case["shape"])
            prepare = _call("cuModuleGetFunction", module, b"prepare")
            _launch(prepare, [(8, made.to_bytes(8, "little")), (4, rows), (4, columns)])
            read = bytearray(120)
            _call("cuMemcpyDtoH", read, made, 120)
            self.values.append(bytes(read))
        elif case["tables"]:
            tables = [_uploaded(np.array(t, dtype=np.int32).tobytes()) for t in TABLES]
            addresses = np.array(tables, dtype=np.uint64)
            self.values += [addresses.tobytes()] if contender == "cuda" else [a.tobytes() for a in addresses]
        elif contender == "cuda":  # a struct, of one byte where it is empty
            self.values.append(words.tobytes() or b"\0")
        else:
            self.values += [w.tobytes() for w in words]

    @property
    def tiles(self) -> int:
        items = self.case["items"]
        if self.contender == "cutlass":
            rows, columns = (-(-v // 8) * 8 for v in self.case["shape"])
            items = rows * columns
        return 7 if self.case["tables"] else -(-items // WORKERS)

    def run(self) -> None:
        _launch(self.function, [(len(v), v) for v in self.values])
        read = bytearray(8)
        _call("cuMemcpyDtoH", read, self.cycles, 8)
        self.fewest = min(self.fewest, int.from_bytes(read, "little"))


def loaded(folder: Path) -> list[Kernel]:
    """Every kernel whose loop ends by itself: not those that ask a queue."""
    _call("cuInit", 0)
    _call("cuCtxSetCurrent", _call("cuDevicePrimaryCtxRetain", _call("cuDeviceGet", 0)))
    listed = json.loads((folder / "kernels.json").read_text())
    kernels = [k | {"of": listed["cases"][k["case"]]} for k in listed["kernels"]]
    return [
        Kernel((folder / k["file"]).read_bytes(), k["of"], k["contender"]) for k in kernels if not k["of"]["queued"]
    ]


def executed(folder: Path) -> list[float]:
    """Instructions that each kernel's warp executes, by ncu; none without it."""
    tool = shutil.which("ncu")
    if tool is None:
        return []
    command = [tool, "--csv", "--metrics", "smsp__inst_executed.sum", "--kernel-name", "kernel"]
    command += [sys.executable, __file__, str(folder), "once"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    return [
        float(row["Metric Value"].replace(",", "")) for row in csv.DictReader(io.StringIO("\n".join(lines[start:])))
    ]


def main() -> None:
    folder, once = Path(sys.argv[1]), sys.argv[2:] == ["once"]
    counts = [] if once else executed(folder)
    kernels = loaded(folder)
    for _ in range(1 if once else ROUNDS):
        for kernel in kernels:
            kernel.run()
    if once:
        return
    bare: dict[str, tuple[float, float]] = {}
    print("| case | contender | cycles | instructions |\n| --- | --- | --- | --- |")
    for n, kernel in enumerate(kernels):
        name = kernel.case["name"]
        own = kernel.fewest / kernel.tiles, counts[n] / kernel.tiles if counts else float("nan")
        if kernel.contender == "bare":
            bare[name] = own
        base = bare[name]
        print(f"| {name} | {kernel.contender} | {own[0] - base[0]:.1f} | {own[1] - base[1]:.1f} |")


if __name__ == "__main__":
    main()
