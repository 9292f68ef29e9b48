"""A device that is not there, arrays on it, and a manifest of a kernel as a user would write one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from backends.launching.device import DeviceFacts

#: An H200, for a kernel of which two CTAs fit on a multiprocessor.
DEVICE = DeviceFacts(
    number=0,
    capability=(9, 0),
    multiprocessors=132,
    shared_limit=232448,
    grid_limits=(2**31 - 1, 65535, 65535),
    block_limits=(1024, 1024, 64),
    block_threads=1024,
    clusters=True,
    resident=lambda shared: 2,
)


def device(resident: Callable[[int], int] = DEVICE.resident, **other: Any) -> DeviceFacts:
    return replace(DEVICE, resident=resident, **other)


class CudaArray:
    """An array that says it lies on a device, as CuPy's do."""

    def __init__(self, array: Any, device: int = 0, address: int | None = None) -> None:
        self.array = np.asarray(array)
        self.dtype = self.array.dtype
        self.device = type("Device", (), {"id": device})()
        self.address = self.array.ctypes.data if address is None else address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.array.flags.c_contiguous else self.array.strides
        return {
            "shape": self.array.shape, "typestr": self.array.dtype.str, "data": (self.address, False),
            "strides": strides, "version": 3,
        }  # fmt: skip


class DlpackArray:
    """An array that says it lies on a device, through DLPack alone."""

    def __init__(self, array: Any, kind: int = 2, device: int = 0) -> None:
        self.array, self.where = np.asarray(array), (kind, device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.array.__dlpack__()


class TorchTensor:
    """What is looked at of a tensor of PyTorch."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, device: str = "cuda", index: int = 0, order: str = "C"
    ) -> None:
        self.shape, self.dtype, self.order = shape, f"torch.{dtype}", order
        self.device = type("device", (), {"type": device, "index": index})()

    def data_ptr(self) -> int:
        return 0x7000

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def is_contiguous(self) -> bool:
        return self.order == "C"

    def __dlpack__(self) -> Any:  # tensors have it
        raise NotImplementedError


def _field(name: str, kind: str, role: str, offset: int, size: int, **other: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "role": role, "offset": offset, "size": size, "bits": 8 * size, **other}


_BOUNDS = {"min": 0, "max": 65536}
_MANIFEST: dict[str, Any] = {
    "schema": 1,
    "name": "user",
    "emit": "cubin",
    "arch": "sm_90a",
    "entry": "gemm",
    "digest": "",
    "parameters": [
        _field("A", "bf16*", "argument", 0, 8, order=0),
        _field("C", "f32*", "argument", 8, 8, order=1),
        _field("any", "void*", "argument", 16, 8, order=2),
        _field("M", "s32", "parameter", 24, 4, order=3, **_BOUNDS),
        _field("K", "s32", "argument", 28, 4, order=4),
        _field("alpha", "f32", "argument", 32, 4, order=5),
        _field("beta", "bf16", "argument", 36, 2, order=6),
        {"name": "map", "type": "tensormap", "role": "argument", "offset": 64, "size": 128, "order": 7},
        {"name": "extra", "type": "bytes[3]", "role": "argument", "offset": 192, "size": 3, "order": 8},
        {
            "name": "tiles", "type": "sched::user::Arguments", "role": "schedule", "schedule": "user", "order": 9,
            "offset": 200, "size": 32,
            "fields": [
                _field("M", "u32", "parameter", 0, 4, **_BOUNDS),
                _field("N", "u32", "parameter", 4, 4, **_BOUNDS),
                _field("indptr", "s32*", "table", 8, 8, length="$0 + 1", min=0, max=1000),
                _field("counter", "u64*", "counter", 16, 8),
            ],
        },
        {
            "name": "empty", "type": "sched::none::Arguments", "role": "schedule", "schedule": "none", "order": 10,
            "offset": 232, "size": 1, "fields": [],
        },
    ],
    "launch": {
        "grid": ["$workers * 2", "1", "1"], "cluster": [2, 1, 1], "block": [128, 2, 1], "unit": "CTA",
        "workers": "$workers", "dynamic_shared_bytes": "1024 * ceil_div(N, 128)", "co_resident": False,
    },
    "resources": {"registers": 100, "static_shared_bytes": 1000, "local_bytes": 0},
    "schedule": {"items": "$0 * N", "where": {"$0": "ceil_div(M, 128)"}},
    "versions": {},
}  # fmt: skip


def user_manifest(**launch: Any) -> dict[str, Any]:
    """A manifest with every role and kind of type, its `launch` changed as given."""
    manifest = copy.deepcopy(_MANIFEST)
    manifest["launch"].update(launch)
    return manifest


def user_values(**other: Any) -> dict[str, Any]:
    """Values that the kernel of `user_manifest` takes, changed as given."""
    values: dict[str, Any] = {
        "A": TorchTensor((4, 4), "bfloat16"), "C": CudaArray(np.zeros((2, 3), np.float32)), "any": 0x1234,
        "M": 300, "K": -5, "alpha": 1.5, "beta": 1, "map": bytes(range(128)), "extra": b"abc", "N": 256,
        "indptr": [0, 1, 2, 1000],
    }  # fmt: skip
    return {**values, **other}
