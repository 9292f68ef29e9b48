"""The work ring's device code: it compiles, and its machine code does the protocol's steps in the protocol's order."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from backends import ring as instructions
from backends.cuda.ring import ring as cuda_ring
from backends.toolchain import nvjitlink, nvrtc
from sched_compiler.driver import CompileRequest, compile_spec
from sched_compiler.protocol import Consumer, Protocol, Ring, Source, Stop, protocol
from tests.support.rings import EPILOGUE, LOAD, MMA, STORE, cuda_source, ptx_source

TARGETS: list[tuple[str, Source]] = [
    ("sm_100a", "hardware"),
    ("sm_120a", "hardware"),
    ("sm_90a", "counter"),
    ("sm_100a", "counter"),
]
BACKENDS = ["cuda", "ptx"]
SPECS = Path(__file__).parents[2] / "specs"


def cubin(described: Protocol, backend: str, arch: str) -> bytes:
    if backend == "cuda":
        compiled = nvrtc.compile(cuda_source(described), "ring.cu", arch, "cubin")
    else:
        compiled = nvjitlink.assemble(ptx_source(described, arch), arch)
    assert compiled.log.strip() == ""
    return compiled.blob


def nvdisasm() -> Path:
    try:
        found = files("nvidia-cuda-nvdisasm") or []
    except PackageNotFoundError:
        pytest.skip("the Python package nvidia-cuda-nvdisasm is not installed (it is in the extra `test`)")
    return Path(str(next(f.locate() for f in found if f.name in ("nvdisasm", "nvdisasm.exe"))))


@functools.cache
def machine_code(ctas: int, arch: str, source: Source, backend: str) -> list[str]:
    """The instructions after the initialisation of a ring of three consumers, in the order of their addresses."""
    return disassembled(cubin(protocol(Ring(2, (LOAD, STORE, EPILOGUE), ctas, source)), backend, arch))


def disassembled(binary: bytes) -> list[str]:
    """The instructions of a cubin after the meeting that ends the initialisation."""
    tool = nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text)
    met = next(n for n, line in enumerate(lines) if "UCGABAR_WAIT" in line or "BAR.SYNC" in line)
    return [line for line in lines[met + 1 :] if not line.startswith("@!PT")]


#: Instructions by what they do, as one letter each.
LETTERS = {
    r"SYNCS\.PHASECHK": "w",  # wait
    r"SYNCS\.ARRIVE\S*A1T0": "r",  # release: one arrival, no bytes
    r"SYNCS\.ARRIVE": "a",  # arm: an arrival and bytes
    r"UGETNEXTWORKID": "q",
    r"STAS\.128|STS\.128": "s",
    r"LDS": "l",
    r"FENCE\.VIEW\.ASYNC": "f",
    r"BAR\.SYNC": "b",
}


def letters(code: list[str]) -> str:
    return "".join(
        next((letter for pattern, letter in LETTERS.items() if re.search(pattern, line)), "") for line in code
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("arch", "source"), TARGETS)
@pytest.mark.parametrize("ctas", [1, 2])
def test_steps_are_in_the_protocols_order(ctas: int, arch: str, source: Source, backend: str) -> None:
    found = letters(machine_code(ctas, arch, source, backend))
    itself = source == "counter" and ctas == 1  # the scheduler writes, and then arrives
    request = "q" if source == "hardware" else "sr" if itself else "ss"
    release = "r" if ctas == 1 else "fr"
    assert len(re.findall(f"w{'' if itself else 'a' * ctas}{request}wlfw", found)) == 1, f"the scheduler's: {found}"
    assert len(re.findall(f"wlf{release}", found)) == 2, f"those of consumers of one warp or less: {found}"
    assert len(re.findall(f"wlfb{release}", found)) == 1, f"that of the consumer of four warps: {found}"
    counts = {letter: found.count(letter) for letter in "aqrl"}
    arms, releases = (0, 4) if itself else (ctas, 3)
    assert counts == {"a": arms, "q": int(source == "hardware"), "r": releases, "l": 4}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("arch", "source"), TARGETS[:3])
@pytest.mark.parametrize(("name", "alone", "many"), [("cluster_launch_control", 1, 0), ("gemm_clc_fallback", 1, 1)])
def test_steps_of_a_specs_kernel_are_in_the_protocols_order(
    name: str, alone: int, many: int, arch: str, source: Source, backend: str
) -> None:
    """The cubins that users get, on groups of two CTAs: work is stolen, announced, read, and given back in order."""
    text = (SPECS / f"{name}.yaml").read_text()
    code = disassembled(compile_spec(CompileRequest(text, name, arch, backend)).blob)
    found = letters(code)
    request = "q" if source == "hardware" else "ss"
    assert len(re.findall(f"waa{request}wlfw", found)) == 1, f"the scheduler's: {found}"
    assert len(re.findall("wlffr", found)) == alone, f"that of one thread: {found}"
    assert len(re.findall("wlfbfr", found)) == many, f"that of four warps: {found}"
    counts = {letter: found.count(letter) for letter in "aqrl"}
    assert counts == {"a": 2, "q": int(source == "hardware"), "r": alone + many, "l": 1 + alone + many}
    assert any("UGETNEXTWORKID.BROADCAST" in line for line in code) == (source == "hardware")
    assert not any("MEMBAR.ALL.GPU" in line or "MEMBAR.SC" in line for line in code)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("arch", ["sm_100a", "sm_120a"])
@pytest.mark.parametrize("ctas", [1, 2])
def test_the_queue_answers_one_cta_or_all_and_is_read_at_once(ctas: int, arch: str, backend: str) -> None:
    code = machine_code(ctas, arch, "hardware", backend)
    assert any(("BROADCAST" if ctas == 2 else "SELFCAST") in line for line in code if "UGETNEXTWORKID" in line)
    assert all("LDS.128" in line for line in code if "LDS" in line)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("arch", "source"), TARGETS)
@pytest.mark.parametrize("ctas", [1, 2])
def test_no_item_costs_the_l1_cache_or_a_drain_of_global_memory(
    ctas: int, arch: str, source: Source, backend: str
) -> None:
    code = machine_code(ctas, arch, source, backend)
    assert not any("MEMBAR.ALL.GPU" in line or "MEMBAR.SC" in line for line in code)
    assert sum("CCTL.IVALL" in line for line in code) <= ctas - 1  # the one meeting of the cluster


@pytest.mark.parametrize(("arch", "source"), TARGETS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_ring_of_one_slot_and_many_consumers_compiles(backend: str, arch: str, source: Source) -> None:
    assert cubin(protocol(Ring(1, (LOAD, MMA, EPILOGUE, STORE), 2, source)), backend, arch)


def test_the_queue_without_a_cluster_needs_no_suffix() -> None:
    assert cubin(protocol(Ring(2, (LOAD,))), "cuda", "sm_100")


def test_every_step_but_stop_has_instructions_and_they_are_all_printed() -> None:
    described = protocol(Ring(2, (LOAD, EPILOGUE), 2))
    text = cuda_ring(described, "ring")
    for role in described.roles:
        for step in (*role.loop, *role.drain):
            if not isinstance(step, Stop):
                head = instructions.step(described, role, step, 1).lines[-1].split("[")[0].split("{")[0]
                assert head in text


def test_counts_are_the_descriptions() -> None:
    one, _ = instructions.initialise(protocol(Ring(2, (LOAD, MMA, EPILOGUE), 2)))
    assert [line for line in one.lines if "empty" in line] == [
        f"mbarrier.init.shared::cta.b64 [{{empty}} + {offset}], 6;" for offset in (0, 8)
    ]


def test_named_barriers_are_those_that_a_block_has() -> None:
    described = protocol(Ring(1, (LOAD, EPILOGUE, Consumer("other", 64), STORE)))
    assert instructions.named_barriers(described, 14) == {"epilogue": 14, "other": 15}
    for first in (0, 15):
        with pytest.raises(ValueError, match="named barriers"):
            instructions.named_barriers(described, first)
