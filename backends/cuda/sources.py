"""Kernels of users' own, with the headers of their schedules: see `sched_compiler.registry.SourceCompiler`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from backends.cuda import emitter, includes, kernels
from backends.toolchain import bundles, nvrtc, sandbox
from backends.toolchain.errors import ToolchainError
from backends.toolchain.library import Compiled
from sched_compiler.artifact import Emit
from sched_compiler.program import Program
from sched_compiler.registry import BuiltSource, Message, SourceError, UserSource

_OPTIONS = {"fast-math": "--use_fast_math", "line-info": "--generate-line-info", "c++20": "--std=c++20"}
#: Where NVRTC compiles the name of the kernel that is asked for.
_NAME_MAP = "__nv_name_map"
#: What NVRTC includes before a source.
_BUILTIN = "__nv_nvrtc_builtin_header.h"
_MACRO = re.compile(r"Command-line error: invalid macro definition: (\w+)")
#: "... at line 12 of /nowhere/kernel.cu": who used a header's inside.
_ABSENT = re.compile(r'could not open source file "([^"]+)"')
_USED = re.compile(r'at line ([0-9]+) of "?')
#: The entry as NVRTC has put it together anew.
_INPUT = re.compile(rf"\.?\s*(?:Input name expression was:|{_NAME_MAP}\([0-9]+\):).*")


def header_names(program: Program) -> tuple[str, ...]:
    """The names by which a source includes a schedule: its struct's, and the spec's own where that is another."""
    names = (emitter.struct_name(program), program.schedule.name)
    return tuple(dict.fromkeys(f"sched/{name}.cuh" for name in names))


class CudaSources:
    emits: tuple[Emit, ...] = ("cubin", "ptx")
    bundles = tuple(bundles.BUNDLES)

    def gather(self, name: str, find: Callable[[str], str | None], roots: tuple[str, ...]) -> dict[str, str]:
        return includes.closure(name, find, roots)

    def versions(self, names: Sequence[str]) -> tuple[str, ...]:
        return bundles.versions(names)

    def struct(self, program: Program) -> str:
        return emitter.struct_name(program)

    def sandbox(self) -> str | None:
        return sandbox.unavailable()

    def build(self, source: UserSource, arch: str, emit: Emit, confined: bool) -> BuiltSource:
        compile_ = sandbox.compile_confined if confined else _compile
        generated, more = _generated(source), set[str]()
        while True:
            texts = generated | _in_memory(source, more)
            request: dict[str, Any] = {
                "source": texts[source.name],  # which may include itself
                "name": source.name,
                "arch": arch,
                "emit": emit,
                "headers": texts,
                "options": _options(source),
                "entry": source.entry,
            }
            try:
                compiled, lowered = compile_(request)
            except ToolchainError as e:
                # in a bundle the name of a header may be a macro's value, which the compiler alone knows
                absent = _ABSENT.search(e.log)
                if absent is not None and absent[1] not in more and _find(source, absent[1]) is not None:
                    more.add(absent[1])
                    continue
                raise SourceError(e.log, _errors(e.log, source)) from None
            assert lowered is not None  # an entry was asked for
            if not _defines(compiled.blob, emit, lowered):
                told = "this kernel is declared in the source, and defined nowhere"
                raise SourceError(told, [Message(None, 1, None, True, told)])
            return BuiltSource(compiled.blob, lowered, tuple(_message(s, source) for s in nvrtc.messages(compiled.log)))


def _defines(blob: bytes, emit: Emit, kernel: str) -> bool:
    """Whether the kernel of this name is in what was compiled, and not only promised."""
    return (f".entry {kernel}(" if emit == "ptx" else f".text.{kernel}\0").encode() in blob


def _options(source: UserSource) -> list[str]:
    defines = [f"-D{name}={value}" for name, value in (*includes.DEFINES.items(), *source.defines)]
    return [*_needed(source.bundles), *(_OPTIONS[option] for option in source.options), *defines]


def _needed(names: Sequence[str]) -> list[str]:
    """Options without which a bundle's headers do not compile: CUTLASS's functions do not all say where they run."""
    return ["--device-as-default-execution-space"] if "cutlass" in names else []


def _compile(request: Mapping[str, object]) -> tuple[Compiled, str | None]:
    return nvrtc.compile_with_headers(**request)  # type: ignore[arg-type]


def _generated(source: UserSource) -> dict[str, str]:
    """The headers of the schedules, by the names by which they are included."""
    generated: dict[str, str] = {}
    for program in source.programs:
        first, *others = header_names(program)
        generated[first] = emitter.header(program)
        for other in others:
            generated[other] = f"#pragma once\n#include <{first}>\n"
    return generated


def _find(source: UserSource, path: str) -> str | None:
    return source.files[path] if path in source.files else bundles.header(source.bundles, path)


def _in_memory(source: UserSource, more: Iterable[str]) -> dict[str, str]:
    """The user's texts and the bundles' that are needed, by the one name that each has in the compile."""
    roots = (*source.roots, "")
    known: dict[str, str] = {}
    for name in (source.name, *more):
        known |= includes.closure(name, lambda path: _find(source, path), roots)
    return {
        path: includes.rewritten(path, text, known, roots, own=path in source.files) for path, text in known.items()
    }


def _errors(log: str, source: UserSource) -> list[Message]:
    """What a compile that failed said. Of the entry it says one thing several times, and that for any error before."""
    if (macro := _MACRO.search(log)) is not None:
        told = f"the compiler takes no macro called {macro[1]}"
        return [Message(None, 1, None, True, told, "choose another name", ("defines", macro[1]))]
    said = nvrtc.messages(log)
    builtin = next((s for s in said if s.file == _BUILTIN and s.error), None)
    if builtin is not None and source.defines:
        told = f"a macro changes what CUDA itself declares: {builtin.text}"
        return [Message(None, 1, None, True, told, "choose names that C++ and CUDA do not use", ("defines",))]
    found = [_message(s, source) for s in said if s.file != _NAME_MAP]
    entry = next((s for s in said if s.file == _NAME_MAP and s.error), None)
    if entry is not None and not any(message.error for message in found):
        found.append(_message(entry, source))
    return found


def _message(said: nvrtc.Said, source: UserSource) -> Message:
    """A message, placed in the user's files where it can be."""
    file, line, column = said.file, said.line, said.column
    if file == _NAME_MAP:
        mend = kernels.mended(source.entry, source.files.values()) if said.error else None
        return Message(None, 1, None, said.error, _INPUT.sub("", said.text), mend)
    text = said.text.replace(nvrtc.NOWHERE, "")
    if said.error and file in source.files and (found := includes.refused(source.files[file], line)) is not None:
        return Message(file, line, found[0], True, *found[1:])
    if file not in source.files:
        for used in _USED.finditer(text):
            users = [name for name in source.files if text.startswith(name, used.end())]
            if users:
                return Message(max(users, key=len), int(used[1]), None, said.error, f"{file}({line}): {text}")
    if said.error and file in _generated(source):
        return Message(
            file, line, column, True, text, "a macro may have a name that this header uses: include it first"
        )
    return Message(file, line, column, said.error, text, _mend(text, source))


def _mend(text: str, source: UserSource) -> str | None:
    """Where a header is that was not found."""
    absent = _ABSENT.search(text)
    if absent is None:
        return None
    for name in bundles.BUNDLES:
        if (
            name not in source.bundles
            and bundles.missing([name]) is None
            and bundles.header((name,), absent[1]) is not None
        ):
            return f"add `headers: [{', '.join((*source.bundles, name))}]` to `kernel`"
    name = absent[1].removeprefix("sched/")
    made = [header for program in source.programs for header in header_names(program)]
    if absent[1].startswith("sched/") or f"sched/{name}" in made:
        return f"headers in `sched/` are made for the schedules that the spec has: {', '.join(f'<{m}>' for m in made)}"
    plain = f"c{name.removesuffix('.h')}" if name.endswith(".h") else name
    if bundles.missing(["cccl"]) is None and bundles.header(("cccl",), f"cuda/std/{plain}") is not None:
        more = "" if "cccl" in source.bundles else f", with `headers: [{', '.join((*source.bundles, 'cccl'))}]`"
        return f"the host's headers are not here: include <cuda/std/{plain}>{more}"
    return None
