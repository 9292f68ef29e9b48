"""On a device: a kernel that draws from a counter, launched a hundred times from one CUDA graph.

Every replay visits every tile once and leaves the counter at zero, for numbers of tiles around that of the SMs.
"""

from __future__ import annotations

import ctypes
import json
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from backends.launch import Device
from sched_compiler import driver, registry

REPLAYS = 100
WORKERS = 132


def spec(tiles: int, cluster: int) -> str:
    more = {"cluster": {"m": cluster}} if cluster > 1 else {}
    space, order = {"m": tiles * cluster}, {"loops": ["m"]}
    base = {
        "version": 1,
        "name": "queue",
        "space": space,
        "order": order,
        "dispatch": {"dynamic": {"workers": WORKERS}},
    }
    return json.dumps({**base, **more})


@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("tiles", [1, 2, 131, 132, 133, 10_000])
def test_a_graph_can_be_replayed(tiles: int, cluster: int, backend: str, device: Device) -> None:
    checked = driver.check(spec(tiles, cluster))
    cubin = registry.get(backend).build(checked.program, device.arch, "cubin")
    call: Any = device._call
    ctas, capacity = WORKERS * cluster, tiles
    rows = np.full((ctas, capacity, 2), -1, dtype=np.int32)
    counts, counter = np.zeros(ctas, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    arrays: list[Any] = [rows, counts, counter]
    module = call("cuModuleLoadData", cubin)
    function = call("cuModuleGetFunction", module, checked.program.entry.encode())
    stream = call("cuStreamCreate", 0)
    with ExitStack() as memory:
        places = [memory.enter_context(device._memory(a)) for a in arrays]
        values = (places[0], places[1], capacity, 0, ctas, places[2])
        kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
        call("cuStreamBeginCapture", stream, device._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        call("cuLaunchKernel", function, ctas, 1, 1, checked.program.block, 1, 1, 0, stream, (values, kinds), 0)
        graph = call("cuStreamEndCapture", stream)
        runs = call("cuGraphInstantiate", graph, 0)
        for _ in range(REPLAYS):
            call("cuMemsetD8", places[0], 0xFF, rows.nbytes)
            call("cuGraphLaunch", runs, stream)
            call("cuStreamSynchronize", stream)
            for place, array in zip(places, arrays, strict=True):
                call("cuMemcpyDtoH", array.ctypes.data, place, array.nbytes)
            visited = [rows[c, : int(counts[c]), 0] for c in range(ctas)]
            assert np.array_equal(np.sort(np.concatenate(visited)), np.arange(tiles * cluster))
            assert counter[0] == 0
            for c in range(0, ctas, cluster):  # the CTAs of a cluster walk together
                assert len({len(v) for v in visited[c : c + cluster]}) == 1
    call("cuGraphExecDestroy", runs)
    call("cuGraphDestroy", graph)
    call("cuStreamDestroy", stream)
    call("cuModuleUnload", module)
