"""POST /compile: representations, caching, one compile for equal requests, limits, and what may fail."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cache import Entry
from service.problems import PROBLEM_TYPE
from tests.service.support import TARGET, YAML, Running, settings, until, with_app


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Checks the form of a problem document, and gives it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM_TYPE
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert [d["code"] for d in document["diagnostics"]] == [code]
    for diagnostic in document["diagnostics"]:
        assert min(diagnostic[name] for name in ("line", "column", "end_line", "end_column")) >= 1
    return document


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_the_artifact_with_its_headers(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        first = await service.compile("a: 1")
        assert first.status_code == 200
        digest = hashlib.sha256(first.content).hexdigest()
        headers = first.headers
        assert headers["etag"] == f'"{digest}"'
        assert headers["x-cache"] == "miss"
        assert headers["content-type"] == "application/octet-stream"
        assert headers["vary"] == "Accept"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-disposition"].startswith('attachment; filename="schedc-')
        second = await service.compile("a: 1")
        assert second.content == first.content
        assert second.headers["x-cache"] == "hit"
        again = await service.client.get(headers["content-location"])
        assert again.content == first.content
        assert again.headers["etag"] == headers["etag"]

    with_app(settings(tmp_path), test)


def test_the_manifest(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        first = await service.compile("a: 1", Accept="application/json")
        document = first.json()
        assert document["cache"] == first.headers["x-cache"] == "miss"
        assert document["address"] == f"/artifacts/{document['key']}"
        assert first.headers["etag"] == f'"{document["digest"]}"'
        assert "content-location" not in first.headers
        artifact = await service.client.get(document["address"])
        assert hashlib.sha256(artifact.content).hexdigest() == document["digest"]
        second = await service.compile("a: 1", Accept="application/json")
        assert second.json() == {**document, "cache": "hit"}

    with_app(settings(tmp_path), test)


@pytest.mark.parametrize(("emit", "extension"), [("ptx", "ptx"), ("header", "cuh")])
def test_text_has_its_own_media_type(tmp_path: Path, emit: str, extension: str) -> None:
    async def test(service: Running) -> None:
        for accept in ("application/octet-stream", "text/plain", "*/*"):
            response = await service.client.post(
                f"{TARGET}&emit={emit}", content="a: 1", headers={**YAML, "Accept": accept}
            )
            assert response.headers["content-type"] == "text/plain; charset=utf-8"
            assert response.headers["content-disposition"].endswith(f'.{extension}"')

    with_app(settings(tmp_path), test)


@pytest.mark.parametrize(("emit", "extension"), [("cubin", "cubin"), ("ltoir", "ltoir"), ("object", "o")])
def test_binaries_are_not_text(tmp_path: Path, emit: str, extension: str) -> None:
    async def test(service: Running) -> None:
        response = await service.client.post(f"{TARGET}&emit={emit}", content="a: 1", headers=YAML)
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].endswith(f'.{extension}"')
        refused = await service.client.post(
            f"{TARGET}&emit={emit}", content="a: 1", headers={**YAML, "Accept": "text/plain"}
        )
        assert refused.status_code == 406

    with_app(settings(tmp_path), test)


def test_yaml_and_json_bodies_reach_the_same_compile(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        first = await service.compile("a: 1")
        as_text = await service.client.post("/compile", json={"spec": "a: 1", "arch": "sm_90a"})
        as_object = await service.client.post("/compile", json={"spec": {"a": 1}, "arch": "sm_90a", "emit": "cubin"})
        for response in (as_text, as_object):
            assert response.headers["x-cache"] == "hit"
            assert response.headers["etag"] == first.headers["etag"]
        for other in ({"arch": "sm_90"}, {"backend": "ptx"}, {"emit": "ptx"}):
            body = {"spec": "a: 1", "arch": "sm_90a", **other}
            assert (await service.client.post("/compile", json=body)).headers["x-cache"] == "miss"

    with_app(settings(tmp_path), test)


def test_another_text_of_the_same_spec_is_a_hit(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        await service.compile("a: 1")
        assert (await service.compile("# a comment\na:   1")).headers["x-cache"] == "hit"

    with_app(settings(tmp_path), test)


def test_the_cache_outlives_the_server(tmp_path: Path) -> None:
    async def test(service: Running) -> str:
        return str((await service.compile("a: 1")).headers["x-cache"])

    assert with_app(settings(tmp_path), test) == "miss"
    assert with_app(settings(tmp_path), test) == "hit"


@pytest.mark.parametrize("damaged", ["blobs", "manifests"])
@pytest.mark.parametrize("damage", [b"", b"half"])
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, damaged: str, damage: bytes) -> None:
    async def test(service: Running) -> None:
        first = await service.compile("a: 1")
        (file,) = [path for path in (tmp_path / "cache" / damaged).rglob("*") if path.is_file()]
        file.write_bytes(damage)
        second = await service.compile("a: 1")
        assert second.headers["x-cache"] == "miss"
        assert second.content == first.content
        assert (await service.compile("a: 1")).headers["x-cache"] == "hit"
        kind = {"blobs": "bad_blob", "manifests": "bad_manifest"}[damaged]
        assert service.count("schedc_cache_faults_total", kind=kind) == 1

    with_app(settings(tmp_path, memory_bytes=0), test)


def test_a_cache_that_cannot_store_does_not_fail_requests(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")

    async def test(service: Running) -> None:
        assert (await service.compile("a: 1")).headers["x-cache"] == "miss"
        assert (await service.compile("a: 1")).headers["x-cache"] == "hit"  # from memory
        assert service.count("schedc_cache_faults_total", kind="write") == 2
        assert (await service.client.get("/healthz")).json()["cache"] == "not writable"

    with_app(settings(tmp_path), test)


def test_equal_requests_compile_once(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        spec = f"log: {tmp_path}/log\nsleep: 0.3"
        responses = await asyncio.gather(
            *(service.compile(spec if n % 2 else f"# another text\n{spec}") for n in range(20))
        )
        assert {response.status_code for response in responses} == {200}
        assert len({response.content for response in responses}) == 1
        assert lines(tmp_path / "log") == 1
        assert service.count("schedc_compiles_total", outcome="compiled") == 1

    with_app(settings(tmp_path), test)


def test_equal_requests_share_a_failure(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        spec = f"log: {tmp_path}/log\nrefuse: E041"
        for response in await asyncio.gather(*(service.compile(spec) for _ in range(5))):
            document = problem(response, 422, "E041")
            assert document["detail"] == "spec.yaml:3:1: E041 refused as asked"
            assert document["diagnostics"][0]["mend"] == "ask for something else"
        assert lines(tmp_path / "log") == 1
        problem(await service.compile(spec), 422, "E041")  # a refusal is not kept
        assert lines(tmp_path / "log") == 2

    with_app(settings(tmp_path), test)


def test_hits_and_checks_do_not_wait_for_compiles(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        await service.compile("a: 1")
        slow = asyncio.create_task(service.compile("sleep: 0.6"))
        await until(lambda: service.artifacts.compile_pool.busy == 1)
        assert (await service.compile("# new text\na: 1")).headers["x-cache"] == "hit"
        assert (await service.client.post("/check", content="a: 1", headers=YAML)).json()["ok"]
        assert not slow.done()
        await slow

    with_app(settings(tmp_path), test)


def test_a_compile_that_never_ends_is_killed(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        (pid,) = service.artifacts.compile_pool.pids
        problem(await service.compile("sleep: 60"), 504, "E072")
        assert pid not in service.artifacts.compile_pool.pids
        assert (await service.compile("a: 1")).status_code == 200
        assert service.count("schedc_worker_deaths_total", pool="compile", cause="timeout") == 1

    with_app(settings(tmp_path, compile_timeout=0.3), test)


def test_a_spec_that_takes_too_long_to_read_is_stopped(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        problem(await service.compile("key_sleep: 60"), 504, "E072")
        slow = await service.client.post("/check", content="check_sleep: 60", headers=YAML)
        problem(slow, 504, "E072")

    with_app(settings(tmp_path, check_timeout=0.3), test)


def test_too_much_memory_is_a_diagnostic(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        problem(await service.compile("allocate: 4096"), 503, "E072")
        assert (await service.compile("a: 1")).status_code == 200

    with_app(settings(tmp_path, worker_memory_bytes=256 << 20), test)


def test_a_crash_is_a_diagnostic_and_disturbs_nobody(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        slow = asyncio.create_task(service.compile("sleep: 0.5"))
        crash = await service.compile("crash: 11")
        assert problem(crash, 503, "E083")["diagnostics"][0]["found"] == "exit code 11"
        assert int(crash.headers["retry-after"]) >= 1
        assert (await slow).status_code == 200
        problem(await service.client.post("/check", content="crash: 1", headers=YAML), 503, "E083")

    with_app(settings(tmp_path, workers=2), test)


def test_a_killed_worker_is_a_diagnostic(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        pool = service.artifacts.compile_pool
        slow = asyncio.create_task(service.compile("sleep: 30"))
        await until(lambda: pool.busy == 1)
        os.kill(pool.pids[0], signal.SIGKILL)
        problem(await slow, 503, "E083")
        assert (await service.compile("a: 1")).status_code == 200

    with_app(settings(tmp_path), test)


@pytest.mark.parametrize("fault", ["raise", "digest", "key"])
def test_a_fault_of_the_compiler_is_no_500(tmp_path: Path, fault: str) -> None:
    async def test(service: Running) -> None:
        response = await service.compile(f"fault: {fault}")
        problem(response, 503, "E083")
        assert "Traceback" not in response.text
        assert not list((tmp_path / "cache").glob("*/*/*"))

    with_app(settings(tmp_path), test)


def test_a_full_queue_is_a_503_and_says_when_to_come_back(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        first = asyncio.create_task(service.compile("sleep: 0.5"))
        await until(lambda: service.artifacts.compile_pool.busy == 1)
        second = asyncio.create_task(service.compile("a: 1"))
        await until(lambda: service.artifacts.compile_pool.waiting == 1)
        third = await service.compile("a: 2")
        problem(third, 503, "E083")
        assert int(third.headers["retry-after"]) >= 1
        assert service.count("schedc_queue_refused_total") == 1
        assert [(await task).status_code for task in (first, second)] == [200, 200]

    with_app(settings(tmp_path, queue_limit=1), test)


async def ask(service: Running, spec: str, gone: asyncio.Event) -> list[dict[str, Any]]:
    """POST `spec` as a client that goes away when `gone` is set; what was sent to it."""
    sent: list[dict[str, Any]] = []
    body = [{"type": "http.request", "body": spec.encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/compile",
        "raw_path": b"/compile",
        "query_string": b"arch=sm_90a",
        "root_path": "",
        "headers": [(b"content-type", b"application/yaml")],
        "client": ("127.0.0.1", 1),
        "server": ("service", 80),
        "state": {},
    }
    assert isinstance(service.client._transport, httpx.ASGITransport)
    await service.client._transport.app(scope, receive, send)
    return sent


def test_an_abandoned_request_leaves_the_queue(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        pool = service.artifacts.compile_pool
        first = asyncio.create_task(service.compile("sleep: 0.5"))
        await until(lambda: pool.busy == 1)
        one, two = asyncio.Event(), asyncio.Event()
        spec = f"log: {tmp_path}/log"
        waiting = [asyncio.create_task(ask(service, spec, gone)) for gone in (one, two)]
        await until(lambda: pool.waiting == 1)
        one.set()
        await waiting[0]
        await asyncio.sleep(0.05)
        assert pool.waiting == 1  # the other client still waits for the same compile
        two.set()
        await waiting[1]
        await until(lambda: pool.waiting == 0)
        await first
        assert (await service.compile("a: 1")).status_code == 200
        assert lines(tmp_path / "log") == 0

    with_app(settings(tmp_path), test)


def test_a_compile_that_has_begun_is_kept_though_its_client_has_gone(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        pool = service.artifacts.compile_pool
        spec, gone = f"log: {tmp_path}/log\nsleep: 0.3", asyncio.Event()
        asking = asyncio.create_task(ask(service, spec, gone))
        await until(lambda: pool.busy == 1)
        gone.set()
        sent = await asking
        assert sent[0]["status"] == 499
        response = await service.compile(spec)
        assert response.status_code == 200
        assert lines(tmp_path / "log") == 1

    with_app(settings(tmp_path), test)


def test_eviction_never_fails_a_request(tmp_path: Path) -> None:
    async def test(service: Running) -> None:
        for number in range(8):
            response = await service.compile(f"a: {number}\nsize: 300000")
            assert response.status_code == 200
            again = await service.client.get(response.headers["content-location"])
            assert again.content == response.content  # what was just written is there
        assert service.count("schedc_cache_evicted_total") >= 4
        assert service.count("schedc_cache_bytes") <= 1 << 20

    with_app(settings(tmp_path, cache_bytes=1 << 20, memory_bytes=0), test)


def test_the_file_name_holds_nothing_that_a_user_wrote(tmp_path: Path) -> None:
    entry = Entry("ab" * 32, "cubin", "cd" * 32, {"digest": "cd" * 32, "name": '"\r\nX-Evil: 1'}, b"x")

    async def test(service: Running) -> None:
        service.artifacts.memory.put(entry)
        response = await service.client.get(f"/artifacts/{entry.key}")
        assert response.headers["content-disposition"] == 'attachment; filename="schedc-abababababababab.cubin"'
        manifest = await service.client.get(f"/artifacts/{entry.key}", headers={"Accept": "application/json"})
        assert json.loads(manifest.content)["name"] == '"\r\nX-Evil: 1'

    with_app(settings(tmp_path), test)
