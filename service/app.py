"""The HTTP interface: see `docs/service.md` for it in words and `/openapi.json` for it as data."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

import structlog
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sched_compiler.artifact import JSON, MEDIA_TYPES, SUFFIXES
from service import DEFAULT_COMPILER, openapi
from service.artifacts import Artifacts, request_digest
from service.bodies import parse_job, parse_spec, read_body
from service.cache import EMITS, Entry, is_key
from service.conditional import Outcome, evaluate, strong_etag
from service.metrics import Metrics, Reading
from service.negotiation import BINARY, JSON_TYPE, Representation, choose
from service.problems import ProblemError, fault
from service.settings import Settings, load_settings

log = structlog.get_logger()
T = TypeVar("T")

#: An artifact never changes under its key.
IMMUTABLE = "public, max-age=31536000, immutable"


def create_app(settings: Settings | None = None, compiler: str = DEFAULT_COMPILER) -> FastAPI:
    """The application; `app.state.artifacts` is its inside. `compiler` names the module described in `service.worker`.

    Raises `SettingsError` when the settings come from the environment and are wrong there.
    """
    settings = settings or load_settings()
    metrics = Metrics()
    artifacts = Artifacts(settings, compiler, metrics)
    metrics.watch(lambda: _readings(artifacts), lambda: artifacts.disk.evicted)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await artifacts.start()
        yield
        await artifacts.close()

    app = FastAPI(
        title="schedc",
        summary="Compiles GPU tile schedules and keeps what it compiled.",
        version=_version(),
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.artifacts = artifacts
    endpoints = Endpoints(artifacts, settings)
    for path, methods, endpoint, about in (
        ("/", ["GET"], endpoints.index, openapi.INDEX),
        ("/compile", ["POST"], endpoints.compile, openapi.COMPILE),
        ("/check", ["POST"], endpoints.check, openapi.CHECK),
        ("/artifacts/{key}", ["GET"], endpoints.artifact, openapi.ARTIFACT),
        ("/artifacts/{key}", ["HEAD"], endpoints.artifact, openapi.ARTIFACT_HEAD),
        ("/capabilities", ["GET"], endpoints.capabilities, openapi.CAPABILITIES),
        ("/healthz", ["GET"], endpoints.health, openapi.HEALTH),
        ("/metrics", ["GET"], endpoints.metrics, openapi.METRICS),
    ):
        # The endpoints take the raw request and give a finished response: FastAPI parses and serialises nothing.
        app.add_api_route(path, endpoint, methods=methods, **about)
    for path, endpoint in (
        ("/", endpoints.index),
        ("/capabilities", endpoints.capabilities),
        ("/healthz", endpoints.health),
        ("/metrics", endpoints.metrics),
    ):
        app.add_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_bug)
    app.add_middleware(Observe, metrics=metrics)
    openapi.install(app)
    return app


def _version() -> str:
    try:
        return version("sched-compiler")
    except PackageNotFoundError:  # run from a source tree
        return "0+source"


class Endpoints:
    """One method for each path."""

    def __init__(self, artifacts: Artifacts, settings: Settings) -> None:
        self._artifacts, self._settings = artifacts, settings

    async def compile(self, request: Request) -> Response:
        """`POST /compile`."""
        # The target is /compile, which has no representation of its own: If-None-Match always holds, If-Match never.
        if _outcome(request, etag=None) == "failed":
            raise _precondition_failed()
        body = await self._body(request)
        headers = request.headers
        content_type, encoding = headers.get("content-type", ""), headers.get("content-encoding", "")
        digest = request_digest(body, request.scope["query_string"], content_type, encoding)
        accept = _joined(request, "accept")
        remembered = self._artifacts.remembered(digest)
        if remembered is not None:
            entry, hit = remembered, True
        else:
            # Off the loop: a hostile body may take its time, though it cannot take long, being limited in size.
            query = request.query_params.multi_items()
            job = await asyncio.to_thread(parse_job, body, content_type, encoding, query)
            _representation(accept, job.emit)  # refuse before compiling
            entry, hit = await _while_connected(request, self._artifacts.compile(digest, job))
        how = _representation(accept, entry.emit)
        cache = "hit" if hit else "miss"
        common = {"ETag": strong_etag(entry.digest), "X-Cache": cache, **_COMMON}
        if how == "json":
            # No Content-Location: that would claim that GET sends these very bytes, and under this tag.
            return _json(request, {**_description(entry), "cache": cache}, headers=common)
        common |= {"Content-Location": f"/artifacts/{entry.key}", **_file_headers(entry)}
        return Response(entry.blob, headers=common)

    async def check(self, request: Request) -> Response:
        """`POST /check`."""
        body = await self._body(request)
        headers, query = request.headers, request.query_params.multi_items()
        spec = await asyncio.to_thread(
            parse_spec, body, headers.get("content-type"), headers.get("content-encoding"), query
        )
        return _json(request, await _while_connected(request, self._artifacts.check(spec)))

    async def artifact(self, request: Request) -> Response:
        """`GET` and `HEAD /artifacts/{key}`."""
        key = request.path_params["key"]
        entry = await self._artifacts.find(key) if is_key(key) else None
        if entry is None:
            raise fault(
                404, "E082", "no artifact has this key", found=key[:80], mend="compile the spec again: POST /compile"
            )
        self._artifacts.disk.touch(key)
        how = _representation(_joined(request, "accept"), entry.emit)
        headers = {**_COMMON, "Cache-Control": IMMUTABLE}
        if how == "json":
            response = _json(request, _description(entry), headers=headers, tagged=True)
        else:
            headers |= {"ETag": strong_etag(entry.digest), **_file_headers(entry)}
            response = Response(entry.blob, headers=headers)
        match _outcome(request, response.headers["etag"]):
            case "failed":
                raise _precondition_failed()
            case "not_modified":
                kept = ("etag", "cache-control", "vary")
                return Response(status_code=304, headers={name: response.headers[name] for name in kept})
        return _for_method(request, response)

    async def index(self, request: Request) -> Response:
        """`GET /`."""
        return _json(request, openapi.INDEX_BODY)

    async def capabilities(self, request: Request) -> Response:
        """`GET /capabilities`: what the compiler says of itself."""
        told = self._artifacts.compile_pool.capabilities
        return _json(request, {**told, "emits": list(EMITS)})

    async def health(self, request: Request) -> Response:
        """`GET /healthz`: 200 while specs can be compiled."""
        alive = {pool.name: len(pool.pids) for pool in self._artifacts.pools}
        if not all(alive.values()):
            raise fault(503, "E083", "no worker process is running", headers={"Retry-After": "1"})
        cache = "read-write" if self._artifacts.disk.writable else "not writable"
        return _json(request, {"status": "ok", "workers": {**alive}, "cache": cache})

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        text = generate_latest(self._artifacts.metrics.registry)
        return _for_method(request, Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST}))

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self._settings.body_bytes, self._settings.body_timeout)


_COMMON = {"Vary": "Accept", "X-Content-Type-Options": "nosniff"}


def _joined(request: Request, name: str) -> str | None:
    values = request.headers.getlist(name)
    return ", ".join(values) if values else None


def _outcome(request: Request, etag: str | None) -> Outcome:
    return evaluate(request.method, _joined(request, "if-match"), _joined(request, "if-none-match"), etag)


def _representation(accept: str | None, emit: str) -> Representation:
    own_type = _own_type(emit).partition(";")[0]
    how = choose(accept, own_type)
    if how is None:
        raise fault(
            406,
            "E080",
            "none of the accepted media types can be sent",
            found=(accept or "")[:200],
            expected=f"{BINARY}, {own_type} or {JSON_TYPE}" if own_type != BINARY else f"{BINARY} or {JSON_TYPE}",
        )
    return how


def _own_type(emit: str) -> str:
    return next(media_type for name, media_type in MEDIA_TYPES.items() if name == emit)


def _file_headers(entry: Entry) -> dict[str, str]:
    """The file name is made of the key's digits alone, so nothing that a user wrote gets into the header."""
    name = f"schedc-{entry.key[:16]}.{SUFFIXES[entry.emit]}"
    return {"Content-Type": _own_type(entry.emit), "Content-Disposition": f'attachment; filename="{name}"'}


