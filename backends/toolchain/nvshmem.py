"""NVSHMEM's device side: the headers that a kernel compiles against, and the library that it is linked with.

All of it is the optional extra `nvshmem`: NVSHMEM's own wheel, and CUDA's headers, which NVSHMEM's include.
"""

from __future__ import annotations

import functools
from importlib import metadata

from .library import Library, find, header_folder

DISTRIBUTION = "nvidia-nvshmem-cu13"
#: A header of each wheel, by which the folder is found that is to be searched for headers.
_HEADERS = {
    DISTRIBUTION: "nvshmem.h",
    "nvidia-cuda-runtime": "cuda_runtime.h",
    "nvidia-cuda-crt": "crt/host_defines.h",
    "nvidia-cuda-cccl": "cuda/std/version",
}


def library() -> Library:
    """The device library, an archive of objects. Raises ToolMissing."""
    return find(DISTRIBUTION, "libnvshmem_device.a")


@functools.cache
def folders() -> tuple[str, ...]:
    """Where headers are searched. Raises ToolMissing."""
    return tuple(dict.fromkeys(_folder(distribution, header) for distribution, header in _HEADERS.items()))


def version() -> str:
    """The exact builds of everything that takes part. Raises ToolMissing."""
    wheels = [f"{name} {metadata.version(name)}" for name in _HEADERS if _folder(name, _HEADERS[name])]
    return f"{library().build}, {', '.join(wheels[1:])}"


def _folder(distribution: str, header: str) -> str:
    return str(header_folder(distribution, header, "nvshmem"))
