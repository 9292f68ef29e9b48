"""Scores of a ragged batch on a device: `run.py [LENGTH ...]`, by default four batches, one of them empty.

Needs PyTorch, and the product's extra `gpu`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sched_compiler import CompileRequest, compile_spec, load, triples

HERE = Path(__file__).resolve().parent
ROWS, HEADS, DIM = 64, 8, 128


def main() -> int:
    lengths = [int(a) for a in sys.argv[1:]] or [1000, 0, 17, 4096]
    spec = HERE / "scores.yaml"
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    kernel = load(compile_spec(CompileRequest(spec.read_text(), str(spec), arch, "cuda", "cubin", directory=str(HERE))))

    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    keys = torch.randn((int(begins[-1]), HEADS, DIM), device="cuda")
    queries = torch.randn((len(lengths), HEADS, DIM), device="cuda")
    scores = torch.full((int(begins[-1]), HEADS), torch.nan, device="cuda")
    workers = torch.cuda.get_device_properties().multi_processor_count
    tables: dict[str, Any] = {**triples(lengths, HEADS, ROWS, workers)}
    items = len(tables["b_indices"])
    kernel(
        keys=keys, queries=queries, scores=scores, begins=torch.from_numpy(begins).cuda(), heads=HEADS, dim=DIM,
        num_items=items, num_workers=workers, **tables,
    )  # fmt: skip

    batch = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).cuda()
    want = torch.einsum("rhd,rhd->rh", keys.double(), queries[batch].double())
    torch.testing.assert_close(scores.double(), want, rtol=1e-4, atol=1e-3)
    share = np.diff(tables["tiles_indptr"])
    print(f"right: {items} tiles of {len(lengths)} batches, {share.min()} to {share.max()} for each worker")
    return 0


if __name__ == "__main__":
    sys.exit(main())
