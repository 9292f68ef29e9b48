"""What `decode.py build FOLDER` made, on a device: `decode_run.py FOLDER`. Needs cuda-bindings and NumPy alone.

One block of one warp walks the tiles of worker 0, and in another launch the last of them alone: the difference is what
the others take. Cycles are of the warm loop, the fewest of many launches, taken in turn with the others'. Where there
is ncu, the instructions that a warp executes are counted by its `inst_executed`. Both are for each tile, less those of
the bare loop.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORKERS, ROUNDS = 132, 50
#: Of two workers: 64 tiles, and half as many.
TABLES = ([n % 3 for n in range(96)], [n % 2 for n in range(96)], [n // 4 % 2 for n in range(96)], [0, 64, 96])


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


def _launch(function: Any, blocks: int, values: list[bytes]) -> None:
    """`values` are what each parameter holds."""
    held = [ctypes.create_string_buffer(data, len(data)) for data in values]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
    _call("cuLaunchKernel", function, blocks, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
    _call("cuCtxSynchronize")


class Kernel:
    """A cubin with what it is launched with."""

    def __init__(self, blob: bytes, case: dict[str, Any], contender: str, ahead: bool) -> None:
        self.case, self.contender, self.fewest = case, contender, [2**62, 2**62]
        self.form = "ahead" if ahead else "in turn"
        #: Whether it skips tiles one by one, so that what it executes says nothing of one tile.
        self.walks = case["carried"] and contender in ("cuda", "ptx")
        module = _call("cuModuleLoadData", blob)
        self.function = _call("cuModuleGetFunction", module, b"kernel")
        self.cycles = _uploaded(bytes(8))
        self.blocks = WORKERS if contender == "cutlass" else 1  # CUTLASS steps by as many as there are
        words = np.array(case["values"], dtype=np.uint32)
        if contender == "cutlass":
            made = _uploaded(bytes(120))
            rows, columns = (int(v).to_bytes(4, "little") for v in case["shape"])
            prepare = _call("cuModuleGetFunction", module, b"prepare")
            _launch(prepare, 1, [made.to_bytes(8, "little"), rows, columns])
            read = bytearray(120)
            _call("cuMemcpyDtoH", read, made, 120)
            self.values = [bytes(read)]
        elif case["tables"]:
            tables = [_uploaded(np.array(t, dtype=np.int32).tobytes()) for t in TABLES]
            addresses = np.array(tables, dtype=np.uint64)
            self.values = [addresses.tobytes()] if contender == "cuda" else [a.tobytes() for a in addresses]
        elif contender == "cuda":  # a struct, of one byte where it is empty
            self.values = [words.tobytes() or b"\0"]
        else:
            self.values = [w.tobytes() for w in words]

    @property
    def skipped(self) -> int:
        """Tiles that the second launch skips: all but the last of them."""
        items = self.case["items"]
        if self.contender == "cutlass":
            rows, columns = (-(-v // 8) * 8 for v in self.case["shape"])
            items = rows * columns
        return 32 if self.case["tables"] else -(-items // WORKERS) - 1

    def run(self) -> None:
        for n, skip in enumerate((0, self.skipped)):
            fixed = [self.cycles.to_bytes(8, "little"), skip.to_bytes(4, "little")]
            _launch(self.function, self.blocks, [*fixed, *self.values])
            read = bytearray(8)
            _call("cuMemcpyDtoH", read, self.cycles, 8)
            self.fewest[n] = min(self.fewest[n], int.from_bytes(read, "little"))

    def each(self, both: Sequence[float]) -> float:
        """For each tile, of a count of all tiles and of one with some skipped."""
        return (both[0] - both[1]) / self.skipped


def loaded(folder: Path) -> list[Kernel]:
    """Every kernel whose loop ends by itself: not those that ask a queue."""
    _call("cuInit", 0)
    _call("cuCtxSetCurrent", _call("cuDevicePrimaryCtxRetain", _call("cuDeviceGet", 0)))
    listed = json.loads((folder / "kernels.json").read_text())
    kernels = [k | {"of": listed["cases"][k["case"]]} for k in listed["kernels"]]
    return [
        Kernel((folder / k["file"]).read_bytes(), k["of"], k["contender"], k["ahead"])
        for k in kernels
        if not k["of"]["queued"]
    ]


def executed(folder: Path) -> list[float]:
    """Instructions that each launch executes in one warp, by ncu; none without it."""
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
    bare: tuple[float, float] = (0, 0)
    print("| case | loop | contender | cycles | instructions |\n| --- | --- | --- | --- | --- |")
    for n, kernel in enumerate(kernels):
        own = kernel.each(kernel.fewest), kernel.each(counts[2 * n : 2 * n + 2]) if counts else float("nan")
        if kernel.contender == "bare":  # the first of its loop
            bare = own
        executed_ = "-" if kernel.walks else f"{own[1] - bare[1]:.1f}"
        row = (kernel.case["name"], kernel.form, kernel.contender, f"{own[0] - bare[0]:.1f}", executed_)
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
