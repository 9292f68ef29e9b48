"""From a request to an artifact: the memo of requests seen, the caches, one compile for each key, the worker pools."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NoReturn, TypeVar, cast

import structlog

from sched_compiler.artifact import JSON
from service.bodies import Job, SpecText
from service.cache import EMITS, DiskCache, Entry, MemoryCache, is_key
from service.metrics import Metrics
from service.pool import Answer, Pool, PoolClosedError, QueueFullError, TaskTimeoutError, WorkerDiedError
from service.problems import UNAVAILABLE, ProblemError, fault
from service.settings import Settings
from service.wire import Message

log = structlog.get_logger()
T = TypeVar("T")

#: How many requests the memo remembers, at about 200 bytes each.
MEMO_ENTRIES = 8192

#: Codes of what a compile needs and this machine does not have.
LACKING = ("E073", "E077")

#: Seconds after which a client that was turned away may try again.
RETRY_AFTER = 2


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0
    begun: bool = False


class SingleFlight(Generic[T]):
    """Runs one piece of work at a time under each name; who asks for it meanwhile shares the outcome.

    Work that nobody waits for any more is cancelled, unless it has begun (called its argument): then it runs to its
    end, because its result will be kept.
    """

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    async def do(self, name: str, work: Callable[[Callable[[], None]], Awaitable[T]]) -> T:
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = self._begin(name, work)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.begun:
                self._flights.pop(name, None)  # whoever asks next must not join what is being cancelled
                flight.task.cancel()

    def _begin(self, name: str, work: Callable[[Callable[[], None]], Awaitable[T]]) -> _Flight[T]:
        def mark_begun() -> None:
            flight.begun = True

        async def run() -> T:
            return await work(mark_begun)

        def land(task: asyncio.Task[T]) -> None:
            if self._flights.get(name) is flight:
                del self._flights[name]
            if not task.cancelled():
                task.exception()  # mark it as seen: perhaps nobody is left to see it

        flight = _Flight(asyncio.create_task(run()))
        flight.task.add_done_callback(land)
        return flight


@dataclass(slots=True)
class Memo:
    """Remembers the key of each request seen, so that a repeated one is answered without reading its spec again."""

    limit: int = MEMO_ENTRIES
    _keys: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def get(self, request: str) -> str | None:
        key = self._keys.get(request)
        if key is not None:
            self._keys.move_to_end(request)
        return key

    def put(self, request: str, key: str) -> None:
        self._keys[request] = key
        if len(self._keys) > self.limit:
            self._keys.popitem(last=False)


class Artifacts:
    """Compiles, keeps and finds artifacts, and checks specs. All failures are `ProblemError`s."""

    def __init__(self, settings: Settings, compiler: str, metrics: Metrics) -> None:
        self.metrics = metrics
        self.disk = DiskCache(settings.cache_dir, settings.cache_bytes, metrics.cache_fault)
        self.memory = MemoryCache(settings.memory_bytes)
        self.memo = Memo()
        self.compile_pool = self._pool("compile", settings.workers, settings, compiler)
        self.front_pool = self._pool("front", settings.front_workers, settings, compiler)
        self._settings = settings
        self._keys: SingleFlight[str] = SingleFlight()
        self._compiles: SingleFlight[tuple[Entry, bool]] = SingleFlight()

    @staticmethod
    def _pool(name: str, size: int, settings: Settings, compiler: str) -> Pool:
        return Pool(
            name,
            size,
            compiler=compiler,
            memory_bytes=settings.worker_memory_bytes,
            queue_limit=settings.queue_limit,
            worker_tasks=settings.worker_tasks,
        )

    @property
    def pools(self) -> tuple[Pool, Pool]:
        return (self.compile_pool, self.front_pool)

    async def start(self) -> None:
        """Start all workers and open the cache. Raises `WorkerStartError`."""
        try:
            await asyncio.gather(asyncio.to_thread(self.disk.prepare), *(pool.start() for pool in self.pools))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill all workers; requests still in flight end with a 503."""
        await asyncio.gather(*(pool.close() for pool in self.pools))

    def remembered(self, request: str) -> Entry | None:
        """The artifact of a request with this digest when it is in memory: the fast path, without any waiting."""
        key = self.memo.get(request)
        entry = None if key is None else self.memory.get(key)
        if entry is not None:
            self.disk.touch(entry.key)
            self.metrics.cache_lookups.labels("memory").inc()
        return entry

    async def compile(self, request: str, job: Job) -> tuple[Entry, bool]:
        """The artifact of `job`, and whether it came from the cache. `request` is the digest of the whole request."""
        key = self.memo.get(request)
        if key is None:
            key = await self._keys.do(request, lambda begun: self._key_of(job, begun))
            self.memo.put(request, key)
        entry = await self.find(key)
        if entry is not None:
            return entry, True
        self.metrics.cache_lookups.labels("miss").inc()
        known: str = key
        return await self._compiles.do(known, lambda begun: self._compile(known, job, begun))

    async def find(self, key: str) -> Entry | None:
        """The artifact with this (valid) key, from memory or disk."""
        entry = self.memory.get(key)
        if entry is not None:
            self.metrics.cache_lookups.labels("memory").inc()
            return entry
        entry = await asyncio.to_thread(self.disk.get, key)
        if entry is not None:
            self.memory.put(entry)
            self.metrics.cache_lookups.labels("disk").inc()
        return entry

    async def check(self, spec: SpecText) -> dict[str, JSON]:
        """The verdict on a spec: `ok`, `diagnostics`, `verdicts`."""
        task: Message = {"do": "check", "text": spec.text, "file": spec.file, "files": cast(JSON, spec.files)}
        answer = await self._run(self.front_pool, task, self._settings.check_timeout)
        return {name: answer.data.get(name) for name in ("ok", "diagnostics", "verdicts")}

    async def _key_of(self, job: Job, begun: Callable[[], None]) -> str:
        answer = await self._run(self.front_pool, _task("key", job), self._settings.check_timeout, begun)
        key = answer.data.get("key")
        if not isinstance(key, str) or not is_key(key):
            _broken("the compiler made a key that is none", key=repr(key)[:80])
        return key

    async def _compile(self, key: str, job: Job, begun: Callable[[], None]) -> tuple[Entry, bool]:
        # Between this request's look at the cache and now, another one's compile may have ended.
        if (entry := await self.find(key)) is not None:
            return entry, True
        started = time.perf_counter()
        outcome = "failed"
        try:
            answer = await self._run(self.compile_pool, _task("compile", job), self._settings.compile_timeout, begun)
            entry = await asyncio.to_thread(_entry, key, job, answer)
            outcome = "compiled"
        except ProblemError as problem:
            outcome = "refused" if problem.status in (422, 501) else "timeout" if problem.status == 504 else "failed"
            raise
        finally:
            self.metrics.compiles.labels(outcome).inc()
            self.metrics.compile_seconds.observe(time.perf_counter() - started)
        self.memory.put(entry)
        await asyncio.to_thread(self.disk.put, entry)
        return entry, False

    async def _run(self, pool: Pool, task: Message, timeout: float, begun: Callable[[], None] | None = None) -> Answer:
        """Run a task in a pool and turn all that can befall it into a `ProblemError`."""
        try:
            answer = await pool.run(task, timeout, begun)
        except QueueFullError:
            self.metrics.refused.inc()
            raise _unavailable("the server is busy: too many requests are waiting") from None
        except PoolClosedError:
            raise _unavailable("the server is being stopped") from None
        except TaskTimeoutError:
            self.metrics.worker_deaths.labels(pool.name, "timeout").inc()
            log.warning("worker_killed", pool=pool.name, task=task["do"], seconds=timeout)
            raise fault(
                504, "E072", "the compiler took longer than is allowed", expected=f"at most {timeout:g} s"
            ) from None
        except WorkerDiedError as death:
            self.metrics.worker_deaths.labels(pool.name, "died").inc()
            log.error("worker_died", pool=pool.name, task=task["do"], reason=str(death))
            raise _unavailable("the compiler's process ended unexpectedly", found=str(death)) from None
        match answer.data.get("answer"):
            case "done":
                return answer
            case "refused" if answer.data["diagnostics"]:
                diagnostics = cast(list[dict[str, Any]], answer.data["diagnostics"])
                # what this service lacks may be had elsewhere; what is wrong with a spec may not
                status = 501 if any(d["code"] in LACKING for d in diagnostics) else 422
                raise ProblemError(status, _summary(diagnostics), diagnostics)
            case "memory":
                self.metrics.worker_deaths.labels(pool.name, "memory").inc()
                limit = self._settings.worker_memory_bytes
                raise fault(
                    503, "E072", "the compiler needed more memory than is allowed", expected=f"at most {limit} bytes"
                )
            case _:
                _broken("the compiler failed", traceback=answer.data.get("traceback"))


