"""A user's source compiled where there is nothing to read: bubblewrap around a process of its own.

NVRTC prints the first line of any file that a source includes, by whatever spelling, so no filter of sources is a
boundary. Inside are Python, the compiler and an empty /tmp; no network, no other process, no file of this machine
besides; and limits of time, memory and size.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sched_compiler.registry import LimitError

from .errors import ToolchainError, ToolMissing
from .library import Compiled, find


@dataclass(frozen=True, slots=True)
class Limits:
    """What one compile may take."""

    seconds: int = 45
    memory: int = 4 << 30  # address space, bytes
    output: int = 64 << 20  # a file, bytes


def compile_confined(request: dict[str, Any], limits: Limits = Limits()) -> tuple[Compiled, str | None]:
    """What `nvrtc.compile_with_headers(**request)` gives, from inside a sandbox.

    Raises ToolchainError, ToolMissing where there is no sandbox, and LimitError.
    """
    if (reason := unavailable()) is not None:
        raise ToolMissing("bubblewrap", reason)
    reply = _run(json.dumps(request), limits)
    if "error" in reply:
        raise ToolchainError(reply["error"], reply["line"], reply["column"])
    return Compiled(base64.b64decode(reply["blob"]), reply["log"]), reply["lowered"]


@functools.cache
def unavailable() -> str | None:
    """Why sources cannot be confined on this machine; None where they can. Tried once, with an empty source."""
    if sys.platform != "linux":
        return f"there is no bubblewrap on {sys.platform}"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    try:
        request = {"source": "", "name": "probe", "arch": "sm_90", "emit": "cubin", "headers": {}}
        _run(json.dumps(request), Limits(seconds=20))
    except (LimitError, ToolchainError, OSError) as e:
        return f"bubblewrap does not work here: {e}"
    return None


def _run(request: str, limits: Limits) -> dict[str, Any]:
    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds))
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.output, limits.output))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            _command(), input=request.encode(), capture_output=True, timeout=limits.seconds, check=False,
            preexec_fn=confine, env={},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LimitError(f"the compiler took longer than {limits.seconds} seconds") from None
    try:
        reply: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        what = said[-1][:200] if said else f"it ended with {done.returncode}"
        raise LimitError(f"the compiler was ended within its limits: {what}") from None
    return reply


def _command() -> list[str]:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    libraries = _libraries()
    for source, target in (*_python(), *libraries):
        command += ["--ro-bind", source, target]
    for link, target in _links():
        command += ["--symlink", target, link]
    for package in ("backends", "sched_compiler"):  # the latter for the errors that the former raises
        command += ["--ro-bind", str(Path(__file__).resolve().parents[2] / package), f"/schedc/{package}"]
    for source, target in _wheels():
        command += ["--ro-bind", source, target]
    command += ["--dev", "/dev", "--size", str(64 << 20), "--tmpfs", "/tmp", "--chdir", "/tmp"]
    folders = ":".join(dict.fromkeys(str(Path(target).parent) for _, target in libraries))
    environment = {"PYTHONPATH": "/schedc", "HOME": "/tmp", "LANG": "C.UTF-8", "LD_LIBRARY_PATH": folders}
    for name, value in environment.items():
        command += ["--setenv", name, value]
    python = os.path.realpath(sys.executable)
    return [*command, python, "-s", "-B", "-m", "backends.toolchain.confined"]


def _python() -> list[tuple[str, str]]:
    """(here, there) of Python itself and its standard library."""
    paths = (os.path.realpath(sys.executable), sysconfig.get_path("stdlib"))
    return [(path, path) for path in paths]


#: What the process in the sandbox loads: the shared libraries that are in memory when all of it is there.
_LOADED = """
from backends.toolchain import confined, nvrtc
nvrtc.architectures()
print(open("/proc/self/maps").read())
"""


@functools.cache
def _libraries() -> tuple[tuple[str, str], ...]:
    """(here, there) of the shared libraries that Python and the compiler need, under each name that leads to one.

    Only these, and not the folders that hold them: what else stands there says much of a machine.
    """
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=False, timeout=60)
    mapped = {line.split(maxsplit=5)[5] for line in done.stdout.splitlines() if line.count("/") and ".so" in line}
    own = (sysconfig.get_path("stdlib"), str(find("nvidia-cuda-nvrtc", "libnvrtc.so").path.resolve().parent))
    pairs: dict[str, str] = {}
    for file in sorted(mapped):
        if file.startswith(own):
            continue
        for name in Path(file).parent.iterdir():
            if name.name.startswith(("lib", "ld")) and os.path.realpath(name) == file:
                pairs[str(name)] = file
    for folder in ("/lib64", "/lib"):  # where programs say that their loader is
        for name in Path(folder).glob("ld-linux*"):
            pairs[str(name.parent.resolve() / name.name)] = os.path.realpath(name)
    return tuple((file, name) for name, file in pairs.items())


@functools.cache
def _links() -> tuple[tuple[str, str], ...]:
    """(link, target) of the folders that are links on this system, as /lib is to /usr/lib."""
    return tuple((p, str(Path(p).readlink())) for p in ("/lib", "/lib64", "/bin") if Path(p).is_symlink())


@functools.cache
def _wheels() -> tuple[tuple[str, str], ...]:
    """(here, there) of the compiler: its libraries, and the record by which it is found."""
    library = find("nvidia-cuda-nvrtc", "libnvrtc.so")
    record = Path(str(metadata.distribution("nvidia-cuda-nvrtc")._path))  # type: ignore[attr-defined]
    site = record.parent
    there = Path("/schedc")
    folder = library.path.resolve().parent
    pairs = [(str(record), str(there / record.name)), (str(folder), str(there / folder.relative_to(site.resolve())))]
    return tuple(pairs)
