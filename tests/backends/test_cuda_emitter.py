"""The emitted CUDA C++: golden texts, strict host compilers, any names, any architecture.

After a wanted change of the text: `SCHEDC_UPDATE_GOLDEN=1 pytest tests/backends`, look at the difference, and change
the emitter's VERSION.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.cuda import emitter
from backends.cuda.printer import Printer
from backends.toolchain import nvrtc
from sched_compiler import driver
from sched_compiler.expr import Graph
from sched_compiler.lower import lower
from sched_compiler.program import Program, place
from sched_compiler.registry import TraceRequest
from tests.support.engines import Case, assert_engines_agree, run_cuda
from tests.support.random_specs import RandomChoices, random_spec

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
GOLDEN = ROOT / "tests" / "data" / "golden"
GOLDEN_SPECS = ["gemm_group_major", "blocks_serpentine", "clusters_2x1", "hilbert_square"]
ARCHITECTURES = [
    "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a", "sm_120", "sm_120a"
]  # fmt: skip
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
STRICT = ["-Wall", "-Wextra", "-Wsign-compare", "-Wconversion", "-Werror"]

needs_cxx = pytest.mark.skipif(CXX is None, reason="no C++ compiler for the host")


def program_of(spec: dict[str, Any] | str) -> Program:
    return place(driver.check(spec if isinstance(spec, str) else json.dumps(spec)).schedule)


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("SCHEDC_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} has changed: see this module's docstring"


def compile_host(text: str, directory: Path, standard: str = "c++17", options: tuple[str, ...] = ()) -> str:
    """What the host's compiler says of a translation unit; empty where it is content."""
    assert CXX is not None
    source = directory / "unit.cpp"
    source.write_text(text, encoding="utf-8")
    command = [CXX, f"-std={standard}", *STRICT, *options, "-c", "-o", str(directory / "unit.o"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("name", GOLDEN_SPECS)
def test_header_is_golden(name: str) -> None:
    text = (ROOT / "specs" / f"{name}.yaml").read_text()
    assert_golden(f"{name}.cuh", emitter.header(program_of(text)))


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_header_needs_nothing(path: Path) -> None:
    """No include, no macro beside its own, ASCII only; the trace kernel's source begins with it."""
    program = program_of(path.read_text())
    text = emitter.header(program)
    assert "#include" not in text
    assert text.isascii()
    dispatch = program.schedule.dispatch
    own = {"SCHED_FUNCTION", "SCHED_DETAIL", "SCHED_CHOOSE"}
    if dispatch.queue:
        own |= {"SCHED_QUEUE"} if dispatch.ring is None else {"SCHED_QUEUE", "SCHED_DEVICE"}
    assert set(re.findall(r"#define (\w+)", text)) == own
    assert emitter.trace_source(program).startswith(text)
    assert max(map(len, text.splitlines())) < 200


@needs_cxx
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_headers_of_all_specs_stand_in_one_unit(tmp_path: Path, standard: str) -> None:
    """Each is included twice, after and before the standard library, under strict warnings."""
    lines = []
    for path in SPECS:
        (tmp_path / f"{path.stem}.cuh").write_text(emitter.header(program_of(path.read_text())))
        lines += [f'#include "{path.stem}.cuh"\n'] * 2
    standard_library = "#include <cstdio>\n#include <cmath>\n#include <algorithm>\n"
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    text = "".join(first) + standard_library + "".join(second) + "int main() { return 0; }\n"
    assert compile_host(text, tmp_path, standard) == ""


@needs_cxx
def test_a_function_macro_of_the_user_s_takes_nothing_else_away(tmp_path: Path) -> None:
    """The macro says how functions are declared, not whether what they call is there."""
    text = "#define SCHED_FUNCTION [[gnu::noinline]] inline\n"
    programs = [program_of(path.read_text()) for path in SPECS]
    assert any("mulhi(" in emitter.header(p).split("namespace sched {")[-1] for p in programs)
    text += "".join(emitter.header(p).replace("#pragma once", "") for p in programs)
    assert compile_host(text, tmp_path) == ""


@needs_cxx
def test_headers_convert_nothing_silently(tmp_path: Path) -> None:
    text = "".join(emitter.header(program_of(path.read_text())).replace("#pragma once", "") for path in SPECS)
    assert compile_host(text, tmp_path, options=("-Wconversion", "-Wsign-conversion")) == ""


AXES = ["int", "class", "unix", "Tile", "index", "detail", "Index", "t0", "k0", "i", "tile", "worker", "_x", "NULL",
        "items", "valid", "next", "out", "n", "row", "s", "t", "tiles", "register", "and", "sched"]  # fmt: skip
PARAMETERS = ["rank", "index", "workers", "worker", "t0", "k0", "tile", "tiles", "counts", "capacity", "first", "ctas",
              "p_a", "class"]  # fmt: skip


def named(axes: list[str], params: list[str], name: str, dispatch: Any, cluster: bool) -> dict[str, Any]:
    """A spec in which every parameter is used, under the given names."""
    shift = " + ".join(params) or "0"
    extents = {axis: 5 if k else "ceil_div(" + (params[0] if params else "9") + ", 1)" for k, axis in enumerate(axes)}
    return {
        "version": 1,
        "name": name,
        "params": {p: {"min": 1, "max": 40} for p in params},
        "space": extents,
        "order": {
            "split": {axes[0]: 3},
            "loops": [f"{axes[0]}.outer", *axes[1:], f"{axes[0]}.inner"],
            "rotate": {axes[-1]: shift},
        },
        **({"cluster": {axes[0]: 2}} if cluster else {}),
        "dispatch": dispatch,
    }


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("workers", [4, "grid"])
def test_names_that_the_languages_take_are_usable(cluster: bool, workers: Any) -> None:
    """Keywords, macros, and the names that the emitted texts use themselves: same tiles in all engines."""
    dispatch = {"static": {"workers": workers}}
    cases = []
    for k in range(0, len(AXES), 2):
        params = [PARAMETERS[k % len(PARAMETERS)], PARAMETERS[(k + 1) % len(PARAMETERS)]]
        spec = named(AXES[k : k + 2], params, "names", dispatch, cluster)
        cases.append(Case(spec, {params[0]: 7, params[1]: 3}, workers=5))
    assert_engines_agree(cases)


NAMES = ["index", "Index", "tile", "Tile", "valid", "next", "items", "rank", "workers", "worker", "in_bounds", "k0",
         "t1", "p_a", "index_to_tile", "tile_to_index", "int", "class", "detail", "sched", "main", "a.b-c", "std", "x",
         "linux", "NULL", "tile_", "mulhi"]  # fmt: skip


@needs_cxx
def test_specs_may_have_the_names_of_anything(tmp_path: Path) -> None:
    cases = [Case(named(["x", "m"], ["a"], name, {"static": {"workers": 3}}, True), {"a": 8}) for name in NAMES]
    assert_engines_agree(cases)
    for case in cases:
        nvrtc.compile(emitter.trace_source(case.program), "names.cu", "sm_90a", "ptx")


def test_a_schedule_stands_in_a_user_s_kernel() -> None:
    """The header as NVRTC takes it: two different schedules in one kernel of the user's."""
    headers = [emitter.header(program_of((ROOT / "specs" / f"{n}.yaml").read_text())) for n in GOLDEN_SPECS[:2]]
    kernel = """
    extern "C" __global__ void user(const float* a, float* b, unsigned rows) {
      for (sched::gemm_group_major s(blockIdx.x, rows); s.valid(); s.next()) {
        const auto t = s.tile();
        if (s.in_bounds(t)) b[t.m * 32 + t.n] = a[s.tile_to_index(t)];
      }
      for (sched::blocks_serpentine s(blockIdx.x); s.valid(); s.next()) b[s.index] += s.tile().m;
    }
    """
    assert nvrtc.compile("\n".join(headers) + kernel, "user.cu", "sm_90a", "cubin").blob[:4] == b"\x7fELF"


@needs_cxx
def test_nothing_undefined_happens_in_any_arm() -> None:
    """Signed overflow and division by zero would end the run, also in the arm of a choice that is not taken."""
    cases = [Case(*random_spec(RandomChoices(seed)), workers=7) for seed in range(5000, 5080)]
    run_cuda(cases, ("-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all"))


@needs_cxx
def test_optimised_headers_give_the_same() -> None:
    cases = [Case(*random_spec(RandomChoices(seed)), workers=7) for seed in range(6000, 6030)]
    for plain, optimised in zip(run_cuda(cases), run_cuda(cases, ("-O2",)), strict=True):
        for a, b in zip(plain, optimised, strict=True):
            assert a.tolist() == b.tolist()


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", GOLDEN_SPECS)
def test_every_architecture_compiles(name: str, arch: str) -> None:
    if not nvrtc.supports(arch):
        pytest.skip(f"NVRTC {nvrtc.version()} does not know {arch}")
    request = driver.CompileRequest((ROOT / "specs" / f"{name}.yaml").read_text(), name, arch)
    manifest = driver.compile_spec(request).manifest
    assert manifest["arch"] == arch


def test_unused_arguments_are_unnamed() -> None:
    spec = {"version": 1, "name": "x", "space": {"m": 4}, "dispatch": {"single": {}}}
    assert "bool in_bounds(Tile) const" in emitter.header(program_of(spec))


def test_the_worker_s_first_work_is_known_before_it_is_used() -> None:
    """A worker that the spec does not have finds no work, however many are launched."""
    spec = {"version": 1, "name": "x", "space": {"m": 4}, "dispatch": {"static": {"workers": 2}}}
    case = Case(spec, {})
    beyond = Case(spec, {})
    object.__setattr__(beyond, "request", TraceRequest({}, 5, range(5)))
    assert [len(rows) for rows in run_cuda([case, beyond])[1]] == [2, 2, 0, 0, 0]


@needs_cxx
@pytest.mark.parametrize(
    "dispatch",
    [
        "single",
        {"static": {"workers": "grid"}},
        {"table": {"indptr": [0, 9], "indices": list(range(9))}},
        "dynamic",
        {"clc": {"consumers": {"mma": 1, "epilogue": 128}, "fallback": "dynamic"}},
    ],
    ids=["single", "static", "table", "dynamic", "clc"],
)
def test_a_struct_may_have_the_name_of_anything_in_it(tmp_path: Path, dispatch: Any) -> None:
    """Every word of the header as the name of a spec of the same kind, all in one unit."""
    spec = {"version": 1, "name": "plain", "space": {"m": 3, "n": 3}, "dispatch": dispatch}
    words = set(re.findall(r"\b[A-Za-z][A-Za-z0-9_]*\b", emitter.header(program_of(spec)))) - {"plain", "sched"}
    texts = [emitter.header(program_of({**spec, "name": word})) for word in sorted(words) if word[:-1] not in words]
    text = "".join(texts).replace("#pragma once\n", "")
    assert compile_host(text + "int main() { return 0; }\n", tmp_path) == ""


@pytest.mark.parametrize("dispatch", ["single", "dynamic", "clc"])
def test_what_cuda_itself_names_may_be_a_name(dispatch: str) -> None:
    """The built-in variables of a kernel as names of the spec, of axes and of consumers, those twice."""
    names = ["threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"]
    consumers = dict.fromkeys((*names[:2], "class", "class_", "class__"), 1)
    mode: Any = {"clc": {"consumers": consumers}} if dispatch == "clc" else dispatch
    for name in names:
        spec = {"version": 1, "name": name, "space": dict.fromkeys(names, 2), "dispatch": mode}
        artifact = driver.compile_spec(driver.CompileRequest(json.dumps(spec), name, "sm_100a"))
        assert artifact.blob[:4] == b"\x7fELF"


def test_what_intervals_alone_tell_apart_is_written_once() -> None:
    """The arms of a choice know more of a value than others do; it is one value all the same."""
    g = Graph()
    x = g.var("x", 0, 1023)
    early, late = g.narrow(x, 0, 767), g.narrow(x, 768, 1023)
    chosen = g.select(g.lt(x, 768), early // 16 * 8 + early % 8, late // 16 + 5)
    lines, texts = Printer({"x": "x"}).print(lower(g, [chosen, x // 16]))
    assert sum(text.count("x >> 4u") for text in [*lines, *texts]) == 1
    assert lines[0] == "const unsigned t0 = x >> 4u;"


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_no_value_is_declared_twice_in_a_function(path: Path) -> None:
    for function in emitter.header(driver.check(path.read_text(), directory=path.parent).program).split("\n  }\n"):
        values = re.findall(r"const (\w+(?: \w+)*) t\d+ = (.*);", function)
        assert len(values) == len(set(values))


@needs_cxx
def test_nothing_is_narrowed_without_a_word(tmp_path: Path) -> None:
    """Of 64-bit parameters whose items, coordinates and workers fit 32 bits."""
    params = {"a": {"min": 1, "max": 2**33}, "b": {"min": 1, "max": 99}}
    spaces = ({"m": "a % b"}, {"m": "a % b", "n": "b"}, {"m": "(a + 1) // 2 % b"})
    texts = []
    for k, dispatch in enumerate(({"static": {"workers": 132}}, {"static": {"workers": "grid"}}, "dynamic", "single")):
        for n, space in enumerate(spaces):
            spec = {"version": 1, "name": f"s{k}{n}", "params": params, "space": space, "order": {"loops": [*space]}}
            texts.append(emitter.header(program_of(spec | {"dispatch": dispatch})))
    assert compile_host("".join(texts).replace("#pragma once", ""), tmp_path) == ""
