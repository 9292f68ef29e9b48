"""What a launch is told, from a manifest and values; what is refused, with every fault of a call told at once."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.launching.description import described
from backends.launching.device import DeviceFacts, runs
from backends.launching.plan import Launch, plan
from backends.launching.types import packed
from sched_compiler import CompileRequest, LaunchError, LaunchFault, compile_spec, driver
from sched_compiler.evaluate import evaluate
from sched_compiler.schedule import WORKERS
from tests.support.launching import DEVICE, CudaArray, DlpackArray, TorchTensor, device, user_manifest, user_values

BF16, F32, S32, U64 = (f"an array of {t} on device 0, or an address" for t in ("bf16", "f32", "s32", "u64"))
LOOSE = "an array that is not contiguous, expected one that is, in C order, or an address"
SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.yaml"))


def planned(values: dict[str, Any], on: DeviceFacts = DEVICE, workers: Any = None, **launch: Any) -> Launch:
    return plan(described(user_manifest(**launch)), values, on, workers)


def refused(values: dict[str, Any], on: DeviceFacts = DEVICE, workers: Any = None, **launch: Any) -> list[LaunchFault]:
    with pytest.raises(LaunchError) as caught:
        planned(values, on, workers, **launch)
    return list(caught.value.faults)


def fault(values: dict[str, Any], **how: Any) -> str:
    (found,) = refused(values, **how)
    return str(found)


# -- what is told ---------------------------------------------------------------------------------------------


def test_every_value_stands_at_its_place() -> None:
    values = user_values()
    launch = planned(values)
    bytes_ = bytes(launch.parameters)
    assert len(bytes_) == 233
    assert struct.unpack_from("<QQQiif", bytes_) == (0x7000, values["C"].address, 0x1234, 300, -5, 1.5)
    assert bytes_[36:38] == b"\x80\x3f"  # 1.0
    assert bytes_[64:192] == values["map"]
    assert bytes_[192:195] == b"abc"
    assert struct.unpack_from("<IIQQ", bytes_, 200) == (300, 256, 0, 0)  # the addresses are known later
    ((offset, table),) = launch.uploads
    assert (offset, str(table.dtype), table.tolist()) == (208, "int32", [0, 1, 2, 1000])
    assert launch.counters == ((216, "counter"),)


def test_the_shape_is_that_of_the_formulas() -> None:
    launch = planned(user_values())
    assert launch.shared == 2048
    assert (launch.block, launch.cluster) == ((128, 2, 1), (2, 1, 1))
    assert (launch.workers, launch.grid) == (132, (264, 1, 1))  # 132 multiprocessors, 2 CTAs on each, 2 in a cluster
    assert planned(user_values(), workers=7).grid == (14, 1, 1)
    assert planned(user_values(), workers=np.int64(7)).grid == (14, 1, 1)


def test_no_more_workers_than_items_and_at_least_one_by_default() -> None:
    assert planned(user_values(M=129, N=3, indptr=[0, 0, 0])).workers == 6
    assert planned(user_values(M=0, N=3, indptr=[0])).workers == 1


def test_occupancy_is_asked_with_the_shared_memory_of_the_launch() -> None:
    asked: list[int] = []

    def resident(shared: int) -> int:
        asked.append(shared)
        return 1

    assert planned(user_values(), on=device(resident)).workers == 66
    assert asked == [2048]


def test_a_grid_of_nothing_is_not_launched() -> None:
    launch = plan(described(user_manifest(grid=["2 * M", "1", "1"], workers="M")), user_values(M=0, indptr=[0]), DEVICE)
    assert launch.empty
    assert launch.workers == 0


def test_before_hardware_clusters_the_driver_is_told_of_none() -> None:
    manifest = user_manifest()
    manifest["arch"] = "sm_80"
    assert plan(described(manifest), user_values(), device(capability=(8, 6), clusters=False)).cluster is None


def test_a_counter_may_be_given_and_each_schedule_has_its_own() -> None:
    launch = planned(user_values(counter=CudaArray(np.zeros(1, np.uint64), address=0x9000)))
    assert launch.counters == ()
    assert struct.unpack_from("<Q", launch.parameters, 216) == (0x9000,)
    manifest = user_manifest()
    manifest["parameters"][10]["fields"] = [{**manifest["parameters"][9]["fields"][3], "offset": 0}]
    manifest["parameters"][10]["size"] = 8
    launch = plan(described(manifest), user_values(tiles_counter=0x9000), DEVICE)
    assert launch.counters == ((232, "empty_counter"),)


@pytest.mark.parametrize("named", [("counter",), ("counter", "tiles_counter"), ("tiles_counter", "counter")])
@pytest.mark.parametrize("position", [0, 1, 4, 7])  # two pointers, a number, bytes
def test_what_a_user_has_named_keeps_its_name(named: tuple[str, ...], position: int) -> None:
    manifest = user_manifest()
    for k, name in enumerate(named):
        manifest["parameters"][position + k]["name"] = name
    kernel = described(manifest)
    assert [[p.role for p in kernel.by_name[name]] for name in named] == [["argument"]] * len(named)
    (counter,) = (place.name for place in kernel.places if place.role == "counter")
    assert counter == ("tiles_counter_" if len(named) > 1 else "tiles_counter")


def test_a_parameter_may_be_called_as_the_struct_that_holds_it() -> None:
    manifest = user_manifest()
    for parameter in (manifest["parameters"][3], manifest["parameters"][9]["fields"][0]):
        parameter["name"] = "tiles"
    manifest["schedule"]["where"]["$0"] = "ceil_div(tiles, 128)"
    values = user_values()
    wanted = planned(values).parameters
    assert plan(described(manifest), {"tiles": values.pop("M"), **values}, DEVICE).parameters == wanted


@pytest.mark.parametrize(
    "value",
    [
        TorchTensor((3,), "bfloat16"),
        TorchTensor((0,), "bfloat16"),
        CudaArray(np.zeros(3, np.float16)),
        DlpackArray(np.zeros(3, np.float16)),
        DlpackArray(np.zeros((3, 1, 4), np.float16)[:, :, :]),
        0x1234,
        np.uint64(2**63),
    ],
)
def test_a_pointer_is_an_array_of_its_type_or_an_address(value: Any) -> None:
    manifest = user_manifest()
    manifest["parameters"][0]["type"] = "bf16*" if isinstance(value, TorchTensor) else "f16*"
    plan(described(manifest), user_values(A=value, any=value), DEVICE)


def test_integers_may_have_a_sign_or_none() -> None:
    manifest = user_manifest()
    manifest["parameters"][0]["type"] = "u32*"
    plan(described(manifest), user_values(A=TorchTensor((3,), "int32")), DEVICE)
    with pytest.raises(LaunchError, match="A: found an array of s64, expected an array of u32 on device 0"):
        plan(described(manifest), user_values(A=TorchTensor((3,), "int64")), DEVICE)


def test_a_dlpack_arrays_address_is_that_of_its_first_element() -> None:
    array = np.arange(12, dtype=np.float32)
    launch = planned(user_values(C=DlpackArray(array[4:])))
    assert struct.unpack_from("<Q", launch.parameters, 8) == (array.ctypes.data + 16,)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80), (-2.0, 0xC000), (1 + 2**-8, 0x3F80), (1 + 2**-8 + 2**-16, 0x3F81), (1 + 3 * 2**-8, 0x3F82),
        (float("inf"), 0x7F80), (float("-inf"), 0xFF80), (3.3895e38, 0x7F7F),
    ],
)  # fmt: skip
def test_bf16_is_rounded_to_nearest_even(value: float, bits: int) -> None:
    assert packed(value, "bf16") == struct.pack("<H", bits)


# -- what is refused ------------------------------------------------------------------------------------------


def test_all_faults_of_a_call_are_told_at_once() -> None:
    values = user_values(M=70000, C=np.zeros(3, np.float32), spare=1)
    del values["K"]
    found = refused(values, workers=0, on=device(capability=(8, 0)))
    assert [f.argument for f in found] == ["device", "spare", "K", "M", "C"]
    with pytest.raises(LaunchError, match=r"^user: device: .*; spare: .*; C: found an array in host memory, expected"):
        planned(values, on=device(capability=(8, 0)))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("M", -1, "M: found -1, expected 0 to 65536"),
        ("M", 65537, "M: found 65537, expected 0 to 65536"),
        ("M", 2.0, "M: found 2.0, expected 0 to 65536"),
        ("M", "2", "M: found '2', expected 0 to 65536"),
        ("M", None, "M: found None, expected 0 to 65536"),
        ("M", TorchTensor((), "int32"), "M: found an array of s32, expected 0 to 65536"),
        ("K", 2**31, "K: found 2147483648, expected -2147483648 to 2147483647"),
        ("alpha", "x", "alpha: found 'x', expected a number that f32 holds"),
        ("alpha", 1e39, "alpha: found 1e+39, expected a number that f32 holds"),
        ("beta", 3.4e38, "beta: found 3.4e+38, expected a number that bf16 holds"),
        ("extra", b"abcd", "extra: found a bytes, expected 3 bytes"),
        ("map", 5, "map: found 5, expected 128 bytes"),
        ("A", 0, f"A: found a null pointer, expected {BF16}"),
        ("A", -1, f"A: found -1, expected {BF16}"),
        ("A", True, f"A: found True, expected {BF16}"),
        ("A", None, f"A: found None, expected {BF16}"),
        ("A", [1.0], f"A: found a list, expected {BF16}"),
        ("A", TorchTensor((3,), "float16"), f"A: found an array of f16, expected {BF16}"),
        ("A", TorchTensor((3,), "float8_e4m3fn"), f"A: found an array of torch.float8_e4m3fn, expected {BF16}"),
        ("A", TorchTensor((3,), "bfloat16", "cpu"), f"A: found an array in host memory, expected {BF16}"),
        ("A", TorchTensor((3,), "bfloat16", index=1), f"A: found an array on device 1, expected {BF16}"),
        ("A", TorchTensor((3, 3), "bfloat16", order="F"), f"A: found {LOOSE}"),
        ("C", np.zeros(3, np.float32), f"C: found an array in host memory, expected {F32}"),
        ("C", DlpackArray(np.zeros(3, np.float32), kind=1), f"C: found an array in host memory, expected {F32}"),
        ("C", DlpackArray(np.zeros((3, 4), np.float32).T), f"C: found {LOOSE}"),
        ("C", DlpackArray(np.zeros(3, np.complex64)), f"C: found an array of code 5 of 64 bits, expected {F32}"),
        ("C", CudaArray(np.zeros((3, 4), np.float32)[:, ::2]), f"C: found {LOOSE}"),
        ("C", CudaArray(np.zeros(3, np.float32), device=3), f"C: found an array on device 3, expected {F32}"),
        ("counter", CudaArray(np.zeros(0, np.uint64)), "counter: found 0 elements, expected at least 1"),
        ("counter", CudaArray(np.zeros(1, np.uint32)), f"counter: found an array of u32, expected {U64}"),
        ("indptr", [0, 1, 2], "indptr: found 3 elements, expected 4"),
        ("indptr", [0, 1, 2, 3, 4], "indptr: found 5 elements, expected 4"),
        ("indptr", [0, 1, 2, 1001], "indptr: found 1001 at element 3, expected elements from 0 to 1000"),
        ("indptr", np.array([0, -1, 2, 3]), "indptr: found -1 at element 1, expected elements from 0 to 1000"),
        ("indptr", [0.5], "indptr: found an array of float64 with 1 dimensions, expected a list of integers"),
        ("indptr", CudaArray(np.zeros(3, np.int32)), "indptr: found 3 elements, expected at least 4"),
        ("indptr", CudaArray(np.zeros(4, np.int64)), f"indptr: found an array of s64, expected {S32}"),
        ("tiles", 3, "tiles: found a value, expected none: it is filled from M, N, indptr, counter"),
        ("empty", 3, "empty: found a value, expected none: it is filled from nothing"),
    ],
)  # fmt: skip
def test_a_value_that_the_argument_does_not_take(name: str, value: Any, text: str) -> None:
    assert fault(user_values(**{name: value})) == text


@pytest.mark.parametrize("name", ["A", "M", "N", "K", "alpha", "map", "extra", "indptr"])
def test_a_value_that_is_missing(name: str) -> None:
    values = user_values()
    del values[name]
    assert fault(values).startswith(f"{name}: found no value, expected ")


@pytest.mark.parametrize("workers", [0, -1, 2**30, 1.5, "7", [7]])
def test_workers_out_of_range(workers: Any) -> None:
    assert fault(user_values(), workers=workers).endswith("expected 1 to 1073741823")


def test_workers_are_the_schedules_own_where_it_has_a_number() -> None:
    how = {"workers": 65, "grid": ["132", "1", "1"]}
    manifest = described(user_manifest(grid=["132", "1", "1"], workers="66"))
    assert plan(manifest, user_values(), DEVICE).grid == plan(manifest, user_values(), DEVICE, 66).grid == (132, 1, 1)
    with pytest.raises(LaunchError, match="user: workers: found 65, expected 66, as the schedule has"):
        plan(manifest, user_values(), DEVICE, how["workers"])


def test_more_shared_memory_than_the_device_has() -> None:
    text = (
        "shared memory: found 262144 bytes of dynamic shared memory, expected at most 231448, beside 1000 static ones"
    )
    assert fault(user_values(N=2**15)) == text


def test_grids_outside_the_limits() -> None:
    how: dict[str, Any] = {"workers": 1, "grid": ["2", "65536", "1"]}
    assert fault(user_values(), **how) == "grid: found [2, 65536, 1], expected at most [2147483647, 65535, 65535]"
    assert fault(user_values(), workers=1, grid=["3", "1", "1"]).startswith("grid: found [3, 1, 1], expected multiples")
    assert fault(user_values(), workers=1, grid=["2 * M", "1", "1"], co_resident=True).startswith(
        "grid: found 600 CTAs"
    )


def test_devices_that_do_not_run_the_kernel() -> None:
    assert fault(user_values(), on=device(block_threads=128)).startswith(
        "block: found [128, 2, 1], expected at most 128"
    )
    assert (
        fault(user_values(), on=device(clusters=False))
        == "device: found no clusters, expected a device with clusters of 2 CTAs"
    )
    assert fault(user_values(), on=device(lambda _: 0)).startswith("device: found no room for one worker")
    text = "device: found compute capability 10.0, expected 9.0, which a kernel for sm_90a runs on"
    assert fault(user_values(), on=device(capability=(10, 0))) == text


@pytest.mark.parametrize(
    ("arch", "capabilities"),
    [
        ("sm_90a", [(9, 0)]), ("sm_90", [(9, 0), (9, 1)]), ("sm_80", [(8, 0), (8, 6), (8, 9)]),
        ("sm_86", [(8, 6), (8, 9)]), ("sm_100f", [(10, 0), (10, 3)]), ("sm_100a", [(10, 0)]), ("sm_120", [(12, 0)]),
    ],
)  # fmt: skip
def test_which_devices_run_an_architectures_code(arch: str, capabilities: list[tuple[int, int]]) -> None:
    all_ = [(8, 0), (8, 6), (8, 9), (9, 0), (9, 1), (10, 0), (10, 3), (12, 0)]
    assert [c for c in all_ if runs(arch, c)] == capabilities


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2}, {"emit": "ptx"}, {"parameters": None}, {"launch": {}}, {"arch": "gfx90a"}, {"arch": "sm_"},
        {"resources": 5}, {"versions": {"nvshmem": "3"}}, {"parameters": [{"name": "x"}]},
        {"parameters": [{**p, "name": "M"} for p in user_manifest()["parameters"]]},
        {"launch": {**user_manifest()["launch"], "grid": ["1 +", "1", "1"]}},
    ],
)  # fmt: skip
def test_a_manifest_that_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(LaunchError):
        described({**user_manifest(), **change})
    for field in change:
        with pytest.raises(LaunchError):
            described({k: v for k, v in user_manifest().items() if k != field})
    no_manifests: list[Any] = [[], None, "x"]
    for wrong in no_manifests:
        with pytest.raises(LaunchError):
            described(wrong)


# -- trace kernels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_formulas_of_a_manifest_give_what_the_schedule_does(path: Path) -> None:
    checked = driver.check(path.read_text(), str(path))
    schedule = checked.schedule
    manifest = compile_spec(CompileRequest(path.read_text(), str(path), "sm_100a", "ptx")).manifest
    kernel = described(json.loads(json.dumps(manifest)))
    choose = random.Random(path.stem)
    for _ in range(8):
        values = {
            p.name: choose.choice([p.var.lo, p.var.hi, choose.randint(p.var.lo, p.var.hi)]) for p in schedule.params
        }
        (items,) = evaluate([schedule.items], dict(values))
        assert kernel.value(kernel.items, values) == int(items[0])
        workers = None
        if schedule.dispatch.workers.attr != WORKERS:
            workers = int(evaluate([schedule.dispatch.workers], dict(values))[0][0])
        given: dict[str, Any] = {}
        for place in kernel.places:
            given[place.name] = {"parameter": values.get(place.name), "trace": place.hi}.get(place.role, 0x1000)
        launch = plan(kernel, given, device(capability=(10, 0)))
        assert launch.grid == (launch.workers * schedule.worker_ctas, 1, 1)
        assert launch.workers == workers if workers is not None else launch.workers <= max(1, int(items[0]))
        for place in kernel.places:
            written = int.from_bytes(launch.parameters[place.offset : place.offset + place.size], "little")
            assert written == given[place.name] % 2 ** (8 * place.size)


def test_the_trace_kernels_own_parameters_make_way_for_the_specs() -> None:
    text = (Path(__file__).parents[2] / "specs" / "rotated_columns.yaml").read_text()
    kernel = described(compile_spec(CompileRequest(text, "x", "sm_90a", "ptx")).manifest)
    assert [(p.name, p.role) for p in kernel.places if "first" in p.name] == [
        ("trace_first", "trace"),
        ("first", "parameter"),
    ]
