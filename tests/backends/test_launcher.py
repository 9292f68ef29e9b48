"""The launchers in C++ do what the one in Python does: grids, the bytes of parameters, refusals. On the host, with a
driver that keeps what it is told."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backends.cuda import emitter
from backends.cuda.emitter import safe
from backends.cuda.host_names import host_name
from backends.cuda.launcher import launcher as printed
from backends.cuda.launcher_prelude import PRELUDE
from backends.launching.description import Description, described
from backends.launching.plan import plan
from backends.launching.types import bounds, packed
from sched_compiler import CompileRequest, LaunchError, SpecError, compile_spec, driver, emit_launcher
from sched_compiler.formula import RESERVED
from sched_compiler.launcher import launcher
from sched_compiler.manifest import manifest
from tests.support.launching import DEVICE, device, user_manifest

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "data" / "fake_cuda"
CXX = shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
needs_cxx = pytest.mark.skipif(CXX is None, reason="no C++ compiler for the host")
SPECS = (
    "gemm_dynamic", "gemm_group_major", "clusters_2x1", "clusters_dynamic", "rotated_columns", "ragged_batches",
    "flash_attention_lpt_persistent", "raster_auto", "gemm_clc_fallback", "attention_by_heads", "indexed_triple",
)  # fmt: skip
STRICT = ("-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wsign-conversion", "-Wshadow")

USER = """
version: 1
name: user
params: {M: {min: 0, max: 65536}, N: {min: 0, max: 65536}}
space: {m: "ceil_div(M, 128)", n: N}
cluster: {m: 2}
dispatch: {dynamic: {}}
"""
OWN = """
version: 1
name: own
params: {M: {min: 0, max: 65536}, N: {min: 1, max: 65536}}
space: {m: "ceil_div(M, 128)", n: "ceil_div(N, 128)"}
dispatch: dynamic
kernel:
  source: own.cu
  entry: own
  block: [64, 2]
  shared_bytes: 1024 * ceil_div(N, 512) + M
  arguments: [A: f32*, C: bf16*, M: s32, K: s64, extra: "bytes[5]", alpha: f32, tiles: schedule]
"""
SOURCE = """
#include <sched/own.cuh>
struct Extra { char of[5]; };
extern "C" __global__ void own(const float* A, void* C, int M, long long K, Extra extra, float alpha,
                               sched::own::Arguments tiles) {
  for (sched::own s(tiles); s.valid(); s.next()) ((float*)C)[s.tile().m] = A[M] * alpha;
}
"""
WIDE = """
version: 1
name: Status
params: {a: {min: -9, max: 9}, big: {min: 1, max: 9007199254740991}, class: {min: 3, max: 3000000}}
space: {x: "max(a, 0) + (0 - 7 - a) // 3 % 5", y: "min(big // class, 65536)"}
dispatch: {static: {workers: "max((a - 4) // 3 + class % 7, 1)"}}
"""


@dataclass(frozen=True)
class Case:
    """A kernel, its launcher's text, and the namespace that it stands in."""

    namespace: str
    kernel: Description
    text: str


def emitted(spec: str, arch: str = "sm_90a", **files: str) -> Case:
    request = CompileRequest(spec, "x", arch, files={f"{name}.cu": text for name, text in files.items()})
    return case_of(emit_launcher(request), described(compile_spec(request).manifest))


def case_of(text: str, kernel: Description) -> Case:
    (namespace,) = re.findall(r"^namespace sched_launch \{\nnamespace (\w+) \{$", text, re.MULTILINE)
    return Case(namespace, kernel, text)


def by_hand() -> Case:
    """The kernel of `user_manifest`, around a schedule that has its parameters."""
    checked = driver.check(USER)
    about = user_manifest()
    about["schedule"] = driver.describe(checked)
    return case_of(launcher(checked, about), described(about))


