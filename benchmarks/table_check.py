"""How long `schedc check` takes for tables of ten million elements, against NumPy reading and sorting them.

One list of points that visits a line of tiles in random order, as NPY, JSON and text; the whole command, a new process
each time. Prints seconds and the ratio, and writes them to `benchmarks/results/`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import table, write

ELEMENTS = 10_000_000


def main() -> int:
    rows: list[list[object]] = []
    seconds_of: dict[str, float] = {}
    order = np.random.default_rng(0).permutation(ELEMENTS).astype(np.int32)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.save(directory / "order.npy", order)
        (directory / "order.json").write_text(json.dumps(order.tolist()))
        (directory / "order.csv").write_text("\n".join(map(str, order.tolist())))
        begin = time.perf_counter()
        np.sort(np.load(directory / "order.npy").astype(np.int64))
        peer = time.perf_counter() - begin
        for suffix in ("npy", "json", "csv"):
            spec = directory / f"{suffix}.yaml"
            spec.write_text(
                f"{{version: 1, name: x, space: {{m: {ELEMENTS}}}, "
                f"order: {{points: {{m: {{file: order.{suffix}}}}}}}, dispatch: single}}"
            )
            begin = time.perf_counter()
            command = [sys.executable, "-m", "sched_compiler.cli", "check", str(spec)]
            subprocess.run(command, check=True, capture_output=True)
            seconds = seconds_of[suffix] = time.perf_counter() - begin
            rows.append([suffix, f"{seconds:.2f}", f"{seconds / peer:.1f}"])
    about = (
        f"`schedc check` of a list of {ELEMENTS:,} points, in a new process each. "
        f"NumPy loads and sorts it in {peer:.2f} s."
    )
    result = {"numpy_seconds": peer, "seconds": seconds_of}
    write("table_check", about, result, table(["form", "seconds", "times NumPy's load and sort"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
