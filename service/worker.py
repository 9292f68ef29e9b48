"""A worker process: takes tasks on standard input, answers on standard output, and does nothing else.

It runs the functions of one module, the *compiler* (`sched_compiler.driver`, unless the server was given another):

    CompileRequest(text, file, arch, backend, emit, files, include, confined)
    artifact_key(request) -> str          64 lower-case hex digits; raises SpecError
    compile_spec(request) -> Artifact     raises SpecError
    check_text(text, file, files) -> report      .ok, .diagnostics, .as_json()["verdicts"]
    capabilities() -> dict                optional: architectures, backends, versions
    warm_up() -> None                     optional: loads what the first compile would load

Three guards hold even when no Python code runs any more: the address space is limited, a timer that the kernel keeps
ends the process a little after its task should have been ended by the server, and the end of standard input (the server
is gone) ends an idle worker. So a worker never outlives its server by more than one task's time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import traceback
from typing import Any, BinaryIO

from sched_compiler.diagnostics import Diagnostic, Span, SpecError
from service.wire import HEADER, encode

#: Seconds after a task's time at which the worker ends itself, should the server not have done so.
ALARM_GRACE = 2.0


def main() -> None:
    """Read one line of settings, announce `ready`, then answer tasks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when a worker ends; see `Pool.close`
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    requests, answers = _take_over_pipes()
    first = _receive(requests)
    if first is None:
        return
    _limit(int(first["memory_bytes"]))
    compiler = importlib.import_module(first["compiler"])
    if hasattr(compiler, "warm_up"):
        compiler.warm_up()
    gc.collect()
    gc.freeze()  # what is there now stays: no collection need look at it between two compiles
    capabilities = compiler.capabilities() if hasattr(compiler, "capabilities") else {}
    _send(answers, encode({"answer": "ready", "capabilities": capabilities}))
    while (task := _receive(requests)) is not None:
        signal.setitimer(signal.ITIMER_REAL, float(task["timeout"]) + ALARM_GRACE)
        answer = _answer(compiler, task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)
    shutil.rmtree(first["scratch"], ignore_errors=True)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard output becomes standard error, so that a library that prints does not garble the answers."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _receive(stream: BinaryIO) -> dict[str, Any] | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, _ = HEADER.unpack(header)
    text = stream.read(length)
    message: dict[str, Any] | None = json.loads(text) if len(text) == length else None
    return message


def _send(stream: BinaryIO, data: bytes) -> None:
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)  # the server is gone: nobody is left to tell


def _answer(compiler: Any, task: dict[str, Any]) -> bytes:
    """Do one task; whatever the compiler raises becomes an answer."""
    try:
        return _do(compiler, task)
    except SpecError as error:
        return encode({"answer": "refused", "diagnostics": [d.as_json() for d in error.diagnostics]})
    except RecursionError:
        place = Span(task["file"], 1, 1, 1, 1)
        deep = Diagnostic("E005", "the spec is nested too deeply", place)
        return encode({"answer": "refused", "diagnostics": [deep.as_json()]})
    except MemoryError:
        return encode({"answer": "memory"})
    except Exception:
        return encode({"answer": "fault", "traceback": traceback.format_exc()})


def _do(compiler: Any, task: dict[str, Any]) -> bytes:
    if task["do"] == "check":
        report = compiler.check_text(task["text"], task["file"], task["files"])
        return encode(
            {
                "answer": "done",
                "ok": bool(report.ok),
                "diagnostics": [d.as_json() for d in report.diagnostics],
                "verdicts": report.as_json().get("verdicts", []),
            }
        )
    request = compiler.CompileRequest(
        text=task["text"], file=task["file"], arch=task["arch"], backend=task["backend"], emit=task["emit"],
        files=task["files"], include=tuple(task["include"]), confined=True,
    )  # fmt: skip
    if task["do"] == "key":
        return encode({"answer": "done", "key": compiler.artifact_key(request)})
    artifact = compiler.compile_spec(request)
    return encode(
        {"answer": "done", "key": artifact.key, "emit": artifact.emit, "manifest": artifact.manifest}, artifact.blob
    )


if __name__ == "__main__":
    main()
