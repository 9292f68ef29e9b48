"""Presets against their definitions: the composed form, walked as written loops, gives the defined sequence."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sched_compiler.diagnostics import SpecError
from sched_compiler.loader import load, to_yaml
from sched_compiler.presets import PRESETS, Preset
from sched_compiler.schema import json_schema
from sched_compiler.source import load_document
from tests.support.oracle import visits

Tile = tuple[int, ...]


def text_of(uses: str, arguments: dict[str, Any], params: str = "{}", more: str = "") -> str:
    words = {True: "true", False: "false", None: "null"}
    given = ", ".join(
        f"{k}: {words[v] if v is None or isinstance(v, bool) else v if isinstance(v, int) else repr(v)}"
        for k, v in arguments.items()
    )
    return f"version: 1\nname: x\nuses: {uses}\nwith: {{{given}}}\nparams: {params}\n{more}"


def composed(text: str) -> dict[str, Any]:
    data = load_document(to_yaml(load(text).spec), "composed").data
    assert isinstance(data, dict)
    return data


def walked(uses: str, **arguments: Any) -> list[Tile]:
    """The sequence for integers. It must be the same when every integer is a run-time parameter instead."""
    sequence = [tile for tile, _ in visits(composed(text_of(uses, arguments)), {})]
    env = {f"p_{k}": v for k, v in arguments.items() if isinstance(v, int) and not isinstance(v, bool)}
    run_time = {k: f"p_{k}" if f"p_{k}" in env else v for k, v in arguments.items()}
    params = "{" + ", ".join(f"{name}: {{min: 0, max: 100}}" for name in env) + "}"
    assert [tile for tile, _ in visits(composed(text_of(uses, run_time, params)), env)] == sequence
    return sequence


def clusters(rows: int, columns: int, group: int, serpentine: bool) -> list[tuple[int, int]]:
    """The order of clusters, by the formulas of the definition."""
    if not serpentine:
        result = []
        span = group * columns
        full, short = rows // group, rows % group
        for item in range(rows * columns):
            if item < full * span:
                x = item % span
                result.append((item // span * group + x % group, x // group))
            else:
                x = item - full * span
                result.append((full * group + x % short, x // short))
        return result
    high, wide = rows // group, columns // group
    blocks = [(row if column % 2 == 0 else high - 1 - row, column) for column in range(wide) for row in range(high)]
    result = [
        (row * group + i, column * group + j) for row, column in blocks for i in range(group) for j in range(group)
    ]
    result += [(i, j) for i in range(rows) for j in range(wide * group, columns)]
    return result + [(i, j) for j in range(wide * group) for i in range(high * group, rows)]


@pytest.mark.parametrize("serpentine", [False, True])
@pytest.mark.parametrize(("cm", "cn"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_cluster_persistent_2d(cm: int, cn: int, serpentine: bool) -> None:
    for m, n, group in itertools.product((0, 1, 2, 5, 9), (0, 1, 3, 4, 7), (1, 2, 4, 8)):
        expected = [
            (r * cm + dm, c * cn + dn)
            for r, c in clusters(-(-m // cm), -(-n // cn), group, serpentine)
            for dn in range(cn)
            for dm in range(cm)
        ]
        found = walked(
            "cluster_persistent_2d",
            num_m_tiles=m, num_n_tiles=n, num_clusters=3, l2_group_size=group, cluster_m=cm, cluster_n=cn,
            serpentine=serpentine,
        )  # fmt: skip
        assert found == expected, (m, n, group)


@pytest.mark.parametrize(("rows", "columns", "block"), [(1, 3, 2), (3, 3, 2), (9, 9, 8)])
def test_serpentine_covers_the_box_whatever_is_left_over(rows: int, columns: int, block: int) -> None:
    tiles = walked(
        "cluster_persistent_2d",
        num_m_tiles=rows, num_n_tiles=columns, num_clusters=4, l2_group_size=block, serpentine=True,
    )  # fmt: skip
    assert sorted(tiles) == list(itertools.product(range(rows), range(columns)))


def test_group_major_3d() -> None:
    for m_tiles, n_tiles, k_tiles, group in itertools.product((0, 1, 5, 8), (1, 3), (1, 2), (1, 2, 4, 9)):
        expected = []
        full = m_tiles // group * group * n_tiles * k_tiles
        short = m_tiles % group
        for i in range(m_tiles * n_tiles * k_tiles):
            if i < full:
                span = group * n_tiles * k_tiles
                tile = (i // span * group + i % group, i // group % n_tiles, i % span // (group * n_tiles))
            else:
                x = i - full
                tile = (m_tiles - short + x % short, x // short % n_tiles, x // (short * n_tiles))
            expected.append(tile)
        found = walked("group_major_3d", m_tiles=m_tiles, n_tiles=n_tiles, k_tiles=k_tiles, group_rows=group)
        assert found == expected, (m_tiles, n_tiles, k_tiles, group)


def test_flash_attention_linear() -> None:
    for batches, heads, blocks in itertools.product((0, 1, 3), (1, 4), (0, 1, 5)):
        expected = [
            (i // (heads * blocks), i % (heads * blocks) // blocks, i % blocks) for i in range(batches * heads * blocks)
        ]
        found = walked("flash_attention_linear", num_batches=batches, num_heads=heads, num_m_blocks=blocks, num_ctas=2)
        assert found == expected


@pytest.mark.parametrize("num_ctas", [None, 3])
def test_flash_attention_lpt(num_ctas: int | None) -> None:
    for batches, heads, blocks, swizzle in itertools.product((1, 3), (1, 4), (0, 1, 5), (1, 3, 8, 20)):
        expected = []
        both = batches * heads
        for i in range(both * blocks):
            g, x = divmod(i, swizzle * blocks)
            width = swizzle if g < both // swizzle else max(both % swizzle, 1)
            hb = g * swizzle + x % width
            expected.append((hb // heads, hb % heads, blocks - 1 - x // width))
        found = walked(
            "flash_attention_lpt",
            num_batches=batches, num_heads=heads, num_m_blocks=blocks, l2_swizzle=swizzle, num_ctas=num_ctas,
        )  # fmt: skip
        assert found == expected, (batches, heads, blocks, swizzle)


SERPENTINE = {"num_m_tiles": 37, "num_n_tiles": 29, "num_clusters": 66, "l2_group_size": 4, "serpentine": True}


def order_text(**changes: Any) -> str:
    text = to_yaml(load(text_of("cluster_persistent_2d", {**SERPENTINE, **changes}, "{t: {min: 1, max: 99}}")).spec)
    return text[text.index("order:") : text.index("dispatch:")]


def test_composed_serpentine_is_readable() -> None:
    assert (
        order_text()
        == """\
