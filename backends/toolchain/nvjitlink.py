"""PTX to machine code, by nvJitLink (ptxas as a library)."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from .errors import ToolchainError
from .library import Compiled, Library, find, require_architecture, require_text

#: Options of every link; the architecture is added. Full optimisation, said explicitly, and no cache outside this
#: project's. Link-time optimisation is for LTO-IR and does nothing for PTX.
OPTIONS = ("-O3", "-no-cache")

#: The PTX ISA release that introduced each target: facts of the past, which no release of nvJitLink changes. They are
#: written down so that PTX can be printed, the same everywhere, where nvJitLink is not installed.
_INTRODUCED = {
    "sm_75": "6.3",
    "sm_80": "7.0",
    "sm_86": "7.1",
    "sm_87": "7.4",
    "sm_88": "9.0",
    "sm_89": "7.8",
    "sm_90": "7.8",
    "sm_90a": "8.0",
    "sm_100": "8.6",
    "sm_100a": "8.6",
    "sm_100f": "8.8",
    "sm_103": "8.8",
    "sm_103a": "8.8",
    "sm_103f": "8.8",
    "sm_107": "9.4",
    "sm_107a": "9.4",
    "sm_107f": "9.4",
    "sm_110": "9.0",
    "sm_110a": "9.0",
    "sm_110f": "9.0",
    "sm_120": "8.7",
    "sm_120a": "8.7",
    "sm_120f": "8.8",
    "sm_121": "8.8",
    "sm_121a": "8.8",
    "sm_121f": "8.8",
}

#: What can be linked: an object (a relocatable cubin), LTO-IR, an archive of objects.
Part: TypeAlias = Literal["object", "ltoir", "archive"]
_CUBIN, _PTX, _LTOIR, _LIBRARY = 1, 2, 3, 6  # nvJitLinkInputType
_PARTS: dict[Part, int] = {"object": _CUBIN, "ltoir": _LTOIR, "archive": _LIBRARY}
_ERROR = re.compile(r"^ptxas .*, line (?P<line>[0-9]+); (?:error|fatal)\b", re.MULTILINE)
_CURRENT = re.compile(r"current version is '(?P<major>[0-9]+)\.(?P<minor>[0-9]+)'")
_UNKNOWN_VERSION = "Unsupported .version"
_MINORS = 10  # no PTX ISA release so far had a minor number of 10


def version() -> str:
    """The exact build of the installed nvJitLink, without loading it. Raises ToolMissing."""
    return _installed().build


@functools.cache
def supports(arch: str) -> bool:
    """Whether the installed nvJitLink assembles for `arch`; asks the library."""
    try:
        assemble(_empty("6.3", arch), arch)  # with no function in it, a module of any known release is accepted
    except ToolchainError:
        return False
    return True


@functools.cache
def ptx_version(arch: str) -> str:
    """The lowest release of the PTX ISA that knows `arch`, such as "8.6" for sm_100a.

    An architecture newer than this module is looked up in the installed nvJitLink. Raises ToolchainError if that
    does not know it either.
    """
    known = _INTRODUCED.get(arch)
    return known if known is not None else _ask_ptx_version(arch)


def assemble(ptx: str, arch: str) -> Compiled:
    """Assemble one PTX module for `arch` (sm_90a, ...) into a cubin.

    The result is a function of the arguments and the installed nvJitLink alone. Raises ToolchainError with the line
    of the first error, and ToolMissing.
    """
    return _link([(_PTX, require_text(ptx), "module")], arch)


def link(cubin: bytes, archive: bytes, arch: str) -> Compiled:
    """Link a relocatable object with an archive of objects into a cubin. Raises ToolchainError and ToolMissing."""
    return link_parts([("object", cubin), ("archive", archive)], arch)


def link_parts(parts: Sequence[tuple[Part, bytes]], arch: str) -> Compiled:
    """Link what other compiles made into a cubin; LTO-IR is optimised as one program.

    Raises ToolchainError, for example where a function is in no part or in two, and ToolMissing.
    """
    inputs = [(_PARTS[kind], data, f"{kind}{n}") for n, (kind, data) in enumerate(parts)]
    return _link(inputs, arch, ("-lto",) if any(kind == "ltoir" for kind, _ in parts) else ())


def _link(inputs: Sequence[tuple[int, bytes, str]], arch: str, more: tuple[str, ...] = ()) -> Compiled:
    require_architecture(arch)
    library = _library()
    options = (f"-arch={arch}", *OPTIONS, *more)
    values = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    handle = ctypes.c_void_p()
    status = library.nvJitLinkCreate(ctypes.byref(handle), len(options), values)
    if status:
        raise ToolchainError(f"nvJitLink does not know {arch} (result {status})")
    try:
        for kind, data, name in inputs:
            status = status or library.nvJitLinkAddData(handle, kind, data, len(data), name.encode())
        status = status or library.nvJitLinkComplete(handle)
        if status:
            log = _log(handle, "ErrorLog")
            error = _ERROR.search(log)
            raise ToolchainError(log or f"nvJitLink result {status}", int(error["line"]) if error else None)
        return Compiled(_read(handle, "LinkedCubin"), _log(handle, "InfoLog"))
    finally:
        library.nvJitLinkDestroy(ctypes.byref(handle))


def _ask_ptx_version(arch: str) -> str:
    # An impossible release makes ptxas name its newest one. A new target is of a new release: go down from there.
    refusal = _refusal("99.9", arch)
    current = _CURRENT.search(refusal)
    if current is None:
        raise ToolchainError(refusal)
    newest = int(current["major"]) * _MINORS + int(current["minor"])
    lowest: str | None = None
    for number in range(newest, 0, -1):
        candidate = f"{number // _MINORS}.{number % _MINORS}"
        refusal = _refusal(candidate, arch)
        if not refusal:
            lowest = candidate
        elif _UNKNOWN_VERSION not in refusal:
            break
    if lowest is None:
        raise ToolchainError(refusal)
    return lowest


def _refusal(release: str, arch: str) -> str:
    """What nvJitLink has against a small module for `arch` of this PTX ISA release; empty if nothing."""
    try:
        assemble(_empty(release, arch) + ".visible .entry probe() { ret; }\n", arch)
    except ToolchainError as error:
        return error.log
    return ""


def _empty(release: str, arch: str) -> str:
    return f".version {release}\n.target {arch}\n.address_size 64\n"


def _read(handle: ctypes.c_void_p, what: str) -> bytes:
    """One of the link's results, by nvJitLink's pair of functions for it."""
    library = _library()
    size = ctypes.c_size_t()
    status = getattr(library, f"nvJitLinkGet{what}Size")(handle, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    status = status or getattr(library, f"nvJitLinkGet{what}")(handle, buffer)
    if status:
        raise ToolchainError(f"nvJitLink gives no {what} (result {status})")
    return buffer.raw[: size.value]


def _log(handle: ctypes.c_void_p, what: str) -> str:
    return _read(handle, what).decode(errors="replace").rstrip("\0")


def _installed() -> Library:
    return find("nvidia-nvjitlink", "libnvJitLink.so")


@functools.cache
def _library() -> ctypes.CDLL:
    library = _installed().open()
    handle, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    library.nvJitLinkCreate.argtypes = [ctypes.POINTER(handle), ctypes.c_uint32, ctypes.POINTER(text)]
    library.nvJitLinkDestroy.argtypes = [ctypes.POINTER(handle)]
    library.nvJitLinkAddData.argtypes = [handle, ctypes.c_int, text, size, text]
    library.nvJitLinkComplete.argtypes = [handle]
    for what in ("ErrorLog", "InfoLog", "LinkedCubin"):
        getattr(library, f"nvJitLinkGet{what}Size").argtypes = [handle, ctypes.POINTER(size)]
        getattr(library, f"nvJitLinkGet{what}").argtypes = [handle, text]
    return library
