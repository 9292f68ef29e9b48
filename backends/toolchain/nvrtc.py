"""CUDA C++ to machine code or PTX, by NVRTC.

The library is called through ctypes rather than through NVIDIA's Python binding: importing the binding takes
longer than compiling a kernel, and it chooses the library by a search of its own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from . import ptxas
from .errors import ToolchainError
from .library import Compiled, Library, find, require_architecture, require_text

#: Options of every compile; the architecture is added. `--minimal` leaves out textures and the device runtime, about
#: a quarter of the time. The others keep the result a function of the source: no headers from the working directory,
#: no cache outside this project's.
OPTIONS = ("--minimal", "--std=c++17", "--no-source-include", "--no-cache")

#: Options of a compile of a user's source, which may use all that CUDA C++ has.
USER_OPTIONS = tuple(option for option in OPTIONS if option != "--minimal")

#: Besides, of what is still to be linked: an object, or intermediate code that the linker optimises with its callers'.
LINKED_OPTIONS: dict[Literal["object", "ltoir"], tuple[str, ...]] = {
    "object": ("--relocatable-device-code=true",),
    "ltoir": ("--relocatable-device-code=true", "--dlink-time-opt"),
}

#: What NVRTC calls each result.
_RESULTS = {"cubin": "CUBIN", "object": "CUBIN", "ltoir": "LTOIR", "ptx": "PTX"}
#: Of Linux's unshare(2): the working directory, which needs no privilege.
_CLONE_FS = 0x200
_DISTRIBUTION = "nvidia-cuda-nvrtc"
_MESSAGE = re.compile(
    r"^(?P<file>[^\n]*)\((?P<line>[0-9]+)\): (?P<kind>(?:catastrophic )?error|warning)(?: #[0-9]+(?:-D)?)?: "
    r"(?P<text>[^\n]*)",
    re.MULTILINE,
)
_ERROR = re.compile(r"^.*\((?P<line>[0-9]+)\): (?:catastrophic )?error\b", re.MULTILINE)
_CARET = re.compile(r"\s*\^\s*")
_INDENT = 2  # NVRTC quotes the faulty line behind two blanks
_PROBE = "1-not-a-macro"
_LINES = "--generate-line-info"
_T = TypeVar("_T")
#: The folder of sources that may include files: there is none of this name.
NOWHERE = "/nowhere/"


def version() -> str:
    """The exact build of the installed NVRTC, without loading it. Raises ToolMissing."""
    return _installed().build


@functools.cache
def architectures() -> tuple[str, ...]:
    """Every architecture that the installed NVRTC compiles for, suffixed ones among them: sm_75, ..., sm_90a, ..."""
    library = _library()
    count = ctypes.c_int()
    _check(library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library.nvrtcGetSupportedArchs(numbers))
    named = (f"sm_{number}{suffix}" for number in sorted(numbers) for suffix in ("", "a", "f"))
    return tuple(arch for arch in named if supports(arch))


@functools.cache
def supports(arch: str) -> bool:
    """Whether the installed NVRTC compiles for `arch`; asks the library."""
    try:
        require_architecture(arch)
        # The front end looks at the architecture first and at macros next: when it complains of ours, it has
        # accepted the architecture, in a hundredth of the time of an empty compile.
        _run("", "probe", (*OPTIONS, f"--gpu-architecture={arch}", f"--define-macro={_PROBE}"), "cubin")
    except ToolchainError as refusal:
        if _PROBE in refusal.log:
            return True
    try:
        compile("", "probe", arch, "cubin")
    except ToolchainError:
        return False
    return True


def compile(source: str, name: str, arch: str, emit: Literal["cubin", "ptx"]) -> Compiled:
    """Compile CUDA C++ for `arch` (sm_90a, ...). `name` stands for the source in messages, and nowhere else.

    The result is a function of the arguments and the installed NVRTC alone. Raises ToolchainError with the place of
    the first error, and ToolMissing.
    """
    require_architecture(arch)
    target = arch if emit == "cubin" else arch.replace("sm_", "compute_", 1)
    return _run(source, name, (*OPTIONS, f"--gpu-architecture={target}"), emit)


def compile_object(source: str, name: str, arch: str, folders: tuple[str, ...]) -> Compiled:
    """Compile CUDA C++ that includes headers from `folders` into an object that is still to be linked.

    The headers include one another by relative names, which forbids `--no-source-include`: the source's own folder is
    one that does not exist. Raises ToolchainError and ToolMissing.
    """
    require_architecture(arch)
    own = tuple(option for option in OPTIONS if option not in ("--minimal", "--no-source-include"))
    options = (*own, f"--gpu-architecture={arch}", "--relocatable-device-code=true", *(f"-I{f}" for f in folders))
    options = (*options, _seed(source, {}))
    return _run(source, f"{NOWHERE}{name}", options, "cubin")


def compile_library(source: str, name: str, arch: str, emit: Literal["object", "ltoir"]) -> Compiled:
    """Compile CUDA C++ into what is still to be linked: an object (a relocatable cubin), or LTO-IR.

    The result is a function of the arguments and the installed NVRTC alone. NVRTC writes the working directory into
    LTO-IR, so the compile has a thread with one of its own, the root; where the system refuses that (a container may),
    LTO-IR depends on the directory too. Raises ToolchainError and ToolMissing.
    """
    require_architecture(arch)
    options = (*OPTIONS, *LINKED_OPTIONS[emit], f"--gpu-architecture={arch}", _seed(source, {}))
    return _from_root(lambda: _run(source, name, options, emit))


def _from_root(work: Callable[[], _T]) -> _T:
    """What `work` gives in a thread with a working directory of its own, the root."""

    def leave() -> None:
        if ctypes.CDLL(None).unshare(_CLONE_FS) == 0:
            os.chdir("/")

    with ThreadPoolExecutor(1, initializer=leave) as thread:
        return thread.submit(work).result()


def compile_with_headers(
    source: str,
    name: str,
    arch: str,
    emit: Literal["cubin", "ptx"],
    headers: Mapping[str, str],
    options: Sequence[str] = (),
    entry: str | None = None,
) -> tuple[Compiled, str | None]:
    """Compile a user's CUDA C++, which includes `headers` by their names.

    `entry` is a kernel's name as C++ writes it, template arguments included; its name in the module is given back.
    The source's own folder is one that does not exist, so a relative name finds nothing on this machine; line
    information would name headers in the working directory, see `compile_library`. Raises ToolchainError with the
    place of the first error, of the assembler's too, and ToolMissing.
    """
    require_architecture(arch)
    virtual = arch.replace("sm_", "compute_", 1)
    options = (*USER_OPTIONS, *options, _seed(source, headers))
    lowered: dict[str, str] = {}
    entries = () if entry is None else (entry,)

    def compiled(emit: Literal["cubin", "ptx"], *more: str) -> Compiled:
        target = f"--gpu-architecture={arch if emit == 'cubin' else virtual}"
        return _run(source, f"{NOWHERE}{name}", (*options, target, *more), emit, headers, entries, lowered)

    def placed() -> Compiled:
        try:
            return compiled(emit)
        except ToolchainError as e:
            if not ptxas.refusals(e.log):
                raise
        try:  # again, for lines of the source
            return compiled(emit, _LINES)
        except ToolchainError as e:
            text = compiled("ptx", _LINES).blob.decode(errors="replace")
            log = ptxas.in_source(e.log, text, _named)
            raise ToolchainError(log, *_position(log)) from None

    result = _from_root(placed)
    return result, None if entry is None else lowered[entry]


def _named(file: str) -> str:
    """The name of a file of line information in messages, which know no folder of a header in memory."""
    return file if file.startswith(NOWHERE) else file.removeprefix(f"{str(Path.cwd()).rstrip('/')}/")


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the compiler: where (lines and columns from 1; the column None where it says none), and what."""

    file: str
    line: int
    column: int | None
    error: bool
    text: str


