"""Proving one family of specs at sizes from 10^3 to 10^12 tiles: the time should not depend on the size.

The peer tries every tile with NumPy, as far as 10^6 tiles.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from measure import Timing, interleaved, table, write

from sched_compiler import check
from sched_compiler.traces import decode

#: Tiles along m and n; neither a multiple of the band's 8 rows.
SHAPES = [(31, 33), (101, 99), (317, 315), (1001, 999), (31_623, 31_621), (999_999, 1_000_001)]
#: Tiles up to which the peer is run.
MOST_TRIED = 10**6 + 10**5
#: The largest factor between two sizes' medians that still counts as the same time.
NOISE = 1.5


def spec(m: int, n: int) -> str:
    order = "{split: {m: 8}, loops: [m.outer, n, m.inner]}"
    space = f"{{m: {m}, n: {n}}}"
    return f"version: 1\nname: bands\nspace: {space}\norder: {order}\ndispatch: {{static: {{workers: 132}}}}\n"


def brute_force(m: int, n: int) -> None:
    """Visit every tile and see that each is visited once."""
    schedule = check(spec(m, n)).schedule
    rows = decode(schedule, np.arange(m * n, dtype=np.uint64), {})
    assert (np.bincount(rows[:, 0] * n + rows[:, 1], minlength=m * n) == 1).all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=30)
    repetitions = parser.parse_args().repetitions
    proofs = interleaved(
        {f"{m}x{n}": lambda _, m=m, n=n: check(spec(m, n)) for m, n in SHAPES},  # type: ignore[misc]
        repetitions,
    )
    tried: dict[str, Timing] = {}
    for m, n in SHAPES:
        if m * n <= MOST_TRIED:
            work = {"tried": lambda _, m=m, n=n: brute_force(m, n)}
            tried[f"{m}x{n}"] = interleaved(work, max(3, repetitions // 10), warm=1)["tried"]
    rows: list[list[object]] = []
    for m, n in SHAPES:
        name = f"{m}x{n}"
        peer = tried[name].median if name in tried else None
        ratio = "" if peer is None else f"{peer / proofs[name].median:.3g}"
        rows.append([name, f"{m * n:.1e}", proofs[name].median, "" if peer is None else f"{peer:.3g}", ratio])
    medians = [t.median for t in proofs.values()]
    spread = max(medians) / min(medians)
    met = spread <= NOISE
    about = (
        f"Proof of a group-major schedule, medians of {repetitions} interleaved repetitions. Largest over smallest "
        f"median: {spread:.2f}. Aim: the same time, within {NOISE:g}: {'met' if met else 'missed'}."
    )
    result = {
        "proofs": {name: t.as_json() for name, t in proofs.items()},
        "tried": {name: t.as_json() for name, t in tried.items()},
        "spread": spread,
        "met": met,
    }
    write("verify_speed", about, result, table(["tiles", "", "proof ms", "every tile tried ms", "times faster"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
