"""The tables of the preset `indexed_triple` from the lengths of a ragged batch: what is to be done, and by whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Elements are 32-bit numbers, as the kernel reads them.
_MOST = 2**31 - 1


def triples(lengths: Sequence[int] | npt.NDArray[np.integer], heads: int, tile: int, workers: int) -> dict[
    str, npt.NDArray[np.int32]
]:  # fmt: skip
    """Tiles of `tile` rows of each head of each batch of `lengths` rows, in this order, dealt out in contiguous ranges.

    Gives `b_indices`, `h_indices`, `q_indices`, with one element for each tile, and `tiles_indptr` with `workers + 1`:
    worker w takes tiles `tiles_indptr[w]` to below `tiles_indptr[w + 1]`. No worker gets more rows than its share and
    one tile; a batch's last tile may be short, and a batch of no rows has none. Raises ValueError for a negative length
    or number of heads, a tile or number of workers below 1, and for 2^31 tiles or more.
    """
    rows = np.asarray(lengths, dtype=np.int64)
    if rows.ndim != 1 or (rows < 0).any():
        raise ValueError("lengths: a list of numbers that are not negative is expected")
    for name, value, least in (("heads", heads, 0), ("tile", tile, 1), ("workers", workers, 1)):
        if value < least:
            raise ValueError(f"{name}: found {value}, expected at least {least}")
    blocks = -(-rows // tile)
    if len(rows) > _MOST or workers >= _MOST or sum(map(int, blocks)) * heads > _MOST:
        raise ValueError("there are 2^31 tiles, batches or workers, or more")
    each = blocks * heads
    b = np.repeat(np.arange(len(rows)), each)
    h, q = np.divmod(np.arange(len(b)) - np.repeat(np.cumsum(each) - each, each), np.maximum(blocks[b], 1))
    work = np.minimum(rows[b] - q * tile, tile)
    # A tile goes to the worker in whose share of the rows its middle lies; twice the rows, so that halves are integers.
    middle = 2 * np.cumsum(work) - work
    ends = np.searchsorted(middle, [2 * int(work.sum()) * w // workers for w in range(workers)])
    indptr = np.append(ends, len(b))
    found = {"b_indices": b, "h_indices": h, "q_indices": q, "tiles_indptr": indptr}
    return {name: table.astype(np.int32) for name, table in found.items()}
