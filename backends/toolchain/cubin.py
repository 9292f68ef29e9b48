"""What a cubin says of its kernels: registers, memory, launch bounds, parameters.

A cubin is an ELF file. Kernels are the functions of its symbol table that are marked as entries; what the hardware
needs for them stands in attribute sections, `.nv.info` for all functions and `.nv.info.<kernel>` for each kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

#: From sm_90 on, the hardware keeps the first bytes of a block's shared memory for itself; compilers count them in.
RESERVED_SHARED = 1024
_RESERVED_SYMBOL = ".nv.reservedSmem.offset0"

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_FUNCTION = 2  # symbol type
_ENTRY = 0x10  # CUDA's flag in a symbol's st_other
_SYMBOLS = 2  # section type

# Attribute numbers (EIATTR_*). The value of those marked * begins with the index of the function's symbol.
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_FRAME_SIZE = 0x11  # *
_MIN_STACK_SIZE = 0x12  # *
_PARAMETER = 0x17
_PARAMETER_BYTES = 0x19
_REGISTERS = 0x2F  # *
_CLUSTER = 0x3D
_EXPLICIT_CLUSTER = 0x3E
_MAX_CLUSTER_RANK = 0x3F
_PARAMETER_LARGE = 0x45
_BARRIERS = 0x4C

_SIZED = 4  # attribute format: the value stands behind its length; in the others it is the length field itself
_UNKNOWN_SIZE = 0xFFFFFFFF  # a stack whose depth the compiler cannot know


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: its position in the list, and the bytes it takes in the parameter buffer."""

    index: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What one kernel needs. All sizes are bytes; registers, local memory and stack are for each thread."""

    entry: str
    registers: int
    static_shared: int  # without what the hardware reserves
    local: int  # the kernel's own stack frame, register spills included
    stack: int | None  # with the functions it calls; None when the compiler cannot know
    barriers: int
    max_threads: tuple[int, int, int] | None  # of a block, from .maxntid
    required_threads: tuple[int, int, int] | None  # of a block, from .reqntid
    cluster: tuple[int, int, int] | None  # blocks of a cluster, if fixed when compiled
    explicit_cluster: bool  # must be launched with a cluster
    max_cluster_rank: int | None
    parameter_bytes: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


def describe(cubin: bytes) -> list[KernelInfo]:
    """Every kernel in `cubin`, by name. Raises ValueError for anything that is not a whole cubin."""
    try:
        return _describe(cubin)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a whole cubin: {error}") from error


def _describe(cubin: bytes) -> list[KernelInfo]:
    if not cubin.startswith(_MAGIC):
        raise ValueError("not a cubin: no 64-bit ELF header")
    sections = _sections(cubin)
    by_name = {section.name: section for section in sections}
    symbols = next((section for section in sections if section.kind == _SYMBOLS), None)
    if symbols is None:
        raise ValueError("not a cubin: no symbol table")

    kernels: dict[int, KernelInfo] = {}
    reserved = 0
    for number, (name, kind, other, home) in enumerate(_symbol_table(cubin, symbols, sections)):
        if name == _RESERVED_SYMBOL:
            reserved = RESERVED_SHARED
        if kind == _FUNCTION and other & _ENTRY:
            # Before ABI 8 the register count stood in the code section's header; the attribute replaces this below.
            registers = sections[home].info >> 24
            kernels[number] = KernelInfo(name, registers, 0, 0, 0, 0, None, None, None, False, None, 0, ())

    common = by_name.get(".nv.info")
    for attribute, value in _attributes(cubin, common) if common else ():
        if attribute in (_REGISTERS, _FRAME_SIZE, _MIN_STACK_SIZE):
            number, amount = struct.unpack_from("<II", value)
            kernel = kernels.get(number)
            if kernel is None:
                continue  # a function that kernels call
            if attribute == _REGISTERS:
                kernels[number] = replace(kernel, registers=amount)
            elif attribute == _FRAME_SIZE:
                kernels[number] = replace(kernel, local=amount)
            else:
                kernels[number] = replace(kernel, stack=None if amount == _UNKNOWN_SIZE else amount)

    described = []
    for kernel in kernels.values():
        shared = by_name.get(f".nv.shared.{kernel.entry}")
        if shared is not None:
            kernel = replace(kernel, static_shared=max(0, shared.size - reserved))
        own = by_name.get(f".nv.info.{kernel.entry}")
        described.append(_with_own(kernel, list(_attributes(cubin, own))) if own else kernel)
    return sorted(described, key=lambda kernel: kernel.entry)


def _with_own(kernel: KernelInfo, attributes: list[tuple[int, bytes]]) -> KernelInfo:
    """`kernel` with what its own attribute section says."""
    parameters = []
    for attribute, value in attributes:
        if attribute == _PARAMETER:
            index, offset, packed = struct.unpack_from("<4xHHI", value)
            parameters.append(Parameter(index, offset, packed >> 18))
        elif attribute == _PARAMETER_LARGE:
            parameters.append(Parameter(*struct.unpack_from("<4xHHH", value)))
    single = dict(attributes)

    def triple(attribute: int) -> tuple[int, int, int] | None:
        if attribute not in single:
            return None
        x, y, z = struct.unpack_from("<III", single[attribute])
        return x, y, z

    def number(attribute: int, layout: str) -> int | None:
        return int(struct.unpack_from(layout, single[attribute])[0]) if attribute in single else None

    return replace(
        kernel,
        barriers=number(_BARRIERS, "<B") or 0,
        max_threads=triple(_MAX_THREADS),
        required_threads=triple(_REQUIRED_THREADS),
        cluster=triple(_CLUSTER),
        explicit_cluster=_EXPLICIT_CLUSTER in single,
        max_cluster_rank=number(_MAX_CLUSTER_RANK, "<I"),
        parameter_bytes=number(_PARAMETER_BYTES, "<H") or 0,
        parameters=tuple(sorted(parameters, key=lambda parameter: parameter.index)),
    )


def _sections(cubin: bytes) -> list[_Section]:
    table, size, count, names = struct.unpack_from("<40xQ10xHHH", cubin)
    data = _slice(cubin, table, size * count)
    headers = [struct.unpack_from("<IIQQQQII", data, size * number) for number in range(count)]
    _, _, _, _, start, length, _, _ = headers[names]
    strings = _slice(cubin, start, length)
    return [
        _Section(_string(strings, name), kind, offset, length, link, info)
        for name, kind, _flags, _address, offset, length, link, info in headers
    ]


def _symbol_table(cubin: bytes, table: _Section, sections: list[_Section]) -> Iterator[tuple[str, int, int, int]]:
    """Name, type, CUDA flags and section number of each symbol, in order."""
    names = sections[table.link]
    strings = _slice(cubin, names.offset, names.size)
    layout = struct.Struct("<IBBHQQ")
    data = _slice(cubin, table.offset, table.size - table.size % layout.size)
    for name, info, other, home, _value, _size in layout.iter_unpack(data):
        yield _string(strings, name), info & 0xF, other, home


def _attributes(cubin: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """Number and value of each attribute in the section."""
    data = _slice(cubin, section.offset, section.size)
    at = 0
    while at < len(data):
        layout, attribute, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if layout == _SIZED:
            yield attribute, _slice(data, at, length)
            at += length
        else:
            yield attribute, data[at - 2 : at]


def _slice(data: bytes, start: int, length: int) -> bytes:
    part = data[start : start + length]
    if len(part) != length:
        raise ValueError(f"not a whole cubin: {length} bytes at {start} are not all there")
    return part


def _string(strings: bytes, start: int) -> str:
    end = strings.find(b"\0", start)
    if end < 0:
        raise ValueError(f"not a whole cubin: no name at {start}")
    return strings[start:end].decode()
