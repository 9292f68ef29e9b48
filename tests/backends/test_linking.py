"""A schedule that is linked instead of included: the same machine code by LTO-IR, calls by objects, and nvcc."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from backends.cuda import emitter
from backends.toolchain import nvjitlink, nvrtc
from backends.toolchain.errors import ToolchainError
from sched_compiler import driver
from sched_compiler.driver import CompileRequest
from tests.support.linked import DISPATCHES, ENTRY, included, instructions, kernel, linked, program, spec

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
EMITS: list[Literal["object", "ltoir"]] = ["object", "ltoir"]

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def built(text: str, emit: Any, arch: str = "sm_90a") -> bytes:
    return driver.compile_spec(CompileRequest(text, "tiles.yaml", arch, "cuda", emit)).blob


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_lto_gives_the_code_of_the_header(dispatch: str, cluster: int) -> None:
    text = spec(dispatch, cluster)
    code = instructions(linked(text, "sm_90a", "ltoir", cluster))
    assert not any("CALL" in line for line in code)
    assert code == instructions(included(text, "sm_90a", cluster))


@pytest.mark.parametrize(
    ("dispatch", "arch"),
    [("static", "sm_80"), ("static", "sm_90"), ("static", "sm_100a"), ("clc", "sm_100a"), ("clc", "sm_120a")],
)
def test_lto_on_every_generation(dispatch: str, arch: str) -> None:
    text = spec(dispatch)
    assert instructions(linked(text, arch, "ltoir")) == instructions(included(text, arch))


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_objects_are_linked_with_calls(dispatch: str, cluster: int) -> None:
    text = spec(dispatch, cluster)
    assert any("CALL" in line for line in instructions(linked(text, "sm_90a", "object", cluster)))


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_spec_is_a_library(path: Path, emit: Any) -> None:
    """And nothing but one: no kernel is in it, and a kernel that only makes the struct can be linked with it."""
    text, arch = path.read_text(), "sm_100a"
    blob = built(text, emit, arch)
    name = emitter.struct_name(program(text))
    user = f"sched::{name}::Arguments a) {{ sched::{name} s(a); *o = s.items(); }}"
    user = f'extern "C" __global__ void k(unsigned* o, {user}'
    own = nvrtc.compile_library(emitter.declarations(program(text)) + user, "k.cu", arch, emit).blob
    cubin = nvjitlink.link_parts([(emit, own), (emit, blob)], arch).blob
    assert b".nv.info.k\0" in cubin
    with pytest.raises(ToolchainError, match=r"Undefined|Unresolved"):
        nvjitlink.link_parts([(emit, own)], arch)


def test_two_schedules_are_linked_into_one_kernel() -> None:
    texts = [spec("dynamic"), spec("static").replace('"tiles"', '"other"')]
    heads = "".join(emitter.declarations(program(text)) for text in texts)
    user = (
        'extern "C" __global__ void k(unsigned* o, sched::tiles::Arguments a, sched::other::Arguments b) {\n'
        "  for (sched::tiles s(a); s.valid(); s.next()) o[s.tile().m] = 1;\n"
        "  for (sched::other s(b); s.valid(); s.next()) o[s.tile().n] = 1;\n}\n"
    )
    for emit in EMITS:
        own = nvrtc.compile_library(heads + user, "k.cu", "sm_90a", emit).blob
        parts = [(emit, own), *((emit, built(text, emit)) for text in texts)]
        assert nvjitlink.link_parts(parts, "sm_90a").blob[:4] == b"\x7fELF"


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_declarations_are_the_header_s_without_bodies(path: Path) -> None:
    """The same types and fields in the same order, for the device alone, and nothing to include."""
    made = program(path.read_text())
    declared, whole = emitter.declarations(made), emitter.header(made)
    assert declared.isascii()
    assert "#include" not in declared
    assert "#define" not in declared
    assert "SCHED_" not in declared
    fields = re.findall(r"^  (?:using|struct|[a-z].*; +//).*", declared, re.MULTILINE)
    assert fields
    place = 0
    for line in fields:
        place = whole.index(f"{line}\n", place)


def test_a_library_is_described_and_has_no_kernel() -> None:
    artifact = driver.compile_spec(CompileRequest(spec("dynamic"), "tiles.yaml", "sm_90a", "cuda", "ltoir"))
    declared = driver.emit_text(driver.check(spec("dynamic")), "declarations")
    manifest = artifact.manifest
    assert [manifest[k] for k in ("entry", "parameters", "launch", "resources")] == [None] * 4
    assert manifest["declarations"] == hashlib.sha256(declared.encode()).hexdigest()
    assert manifest["schedule"] == driver.describe(driver.check(spec("dynamic")))


@pytest.mark.parametrize("emit", EMITS)
def test_bytes_do_not_depend_on_the_working_directory(
    emit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = built(spec("dynamic"), emit)
    monkeypatch.chdir(tmp_path)
    assert built(spec("dynamic"), emit) == first
    assert Path.cwd() == tmp_path


def newer_than_nvcc() -> str | None:
    """Why nvcc's linker does not take what NVRTC makes here."""
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    wheel = re.search(r" (\d+)\.(\d+)\.", nvrtc.version())
    assert found is not None
    assert wheel is not None
    nvcc, own = [(int(m[1]), int(m[2])) for m in (found, wheel)]
    return (
        f"nvcc {nvcc} is older than NVRTC {own}, and no linker takes what is newer than itself" if nvcc < own else None
    )


