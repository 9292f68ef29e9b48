"""The server process: socket, signals, drain."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from service import logs
from service.app import create_app
from service.artifacts import Artifacts
from service.protocol import Protocol
from service.settings import Settings, SettingsError, load_settings

log = structlog.get_logger()

#: Seconds beyond the drain time in which the answers that it cut short still go out.
_LAST_WORDS = 2


class _Server(uvicorn.Server):
    """Says when it is ready, and bounds the time of draining by ending what is still being compiled then."""

    def __init__(self, config: uvicorn.Config, address: str, artifacts: Artifacts, drain_seconds: float) -> None:
        super().__init__(config)
        self._address, self._artifacts, self._drain_seconds = address, artifacts, drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"schedc: listening on {self._address}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("draining", seconds=self._drain_seconds)
        ending = asyncio.create_task(self._end_late_work())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_late_work(self) -> None:
        await asyncio.sleep(self._drain_seconds)
        await self._artifacts.close()


def serve(host: str, port: int, settings: Settings | None, compiler: str) -> int:
    """Serve until SIGINT or SIGTERM. Returns 0 after a graceful stop, 1 when the server could not start, 2 when it was
    called with settings or an address that cannot be."""
    try:
        settings = settings or load_settings()
    except SettingsError as error:
        return _refuse(f"a setting is wrong: {error}", 2)
    try:
        listener = _listen(host, port)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _refuse(f"cannot listen on {host}, port {port}: {reason}", 2)
    logs.configure(settings)
    app = create_app(settings, compiler)
    artifacts: Artifacts = app.state.artifacts
    config = uvicorn.Config(
        app,
        # Built on h11 because it bounds the size of a request's header; it is fast enough (see the benchmark of hits).
        http=type("Protocol", (Protocol,), {"head_timeout": settings.head_timeout}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.drain_seconds) + _LAST_WORDS,
    )
    server = _Server(config, _address(listener), artifacts, settings.drain_seconds)
    try:
        with listener, _quiet_signals():
            server.run(sockets=[listener])
    except SystemExit:  # uvicorn's way to say that the application did not start
        return _refuse("the server did not start; the log says why", 1)
    except KeyboardInterrupt:
        return 0
    finally:
        for pool in artifacts.pools:
            pool.kill_now()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; the event loop makes it listen when the application is ready. Raises `OSError`, `ValueError`."""
    if not 0 <= port <= 65535:  # the resolver would take it modulo 65536
        raise ValueError("a port is a number from 0 to 65535")
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # The protocol is named, not 0, because asyncio turns Nagle's algorithm off only where it reads TCP there; with it,
    # every answer on a kept connection would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refuse(message: str, code: int) -> int:
    print(f"schedc serve: error: {message}", file=sys.stderr, flush=True)
    return code


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it is done: let that not end the process as a death."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
