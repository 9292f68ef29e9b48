"""The emitted PTX: golden texts, accepted by the assembler for every architecture, one instruction an operation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.ptx import emitter
from backends.ptx.interpreter import Module
from backends.toolchain import nvjitlink
from sched_compiler import driver
from sched_compiler.evaluate import NUMPY, evaluate
from sched_compiler.program import Program, place
from sched_compiler.traces import decode
from tests.backends.test_cuda_emitter import (
    ARCHITECTURES,
    GOLDEN_SPECS,
    NAMES,
    ROOT,
    SPECS,
    assert_golden,
    named,
    program_of,
)
from tests.support.random_specs import RandomChoices, random_spec

#: The PTX version of the golden texts, whatever is installed.
VERSION = "9.0"


def spec_text(name: str) -> str:
    return (ROOT / "specs" / f"{name}.yaml").read_text()


def assembled(program: Program, arch: str = "sm_90a") -> bytes:
    return nvjitlink.assemble(emitter.source(program, arch, nvjitlink.ptx_version(arch)), arch).blob


@pytest.mark.parametrize("name", GOLDEN_SPECS)
def test_text_is_golden(name: str) -> None:
    assert_golden(f"{name}.ptx", emitter.source(program_of(spec_text(name)), "sm_90a", VERSION))


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_functions_and_the_kernel_assemble(path: Path) -> None:
    program = program_of(path.read_text())
    text = emitter.source(program, "sm_90a", VERSION)
    assert text.isascii()
    assert f".visible .func (.param .align 4 .b8 out[{4 * len(program.schedule.axes)}])" in text
    assert (f" {program.identifier}_tile_to_index(" in text) == (program.inverse is not None)
    assert assembled(program)[:4] == b"\x7fELF"
    assert Module.parse(text)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", GOLDEN_SPECS)
def test_every_architecture_assembles(name: str, arch: str) -> None:
    if not nvjitlink.supports(arch):
        pytest.skip(f"nvJitLink {nvjitlink.version()} does not know {arch}")
    request = driver.CompileRequest(spec_text(name), name, arch, "ptx")
    assert driver.compile_spec(request).manifest["arch"] == arch
    program = program_of(spec_text(name))
    clustered = ".reqnctapercluster" in emitter.source(program, arch, nvjitlink.ptx_version(arch))
    assert clustered == (program.schedule.cluster_size > 1 and int(arch[3:].rstrip("a")) >= 90)


def test_random_specs_assemble() -> None:
    """What the interpreter takes, the assembler takes too."""
    for seed in range(7000, 7040):
        spec, _ = random_spec(RandomChoices(seed))
        assembled(program_of(spec))


@pytest.mark.parametrize("name", [*NAMES, "ret", "LOOP", "f32", "tid", "WARP_SZ", "entry"])
def test_specs_may_have_the_names_of_anything(name: str) -> None:
    assembled(program_of(named(["reg", "ld"], ["param", "p"], name, {"static": {"workers": "grid"}}, True)))


def test_the_functions_are_the_maps() -> None:
    """Called for every index and rank: the tile, and back the index."""
    for seed in range(7050, 7150):
        spec, values = random_spec(RandomChoices(seed))
        program = program_of(spec)
        schedule, module = program.schedule, Module.parse(emitter.source(program, "sm_90a", VERSION))
        items = int(evaluate([schedule.items], values)[0][0])
        if not items:
            continue
        size = schedule.cluster_size
        index, rank = np.repeat(np.arange(items), size), np.tile(np.arange(size), items)
        index = index.astype(NUMPY[schedule.index_type.name])
        ranks = [rank.astype(np.uint32)] if size > 1 else []
        parameters = [np.full(len(index), values[p.name], dtype=NUMPY[p.var.dtype.name]) for p in schedule.params]
        result = module.call(f"{program.identifier}_index_to_tile", [index, *ranks, *parameters])
        tiles = result.view(NUMPY[program.coord_type.name])
        want = decode(schedule, np.arange(items), values)[:, :-1]
        assert tiles.tolist() == want.tolist(), (seed, spec, values)
        columns = [np.ascontiguousarray(column) for column in tiles.T]
        result = module.call(f"{program.identifier}_tile_to_index", [*columns, *parameters])
        assert result.view(index.dtype)[:, 0].tolist() == index.tolist(), (seed, spec, values)


@pytest.mark.parametrize("seed", range(7100, 7110))
def test_there_is_no_signed_or_superfluous_division(seed: int) -> None:
    spec, _ = random_spec(RandomChoices(seed))
    text = emitter.kernel(program_of(spec), "sm_90a")
    assert not re.search(r"\b(div|rem)\.s(32|64)", text)


def test_a_static_schedule_divides_by_nothing_in_its_loop() -> None:
    text = emitter.kernel(program_of(spec_text("cluster_persistent_2d")), "sm_90a")
    loop = text[text.index("LOOP:") :]
    assert not re.search(r"\b(div|rem)\.", loop)
    assert "mul.hi.u32" in loop


def test_a_run_time_schedule_divides_only_before_its_loop() -> None:
    text = emitter.kernel(program_of(spec_text("cluster_persistent_2d_runtime")), "sm_90a")
    assert not re.search(r"\b(div|rem)\.", text[text.index("LOOP:") :])


def test_both_backends_agree_on_parameters() -> None:
    text = json.dumps(named(["m", "n"], ["a", "b"], "x", {"static": {"workers": 3}}, True))
    layouts = []
    for backend in ("cuda", "ptx"):
        manifest: dict[str, Any] = dict(
            driver.compile_spec(driver.CompileRequest(text, "x", "sm_90a", backend)).manifest
        )
        layouts.append([(p["name"], p["offset"], p["size"], p["type"]) for p in manifest["parameters"]])
        assert manifest["entry"] == "x_trace"
    assert layouts[0] == layouts[1]


def test_the_module_names_its_target() -> None:
    program = place(driver.check(spec_text("gemm_group_major")).schedule)
    head = emitter.source(program, "sm_103a", VERSION).splitlines()[:4]
    assert head[0] == f"// Tile schedule gemm-group-major. {program.walk}"
    assert head[1:] == [f".version {VERSION}", ".target sm_103a", ".address_size 64"]


@pytest.mark.parametrize("name", ["clusters_dynamic", "gemm_dynamic", "gemm_clc_fallback"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_queues_assemble_wherever_they_run(name: str, arch: str) -> None:
    """The release of PTX is the one that the instructions need, not only the one that knows the target."""
    request = driver.CompileRequest(spec_text(name), name, arch, "ptx")
    assert driver.compile_spec(request).blob[:4] == b"\x7fELF"
