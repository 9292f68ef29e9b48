"""nvJitLink: what it assembles for, and which PTX each target needs."""

from __future__ import annotations

import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from backends.toolchain import nvjitlink
from backends.toolchain.errors import ToolchainError, ToolMissing

try:
    VERSION = nvjitlink.version()
except ToolMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
TARGETS = sorted(nvjitlink._INTRODUCED)


def module(arch: str, release: str | None = None, body: str = "ret;") -> str:
    release = release or nvjitlink.ptx_version(arch)
    return f".version {release}\n.target {arch}\n.address_size 64\n.visible .entry k()\n{{\n{body}\n}}\n"


def refused(ptx: str, arch: str = "sm_90a") -> ToolchainError:
    with pytest.raises(ToolchainError) as raised:
        nvjitlink.assemble(ptx, arch)
    return raised.value


def test_version_names_the_build() -> None:
    assert VERSION.startswith("nvidia-nvjitlink ")


@pytest.mark.parametrize("arch", TARGETS)
def test_recorded_release_is_the_lowest_that_knows_the_target(arch: str) -> None:
    if not nvjitlink.supports(arch):
        pytest.skip(f"this nvJitLink does not know {arch}")
    major, minor = map(int, nvjitlink.ptx_version(arch).split("."))
    assert nvjitlink.assemble(module(arch), arch).blob.startswith(b"\x7fELF")
    if arch == "sm_88":
        return  # nvJitLink 13.0 also took it with PTX 8.8, before it existed
    # The releases before it, of which some numbers were never used.
    for before in (f"{major}.{minor - 1}" if minor else f"{major - 1}.8", f"{major - 1}.5"):
        assert "does not support .target" in (log := refused(module(arch, before), arch).log) or "Unsupported" in log


@pytest.mark.parametrize("arch", ["sm_103a", "sm_110f"])
def test_release_of_an_unknown_target_is_asked_for(arch: str) -> None:
    assert nvjitlink._ask_ptx_version(arch) == nvjitlink.ptx_version(arch)


@pytest.mark.parametrize("arch", ["sm_90f", "sm_75a", "sm_70", "sm_99", "sm_90x", "compute_90", "", "sm_90a -g"])
def test_other_architectures_are_refused(arch: str) -> None:
    assert not nvjitlink.supports(arch)
    assert refused(module("sm_90a"), arch).log
    with pytest.raises(ToolchainError):
        nvjitlink.ptx_version(arch)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("bogus.u32 %r1;\nret;", 6),
        ("\n\n\tmov.u32 %r1 %r2;", 8),
        (".reg .b64 %rd<2>;\nadd.s32 %rd1, %rd1, 1;", 7),
        ("bra NOWHERE;", 6),
    ],
)
def test_errors_have_a_line(body: str, line: int) -> None:
    error = refused(module("sm_90a", body=body))
    assert (error.line, error.column) == (line, None), error.log


@pytest.mark.parametrize("text", ["", "hello", ".version 9.0", "\x7fELF"])
def test_what_is_no_ptx_is_refused(text: str) -> None:
    assert refused(text).log


def test_a_nul_character_does_not_end_the_text() -> None:
    error = refused(module("sm_90a") + "\0 bogus")
    assert (error.line, error.column) == (8, 1)


def test_code_for_a_later_target_is_refused() -> None:
    assert "higher" in refused(module("sm_100"), "sm_90").log


def test_error_survives_pickling() -> None:
    error = refused(module("sm_90a", body="bogus;"))
    assert pickle.loads(pickle.dumps(error)).line == error.line == 6


def test_same_bytes_in_another_process_and_directory(tmp_path: Path) -> None:
    script = (
        "import sys; from backends.toolchain import nvjitlink\n"
        "sys.stdout.buffer.write(nvjitlink.assemble(sys.argv[1], 'sm_90a').blob)"
    )
    text = module("sm_90a")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "HOME": str(tmp_path)}
    other = subprocess.run(
        [sys.executable, "-c", script, text], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert other.stdout == nvjitlink.assemble(text, "sm_90a").blob
    assert list(tmp_path.iterdir()) == []


_IN_TURN = """
import resource
from backends.toolchain import nvjitlink, nvrtc
text = ".version 8.0\\n.target sm_90a\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
faults = []
for _ in range(6):
    nvrtc.compile('extern "C" __global__ void k() {}', "k.cu", "sm_90a", "cubin")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    nvjitlink.assemble(text, "sm_90a")
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[2:]))
"""


def _faults(**settings: str) -> int:
    """Pages that the kernel hands out for a link after another compile, at best."""
    command = [sys.executable, "-c", _IN_TURN]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_what_one_compile_frees_the_next_one_uses() -> None:
    assert _faults() < 100
    assert _faults(MALLOC_TRIM_THRESHOLD_="0") > 300  # a user's own setting stands
