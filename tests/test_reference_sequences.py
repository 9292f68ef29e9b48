"""The named schedulers give exactly the reference sequences, in every form and through every engine."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sched_compiler import driver
from tests.support.engines import Case, Rows, run_cuda

REFERENCE = json.loads((Path(__file__).parent / "data" / "reference_sequences.json").read_text())
FORMS = ["static", "runtime", "expanded"]
PRESETS = {
    "ClusterPersistentScheduler2D": ("cluster_persistent_2d", "num_m_tiles"),
    "GroupMajor3D": ("group_major_3d", "m_tiles"),
    "FlashAttentionLinearScheduler": ("flash_attention_linear", "num_m_blocks"),
    "FlashAttentionLPTScheduler": ("flash_attention_lpt", "num_m_blocks"),
    "RankAwareGroupMajorTileScheduler": ("rank_aware_group_major", "m_clusters"),
    "IndexedTripleTileScheduler": ("indexed_triple", None),
    "ClusterLaunchControlScheduler": ("cluster_launch_control", "num_m_tiles"),
}


def entries() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, entry, what is expected) for each entry of a preset of this version."""
    for kind in ("goldens", "seed_defects"):
        for n, entry in enumerate(REFERENCE[kind]):
            if entry["scheduler"] in PRESETS and ("sequences" in entry or "sha256" in entry or "intended" in entry):
                yield f"{kind}-{n}-{entry['scheduler']}", entry, entry.get("intended", entry)


def case(entry: dict[str, Any], form: str) -> Case:
    """The entry's preset, with the extent known at compile time or only at launch, or as it is expanded."""
    preset, extent = PRESETS[entry["scheduler"]]
    arguments, params, values = dict(entry["params"]), {}, {}
    workers = arguments.pop("stride", None)  # of the rank-aware scheduler: what is launched
    responses = arguments.pop("responses", None)  # of cluster launch control
    if "rank" in arguments:
        values["rank"] = arguments.pop("rank")
    tables: dict[str, Any] = {}
    given: dict[str, Any] = {}
    if form == "runtime" and extent is None:  # the lists arrive at launch
        for name in list(arguments):
            given[name], tables[name] = arguments[name], {"length": len(arguments[name])}
            axis = name[:1]
            if axis in "bhq":
                arguments[f"num_{axis}"] = max(given[name]) + 1
            arguments[name] = name
    elif form == "runtime":
        values["extent"] = arguments[extent]
        params["extent"] = {"min": 0, "max": max(arguments[extent], 4096)}
        arguments[extent] = "extent"
    spec = {"version": 1, "name": "reference", "params": params, "uses": preset, "with": arguments}
    if tables:
        spec["tables"] = tables
    if form == "expanded":
        spec = yaml.safe_load(driver.expand(json.dumps(spec)))
    return Case(spec, values, workers, entry.get("workers"), given, responses)


@functools.cache
def cuda_results() -> dict[tuple[str, str], list[Rows]]:
    """Every entry in every form through one compiled executable."""
    cases = {(name, form): case(entry, form) for name, entry, _ in entries() for form in FORMS}
    return dict(zip(cases, run_cuda(list(cases.values())), strict=True))


def in_box(rows: list[Rows], axes: int) -> list[list[list[int]]]:
    return [r[r[:, axes] == 1][:, :axes].tolist() for r in rows]


@pytest.mark.parametrize("engine", ["numpy", "ptx", "cuda"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "entry", "expected"), [pytest.param(*e, id=e[0]) for e in entries()])
def test_sequence(name: str, entry: dict[str, Any], expected: dict[str, Any], form: str, engine: str) -> None:
    this = case(entry, form)
    axes = len(this.checked.loaded.axes)
    rows = cuda_results()[name, form] if engine == "cuda" else getattr(this, engine)()
    assert this.request.workers == entry["num_workers"]
    sequences = in_box(rows, axes)
    if "sha256" in expected:
        text = json.dumps(sequences, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == expected["sha256"]
        assert sequences[0][: len(expected["first_worker_head"])] == expected["first_worker_head"]
    else:
        assert sequences == expected["sequences"]
    if "intended" not in entry:  # nothing sticks out: the scheduled tiles are the reference's
        assert sum(len(r) for r in rows) == entry["num_tiles"]


def test_entries_are_there() -> None:
    assert len(list(entries())) > 40
