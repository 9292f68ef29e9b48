"""`schedc`: the verbs of the product on the command line. Thin over `sched_compiler.driver`.

What is imported here is light; each verb imports what it needs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sched_compiler.diagnostics import Diagnostic, SpecError
    from sched_compiler.driver import CheckReport

#: Exit codes: every spec holds; one does not; the call itself was wrong.
OK, FAULT, USAGE = 0, 1, 2
#: Bytes that are read of a file: more than a spec may have, so that what is longer is refused and not cut.
MOST_READ = 1 << 20
#: Characters of an integer on the command line: 64 binary digits with their prefix, and room for zeros.
MOST_DIGITS = 80
_SUFFIXES = (".yaml", ".yml", ".json")


class UsageError(Exception):
    """The call itself was wrong: a file that is not there, a value that is none."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `schedc`. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        if sys.stdout is None:
            raise UsageError("standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):  # what goes to both outputs keeps its order where they are one
            sys.stdout.reconfigure(line_buffering=True)
        code = verb(arguments)
        sys.stdout.flush()
        return code
    except UsageError as e:
        print(f"schedc: {e}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader has seen enough; as a program does that the signal ends
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as e:
        _discard_output()
        print(f"schedc: {e.filename or 'output'}: {e.strerror or e}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("schedc: interrupted", file=sys.stderr)
        return 130


def _discard_output() -> None:
    """What is still in the buffer has nowhere to go; without this, Python complains of it at its end."""
    with suppress(OSError, ValueError):  # a stream without a descriptor has no such end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Version(argparse.Action):
    """Prints the version and ends; it is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from sched_compiler.artifact import product_version

        print(f"schedc {product_version()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="schedc", description="Tile schedules: checked, traced, compiled, served.")
    parser.add_argument("--version", action=_Version, nargs=0, help="the version of this installation")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, verb: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=text, description=text)
        command.set_defaults(verb=verb)
        return command

    check = add("check", _check, "prove specs, or show what is wrong with them")
    check.add_argument("specs", nargs="+", metavar="SPEC", help="a file, a directory, or - for standard input")
    check.add_argument("--format", choices=("text", "json", "sarif", "github"), default="text")
    check.add_argument("--strict", action="store_true", help="warnings are errors")

    expand = add("expand", _expand, "the composed form of a spec")
    expand.add_argument("spec", metavar="SPEC")

    trace = add("trace", _trace, "which worker visits which tiles, in order")
    trace.add_argument("spec", metavar="SPEC")
    trace.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a run-time parameter")
    trace.add_argument("--table", action="append", default=[], metavar="NAME=FILE", help="a table given at launch")
    trace.add_argument("--workers", type=int, metavar="N", help="instead of the spec's number of workers")
    trace.add_argument("--responses", metavar="FILE", help="of dispatch clc: for each worker, what the queue answers")
    trace.add_argument("--follow", metavar="W,W,...", help="only these workers")
    trace.add_argument("--engine", choices=("numpy", "cuda", "ptx", "gpu"), default="numpy")
    trace.add_argument("--format", choices=("text", "json"), default="text")

    emit = add("emit", _emit, "the schedule as text")
    emit.add_argument("spec", metavar="SPEC")
    to = ("cuda", "ptx", "header", "declarations", "validator", "launcher", "json")
    emit.add_argument("--to", choices=to, required=True)
    emit.add_argument("--arch", default="sm_90a", help="the target of the kernel (default sm_90a)")
    emit.add_argument("-o", "--output", metavar="FILE", help="instead of standard output")
    emit.add_argument("-I", "--include", action="append", default=[], metavar="DIR", help="as of compile, for launcher")

    compile_ = add("compile", _compile, "a spec to a cubin, with its manifest beside it")
    compile_.add_argument("spec", metavar="SPEC")
    compile_.add_argument("--arch", required=True, help="sm_80, sm_90a, sm_100a, ...")
    compile_.add_argument("--backend", default="cuda", help="cuda (default) or ptx")
    compile_.add_argument("--emit", choices=("cubin", "ptx", "header", "ltoir", "object"), default="cubin")
    output = "default NAME.ARCH.cubin, with its manifest in FILE.json; - for standard output, without a manifest"
    compile_.add_argument("-o", "--output", metavar="FILE", help=output)
    compile_.add_argument("-I", "--include", action="append", default=[], metavar="DIR", help="search headers here too")
    compile_.add_argument("--depfile", metavar="FILE", help="write what the artifact depends on, for Make and Ninja")
    compile_.add_argument("--server", metavar="URL", help="ask this service; compile here if it cannot be reached")

    serve = add("serve", _serve, "the HTTP service")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)

    add("schema", _schema, "JSON Schema of the spec language")
    return parser


# -- reading and reporting ------------------------------------------------------------------------------------


def _read(name: str) -> tuple[str, str]:
    """(text, name for messages). Undecodable bytes become characters that no spec can hold, so they are reported."""
    try:
        if name == "-":
            if sys.stdin is None:
                raise UsageError("standard input is closed")
            data = sys.stdin.buffer.read(MOST_READ)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_READ)
    except OSError as e:
        raise UsageError(f"cannot read {name}: {e.strerror}") from None
    return data.decode("utf-8", errors="surrogateescape"), "<stdin>" if name == "-" else name


def _files(names: Sequence[str]) -> list[str]:
    """The spec files that are meant: a directory stands for every spec under it."""
    files: list[str] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = sorted(str(p) for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
            if not found:
                raise UsageError(f"no spec under {name}")
            files += found
        else:
            files.append(name)
    return files


def _color() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


def _complain(diagnostics: Sequence[Diagnostic], sources: dict[str, str]) -> None:
    from sched_compiler import report

    sources = dict(sources)
    for name in {d.span.file for d in diagnostics} - set(sources):
        with suppress(OSError, ValueError):  # shown without its line, then
            sources[name] = Path(name).read_text(encoding="utf-8")
    print(report.to_text(diagnostics, sources, _color()), file=sys.stderr)


def _refuse(error: SpecError, text: str, file: str) -> int:
    _complain(error.diagnostics, {file: text})
    return FAULT


def _directory(name: str) -> Path:
    """Where the tables are that a spec names."""
    return Path() if name == "-" else Path(name).parent


def _told(status: object, file: str) -> Callable[[str, float], None] | None:
    """What tells a spinner how far a long check is."""
    if not hasattr(status, "update"):
        return None

    def told(what: str, part: float) -> None:
        status.update(f"{file}: {what}, {part:.0%}")

    return told


def _progress(message: str) -> AbstractContextManager[object]:
    """A spinner on a terminal for what may take longer than a second; nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(message)


# -- verbs ----------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from sched_compiler import report
    from sched_compiler.driver import check_text

    reports: list[CheckReport] = []
    sources: dict[str, str] = {}
    files = _files(arguments.specs)
    with _progress(f"checking {len(files)} specs") as status:
        for name in files:
            text, file = _read(name)
            sources[file] = text
            reports.append(check_text(text, file, _directory(name), _told(status, file)))
    diagnostics = [d for r in reports for d in r.diagnostics]
    if arguments.format == "json":
        print(json.dumps([r.as_json() for r in reports], indent=2))
    elif arguments.format == "sarif":
        print(report.to_sarif(diagnostics))
    elif arguments.format == "github":
        if diagnostics:
            print(report.to_github(diagnostics))
    else:
        _check_text(reports, sources)
    failed = any(not r.ok for r in reports) or (arguments.strict and bool(diagnostics))
    return FAULT if failed else OK


def _check_text(reports: Sequence[CheckReport], sources: dict[str, str]) -> None:
    for r in reports:
        if r.diagnostics:
            _complain(r.diagnostics, sources)
        if r.ok:
            late = any(v.status == "launch" for v in r.verdicts)
            print(f"{r.file}: proven{', for tables that pass their check' if late else ''}")
            for v in r.verdicts:
                print(f"  {v.property:<9} {v.how}")
    held = sum(r.ok for r in reports)
    print(f"{held} of {len(reports)} specs proven", file=sys.stderr)


def _expand(arguments: argparse.Namespace) -> int:
    from sched_compiler.diagnostics import SpecError
    from sched_compiler.driver import expand

    text, file = _read(arguments.spec)
    try:
        sys.stdout.write(expand(text, file, _directory(arguments.spec)))
    except SpecError as e:
        return _refuse(e, text, file)
    return OK


def _number(text: str, what: str) -> int:
    if len(text) > MOST_DIGITS:
        raise UsageError(f"{what}: an integer of {len(text)} characters does not fit 64 bits")
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{what}: {text!r} is not an integer") from None


def _table(path: str) -> Any:
    from sched_compiler.tables import TableError, read_table

    try:
        return read_table(Path(path).name, Path(path).parent)
    except TableError as e:
        raise UsageError(f"cannot read {path}: {e}") from None


def _responses(path: str) -> Any:
    from sched_compiler.responses import read_responses

    try:
        return read_responses(Path(path))
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from None
    except ValueError as e:
        raise UsageError(f"--responses: cannot read {path}: {e}") from None


def _require_clc(text: str, file: str, directory: Path) -> None:
    from sched_compiler.loader import load

    if load(text, file, directory).spec.dispatch.clc is None:
        raise UsageError(f"--responses are those of dispatch clc, which {file} does not have")


def _trace(arguments: argparse.Namespace) -> int:
    from sched_compiler import drawing
    from sched_compiler.diagnostics import SpecError
    from sched_compiler.driver import trace

    values: dict[str, int] = {}
    for pair in arguments.set:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes NAME=VALUE, not {pair[:80]!r}")
        if name in values:
            raise UsageError(f"--set gives {name} twice")
        values[name] = _number(value, f"--set {name}")
    tables: dict[str, Any] = {}
    for pair in arguments.table:
        name, equals, path = pair.partition("=")
        if not equals or not name or name in tables:
            raise UsageError(f"--table takes NAME=FILE, each name once, not {pair!r}")
        tables[name] = _table(path)
    follow = None
    if arguments.follow is not None:
        follow = list(dict.fromkeys(_number(w, "--follow") for w in arguments.follow.split(",")))
    text, file = _read(arguments.spec)
    responses = None if arguments.responses is None else _responses(arguments.responses)
    try:
        if responses is not None:
            _require_clc(text, file, _directory(arguments.spec))
        with _progress(f"tracing with {arguments.engine}"):
            result = trace(
                text, file, values=values, workers=arguments.workers, engine=arguments.engine, follow=follow,
                tables=tables, directory=_directory(arguments.spec), responses=responses,
            )  # fmt: skip
    except SpecError as e:
        return _refuse(e, text, file)
    if arguments.format == "json":
        json.dump(result.as_json(), sys.stdout, separators=(",", ":"))
        print()
    else:
        print(drawing.trace_text(result, follow))
    return OK


def _emit(arguments: argparse.Namespace) -> int:
    from sched_compiler.compiling import files_of
    from sched_compiler.diagnostics import SpecError
    from sched_compiler.driver import CompileRequest, check, emit_text
    from sched_compiler.launcher import emit_launcher

    text, file = _read(arguments.spec)
    directory, read = str(_directory(arguments.spec)), [arguments.spec]
    request = CompileRequest(text, file, arguments.arch, directory=directory, include=tuple(arguments.include))
    try:
        if arguments.to == "launcher":
            result = emit_launcher(request)
            read += files_of(request, request.load())[1]
        else:
            result = emit_text(check(text, file, _directory(arguments.spec)), arguments.to, arguments.arch)
    except SpecError as e:
        return _refuse(e, text, file)
    if arguments.output is None:
        sys.stdout.write(result)
    else:
        _write_apart([(arguments.output, result.encode())], read)
    return OK


def _compile(arguments: argparse.Namespace) -> int:
    from sched_compiler.artifact import SUFFIXES
    from sched_compiler.diagnostics import SpecError
    from sched_compiler.driver import CompileRequest, compile_spec

    if arguments.depfile is not None and arguments.output == "-":
        raise UsageError("--depfile says what a file depends on, and standard output is none")
    if arguments.server is not None:
        from sched_compiler import client

        if wrong := client.fault_of_address(arguments.server):
            raise UsageError(f"--server takes the address of a service, such as http://127.0.0.1:8000: {wrong}")
    text, file = _read(arguments.spec)
    directory = str(_directory(arguments.spec))
    request = CompileRequest(
        text, file, arguments.arch, arguments.backend, arguments.emit, directory, include=tuple(arguments.include)
    )
    try:
        with _progress(f"compiling for {arguments.arch}"):
            artifact = None
            if arguments.server is not None:
                try:
                    artifact = client.compile_remotely(arguments.server, request)
                except client.UnreachableError as e:
                    print(f"schedc: {e}; compiling here instead", file=sys.stderr)
            if artifact is None:
                artifact = compile_spec(request)
    except SpecError as e:
        return _refuse(e, text, file)
    output = arguments.output or f"{artifact.manifest['name']}.{arguments.arch}.{SUFFIXES[artifact.emit]}"
    # what describes the artifact comes first: where this is interrupted, the artifact is still the old one
    written = []
    if arguments.depfile is not None:
        written.append((arguments.depfile, _depfile(output, arguments.spec, artifact.files)))
    if output != "-":
        written.append((f"{output}.json", (json.dumps(artifact.manifest, indent=2) + "\n").encode()))
    _write_apart([*written, (output, artifact.blob)], [arguments.spec, *artifact.files])
    if artifact.warnings:
        _complain(artifact.warnings, {file: text})
    print(f"{output}: {len(artifact.blob)} bytes, sha256 {artifact.manifest['digest']}", file=sys.stderr)
    return OK


def _depfile(target: str, spec: str, files: Sequence[str]) -> bytes:
    from sched_compiler.outputs import depfile

    try:
        return os.fsencode(depfile(target, [*([] if spec == "-" else [spec]), *files]))
    except ValueError as e:
        raise UsageError(f"--depfile cannot hold every path: {e}") from None


def _write_apart(outputs: Sequence[tuple[str, bytes]], read: Sequence[str]) -> None:
    """Write files in this order, or none of them where one is a file that was read."""
    from sched_compiler.outputs import clash

    if (fault := clash([name for name, _ in outputs], read)) is not None:
        raise UsageError(fault)
    for name, data in outputs:
        _write(name, data)


def _write(name: str, data: bytes) -> None:
    from sched_compiler.outputs import write_whole

    if name == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        write_whole(name, data)
    except OSError as e:
        raise UsageError(f"cannot write {name}: {e.strerror}") from None


def _serve(arguments: argparse.Namespace) -> int:
    from service import serve

    return serve(arguments.host, arguments.port)


def _schema(arguments: argparse.Namespace) -> int:
    from sched_compiler.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return OK


if __name__ == "__main__":
    sys.exit(main())
