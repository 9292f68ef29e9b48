"""Traces drawn as text: the order over a plane, and each worker's tiles."""

from __future__ import annotations

from collections.abc import Sequence

from sched_compiler.traces import Trace

#: A plane larger than this is listed, not drawn.
WIDEST, TALLEST = 40, 64
#: Tiles and workers of a listing.
MOST_TILES, MOST_WORKERS = 16, 32


def trace_text(trace: Trace, follow: Sequence[int] | None = None) -> str:
    """A trace for people: with two axes, the worker of each tile over the plane; then each worker's first tiles."""
    workers = list(range(trace.workers)) if follow is None else list(follow)
    lines: list[str] = []
    if len(trace.axes) == 2 and follow is None:
        lines += _plane(trace)
    total = sum(len(rows) for rows in trace.rows)
    outside = len(trace.out_of_bounds)
    padding = f", {outside} of them padding" if outside else ""
    lines.append(f"{total} tiles ({', '.join(trace.axes)}) for {trace.workers} workers{padding}")
    for w, rows in list(zip(workers, trace.rows, strict=True))[:MOST_WORKERS]:
        shown = [f"({', '.join(map(str, r[:-1]))}){'' if r[-1] else '*'}" for r in rows[:MOST_TILES].tolist()]
        more = f" ... {len(rows) - MOST_TILES} more" if len(rows) > MOST_TILES else ""
        lines.append(f"worker {w}: {' '.join(shown)}{more}".rstrip())
    if len(trace.rows) > MOST_WORKERS:
        lines.append(f"... {len(trace.rows) - MOST_WORKERS} more workers")
    if outside:
        lines.append("* padding: scheduled, but outside the space")
    return "\n".join(lines)


def _plane(trace: Trace) -> list[str]:
    """The order in which tiles are visited when all workers take equally long, over the plane of the two axes."""
    steps: dict[tuple[int, int], int] = {}
    longest = max((len(rows) for rows in trace.rows), default=0)
    lists = [rows.tolist() for rows in trace.rows]
    for turn in range(longest):
        for rows in lists:
            if turn < len(rows):
                steps.setdefault((rows[turn][0], rows[turn][1]), len(steps))
    if not steps:
        return []
    height, width = (max(p[k] for p in steps) + 1 for k in range(2))
    if height > TALLEST or width > WIDEST:
        return []
    cell = max(len(str(len(steps))), len(str(width - 1)) + len(trace.axes[1]) + 1) + 1
    lines = [" " * (len(trace.axes[0]) + 4) + "".join(f"{trace.axes[1]}={n}".rjust(cell) for n in range(width))]
    for m in range(height):
        row = "".join(str(steps.get((m, n), ".")).rjust(cell) for n in range(width))
        lines.append(f"{trace.axes[0]}={m}".ljust(len(trace.axes[0]) + 4) + row)
    return [*lines, ""]