def runner(case: Case, number: int) -> str:
    """A function that reads a launch's values, launches, and prints what the driver was told."""
    reads = ""
    for name, places in case.kernel.by_name.items():
        field, kind = f"a.{host_name(name)}", places[0].type
        if kind in ("f32", "f64"):
            reads += f"  {{ double v = 0; std::cin >> v; {field} = static_cast<decltype({field})>(v); }}\n"
        elif places[0].element is not None or bounds(kind) is not None or kind == "bf16":
            signed = kind.startswith("s") and places[0].element is None
            wide = "long long" if signed else "unsigned long long"
            reads += f"  {{ {wide} v = 0; std::cin >> v; {field} = static_cast<decltype({field})>(v); }}\n"
        else:
            reads += f"  read_bytes(&{field}, {places[0].size});\n"
    offsets = ", ".join(str(offset) for offset, _ in case.kernel.parameters)
    sizes = ", ".join(str(size) for _, size in case.kernel.parameters)
    return (
        f"static void run{number}(unsigned workers, CUstream stream) {{\n"
        f"  fake::offsets = {{{offsets}}};\n  fake::sizes = {{{sizes}}};\n"
        f"  sched_launch::{case.namespace}::Arguments a;\n{reads}"
        f"  report(sched_launch::{case.namespace}::launch(nullptr, a, stream, workers));\n}}\n"
    )


MAIN = """\
#include <cstdio>
#include <iostream>
static void read_bytes(void* to, unsigned size) {
  for (unsigned k = 0; k < size; ++k) {
    unsigned v = 0;
    std::cin >> v;
    static_cast<unsigned char*>(to)[k] = static_cast<unsigned char>(v);
  }
}
static void report(const sched_launch::Status& status) {
  if (!status || !fake::launched) {
    std::cout << (status ? "nothing" : status.message) << "\\n";
    return;
  }
  const CUlaunchConfig& c = fake::config;
  std::cout << "launched " << c.gridDimX << " " << c.gridDimY << " " << c.gridDimZ << " " << c.blockDimX << " "
            << c.blockDimY << " " << c.blockDimZ << " " << fake::cluster[0] << " " << fake::cluster[1] << " "
            << fake::cluster[2] << " " << c.sharedMemBytes << " " << (c.hStream != nullptr) << " ";
  for (const unsigned char b : fake::bytes) std::printf("%02x", b);
  std::fflush(stdout);
  std::cout << "\\n";
}
"""


