"""Faults that tile schedulers have really had, each kind by its smallest case."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sched_compiler import driver, model
from sched_compiler.diagnostics import SpecError
from sched_compiler.dispatch import GRID_LIMIT
from sched_compiler.evaluate import evaluate
from sched_compiler.formula import parse
from sched_compiler.protocol import protocol
from sched_compiler.traces import decode
from tests.support.engines import Case, Rows, assert_engines_agree, run_cuda
from tests.support.oracle import number, visits

Spec = dict[str, Any]


def preset(uses: str, params: Spec | None = None, **arguments: Any) -> Spec:
    return {"version": 1, "name": "fault", "params": params or {}, "uses": uses, "with": arguments}


def composed(space: Spec, workers: Any = 3, **more: Any) -> Spec:
    return {"version": 1, "name": "fault", "space": space, "dispatch": {"static": {"workers": workers}}, **more}


def trace(spec: Spec, values: dict[str, int] | None = None, **how: Any) -> list[list[list[int]]]:
    return driver.trace(json.dumps(spec), values=values, **how).tiles


def assert_each_tile_once(spec: Spec, values: dict[str, int] | None = None) -> int:
    """Every tile of the box is visited once, and nothing else is in bounds; the number of scheduled tiles."""
    found = driver.trace(json.dumps(spec), values=values)
    checked = driver.check(json.dumps(spec))
    extents = [int(e[0]) for e in evaluate([a.extent for a in checked.schedule.axes], values or {})]
    rows = np.concatenate([*found.rows, np.zeros((0, len(extents) + 1), dtype=np.int64)])
    real = [tuple(row[:-1]) for row in rows.tolist() if row[-1]]
    assert sorted(real) == list(itertools.product(*map(range, extents)))
    for row in rows.tolist():
        assert bool(row[-1]) == all(c < e for c, e in zip(row, extents, strict=False))
    assert len(real) == int(evaluate([checked.schedule.tiles], values or {})[0][0])
    return len(rows)


# -- tiles lost or repeated -------------------------------------------------------------------------------------


SERPENTINES = [(1, 3, 2), (3, 3, 2), (9, 9, 8), (3, 1, 2), (7, 5, 8), (17, 9, 4), (1, 1, 1), (5, 7, 1), (8, 8, 8)]


@pytest.mark.parametrize(("rows", "columns", "block"), SERPENTINES)
@pytest.mark.parametrize("form", ["static", "run time"])
def test_serpentine_with_residuals_loses_and_repeats_nothing(rows: int, columns: int, block: int, form: str) -> None:
    extents: Spec = {"num_m_tiles": rows, "num_n_tiles": columns}
    params, values = {}, {}
    if form == "run time":
        params = {"rows": {"min": 0, "max": 99}, "columns": {"min": 0, "max": 99}}
        values = {"rows": rows, "columns": columns}
        extents = {"num_m_tiles": "rows", "num_n_tiles": "columns"}
    spec = preset("cluster_persistent_2d", params, **extents, num_clusters=3, l2_group_size=block, serpentine=True)
    assert assert_each_tile_once(spec, values) == rows * columns


def test_serpentine_visits_blocks_then_the_right_strip_then_the_bottom_strip() -> None:
    spec = preset(
        "cluster_persistent_2d", num_m_tiles=3, num_n_tiles=3, num_clusters=1, l2_group_size=2, serpentine=True
    )
    (tiles,) = trace(spec)
    assert tiles == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [1, 2], [2, 2], [2, 0], [2, 1]]


@pytest.mark.parametrize(
    ("m", "n", "group"), [(4, 9, 8), (5, 7, 4), (129, 3, 8), (1, 9, 8), (8, 9, 8), (9, 1, 8), (7, 3, 1)]
)
def test_a_short_last_group_has_its_own_width(m: int, n: int, group: int) -> None:
    spec = composed({"m": m, "n": n}, order={"split": {"m": group}, "loops": ["m.outer", "n", "m.inner"]})
    assert assert_each_tile_once(spec) == m * n
    index = np.arange(m * n)
    first = index // (group * n) * group
    width = np.minimum(group, m - first)
    rest = index - first * n
    want = np.stack([first + rest % width, rest // width], axis=1)
    (tiles,) = trace({**spec, "dispatch": {"static": {"workers": 1}}})
    assert tiles == want.tolist()


@pytest.mark.parametrize("heads", [3, 8, 13])
@pytest.mark.parametrize("swizzle", [1, 4, 8, 64])
def test_a_short_last_group_of_fused_axes_has_its_own_width(heads: int, swizzle: int) -> None:
    arguments: Spec = {"num_batches": 2, "num_heads": heads, "num_m_blocks": 5, "l2_swizzle": swizzle}
    assert assert_each_tile_once(preset("flash_attention_lpt", **arguments)) == 10 * heads


def test_documented_sequence_of_three_workers() -> None:
    """4 x 4 tiles, group 2: the sequence that the definition gives, worker by worker."""
    spec = preset("cluster_persistent_2d", num_m_tiles=4, num_n_tiles=4, num_clusters=3, l2_group_size=2)
    assert trace(spec) == [
        [[0, 0], [1, 1], [0, 3], [3, 0], [2, 2], [3, 3]],
        [[1, 0], [0, 2], [1, 3], [2, 1], [3, 2]],
        [[0, 1], [1, 2], [2, 0], [3, 1], [2, 3]],
    ]


@pytest.mark.parametrize("m", range(4))
@pytest.mark.parametrize("n", range(3))
def test_extents_of_zero_and_one_are_ordinary(m: int, n: int) -> None:
    params = {"rows": {"min": 0, "max": 9}, "columns": {"min": 0, "max": 9}}
    cases = []
    for serpentine in (False, True):
        for rows, columns, values in ((m, n, {}), ("rows", "columns", {"rows": m, "columns": n})):
            spec = preset(
                "cluster_persistent_2d", params, num_m_tiles=rows, num_n_tiles=columns, num_clusters=2,
                l2_group_size=2, serpentine=serpentine,
            )  # fmt: skip
            assert assert_each_tile_once(spec, {"rows": m, "columns": n}) == m * n
            cases.append(Case(spec, {"rows": m, "columns": n, **values}))
    assert_engines_agree(cases)


def test_nothing_to_do_ends_at_once_in_every_engine() -> None:
    """An empty group, no keys: no tile, no wait."""
    params = {"batches": {"min": 0, "max": 4}, "blocks": {"min": 0, "max": 4}}
    cases = [
        Case(preset(uses, params, **arguments, num_batches="batches", num_heads=2, num_m_blocks="blocks"), values)
        for uses, arguments in (
            ("flash_attention_linear", {"num_ctas": 3}),
            ("flash_attention_lpt", {"l2_swizzle": 4}),
            ("flash_attention_lpt", {"l2_swizzle": 4, "num_ctas": 3}),
        )
        for values in ({"batches": 0, "blocks": 3}, {"batches": 3, "blocks": 0}, {"batches": 0, "blocks": 0})
    ]
    assert_engines_agree(cases)
    assert sum(len(rows) for case in cases for rows in case.numpy()) == 0


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_one_tile_is_visited_exactly_once(workers: int) -> None:
    spec = composed({"m": 1, "n": 1}, workers)
    assert trace(spec) == [[[0, 0]], *[[]] * (workers - 1)]
    assert_engines_agree([Case(spec, {})])


def test_more_workers_than_the_spec_has_repeat_nothing() -> None:
    """A launch that is too large adds workers that find no work."""
    case = Case(composed({"m": 5}, 2), {})
    wide = Case(composed({"m": 5}, 2), {}, follow=range(2))
    followed = run_cuda([case, wide])
    assert [r[:, 0].tolist() for r in followed[0]] == [[0, 2, 4], [1, 3]]
    beyond = Case(composed({"m": 5}, "grid"), {}, workers=9)
    assert [r[:, 0].tolist() for r in beyond.numpy()] == [[0], [1], [2], [3], [4], [], [], [], []]
    assert_engines_agree([beyond])


# -- clusters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "cluster"), [(3, 4, {"m": 2}), (3, 5, {"m": 2, "n": 2}), (5, 5, {"n": 4, "m": 2})])
def test_tiles_of_a_cluster_outside_the_box_are_marked_and_real_tiles_counted(m: int, n: int, cluster: Spec) -> None:
    spec = composed({"m": m, "n": n}, cluster=cluster)
    blocks = math.ceil(m / cluster.get("m", 1)) * math.ceil(n / cluster.get("n", 1))
    assert assert_each_tile_once(spec) == blocks * math.prod(cluster.values())
    assert_engines_agree([Case(spec, {})])


def test_a_cluster_that_does_not_fit_is_rejected_where_the_spec_says_so() -> None:
    spec = composed({"m": 3, "n": 4}, cluster={"m": 2, "ragged": "reject"})
    assert [d.code for d in driver.check_text(json.dumps(spec)).diagnostics] == ["E050"]
    assert driver.check_text(json.dumps(composed({"m": 4}, cluster={"m": 2, "ragged": "reject"}))).ok


def test_padding_of_the_preset_s_clusters_is_marked() -> None:
    spec = preset("cluster_persistent_2d", num_m_tiles=3, num_n_tiles=4, num_clusters=2, l2_group_size=8, cluster_m=2)
    assert assert_each_tile_once(spec) == 16


@pytest.mark.parametrize("cluster", [{"m": 2}, {"m": 4, "n": 2}, {"n": 2, "m": 1}])
@pytest.mark.parametrize("dispatch", [{"single": {}}, {"static": {"workers": 132}}, {"static": {"workers": "grid"}}])
def test_the_grid_is_a_multiple_of_the_cluster_and_counts_ctas(cluster: Spec, dispatch: Spec) -> None:
    params = {"rows": {"min": 1, "max": 999}}
    spec = {**composed({"m": "rows", "n": 7}, params=params, cluster=cluster), "dispatch": dispatch}
    request = driver.CompileRequest(json.dumps(spec), "spec", "sm_90a")
    launch = driver.compile_spec(request).manifest["launch"]
    assert isinstance(launch, dict)
    size = math.prod(cluster.values())
    assert (launch["unit"], launch["cluster"]) == ("CTA", [size, 1, 1])
    grid, workers = (str(launch["grid"][0]), str(launch["workers"])) if isinstance(launch["grid"], list) else ("", "")
    for rows in (1, 5, 132, 999):
        env = {"rows": rows, "workers": 12}
        ctas, clusters = (number(text.replace("$", ""), env) for text in (grid, workers))
        assert ctas == clusters * size
    assert launch["grid"][1:] == ["1", "1"] if isinstance(launch["grid"], list) else False


def test_ctas_of_a_cluster_share_their_block() -> None:
    """129 tiles, cluster 2: no pair straddles a group, and the pair's other coordinates agree."""
    order = {"split": {"m": 4}, "loops": ["m.outer", "n", "m.inner"]}
    spec = composed({"m": 129, "n": 3}, 5, cluster={"m": 2}, order=order)
    for tiles in trace(spec):
        pairs = np.array(tiles).reshape(-1, 2, 2)
        assert (pairs[:, 1, 0] == pairs[:, 0, 0] + 1).all()
        assert (pairs[:, 0, 0] % 2 == 0).all()
        assert (pairs[:, 0, 1] == pairs[:, 1, 1]).all()


