"""Tables for a schedule that needs some at launch: random ones that pass their check."""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_compiler import driver
from sched_compiler.dispatch import Table
from sched_compiler.evaluate import evaluate


def random_tables(checked: driver.Checked, values: dict[str, int], seed: int) -> dict[str, Any]:
    """All tables of `checked`: those that stand in the spec, and random ones for those that arrive at launch."""
    schedule, chance = checked.schedule, np.random.default_rng(seed)
    found: dict[str, Any] = dict(checked.loaded.tables)
    lengths = {t.name: int(evaluate([t.length], values)[0][0]) for t in schedule.tables}
    if schedule.points is not None and schedule.points[0] not in found:
        extents = [int(evaluate([a.extent], values)[0][0]) for a in schedule.axes]
        linear = chance.choice(int(np.prod(extents)), size=lengths[schedule.points[0]], replace=False)
        found |= dict(zip(schedule.points, np.unravel_index(linear, extents), strict=True))
    dispatch = schedule.dispatch
    if isinstance(dispatch, Table):
        positions = int(evaluate([dispatch.length], values)[0][0])
        if dispatch.indptr not in found:
            middle = np.sort(chance.integers(0, positions + 1, max(lengths[dispatch.indptr] - 2, 0)))
            ends = [0, *middle, positions] if lengths[dispatch.indptr] > 1 else [0]
            found[dispatch.indptr] = np.array(ends, dtype=np.int64)
        if dispatch.indices is not None and dispatch.indices not in found:
            found[dispatch.indices] = chance.permutation(positions)
    assert not driver.validate_tables(
        checked, {n: t for n, t in found.items() if n not in checked.loaded.tables}, values
    )
    return found
