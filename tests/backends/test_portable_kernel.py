"""One kernel for every dispatch: its text is the same, and where the hardware's queue answers, it is asked in order."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from backends.cuda import emitter
from backends.toolchain import nvrtc
from sched_compiler.driver import CompileRequest, compile_spec
from sched_compiler.program import Program
from tests.backends.test_cuda_emitter import needs_cxx
from tests.backends.test_ring import letters
from tests.support.engines import Case, assert_engines_agree
from tests.support.linked import DISPATCHES, ENTRY, included, instructions, kernel, program, spec

ARCHITECTURES = ["sm_90a", "sm_100a", "sm_120a"]


def grouped(how: str) -> str:
    """A spec of dispatch clc for groups of two CTAs, each with a tile of its own or both with the same."""
    form = json.loads(spec("clc", 2 if how == "cluster" else 1))
    if how == "cta_group":
        form["dispatch"]["clc"]["cta_group"] = 2
    return json.dumps(form)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_the_same_text_compiles_under_every_dispatch(dispatch: str, cluster: int, arch: str) -> None:
    compiled = nvrtc.compile(emitter.header(program(spec(dispatch, cluster))) + kernel(cluster), "k.cu", arch, "cubin")
    assert compiled.log.strip() == ""


@pytest.mark.parametrize("name", ["tiles", "ring", "place", "index", "answer", "Ring", "Self", "begin", "gemm"])
def test_a_schedule_has_one_name_under_every_dispatch(name: str) -> None:
    texts = [spec(dispatch).replace('"tiles"', f'"{name}"') for dispatch in DISPATCHES]
    assert len({emitter.struct_name(program(text)) for text in texts}) == 1
    own = emitter.struct_name(program(texts[0]))
    for text in texts:
        source = emitter.header(program(text)) + kernel().replace("sched::tiles", f"sched::{own}")
        assert nvrtc.compile(source, "k.cu", "sm_100a", "ptx").blob


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_one_source_is_the_kernel_of_specs_of_every_dispatch(arch: str) -> None:
    """Their manifests differ in what is passed and launched; the struct is as large as they say, or it is refused."""
    source = f"#include <sched/tiles.cuh>\n{kernel()}"
    passed = {}
    for dispatch in DISPATCHES:
        form = json.loads(spec(dispatch))
        own = {"source": "k.cu", "entry": ENTRY, "block": 64, "arguments": [{"visits": "u32*"}, {"tiles": "schedule"}]}
        request = CompileRequest(json.dumps({**form, "kernel": own}), "x.yaml", arch, files={"k.cu": source})
        manifest: dict[str, Any] = dict(compile_spec(request).manifest)
        assert manifest["entry"] == ENTRY
        passed[dispatch] = [field["type"] for field in manifest["parameters"][1]["fields"]]
        if dispatch == "clc":
            grid = "$workers" if arch == "sm_90a" else "m_tiles * 7"
            assert manifest["launch"]["grid"] == [grid, "1", "1"]
    assert passed["static"] == ["u32"]
    assert passed["dynamic"] == ["u32", "u64*"]
    assert passed["clc"] == ["u32", "u32*"]


@pytest.mark.parametrize("emit", ["ltoir", "object", "header"])
def test_the_library_of_a_spec_with_a_kernel_is_its_schedule_s(emit: Any) -> None:
    form = json.loads(spec("static"))
    own = {"source": "absent.cu", "entry": ENTRY, "block": 64, "arguments": [{"tiles": "schedule"}]}
    text = json.dumps({**form, "kernel": own})
    assert (
        compile_spec(CompileRequest(text, "x.yaml", "sm_90a", emit=emit)).blob
        == compile_spec(CompileRequest(spec("static"), "x.yaml", "sm_90a", emit=emit)).blob
    )


def arguments(made: Program) -> str:
    found = re.search(r"struct Arguments \{(.*)\};", emitter.header(made))
    assert found is not None
    return found[1].strip()


def test_a_counter_is_passed_where_one_may_answer() -> None:
    assert arguments(program(spec("clc"))) == "unsigned p_m_tiles; unsigned* counter;"
    alone = json.loads(spec("clc"))
    alone["dispatch"] = "clc"
    assert arguments(program(json.dumps(alone))) == "unsigned p_m_tiles;"
    source = emitter.header(program(json.dumps(alone))) + kernel()
    assert nvrtc.compile(source, "k.cu", "sm_100", "cubin").blob


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("how", ["alone", "cluster", "cta_group"])
def test_the_queue_is_asked_and_read_in_order(how: str, arch: str) -> None:
    """Bytes are expected before each request; an answer is awaited, read at once, and fenced from the next one."""
    ctas = 1 if how == "alone" else 2
    text = spec("clc") if how == "alone" else grouped(how)
    code = instructions(included(text, arch, ctas))
    found = letters(code)
    request = "sr" if arch == "sm_90a" else "aq"
    assert found.count(request) == 2, f"before the first item, and for each that follows: {found}"
    assert re.search(f"{request}.*wlfb?l{request}", found), found
    assert "SYNCS.EXCH" in next(line for line in code if "SYNCS" in line), "the barrier is made before it is used"
    if arch != "sm_90a":
        assert "LDS.128" in next(line for line in code if "LDS" in line)
        requests = [line for line in code if "UGETNEXTWORKID" in line]
        assert len(requests) == 2
        assert all("SELFCAST" in line for line in requests), "one CTA reads, and tells the others"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_cta_of_a_cluster_is_told(arch: str) -> None:
    """By stores into both CTAs' shared memory, between a barrier of the cluster and the next."""
    for how in ("cluster", "cta_group"):
        code = instructions(included(grouped(how), arch, 2))
        stores = [
            n for n, line in enumerate(code) if re.search(r"\bST(\.E|S|AS)?\b.*\[", line) and "STS.128" not in line
        ]
        meetings = [n for n, line in enumerate(code) if "UCGABAR_WAIT" in line]
        assert len(meetings) == 2
        assert stores
        assert any(meetings[0] < n < meetings[1] for n in stores)


@needs_cxx
@pytest.mark.parametrize("group", [{}, {"cta_group": 2}])
@pytest.mark.parametrize("fallback", [None, "dynamic"])
def test_on_the_host_given_answers_are_walked(group: dict[str, Any], fallback: str | None) -> None:
    """The harness compares each worker's walk with that of a consumer of the ring."""
    none = 0xFFFFFFFF
    form = {"version": 1, "name": "x", "space": {"m": 4, "n": 2}, "dispatch": {"clc": {"fallback": fallback, **group}}}
    responses = [[3, 7, none], [4, 2, 6, 5, none]]
    scaled = [[r if r == none else r * (2 if group else 1) for r in worker] for worker in responses]
    assert_engines_agree([Case(form, {}, responses=scaled)])
