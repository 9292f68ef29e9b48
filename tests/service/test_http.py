"""The HTTP interface over a real socket: bodies, headers, HEAD, conditional requests."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.service.support import TARGET, YAML, Server

Answer = tuple[int, http.client.HTTPMessage, bytes]


class Client:
    def __init__(self, server: Server) -> None:
        self._server = server

    def __call__(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = self._server.connect()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def compile(self, spec: str = "a: 1", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self("POST", TARGET, spec, {**YAML, **named})


@pytest.fixture(scope="module")
def ask(server: Server) -> Client:
    return Client(server)


def problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert answer[0] == status, answer[2]
    assert answer[1]["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(answer[2])
    assert [d["code"] for d in document["diagnostics"]] == [code], document
    assert document["status"] == status
    return document


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "content_type",
    [None, "application/yaml", "text/yaml", "application/x-yaml", "text/plain", "Text/Plain; charset=UTF-8"],
)
def test_yaml_media_types(ask: Client, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert ask("POST", TARGET, b"a: 1", headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "image/png"},
        {"Content-Type": "nonsense"},
        {"Content-Type": "application/yaml; charset=utf-16"},
        {"Content-Type": "application/yaml", "Content-Encoding": "gzip"},
    ],
)
def test_other_media_types_are_415(ask: Client, headers: dict[str, str]) -> None:
    problem(ask("POST", TARGET, b"a: 1", headers), 415, "E080")
    problem(ask("POST", "/check", b"a: 1", headers), 415, "E080")


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "code"),
    [
        ("/compile", YAML, "a: 1", 400, "E080"),  # no architecture
        ("/compile?arch=", YAML, "a: 1", 400, "E080"),
        (TARGET + "&emit=elf", YAML, "a: 1", 400, "E080"),
        (TARGET + "&emitt=ptx", YAML, "a: 1", 400, "E080"),
        (TARGET + "&arch=sm_80", YAML, "a: 1", 400, "E080"),
        ("/compile?arch=unknown", YAML, "a: 1", 422, "E053"),
        ("/compile?arch=sm%00", YAML, "a: 1", 422, "E053"),
        ("/compile?arch=sm_90a%0d%0aX:%20y", YAML, "a: 1", 422, "E053"),
        ("/compile?arch=" + "x" * 1000, YAML, "a: 1", 422, "E053"),
        ("/compile?arch=%ff%fe", YAML, "a: 1", 422, "E053"),
        (TARGET + "&backend=../..%2f", YAML, "refuse: E053", 422, "E053"),
        (TARGET, YAML, b"a: \xff", 400, "E006"),
        (TARGET, YAML, b"\xff\xfea\x00:\x00", 400, "E006"),
        (TARGET, YAML, b"a: \x00", 422, "E006"),
        (TARGET, JSON, '{"spec": "a: 1"}', 400, "E080"),  # with JSON, nothing stands in the query
        ("/compile", JSON, "", 400, "E080"),
        ("/compile", JSON, "[]", 400, "E080"),
        ("/compile", JSON, "null", 400, "E080"),
        ("/compile", JSON, '{"spec": "a: 1"}', 400, "E080"),
        ("/compile", JSON, '{"arch": "sm_90a"}', 400, "E080"),
        ("/compile", JSON, '{"spec": 7, "arch": "sm_90a"}', 400, "E080"),
        ("/compile", JSON, '{"spec": {}, "arch": 90}', 400, "E080"),
        ("/compile", JSON, '{"spec": {}, "arch": "sm_90a", "emit": ["ptx"]}', 400, "E080"),
        ("/compile", JSON, '{"spec": {}, "arch": "sm_90a", "options": "-I/"}', 400, "E080"),
        ("/compile", JSON, '{"spec": {}, "arch": "sm_90a",}', 400, "E080"),
        ("/compile", JSON, '{"spec": {"a": NaN}, "arch": "sm_90a"}', 400, "E080"),
        ("/compile", JSON, '{"spec": {"a": ' + "9" * 5000 + '}, "arch": "sm_90a"}', 400, "E080"),
        ("/compile", JSON, '{"spec": {"a": 1, "a": 2}, "arch": "sm_90a"}', 400, "E003"),
        ("/compile", JSON, '{"spec": {}, "arch": "sm_90a", "arch": "sm_80"}', 400, "E003"),
        ("/compile", JSON, '{"spec": {"a": "\\u0000"}, "arch": "sm_90a"}', 422, "E006"),
        ("/compile", JSON, '{"spec": "a: \\u0000", "arch": "sm_90a"}', 422, "E006"),
        ("/compile", JSON, '{"spec": "a: \\ud800", "arch": "sm_90a"}', 422, "E006"),
        ("/compile", JSON, '{"spec": {"a": "\\udfff"}, "arch": "sm_90a"}', 422, "E006"),
        ("/compile", JSON, '{"spec": {}, "arch": "sm\\u0000"}', 422, "E053"),
        ("/compile", JSON, '{"spec": {}, "arch": "\\ud800"}', 422, "E053"),
        ("/compile", JSON, '{"spec": {}, "\\ud800": "x"}', 400, "E080"),
        ("/compile", JSON, b'{"spec": "\xc3\x28"}', 400, "E006"),
        ("/check", JSON, '{"spec": {}, "arch": "sm_90a"}', 400, "E080"),
        ("/check?arch=sm_90a", YAML, "a: 1", 400, "E080"),
    ],
)
def test_hostile_requests(
    ask: Client, path: str, headers: dict[str, str], body: str | bytes, status: int, code: str
) -> None:
    data = body.encode() if isinstance(body, str) else body
    problem(ask("POST", path, data, headers), status, code)


def test_a_json_body_with_a_byte_order_mark(ask: Client) -> None:
    body = b'\xef\xbb\xbf{"spec": "a: 1", "arch": "sm_90a"}'
    assert ask("POST", "/compile", body, JSON)[0] == 200


def test_deep_json_is_no_500(ask: Client) -> None:
    for depth in (600, 1300):  # one that Python reads but may not write, and one that it may not even read
        deep = '{"a":' * depth + "1" + "}" * depth
        status, _, body = ask("POST", "/compile", f'{{"spec": {deep}, "arch": "sm_90a"}}', JSON)
        assert status in (200, 400, 422), body
    assert ask("POST", "/compile", b"[" * 8000, JSON)[0] == 400


def test_invalid_utf8_has_a_place(ask: Client) -> None:
    document = problem(ask("POST", TARGET, "a: ä\nb: ü".encode() + b"\xff", YAML), 400, "E006")
    (diagnostic,) = document["diagnostics"]
    assert (diagnostic["line"], diagnostic["column"]) == (2, 5)


def test_malformed_json_has_a_place(ask: Client) -> None:
    (diagnostic,) = problem(ask("POST", "/compile", b'{\n "spec": }', JSON), 400, "E080")["diagnostics"]
    assert (diagnostic["line"], diagnostic["column"]) == (2, 10)


@pytest.mark.parametrize(
    ("word", "message"),
    [("9" * 5000, "the integer does not fit 64 bits"), ("-" + "9" * 5000, "the integer does not fit 64 bits"),
     ("NaN", "NaN is not JSON"), ("-Infinity", "-Infinity is not JSON")],
    ids=["long", "negative", "nan", "infinity"],
)  # fmt: skip
def test_a_number_that_is_none_has_a_place(ask: Client, word: str, message: str) -> None:
    body = '{"spec": {"a": "NaN \\" 7",\n "ä": 1.5, "b": ' + word + '}, "arch": "sm_90a"}'
    (diagnostic,) = problem(ask("POST", "/compile", body.encode(), JSON), 400, "E080")["diagnostics"]
    assert diagnostic["message"].endswith(message)
    assert (diagnostic["line"], diagnostic["column"]) == (2, 17)
    assert diagnostic["end_column"] == 17 + len(word)
    assert "4300" not in json.dumps(diagnostic)


def test_a_spec_given_as_an_object_keeps_the_order_of_its_keys(ask: Client) -> None:
    body = json.dumps({"spec": {"z": 1, "refuse": "E041", "a": 1}, "arch": "sm_90a"})
    (diagnostic,) = problem(ask("POST", "/compile", body, JSON), 422, "E041")["diagnostics"]
    assert diagnostic["file"] == "spec.json"


def test_a_long_body_is_refused_before_it_is_sent(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.sendall(
            b"POST /compile?arch=sm_90a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\nExpect: 100-continue\r\n\r\n"
        )
        answer = raw.makefile("rb").read()  # to the end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer
    assert b'"E081"' in answer


def test_a_long_body_without_length_is_refused_while_it_is_sent(server: Server, ask: Client) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100_000):
            sent += 1024
            yield b"#" * 1024

    try:
        answer = ask("POST", TARGET, chunks(), YAML)
    except (BrokenPipeError, ConnectionResetError):  # the answer came, and the rest was refused, while we were sending
        pass
    else:
        problem(answer, 413, "E081")
    assert sent < 50_000_000


def test_a_body_at_the_limit_is_taken(ask: Client) -> None:
    assert ask("POST", TARGET, b"#" * 8192, YAML)[0] == 200
    problem(ask("POST", TARGET, b"#" * 8193, YAML), 413, "E081")
    problem(ask("POST", TARGET, iter([b"#" * 8192, b"#"]), YAML), 413, "E081")


@pytest.mark.parametrize("length", [b"-1", b"x", b"1e3", b"18446744073709551617", b"9" * 5000, b"3, 4"])
def test_impossible_lengths(server: Server, ask: Client, length: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.sendall(b"POST /compile?arch=sm_90a HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\nabc")
        status = raw.makefile("rb").readline()
    assert status.split()[1] in (b"400", b"413")
    assert ask.compile()[0] == 200


def test_a_body_shorter_than_announced_times_out(server: Server, ask: Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.sendall(b"POST /compile?arch=sm_90a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\na: 1")
        answer = raw.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"E080"' in answer


@pytest.mark.parametrize(
    "garbage",
    [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"GET /" + b"x" * 100_000],
    ids=["words", "tls", "no host", "header", "long"],
)  # fmt: skip
def test_what_is_no_http_is_a_problem_too(server: Server, ask: Client, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw, suppress(BrokenPipeError):
        raw.sendall(garbage)
        response = http.client.HTTPResponse(raw, method="GET")
        response.begin()
        answer = response.status, response.headers, response.read()
    assert answer[1]["Connection"] == "close"
    (diagnostic,) = problem(answer, 400, "E080")["diagnostics"]
    assert diagnostic["message"] == "Invalid HTTP request received."
    assert ask.compile()[0] == 200


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "later"])
def test_a_request_head_that_does_not_end_times_out(server: Server, before: bytes) -> None:
    """However slowly it drips in: a deadline, not a pause between bytes."""
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        if before:
            raw.sendall(before)
            first = http.client.HTTPResponse(raw, method="GET")
            first.begin()
            assert first.status == 200
            first.read()
        begin = time.monotonic()
        raw.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(8):
            time.sleep(0.15)
            raw.sendall(b"A: b\r\n")
        response = http.client.HTTPResponse(raw, method="GET")
        response.begin()
        answer = response.status, response.headers, response.read()
        assert raw.recv(1) == b""
    assert 1.2 < time.monotonic() - begin < 5
    problem(answer, 408, "E080")


def test_a_connection_on_which_nothing_comes_is_closed(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        assert raw.recv(1) == b""


def test_a_kept_connection_may_pause_longer_than_a_head(server: Server) -> None:
    connection = server.connect()
    for pause in (0.0, 2.0):
        time.sleep(pause)
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        assert (response.status, response.read()[:2]) == (200, b'{"')
    connection.close()


def test_a_client_that_leaves_within_its_body_is_no_fault(server: Server, ask: Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.sendall(b"POST /compile?arch=sm_90a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\na: 1")
    assert ask.compile()[0] == 200
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/octet-stream"),
        ("application/*", "application/octet-stream"),
        ("application/json", "application/json"),
        ("application/json;q=0.1, application/octet-stream;q=0.2", "application/octet-stream"),
    ],
)
def test_negotiation(ask: Client, accept: str, content_type: str) -> None:
    for answer in (
        ask.compile(Accept=accept),
        ask("GET", ask.compile()[1]["content-location"], None, {"Accept": accept}),
    ):
        assert answer[0] == 200
        assert answer[1]["content-type"] == content_type
        assert answer[1]["vary"] == "Accept"


def test_what_is_not_acceptable_is_406_and_not_compiled(ask: Client) -> None:
    problem(ask.compile("crash: 1", Accept="image/png"), 406, "E080")
    problem(ask.compile("a: 1", Accept="image/png"), 406, "E080")
    problem(ask("GET", ask.compile()[1]["content-location"], None, {"Accept": "image/png"}), 406, "E080")


def test_preconditions_on_compile(ask: Client) -> None:
    tag = ask.compile()[1]["etag"]
    for field in (tag, "*", '"x"'):
        assert ask.compile(If_None_Match=field)[0] == 200
        problem(ask.compile(If_Match=field), 412, "E080")


@pytest.fixture(scope="module")
def address(ask: Client) -> str:
    return str(ask.compile()[1]["content-location"])


def test_an_artifact_is_immutable(ask: Client, address: str) -> None:
    status, headers, body = ask("GET", address)
    assert status == 200
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["etag"] == f'"{hashlib.sha256(body).hexdigest()}"'
    assert int(headers["content-length"]) == len(body)


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_head_is_get_without_the_body(ask: Client, address: str, accept: str) -> None:
    got, headed = (ask(method, address, None, {"Accept": accept}) for method in ("GET", "HEAD"))
    assert headed[0] == got[0] == 200
    assert headed[2] == b""
    assert {k: v for k, v in headed[1].items() if k != "date"} == {k: v for k, v in got[1].items() if k != "date"}
    missing = ask("HEAD", "/artifacts/" + "0" * 64)
    assert (missing[0], missing[2]) == (404, b"")


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/capabilities"])
def test_head_elsewhere(ask: Client, path: str) -> None:
    status, headers, body = ask("HEAD", path)
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("name", "field", "status"),
    [
        ("If-None-Match", "{tag}", 304),
        ("If-None-Match", "W/{tag}", 304),
        ("If-None-Match", '"x", {tag}', 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", '"x"', 200),
        ("If-None-Match", "{bare}", 200),
        ("If-Match", "{tag}", 200),
        ("If-Match", "*", 200),
        ("If-Match", "W/{tag}", 412),
        ("If-Match", '"x"', 412),
        ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT", 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_conditional_requests(ask: Client, address: str, method: str, name: str, field: str, status: int) -> None:
    for accept in ("*/*", "application/json"):
        tag = ask("HEAD", address, None, {"Accept": accept})[1]["etag"]
        condition = field.format(tag=tag, bare=tag.strip('"'))
        answer = ask(method, address, None, {"Accept": accept, name: condition})
        assert answer[0] == status
        if status == 304:
            assert answer[2] == b""
            assert answer[1]["etag"] == tag
            assert answer[1]["cache-control"] == "public, max-age=31536000, immutable"
            assert "content-length" not in answer[1]


def test_the_representations_have_tags_of_their_own(ask: Client, address: str) -> None:
    tags = {ask("HEAD", address, None, {"Accept": accept})[1]["etag"] for accept in ("*/*", "application/json")}
    assert len(tags) == 2


@pytest.mark.parametrize(
    "key",
    ["0" * 64, "0" * 63, "A" * 64, "x", "..", "%2e%2e%2fetc%2fpasswd", "0" * 64 + "%00", "%ff", "%0a" + "0" * 64],
)
def test_what_names_no_artifact_is_404(ask: Client, key: str) -> None:
    answer = ask("GET", f"/artifacts/{key}")
    assert answer[0] == 404
    assert json.loads(answer[2])["diagnostics"][0]["code"] in ("E080", "E082")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/compile", 405),
        ("DELETE", "/artifacts/" + "0" * 64, 405),
        ("POST", "/healthz", 405),
        ("BREW", "/compile", 405),
    ],
)
def test_wrong_paths_and_methods(ask: Client, method: str, path: str, status: int) -> None:
    answer = ask(method, path)
    problem(answer, status, "E080")
    assert ("allow" in answer[1]) == (status == 405)


def test_check(ask: Client) -> None:
    for body, headers in ((b"a: 1", YAML), (b'{"spec": {"a": 1}}', JSON), (b'{"spec": "a: 1"}', JSON)):
        status, _, answer = ask("POST", "/check", body, headers)
        assert status == 200
        assert json.loads(answer) == {
            "ok": True,
            "diagnostics": [],
            "verdicts": [{"property": "coverage", "holds": True}],
        }


def test_check_answers_200_with_diagnostics(ask: Client) -> None:
    status, _, answer = ask("POST", "/check", b"refuse: E041", YAML)
    assert status == 200
    document = json.loads(answer)
    assert not document["ok"]
    assert document["diagnostics"] == [
        {
            "code": "E041",
            "severity": "error",
            "message": "refused as asked",
            "file": "spec.yaml",
            "line": 3,
            "column": 1,
            "end_line": 3,
            "end_column": 2,
            "found": None,
            "expected": None,
            "mend": "ask for something else",
        }
    ]


def test_the_other_endpoints(ask: Client) -> None:
    assert json.loads(ask("GET", "/")[2])["compile"] == "/compile"
    capabilities = json.loads(ask("GET", "/capabilities")[2])
    assert capabilities["architectures"] == ["sm_90a"]
    assert capabilities["emits"] == ["cubin", "ptx", "header", "ltoir", "object"]
    health = json.loads(ask("GET", "/healthz")[2])
    assert health == {"status": "ok", "workers": {"compile": 1, "front": 1}, "cache": "read-write"}


def test_metrics(ask: Client) -> None:
    ask.compile("metrics: 1")
    ask.compile("metrics: 1")
    _, headers, body = ask("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain")
    text = body.decode()
    for line in (
        'schedc_requests_total{endpoint="/compile",method="POST",status="200"}',
        'schedc_cache_lookups_total{found="memory"}',
        'schedc_cache_lookups_total{found="miss"}',
        'schedc_compiles_total{outcome="compiled"}',
        'schedc_workers{pool="compile"} 1.0',
        "schedc_cache_writable 1.0",
        "schedc_cache_bytes ",
        "schedc_queue_refused_total 0.0",
    ):
        assert line in text, line


def test_requests_are_logged_as_json(server: Server, ask: Client) -> None:
    ask.compile("logged: 1")

    def logged() -> list[dict[str, object]]:
        events = [json.loads(line) for line in server.log.read_text().splitlines()]
        return [e for e in events if e["event"] == "request" and (e["path"], e.get("cache")) == ("/compile", "miss")]

    deadline = time.monotonic() + 10.0
    while not logged() and time.monotonic() < deadline:  # the line is written after the answer has been sent
        time.sleep(0.01)
    last = logged()[-1]
    assert last["status"] == 200
    assert isinstance(last["milliseconds"], float)
    assert last["milliseconds"] > 0


def test_a_kept_connection_serves_hits_quickly(server: Server) -> None:
    """The bound is loose, for busy machines; it fails if an answer waits for a delayed acknowledgement (40 ms)."""
    connection = server.connect()
    times = []
    for _ in range(50):
        started = time.perf_counter()
        connection.request("POST", TARGET, b"quick: 1", YAML)
        response = connection.getresponse()
        response.read()
        times.append(time.perf_counter() - started)
    connection.close()
    assert response.headers["x-cache"] == "hit"
    assert statistics.median(times) < 0.02