def request_digest(body: bytes, query: bytes, content_type: str, content_encoding: str) -> str:
    """Names a request by all that its key depends on, each part set off by its length."""
    head = f"{len(body)} {len(query)} {len(content_type)} {content_type}{content_encoding}".encode()
    return hashlib.sha256(b"\0".join((head, query, body))).hexdigest()


def _task(do: str, job: Job) -> Message:
    target = asdict(job)
    spec = target.pop("spec")
    return {"do": do, **spec, **target}


def _entry(key: str, job: Job, answer: Answer) -> Entry:
    """The compiler's answer as a cache entry. What is wrong with it is a fault of the compiler, not of the user."""
    manifest, digest = answer.data.get("manifest"), hashlib.sha256(answer.blob).hexdigest()
    if not isinstance(manifest, dict) or answer.data.get("emit") != job.emit or job.emit not in EMITS:
        _broken("the compiler's answer does not fit the request", emit=repr(answer.data.get("emit")))
    if answer.data.get("key") != key or manifest.get("digest") != digest:
        _broken("the compiler's artifact has another key or digest than it says", key=key)
    return Entry(key, job.emit, digest, manifest, answer.blob)


def _summary(diagnostics: list[dict[str, Any]]) -> str:
    first = diagnostics[0]
    more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
    return f"{first['file']}:{first['line']}:{first['column']}: {first['code']} {first['message']}{more}"


def _unavailable(message: str, found: str | None = None) -> ProblemError:
    return fault(503, UNAVAILABLE, message, found=found, headers={"Retry-After": str(RETRY_AFTER)})


def _broken(message: str, **facts: object) -> NoReturn:
    """The compiler has a bug. The client can compile elsewhere or try later; the log has what is needed to mend it."""
    log.error("compiler_fault", reason=message, **facts)
    raise _unavailable(message)
