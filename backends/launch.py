"""The engine `gpu`: the trace kernel on the device, through the driver API of `cuda-bindings` (the extra `gpu`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backends.tracing import arguments, counter, restored, run_trace_kernel
from sched_compiler.evaluate import evaluate
from sched_compiler.program import Program
from sched_compiler.registry import BackendError, ToolMissingError, TraceRequest, get

_CTYPES: dict[str, Any] = {
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64,
}

#: A value and its type (u32, s32, u64, s64), or an array.
Argument: TypeAlias = "tuple[int, str] | npt.NDArray[Any]"
Kernel: TypeAlias = Callable[[int, tuple[int, int, int], Sequence[Argument]], None]


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

    @contextmanager
    def kernel(self, cubin: bytes, entry: str) -> Iterator[Kernel]:
        """The kernel `entry` of `cubin`: call it with (blocks, block shape, arguments).

        An argument is (value, type), or an array: a copy of it in device memory, copied back after the launch.
        """
        module = self._call("cuModuleLoadData", cubin)
        try:
            function = self._call("cuModuleGetFunction", module, entry.encode())

            def launch(blocks: int, block: tuple[int, int, int], arguments: Sequence[Argument]) -> None:
                if blocks == 0:  # nothing to do, and no launch that the driver would take
                    return
                with ExitStack() as memory:
                    scalars = [
                        (memory.enter_context(self._memory(a)), "u64") if isinstance(a, np.ndarray) else a
                        for a in arguments
                    ]
                    values, types = tuple(v for v, _ in scalars), tuple(_CTYPES[name] for _, name in scalars)
                    self._call("cuLaunchKernel", function, blocks, 1, 1, *block, 0, 0, (values, types), 0)
                    self._call("cuCtxSynchronize")

            yield launch
        finally:
            self._call("cuModuleUnload", module)

    def trace(self, cubin: bytes, program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
        """Launch the trace kernel of `cubin`, as many CTAs as the schedule asks for, and follow the given workers."""
        schedule, source = program.schedule, program.source(self.arch)
        grid = request.workers * schedule.worker_ctas
        items = int(evaluate([schedule.items], dict(request.values))[0][0])
        if source == "hardware" and request.workers != items:
            raise BackendError(f"the hardware's queue takes one cluster for each of {items} items: launch so many")
        drawn = counter(program, source)
        params = arguments(program, request, drawn)
        with self.kernel(cubin, program.entry) as kernel:

            def launch(
                tiles: npt.NDArray[np.generic], counts: npt.NDArray[np.uint64], capacity: int, first: int, ctas: int
            ) -> None:
                fixed: list[Argument] = [tiles, counts, (capacity, "u64"), (first, "u32"), (ctas, "u32")]
                kernel(grid, (program.block, 1, 1), [*fixed, *params])
                restored(drawn)

            return run_trace_kernel(program, request, launch)