def messages(log: str) -> list[Said]:
    """What the compiler said, message by message; a message about a header's insides also says who used it."""
    found: list[Said] = []
    for block in re.split(r"\n\s*\n", log):
        head = _MESSAGE.search(block)
        if head is None:
            continue
        lines = block[head.end() :].split("\n")[1:]
        caret = next((n for n, line in enumerate(lines) if _CARET.fullmatch(line)), None)
        column, context = None, lines
        if caret is not None and caret > 0:
            before = lines[caret - 1].encode()[_INDENT : lines[caret].index("^")]
            column = len(before.decode(errors="ignore")) + 1
            context = [*lines[: caret - 1], *lines[caret + 1 :]]
        text = " ".join([head["text"].strip(), *(line.strip() for line in context if line.strip())])
        found.append(Said(_own(head["file"]), int(head["line"]), column, "error" in head["kind"], text))
    return found


def _own(file: str) -> str:
    return file.removeprefix(NOWHERE)


def _seed(source: str, headers: Mapping[str, str]) -> str:
    """An option by which names that are local to a source follow from it; NVRTC takes the process's number else."""
    text = "\0".join((source, *(part for pair in sorted(headers.items()) for part in pair)))
    return f"--frandom-seed={hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _run(
    source: str,
    name: str,
    options: tuple[str, ...],
    emit: Literal["cubin", "ptx", "object", "ltoir"],
    headers: Mapping[str, str] | None = None,
    entries: Iterable[str] = (),
    lowered: dict[str, str] | None = None,
) -> Compiled:
    library = _library()
    text, label = require_text(source), require_text(name)
    program = ctypes.c_void_p()
    included = [(require_text(header), require_text(content)) for header, content in (headers or {}).items()]
    count = len(included)
    names = (ctypes.c_char_p * max(count, 1))(*(header for header, _ in included))
    contents = (ctypes.c_char_p * max(count, 1))(*(content for _, content in included))
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text, label, count, contents, names))
    try:
        wanted = [(entry, require_text(entry)) for entry in entries]
        for _, expression in wanted:
            _check(library.nvrtcAddNameExpression(program, expression))
        values = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), values)
        log = _read(program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status:
            raise ToolchainError(log or _message(status), *_position(log))
        for entry, expression in wanted:
            found = ctypes.c_char_p()
            _check(library.nvrtcGetLoweredName(program, expression, ctypes.byref(found)))
            if lowered is not None and found.value is not None:
                lowered[entry] = found.value.decode()
        result = _read(program, _RESULTS[emit])
        return Compiled(result.rstrip(b"\0") if emit == "ptx" else result, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    """One of the program's results, by NVRTC's pair of functions for it."""
    library = _library()
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check(getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value]


def _position(log: str) -> tuple[int | None, int | None]:
    """Line and column of the first error; NVRTC says the column only by a caret under the quoted line, in bytes."""
    error = _ERROR.search(log)
    if error is None:
        return None, None
    quoted = ""
    for text in log[error.end() :].split("\n")[1:]:
        if _CARET.fullmatch(text):
            before = quoted.encode()[_INDENT : text.index("^")]
            return int(error["line"]), len(before.decode(errors="ignore")) + 1
        if not text.strip():
            break  # an empty line closes each message
        quoted = text
    return int(error["line"]), None


def _message(status: int) -> str:
    message: bytes = _library().nvrtcGetErrorString(status)
    return message.decode()


def _check(status: int) -> None:
    """For calls that fail only when the library itself is broken or out of memory."""
    if status:
        raise ToolchainError(_message(status))


def _installed() -> Library:
    return find(_DISTRIBUTION, "libnvrtc.so")


@functools.cache
def _library() -> ctypes.CDLL:
    # Some releases look for this companion along the system's library path only; once it is loaded, they find it.
    find(_DISTRIBUTION, "libnvrtc-builtins.so").open()
    library = _installed().open()
    handle, size, text = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p
    number, texts = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_char_p)
    library.nvrtcCreateProgram.argtypes = [ctypes.POINTER(handle), text, text, ctypes.c_int, texts, texts]
    library.nvrtcCompileProgram.argtypes = [handle, ctypes.c_int, texts]
    library.nvrtcAddNameExpression.argtypes = [handle, text]
    library.nvrtcGetLoweredName.argtypes = [handle, text, ctypes.POINTER(text)]
    library.nvrtcDestroyProgram.argtypes = [ctypes.POINTER(handle)]
    library.nvrtcGetNumSupportedArchs.argtypes = [number]
    library.nvrtcGetSupportedArchs.argtypes = [number]
    library.nvrtcGetErrorString.argtypes = [ctypes.c_int]
    library.nvrtcGetErrorString.restype = text
    for what in ("ProgramLog", *sorted(set(_RESULTS.values()))):
        getattr(library, f"nvrtcGet{what}Size").argtypes = [handle, size]
        getattr(library, f"nvrtcGet{what}").argtypes = [handle, text]
    return library
