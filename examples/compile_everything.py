"""Starts the service, compiles every spec of `specs/` through it, for two architectures and with both backends.

Each is asked for twice: a miss, then a hit, whose bytes must be equal. Run it with the Python that the product is
installed in; it needs no GPU. The exit code is 0 when all went well.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SPECS = Path(__file__).resolve().parent.parent / "specs"
ARCHITECTURES = ("sm_90a", "sm_100a")
BACKENDS = ("cuda", "ptx")
#: Seconds that the service may take for one answer, and to end.
PATIENCE = 120.0


class DemoError(Exception):
    """An answer that should not have been."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    milliseconds: float


@contextmanager
def service() -> Iterator[http.client.HTTPConnection]:
    """A service of its own on a free port of the loopback interface, with an empty cache; stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="schedc-demo-") as directory:
        environment = {**os.environ, "SCHEDC_CACHE_DIR": str(Path(directory, "cache")), "SCHEDC_LOG_LEVEL": "error"}
        command = [sys.executable, "-m", "sched_compiler.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip().rpartition("http://")[2]
                if not address:
                    raise DemoError(f"the service did not start (exit code {process.wait(PATIENCE)})")
                print(f"service on http://{address}\n")
                connection = http.client.HTTPConnection(address, timeout=PATIENCE)
                yield connection
                connection.close()
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    code = process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
            if code != 0:
                raise DemoError(f"the service ended with {code}")
    print("service stopped")


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, accept: str) -> Answer:
    headers = {"Accept": accept} | ({"Content-Type": "application/yaml"} if body is not None else {})
    started = time.perf_counter()
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    return Answer(reply.status, reply.headers, content, (time.perf_counter() - started) * 1000)


def require(condition: bool, what: str) -> None:
    if not condition:
        raise DemoError(what)


def compile_one(
    connection: http.client.HTTPConnection, text: bytes, arch: str, backend: str
) -> tuple[int, int, float, float]:
    """(bytes, registers, milliseconds cold, milliseconds hit) of one cubin."""
    path = f"/compile?arch={arch}&backend={backend}"
    miss = ask(connection, "POST", path, text, "application/octet-stream")
    require(miss.status == 200, f"{path} answered {miss.status}: {miss.body.decode(errors='replace')}")
    require(miss.headers["X-Cache"] == "miss", "the first answer should be a miss")
    hit = ask(connection, "POST", path, text, "application/octet-stream")
    require(hit.status == 200 and hit.headers["X-Cache"] == "hit", "the second answer should be a hit")
    require(hit.body == miss.body, "the hit and the miss should have the same bytes")
    require(hit.body.startswith(b"\x7fELF"), "a cubin should be an ELF file")
    require(hit.headers["ETag"] == f'"{hashlib.sha256(hit.body).hexdigest()}"', "the ETag should be the bytes' digest")
    again = ask(connection, "GET", hit.headers["Content-Location"], None, "application/octet-stream")
    require(again.status == 200 and again.body == miss.body, "the artifact's address should give the same bytes")
    manifest = json.loads(ask(connection, "GET", hit.headers["Content-Location"], None, "application/json").body)
    return len(hit.body), int(manifest["resources"]["registers"]), miss.milliseconds, hit.milliseconds


def main() -> int:
    specs = sorted(SPECS.glob("*.yaml"))
    row = "{:<42} {:<7} {:<7} {:<8} {:>6} {:>9} {:>8} {:>7}"
    cold: list[float] = []
    hits: list[float] = []
    try:
        require(bool(specs), f"there is no spec in {SPECS}")
        with service() as connection:
            print(row.format("spec", "verdict", "backend", "arch", "bytes", "registers", "cold ms", "hit ms"))
            for spec in specs:
                text = spec.read_bytes()
                report = json.loads(ask(connection, "POST", "/check", text, "application/json").body)
                require(report["ok"] is True, f"{spec.name} does not hold: {report}")
                for backend in BACKENDS:
                    for arch in ARCHITECTURES:
                        size, registers, miss, hit = compile_one(connection, text, arch, backend)
                        cold.append(miss)
                        hits.append(hit)
                        print(row.format(
                            spec.stem, "proven", backend, arch, size, registers, f"{miss:.1f}", f"{hit:.2f}"
                        ))  # fmt: skip
            print(f"\n{len(specs)} specs, {len(cold)} cubins; hit and miss gave the same bytes every time")
    except (DemoError, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
