"""A kernel of the user's own, made ready: its source and headers read, its further schedules loaded and proven."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sched_compiler import loader
from sched_compiler.checking import Checked, prove
from sched_compiler.diagnostics import Diagnostic, Span, SpecError
from sched_compiler.expr import Expr, to_text
from sched_compiler.files import FileError, Files, normal
from sched_compiler.kernel import argument_type
from sched_compiler.kernel_values import require_one_meaning
from sched_compiler.loader import LoadedSpec
from sched_compiler.program import Program
from sched_compiler.registry import Message, SourceCompiler, UserSource
from sched_compiler.spec import Kernel

#: Messages of a compiler that are passed on.
MOST_MESSAGES = 50


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """What a kernel's artifact depends on besides its spec: its further specs, its source, and what that includes."""

    loaded: LoadedSpec
    spec: Kernel
    others: tuple[LoadedSpec, ...]
    name: str  # the virtual path of the source
    texts: Mapping[str, str]  # by virtual path
    files: Files


@dataclass(frozen=True, slots=True)
class UserKernel:
    """`own` is the schedule that decides the launch, `others` are the further ones, in the order of the spec."""

    spec: Kernel
    own: Checked
    others: tuple[Checked, ...]
    structs: Mapping[str, Program]  # by the names of their structs, the own first
    source: UserSource
    shared_bytes: Expr
    files: Files

    def schedule_of(self, kind: str) -> tuple[str, Program]:
        """The struct and the program that the argument type `kind` means."""
        named = argument_type(kind)
        assert named is not None
        struct = named.schedule or next(iter(self.structs))
        return struct, self.structs[struct]


def gather(loaded: LoadedSpec, files: Files, compiler: SourceCompiler) -> KernelFiles:
    """Read the files of a spec's kernel. Raises SpecError."""
    spec = loaded.spec.kernel
    assert isinstance(spec, Kernel)
    others = tuple(_load(loaded, name, n, files) for n, name in enumerate(spec.schedules or ()))
    name = normal(spec.source)
    try:
        files.text(name)
    except FileError as e:
        raise loaded.error(
            "E074", ("kernel", "source"), f"the source cannot be read: {e}", found=spec.source,
            expected="CUDA C++ in a file beside the spec",
            mend="send it in `files`, by this path" if isinstance(files.beside, Mapping) else None,
        ) from None  # fmt: skip
    try:
        texts = compiler.gather(name, files.find, files.roots)
    except FileError as e:
        message = f"a header cannot be read: {e}"
        raise loaded.error("E074", ("kernel", "source"), message, found=spec.source, expected="text in UTF-8") from None
    return KernelFiles(loaded, spec, others, name, texts, files)


def _load(loaded: LoadedSpec, name: str, n: int, files: Files) -> LoadedSpec:
    path = normal(name)
    try:
        text = files.text(path)
    except FileError as e:
        message = f"the spec cannot be read: {e}"
        raise loaded.error("E074", ("kernel", "schedules", n), message, found=name) from None
    return loader.load(text, files.shown(path), _beside(files, path))


def ready(gathered: KernelFiles, own: Checked, compiler: SourceCompiler) -> UserKernel:
    """The kernel of a proven spec, its further schedules proven too. Raises SpecError."""
    loaded, spec = gathered.loaded, gathered.spec
    asked = next((name for name, p in loaded.spec.params.items() if p.source is not None), None)
    if asked is not None:
        raise loaded.error(
            "E053", ("params", asked, "source"), "a kernel of your own asks NVSHMEM itself",
            found=f"{asked} comes from nvshmem", expected="a parameter that is passed",
            mend="remove `from`, and pass what `nvshmem_my_pe()` gives",
        )  # fmt: skip
    others = tuple(prove(other) for other in gathered.others)
    structs: dict[str, Program] = {compiler.struct(own.program): own.program}
    for n, other in enumerate(others):
        struct = compiler.struct(other.program)
        if struct in structs:
            message = f"two schedules of this kernel are called sched::{struct}"
            raise loaded.error("E013", ("kernel", "schedules", n), message, found=other.schedule.name)
        _require_same_launch(own, other, n)
        structs[struct] = other.program
    for name, kind in spec.arguments.items():
        found = argument_type(kind)
        if found is not None and found.schedule is not None and found.schedule not in structs:
            raise loaded.error(
                "E021", ("kernel", "arguments", name), "no schedule of this kernel has this name", found=kind,
                expected=f"one of: {', '.join(f'sched::{s}' for s in structs)}",
            )  # fmt: skip
    require_one_meaning(spec, own, others)
    source = UserSource(
        name=gathered.name,
        files=gathered.texts,
        roots=gathered.files.roots,
        entry=spec.entry,
        bundles=tuple(spec.headers or ()),
        defines=tuple((name, str(value)) for name, value in (spec.defines or {}).items()),
        options=tuple(spec.options or ()),
        programs=tuple(structs.values()),
    )
    assert own.built.shared_bytes is not None
    return UserKernel(spec, own, others, structs, source, own.built.shared_bytes, gathered.files)


