"""What the benchmarks share: timing, the machine's description, and the files of results."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Timing:
    """Durations of repetitions, in milliseconds."""

    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    def quantile(self, q: float) -> float:
        """The smallest duration that at least the share `q` of all does not exceed."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]

    def as_json(self) -> dict[str, Any]:
        return {
            "median_ms": round(self.median, 4),
            "min_ms": round(min(self.milliseconds), 4),
            "p90_ms": round(self.quantile(0.9), 4),
            "p99_ms": round(self.quantile(0.99), 4),
            "repetitions": len(self.milliseconds),
        }


def timed(work: Callable[[], object]) -> float:
    """Milliseconds that `work` takes."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def interleaved(
    works: Mapping[str, Callable[[int], object]],
    repetitions: int,
    batches: Mapping[str, int] | None = None,
    warm: int = 2,
) -> dict[str, Timing]:
    """Time each work once in every repetition, in turn, so that all see the same machine. Works take the repetition.

    A work that does several things alike is named in `batches` with their number; its time is that of one.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for repetition in range(-warm, repetitions):
        for name, work in works.items():
            took = timed(lambda work=work, n=repetition: work(n))  # type: ignore[misc]
            if repetition >= 0:
                found[name].append(took / (batches or {}).get(name, 1))
    return {name: Timing(tuple(times)) for name, times in found.items()}


def nvcc_version() -> str | None:
    """The release of the installed nvcc; None where there is none."""
    if shutil.which("nvcc") is None:
        return None
    text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return next((line.strip() for line in text.splitlines() if "release" in line), text.strip())


def machine() -> dict[str, Any]:
    """Date, machine and versions."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "load": [round(n, 2) for n in os.getloadavg()],
        "python": platform.python_version(),
        "sched-compiler": version("sched-compiler"),
        "nvrtc": version("nvidia-cuda-nvrtc"),
        "nvjitlink": version("nvidia-nvjitlink"),
        "nvcc": nvcc_version(),
    }


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats with three significant places."""
    shown = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *shown]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(name: str, about: str, result: Mapping[str, Any], body: str) -> None:
    """Print the result, and write it to `results/NAME-DATE.json` and `.md`."""
    described = machine()
    stem = f"{name}-{described['date'][:10]}"
    RESULTS.mkdir(exist_ok=True)
    document = {"benchmark": name, "machine": described, **result}
    (RESULTS / f"{stem}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    facts = table(["machine", ""], [[key, value] for key, value in described.items()])
    text = f"# {name}\n\n{about}\n\n{body}\n{facts}"
    (RESULTS / f"{stem}.md").write_text(text, encoding="utf-8")
    print(text)
