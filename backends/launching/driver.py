"""The calls of CUDA's driver that a launch needs, through `cuda-bindings` (the extra `gpu`).

`cuda.core` launches no kernel that takes a struct by value, and schedules are such structs; hence the driver itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backends.launching.description import Description
from backends.launching.device import DeviceFacts
from backends.launching.plan import Launch
from sched_compiler.registry import BackendError, ToolMissingError

#: A kernel's parameters are aligned to this at most, as `CUtensorMap` is.
_ALIGNMENT = 64
#: Shared memory that a block gets without asking for more.
_USUAL_SHARED = 48 * 1024


class Driver:
    """One kernel in the primary context of one device. Raises ToolMissingError where there is no driver or device."""

    def __init__(self, kernel: Description, number: int | None) -> None:
        try:
            from cuda.bindings import driver
        except ImportError:
            raise ToolMissingError("the Python package cuda-bindings (install the extra `gpu`)") from None
        self._api: Any = driver
        try:
            self._call("cuInit", 0)
            self._number = self._current() if number is None else number
            self._device = self._call("cuDeviceGet", self._number)
        except (BackendError, RuntimeError) as e:
            raise ToolMissingError(f"a CUDA driver and a device ({e})") from None
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._kernel_description = kernel
        self._shared = _USUAL_SHARED
        self._library: Any = None
        self._attributes: Any = None
        self.facts = self._facts()

    def load(self, blob: bytes) -> None:
        """Load the kernel. All of it: what the driver would put off might not be possible while a graph is captured."""
        api = self._api
        with self._in_context():
            self._library = self._call("cuLibraryLoadData", blob, None, None, 0, None, None, 0)
            self._kernel = self._call("cuLibraryGetKernel", self._library, self._kernel_description.entry.encode())
            self._call("cuKernelGetFunction", self._kernel)
            self._function = api.CUfunction(int(self._kernel))
        if self._kernel_description.ctas > 1:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dims = attribute.value.clusterDim
            dims.x, dims.y, dims.z = self._kernel_description.cluster
            self._attributes = [attribute]

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self._api, name)(*arguments)
        if status != self._api.CUresult.CUDA_SUCCESS:
            raise BackendError(f"{name}: {status.name}")
        return results[0] if len(results) == 1 else tuple(results) or None

    def _current(self) -> int:
        """The device of the current context, or the first."""
        status, device = self._api.cuCtxGetDevice()
        return int(device) if status == self._api.CUresult.CUDA_SUCCESS else 0

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        """A context of the device is current: the caller's own where it is one."""
        status, device = self._api.cuCtxGetDevice()
        if status == self._api.CUresult.CUDA_SUCCESS and int(device) == self._number:
            yield
            return
        self._call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    def _facts(self) -> DeviceFacts:
        def ask(name: str) -> int:
            attribute = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(self._call("cuDeviceGetAttribute", attribute, self._device))

        def three(name: str) -> tuple[int, int, int]:
            return ask(f"{name}_X"), ask(f"{name}_Y"), ask(f"{name}_Z")

        return DeviceFacts(
            number=self._number,
            capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
            multiprocessors=ask("MULTIPROCESSOR_COUNT"),
            shared_limit=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            grid_limits=three("MAX_GRID_DIM"),
            block_limits=three("MAX_BLOCK_DIM"),
            block_threads=ask("MAX_THREADS_PER_BLOCK"),
            clusters=bool(ask("CLUSTER_LAUNCH")),
            resident=self._resident,
        )

    def _allow(self, shared: int) -> None:
        """Let a block have so much dynamic shared memory."""
        if shared > self._shared:
            attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuKernelSetAttribute", attribute, shared, self._kernel, self._device)
            self._shared = shared

    def _resident(self, shared: int) -> int:
        x, y, z = self._kernel_description.block
        with self._in_context():
            self._allow(shared)
            return int(self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, x * y * z, shared))

    def launch(self, launch: Launch, stream: int) -> None:
        """Launch, on a stream's handle. The parameters are copied before this returns."""
        size = len(launch.parameters)
        memory = (ctypes.c_ubyte * (size + _ALIGNMENT))()
        base = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
        ctypes.memmove(base, bytes(launch.parameters), size)
        offsets = [offset for offset, _ in self._kernel_description.parameters]
        pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(base + offset for offset in offsets))
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes, config.hStream = launch.shared, stream
        if launch.cluster is not None:
            config.attrs, config.numAttrs = self._attributes, 1
        with self._in_context():
            self._allow(launch.shared)
            self._call("cuLaunchKernelEx", config, self._function, ctypes.addressof(pointers), 0)

    def upload(self, data: bytes) -> int:
        """The address of device memory with a copy of `data`, which is there when this returns."""
        with self._in_context():
            pointer = int(self._call("cuMemAlloc", max(len(data), 1)))
            if data:
                self._call("cuMemcpyHtoD", pointer, data, len(data))
                self._call("cuStreamSynchronize", 0)
            return pointer

    def free(self, address: int) -> None:
        with self._in_context():
            self._call("cuMemFree", address)

    def close(self) -> None:
        """Unload the kernel and let go of the context."""
        self._call("cuLibraryUnload", self._library)
        self._call("cuDevicePrimaryCtxRelease", self._device)
