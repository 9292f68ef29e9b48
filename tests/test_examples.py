"""The examples run as they stand: the demo against the real service, the user's kernel through both compilers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends.toolchain.cubin import describe
from sched_compiler.driver import check_text

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
USER_KERNEL = EXAMPLES / "user_kernel"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_the_demo_compiles_every_spec_and_ends_well(tmp_path: Path) -> None:
    done = run(sys.executable, str(EXAMPLES / "compile_everything.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    specs = sorted(path.stem for path in (ROOT / "specs").glob("*.yaml"))
    rows = [line.split() for line in done.stdout.splitlines() if re.search(r" sm_\d+", line)]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (spec, backend, arch) for spec in specs for backend in ("cuda", "ptx") for arch in ("sm_90a", "sm_100a")
    ]
    assert all(row[1] == "proven" and int(row[4]) > 0 and int(row[5]) > 0 for row in rows)
    assert done.stdout.endswith("service stopped\n")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_fails_where_the_service_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDC_WORKERS", "none")
    done = run(sys.executable, str(EXAMPLES / "compile_everything.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "the service did not start" in done.stderr


def test_the_example_specs_hold() -> None:
    for path in EXAMPLES.rglob("*.yaml"):
        report = check_text(path.read_text(encoding="utf-8"), str(path))
        assert report.ok, report
        assert report.diagnostics == ()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_users_kernel_compiles_with_nvrtc(tmp_path: Path, arch: str) -> None:
    done = run(sys.executable, str(USER_KERNEL / "build.py"), arch, "out.cubin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_is_the_kernel((tmp_path / "out.cubin").read_bytes())


def test_the_users_kernel_compiles_with_nvcc(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    shutil.copy(USER_KERNEL / "kernel.cu", tmp_path)
    emit = [sys.executable, "-m", "sched_compiler.cli", "emit", str(USER_KERNEL / "gemm.yaml"), "--to", "header"]
    done = run(*emit, "-o", "schedule.cuh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run("nvcc", "-cubin", "-arch=sm_90a", "-o", "out.cubin", "kernel.cu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_is_the_kernel((tmp_path / "out.cubin").read_bytes())


def assert_is_the_kernel(cubin: bytes) -> None:
    (kernel,) = describe(cubin)
    assert kernel.entry == "gemm"
    assert [p.size for p in sorted(kernel.parameters, key=lambda p: p.index)] == [8, 8, 8, 4, 4, 4]
    assert kernel.static_shared == 2 * 32 * 32 * 4
    assert kernel.local == 0
