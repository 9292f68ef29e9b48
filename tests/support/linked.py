"""A kernel of a user's that is compiled by itself and linked with a schedule."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from typing import Any, Literal

from backends.cuda import emitter
from backends.toolchain import nvjitlink, nvrtc
from sched_compiler import driver
from sched_compiler.driver import CompileRequest
from sched_compiler.program import Program, place
from tests.backends.test_ring import nvdisasm

ENTRY = "visit"
#: Every dispatch, as a spec says it; each goes with the same kernel.
DISPATCHES: dict[str, Any] = {
    "single": "single",
    "static": {"static": {"workers": 5}},
    "grid": {"static": {"workers": "grid"}},
    "table": {"table": {"indptr": "T"}},
    "list": {"table": {"indptr": "T", "indices": "L"}},
    "dynamic": {"dynamic": {"workers": 5}},
    "clc": {"clc": {"fallback": "dynamic"}},
}


def spec(dispatch: str, cluster: int = 1) -> str:
    """A spec of m_tiles x 7 tiles called `tiles`, under a dispatch of `DISPATCHES`."""
    form: dict[str, Any] = {
        "version": 1,
        "name": "tiles",
        "params": {"m_tiles": {"min": 1, "max": 1000}},
        "space": {"m": "m_tiles", "n": 7},
        "order": {"split": {"m": 4}, "loops": ["m.outer", "n", "m.inner"]},
        "dispatch": DISPATCHES[dispatch],
    }
    if dispatch in ("table", "list"):
        form["tables"] = {"T": {"length": 6}}
    if dispatch == "list":
        form["tables"]["L"] = {"length": f"ceil_div(m_tiles, {cluster}) * 7"}
    if cluster > 1:
        form["cluster"] = {"m": cluster}
    return json.dumps(form)


def program(text: str) -> Program:
    return place(driver.check(text).schedule)


def kernel(cluster: int = 1) -> str:
    """Counts every tile in the space at `visits[m * 7 + n]`. The text is the same for every dispatch."""
    shape = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    return (
        f'extern "C" __global__ void {shape}{ENTRY}(unsigned* visits, sched::tiles::Arguments tiles) {{\n'
        "  for (sched::tiles s(tiles); s.valid(); s.next()) {\n"
        "    const auto t = s.tile();\n"
        "    if (threadIdx.x == 0 && s.in_bounds(t)) atomicAdd(visits + t.m * 7 + t.n, 1u);\n"
        "  }\n"
        "}\n"
    )


def included(text: str, arch: str, cluster: int = 1) -> bytes:
    """The cubin of the kernel that includes the schedule's header."""
    return nvrtc.compile(emitter.header(program(text)) + kernel(cluster), "kernel.cu", arch, "cubin").blob


def linked(text: str, arch: str, emit: Literal["object", "ltoir"], cluster: int = 1) -> bytes:
    """The cubin of the kernel that includes declarations alone, linked with what a user gets for `emit`."""
    declared = driver.emit_text(driver.check(text), "declarations", arch)
    own = nvrtc.compile_library(declared + kernel(cluster), "kernel.cu", arch, emit)
    assert own.log == ""
    library = driver.compile_spec(CompileRequest(text, "tiles.yaml", arch, "cuda", emit))
    return nvjitlink.link_parts([(emit, own.blob), (emit, library.blob)], arch).blob


def instructions(cubin: bytes) -> list[str]:
    """The machine code, in the order of its addresses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm(), "-c", file.name], capture_output=True, text=True, check=True).stdout
    return [re.sub(r"\s+", " ", line) for line in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text)]
