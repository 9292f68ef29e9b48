"""From text to the composed form: every fault at its place, and both forms round-trip."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.loader import LoadedSpec, canonical, load, to_yaml

BAD = sorted((Path(__file__).parent.parent / "bad_specs" / "load").glob("*.yaml"))
EXPECT = re.compile(r"^# expect: ([EW]\d{3}) (\d+):(\d+)$", re.MULTILINE)

COMPOSED = """\
version: 1
name: gemm-group-major
params: {m_tiles: {min: 1, max: 65536}}
space: {m: m_tiles, n: 32}
order:
  split: {m: 8}
  loops: [m.outer, n, m.inner]
dispatch:
  static: {workers: 66}
"""
PRESET = """\
version: 1
name: gemm-group-major
uses: cluster_persistent_2d
with: {num_m_tiles: m_tiles, num_n_tiles: 32, num_clusters: 66, l2_group_size: 8}
params:
  m_tiles: {min: 1, max: 65536}     # known only at launch
"""
PIECES = """\
version: 1
name: blocks
space: {m: 37, n: 29}
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
dispatch: single
"""
WALKS = """\
version: 1
name: walks
params: {dies: {min: 1, max: 8}}
space: {m: 37, n: 29}
order:
  pieces:
    - part: {m: [0, 32]}
      split: {m: 4}
      curve: hilbert
      loops: [m.inner]
    - part: {m: [32, 37], n: [0, 16]}
      raster: {along: m, swizzle: 2 * dies}
    - part: {m: [32, 37], n: [16, 29]}
      raster: auto
  partitions: {count: dies, chunk: 4 * dies}
dispatch: single
"""
MAP = """\
version: 1
name: mapped
space: {m: 32, n: 32}
map:
  m: i // 256 * 8 + i % 8
  n: "min(i % 256 // 8, 31)"
cluster: {m: 2, n: 1, ragged: reject}
dispatch: {static: {workers: grid}}
"""
ATTENTION = """\
version: 1
name: longest-first
params: {m_blocks: {min: 0, max: 1024}, shift: {min: 0, max: 7}}
space: {batch: 4, head: 16, m_block: m_blocks}
order:
  fuse: {hb: [batch, head]}
  split: {hb: {by: 8, ragged: pad}}
  loops: [hb.outer, m_block, hb.inner]
  reverse: [m_block]
  rotate: {m_block: shift + 1 if shift > 2 else 0}