def _description(entry: Entry) -> dict[str, JSON]:
    return {**entry.manifest, "key": entry.key, "address": f"/artifacts/{entry.key}"}


def _json(
    request: Request, content: Mapping[str, JSON], *, headers: Mapping[str, str] | None = None, tagged: bool = False
) -> Response:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="backslashreplace")
    fields = {"Content-Type": JSON_TYPE, "X-Content-Type-Options": "nosniff", **(headers or {})}
    if tagged:
        fields["ETag"] = strong_etag(hashlib.sha256(body).hexdigest())
    return _for_method(request, Response(body, headers=fields))


def _for_method(request: Request, response: Response) -> Response:
    """For HEAD, the same headers (the length among them) and no body."""
    if request.method == "HEAD":
        response.body = b""
    return response


def _precondition_failed() -> ProblemError:
    return fault(412, "E080", "a precondition of the request does not hold")


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """The outcome of `work`; when the client goes away first, `work` is cancelled and `ClientDisconnect` raised."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnection(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        working.cancel()


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, ProblemError)
    return problem.response()


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = f"{request.method} {request.url.path}"[:200]
    return fault(error.status_code, "E080", str(error.detail), found=found, headers=error.headers).response()


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; the log and the metrics do


async def _on_bug(_: Request, error: Exception) -> Response:
    """Only for faults of this program; Starlette raises `error` again after the answer, so that it is logged."""
    return fault(500, "E083", "the server has a fault; its log says more").response()


def _readings(artifacts: Artifacts) -> Iterator[Reading]:
    yield "schedc_cache_bytes", "Size of the cache directory, as last known.", {}, artifacts.disk.bytes
    yield "schedc_cache_writable", "1 while artifacts can be stored.", {}, artifacts.disk.writable
    yield "schedc_memory_bytes", "Size of the artifacts in memory.", {}, artifacts.memory.bytes
    for pool in artifacts.pools:
        labels = {"pool": pool.name}
        yield "schedc_workers", "Worker processes that run.", labels, len(pool.pids)
        yield "schedc_workers_busy", "Worker processes with a task.", labels, pool.busy
        yield "schedc_queue", "Tasks that wait for a worker process.", labels, pool.waiting


class Observe:
    """Counts, times and logs each request; plain ASGI, because `BaseHTTPMiddleware` costs more than a cache hit."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = time.perf_counter()
        status, cache = 500, None

        async def observed(message: Message) -> None:
            nonlocal status, cache
            if message["type"] == "http.response.start":
                status = message["status"]
                cache = next((value.decode() for name, value in message["headers"] if name == b"x-cache"), None)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            seconds = time.perf_counter() - started
            route = scope.get("route")
            endpoint = getattr(route, "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            self._metrics.requests.labels(endpoint, method, str(status)).inc()
            self._metrics.request_seconds.labels(endpoint).observe(seconds)
            facts: dict[str, object] = {"cache": cache} if cache else {}
            log.info(
                "request",
                method=method,
                path=scope["path"][:200],
                status=status,
                milliseconds=round(seconds * 1000, 3),
                **facts,
            )
