"""A user's CUDA C++ on the host: compiled by the host's compiler, its threads as fibers, its memory watched.

For kernels of plain C++: shared memory, barriers, atomics. It says whether indices and barriers are right, not how
fast a kernel is; what only hardware has (tensor cores, asynchronous copies) is not there.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

Array: TypeAlias = "npt.NDArray[Any]"
#: A scalar of NumPy's with the parameter's own type, an array, or a struct of these: naturally aligned fields.
Argument: TypeAlias = "np.generic | Array | tuple[np.generic | Array, ...]"

HERE = Path(__file__).resolve().parent
DEADLINE = 300.0


def compiled(source: str, headers: Mapping[str, str], entry: str, directory: Path) -> Path:
    """The program that launches the kernel `entry` of `source`. Skips the test where there is no compiler."""
    compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if compiler is None:
        pytest.skip("no C++ compiler for the host")
    for name, text in headers.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(_without_instructions(text), encoding="utf-8")
    kernel, program = directory / "kernel.cpp", directory / "kernel"
    begin = '#include "cuda_on_host.hpp"\n#line 1 "kernel.cu"\n'
    kernel.write_text(f"{begin}{source}\nint main() {{ return host::main({entry}); }}\n", encoding="utf-8")
    options = ["-std=c++17", "-O1", "-fsanitize=address", "-Wno-attributes", f"-I{HERE}", f"-I{directory}"]
    command = [compiler, *options, "-o", str(program), str(kernel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return program


def _without_instructions(header: str) -> str:
    """A header whose arithmetic is the host's: what stands for instructions of the device has another branch for it."""
    begin, end = header.find("#define SCHED_DETAIL"), header.find("}  // namespace detail")
    if begin < 0:
        return header
    return header[:begin] + header[begin:end].replace("#ifdef __CUDA_ARCH__", "#if 0") + header[end:]


def launch(program: Path, grid: tuple[int, int], threads: int, arguments: Sequence[Argument]) -> None:
    """Launch `program`; its arrays hold afterwards what the kernel wrote."""
    if 0 in grid:
        return
    arrays: dict[int, Array] = {k: a for k, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    parts: list[bytes] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            parts.append(_part(True, argument.tobytes()))
            continue
        content, places = bytearray(), []
        for field in argument if isinstance(argument, tuple) else (argument,):
            size = 8 if isinstance(field, np.ndarray) else field.itemsize
            content += bytes(-len(content) % size)
            if isinstance(field, np.ndarray):
                number = len(arguments) + sum(k >= len(arguments) for k in arrays)
                arrays[number] = field
                places.append((len(content), number))
            content += bytes(8) if isinstance(field, np.ndarray) else field.tobytes()
        parts.append(_part(False, bytes(content) or bytes(1), places))
    parts += [_part(True, array.tobytes()) for k, array in arrays.items() if k >= len(arguments)]
    given = struct.pack("<4I", *grid, threads, len(parts)) + b"".join(parts)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    done = subprocess.run(
        [str(program)], input=given, capture_output=True, timeout=DEADLINE, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    offset = 0
    for _, array in sorted(arrays.items()):
        array[...] = np.frombuffer(done.stdout, array.dtype, array.size, offset).reshape(array.shape)
        offset += array.nbytes
    assert offset == len(done.stdout)


def _part(buffer: bool, content: bytes, places: Sequence[tuple[int, int]] = ()) -> bytes:
    ends = b"".join(struct.pack("<II", *place) for place in places)
    return struct.pack("<IQ", buffer, len(content)) + content + struct.pack("<I", len(places)) + ends