def _beside(files: Files, path: str) -> Path | Mapping[str, str] | None:
    """What stands beside the file at a virtual path."""
    folder = posixpath.dirname(path)
    if not isinstance(files.beside, Mapping):
        return None if files.beside is None else files.beside / folder
    prefix = f"{folder}/" if folder else ""
    return {
        normal(name).removeprefix(prefix): text
        for name, text in files.beside.items()
        if normal(name).startswith(prefix)
    }


def _require_same_launch(own: Checked, other: Checked, n: int) -> None:
    """Refuse a schedule that another's launch would not serve. Raises SpecError."""
    first, second = own.schedule, other.schedule
    fault: str | None = None
    expected = None
    if first.dispatch.ring is not None or second.dispatch.ring is not None:
        fault = "under dispatch clc a kernel has one schedule: CTAs that were cancelled do not run the other"
    elif second.worker_ctas not in (1, first.worker_ctas):
        fault, expected = "its clusters are not those of the launch", f"clusters of {first.worker_ctas} CTAs, or none"
    elif second.dispatch.fixed:
        given, needed = (to_text(s.dispatch.workers * s.worker_ctas) for s in (second, first))
        if given != needed:
            fault = f"its workers are not those of the launch: {given} CTAs, where {needed} are launched"
            expected = f"the same number, or `workers: grid` in {second.name}"
    if fault is not None:
        raise own.loaded.error(
            "E050", ("kernel", "schedules", n), f"{second.name} cannot run in this kernel: {fault}",
            found=f"dispatch {second.dispatch.name}", expected=expected,
        )  # fmt: skip


def diagnostics(kernel: UserKernel, messages: tuple[Message, ...] | list[Message]) -> list[Diagnostic]:
    """A compiler's messages, each in the user's file where it belongs there."""
    found = [_diagnostic(kernel, message) for message in messages]
    found.sort(key=lambda d: d.severity != "error")
    return list(dict.fromkeys(found))[:MOST_MESSAGES]


def _diagnostic(kernel: UserKernel, message: Message) -> Diagnostic:
    code, loaded = "E075" if message.error else "W005", kernel.own.loaded
    text, mend = message.text[:2000], message.mend
    if message.file is None:
        path, found, expected = ("kernel", *message.key), None, None
        if message.key == ("entry",):
            found, expected = kernel.spec.entry, "a __global__ function of the source"
        return loaded.diagnostic(
            code, path, text, found=found, expected=expected, mend=mend, key=message.key[:1] == ("defines",)
        )
    content = kernel.source.files.get(message.file)
    if content is None:
        column = message.column or 1
        return Diagnostic(
            code, text, Span(f"<{message.file[:200]}>", message.line, column, message.line, column + 1), mend=mend
        )
    lines = [line.removesuffix("\r") for line in content.split("\n")]  # as the compiler counts them
    number = min(message.line, len(lines))
    line = lines[number - 1]
    begin = message.column or len(line) - len(line.lstrip()) + 1
    begin = min(begin, len(line) + 1)
    end = begin + 1 if message.column else max(len(line), begin) + 1
    return Diagnostic(code, text, Span(kernel.files.shown(message.file), number, begin, number, end), mend=mend)


def refused(kernel: UserKernel, log: str, messages: tuple[Message, ...]) -> SpecError:
    """A compile that failed, as an error in the user's files."""
    found = diagnostics(kernel, messages)
    if not any(d.severity == "error" for d in found):  # it told of no place
        lines = [line for line in log.splitlines() if "error" in line or "fatal" in line] or log.splitlines()
        said, message = "; ".join(lines)[:2000] or "nothing", "the compiler refused the source"
        found = [kernel.own.loaded.diagnostic("E075", ("kernel", "source"), message, found=said), *found]
    return SpecError(found)
