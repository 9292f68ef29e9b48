"""A kernel of the user's own: compiled with its schedules, described by its manifest, refused in the user's files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.launching.description import described
from backends.toolchain import bundles, sandbox
from sched_compiler import SpecError, artifact_key, compile_spec
from sched_compiler.cli import main
from sched_compiler.loader import load, to_yaml
from tests.support.user_kernels import KERNEL, SPEC, built, places, refusal, request

# -- what is built --------------------------------------------------------------------------------------------


def test_the_manifest_says_how_to_launch_it() -> None:
    manifest: Any = built().manifest
    parameters = [(p["name"], p["type"], p["role"], p["offset"], p["size"]) for p in manifest["parameters"]]
    assert parameters == [
        ("A", "f32*", "argument", 0, 8),
        ("M", "s32", "parameter", 8, 4),
        ("scale", "f64", "argument", 16, 8),
        ("tiles", "sched::gemm::Arguments", "schedule", 24, 8),
    ]
    fields = [(f["name"], f["type"], f["offset"], f["min"], f["max"]) for f in manifest["parameters"][3]["fields"]]
    assert fields == [("M", "u32", 0, 0, 65536), ("N", "u32", 4, 0, 65536)]
    assert manifest["launch"]["grid"] == ["$workers", "1", "1"]
    assert manifest["launch"]["block"] == [32, 4, 1]
    assert manifest["launch"]["dynamic_shared_bytes"] == "M + 1024"
    assert manifest["entry"] == manifest["expression"] == "work"
    assert [s["path"] for s in manifest["sources"]] == ["k.cu"]


DISPATCHES = {
    "single": "single",
    "static": "{static: {workers: 7}}",
    "grid": "{static: {workers: grid}}",
    "table": "{table: {indptr: {length: 8}}}",
    "dynamic": "dynamic",
}


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("cluster", ["", "cluster: {m: 2}\n"])
def test_one_source_for_every_dispatch(dispatch: str, cluster: str) -> None:
    """The source is the same; what it is passed is in the manifest, at the places that the compiled kernel has."""
    spec = SPEC.replace("dispatch: {static: {workers: grid}}\n", f"dispatch: {DISPATCHES[dispatch]}\n{cluster}")
    manifest: Any = built(spec).manifest
    roles = [field["role"] for field in manifest["parameters"][3]["fields"]]
    expected = ["parameter"] * 2 + {"table": ["table"], "dynamic": ["counter"]}.get(dispatch, [])
    assert roles == expected


def test_a_template_is_named_with_its_arguments() -> None:
    kernel = KERNEL.replace('extern "C" ', "template <int BM, typename T> ").replace("float*", "T*")
    manifest: Any = built(SPEC.replace("entry: work", 'entry: "work<128, float>"'), kernel).manifest
    assert manifest["expression"] == "work<128, float>"
    assert manifest["entry"].startswith("_Z4workILi128EfEv")


def test_several_schedules_serve_one_kernel() -> None:
    other = (
        SPEC.split("kernel:")[0]
        .replace("name: gemm", "name: re-duce")
        .replace("split: {m: 4}, loops: [m.outer, n, m.inner]", "loops: [n, m]")
    )
    spec = SPEC.replace("tiles: schedule]", "tiles: schedule, more: 'sched::re_duce']\n  schedules: [sub/other.yaml]")
    kernel = KERNEL.replace("tiles) {", "tiles, sched::re_duce::Arguments more) {")
    kernel = kernel.replace(
        "scale;\n", "scale;\n  for (sched::re_duce s(more); s.valid(); s.next()) A[s.tile().n] = 1;\n"
    )
    kernel = "#include <sched/re-duce.cuh>\n" + kernel
    files = {"k.cu": kernel, "sub/other.yaml": other}
    artifact = compile_spec(request(spec, files))
    manifest: Any = artifact.manifest
    assert [p["name"] for p in manifest["parameters"]] == ["A", "M", "scale", "tiles", "more"]
    assert [s["name"] for s in manifest["schedules"]] == ["re-duce"]
    changed = {**files, "sub/other.yaml": other.replace("[n, m]", "[m, n]")}
    assert artifact_key(request(spec, changed)) != artifact.key
    fixed = {**files, "sub/other.yaml": other.replace("workers: grid", "workers: 3")}
    with pytest.raises(SpecError) as caught:
        compile_spec(request(spec, fixed))
    (d,) = caught.value.diagnostics
    assert (d.code, d.expected) == ("E050", "the same number, or `workers: grid` in re-duce")


def test_macros_and_options_reach_the_compiler() -> None:
    spec = SPEC + "  defines: {WIDE: 3, NAME: 'unsigned long long'}\n  options: [fast-math, 'c++20']\n"
    built(spec, KERNEL + 'static_assert(WIDE == 3 && sizeof(NAME) == 8 && __cplusplus >= 202002L, "");\n')


@pytest.mark.skipif(bundles.missing(["cuda", "cccl"]) is not None, reason="the extra `headers` is not installed")
@pytest.mark.parametrize(
    ("headers", "include", "use"),
    [
        ("cuda", "cuda_bf16.h", "__nv_bfloat16 x = __float2bfloat16(1.0f)"),
        ("cuda", "cuda_fp16.h", "__half x = __float2half(1.0f)"),
        ("cuda, cccl", "mma.h", "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> x"),
        ("cuda, cccl", "cooperative_groups.h", "auto x = cooperative_groups::this_thread_block()"),
        ("cccl", "cuda/std/array", "cuda::std::array<int, 3> x{}"),
        ("cuda, cccl", "cuda/barrier", "__shared__ cuda::barrier<cuda::thread_scope_block> x"),
    ],
)
def test_headers_of_the_field(headers: str, include: str, use: str) -> None:
    kernel = f"#include <{include}>\n" + KERNEL.replace("{\n", f"{{\n  {use}; (void)x;\n", 1)
    manifest: Any = built(SPEC + f"  headers: [{headers}]\n", kernel).manifest
    assert "nvidia-cuda" in manifest["versions"]["headers"]


def test_a_bundle_that_is_not_named_is_not_there() -> None:
    (d, *_) = refusal(kernel="#include <cuda_bf16.h>\n" + KERNEL)
    assert (d.code, d.span.line) == ("E075", 1)
    assert d.mend is not None
    assert "headers: [cuda]" in d.mend


# -- the key --------------------------------------------------------------------------------------------------


def test_the_key_depends_on_what_is_included_and_on_nothing_else() -> None:
    files = {"k.cu": '#include "a.h"\n' + KERNEL, "a.h": "#define A_H 1\n"}
    key = artifact_key(request(files=files))
    assert artifact_key(request(files={**files, "a.h": "#define A_H 2\n"})) != key
    assert artifact_key(request(files={**files, "k.cu": files["k.cu"] + "\n"})) != key
    assert artifact_key(request(files={**files, "b.h": "anything"})) == key
    assert artifact_key(request(SPEC + "  defines: {X: 1}\n", files)) != key


SAME = {
    "source": ("k.cu", "./k.cu", "sub/../k.cu", "k.cu/."),
    "headers": ("[]", "null", None),
    "options": ("[]", "null", None),
    "defines": ("{}", "null", None),
    "schedules": ("[]", "null", None),
    "shared_bytes": ("1024 + M", "1024+M", "(1024) + (M)"),
    "block": ("[32, 4]", "[32, 4, 1]"),
}
ORDERED = {
    "headers": ("[cuda, cccl]", "[cccl, cuda]"),
    "options": ("[line-info, fast-math, 'c++20']", "['c++20', line-info, fast-math]"),
    "defines": ("{X: 1, Y: X}", "{Y: X, X: '1'}"),
}


def with_key(key: str, value: str | None) -> str:
    spec = re.sub(rf"  {key}: .*\n", "", SPEC)
    return spec if value is None else f"{spec}  {key}: {value}\n"


@pytest.mark.parametrize(("key", "values"), [*SAME.items(), *ORDERED.items()])
def test_the_key_is_one_however_the_same_is_written(key: str, values: tuple[str | None, ...]) -> None:
    if key == "headers" and values[0] != "[]" and bundles.missing(["cuda", "cccl"]) is not None:
        pytest.skip("the extra `headers` is not installed")
    specs = [with_key(key, value) for value in values]
    assert len({artifact_key(request(spec)) for spec in specs}) == 1
    assert len({to_yaml(load(spec, "spec.yaml").spec) for spec in specs}) == 1 or key == "shared_bytes"
    assert len({compile_spec(request(spec)).blob for spec in specs}) == 1


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("options", ("[]", "[line-info]", "[fast-math]", "['c++20']", "[line-info, fast-math]")),
        ("defines", ("{}", "{X: 1}", "{X: 2}", "{X: '01'}", "{X: ''}", "{Y: 1}", "{X: ' 1'}")),
        ("source", ("k.cu", "../k.cu", "sub/k.cu")),
    ],
)
def test_what_is_not_the_same_has_keys_of_its_own(key: str, values: tuple[str, ...]) -> None:
    files = {"k.cu": KERNEL, "../k.cu": KERNEL, "sub/k.cu": KERNEL}
    assert len({artifact_key(request(with_key(key, value), files)) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("text", "column"), [("options: [line-info, 'c++20', line-info]", 33), ("headers: [cuda, cuda]", 19)]
)
def test_what_stands_twice_is_refused_there(text: str, column: int) -> None:
    assert places(refusal(f"{SPEC}  {text}\n")) == [("E012", "spec.yaml", 13, column)]


def test_an_option_that_there_is_not_is_refused_where_it_stands() -> None:
    assert places(refusal(f"{SPEC}  options: [line-info, fast-maths, 'c++20']\n")) == [("E012", "spec.yaml", 13, 24)]


VALUES = ['"a b"', "it's", "'x'", "a | b", "{1, 2}", "x[0] = !y ^ ~z ? 1 : 2;", "#", "\\\\n", "</etc/x.h>", " ", "// x"]


@pytest.mark.parametrize("value", VALUES)
def test_a_macro_has_any_value_on_one_line(value: str) -> None:
    quoted = value.replace('"', "").replace("\\", "") if "'" not in value else ""
    spec = f"{SPEC}  defines: {json.dumps({'VALUE': value, 'STRING': json.dumps(quoted)})}\n"
    built(spec, f'{KERNEL}static_assert(sizeof(STRING) == {len(quoted) + 1}, "");\n#ifndef VALUE\n#error\n#endif\n')
    assert load(to_yaml(load(spec, "spec.yaml").spec), "spec.yaml").spec == load(spec, "spec.yaml").spec


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("defined", "1", "E075"), ("__FILE__", "1", "E075"), ("class", "1", "E075"), ("int", "long", "E075"),
        ("X", '"1\\n2"', "E012"), ("X", '"1\\\\"', "E012"), ("X", "1.5", "E012"), ("X", "true", "E012"),
        ("X", "é", "E012"),
    ],
)  # fmt: skip
def test_macros_that_cannot_be(name: str, value: str, code: str) -> None:
    (d,) = refusal(f"{SPEC}  defines: {{{name}: {value}}}\n")
    assert (d.code, d.span.file, d.span.line) == (code, "spec.yaml", 13)


def test_a_macro_in_the_way_of_a_made_header_is_told() -> None:
    d = refusal(kernel=f"#define Tile 3\n{KERNEL}")[0]
    assert (d.code, d.span.file) == ("E075", "<sched/gemm.cuh>")
    assert "macro" in (d.mend or "")


def test_the_key_depends_on_the_bundles_release(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPEC + "  headers: [cuda]\n"
    monkeypatch.setattr(bundles, "versions", lambda names: tuple(f"{n} 1" for n in names))
    key = artifact_key(request(spec))
    monkeypatch.setattr(bundles, "versions", lambda names: tuple(f"{n} 2" for n in names))
    assert artifact_key(request(spec)) != key


@pytest.mark.parametrize("options", ["", "line-info"])
def test_bytes_do_not_depend_on_the_process_or_the_folder(tmp_path: Path, options: str) -> None:
    kernel = KERNEL.replace("{\n", "{\n  static __device__ int local; ++local; *(const char**)A = __FILE__;\n", 1)
    digests = set()
    for name in ("one", "another/below"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "spec.yaml").write_text(f"{SPEC}  options: [{options}]\n")
        (folder / "k.cu").write_text('#include "sub/h.cuh"\n' + kernel)
        (folder / "sub").mkdir()
        (folder / "sub" / "h.cuh").write_text("static __device__ const char* here() { return __FILE__; }\n")
        command = [sys.executable, "-m", "sched_compiler.cli", "compile", str(folder / "spec.yaml"), "--arch", "sm_90a"]
        subprocess.run([*command, "-o", str(folder / "out")], check=True, capture_output=True, cwd=folder)
        digests.add(((folder / "out").read_bytes(), (folder / "out.json").read_bytes()))
    assert len(digests) == 1


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.replace("\n", "\r\n"),
        "\ufeff" + KERNEL,
        KERNEL + '__device__ const char* const text = R"(\n#include "none.h"\n)";\n',
        KERNEL.replace("<sched/gemm.cuh>", '"sched/gemm.cuh"'),
        '#include "a.h"\n#include "./a.h"\n#include "x/../a.h"\n' + KERNEL,
    ],
    ids=["line ends", "mark", "raw string", "quotes", "spellings"],
)
def test_texts_as_editors_leave_them(text: str) -> None:
    compile_spec(request(files={"k.cu": text, "a.h": '#pragma once\n#include "b.h"\n', "b.h": '#include "a.h"\n'}))


# -- the command line -----------------------------------------------------------------------------------------


def test_the_command_writes_what_the_artifact_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "s/spec.yaml": SPEC, "s/k.cu": '#include "a b.h"\n#include <far.h>\n' + KERNEL, "s/a b.h": "", "inc/far.h": "",
    }.items():  # fmt: skip
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    command = ["compile", "s/spec.yaml", "--arch", "sm_90a", "-I", "inc", "-o", "out.cubin", "--depfile", "out.d"]
    assert main(command) == 0
    assert Path("out.d").read_text().splitlines()[0] == r"out.cubin: s/spec.yaml inc/far.h s/a\ b.h s/k.cu"
    assert json.loads(Path("out.cubin.json").read_text())["sources"][0]["path"] == "-I0/far.h"
    assert main(["emit", "s/spec.yaml", "--to", "launcher", "-I", "inc", "-o", "launch.h"]) == 0
    Path("inc/far.h").write_text("#error here\n")
    capsys.readouterr()
    assert main(command) == 1
    assert "inc/far.h:1:2" in capsys.readouterr().err


def test_it_comes_back_from_its_composed_form() -> None:
    spec = SPEC + "  headers: [cuda]\n  defines: {A: 1}\n"
    loaded = load(spec, "spec.yaml")
    assert load(to_yaml(loaded.spec), "spec.yaml").spec == loaded.spec


# -- in a sandbox ---------------------------------------------------------------------------------------------


def test_without_a_sandbox_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.toolchain.sandbox.unavailable", lambda: "it is not installed")
    (d,) = refusal(confined=True)
    assert (d.code, d.found) == ("E077", "it is not installed")


@pytest.mark.skipif(sandbox.unavailable() is not None, reason=str(sandbox.unavailable()))
def test_the_sandbox_gives_the_same_artifact() -> None:
    spec = SPEC + "  headers: [cuda]\n" if bundles.missing(["cuda"]) is None else SPEC
    free, confined = built(spec), compile_spec(request(spec, confined=True))
    assert free == confined


# -- what a name means ----------------------------------------------------------------------------------------

LISTED = """\
version: 1
name: {name}
params: {{M: {{min: 0, max: 64}}, X: {{min: 0, max: 9}}}}
tables: {{rows: {rows}}}
space: {{m: M}}
order: {{points: {{m: rows}}, subset: true}}
dispatch: {{static: {{workers: grid}}}}
"""
C_TYPES = {"s32": "int", "u32": "unsigned", "s64": "long long", "f32": "float", "void": "void"}


@pytest.mark.parametrize(
    ("name", "kind", "right"),
    [
        *(("rows", kind, True) for kind in ("s32*", "u32*", "void*")),
        *(("rows", kind, False) for kind in ("f32*", "s64*", "s32", "f32", "bytes[8]", "tensormap")),
        ("X", "f32*", False), ("Y", "s8", True), ("Y", "f32", False), ("Y", "s64*", False), ("other", "f32*", True),
    ],
)  # fmt: skip
def test_an_argument_is_what_its_name_is_in_the_schedules(name: str, kind: str, right: bool) -> None:
    """`rows` is a table, `X` a parameter, `Y` one of the other schedule."""
    of_cpp = {"bytes[8]": "long long", "tensormap": "Map", "s8": "signed char"}.get(kind) or C_TYPES[kind.rstrip("*")]
    spec = LISTED.format(name="gemm", rows="{length: M}")
    spec += "kernel:\n  source: k.cu\n  entry: work\n  block: 32\n  schedules: [other.yaml]\n"
    spec += f"  arguments: [{name}: '{kind}', tiles: schedule, more: 'sched::other']\n"
    kernel = "#include <sched/gemm.cuh>\n#include <sched/other.cuh>\nstruct alignas(64) Map { char of[128]; };\n"
    passed = f"{of_cpp}{'*' * kind.endswith('*')} a, sched::gemm::Arguments tiles, sched::other::Arguments more"
    kernel += f'extern "C" __global__ void work({passed}) {{}}\n'
    files = {"k.cu": kernel, "other.yaml": LISTED.format(name="other", rows="{length: M}").replace("X:", "Y:")}
    if right:
        assert described(compile_spec(request(spec, files)).manifest).by_name[name]
        return
    with pytest.raises(SpecError) as caught:
        compile_spec(request(spec, files))
    assert [(d.code, d.span.line) for d in caught.value.diagnostics] == [("E012", 13)]


@pytest.mark.parametrize(
    ("rows", "change", "code"),
    [
        ("[0, 2, 1]", ("", ""), None),
        ("[0, 2, 1]", ("[0, 2, 1]", "[0, 1, 2]"), "E013"),
        ("[0, 2, 1]", ("[0, 2, 1]", "{length: M}"), "E013"),
        ("{length: M}", ("rows", "X"), "E013"),
        ("{length: M}", ("X", "rows2"), None),
    ],
)
def test_a_name_means_one_thing_in_all_schedules_of_a_kernel(
    rows: str, change: tuple[str, str], code: str | None
) -> None:
    other = LISTED.format(name="other", rows=rows)
    if change == ("rows", "X"):
        other = other.replace("X:", "Z:")
    spec = LISTED.format(name="gemm", rows=rows).replace("min: 0, max: 64", "min: 3, max: 64")
    other = other.replace("min: 0, max: 64", "min: 3, max: 64").replace(*change)
    spec += "kernel: {source: k.cu, entry: work, block: 32, schedules: [other.yaml], arguments: [tiles: schedule]}\n"
    kernel = '#include <sched/gemm.cuh>\nextern "C" __global__ void work(sched::gemm::Arguments tiles) {}\n'
    files = {"k.cu": kernel, "other.yaml": other}
    if code is None:
        compile_spec(request(spec, files))
        return
    with pytest.raises(SpecError) as caught:
        compile_spec(request(spec, files))
    assert [(d.code, d.span.file, d.span.line) for d in caught.value.diagnostics] == [(code, "spec.yaml", 8)]


# -- the launch that it is compiled for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "code", "cluster"),
    [
        ("__launch_bounds__(64)", "E076", ""),
        ("__launch_bounds__(128)", None, ""),
        ("__cluster_dims__(2, 1, 1)", "E076", ""),
        ("__cluster_dims__(2, 1, 1)", None, "cluster: {m: 2}\n"),
        ("__cluster_dims__(4, 1, 1)", "E076", "cluster: {m: 2}\n"),
    ],
)
def test_block_and_cluster_are_those_of_the_source(attribute: str, code: str | None, cluster: str) -> None:
    kernel = KERNEL.replace("void work", f"void {attribute} work")
    spec = SPEC.replace("kernel:", f"{cluster}kernel:")
    if code is None:
        built(spec, kernel)
    else:
        assert refusal(spec, kernel)[0].code == code


def test_static_shared_memory_counts() -> None:
    kernel = KERNEL.replace("{\n", "{\n  __shared__ float big[12000]; big[threadIdx.x] = M; A[1] = big[M];\n", 1)
    assert refusal(SPEC.replace("1024 + M", "190000"), kernel)[0].code == "E052"
