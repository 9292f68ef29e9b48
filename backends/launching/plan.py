"""From a kernel's description, the values of a launch and a device to what the driver is told: a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from backends.launching import arrays, tables
from backends.launching.description import Description, Place
from backends.launching.device import DeviceFacts, in_hardware, unsuitable
from backends.launching.types import FLOATS, as_float, as_integer, held, packed
from sched_compiler.dispatch import GRID_LIMIT, WORKERS
from sched_compiler.launching import LaunchError, LaunchFault

_ADDRESSES = (1, 2**64 - 1)
#: Bytes of `CUtensorMap`.
_TENSOR_MAP = 128


@dataclass(frozen=True, slots=True)
class Launch:
    """What the driver is told. Nothing is launched where the grid is empty.

    `parameters` are the bytes of all parameters, the addresses of `uploads` and `counters` still zero: tables that lie
    on the host, and the names of counters that the caller did not give, each with the offset of its address.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None  # None where the hardware is told nothing of it
    shared: int
    parameters: bytearray
    workers: int
    uploads: tuple[tuple[int, npt.NDArray[Any]], ...] = ()
    counters: tuple[tuple[int, str], ...] = ()

    @property
    def empty(self) -> bool:
        return 0 in self.grid


#: What goes to a place: its bytes, or a table that lies on the host.
_Filled: TypeAlias = "bytes | npt.NDArray[Any]"


def plan(kernel: Description, values: Mapping[str, Any], device: DeviceFacts, workers: Any = None) -> Launch:
    """Check a launch of `kernel`, and lay out its parameters. Raises LaunchError with all faults found.

    `values` are by name; `workers` is how many to launch where any number may be, by default as many as the device
    holds at a time, but no more than there are work items.
    """
    faults = unsuitable(kernel, device) + _misnamed(kernel, values)
    numbers: dict[str, int] = {}
    for name, places in kernel.by_name.items():
        if name in values and places[0].lo is not None and places[0].element is None:
            numbers[name] = _number(name, places, values[name], faults)
    known = None if faults else numbers  # formulas hold for values in their ranges alone
    parameters = bytearray(kernel.size)
    uploads: list[tuple[int, npt.NDArray[Any]]] = []
    counters: list[tuple[int, str]] = []
    for place in kernel.places:
        if place.name not in values:
            if place.role == "counter":
                counters.append((place.offset, place.name))
            continue
        if place.name in numbers:
            filled: _Filled | LaunchFault = packed(numbers[place.name], place.type) or b""
        else:
            filled = _filled(kernel, place, values[place.name], known, device)
        if isinstance(filled, LaunchFault):
            if filled not in faults:
                faults.append(filled)
        elif isinstance(filled, bytes):
            parameters[place.offset : place.offset + len(filled)] = filled
        else:
            uploads.append((place.offset, filled))
    if known is None:
        raise LaunchError(kernel.name, faults)
    shape = _shape(kernel, known, device, workers, faults)
    if faults or shape is None:
        raise LaunchError(kernel.name, faults)
    grid, shared, count = shape
    cluster = kernel.cluster if in_hardware(kernel) else None
    return Launch(grid, kernel.block, cluster, shared, parameters, count, tuple(uploads), tuple(counters))


def _misnamed(kernel: Description, values: Mapping[str, Any]) -> list[LaunchFault]:
    """Values that the kernel does not take, and those that are missing."""
    faults = []
    for name in values:
        if name in kernel.structs and name not in kernel.by_name:
            filled = ", ".join(kernel.structs[name]) or "nothing"
            faults.append(LaunchFault(name, "a value", f"none: it is filled from {filled}"))
        elif name not in kernel.by_name:
            known = ", ".join(kernel.by_name) or "no arguments"
            faults.append(LaunchFault(name, "an argument that the kernel does not have", f"one of: {known}"))
    for name, places in kernel.by_name.items():
        if name not in values and places[0].role != "counter":
            faults.append(LaunchFault(name, "no value", _wanted(places[0])))
    return faults


def _wanted(place: Place) -> str:
    if place.element is not None:
        return f"an array of {place.element} on the device, or an address"
    return f"{place.lo} to {place.hi}" if place.lo is not None else f"a value of type {place.type}"


def _number(name: str, places: tuple[Place, ...], value: Any, faults: list[LaunchFault]) -> int:
    """An integer that is in the range of every place; 0 after a fault."""
    lo = max(p.lo for p in places if p.lo is not None)
    hi = min(p.hi for p in places if p.hi is not None)
    number = as_integer(value)
    if number is None or not lo <= number <= hi:
        faults.append(LaunchFault(name, _shown(value) if number is None else str(number), f"{lo} to {hi}"))
        return 0
    return number


def _shown(value: Any) -> str:
    array = arrays.view(value)
    if array is not None:
        return f"an array of {array.element}"
    return repr(value)[:40] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"


