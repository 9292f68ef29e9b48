"""From a spec's text to a backend's source (load, build, prove, lower, print), for every spec and both backends.

The peer is PyYAML: the time to read the same text into plain data.
"""

from __future__ import annotations

import argparse
import sys

import yaml
from measure import ROOT, interleaved, table, write

from sched_compiler import check, emit_text

#: Milliseconds that no spec should need.
AIM = 5.0
BACKENDS = ("cuda", "ptx")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=30)
    repetitions = parser.parse_args().repetitions
    rows: list[list[object]] = []
    result: dict[str, object] = {}
    slow: list[str] = []
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        times = interleaved(
            {
                "cuda": lambda _, text=text: emit_text(check(text), "cuda"),  # type: ignore[misc]
                "ptx": lambda _, text=text: emit_text(check(text), "ptx"),  # type: ignore[misc]
                "yaml": lambda _, text=text: yaml.safe_load(text),  # type: ignore[misc]
            },
            repetitions,
        )
        peer = times["yaml"].median
        cells = [times[b].median for b in BACKENDS]
        rows.append([path.stem, *cells, peer, *(c / peer for c in cells)])
        result[path.stem] = {name: t.as_json() for name, t in times.items()}
        slow += [f"{path.stem} ({b})" for b in BACKENDS if times[b].median >= AIM]
    about = (
        f"YAML text to source, medians of {repetitions} interleaved repetitions in a warm process. "
        f"Aim: below {AIM:g} ms each: {'missed by ' + ', '.join(slow) if slow else 'met'}."
    )
    head = ["spec", "cuda ms", "ptx ms", "PyYAML ms", "cuda / PyYAML", "ptx / PyYAML"]
    write("lowering_speed", about, {"times": result, "missed": slow}, table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
