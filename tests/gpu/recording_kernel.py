"""A kernel as a user would write one, around a dynamic schedule, and the manifest that its compile would give."""

from __future__ import annotations

import hashlib
from typing import Any

from backends.cuda.emitter import header
from backends.toolchain import nvrtc
from backends.toolchain.resources import resources
from sched_compiler import driver

SPEC = """
version: 1
name: user
params: {M: {min: 0, max: 65536}, N: {min: 0, max: 65536}}
space: {m: "ceil_div(M, 128)", n: "ceil_div(N, 128)"}
cluster: {m: 2}
dispatch: {dynamic: {}}
"""
#: Bytes of dynamic shared memory, for which a block has to ask.
SHARED = 100 * 1024

_SOURCE = """
// Counts the visits of every tile, and adds `scale` to its element of `sums`; `seen` gets the cluster's size, and what
// was read from the end of the shared memory.
extern "C" __global__ void record(int* visits, float* sums, unsigned* seen, int stride, float scale,
                                  sched::user::Arguments tiles) {
  extern __shared__ unsigned char memory[];
  unsigned size;
  asm volatile("mov.u32 %%0, %%cluster_nctaid.x;" : "=r"(size));
  memory[%(last)d] = 77;
  for (sched::user s(tiles); s.valid(); s.next()) {
    const auto tile = s.tile();
    if (threadIdx.x == 0 && s.in_bounds(tile)) {
      atomicAdd(&visits[tile.m * stride + tile.n], 1);
      atomicAdd(&sums[tile.m * stride + tile.n], scale);
      seen[0] = size;
      seen[1] = memory[%(last)d];
    }
  }
}
"""


def _parameter(name: str, kind: str, role: str, offset: int, size: int, **other: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "role": role, "offset": offset, "size": size, "bits": 8 * size, **other}


def recording_kernel(arch: str) -> tuple[bytes, dict[str, Any]]:
    """The cubin and its manifest. Values: visits, sums, seen, stride, scale, M, N; the counter is the launcher's."""
    checked = driver.check(SPEC)
    source = header(checked.program).replace("#pragma once\n", "") + _SOURCE % {"last": SHARED - 1}
    cubin = nvrtc.compile(source, "record.cu", arch, "cubin").blob
    taken = resources(cubin, "record")
    bounds = {"min": 0, "max": 65536}
    parameters = [
        _parameter("visits", "s32*", "argument", 0, 8),
        _parameter("sums", "f32*", "argument", 8, 8),
        _parameter("seen", "u32*", "argument", 16, 8),
        _parameter("stride", "s32", "argument", 24, 4),
        _parameter("scale", "f32", "argument", 28, 4),
        {
            "name": "tiles", "type": "sched::user::Arguments", "role": "schedule", "schedule": "user", "offset": 32,
            "size": 16, "fields": [
                _parameter("M", "u32", "parameter", 0, 4, **bounds),
                _parameter("N", "u32", "parameter", 4, 4, **bounds),
                _parameter("counter", "u64*", "counter", 8, 8),
            ],
        },
    ]  # fmt: skip
    assert taken.offsets == tuple((p["offset"], p["size"]) for p in parameters)
    manifest = {
        "schema": 1, "name": "user", "emit": "cubin", "arch": arch, "entry": "record",
        "digest": hashlib.sha256(cubin).hexdigest(), "parameters": parameters,
        "launch": {
            "grid": ["$workers * 2", "1", "1"], "cluster": [2, 1, 1], "block": [128, 1, 1], "unit": "CTA",
            "workers": "$workers", "dynamic_shared_bytes": SHARED, "co_resident": False,
        },
        "resources": {
            "registers": taken.registers, "static_shared_bytes": taken.static_shared_bytes,
            "local_bytes": taken.local_bytes,
        },
        "schedule": driver.describe(checked), "versions": {},
    }  # fmt: skip
    return cubin, manifest
