"""`sched_compiler.load`: artifacts that are none, streams of any library, and what a kernel allocates and keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sched_compiler
from backends.launching import loading, streams
from backends.launching.description import Description, described
from backends.launching.device import DeviceFacts
from backends.launching.loading import Kernel
from backends.launching.plan import Launch
from sched_compiler import Artifact, CompileRequest, LaunchError, compile_spec, registry
from sched_compiler.registry import ToolMissingError
from tests.support.launching import DEVICE, device, user_manifest, user_values

SPEC = "{version: 1, name: queued, params: {m: {min: 0, max: 9}}, space: {x: m, y: 3}, dispatch: {dynamic: {}}}"


class FakeDriver:
    """Keeps what it is told. Addresses are far apart."""

    facts: DeviceFacts = DEVICE

    def __init__(self, kernel: Description | None = None, number: int | None = None) -> None:
        self.number = number
        self.loaded = b""
        self.memory: dict[int, bytes] = {}
        self.launches: list[tuple[Launch, int]] = []
        self.closed = False

    def load(self, blob: bytes) -> None:
        self.loaded = blob

    def upload(self, data: bytes) -> int:
        address = 0x100000 * (len(self.memory) + 1)
        self.memory[address] = data
        return address

    def launch(self, launch: Launch, stream: int) -> None:
        self.launches.append((launch, stream))

    def free(self, address: int) -> None:
        del self.memory[address]

    def close(self) -> None:
        self.closed = True


def kernel_of(manifest: dict[str, Any]) -> tuple[Kernel, FakeDriver]:
    driver: Any = FakeDriver()
    return Kernel(described(manifest), manifest, driver), driver


def address(launch: Launch, offset: int) -> int:
    return int.from_bytes(launch.parameters[offset : offset + 8], "little")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_spec(CompileRequest(SPEC, "queued.yaml", "sm_90a", "ptx"))


# -- artifacts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["artifact", "pair", "path", "text"])
def test_an_artifact_in_any_form(
    kind: str, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "Driver", FakeDriver)
    path = tmp_path / "queued.cubin"
    path.write_bytes(artifact.blob)
    (tmp_path / "queued.cubin.json").write_text(json.dumps(artifact.manifest))
    forms: dict[str, Any] = {
        "artifact": artifact, "pair": (artifact.blob, artifact.manifest), "path": path, "text": str(path)
    }  # fmt: skip
    kernel: Any = sched_compiler.load(forms[kind], device=3)
    assert kernel._driver.loaded == artifact.blob
    assert kernel._driver.number == 3
    assert kernel.manifest == artifact.manifest
    assert repr(kernel) == "<queued_trace of queued on device 0>"


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (None, "x.cubin: artifact: found No such file or directory: "),
        ("{", "x.cubin: artifact: found x.cubin.json is no JSON, expected the manifest"),
        ("[]", "?: manifest: found TypeError: "),
        ("{}", "?: manifest: found KeyError: 'schema', expected what docs/manifest.md says"),
    ],
)
def test_files_that_are_none(manifest: str | None, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.cubin").write_bytes(b"x")
    if manifest is not None:
        (tmp_path / "x.cubin.json").write_text(manifest)
    with pytest.raises(LaunchError) as caught:
        sched_compiler.load(tmp_path / "x.cubin")
    assert str(caught.value).startswith(text)


def test_bytes_that_the_manifest_is_not_of(artifact: Artifact) -> None:
    with pytest.raises(LaunchError, match="queued: cubin: found bytes of another artifact"):
        sched_compiler.load((artifact.blob + b"\0", artifact.manifest))


def test_a_device_that_does_not_run_it(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "Driver", FakeDriver)
    monkeypatch.setattr(FakeDriver, "facts", device(capability=(8, 0)))
    with pytest.raises(LaunchError, match=r"device: found compute capability 8\.0, expected 9\.0"):
        sched_compiler.load(artifact)


def test_without_a_driver_it_says_what_is_missing(artifact: Artifact) -> None:
    try:
        kernel = sched_compiler.load(artifact)
    except (ToolMissingError, LaunchError) as e:  # a LaunchError on a device of another architecture
        assert "CUDA driver" in str(e) or "cuda-bindings" in str(e) or "compute capability" in str(e)  # noqa: PT017
    else:
        kernel.close()


@pytest.mark.parametrize("name", ["backends", "cuda", "numpy"])
def test_importing_the_package_for_load_is_light(name: str) -> None:
    code = f"import sys, sched_compiler\nsched_compiler.load\nsys.exit({name!r} in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_load_is_found_through_the_registry() -> None:
    assert registry.launcher("python") is loading.load


# -- launches -------------------------------------------------------------------------------------------------


def test_a_counter_for_each_stream_is_zero_and_stays() -> None:
    kernel, driver = kernel_of(user_manifest())
    assert list(driver.memory.values()) == [bytes(128 * 64)]  # before the first launch, which a graph may capture
    for stream in (0, 5, 0, 5, 6):
        kernel(**user_values(), stream=stream)
    found = [address(launch, 216) for launch, _ in driver.launches]
    assert [stream for _, stream in driver.launches] == [0, 5, 0, 5, 6]
    assert (found[0], found[1]) == (found[2], found[3])
    assert sorted({*found}) == [0x100000, 0x100080, 0x100100]


def test_more_streams_than_counters_were_allocated_for() -> None:
    kernel, driver = kernel_of(user_manifest())
    for stream in range(70):
        kernel(**user_values(), stream=stream)
    assert len({address(launch, 216) for launch, _ in driver.launches}) == 70


def test_a_counter_of_the_callers() -> None:
    kernel, driver = kernel_of(user_manifest())
    kernel(**user_values(counter=0x77), stream=1)
    assert address(driver.launches[0][0], 216) == 0x77


def test_a_table_is_uploaded_once_for_its_elements() -> None:
    kernel, driver = kernel_of(user_manifest())
    for table in ([0, 1, 2, 3], np.array([0, 1, 2, 3]), (0, 1, 2, 4), [0, 1, 2, 3]):
        kernel(**user_values(indptr=table), stream=0)
    found = [address(launch, 208) for launch, _ in driver.launches]
    assert found[0] == found[1] == found[3] != found[2]
    assert driver.memory[found[2]] == np.array([0, 1, 2, 4], np.int32).tobytes()
    assert len(driver.memory) == 3


def test_nothing_to_do_is_not_launched_but_still_checked() -> None:
    kernel, driver = kernel_of(user_manifest(grid=["2 * M", "1", "1"], workers="M"))
    kernel(**user_values(M=0, indptr=[0]), stream=0)
    with pytest.raises(LaunchError):
        kernel(**user_values(M=0, indptr=[0], A=0), stream=0)
    assert driver.launches == []


def test_a_refused_launch_allocates_and_launches_nothing() -> None:
    kernel, driver = kernel_of(user_manifest())
    with pytest.raises(LaunchError):
        kernel(**user_values(K=2**40), stream=9)
    assert len(driver.memory) == 1
    assert driver.launches == []


def test_an_argument_may_be_called_as_the_launchs_own() -> None:
    manifest = user_manifest()
    manifest["parameters"][4]["name"] = "workers"
    kernel, driver = kernel_of(manifest)
    values = user_values(workers=-5)
    del values["K"]
    kernel(**values, workers_=3, stream=0)
    assert driver.launches[0][0].workers == 3
    assert kernel.plan(**values, workers_=4, stream=0).workers == 4


def test_closing_frees_all_of_it() -> None:
    kernel, driver = kernel_of(user_manifest())
    kernel(**user_values(), stream=0)
    kernel.close()
    assert driver.memory == {}
    assert driver.closed


# -- streams --------------------------------------------------------------------------------------------------


class _Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


class _OldProtocol:
    __cuda_stream__ = (0, 8)


class _Torch:
    cuda_stream = 9


class _CuPy:
    ptr = 10


@pytest.mark.parametrize(
    ("make", "handle"),
    [(_Protocol, 7), (_OldProtocol, 8), (_Torch, 9), (_CuPy, 10), (lambda: 11, 11), (lambda: 0, 0), (object, None),
     (lambda: True, None), (lambda: -1, None), (lambda: "0", None)],
)  # fmt: skip
def test_streams_of_any_library(make: Callable[[], Any], handle: int | None) -> None:
    assert streams.handle(make(), 0) == handle


def test_what_is_no_stream_is_refused() -> None:
    kernel, _ = kernel_of(user_manifest())
    with pytest.raises(LaunchError, match="user: stream: found a str, expected a stream, or its handle"):
        kernel(**user_values(), stream="main")


def test_the_default_is_torchs_current_stream_where_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def current_stream(device: int) -> Any:
            return type("Stream", (), {"cuda_stream": 100 + device})

    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))
    assert streams.handle(None, 2) == 102
    monkeypatch.delitem(sys.modules, "torch")
    assert streams.handle(None, 2) == 0