dispatch: {single: null}
"""
GOOD = [COMPOSED, PRESET, PIECES, WALKS, MAP, ATTENTION]


def faults(text: str) -> set[tuple[str, int, int]]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return {(d.code, d.span.line, d.span.column) for d in caught.value.diagnostics}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_spec(path: Path) -> None:
    text = path.read_bytes().decode()
    expected = {(code, int(line), int(column)) for code, line, column in EXPECT.findall(text)}
    assert expected, "a bad spec says what is expected of it"
    with pytest.raises(SpecError) as caught:
        load(text, str(path))
    assert {(d.code, d.span.line, d.span.column) for d in caught.value.diagnostics} == expected
    for diagnostic in caught.value.diagnostics:
        shown = " ".join(map(str, (diagnostic.message, diagnostic.found, diagnostic.expected, diagnostic.mend)))
        assert not re.search("pydantic|http|Input should|BaseModel", shown)


def test_bad_specs_are_many() -> None:
    assert len(BAD) >= 50


@pytest.mark.parametrize("text", GOOD)
def test_both_forms_load_to_the_same_spec(text: str) -> None:
    loaded = load(text)
    again = load(to_yaml(loaded.spec))
    assert again.spec == loaded.spec
    assert again.uses is None
    assert to_yaml(again.spec) == to_yaml(loaded.spec)
    assert canonical(again.spec) == canonical(loaded.spec)


@pytest.mark.parametrize("text", GOOD)
def test_pickles(text: str) -> None:
    loaded = load(text)
    assert pickle.loads(pickle.dumps(loaded)) == loaded


def test_preset_is_its_composed_form() -> None:
    assert load(PRESET).spec == load(COMPOSED).spec
    assert to_yaml(load(PRESET).spec) == COMPOSED.replace(
        "dispatch:\n  static: {workers: 66}", "dispatch: {static: {workers: 66}}"
    )


def test_axes_are_in_order() -> None:
    assert load(ATTENTION).axes == ("batch", "head", "m_block")


@pytest.mark.parametrize("word", ["single", "{single: {}}", "{single: null}", "{single: }"])
def test_ways_to_write_single(word: str) -> None:
    spec = load(f"version: 1\nname: x\nspace: {{m: 4}}\ndispatch: {word}\n").spec
    assert spec.dispatch.single is not None
    assert spec.dispatch.static is None


def test_order_defaults_to_the_axes_as_declared() -> None:
    order = load("version: 1\nname: x\nspace: {n: 4, m: 2}\ndispatch: single\n").spec.order
    assert order is not None
    assert order.loops == ["n", "m"]


def test_dispatch_beside_uses_replaces_the_preset_s() -> None:
    text = (
        "version: 1\nname: x\nuses: cluster_persistent_2d\nwith: {num_m_tiles: 4, num_n_tiles: 4}\n"
        "dispatch: {static: {workers: grid}}\n"
    )
    loaded = load(text)
    assert loaded.spec.dispatch.static is not None
    assert loaded.spec.dispatch.static.workers == "grid"
    assert loaded.span(("dispatch", "static", "workers")).line == 5


def test_json_loads() -> None:
    text = '{"version":1,\t"name":"x",\n\t"space":{"m":4},\n\t"dispatch":{"single":{}}}'
    assert load(text).spec.space == {"m": 4}


def test_axes_may_have_the_names_that_yaml_1_1_took_for_booleans() -> None:
    spec = load("version: 1\nname: x\nspace: {n: 012, y: 2, on: 3}\norder: {loops: [y, on, n]}\ndispatch: single").spec
    assert spec.space == {"n": 12, "y": 2, "on": 3}
    assert load(to_yaml(spec)).spec == spec


def test_axes_may_have_the_names_of_constants_in_quotes() -> None:
    spec = load('{version: 1, name: x, space: {"NULL": 4, "true": 2}, dispatch: single}').spec
    assert spec.space == {"NULL": 4, "true": 2}
    assert load(to_yaml(spec)).spec == spec
    assert yaml.safe_load(to_yaml(spec))["space"] == {"NULL": 4, "true": 2}


def test_spec_errors_pickle() -> None:
    with pytest.raises(SpecError) as caught:
        load("version: 2\n")
    assert pickle.loads(pickle.dumps(caught.value)).diagnostics == caught.value.diagnostics


def test_faults_of_the_text_and_of_the_spec_come_together() -> None:
    assert faults("version: 1\nname: a b\nspace: {m: 4, m: 5}\ndispatch: {single: {}}\n") == {
        ("E013", 2, 7),
        ("E003", 3, 15),
    }


def test_number_of_faults_is_bounded() -> None:
    text = "{" + ", ".join(f"k{n}: 1" for n in range(20_000)) + "}"
    assert len(faults(text)) <= 100


class TestPlaces:
    """Composed paths lead to where the user wrote the value."""

    def at(self, loaded: LoadedSpec, *path: str | int) -> tuple[int, int]:
        span = loaded.span(path)
        return span.line, span.column

    def test_composed(self) -> None:
        loaded = load(COMPOSED)
        assert self.at(loaded, "space", "m") == (4, 12)
        assert self.at(loaded, "order", "split", "m", "by") == (6, 14)
        assert self.at(loaded, "order", "loops", 2) == (7, 23)
        assert self.at(loaded, "order", "reverse", 0) == (6, 3)
        assert self.at(loaded, "nowhere") == (1, 1)

    def test_cluster(self) -> None:
        assert self.at(load(MAP), "cluster", "shape", "n") == (7, 20)
        assert self.at(load(MAP), "cluster", "ragged") == (7, 31)

    def test_key(self) -> None:
        span = load(MAP).key_span(("cluster", "shape", "n"))
        assert (span.line, span.column, span.end_column) == (7, 17, 18)

    def test_preset(self) -> None:
        loaded = load(PRESET)
        assert self.at(loaded, "space", "m") == (4, 21)
        assert self.at(loaded, "order", "split", "m", "by") == (4, 80)
        assert self.at(loaded, "dispatch", "static", "workers") == (4, 61)
        assert self.at(loaded, "order", "loops") == (3, 7)
        assert self.at(loaded, "params", "m_tiles", "max") == (6, 26)

    def test_default_of_a_preset(self) -> None:
        loaded = load(PRESET.replace(", l2_group_size: 8", ""))
        assert self.at(loaded, "order", "split", "m", "by") == (3, 7)

    def test_within_formulas(self) -> None:
        loaded = load(ATTENTION)
        text = "shift + 1 if shift > 2 else 0"
        path = ("order", "rotate", "m_block")
        diagnostic = loaded.diagnostic("E022", path, "x", column=text.index(">"))
        assert (diagnostic.span.line, diagnostic.span.column) == (10, 21 + text.index(">"))
        quoted = load(MAP).error("E022", ("map", "n"), "x", column=0).diagnostics[0].span
        assert (quoted.line, quoted.column, quoted.end_column) == (6, 7, 10)

    def test_within_a_preset_s_argument(self) -> None:
        loaded = load(PRESET.replace("num_m_tiles: m_tiles", "num_m_tiles: m_tiles - 1"))
        span = loaded.diagnostic("E023", ("space", "m"), "x", column=8).span
        assert (span.line, span.column) == (4, 29)

    def test_within_a_formula_that_the_preset_made(self) -> None:
        loaded = load(PRESET.replace("l2_group_size: 8", "l2_group_size: m_tiles, serpentine: true"))
        span = loaded.diagnostic("E023", ("order", "pieces", 0, "part", "m", 1), "x", column=11).span
        assert (span.line, span.column, span.end_column) == (4, 80, 87)


class TestCanonical:
    def test_writing_does_not_matter(self) -> None:
        other = COMPOSED.replace("m_tiles, n: 32", '"(m_tiles)", n: "32"').replace("{m: 8}", "{m: {by: 8}}")
        assert canonical(load(other).spec) == canonical(load(COMPOSED).spec)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("{m: m_tiles, n: 32}", "{n: 32, m: m_tiles}"),
            ("max: 65536", "max: 65535"),
            ("{m: 8}", "{m: {by: 8, ragged: pad}}"),
            ("workers: 66", "workers: grid"),
            ("[m.outer, n, m.inner]", "[n, m.outer, m.inner]"),
            ("name: gemm", "name: gem"),
        ],
    )
    def test_meaning_matters(self, old: str, new: str) -> None:
        assert canonical(load(COMPOSED.replace(old, new)).spec) != canonical(load(COMPOSED).spec)

    def test_golden(self) -> None:
        """The text is a part of cache keys: it may change only together with their version."""
        assert canonical(load(COMPOSED).spec) == (
            '{"dispatch":{"static":{"workers":"66"}},"kernel":"trace","name":"gemm-group-major","order":{"fuse":[],'
            '"loops":["m.outer","n","m.inner"],"reverse":[],"rotate":[],"serpentine":[],'
            '"split":[["m",{"by":"8","ragged":"short"}]]},"params":[["m_tiles",{"max":65536,"min":1}]],'
            '"space":[["m","m_tiles"],["n","32"]],"version":1}'
        )


WORDS = st.sampled_from(
    [
        *("null", "~", "{", "}", "[", "]", "- ", "1", "-1", "1.5", "m", "n", "i", "grid", "if", "else", "true", "|"),
        *("single", "static: ", "clc: ", "&a ", "*a", "!!x ", "<<: ", "//", "%", "min(a", "9" * 30, "[[]]", "{{}}"),
        *("\n", "\n  ", ": ", ", ", "# ", "? ", "\0", "\t", '"', "'", '"\\0"', "kernel: gemm", "curve: ", "loops: "),
        *("uses: ", "with: ", "map: ", "order: ", "pieces: ", "params: ", "space: ", "cluster: ", "dispatch: "),
    ]
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), WORDS | st.text(max_size=3)), max_size=4)


@given(st.sampled_from(GOOD), EDITS)
def test_any_change_to_a_good_spec_loads_or_gives_diagnostics(text: str, edits: list[tuple[float, int, str]]) -> None:
    for where, removed, word in edits:
        at = int(where * len(text))
        text = text[:at] + word + text[at + removed :]
    check(text)


@given(st.text())
def test_any_text_loads_or_gives_diagnostics(text: str) -> None:
    check(text)


TOP = ("version", "name", "params", "uses", "with", "space", "order", "map", "cluster", "dispatch", "kernel")
INNER = (
    *("m", "n", "by", "ragged", "loops", "split", "fuse", "pieces", "part", "reverse", "serpentine", "rotate", "curve"),
    *("raster", "along", "swizzle", "partitions", "count", "chunk", "auto", "hilbert"),
    *("single", "static", "workers", "clc", "min", "max", "num_m_tiles"),
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.sampled_from(["m", "a // 0", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TOP + INNER), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(TOP), DATA))
def test_any_data_loads_or_gives_diagnostics(data: dict[str, object]) -> None:
    check(json.dumps(data))


def check(text: str) -> None:
    faults: tuple[Diagnostic, ...] = ()
    try:
        loaded = load(text)
    except SpecError as error:
        faults = error.diagnostics
    else:
        assert load(to_yaml(loaded.spec)).spec == loaded.spec
        return
    assert faults
    lines = re.split("\r\n|\r|\n", text)
    for span in (diagnostic.span for diagnostic in faults):
        assert 1 <= span.line <= span.end_line <= len(lines)
        assert 1 <= span.column <= len(lines[span.line - 1]) + 1
        assert 1 <= span.end_column <= len(lines[span.end_line - 1]) + 1
