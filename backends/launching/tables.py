"""Tables that lie on the host: held to what the manifest says of them, before they are uploaded."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.launching.description import Place
from sched_compiler.launching import LaunchFault

_NUMPY = {"s32": np.int32, "s64": np.int64, "u32": np.uint32, "u64": np.uint64}


def on_host(value: Any) -> npt.NDArray[Any] | None:
    """A list, a tuple or a NumPy array as an array; None for anything else."""
    if isinstance(value, list | tuple | np.ndarray):
        try:
            return np.asarray(value)
        except (ValueError, OverflowError):
            return None
    return None


def checked(place: Place, array: npt.NDArray[Any], length: int | None) -> npt.NDArray[Any] | LaunchFault:
    """The table as it goes to the device, or what is wrong with it. `length` is how many elements are read."""
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        found = f"an array of {array.dtype} with {array.ndim} dimensions"
        return LaunchFault(place.name, found, "a list of integers")
    if length is not None and len(array) != length:
        return LaunchFault(place.name, f"{len(array)} elements", str(length))
    assert place.lo is not None
    assert place.hi is not None
    wrong = np.flatnonzero((array < place.lo) | (array > place.hi))
    if len(wrong):
        found = f"{array[wrong[0]]} at element {wrong[0]}"
        return LaunchFault(place.name, found, f"elements from {place.lo} to {place.hi}")
    if place.sha256 is not None:
        found = hashlib.sha256(np.ascontiguousarray(array, dtype="<i8").tobytes()).hexdigest()
        if found != place.sha256:
            return LaunchFault(place.name, "other elements", "those of the spec, for which the kernel was proven")
    assert place.element is not None
    return np.ascontiguousarray(array, dtype=_NUMPY[place.element])
