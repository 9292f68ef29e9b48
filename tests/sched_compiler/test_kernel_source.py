"""The source of a kernel of the user's own: what it includes, and errors in it, told where they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from backends.toolchain import bundles, sandbox
from sched_compiler import CompileRequest, SpecError, artifact_key, compile_spec
from tests.support.user_kernels import KERNEL, SPEC, built, places, refusal, request

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
