"""The client against a service that misbehaves in every way: it compiles locally, or says what the service said."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sched_compiler.cli import main
from sched_compiler.client import UnreachableError, compile_remotely
from sched_compiler.diagnostics import SpecError
from sched_compiler.driver import CompileRequest

TEXT = "version: 1\nname: x\nspace: {m: 4}\ndispatch: single\n"
REQUEST = CompileRequest(TEXT, "dir/x.yaml", "sm_90a", "ptx", "cubin")
BLOB = b"\x7fELF and the rest"
#: (status, body) for a method and a path.
Answer = Callable[[str, str], tuple[int, bytes]]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A service on the loopback; its address, and the requests that it got."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            seen.append({"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body})
            status, data = answer(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = reply  # noqa: N815  the names that the standard library looks for

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def manifest(**changes: Any) -> bytes:
    form = {
        "key": "a" * 64,
        "digest": hashlib.sha256(BLOB).hexdigest(),
        "address": f"/artifacts/{'a' * 64}",
        "cache": "hit",
        "name": "x",
        **changes,
    }
    return json.dumps({k: v for k, v in form.items() if v is not None}).encode()


def answers(post: tuple[int, bytes], get: tuple[int, bytes] = (200, BLOB)) -> Answer:
    return lambda method, path: post if method == "POST" else get


def test_the_artifact_comes_with_its_manifest() -> None:
    with serving(answers((200, manifest()))) as (url, seen):
        artifact = compile_remotely(url + "/", REQUEST)
    assert (artifact.blob, artifact.key, artifact.emit) == (BLOB, "a" * 64, "cubin")
    assert artifact.manifest == {"key": "a" * 64, "digest": hashlib.sha256(BLOB).hexdigest(), "name": "x"}
    post, get = seen
    assert post["body"].decode() == TEXT
    assert parse_qs(urlsplit(post["path"]).query) == {"arch": ["sm_90a"], "backend": ["ptx"], "emit": ["cubin"]}
    assert post["headers"]["Content-Type"] == "application/yaml"
    assert get["path"] == f"/artifacts/{'a' * 64}"


def test_the_artifact_knows_the_files_that_were_sent(tmp_path: Path) -> None:
    spec = (
        "{version: 1, name: x, tables: {t: {file: t.json}}, space: {m: 2}, order: {points: {m: t}}, dispatch: single, "
        "kernel: {source: x.cu, entry: x, block: 32, arguments: [tiles: schedule]}}"
    )
    (tmp_path / "inc").mkdir()
    for name in ("x.h", "inc/y.h"):
        (tmp_path / name).touch()
    (tmp_path / "t.json").write_text("[1, 0]")
    (tmp_path / "x.cu").write_text('#include "x.h"\n#include <y.h>\n')
    request = CompileRequest(spec, "x", "sm_90a", directory=str(tmp_path), include=(str(tmp_path / "inc"),))
    with serving(answers((200, manifest()))) as (url, _):
        files = compile_remotely(url, request).files
    assert [Path(file).relative_to(tmp_path).as_posix() for file in files] == ["inc/y.h", "t.json", "x.cu", "x.h"]


def test_a_service_below_a_path() -> None:
    with serving(answers((200, manifest(address=f"artifacts/{'a' * 64}")))) as (url, seen):
        compile_remotely(f"{url}/schedules/", REQUEST)
    assert [urlsplit(r["path"]).path for r in seen] == ["/schedules/compile", f"/schedules/artifacts/{'a' * 64}"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (answers((200, manifest()), (200, BLOB + b"!")), "wrong digest"),
        (answers((200, manifest()), (200, b"")), "wrong digest"),
        (answers((200, manifest()), (404, b"gone")), "answered 404"),
        (answers((200, manifest(digest=None))), "no manifest"),
        (answers((200, manifest(address=None))), "no manifest"),
        (answers((200, manifest(key=None))), "no manifest"),
        (answers((200, manifest(name=None))), "no manifest"),
        (answers((200, b"<html>hello</html>")), "no manifest"),
        (answers((200, b"[1, 2]")), "no manifest"),
        (answers((200, b"\xff\xfe")), "no manifest"),
        (answers((200, b"")), "no manifest"),
        (answers((500, b"oops")), "answered 500"),
        (answers((503, b"{}")), "answered 503"),
        (answers((429, b"")), "answered 429"),
        (answers((413, b"")), "answered 413"),
        (answers((422, b"not json")), "answered 422"),
        (answers((422, b'{"diagnostics": []}')), "answered 422"),
        (answers((422, b'{"diagnostics": [{"code": "E999"}]}')), "answered 422"),
        (answers((422, b'{"diagnostics": 7}')), "answered 422"),
        (answers((422, b"[]")), "answered 422"),
    ],
)
def test_no_usable_answer_is_unreachable(answer: Answer, message: str) -> None:
    with serving(answer) as (url, _), pytest.raises(UnreachableError, match=message):
        compile_remotely(url, REQUEST)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9", "http://", "http://[", "ftp://127.0.0.1/", "file:///etc/passwd", "localhost:8000", "",
     "http://127.0.0.1:99999", "http://no such host/"],
)  # fmt: skip
def test_what_is_no_service_is_unreachable(address: str) -> None:
    with pytest.raises(UnreachableError):
        compile_remotely(address, REQUEST)


def problem(file: str) -> bytes:
    diagnostic = {
        "code": "E023", "severity": "error", "message": "the extent may be negative", "file": file,
        "line": 3, "column": 12, "end_line": 3, "end_column": 14, "found": "-4", "expected": "at least 0", "mend": None,
    }  # fmt: skip
    unknown = {**diagnostic, "code": "E998"}
    return json.dumps({"title": "no", "status": 422, "diagnostics": [diagnostic, unknown]}).encode()


def test_diagnostics_are_placed_in_the_file_that_was_sent() -> None:
    with serving(answers((422, problem("<spec>")))) as (url, _), pytest.raises(SpecError) as caught:
        compile_remotely(url, REQUEST)
    (d,) = caught.value.diagnostics
    assert (d.code, d.span.file, d.span.line, d.span.column) == ("E023", "dir/x.yaml", 3, 12)
    assert (d.found, d.expected, d.mend) == ("-4", "at least 0", None)


def test_faults_of_the_request_keep_their_place() -> None:
    with serving(answers((422, problem("<request: arch>")))) as (url, _), pytest.raises(SpecError) as caught:
        compile_remotely(url, REQUEST)
    assert caught.value.diagnostics[0].span.file == "<request: arch>"


def test_the_command_uses_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(TEXT)
    with serving(answers((200, manifest()))) as (url, _):
        assert main(["compile", "x.yaml", "--arch", "sm_90a", "--server", url, "-o", "x.cubin"]) == 0
    assert Path("x.cubin").read_bytes() == BLOB
    with serving(answers((422, problem("<spec>")))) as (url, _):
        assert main(["compile", "x.yaml", "--arch", "sm_90a", "--server", url]) == 1
    assert "x.yaml:3:12" in capsys.readouterr().err
    with serving(answers((500, b""))) as (url, _):
        assert main(["compile", "x.yaml", "--arch", "sm_90a", "--server", url, "-o", "own.cubin"]) == 0
    assert capsys.readouterr().err.count("compiling here instead") == 1
    assert Path("own.cubin").read_bytes()[:4] == b"\x7fELF"
