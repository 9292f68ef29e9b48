"""From a spec's text to a cubin, against `nvcc -cubin`, measured in turn in the same run.

In a warm process: `compile_spec`, which keeps nothing between calls, for a batch of specs that are all different; the
time is that of one. In a new process: `schedc compile`. The peers: nvcc with a kernel written by hand, and with the
source that we emit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import ROOT, interleaved, nvcc_version, table, write

from sched_compiler import CompileRequest, check, compile_spec, emit_text

SPEC = (ROOT / "specs" / "gemm_group_major.yaml").read_text(encoding="utf-8")
HANDWRITTEN = Path(__file__).resolve().parent / "handwritten.cu"
#: What is aimed at: how many times faster than nvcc with the handwritten kernel.
TARGETS = {"ptx": 30.0, "cuda": 6.0}
BACKENDS = ("ptx", "cuda")
#: Specs that a warm process compiles one after another in each repetition.
BATCH = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repetitions", type=int, default=9)
    arguments = parser.parse_args()
    if nvcc_version() is None:
        print("compile_speed: nvcc is not installed, so there is no peer", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="schedc-bench-") as directory:
        result = measure(Path(directory), arguments.arch, arguments.repetitions)
    return result


def measure(directory: Path, arch: str, repetitions: int) -> int:
    spec = directory / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    emitted = directory / "emitted.cu"
    emitted.write_text(emit_text(check(SPEC), "cuda", arch), encoding="utf-8")

    def warm(backend: str) -> Callable[[int], object]:
        # another name and number of workers each time, so that nothing remembered can help; the kernel stays the peer's
        def work(n: int) -> None:
            for k in range(BATCH * (n + 100), BATCH * (n + 101)):
                text = SPEC.replace("name: gemm-group-major", f"name: gemm-{k}").replace(
                    "workers: 132", f"workers: {k}"
                )
                compile_spec(CompileRequest(text, "spec.yaml", arch, backend))

        return work

    def process(backend: str) -> Callable[[int], object]:
        command = ["compile", str(spec), "--arch", arch, "--backend", backend, "-o", str(directory / "out.cubin")]
        return lambda _: subprocess.run(
            [sys.executable, "-m", "sched_compiler.cli", *command], check=True, capture_output=True
        )

    def nvcc(source: Path) -> Callable[[int], object]:
        command = ["nvcc", "-cubin", f"-arch={arch}", "-o", str(directory / "nvcc.cubin"), str(source)]
        return lambda _: subprocess.run(command, check=True, capture_output=True)

    times = interleaved(
        {
            **{f"{backend}, warm process": warm(backend) for backend in BACKENDS},
            **{f"{backend}, new process": process(backend) for backend in BACKENDS},
            "nvcc, handwritten kernel": nvcc(HANDWRITTEN),
            "nvcc, emitted source": nvcc(emitted),
        },
        repetitions,
        {f"{backend}, warm process": BATCH for backend in BACKENDS},
    )
    peer = times["nvcc, handwritten kernel"].median
    other = times["nvcc, emitted source"].median
    rows = [[name, t.median, peer / t.median, other / t.median] for name, t in times.items()]
    missed = [b for b in BACKENDS if peer / times[f"{b}, warm process"].median < TARGETS[b]]
    aims = ", ".join(f"{b} {TARGETS[b]:g} times: {'missed' if b in missed else 'met'}" for b in BACKENDS)
    about = (
        f"Spec text to cubin for {arch}, medians of {repetitions} interleaved repetitions; in the warm process, of a "
        f"batch of {BATCH} different specs, for one of them. Aim, in a warm process "
        f"against nvcc with the handwritten kernel: {aims}."
    )
    head = ["what", "ms", "times faster than nvcc, handwritten", "times faster than nvcc, emitted"]
    result = {"arch": arch, "times": {name: t.as_json() for name, t in times.items()}, "missed": missed}
    write("compile_speed", about, result, table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
