"""The engine `gpu`: the trace kernel on the device, through the driver API of `cuda-bindings` (the extra `gpu`)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.tracing import run_trace_kernel
from sched_compiler.expr import Dtype
from sched_compiler.program import TRACE_BLOCK, Program
from sched_compiler.registry import BackendError, ToolMissingError, TraceRequest, get

_CTYPES: dict[str, Any] = {
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64,
}


def trace(program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
    """Compile for the first device with the backend `cuda`, launch, and read back."""
    with Device() as device:
        cubin = get("cuda").build(program, device.arch, "cubin")
        return device.trace(cubin, program, request)


class Device:
    """The first CUDA device and its primary context. A context manager.

    Raises ToolMissingError where there is no driver or no device, BackendError where the driver refuses a call.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError:
            raise ToolMissingError("the Python package cuda-bindings (install the extra `gpu`)") from None
        self._driver: Any = driver
        try:
            self._call("cuInit", 0)
            self._device = self._call("cuDeviceGet", 0)
        except (BackendError, RuntimeError) as e:
            raise ToolMissingError(f"a CUDA driver and a device ({e})") from None
        attribute = driver.CUdevice_attribute
        major = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device)
        minor = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device)
        #: The device's own architecture: with the suffix from sm_90 on, where there are such features.
        self.arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def __enter__(self) -> Device:
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", self._device))
        return self

    def __exit__(self, *_: object) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._device)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the driver; its single result, or a tuple, or None. Raises BackendError with the driver's error name."""
        status, *results = getattr(self._driver, name)(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendError(f"{name}: {status.name}")
        return results[0] if len(results) == 1 else tuple(results) or None

    @contextmanager
    def _memory(self, array: npt.NDArray[Any]) -> Iterator[int]:
        """Device memory that holds a copy of `array` and is copied back at the end."""
        size = max(array.nbytes, 8)
        pointer = self._call("cuMemAlloc", size)
        try:
            if array.nbytes:
                self._call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
            yield int(pointer)
            if array.nbytes:
                self._call("cuMemcpyDtoH", array.ctypes.data, pointer, array.nbytes)
        finally:
            self._call("cuMemFree", pointer)

    def trace(self, cubin: bytes, program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
        """Launch the trace kernel of `cubin`, as many CTAs as the schedule asks for, and follow the given workers."""
        module = self._call("cuModuleLoadData", cubin)
        try:
            function = self._call("cuModuleGetFunction", module, program.entry.encode())
            grid = request.workers * program.schedule.cluster_size
            params = [(request.values[p.name], p.var.dtype) for p in program.schedule.params]

            def launch(
                tiles: npt.NDArray[np.generic], counts: npt.NDArray[np.uint64], capacity: int, first: int, ctas: int
            ) -> None:
                with self._memory(tiles) as tiles_at, self._memory(counts) as counts_at:
                    fixed = [(tiles_at, "u64"), (counts_at, "u64"), (capacity, "u64"), (first, "u32"), (ctas, "u32")]
                    self._launch(function, grid, fixed, params)

            return run_trace_kernel(program, request, launch)
        finally:
            self._call("cuModuleUnload", module)

    def _launch(
        self, function: Any, grid: int, fixed: Sequence[tuple[int, str]], params: Sequence[tuple[int, Dtype]]
    ) -> None:
        if grid == 0:
            return
        arguments = [*fixed, *((value, dtype.name) for value, dtype in params)]
        values = tuple(value for value, _ in arguments)
        types = tuple(_CTYPES[name] for _, name in arguments)
        self._call("cuLaunchKernel", function, grid, 1, 1, TRACE_BLOCK, 1, 1, 0, 0, (values, types), 0)
        self._call("cuCtxSynchronize")
