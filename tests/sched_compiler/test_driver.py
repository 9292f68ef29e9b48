"""The verbs as functions: what they refuse, what names an artifact, and what a manifest says."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sched_compiler import compiling, driver, registry
from sched_compiler.artifact import Artifact, Emit
from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.driver import CompileRequest, artifact_key, compile_spec, trace
from sched_compiler.formula import parse
from sched_compiler.registry import BackendError, ToolMissingError

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))

TEXT = """\
version: 1
name: rows-first
params:
  rows: {min: 0, max: 100}
space: {m: rows, n: 3}
dispatch: {static: {workers: 2}}
"""
REQUEST = CompileRequest(TEXT, "rows.yaml", "sm_90a")


def refused(text: str, **how: Any) -> list[Diagnostic]:
    with pytest.raises(SpecError) as caught:
        trace(text, "rows.yaml", **how)
    return list(caught.value.diagnostics)


class TestTrace:
    def test_workers_take_turns(self) -> None:
        found = trace(TEXT, values={"rows": 2})
        assert found.as_json() == {
            "axes": ["m", "n"],
            "workers": 2,
            "tiles": [[[0, 0], [0, 2], [1, 1]], [[0, 1], [1, 0], [1, 2]]],
            "out_of_bounds": [],
        }

    @pytest.mark.parametrize("engine", ["numpy", "cuda", "ptx"])
    def test_engines_agree(self, engine: driver.Engine) -> None:
        assert trace(TEXT, values={"rows": 7}, engine=engine).tiles == trace(TEXT, values={"rows": 7}).tiles

    def test_a_missing_value_is_asked_for(self) -> None:
        (d,) = refused(TEXT)
        assert (d.code, d.span.line, d.span.column) == ("E070", 4, 9)
        assert d.found == "no value"
        assert d.mend == "give --set rows=0"

    @pytest.mark.parametrize("value", [-1, 101, 10**30])
    def test_a_value_out_of_its_range_is_refused(self, value: int) -> None:
        (d,) = refused(TEXT, values={"rows": value})
        assert (d.code, d.found, d.expected) == ("E070", str(value), "0 to 100")

    def test_an_unknown_value_is_refused(self) -> None:
        found = refused(TEXT, values={"row": 3})
        assert [(d.code, d.expected) for d in found] == [("E070", "one of: rows"), ("E070", "0 to 100")]

    def test_workers_override_the_spec(self) -> None:
        found = trace(TEXT, values={"rows": 1}, workers=5)
        assert found.workers == 5
        assert found.tiles == [[[0, 0]], [[0, 1]], [[0, 2]], [], []]

    @pytest.mark.parametrize("workers", [0, -1, 2**31])
    def test_an_impossible_number_of_workers_is_refused(self, workers: int) -> None:
        assert [d.code for d in refused(TEXT, values={"rows": 1}, workers=workers)] == ["E070"]

    def test_single_has_a_worker_for_each_item_whatever_is_asked(self) -> None:
        text = TEXT.replace("static: {workers: 2}", "single: {}")
        assert trace(text, values={"rows": 1}, workers=2).workers == 3

    def test_grid_needs_a_number(self) -> None:
        text = TEXT.replace("workers: 2", "workers: grid")
        (d,) = refused(text, values={"rows": 1})
        assert (d.code, d.span.line, d.span.column, d.mend) == ("E070", 6, 30, "give --workers N")
        assert trace(text, values={"rows": 1}, workers=3).tiles == [[[0, 0]], [[0, 1]], [[0, 2]]]

    def test_only_the_followed_workers_are_traced(self) -> None:
        found = trace(TEXT, values={"rows": 2}, follow=[1])
        assert found.tiles == [[[0, 1], [1, 0], [1, 2]]]
        assert trace(TEXT, values={"rows": 2}, follow=[1, 0, 1]).tiles == [
            *found.tiles,
            [[0, 0], [0, 2], [1, 1]],
            *found.tiles,
        ]

    @pytest.mark.parametrize("worker", [-1, 2])
    def test_a_worker_that_is_not_there_cannot_be_followed(self, worker: int) -> None:
        assert [d.expected for d in refused(TEXT, values={"rows": 2}, follow=[worker])] == ["0 to 1"]

    def test_a_trace_has_a_limit(self) -> None:
        text = TEXT.replace("100}", "100000000}")
        assert [d.code for d in refused(text, values={"rows": 100_000_000})] == ["E070"]
        assert len(trace(text, values={"rows": 3}).tiles) == 2

    def test_padding_is_listed_by_worker_and_position(self) -> None:
        text = "version: 1\nname: x\nspace: {m: 3}\ncluster: {m: 2}\ndispatch: {static: {workers: 2}}\n"
        found = trace(text)
        assert found.tiles == [[[0], [1]], [[2], [3]]]
        assert found.out_of_bounds == [[1, 1]]

    def test_an_unproven_spec_is_not_traced(self) -> None:
        text = "version: 1\nname: x\nspace: {m: 3}\nmap: {m: i // 2}\ndispatch: single\n"
        assert {d.code for d in refused(text)} == {"E060", "E061"}


# -- keys -------------------------------------------------------------------------------------------------------

KEY_OF = """
import json, sys
from sched_compiler.driver import CompileRequest, artifact_key
print(artifact_key(CompileRequest(**json.loads(sys.stdin.read()))))
"""


def key_elsewhere(request: CompileRequest, directory: Path, seed: str) -> str:
    data = {name: getattr(request, name) for name in ("text", "file", "arch", "backend", "emit")}
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "HOME": str(directory)}
    done = subprocess.run(
        [sys.executable, "-c", KEY_OF],
        input=json.dumps(data), capture_output=True, text=True, cwd=directory, env=environment, check=True,
    )  # fmt: skip
    return done.stdout.strip()


class TestKey:
    def test_is_the_same_in_other_processes_and_directories(self, tmp_path: Path) -> None:
        key = artifact_key(REQUEST)
        assert len(key) == 64
        assert set(key) <= set("0123456789abcdef")
        (tmp_path / "elsewhere").mkdir()
        assert key_elsewhere(REQUEST, tmp_path, "1") == key
        assert key_elsewhere(REQUEST, tmp_path / "elsewhere", "2") == key

    @pytest.mark.parametrize(
        "other",
        [
            replace(REQUEST, file="elsewhere/other.yaml"),
            replace(REQUEST, text="# a comment\n" + TEXT.replace("\n", "   # more\n")),
            replace(REQUEST, text=TEXT.replace("{m: rows, n: 3}", "\n  m:  rows\n  n: 3")),
            replace(REQUEST, text=TEXT.replace("rows, n", '"( rows )", n')),
            replace(REQUEST, text=TEXT + "order: {loops: [m, n]}\n"),
            replace(REQUEST, text=TEXT + "kernel: trace\n"),
        ],
    )
    def test_does_not_depend_on_how_the_spec_is_written(self, other: CompileRequest) -> None:
        assert other != REQUEST
        assert artifact_key(other) == artifact_key(REQUEST)

    @pytest.mark.parametrize(
        "other",
        [
            replace(REQUEST, arch="sm_90"),
            replace(REQUEST, arch="sm_100a"),
            replace(REQUEST, backend="ptx"),
            replace(REQUEST, emit="ptx"),
            replace(REQUEST, emit="header"),
            replace(REQUEST, text=TEXT.replace("rows-first", "rows_first")),
            replace(REQUEST, text=TEXT.replace("100", "101")),
            replace(REQUEST, text=TEXT.replace("n: 3", "n: 4")),
            replace(REQUEST, text=TEXT.replace("workers: 2", "workers: 3")),
            replace(REQUEST, text=TEXT + "order: {loops: [n, m]}\n"),
            replace(REQUEST, text=TEXT + "cluster: {m: 2}\n"),
        ],
    )
    def test_depends_on_what_is_made(self, other: CompileRequest) -> None:
        assert artifact_key(other) != artifact_key(REQUEST)

    def test_all_requests_have_keys_of_their_own(self) -> None:
        emits: dict[str, list[Emit]] = {"cuda": ["cubin", "ptx", "header", "ltoir", "object"], "ptx": ["cubin", "ptx"]}
        requests = [
            replace(REQUEST, arch=arch, backend=backend, emit=emit)
            for arch in ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a")
            for backend in emits
            for emit in emits[backend]
        ]
        assert len({artifact_key(r) for r in requests}) == len(requests)

    def test_depends_on_the_compilers_exact_build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = artifact_key(REQUEST)
        backend = driver.backend_named("cuda")
        monkeypatch.setattr(type(backend), "compiler", lambda _: "nvrtc 0.0.0")
        assert artifact_key(REQUEST) != before

    @pytest.mark.parametrize("version", ["SCHEMA", "IR_VERSION"])
    def test_depends_on_the_versions_of_this_project(self, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        before = artifact_key(REQUEST)
        monkeypatch.setattr(compiling, version, "other")
        assert artifact_key(REQUEST) != before


class TestRefusals:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("arch", "sm_1"), ("arch", "sm_999"), ("arch", "90a"), ("arch", "sm_90a; rm"), ("arch", "compute_90"),
            ("arch", ""), ("arch", "sm_90a\n"), ("backend", "triton"), ("backend", ""), ("emit", "sass"),
        ],
    )  # fmt: skip
    def test_what_is_not_on_the_list_is_refused_without_a_place_in_the_spec(self, field: str, value: Any) -> None:
        changed: dict[str, Any] = {field: value}
        for verb in (artifact_key, compile_spec):
            with pytest.raises(SpecError) as caught:
                verb(replace(REQUEST, **changed))
            (d,) = caught.value.diagnostics
            assert d.code in ("E053", "E080")
            assert d.span.file.startswith("<request")
            assert d.expected

    def test_ptx_backend_has_no_header(self) -> None:
        with pytest.raises(SpecError):
            artifact_key(replace(REQUEST, backend="ptx", emit="header"))

    def test_errors_pickle(self) -> None:
        with pytest.raises(SpecError) as caught:
            compile_spec(replace(REQUEST, text="version: 1\nspace: {m: 0x}\n"))
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, SpecError)
        assert again.diagnostics == caught.value.diagnostics
        assert str(again) == str(caught.value)

    def test_requests_reports_and_artifacts_pickle(self) -> None:
        report = driver.check_text(TEXT)
        artifact = compile_spec(replace(REQUEST, emit="header"))
        for value in (REQUEST, report, artifact):
            assert pickle.loads(pickle.dumps(value)) == value

    @pytest.mark.parametrize("text", ["", "[]", "1", "\0", "a: &b *b", "{" * 5000, "version: 1\n", "\ufeff", "é: ü"])
    def test_check_never_raises(self, text: str) -> None:
        report = driver.check_text(text, "any.yaml")
        assert not report.ok
        assert report.diagnostics
        json.dumps(report.as_json())


# -- manifests --------------------------------------------------------------------------------------------------


def compiled(path: Path, backend: str) -> Artifact:
    return compile_spec(CompileRequest(path.read_text(), path.name, "sm_90a", backend))


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_manifest_describes_the_cubin(path: Path, backend: str) -> None:
    from backends.toolchain import cubin

    artifact = compiled(path, backend)
    manifest: dict[str, Any] = json.loads(json.dumps(artifact.manifest))
    request = CompileRequest(path.read_text(), path.name, "sm_90a", backend)
    assert manifest["key"] == artifact.key == artifact_key(request)
    assert manifest["digest"] == hashlib.sha256(artifact.blob).hexdigest()
    assert manifest["bytes"] == len(artifact.blob)
    assert (manifest["arch"], manifest["backend"], manifest["emit"]) == ("sm_90a", backend, "cubin")
    (kernel,) = [k for k in cubin.describe(artifact.blob) if k.entry == manifest["entry"]]
    in_cubin = [(p.offset, p.size) for p in sorted(kernel.parameters, key=lambda p: p.index)]
    assert [(p["offset"], p["size"]) for p in manifest["parameters"]] == in_cubin
    assert [p["order"] for p in manifest["parameters"]] == list(range(len(in_cubin)))
    assert manifest["resources"]["registers"] == kernel.registers
    assert manifest["resources"]["local_bytes"] == 0, "a schedule spills nothing"
    checked = driver.check(path.read_text())
    tables = [t.name for t in checked.schedule.tables]
    own = [*checked.loaded.spec.params, *tables, *(["counter"] if checked.schedule.dispatch.queue else [])]
    assert [p["name"] for p in manifest["parameters"][5:]] == own
    assert [a["name"] for a in manifest["schedule"]["axes"]] == list(checked.loaded.axes)
    for text in (*manifest["launch"]["grid"], manifest["launch"]["workers"]):
        parse(text.replace("$workers", "workers"))
    size = manifest["launch"]["cluster"][0]
    assert kernel.cluster in (None, (1, 1, 1), (size, 1, 1))
    assert manifest["versions"]["compiler"].startswith("nvrtc" if backend == "cuda" else "nvjitlink")


def test_manifest_gives_the_range_of_each_parameter() -> None:
    manifest: dict[str, Any] = dict(compile_spec(REQUEST).manifest)
    own = manifest["parameters"][-1]
    assert (own["name"], own["type"], own["min"], own["max"], own["role"]) == ("rows", "u32", 0, 100, "parameter")


def test_parameters_of_different_widths_are_aligned() -> None:
    text = (
        "version: 1\nname: widths\nparams: {a: {min: 0, max: 9}, b: {min: 0, max: 8589934592}, c: {min: -3, max: 3}, "
        "d: {min: -8589934592, max: 3}}\nspace: {m: a + 1, n: 2}\norder: {loops: [m, n], rotate: {m: b + c + d}}\n"
        "dispatch: {static: {workers: grid}}\n"
    )
    for backend in ("cuda", "ptx"):
        manifest: dict[str, Any] = dict(compile_spec(replace(REQUEST, text=text, backend=backend)).manifest)
        own = manifest["parameters"][5:]
        assert [(p["name"], p["type"], p["offset"]) for p in own] == [
            ("a", "u32", 32), ("b", "u64", 40), ("c", "s32", 48), ("d", "s64", 56)
        ]  # fmt: skip


@pytest.mark.parametrize("emit", ["ptx", "header"])
def test_text_artifacts_are_text_and_have_no_resources(emit: Any) -> None:
    artifact = compile_spec(replace(REQUEST, emit=emit))
    assert artifact.manifest["resources"] is None
    text = artifact.blob.decode()
    assert "rows_first" in text
    assert text.endswith("\n")
    assert artifact.manifest["digest"] == hashlib.sha256(artifact.blob).hexdigest()


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_expanded_specs_compile_to_the_same_bytes(path: Path) -> None:
    """A preset is nothing but its composed form."""
    expanded = driver.expand(path.read_text())
    assert driver.expand(expanded) == expanded
    first, second = (CompileRequest(text, "x", "sm_90a") for text in (path.read_text(), expanded))
    assert artifact_key(first) == artifact_key(second)
    assert driver.emit_text(driver.check(first.text), "cuda") == driver.emit_text(driver.check(second.text), "cuda")


def test_capabilities_name_what_is_installed() -> None:
    found = driver.capabilities()
    assert set(found["backends"]) >= {"cuda", "ptx"}
    for backend in ("cuda", "ptx"):
        assert "sm_90a" in found["backends"][backend]["architectures"]
    json.dumps(found)


class TestCompilersThatFail:
    """What a backend's compiler does is told as a diagnostic, wherever it happens."""

    def test_a_refused_source_is_a_diagnostic(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> bytes:
            raise BackendError("line 3; error: unexpected")

        monkeypatch.setattr(registry.get("cuda"), "build", refuse, raising=True)
        with pytest.raises(SpecError) as caught:
            compile_spec(REQUEST)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "E071"
        assert "unexpected" in (diagnostic.found or "")

    @pytest.mark.parametrize("part", ["supports", "compiler"])
    def test_a_compiler_that_is_not_installed_is_a_diagnostic(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: object) -> str:
            raise ToolMissingError("libnvrtc.so is not installed")

        monkeypatch.setattr(registry.get("cuda"), part, missing, raising=True)
        with pytest.raises(SpecError) as caught:
            compile_spec(REQUEST)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "E073"
        assert "libnvrtc.so" in diagnostic.message

    def test_an_engine_that_is_not_there_is_a_diagnostic(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: object) -> None:
            raise ToolMissingError("a CUDA driver and a device")

        monkeypatch.setattr(registry, "engine", lambda _: missing)
        assert [d.code for d in refused(TEXT, values={"rows": 1}, engine="gpu")] == ["E073"]


def test_padding_without_effect_is_a_warning() -> None:
    loops = "loops: [m.outer.outer, m.outer.inner, n, m.inner]"
    order = f"order: {{split: {{m: 8, m.outer: {{by: 2, ragged: pad}}}}, {loops}}}"
    text = TEXT.replace("dispatch:", f"{order}\ndispatch:")
    report = driver.check_text(text)
    assert report.ok
    assert [(d.code, d.severity) for d in report.diagnostics] == [("W001", "warning")]


@pytest.mark.parametrize("rows", [2**32, 2**62, 2**63 - 1])
def test_followed_workers_count_against_the_limit_too(rows: int) -> None:
    text = TEXT.replace("max: 100", f"max: {2**63 - 1}").replace("n: 3", "n: 1")
    for workers in (1, 66, 2**31 - 1) if rows > 2**32 else (1, 66):
        found = refused(text, values={"rows": rows}, workers=workers, follow=[0])
        assert [d.code for d in found] == ["E070"]
