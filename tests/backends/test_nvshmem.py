"""A rank that the kernel asks NVSHMEM for: compiled against its headers, linked with its device library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.toolchain import cubin, nvshmem
from backends.toolchain.errors import ToolMissing
from sched_compiler import driver
from sched_compiler.artifact import Emit
from sched_compiler.diagnostics import SpecError
from sched_compiler.driver import CompileRequest, artifact_key, compile_spec

ARGUMENTS = {"m_clusters": 8, "n_clusters": 4, "group_size": 2, "world_size": 4}


def spec(asks: bool) -> str:
    rank = {"min": 0, "max": 3, **({"from": "nvshmem"} if asks else {})}
    form = {"version": 1, "name": "asking", "uses": "rank_aware_group_major", "with": ARGUMENTS}
    return json.dumps({**form, "params": {"rank": rank}})


def request(asks: bool, backend: str = "cuda", emit: Emit = "cubin") -> CompileRequest:
    return CompileRequest(spec(asks), "spec.yaml", "sm_90a", backend, emit)


@pytest.fixture
def installed() -> None:
    try:
        nvshmem.version()
    except ToolMissing as e:
        pytest.skip(str(e))


@pytest.mark.usefixtures("installed")
def test_the_kernel_asks_and_is_linked() -> None:
    artifact = compile_spec(request(True))
    passed = compile_spec(request(False))
    assert artifact.key != passed.key
    manifests: list[Any] = [artifact.manifest, passed.manifest]
    names = [[p["name"] for p in m["parameters"]] for m in manifests]
    assert names[1] == [*names[0], "rank"]
    assert "nvidia-nvshmem" in manifests[0]["versions"]["nvshmem"]
    (kernel,) = [k for k in cubin.describe(artifact.blob) if k.entry == "asking_trace"]
    assert len(kernel.parameters) == len(names[0])
    assert b"nvshmemi_device_state_d" in artifact.blob
    assert b"nvshmemi_device_state_d" not in passed.blob


@pytest.mark.usefixtures("installed")
def test_two_builds_are_equal() -> None:
    assert compile_spec(request(True)).blob == compile_spec(request(True)).blob


def test_the_header_gets_the_rank_passed() -> None:
    assert compile_spec(request(True, emit="header")).blob == compile_spec(request(False, emit="header")).blob
    asks, passes = (driver.trace(spec(a), values={"rank": 2}, workers=3) for a in (True, False))
    assert asks.tiles == passes.tiles


@pytest.mark.parametrize(("backend", "emit"), [("ptx", "cubin"), ("ptx", "ptx"), ("cuda", "ptx")])
def test_what_cannot_ask_is_refused_at_the_parameter(backend: str, emit: Emit) -> None:
    with pytest.raises(SpecError) as caught:
        artifact_key(request(True, backend, emit))
    (d,) = caught.value.diagnostics
    assert d.code == "E053"
    assert d.span.column > spec(True).index('"rank"')


def test_where_it_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvshmem, "_HEADERS", {"nvidia-nvshmem-cu99": "nvshmem.h"})
    with pytest.raises(ToolMissing, match="nvshmem"):
        nvshmem.version()