def compiled_by_nvcc(text: str, directory: Path, *options: str) -> bytes:
    (directory / "tiles.cuh").write_text(emitter.declarations(program(text)))
    (directory / "kernel.cu").write_text(f'#include "tiles.cuh"\n{kernel()}')
    command = ["nvcc", "-arch=sm_90a", "-rdc=true", *options, "-o", "out", "kernel.cu"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return (directory / "out").read_bytes()


@needs_nvcc
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_what_nvcc_compiles_is_linked_by_nvjitlink(dispatch: str, tmp_path: Path) -> None:
    text = spec(dispatch)
    parts: list[tuple[Any, bytes]] = [("object", compiled_by_nvcc(text, tmp_path, "-cubin"))]
    assert nvjitlink.link_parts([*parts, ("object", built(text, "object"))], "sm_90a").blob
    parts = [("ltoir", compiled_by_nvcc(text, tmp_path, "-dlto", "-ltoir"))]
    code = instructions(nvjitlink.link_parts([*parts, ("ltoir", built(text, "ltoir"))], "sm_90a").blob)
    assert not any("CALL" in line for line in code)


@needs_nvcc
def test_what_nvcc_compiles_is_linked_by_nvcc(tmp_path: Path) -> None:
    if reason := newer_than_nvcc():
        pytest.skip(reason)
    text = spec("dynamic")
    (tmp_path / "kernel.o").write_bytes(compiled_by_nvcc(text, tmp_path, "-c"))
    (tmp_path / "tiles.o").write_bytes(built(text, "object"))
    command = ["nvcc", "-arch=sm_90a", "-dlink", "-o", "linked.o", "kernel.o", "tiles.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ENTRY.encode() in (tmp_path / "linked.o").read_bytes()


@needs_nvcc
def test_nvcc_takes_a_library_s_source(tmp_path: Path) -> None:
    """What an nvcc build may compile for itself where its linker is older than NVRTC."""
    text = spec("dynamic")
    (tmp_path / "kernel.o").write_bytes(compiled_by_nvcc(text, tmp_path, "-c"))
    (tmp_path / "tiles.cu").write_text(emitter.library(program(text)))
    for command in (["-rdc=true", "-c", "-o", "tiles.o", "tiles.cu"], ["-dlink", "-o", "l.o", "kernel.o", "tiles.o"]):
        done = subprocess.run(
            ["nvcc", "-arch=sm_90a", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
