"""Runs the application in this process, or the real server as a process of its own, with the fake compiler."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client import CollectorRegistry

from service import create_app
from service.artifacts import Artifacts
from service.settings import Settings, variable

COMPILER = "tests.service.fake_compiler"
ROOT = Path(__file__).parents[2]
YAML = {"Content-Type": "application/yaml"}
TARGET = "/compile?arch=sm_90a"
T = TypeVar("T")


def settings(directory: Path, **more: Any) -> Settings:
    """Small and quick, unless told otherwise."""
    chosen = {"cache_dir": directory / "cache", "workers": 1, "front_workers": 1, "compile_timeout": 5.0, **more}
    return Settings.model_validate(chosen)


@dataclass(frozen=True)
class Running:
    """An application with its workers, and a client that talks to it without a socket."""

    client: httpx.AsyncClient
    artifacts: Artifacts

    async def compile(self, spec: str, **more: Any) -> httpx.Response:
        return await self.client.post(TARGET, content=spec, headers={**YAML, **more})

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    @property
    def registry(self) -> CollectorRegistry:
        return self.artifacts.metrics.registry


@asynccontextmanager
async def running(chosen: Settings) -> AsyncIterator[Running]:
    app = create_app(chosen, COMPILER)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client,
    ):
        yield Running(client, app.state.artifacts)


def with_app(chosen: Settings, test: Callable[[Running], Awaitable[T]]) -> T:
    """Run `test` against an application of its own."""

    async def run() -> T:
        async with running(chosen) as service:
            return await test(service)

    return asyncio.run(run())


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until `condition` holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: int
    log: Path

    def connect(self, timeout: float = 10.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def children(self) -> list[int]:
        """Process ids of the server's children, of whichever of its threads they are."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for children in lists for pid in children.read_text().split()]


def start(
    chosen: Settings, host: str = "127.0.0.1", port: int = 0, compiler: str = COMPILER, **variables: str
) -> subprocess.Popen[str]:
    """The real server as `schedc serve` runs it, but for its compiler and environment."""
    environment = {variable(name): str(value) for name, value in chosen.model_dump().items()}
    code = f"import sys, service; sys.exit(service.serve({host!r}, {port}, None, {compiler!r}))"
    with (chosen.cache_dir.parent / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT), **variables},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


@contextmanager
def served(chosen: Settings, compiler: str = COMPILER, **variables: str) -> Iterator[Server]:
    log = chosen.cache_dir.parent / "log"
    with start(chosen, "127.0.0.1", 0, compiler, **variables) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("schedc: listening on http://127.0.0.1:"), log.read_text()
            yield Server(process, int(line.rpartition(":")[2]), log)
        finally:
            process.kill()
