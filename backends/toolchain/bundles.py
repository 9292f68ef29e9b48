"""Headers of the field, by the names of their bundles, from the Python packages that bring them.

Their texts are given to the compiler in memory, under names that are the same on every machine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import metadata

from .errors import ToolMissing
from .library import header_folder

#: For each bundle the packages that it is made of, and a header of each, by which its folder is found.
BUNDLES: dict[str, dict[str, str]] = {
    "cuda": {"nvidia-cuda-runtime": "cuda_runtime.h", "nvidia-cuda-crt": "crt/host_defines.h"},
    "cccl": {"nvidia-cuda-cccl": "cuda/std/version"},
    "cutlass": {"nvidia-cutlass": "cute/tensor.hpp"},
}

#: The extra that brings them all.
EXTRA = "headers"


def versions(names: Iterable[str]) -> tuple[str, ...]:
    """The exact releases that bundles are made of. Raises ToolMissing."""
    found = []
    for distribution, header in _parts(tuple(names)):
        header_folder(distribution, header, EXTRA)
        found.append(f"{distribution} {metadata.version(distribution)}")
    return tuple(found)


@functools.lru_cache(maxsize=16384)
def header(names: tuple[str, ...], path: str) -> str | None:
    """The header at `path` of these bundles; None where they have none. Raises ToolMissing."""
    if path.startswith(("/", "..")):
        return None
    for distribution, first in _parts(names):
        # CUTLASS calls CCCL's headers by the folder that holds them
        inner = path.removeprefix("cccl/") if distribution == "nvidia-cuda-cccl" else path
        file = header_folder(distribution, first, EXTRA) / inner
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return None


def missing(names: Iterable[str]) -> ToolMissing | None:
    """What these bundles lack on this machine."""
    try:
        versions(names)
    except ToolMissing as e:
        return e
    return None


def _parts(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [part for name in names for part in BUNDLES[name].items()]