def _filled(
    kernel: Description, place: Place, value: Any, known: Mapping[str, int] | None, device: DeviceFacts
) -> _Filled | LaunchFault:
    """What goes to a place that is no integer, or what is wrong with the value."""
    if place.element is not None:
        length = None if known is None or place.length is None else kernel.value(place.length, known)
        host = tables.on_host(value) if place.role == "table" else None
        return _address(place, value, length, device) if host is None else tables.checked(place, host, length)
    if place.type in FLOATS:
        number = as_float(value)
        return _bytes(
            place, value, None if number is None else packed(number, place.type), f"a number that {place.type} holds"
        )
    return _bytes(place, value, _opaque(value, place.size), f"{place.size} bytes")


def _bytes(place: Place, value: Any, found: bytes | None, expected: str) -> bytes | LaunchFault:
    return LaunchFault(place.name, _shown(value), expected) if found is None else found


def _opaque(value: Any, size: int) -> bytes | None:
    """The bytes of anything with a buffer, or of a `CUtensorMap` of cuda.bindings."""
    if size == _TENSOR_MAP and hasattr(value, "getPtr"):
        import ctypes

        return ctypes.string_at(int(value.getPtr()), size)
    try:
        found = memoryview(value).tobytes()
    except TypeError:
        return None
    return found if len(found) == size else None


def _address(place: Place, value: Any, length: int | None, device: DeviceFacts) -> bytes | LaunchFault:
    """The address of an array on the device, which must hold what the pointer points to, or of an integer."""
    element = place.element
    least = length if place.role == "table" else 1 if place.role == "counter" else None
    what = f"an array of {element} on device {device.number}, or an address"
    address = None if isinstance(value, bool) else as_integer(value)
    if address is not None:
        lo, hi = _ADDRESSES
        if lo <= address <= hi or (address == 0 and least == 0):
            return address.to_bytes(8, "little")
        return LaunchFault(place.name, "a null pointer" if address == 0 else str(address), what)
    array = arrays.view(value)
    if array is None:
        return LaunchFault(place.name, _shown(value), what)
    if not array.on_device:
        return LaunchFault(place.name, "an array in host memory", what)
    if array.device is not None and array.device != device.number:
        return LaunchFault(place.name, f"an array on device {array.device}", what)
    if not held(array.element, str(element)):
        return LaunchFault(place.name, f"an array of {array.element}", what)
    if not array.contiguous:
        return LaunchFault(place.name, "an array that is not contiguous", "one that is, in C order, or an address")
    if least is not None and array.count < least:
        return LaunchFault(place.name, f"{array.count} elements", f"at least {least}")
    return array.address.to_bytes(8, "little")


def _shape(
    kernel: Description, known: Mapping[str, int], device: DeviceFacts, workers: Any, faults: list[LaunchFault]
) -> tuple[tuple[int, int, int], int, int] | None:
    """Grid, dynamic shared memory, and the number of workers; None after a fault."""

    def value(formula: Any, **more: int) -> int:
        found = kernel.value(formula, {**known, **more})
        if found is None:
            raise LaunchError(kernel.name, [LaunchFault("manifest", "a formula of no argument", "one of arguments")])
        return found

    shared = value(kernel.shared)
    most = device.shared_limit - kernel.static_shared
    if not 0 <= shared <= most:
        found = f"{shared} bytes of dynamic shared memory"
        faults.append(LaunchFault("shared memory", found, f"at most {most}, beside {kernel.static_shared} static ones"))
    resident = None
    if kernel.co_resident or (kernel.any_workers and workers is None):
        if faults:  # a device holds none of what it refuses
            return None
        resident = device.resident(shared) * device.multiprocessors // kernel.ctas
        if resident == 0:
            faults.append(LaunchFault("device", "no room for one worker", "room for registers and shared memory"))
            return None
    count = _workers(kernel, known, value, workers, resident, faults)
    if count is None:
        return None
    x, y, z = (value(formula, **{WORKERS: count}) for formula in kernel.grid)
    if any(not 0 <= n <= most for n, most in zip((x, y, z), device.grid_limits, strict=True)):
        faults.append(LaunchFault("grid", str([x, y, z]), f"at most {list(device.grid_limits)}"))
    if in_hardware(kernel) and any(n % c for n, c in zip((x, y, z), kernel.cluster, strict=True)):
        faults.append(LaunchFault("grid", str([x, y, z]), f"multiples of the cluster {list(kernel.cluster)}"))
    if kernel.co_resident and resident is not None and x * y * z > resident * kernel.ctas:
        faults.append(LaunchFault("grid", f"{x * y * z} CTAs", f"at most {resident * kernel.ctas}, to run at once"))
    return (x, y, z), shared, count


def _workers(
    kernel: Description,
    known: Mapping[str, int],
    value: Any,
    workers: Any,
    resident: int | None,
    faults: list[LaunchFault],
) -> int | None:
    """How many workers to launch; None after a fault."""
    if not kernel.any_workers:
        count: int = value(kernel.workers)
        if workers is not None and as_integer(workers) != count:
            faults.append(LaunchFault("workers", _shown(workers), f"{count}, as the schedule has"))
            return None
        return count
    if workers is None:
        assert resident is not None
        items = kernel.value(kernel.items, known)
        return max(1, resident if items is None else min(resident, items))
    number, most = as_integer(workers), GRID_LIMIT // kernel.ctas
    if number is None or not 1 <= number <= most:
        faults.append(LaunchFault("workers", _shown(workers), f"1 to {most}"))
        return None
    return number