# -- one formula for total, grid and map ------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 3), (5, 7)])
def test_total_grid_and_map_come_from_one_formula(m: int, n: int) -> None:
    params = {"rows": {"min": 0, "max": 99}, "columns": {"min": 0, "max": 99}}
    order = {"split": {"m": {"by": 4, "ragged": "pad"}}, "loops": ["m.outer", "n", "m.inner"]}
    spec = {**composed({"m": "rows", "n": "columns"}, params=params, order=order), "dispatch": {"single": {}}}
    values = {"rows": m, "columns": n}
    checked = driver.check(json.dumps(spec))
    schedule = checked.schedule
    total, workers = (int(v[0]) for v in evaluate([schedule.items, schedule.dispatch.workers], values))
    assert total == workers == len(visits(spec, values)) == -(-m // 4) * 4 * n
    launch = driver.compile_spec(driver.CompileRequest(json.dumps(spec), "spec", "sm_90a")).manifest["launch"]
    assert isinstance(launch, dict)
    assert isinstance(launch["grid"], list)
    assert number(str(launch["grid"][0]), values) == total
    parse(str(launch["grid"][0]))
    assert_engines_agree([Case(spec, values)])


def test_the_tile_size_stands_once() -> None:
    """The extent follows from the problem; nothing else knows the tile's size."""
    params = {"M": {"min": 1, "max": 1 << 20}}
    spec = composed({"m": "ceil_div(M, 128)"}, 4, params=params)
    assert len(np.concatenate(driver.trace(json.dumps(spec), values={"M": 1025}).rows)) == 9


# -- the hardware's limits --------------------------------------------------------------------------------------


def test_work_goes_along_x_so_65536_workers_are_possible() -> None:
    spec = {**composed({"m": 65_536, "n": 3}), "dispatch": {"single": {}}}
    manifest = driver.compile_spec(driver.CompileRequest(json.dumps(spec), "spec", "sm_90a")).manifest
    launch = manifest["launch"]
    assert isinstance(launch, dict)
    assert launch["grid"] == ["196608", "1", "1"]


@pytest.mark.parametrize(("m", "fits"), [(GRID_LIMIT, True), (GRID_LIMIT + 1, False)])
def test_grids_past_the_limit_of_x_are_refused(m: int, fits: bool) -> None:
    report = driver.check_text(json.dumps({**composed({"m": m}), "dispatch": {"single": {}}}))
    assert [d.code for d in report.diagnostics] == ([] if fits else ["E052"])


def test_a_cluster_counts_its_ctas_towards_the_limit() -> None:
    spec = {**composed({"m": GRID_LIMIT - 1}, cluster={"m": 2}), "dispatch": {"single": {}}}
    assert driver.check_text(json.dumps(spec)).ok
    spec = {**composed({"m": 2 * (GRID_LIMIT // 2) + 1}, cluster={"m": 2}), "dispatch": {"single": {}}}
    assert [d.code for d in driver.check_text(json.dumps(spec)).diagnostics] == ["E052"]


# -- arithmetic -------------------------------------------------------------------------------------------------


def some_rows(spec: Spec, values: dict[str, int], count: int, workers: int) -> list[Rows]:
    """The first and the last workers through all engines; their rows."""
    follow = sorted({*range(count), *range(workers - count, workers)})
    case = Case(spec, values, follow=follow)
    assert_engines_agree([case])
    return case.numpy()


def test_more_than_2_24_tiles_are_counted_exactly() -> None:
    """A count kept in a float loses the last tile."""
    total = 16_777_217
    rows = np.concatenate(some_rows(composed({"m": total}, 1 << 20), {}, 20, 1 << 20))
    assert rows[:, 0].max() == total - 1
    checked = driver.check(json.dumps(composed({"m": total}, 1)))
    index = np.arange(total - 3, total)
    assert decode(checked.schedule, index, {})[:, 0].tolist() == index.tolist()


@pytest.mark.parametrize("n", [4_294_967_291, 2**31, 2**32 - 1, 2**32, 2**40 + 1])
@pytest.mark.parametrize("form", ["static", "run time"])
def test_quotients_of_large_indices_are_exact(n: int, form: str) -> None:
    """4,294,967,291 by 7: reciprocals made for signed words are wrong there."""
    space = {"m": n // 7 + 1, "n": 7} if form == "static" else {"m": "rows", "n": "columns"}
    params = {"rows": {"min": 1, "max": n}, "columns": {"min": 1, "max": 9}}
    values = {"rows": n // 7 + 1, "columns": 7}
    workers = 2_000_000_000
    rows = some_rows(composed(space, workers, params=params), values, 4, workers)
    checked = driver.check(json.dumps(composed(space, workers, params=params)))
    assert checked.schedule.items.hi > n
    firsts = [0, 1, 2, 3, *range(workers - 4, workers)]
    for worker, found in zip(firsts, rows, strict=True):
        index = range(worker, (n // 7 + 1) * 7, workers)
        assert found[:, :2].tolist() == [[i // 7, i % 7] for i in index]


@pytest.mark.parametrize(
    ("m", "n", "workers"),
    [
        (60_000, 30_000, 100_000_000),  # an index and its stride together pass 2^31 - 1
        (65_536, 32_768, 50_000_000),  # 2^31 tiles
        (65_536, 65_535, 50_000_000),  # just below 2^32
        (65_537, 65_536, 50_000_000),  # above 2^32
        (2**31 - 1, 1, GRID_LIMIT),
        (2**32 - 1, 1, GRID_LIMIT),
    ],
)
@pytest.mark.parametrize("form", ["static", "run time"])
def test_an_index_and_its_stride_do_not_overflow(m: int, n: int, workers: int, form: str) -> None:
    params = {"rows": {"min": 0, "max": m}, "columns": {"min": 0, "max": n}}
    space: Spec = {"m": m, "n": n} if form == "static" else {"m": "rows", "n": "columns"}
    spec = composed(space, workers, params=params, order={"split": {"m": 8}, "loops": ["m.outer", "n", "m.inner"]})
    schedule = driver.check(json.dumps(spec)).schedule
    assert schedule.index_type.hi >= m * n - 1 + workers
    rows = some_rows(spec, {"rows": m, "columns": n}, 2, workers)
    for worker, found in zip([0, 1, workers - 2, workers - 1], rows, strict=True):
        assert len(found) == len(range(worker, m * n, workers))


def test_a_wide_run_time_grid_still_runs_its_tiles() -> None:
    """65,536 x 32,768 known only at launch: no total that turns negative, no loop that never starts."""
    params = {"rows": {"min": 0, "max": 65_536}, "columns": {"min": 0, "max": 32_768}}
    spec = preset("cluster_persistent_2d", params, num_m_tiles="rows", num_n_tiles="columns", num_clusters=30_000_000)
    found = driver.trace(json.dumps(spec), values={"rows": 65_536, "columns": 32_768}, follow=[0, 29_999_999])
    assert [len(rows) for rows in found.rows] == [72, 71]


def test_a_total_that_fits_no_type_is_refused() -> None:
    params = {"a": {"min": 1, "max": 2**32}, "b": {"min": 1, "max": 2**32}}
    with pytest.raises(SpecError) as caught:
        driver.check(json.dumps(composed({"m": "a", "n": "b"}, params=params)))
    assert [d.code for d in caught.value.diagnostics] == ["E063"]


@pytest.mark.parametrize("group", [1, 4, 5, 1000, 2**40])
def test_groups_of_one_or_larger_than_the_axis_are_ordinary(group: int) -> None:
    order = {"split": {"m": group}, "loops": ["m.outer", "n", "m.inner"]}
    spec = composed({"m": 4, "n": 3}, order=order)
    assert assert_each_tile_once(spec) == 12
    params = {"rows": {"min": 0, "max": 9}}
    assert assert_each_tile_once(composed({"m": "rows", "n": 3}, params=params, order=order), {"rows": 4}) == 12
    assert_engines_agree([Case(spec, {})])


def test_arrivals_of_a_ring_are_not_counted_by_hand() -> None:
    """One slot, two consumers, a count off by one: a hang where the count is what the user says."""
    clc = {"consumers": {"mma": 1, "epilogue": 128}}
    spec = {**composed({"m": 8, "n": 4}), "dispatch": {"clc": clc}}
    ring = driver.check(json.dumps(spec)).schedule.dispatch.ring
    assert ring is not None
    described = protocol(ring)
    assert described.empty == 2
    assert model.check(described, 3).fault is None
    for wrong in (1, 3):
        assert model.check(replace(described, empty=wrong), 3).fault is not None
        off = {**spec, "dispatch": {"clc": {**clc, "finish_arrivals": wrong}}}
        (diagnostic,) = driver.check_text(json.dumps(off)).diagnostics
        assert diagnostic.code == "E054"


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
def test_bytes_are_expected_on_all_peers_before_the_request_and_a_response_is_read_at_once(backend: str) -> None:
    spec = {**composed({"m": 8, "n": 4}), "cluster": {"m": 2}, "dispatch": "clc"}
    text = driver.emit_text(driver.check(json.dumps(spec)), backend, "sm_100a")
    text = text[text.rindex("mbarrier.init") :]
    steps = ["expect_tx", "expect_tx", "try_cancel.async", "ld.shared::cta.b128", "query_cancel", "fence.proxy.async"]
    places = [0]
    for step in steps:
        places.append(text.index(step, places[-1] + 1))
    consumer = text.index("ld.shared::cta.b128", places[-1])
    assert text.index("fence.proxy.async", consumer) < text.index("mbarrier.arrive.relaxed", consumer)
    assert text.count("ld.shared::cta.b128") == 2