order:
  pieces:
    - part: {m: [0, 36], n: [0, 28]}
      split: {m: 4, n: 4}
      loops: [n.outer, m.outer, m.inner, n.inner]
      serpentine: {m.outer: n.outer}
    - part: {n: [28, 29]}
      loops: [m, n]
    - part: {m: [36, 37], n: [0, 28]}
      loops: [n, m]
"""
    )


def test_pieces_that_are_always_empty_are_left_out() -> None:
    blocks = "loops: [n.outer, m.outer, m.inner, n.inner]\n  serpentine: {m.outer: n.outer}\n"
    assert order_text(num_m_tiles=36, num_n_tiles=28) == f"order:\n  split: {{m: 4, n: 4}}\n  {blocks}"
    assert order_text(num_m_tiles=3, num_n_tiles=3) == "order:\n  loops: [m, n]\n"
    assert order_text(num_m_tiles=0) == "order:\n  loops: [m, n]\n"
    assert "right" not in order_text(l2_group_size=1)
    assert order_text(num_m_tiles="t", l2_group_size=1) == f"order:\n  split: {{m: 1, n: 1}}\n  {blocks}"


def test_arguments_that_are_formulas_keep_their_meaning() -> None:
    text = order_text(num_m_tiles="t + 1", cluster_m=2, l2_group_size="t - 1")
    assert '"ceil_div(t + 1, 2) // (t - 1) * (t - 1)"' in text
    assert "n: [0, 29 // (t - 1) * (t - 1)]" in text


def test_padded_tiles_are_marked() -> None:
    spec = composed(text_of("cluster_persistent_2d", {**SERPENTINE, "cluster_m": 2, "cluster_n": 2}))
    tiles = visits(spec, {})
    assert len(tiles) == 38 * 30
    assert all(inside == (m < 37 and n < 29) for (m, n), inside in tiles)


@pytest.mark.parametrize("argument", ["num_clusters", "step", "num_ctas"])
def test_as_many_workers_as_are_launched(argument: str) -> None:
    for preset in PRESETS.values():
        kind = preset.arguments.get(argument)
        if kind is None:
            continue
        given = {a.name: 4 for a in preset.arguments.values() if a.required}
        spec = {"version": 1, "name": "x", "uses": preset.name, "with": {**given, argument: "grid"}}
        own = {**spec, "with": {**given, argument: 4}, "dispatch": {"static": {"workers": "grid"}}}
        assert load(json.dumps(spec)).spec == load(json.dumps(own)).spec
        assert Draft202012Validator(json_schema()).is_valid(spec)


def test_grid_is_no_other_argument() -> None:
    text = "{version: 1, name: x, uses: group_major_3d, with: {m_tiles: 1, n_tiles: 1, k_tiles: 1, group_rows: grid}}"
    with pytest.raises(SpecError) as caught:
        load(text)
    (d,) = caught.value.diagnostics
    assert (d.code, d.mend) == ("E021", "`grid` stands alone, for a number of workers")


def test_dispatch() -> None:
    lpt = {"num_batches": 1, "num_heads": 1, "num_m_blocks": 1, "l2_swizzle": 1}
    assert composed(text_of("flash_attention_lpt", lpt))["dispatch"] == {"single": {}}
    assert composed(text_of("flash_attention_lpt", {**lpt, "num_ctas": 7}))["dispatch"] == {"static": {"workers": 7}}
    group = {"m_tiles": 1, "n_tiles": 1, "k_tiles": 1, "group_rows": 1}
    assert composed(text_of("group_major_3d", group))["dispatch"] == {"static": {"workers": 1}}
    replaced = text_of("group_major_3d", {**group, "step": 4}, more="dispatch: single\n")
    assert composed(replaced)["dispatch"] == {"single": {}}


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_axes_and_usage(preset: Preset) -> None:
    arguments = {a.name: [0] if a.kind.table else 2 for a in preset.arguments.values() if a.required}
    assert load(text_of(preset.name, arguments)).axes == preset.axes
    assert preset.usage().startswith(f"{preset.name}(")


def test_usage_shows_defaults() -> None:
    assert PRESETS["cluster_persistent_2d"].usage() == (
        "cluster_persistent_2d(num_m_tiles, num_n_tiles, num_clusters, l2_group_size=8, cluster_m=1, cluster_n=1, "
        "serpentine=false)"
    )
    assert PRESETS["flash_attention_lpt"].usage().endswith("num_ctas=null)")


def test_every_fault_of_the_arguments_names_the_preset_s_parameters() -> None:
    text = text_of("group_major_3d", {"m_tiles": -1, "rows": 2, "k_tiles": True, "group_rows": 0})
    with pytest.raises(SpecError) as caught:
        load(text)
    assert [d.code for d in caught.value.diagnostics] == ["E031"] * 5
    usage = "group_major_3d(m_tiles, n_tiles, k_tiles, group_rows, step=1)"
    assert {d.expected for d in caught.value.diagnostics} == {usage}