def built(cases: list[Case], directory: Path) -> Path:
    text = ""
    for n, case in enumerate(cases):
        (directory / f"{n}.h").write_text(case.text)
        text += f'#include "{n}.h"\n' * 2
    text += MAIN + "".join(runner(case, n) for n, case in enumerate(cases))
    calls = "".join(f"    if (number == {n}) run{n}(workers, stream);\n" for n in range(len(cases)))
    text += (
        "int main() {\n  std::ios::sync_with_stdio(true);\n  int number = 0, major = 0, minor = 0;\n"
        "  unsigned workers = 0;\n  static char place;\n"
        "  CUstream stream = reinterpret_cast<CUstream>(&place);\n"
        "  while (std::cin >> number >> major >> minor >> workers) {\n"
        "    for (int& a : fake::attributes) a = 0;\n"
        f"{attributes()}"
        "    fake::attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = major;\n"
        "    fake::attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = minor;\n"
        "    fake::launched = false;\n    fake::allowed = 48 * 1024;\n"
        f"{calls}  }}\n}}\n"
    )
    (directory / "main.cpp").write_text(text)
    program = directory / "main"
    command = [str(CXX), *STRICT, "-isystem", str(FAKE), str(directory / "main.cpp"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr == ""
    return program


def attributes() -> str:
    values: dict[str, int] = {
        "MAX_THREADS_PER_BLOCK": DEVICE.block_threads, "MULTIPROCESSOR_COUNT": DEVICE.multiprocessors,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": DEVICE.shared_limit, "CLUSTER_LAUNCH": 1,
    }  # fmt: skip
    for k, axis in enumerate("XYZ"):
        values[f"MAX_GRID_DIM_{axis}"] = DEVICE.grid_limits[k]
        values[f"MAX_BLOCK_DIM_{axis}"] = DEVICE.block_limits[k]
    return "".join(f"    fake::attributes[CU_DEVICE_ATTRIBUTE_{name}] = {n};\n" for name, n in values.items())


def chosen(kernel: Description, chance: random.Random) -> dict[str, Any]:
    """Values of a launch, most of them right."""
    values: dict[str, Any] = {}
    for name, places in kernel.by_name.items():
        kind = places[0].type
        if places[0].element is not None:
            values[name] = 0 if chance.random() < 0.03 else chance.randrange(1, 2**64)
        elif limits := bounds(kind):
            lo = max(p.lo for p in places if p.lo is not None)
            hi = min(p.hi for p in places if p.hi is not None)
            small = min(hi, lo + chance.randrange(1, 400))
            value = chance.choice([lo, hi, small, chance.randint(lo, hi), chance.randint(lo, small)])
            if chance.random() < 0.05:
                value = chance.choice([lo - 1, hi + 1, *limits])
            values[name] = min(max(value, limits[0]), limits[1])
        elif kind in ("f32", "f64", "bf16"):
            values[name] = chance.choice([0.0, 1.5, -3.25, 1e10])
        else:
            values[name] = chance.randbytes(places[0].size)
    return values


def words(kernel: Description, values: Mapping[str, Any]) -> list[str]:
    """The same for the program in C++."""
    found: list[str] = []
    for name, value in values.items():
        if isinstance(value, bytes):
            found += map(str, value)
        elif kernel.by_name[name][0].type == "bf16":
            found.append(str(int.from_bytes(packed(value, "bf16") or b"", "little")))
        else:
            found.append(repr(value))
    return found


def expected(kernel: Description, values: Mapping[str, Any], capability: tuple[int, int], workers: int) -> str:
    """What Python says of a launch, as the program in C++ prints it."""
    try:
        launch = plan(kernel, values, device(capability=capability), workers or None)
    except LaunchError as e:
        return str(e)
    if launch.empty:
        return "nothing"
    numbers = [*launch.grid, *launch.block, *(launch.cluster or (0, 0, 0)), launch.shared, 1]
    return f"launched {' '.join(map(str, numbers))} {launch.parameters.hex()}"


def told(text: str) -> str:
    """Without what is expected of a pointer, which in Python may be an array."""
    return re.sub(r"(found a null pointer), expected [^;]*", r"\1", text)


@needs_cxx
def test_launchers_in_cpp_and_in_python_agree(tmp_path: Path) -> None:
    cases = [emitted((ROOT / "specs" / f"{name}.yaml").read_text()) for name in SPECS]
    cases += [emitted(WIDE), emitted(OWN, own=SOURCE), by_hand()]
    cases += [
        emitted((ROOT / "specs" / "gemm_group_major.yaml").read_text().replace("name: ", "name: at-80-"), "sm_80")
    ]
    program = built(cases, tmp_path)
    chance = random.Random(1)
    lines: list[str] = []
    wanted: list[str] = []
    for number, case in enumerate(cases):
        for _ in range(400):
            values = chosen(case.kernel, chance)
            own = (8, 6) if case.kernel.arch == "sm_80" else (9, 0)
            capability = own if chance.random() < 0.97 else chance.choice([(8, 0), (8, 9), (9, 0), (9, 1), (10, 0)])
            workers = chance.choice([0, 0, 0, 1, 66, 132, chance.randrange(2**31), 2**32 - 1])
            numbers = map(str, (number, *capability, workers))
            lines.append(" ".join([*numbers, *words(case.kernel, values)]))
            wanted.append(told(expected(case.kernel, values, capability, workers)))
    done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True, check=True)
    found = [told(line) for line in done.stdout.splitlines()]
    for line, got, want in zip(lines, found, wanted, strict=True):
        assert got == want, line
    counts = {kind: sum(w.startswith(kind) for w in wanted) for kind in ("launched", "nothing")}
    assert counts["launched"] > len(wanted) // 4
    assert counts["nothing"] > 10
    assert len(wanted) - sum(counts.values()) > 300


def headers_of_cuda() -> list[Path]:
    """Where `cuda.h` is: the tests' own, and CUDA's, which the extra `nvshmem` brings."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    return [FAKE, *(h.parent for folder in folders for h in folder.glob("*/include/cuda.h"))]


def understood(text: str, cuda: Path, directory: Path) -> None:
    (directory / "all.cpp").write_text(text.replace("#pragma once", "") + "int main() { return 0; }\n")
    command = [str(CXX), *STRICT, "-fsyntax-only", "-isystem", str(cuda), str(directory / "all.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:4000]) == (0, "")


@needs_cxx
def test_it_compiles_with_cudas_own_header(tmp_path: Path) -> None:
    headers = headers_of_cuda()[1:]
    if not headers:
        pytest.skip("cuda.h is not installed (the extra `nvshmem` brings it)")
    text = "".join(emitted((ROOT / "specs" / f"{name}.yaml").read_text()).text for name in SPECS[:3]) + by_hand().text
    understood(text, headers[0], tmp_path)


def words_of(cuda: Path, directory: Path) -> list[str]:
    """What a launcher has to keep apart from a user's names: its own words, C++'s, and the macros of what it includes,
    but for those that begin with an underscore. Some stand there twice, with one behind them as where they make way.
    """
    (directory / "macros.cpp").write_text(PRELUDE)
    command = [str(CXX), "-std=c++17", "-dM", "-E", "-isystem", str(cuda), str(directory / "macros.cpp")]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = named(["a", "b"], "plain").replace("plain", "")
    words = {
        *re.findall(r"[A-Za-z_]\w*", text),
        *re.findall(r"^#define ([A-Za-z]\w*)", macros, re.MULTILINE),
        *emitter._TAKEN,
    }
    words |= {f"{word}_" for word in ("class", "_x", "Status", "Arguments", "counter", "EOF", "CUDA_VERSION")}
    return sorted(word for word in words if len(word) <= 64 and word not in RESERVED and word != "grid")


#: Ways in which a user names a value of a launch: a parameter, a table, arguments of a kernel.
KINDS = ("parameter", "table", "f32*", "tensormap", "bytes[5]", "s32")


def named(words: list[str], name: str) -> str:
    """A launcher of all kinds of values, `words` dealt out among them."""
    dealt = {kind: words[k :: len(KINDS)] for k, kind in enumerate(KINDS)}
    spec = {
        "version": 1, "name": "named", "params": {word: {"min": 1, "max": 9} for word in dealt["parameter"]},
        "tables": {word: {"length": 4} for word in dealt["table"]},
        "space": {"m": " + ".join(["4", *dealt["parameter"]])}, "dispatch": "dynamic",
    }  # fmt: skip
    checked = driver.check(json.dumps(spec))
    about: Any = manifest(checked, "sm_90a", "cubin", "", b"", "entry", {"backend": "cuda"}, None)
    for kind in KINDS[1:]:
        for word in dealt[kind]:
            more = {"role": "argument", "type": kind, "size": 8}
            if kind == "table":
                more |= {"role": "table", "type": "s32*", "length": "4", "min": 0, "max": 3}
            about["parameters"].append({"name": word, "offset": about["parameters"][-1]["offset"] + 128, **more})
    program = dataclasses.replace(checked.program, identifier=name)
    return printed(program, about, checked.schedule.graph.const(0))


@needs_cxx
@pytest.mark.parametrize("cuda", headers_of_cuda(), ids=["fake", *["own"] * (len(headers_of_cuda()) - 1)])
def test_a_user_may_give_any_name_to_anything(tmp_path: Path, cuda: Path) -> None:
    """Every word of a launcher, and every macro around it, as the name of the kernel and of every kind of value."""
    words = words_of(cuda, tmp_path)
    most = 12 * len(KINDS)
    text = ""
    for k in range(len(KINDS)):  # so that each word is of each kind once
        turned = words[k:] + words[:k]
        text += "".join(named(turned[n : n + most], f"values_{k}_{n}") for n in range(0, len(turned), most))
    understood(text, cuda, tmp_path)
    understood("".join(named([], word) for word in words), cuda, tmp_path)


def test_names_that_make_way_stay_apart() -> None:
    words = ["class", "class_", "class__", "EOF", "EOF_", "Grid", "Grid_", "_x", "_x_", "x", "x_"]
    assert len({host_name(word) for word in words}) == len({safe(word) for word in words}) == len(words)


def test_a_job_of_nvshmem_has_no_launcher() -> None:
    text = (ROOT / "specs" / "rank_aware_group_major.yaml").read_text()
    spec = text + "params: {rank: {min: 0, max: 3, from: nvshmem}}\n"
    with pytest.raises(SpecError, match="no launcher is printed for a job of NVSHMEM"):
        emit_launcher(CompileRequest(spec, "x", "sm_90a"))


def test_an_architecture_that_is_none() -> None:
    with pytest.raises(SpecError, match="E053"):
        emit_launcher(CompileRequest(USER, "x", "sm_1"))
