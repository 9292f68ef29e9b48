"""A compiler that does what its spec tells it to; stands in for `sched_compiler.driver` in worker processes.

The spec is lines of `name: value`; lines that begin with `#` are no part of it. Names:

    log        a file that gets one line for each compile
    sleep      seconds that the compile takes          key_sleep, check_sleep   the same, elsewhere
    crash      exit code with which the process ends   allocate                 MiB that the compile wants
    size       bytes of the artifact                   refuse                   code of a diagnostic that is raised
    fault      what to do wrong: raise, recurse, digest, key, print, spawn
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sched_compiler.artifact import JSON, Artifact, Emit
from sched_compiler.diagnostics import Diagnostic, Span, SpecError


@dataclass(frozen=True)
class CompileRequest:
    text: str
    file: str
    arch: str
    backend: str
    emit: Emit
    files: dict[str, str] | None = None
    include: tuple[str, ...] = ()
    confined: bool = False


@dataclass(frozen=True)
class CheckReport:
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not self.diagnostics

    def as_json(self) -> dict[str, JSON]:
        return {"ok": self.ok, "verdicts": [{"property": "coverage", "holds": self.ok}]}


def _read(text: str, file: str) -> dict[str, str]:
    if text.startswith("{"):
        try:
            return {str(name): str(value) for name, value in json.loads(text).items()}
        except (ValueError, RecursionError, AttributeError):
            _refuse("E002", file, 1)
    values = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if "\0" in line:
            _refuse("E006", file, number)
        name, colon, value = line.partition(":")
        if not line.startswith("#") and colon:
            values[name.strip()] = value.strip()
    if any("\0" in value for value in values.values()):
        _refuse("E006", file, 1)
    return values


def _refuse(code: str, file: str, line: int) -> NoReturn:
    raise SpecError([Diagnostic(code, "refused as asked", Span(file, line, 1, line, 2), mend="ask for something else")])


def artifact_key(request: CompileRequest) -> str:
    values = _read(request.text, request.file)
    if "\0" in "".join(values.values()):
        _refuse("E006", request.file, 1)
    time.sleep(float(values.get("key_sleep", 0)))
    if request.arch == "unknown":
        _refuse("E053", request.file, 1)
    if values.get("fault") == "key":
        return "../../etc/passwd"
    named = [sorted(values.items()), request.arch, request.backend, request.emit]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def compile_spec(request: CompileRequest) -> Artifact:
    values = _read(request.text, request.file)
    if "log" in values:
        with Path(values["log"]).open("a") as log:
            log.write(f"{os.getpid()}\n")
    if "refuse" in values:
        _refuse(values["refuse"], request.file, 3)
    if values.get("fault") == "raise":
        raise ZeroDivisionError("a fault of the compiler")
    if values.get("fault") == "recurse":
        return compile_spec(request)
    if values.get("fault") == "print":
        print("a library that prints")
        os.write(1, b"and another that writes to the descriptor\n")
        sys.stdout.flush()
    if values.get("fault") == "spawn":
        child = subprocess.Popen(["sleep", "60"])
        Path(values["pids"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(float(values.get("sleep", 0)))
    if "crash" in values:
        os._exit(int(values["crash"]))
    if "allocate" in values:
        bytearray(int(values["allocate"]) << 20)
    key = artifact_key(request)
    blob = (key.encode() * (int(values.get("size", 1000)) // 64 + 1))[: int(values.get("size", 1000))]
    digest = hashlib.sha256(b"" if values.get("fault") == "digest" else blob).hexdigest()
    return Artifact(key, request.emit, blob, {"digest": digest, "entry": "trace", "arch": request.arch})


def check_text(text: str, file: str, files: dict[str, str] | None = None) -> CheckReport:
    try:
        values = _read(text, file)
        if "refuse" in values:
            _refuse(values["refuse"], file, 3)
    except SpecError as error:
        return CheckReport(error.diagnostics)
    time.sleep(float(values.get("check_sleep", 0)))
    if "crash" in values:
        os._exit(int(values["crash"]))
    return CheckReport(())


def capabilities() -> dict[str, JSON]:
    return {"architectures": ["sm_90a"], "backends": ["cuda", "ptx"], "versions": {"fake": "1"}}
