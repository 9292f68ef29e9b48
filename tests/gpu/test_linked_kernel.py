"""On a device: one kernel visits every tile once under every dispatch, with the schedule included or linked."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from backends.launch import Device
from sched_compiler.evaluate import NUMPY
from tests.support.linked import DISPATCHES, ENTRY, included, linked, program, spec

WORKERS = 5
THREADS = 64


def passed(text: str, items: int) -> list[npt.NDArray[Any]]:
    """The arrays that `sched::tiles::Arguments` points to after m_tiles: tables, then the counter."""
    values = {"T": np.linspace(0, items, WORKERS + 1).astype(np.int64), "L": np.arange(items)[::-1]}
    made = program(text)
    schedule, dispatch = made.schedule, made.schedule.dispatch
    found: list[npt.NDArray[Any]] = [
        np.ascontiguousarray(values[t.name], dtype=NUMPY[t.element.name]) for t in schedule.tables
    ]
    counter = np.zeros(1, dtype=np.uint64 if dispatch.ring is None else np.uint32)
    return [*found, counter] if dispatch.queue else found


def launch(device: Device, cubin: bytes, blocks: int, m_tiles: int, arrays: list[npt.NDArray[Any]]) -> None:
    """Launch with the first array and `Arguments`, which is a struct of m_tiles and pointers to the others."""
    call: Any = device._call
    module = call("cuModuleLoadData", cubin)
    try:
        function = call("cuModuleGetFunction", module, ENTRY.encode())
        with ExitStack() as memory:
            places = [memory.enter_context(device._memory(a)) for a in arrays]
            pointers = [(f"p{n}", ctypes.c_uint64) for n in range(1, len(arrays))]
            fields: Any = [("m_tiles", ctypes.c_uint32), *pointers]
            given = type("Arguments", (ctypes.Structure,), {"_fields_": fields})(m_tiles, *places[1:])
            visits = ctypes.c_uint64(places[0])
            parameters = (ctypes.c_void_p * 2)(ctypes.addressof(visits), ctypes.addressof(given))
            at = ctypes.addressof(parameters)
            call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, 0, at, 0)
            call("cuCtxSynchronize")
    finally:
        call("cuModuleUnload", module)


@pytest.mark.parametrize("emit", ["header", "ltoir", "object"])
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_every_tile_is_visited_once(dispatch: str, cluster: int, emit: Any, device: Device) -> None:
    text = spec(dispatch, cluster)
    whole = emit == "header"
    cubin = included(text, device.arch, cluster) if whole else linked(text, device.arch, emit, cluster)
    one_each = dispatch == "single" or program(text).source(device.arch) == "hardware"
    for m_tiles in (1, 2, 9, 100):
        items = -(-m_tiles // cluster) * 7
        workers = items if one_each else WORKERS
        visits, arrays = np.zeros((m_tiles, 7), dtype=np.uint32), passed(text, items)
        for launched in (1, 2):  # a counter is as it was
            launch(device, cubin, workers * cluster, m_tiles, [visits, *arrays])
            np.testing.assert_array_equal(visits, np.full_like(visits, launched))
            assert not program(text).schedule.dispatch.queue or arrays[-1][0] == 0
