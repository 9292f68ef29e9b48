"""Dispatch clc in both backends: one header for all architectures, and trace kernels that use the ring."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.cuda import emitter as cuda
from backends.ptx import emitter as ptx
from backends.ptx.engine import interpret
from backends.ptx.interpreter import Module
from backends.toolchain import nvrtc
from sched_compiler import driver
from sched_compiler.program import Program, place
from sched_compiler.protocol import NONE_LEFT
from sched_compiler.registry import BackendError, TraceRequest, get
from sched_compiler.traces import trace_numpy
from tests.backends.test_cuda_emitter import assert_golden

ROOT = Path(__file__).parents[2]
SPECS = [ROOT / "specs" / f"{name}.yaml" for name in ("cluster_launch_control", "gemm_clc_fallback")]


def program_of(dispatch: Any = "clc", name: str = "x", **more: Any) -> Program:
    form = {"version": 1, "name": name, "space": {"m": 4, "n": 4}, "dispatch": dispatch, **more}
    return place(driver.check(json.dumps(form)).schedule)


@pytest.mark.parametrize("source", ["hardware", "counter"])
@pytest.mark.parametrize("workers", [1, 2, 7, 500])
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_interpreted_trace_kernels_walk_like_numpy(path: Path, workers: int, source: Any) -> None:
    checked = driver.check(path.read_text())
    program = place(checked.schedule)
    arch = "sm_100a" if source == "hardware" else "sm_90a"
    module = Module.parse(ptx.source(program, arch, "8.0"))
    for m_tiles in (0, 1, 7):
        request = TraceRequest({"m_tiles": m_tiles}, workers, range(workers))
        want = trace_numpy(checked.schedule, request)
        for got, wanted in zip(interpret(module, program, request, source), want, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_the_queue_of_the_interpreter_is_not_asked_too_often() -> None:
    program = program_of()
    module = Module.parse(ptx.source(program, "sm_100a", "8.0"))
    with pytest.raises(BackendError, match="asked after"):
        interpret(module, program, TraceRequest({}, 1, [0], answers=[[3]]), "hardware")


def test_ctas_of_a_group_that_disagree_are_told() -> None:
    program = program_of({"clc": {"cta_group": 2}})
    text = ptx.source(program, "sm_100a", "8.0").replace(
        "shr.u32 c0_index, c0_index, 1;", "shr.u32 c0_index, c0_index, %rank;"
    )
    assert "%rank;" in text
    with pytest.raises(BackendError, match="saw different tiles"):
        interpret(Module.parse(text), program, TraceRequest({}, 1, [0], answers=[[2, NONE_LEFT]]), "hardware")


def test_texts_are_golden() -> None:
    program = place(driver.check((ROOT / "specs" / "gemm_clc_fallback.yaml").read_text()).schedule)
    assert_golden("gemm_clc_fallback.cuh", cuda.header(program))
    assert_golden("gemm_clc_fallback.ptx", ptx.source(program, "sm_100a", "8.0"))


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_one_header_is_for_every_architecture(path: Path) -> None:
    program = place(driver.check(path.read_text()).schedule)
    kernel = cuda.trace_source(program, "counter")
    head = cuda.header(program)
    assert kernel.startswith(head)
    assert cuda.trace_source(program, "hardware").startswith(head)
    with pytest.raises(BackendError, match="sm_90 or later"):
        nvrtc.compile(kernel, "x.cu", "sm_80", "ptx")


def test_a_header_without_a_fallback_says_where_it_runs() -> None:
    program = program_of(name="tiles")
    text = cuda.trace_source(program, "hardware")
    assert nvrtc.compile(text, "x.cu", "sm_100", "cubin").blob
    with pytest.raises(BackendError, match="sm_100 or later, or a fallback"):
        nvrtc.compile(text, "x.cu", "sm_90a", "cubin")


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize(
    "name", ["ring", "Ring", "index", "class", "tiles", "none", "_a", "x", "k0", "t1", "s", "END0"]
)
def test_a_consumer_may_have_any_name(name: str, backend: str) -> None:
    program = program_of({"clc": {"consumers": {name: 1, "other": 64}}})
    assert get(backend).build(program, "sm_100a", "cubin")


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a", "sm_90", "sm_90a"])
def test_specs_compile_for_every_architecture_with_a_ring(backend: str, arch: str) -> None:
    if not get(backend).supports(arch):
        pytest.skip(f"{backend} does not know {arch}")
    for path in SPECS:
        checked = driver.check(path.read_text())
        assert driver.supports(checked, arch)
        assert get(backend).build(place(checked.schedule), arch, "cubin")


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_nvcc_takes_the_header_for_host_and_devices(path: Path, tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    (tmp_path / "x.cu").write_text(cuda.trace_source(place(driver.check(path.read_text()).schedule), "counter"))
    command = ["nvcc", "-c", "-arch=sm_90a", "-o", "x.o", "x.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
