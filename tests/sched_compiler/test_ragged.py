"""Tables from lengths: every tile once, in contiguous ranges of nearly equal work."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_compiler import check, triples, validate_tables

SPEC = """\
version: 1
name: ragged
params: {items: {min: 0, max: 1000000}, workers: {min: 1, max: 1024}}
tables:
  b_indices: {length: items}
  h_indices: {length: items}
  q_indices: {length: items}
  tiles_indptr: {length: workers + 1}
uses: indexed_triple
with:
  b_indices: b_indices
  h_indices: h_indices
  q_indices: q_indices
  tiles_indptr: tiles_indptr
  num_b: 4096
  num_h: 64
  num_q: 4096
"""


@given(
    lengths=st.lists(st.integers(0, 300), max_size=8),
    heads=st.integers(0, 4),
    tile=st.integers(1, 70),
    workers=st.integers(1, 40),
)
def test_every_tile_is_listed_once_and_the_work_is_even(
    lengths: list[int], heads: int, tile: int, workers: int
) -> None:
    tables = triples(lengths, heads, tile, workers)
    listed = list(zip(*(tables[f"{axis}_indices"].tolist() for axis in "bhq"), strict=True))
    assert listed == [
        (b, h, q) for b, n in enumerate(lengths) for h in range(heads) for q in range(-(-n // tile))
    ]  # fmt: skip
    assert not validate_tables(check(SPEC), tables, {"items": len(listed), "workers": workers})
    work = np.array([min(tile, lengths[b] - q * tile) for b, _, q in listed], dtype=np.int64)
    indptr = tables["tiles_indptr"]
    shares = [work[begin:end].sum() for begin, end in pairwise(indptr)]
    assert max(shares) <= work.sum() / workers + tile
    assert {t.dtype for t in tables.values()} == {np.dtype(np.int32)}


def test_a_worker_may_have_nothing() -> None:
    assert triples([5], 1, 8, 3)["tiles_indptr"].tolist() in ([0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1])
    assert triples([0, 0], 2, 8, 3)["tiles_indptr"].tolist() == [0, 0, 0, 0]
    assert triples([], 2, 8, 1)["tiles_indptr"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1], 1, 1, 1), "lengths"), (([[1]], 1, 1, 1), "lengths"), (([1], -1, 1, 1), "heads"),
        (([1], 1, 0, 1), "tile"), (([1], 1, 1, 0), "workers"), (([2**31], 1, 1, 1), "2\\^31"),
        (([2**62, 2**62, 2**62], 1, 1, 1), "2\\^31"),
    ],
)  # fmt: skip
def test_what_cannot_be_listed_is_refused(arguments: tuple[list[int], int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        triples(*arguments)
