"""NVRTC: what it compiles for, what it makes, and what it says of errors."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends.toolchain import library, nvrtc
from backends.toolchain.errors import ToolchainError, ToolMissing

try:
    VERSION = nvrtc.version()
except ToolMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
KERNEL = 'extern "C" __global__ void k(int* out, int n) { out[blockIdx.x] = n / 3; }'


def refused(source: str, arch: str = "sm_90a") -> ToolchainError:
    with pytest.raises(ToolchainError) as raised:
        nvrtc.compile(source, "case.cu", arch, "cubin")
    return raised.value


def test_architectures_are_the_librarys_own() -> None:
    found = nvrtc.architectures()
    assert {"sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_120a"} <= set(found)
    assert len(set(found)) == len(found)
    assert all(nvrtc.supports(arch) for arch in found)


@pytest.mark.parametrize("arch", ["sm_90f", "sm_75a", "sm_99", "sm_90x", "compute_90", "90", "", "sm_90 ", "sm_90a;"])
def test_other_architectures_are_refused(arch: str) -> None:
    assert not nvrtc.supports(arch)
    with pytest.raises(ToolchainError):
        nvrtc.compile(KERNEL, "k.cu", arch, "cubin")


def test_support_means_that_it_compiles() -> None:
    for arch in ("sm_90", "sm_90a", "sm_100f", "sm_121a"):
        assert nvrtc.supports(arch)
        assert nvrtc.compile(KERNEL, "k.cu", arch, "cubin").blob.startswith(b"\x7fELF")


def test_ptx_is_text_for_the_architecture() -> None:
    text = nvrtc.compile(KERNEL, "k.cu", "sm_100a", "ptx").blob.decode()
    assert ".target sm_100a" in text
    assert ".entry k(" in text
    assert "\0" not in text


def test_version_is_of_the_wheel_and_of_the_library() -> None:
    wheel = library.find("nvidia-cuda-nvrtc", "libnvrtc.so")
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert wheel.open().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    assert wheel.version.startswith(f"{major.value}.{minor.value}.")
    assert wheel.version in VERSION
    assert wheel.digest[:16] in VERSION


def test_recorded_digest_is_a_sha256() -> None:
    assert len(bytes.fromhex(library.find("nvidia-cuda-nvrtc", "libnvrtc.so").digest)) == hashlib.sha256().digest_size


def test_missing_package_and_missing_library() -> None:
    with pytest.raises(ToolMissing, match="no-such-package brings it"):
        library.find("no-such-package", "libnothing.so")
    with pytest.raises(ToolMissing, match="does not hold"):
        library.find("nvidia-cuda-nvrtc", "libnothing.so")


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("__global__ void k(int* p) {\n  *p = \tx;\n}", 2, 9),
        ("/* \u00e9\u4e16 */ int f = g;", 1, 14),
        ("\n\n#error no\n", 3, 2),
        ("__global__ void k() {\n  int a = 1\n}", 3, 1),
        ("a\nb\0c", 2, 2),
    ],
)
def test_errors_have_a_place(source: str, line: int, column: int) -> None:
    error = refused(source)
    assert (error.line, error.column) == (line, column), error.log
    assert error.log


def test_error_survives_pickling() -> None:
    error = refused("int x = y;")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.log, copy.line, copy.column, str(copy)) == (error.log, error.line, error.column, error.log)


def test_no_header_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.h").write_text("int secret;")
    monkeypatch.chdir(tmp_path)
    assert refused('#include "secret.h"').line == 1


def test_warnings_do_not_stop_it() -> None:
    made = nvrtc.compile("__global__ void k() { int unused; }", "w.cu", "sm_90a", "cubin")
    assert "warning" in made.log
    assert made.blob


def test_same_bytes_in_another_process_and_directory(tmp_path: Path) -> None:
    script = (
        "import sys; from backends.toolchain import nvrtc\n"
        "for emit in ('cubin', 'ptx'): sys.stdout.buffer.write(nvrtc.compile(sys.argv[1], 'x.cu', 'sm_90a', emit).blob)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "HOME": str(tmp_path)}
    other = subprocess.run(
        [sys.executable, "-c", script, KERNEL], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    here = b"".join(nvrtc.compile(KERNEL, "/a/b/y.cu", "sm_90a", emit).blob for emit in ("cubin", "ptx"))
    assert other.stdout == here
    assert list(tmp_path.iterdir()) == []


def test_threads_do_not_disturb_one_another() -> None:
    expected = [nvrtc.compile(KERNEL.replace("3", str(n)), "k.cu", "sm_90a", "cubin").blob for n in (3, 5, 7)]
    made: dict[int, bytes] = {}

    def work(number: int) -> None:
        made[number] = nvrtc.compile(KERNEL.replace("3", "357"[number]), "k.cu", "sm_90a", "cubin").blob

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [made[number] for number in range(3)] == expected


class Counted:
    """A library that counts the calls of each function."""

    def __init__(self, inner: ctypes.CDLL) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.inner, name)


def test_every_program_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(nvrtc._library())
    monkeypatch.setattr(nvrtc, "_library", lambda: counted)
    nvrtc.compile(KERNEL, "k.cu", "sm_90a", "cubin")
    refused("int x = y;")
    refused(KERNEL, "sm_90f")
    assert counted.calls["nvrtcDestroyProgram"] == counted.calls["nvrtcCreateProgram"] == 3
