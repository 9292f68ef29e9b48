"""Arrays of any library: where they lie, what they hold, whether they are contiguous. No library is imported."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_DLPACK_CUDA, _DLPACK_MANAGED = 2, 13
_DLPACK_KINDS = {0: "s", 1: "u", 2: "f", 4: "bf"}
_TYPESTR_KINDS = {"i": "s", "u": "u", "f": "f", "b": "u"}
_NAMES = {
    "bool": "u8", "half": "f16", "float": "f32", "double": "f64", "bfloat16": "bf16",
    **{f"{long}{bits}": f"{short}{bits}" for long, short in (("int", "s"), ("uint", "u")) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """An array: `element` is a type of ours, or another type's own name; `device` None where that is not told."""

    address: int
    element: str
    count: int
    contiguous: bool  # in C order
    on_device: bool
    device: int | None = None


def view(value: Any) -> Array | None:
    """What `value` says of itself by its library's attributes, `__cuda_array_interface__` or DLPack; None if nothing.

    Nothing waits for the array's own stream.
    """
    if hasattr(value, "data_ptr") and hasattr(value, "is_contiguous"):
        return _of_torch(value)
    if hasattr(value, "__array_interface__"):  # NumPy's, in host memory
        return Array(0, _named(str(getattr(value, "dtype", "?"))), 0, True, False)
    interface = getattr(value, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return _of_interface(interface, value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_dlpack(value)
    return None


def _named(name: str) -> str:
    return _NAMES.get(name.rpartition(".")[2], name)


def _of_torch(tensor: Any) -> Array:
    on_device = tensor.device.type == "cuda"
    return Array(
        address=tensor.data_ptr() if on_device else 0,
        element=_named(str(tensor.dtype)),
        count=tensor.numel(),
        contiguous=tensor.is_contiguous(),
        on_device=on_device,
        device=tensor.device.index if on_device else None,
    )


def _of_interface(interface: dict[str, Any], value: Any) -> Array:
    """Version 2 or 3 of the interface; CuPy's arrays say besides on which device they lie."""
    shape, typestr = tuple(interface["shape"]), str(interface["typestr"])
    size = int(typestr[2:])
    element = _named(str(getattr(value, "dtype", typestr)))
    if element not in _NAMES.values() and typestr[1] in _TYPESTR_KINDS:
        element = f"{_TYPESTR_KINDS[typestr[1]]}{8 * size}"
    strides = interface.get("strides")
    contiguous = strides is None or _in_order(shape, [s / size for s in strides])
    device = getattr(getattr(value, "device", None), "id", None)
    return Array(
        address=int(interface["data"][0] or 0),
        element=element,
        count=math.prod(shape),
        contiguous=contiguous,
        on_device=True,
        device=device if isinstance(device, int) else None,
    )


def _in_order(shape: Sequence[int], strides: Sequence[float]) -> bool:
    """Whether strides, in elements, are those of C order. Where an axis has one element its stride says nothing."""
    if 0 in shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h; a capsule `dltensor` begins with one."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _of_dlpack(value: Any) -> Array | None:
    kind, number = value.__dlpack_device__()
    if int(kind) not in (_DLPACK_CUDA, _DLPACK_MANAGED):
        return Array(0, "?", 0, True, False)
    try:
        capsule = value.__dlpack__(stream=-1)  # -1: wait for nothing
    except (BufferError, RuntimeError, TypeError, ValueError):  # a library that cannot export this array
        return None
    tensor = _DLTensor.from_address(_pointer(capsule, b"dltensor"))  # the capsule frees it at its end
    shape = [tensor.shape[k] for k in range(tensor.ndim)]
    strides = [tensor.strides[k] for k in range(tensor.ndim)] if tensor.strides else None
    element = f"code {tensor.code} of {tensor.bits} bits"
    if tensor.lanes == 1 and tensor.code in _DLPACK_KINDS:
        element = f"{_DLPACK_KINDS[tensor.code]}{tensor.bits}"
    elif tensor.lanes == 1 and tensor.code == 6:
        element = "u8"  # truth values
    return Array(
        address=(tensor.data or 0) + tensor.byte_offset,
        element=element,
        count=math.prod(shape),
        contiguous=strides is None or _in_order(shape, strides),
        on_device=True,
        device=int(number) if int(kind) == _DLPACK_CUDA else None,
    )
