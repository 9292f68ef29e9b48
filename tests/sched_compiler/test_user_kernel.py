"""A kernel of the user's own: compiled with its schedules, described by its manifest, refused in the user's files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.toolchain import bundles, sandbox
from sched_compiler import CompileRequest, SpecError, artifact_key, compile_spec
from sched_compiler.artifact import Artifact
from sched_compiler.cli import main
from sched_compiler.diagnostics import Diagnostic
from sched_compiler.loader import load, to_yaml

SPEC = """\
version: 1
name: gemm
params: {M: {min: 0, max: 65536}, N: {min: 0, max: 65536}}
space: {m: "ceil_div(M, 128)", n: "ceil_div(N, 64)"}
order: {split: {m: 4}, loops: [m.outer, n, m.inner]}
dispatch: {static: {workers: grid}}
kernel:
  source: k.cu
  entry: work
  block: [32, 4]
  shared_bytes: 1024 + M
  arguments: [A: f32*, M: s32, scale: f64, tiles: schedule]
"""
KERNEL = """\
#include <sched/gemm.cuh>
extern "C" __global__ void work(float* A, int M, double scale, sched::gemm::Arguments tiles) {
  for (sched::gemm s(tiles); s.valid(); s.next()) A[s.tile().m * M] = scale;
}
"""


def request(spec: str = SPEC, files: dict[str, str] | None = None, **more: Any) -> CompileRequest:
    return CompileRequest(spec, "spec.yaml", **{"arch": "sm_90a", "files": files or {"k.cu": KERNEL}, **more})


def built(spec: str = SPEC, kernel: str = KERNEL, **files: str) -> Artifact:
    return compile_spec(request(spec, {"k.cu": kernel, **files}))


def refusal(spec: str = SPEC, kernel: str = KERNEL, **more: Any) -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        compile_spec(request(spec, **{"files": {"k.cu": kernel}, **more}))
    return caught.value.diagnostics


def places(diagnostics: tuple[Diagnostic, ...]) -> list[tuple[str, str, int, int]]:
    return [(d.code, d.span.file, d.span.line, d.span.column) for d in diagnostics]


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


# -- what is refused ------------------------------------------------------------------------------------------


def test_errors_stand_in_the_user_s_file() -> None:
    wrong = KERNEL.replace("A[s.tile().m * M]", "A[s.tile().k * M]")
    assert places(refusal(kernel=wrong)) == [("E075", "k.cu", 3, 62)]
    assert places(refusal(kernel="int x = ;\n" + KERNEL))[0][:3] == ("E075", "k.cu", 1)


def test_errors_in_a_header_stand_there_and_inside_a_template_at_its_use() -> None:
    with pytest.raises(SpecError) as caught:
        compile_spec(request(files={"k.cu": '#include "b/a.h"\n' + KERNEL, "b/a.h": "\n  #error stop\n"}))
    assert places(caught.value.diagnostics)[0] == ("E075", "b/a.h", 2, 4)


def test_warnings_are_given_with_the_artifact() -> None:
    artifact = built(kernel=KERNEL.replace("{\n", "{\n  int unused;\n", 1))
    assert places(artifact.warnings) == [("W005", "k.cu", 3, 7)]


KERNELS = """
namespace a {
template <int N, typename T> __global__ void __launch_bounds__(64) work(T* x) { x[0] = N; }
namespace b { extern "C" __global__ void other(int* x); }
}
template <typename T>
__global__ void lonely(T* x);
__device__ void helper(int* x) {}
// __global__ void remark() {}
__device__ int variable;
__constant__ int fixed = 3;
"""
ALL = "the source has: `a::work<int N, typename T>`, `a::b::other`, `lonely<typename T>`"


@pytest.mark.parametrize(
    ("entry", "mend"),
    [
        ("a::wrk<3, int>", "did you mean `a::work<int N, typename T>`?"),
        ("work<3, int>", "did you mean `a::work<int N, typename T>`?"),
        ("a::work", "with template arguments it is `a::work<int N, typename T>`"),
        ("a::work<3>", "with template arguments it is `a::work<int N, typename T>`"),
        ("lonely<unknown>", "with template arguments it is `lonely<typename T>`"),
        ("::a::oter", "did you mean `a::b::other`?"),
        ("a", ALL),
        ("a::b::c<3>", ALL),
        ("helper", ALL),
        ("remark", ALL),
        ("variable", ALL),
        ("fixed", ALL),
        ("threadIdx", ALL),
        ("int", ALL),
    ],
)
def test_a_kernel_that_is_not_there(entry: str, mend: str) -> None:
    """One diagnostic at the entry, which knows the kernels that there are."""
    (d,) = (d for d in refusal(SPEC.replace("entry: work", f"entry: '{entry}'"), KERNELS) if d.severity == "error")
    assert (d.code, d.span.file, d.span.line, d.found, d.mend) == ("E075", "spec.yaml", 9, entry, mend)
    assert "nv_name_map" not in d.message
    assert "name expression was" not in d.message


def test_an_error_in_the_source_is_told_without_what_follows_for_the_entry() -> None:
    diagnostics = refusal(kernel="int x = ;\n")
    assert {d.span.file for d in diagnostics} == {"k.cu"}


ASSEMBLY = """\
#include "sub/a b.cuh"
#define STOP(x) asm volatile("bar.foo %0;" ::"r"(x))
template <int N> __device__ __forceinline__ int twice(int x) {
  asm("add.u32 %0, %1;" : "=r"(x) : "r"(x));  // @
  return x;
}
__global__ void work(float* A, int M, double scale, sched::gemm::Arguments tiles) {
  A[0] = twice<3>(M);
  asm volatile("foo.bar;");  // @
  asm volatile(  // @
      "{\\n"
      " .reg .u32 t;\\n"
      " movv.u32 t, %0;\\n}" ::"r"(M));
  STOP(M);  // @
  header(A);
}
"""
HEADER = """\
#include <sched/gemm.cuh>
__device__ __forceinline__ void deep() { asm volatile("a.b;"); }  // @
__device__ __forceinline__ void header(float* A) { deep(); }
"""


@pytest.mark.parametrize("confined", [False, True])
def test_the_assembler_s_errors_stand_in_the_source(confined: bool) -> None:
    """Each at the statement with the instruction, in whatever function, macro or header that is."""
    if confined and sandbox.unavailable() is not None:
        pytest.skip(str(sandbox.unavailable()))
    files = {"k.cu": ASSEMBLY, "sub/a b.cuh": HEADER}
    diagnostics = refusal(files=files, confined=confined)
    marked = {(f, n) for f, text in files.items() for n, line in enumerate(text.split("\n"), 1) if "// @" in line}
    assert {(d.span.file, d.span.line) for d in diagnostics} == marked
    (d,) = (d for d in diagnostics if d.span.file != "k.cu" and "'a'" in d.message)
    assert (d.code, d.severity) == ("E075", "error")
    assert "of `a.b;` (ptxas" in d.message
    assert 'at line 3 of "sub/a b.cuh", inlined at line 15 of "k.cu"' in d.message


@pytest.mark.parametrize("attribute", ["__noinline__", "__forceinline__"])
def test_what_the_assembler_says_of_a_function_stands_there(attribute: str) -> None:
    aside = f"extern __device__ float nowhere(int);\n__device__ {attribute} void aside(float* A) {{\n"
    kernel = f"{aside}  A[2] = nowhere(1);\n}}\n{KERNEL.replace('A[s', 'aside(A), A[s')}"
    (d,) = refusal(kernel=kernel)
    assert (d.code, d.span.file, d.span.line) == ("E075", "k.cu", 3)
    big = KERNEL.replace("{\n", "{\n  __shared__ float big[120000]; big[threadIdx.x] = M; A[1] = big[M];\n", 1)
    (d,) = refusal(kernel=big)
    assert (d.code, d.span.file, d.span.line) == ("E075", "k.cu", 2)


def test_what_nobody_places_stands_at_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.toolchain.ptxas._place", lambda *_: None)
    (d,) = refusal(kernel=KERNEL.replace("{\n", '{\n  asm volatile("foo;");\n', 1))
    assert (d.code, d.span.file, d.span.line) == ("E075", "spec.yaml", 8)
    assert "'foo'" in (d.found or "")


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("[A: f32*, M: s32, scale: f64]", (12, 14)),
        ("[A: f32*, M: s32, scale: f32, tiles: schedule]", (12, 28)),
        ("[A: f32*, M: s64, scale: f64, tiles: schedule]", (12, 24)),
        ("[A: f32*, M: s32, scale: f64, tiles: schedule, z: s32]", (12, 14)),
        ("[]", (12, 14)),
    ],
)
def test_arguments_that_are_not_the_kernel_s(arguments: str, place: tuple[int, int]) -> None:
    (d,) = refusal(SPEC.replace("[A: f32*, M: s32, scale: f64, tiles: schedule]", arguments))
    assert d.code == "E076"
    assert d.span.line == place[0]


def test_files_that_are_not_there() -> None:
    assert places(refusal(SPEC.replace("k.cu", "other.cu"))) == [("E074", "spec.yaml", 8, 11)]
    spec = SPEC + "  schedules: [none.yaml]\n"
    assert places(refusal(spec)) == [("E074", "spec.yaml", 13, 15)]
    with pytest.raises(SpecError) as caught:
        compile_spec(CompileRequest(SPEC, "spec.yaml", "sm_90a"))
    assert caught.value.diagnostics[0].code == "E074"


def test_the_ptx_backend_and_other_forms_are_refused() -> None:
    assert refusal(backend="ptx")[0].code == "E053"
    assert b"work" in compile_spec(request(emit="ptx")).blob
    assert b"struct gemm" in compile_spec(request(emit="header")).blob


def test_an_unknown_schedule() -> None:
    (d,) = refusal(SPEC.replace("tiles: schedule", "tiles: 'sched::other'"))
    assert (d.code, d.expected) == ("E021", "one of: sched::gemm")


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


# -- where headers stand --------------------------------------------------------------------------------------


WRITTEN = {
    "quotes": '#include "{}"', "brackets": "#include <{}>", "digraph": '%:include "{}"', "next": '#include_next "{}"',
    "blanks": '\f #\t include\v"{}"  ', "comments": '/* */ # /* */ include /* */ "{}" // and more',
    "lines": '#inc\\\nlude \\\n"{}"', "question": '#if __has_include("{}")\n#endif',
    "another": "#if 0\n#elif 1 && \\\n  __has_include(<{}>)\n#endif",
}  # fmt: skip


@pytest.mark.parametrize("name", ["absolute", "a macro's value", "a macro's absolute value"])
@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("where", ["k.cu", "sub/a.h"])
def test_a_header_that_is_not_known_beforehand_is_refused(way: str, name: str, where: str, tmp_path: Path) -> None:
    """Else the artifact would be made of a file that its key does not know. In a false condition it does no harm."""
    there = tmp_path / "there.h"
    there.write_text("#define THERE 1\n")
    directive = WRITTEN[way].format(there)
    if name != "absolute":
        value = f'"{there}"' if name.endswith("absolute value") else '"sub/a.h"'
        directive = f"#define HEADER {value}\n" + re.sub(r'"/.*"|<.*>', "HEADER", directive)
    for text, wrong in ((directive, True), (f"#if 0\n{directive}\n#endif", False)):
        files = {"k.cu": f'#include "sub/a.h"\n{KERNEL}', "sub/a.h": "#pragma once\n"}
        files[where] += f"{text}\n"
        if not wrong:
            compile_spec(request(files=files))
            continue
        with pytest.raises(SpecError) as caught:
            compile_spec(request(files=files))
        d = next(d for d in caught.value.diagnostics if d.severity == "error")
        line = files[where].split("\n")[d.span.line - 1]
        place = "HEADER" if name != "absolute" else '"/' if '"' in directive else "</"
        assert (d.code, d.span.file, line[d.span.column - 1 :][: len(place)]) == ("E075", where, place)
        assert d.mend is not None


@pytest.mark.parametrize("way", WRITTEN)
def test_a_header_is_found_in_whatever_way_it_is_written(way: str) -> None:
    """And what is no directive is left as it is."""
    kernel = WRITTEN[way].format("sub/a.h") + "\n// #include NO\n/*\n#include NO\n*/\n"
    text = '\n#include "sub/../sub/a.h"'
    kernel += f'static_assert(sizeof(R"({text})") == {len(text) + 1}, "");\n{KERNEL}'
    artifact = built(kernel=kernel, **{"sub/a.h": "#pragma once\n"})
    manifest: Any = artifact.manifest
    assert [source["path"] for source in manifest["sources"]] == ["k.cu", "sub/a.h"]
    assert artifact.key != artifact_key(request(files={"k.cu": kernel, "sub/a.h": "#pragma once\nint x;\n"}))
    wrong = kernel.replace("static_assert", "int x = ;\nstatic_assert")
    d = [d for d in refusal(files={"k.cu": wrong, "sub/a.h": ""}) if d.severity == "error"][-1]
    assert wrong.split("\n")[d.span.line - 1] == "int x = ;"


def test_a_header_of_a_searched_folder_finds_its_own_neighbours(tmp_path: Path) -> None:
    files = {"s/k.cu": '#include "a.h"\nstatic_assert(B == 1, "");\n' + KERNEL, "inc/a.h": '#include "../b.h"\n'}
    files |= {"b.h": "#define B 1\n", "s/b.h": "#define B 2\n", "s/I0/a.h": "", "s/spec.yaml": SPEC}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    near = CompileRequest(SPEC, "spec.yaml", "sm_90a", directory=str(tmp_path / "s"), include=(str(tmp_path / "inc"),))
    local = compile_spec(near)
    sent = {"k.cu": files["s/k.cu"], "-I0/a.h": files["inc/a.h"], "-I0/../b.h": files["b.h"], "b.h": files["s/b.h"]}
    assert compile_spec(request(files=sent, include=("-I0",))).key == local.key


def test_a_header_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "a.h"\n' + KERNEL)
    (tmp_path / "a.h").write_bytes(b"// \xff\n")
    with pytest.raises(SpecError) as caught:
        compile_spec(CompileRequest(SPEC, "spec.yaml", "sm_90a", directory=str(tmp_path)))
    (d,) = caught.value.diagnostics
    assert d.code == "E074"
    assert "a.h" in d.message


def test_a_source_may_include_itself() -> None:
    guarded = f'#ifndef ONCE\n#define ONCE\n#include "k.cu"\n{KERNEL}#endif\n'
    assert built(kernel=guarded).manifest["entry"] == "work"


def test_columns_are_those_of_the_text_whatever_is_above() -> None:
    odd = "// a\x0cb\u2028c\x85d\x0b\n"
    assert places(refusal(kernel=odd + KERNEL.replace("scale;", "scales;")))[0] == ("E075", "k.cu", 4, 71)


@pytest.mark.parametrize("place", ["k.cu", "a.h"])
def test_no_artifact_depends_on_the_moment_of_its_compile(place: str) -> None:
    """Date and time are fixed where the language would give them, and are words elsewhere; columns stay."""
    macro = "#define WHEN /* __DATE__ */ __DATE__ __TI\\\nME__ // __TIME__\n"
    files = {"k.cu": f'#include "a.h"\n{KERNEL}', "a.h": "#pragma once\n"}
    files[place] = macro + files[place]
    files["k.cu"] += (
        "__device__ constexpr bool same(const char* a, const char* b) {\n"
        "  return *a == *b && (*a == 0 || same(a + 1, b + 1));\n}\n"
        'static_assert(same(WHEN "__TIME__", "Jan  1 197000:00:00__TIME__"), ""); int x = __DATE__;\n'
    )
    d = [d for d in refusal(files=files) if d.severity == "error"]
    assert {files["k.cu"].split("\n")[d.span.line - 1][d.span.column - 1 :] for d in d} == {
        "x = __DATE__;",
        "__DATE__;",
    }


@pytest.mark.parametrize("emit", ["cubin", "ptx"])
@pytest.mark.parametrize("template", ["", "template <int N> "])
def test_a_kernel_that_is_declared_alone(emit: str, template: str) -> None:
    kernel = re.sub(r"\) \{(.|\n)*", ");", KERNEL.replace('extern "C" ', template))
    spec = SPEC.replace("entry: work", f"entry: work{'<3>' if template else ''}")
    (d,) = refusal(spec, kernel, emit=emit)
    assert (d.code, d.span.file, d.span.line) == ("E075", "spec.yaml", 9)


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("gemm.cuh", "<sched/gemm.cuh>"),
        ("sched/gem.cuh", "<sched/gemm.cuh>"),
        ("cstdint", "<cuda/std/cstdint>, with `headers: [cccl]`"),
        ("assert.h", "<cuda/std/cassert>, with `headers: [cccl]`"),
    ],
)
def test_where_a_header_is_that_is_not_found(name: str, mend: str) -> None:
    if "cuda/std" in mend and bundles.missing(["cccl"]) is not None:
        pytest.skip("the extra `headers` is not installed")
    (d,) = refusal(kernel=f"#include <{name}>\n{KERNEL}")
    assert (d.code, d.span.line) == ("E075", 1)
    assert mend in (d.mend or "")


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
