"""The server as a process: start, stop, drain, and that no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from service.server import serve
from tests.service.support import COMPILER, ROOT, TARGET, YAML, Server, alive, served, settings, start


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Request(threading.Thread):
    """One POST /compile in the background."""

    def __init__(self, server: Server, spec: str) -> None:
        super().__init__()
        self._connection, self._spec = server.connect(timeout=20), spec
        self.answer: tuple[int, bytes] | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._connection.request("POST", TARGET, self._spec, YAML)
            response = self._connection.getresponse()
            self.answer = (response.status, response.read())
        except Exception as error:
            self.answer = error
        finally:
            self._connection.close()

    def result(self) -> Any:
        self.join(20)
        return self.answer


def busy(server: Server) -> None:
    """Wait until a compile runs."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        connection = server.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        if 'schedc_workers_busy{pool="compile"} 1.0' in text:
            return
    pytest.fail("no compile has begun")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished_before_the_end(tmp_path: Path, how: signal.Signals) -> None:
    with served(settings(tmp_path)) as server:
        idle = server.connect()
        idle.request("GET", "/healthz")
        idle.getresponse().read()  # and the connection is kept
        children = server.children()
        assert len(children) == 2
        request = Request(server, "sleep: 0.7")
        busy(server)
        server.process.send_signal(how)
        status, _ = request.result()
        assert status == 200
        assert server.process.wait(5) == 0
        assert gone(children)
        idle.close()
        with pytest.raises(ConnectionRefusedError):
            server.connect().connect()
        assert "Traceback" not in server.log.read_text()


def test_draining_has_a_deadline(tmp_path: Path) -> None:
    with served(settings(tmp_path, drain_seconds=0.5, compile_timeout=60)) as server:
        children = server.children()
        request = Request(server, "sleep: 50")
        busy(server)
        started = time.monotonic()
        server.process.terminate()
        status, body = request.result()
        assert status == 503
        assert json.loads(body)["diagnostics"][0]["message"] == "the server is being stopped"
        assert server.process.wait(5) == 0
        assert time.monotonic() - started < 5
        assert gone(children)


def test_no_process_outlives_a_server_that_was_killed(tmp_path: Path) -> None:
    with served(settings(tmp_path, compile_timeout=1.0)) as server:
        children = server.children()
        request = Request(server, "sleep: 50")
        busy(server)
        server.process.kill()
        assert isinstance(request.result(), Exception)
        # The idle worker notices at once, the busy one is ended by its own timer.
        assert gone(children, 6.0)


def test_a_server_starts_again_on_the_same_port(tmp_path: Path) -> None:
    with served(settings(tmp_path)) as server:
        assert Request(server, "a: 1").result()[0] == 200
        server.process.terminate()
        server.process.wait(5)
        with start(settings(tmp_path), port=server.port) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"schedc: listening on http://127.0.0.1:{server.port}\n"
            process.kill()


def test_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with start(settings(tmp_path), host="::1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("schedc: listening on http://[::1]:")
        process.kill()


@pytest.mark.parametrize("host", ["127.0.0.1", "no host at all", "\x00", "a" * 300])
def test_an_address_that_cannot_be_had_is_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve(host, port, settings(tmp_path), COMPILER) == 2
    error = capsys.readouterr().err
    assert error.startswith("schedc serve: error: cannot listen on ")
    assert error.count("\n") == 1


def test_a_port_that_is_none_is_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("127.0.0.1", 70_000, settings(tmp_path), COMPILER) == 2
    assert "port 70000" in capsys.readouterr().err


def test_a_wrong_setting_is_a_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SCHEDC_WORKERS", "-3")
    assert serve("127.0.0.1", 0, None, COMPILER) == 2
    assert "SCHEDC_WORKERS='-3'" in capsys.readouterr().err


def test_a_compiler_that_does_not_load_is_a_message(tmp_path: Path) -> None:
    code = "import sys, service; sys.exit(service.serve('127.0.0.1', 0, None, 'no.such.module'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SCHEDC_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1
    assert "No module named 'no'" in ended.stderr
    assert "schedc serve: error: the server did not start" in ended.stderr


def test_the_package_is_light_to_import() -> None:
    code = "import sys, service.worker; print([m for m in ('fastapi', 'starlette', 'uvicorn') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_module_help() -> None:
    command = [sys.executable, "-m", "service", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "--port" in ended.stdout
