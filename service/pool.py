"""A pool of worker processes that can be killed one by one.

Each worker has pipes of its own and shares no lock with the others, so killing one, or losing one, cannot disturb the
rest; this is why the pool is not `concurrent.futures` (which breaks as a whole when a process dies, and cannot end a
running call) or another pool whose workers share a queue. Everything but the workers runs on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from service.wire import HEADER, Message, encode

log = structlog.get_logger()
T = TypeVar("T")

#: A worker that is not ready by then counts as failed to start.
START_TIMEOUT = 60.0

#: Longest message that is taken from a worker.
MAX_ANSWER = 1 << 30


class QueueFullError(Exception):
    """As many tasks are waiting as may wait."""


class PoolClosedError(Exception):
    """The pool was closed before the task was done."""


class TaskTimeoutError(Exception):
    """The task took longer than it may; its process has been killed."""


class WorkerDiedError(Exception):
    """The process ended, or said something that is not an answer, while it did the task."""


class WorkerStartError(Exception):
    """A worker process did not become ready."""


@dataclass(frozen=True, slots=True)
class Answer:
    data: dict[str, Any]
    blob: bytes


class Worker:
    """One process, in a session and a scratch directory of its own; it does one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, scratch: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._scratch = scratch
        self._killed = False
        self.tasks = 0
        self.capabilities: Message = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs and is meant to go on."""
        return self._process.returncode is None and not self._killed

    @classmethod
    async def start(cls, compiler: str, memory_bytes: int) -> Worker:
        """Start a process and wait until it has loaded the compiler. Raises `WorkerStartError`."""
        scratch = tempfile.mkdtemp(prefix="schedc-worker-")
        environment = {
            "OPENBLAS_NUM_THREADS": "1",  # a thread for each core would reserve much of the address space
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
            "TMPDIR": scratch,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the working directory is no place to import from
                "-m",
                "service.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=scratch,
                env=environment,
                start_new_session=True,  # a Ctrl-C in the terminal is the server's, and children can be killed with it
            )
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise WorkerStartError(f"a worker process cannot be started: {error}") from error
        worker = cls(process, scratch)
        try:
            setup: Message = {"compiler": compiler, "memory_bytes": memory_bytes, "scratch": scratch}
            answer = await asyncio.wait_for(worker._exchange(setup), START_TIMEOUT)
        except (TimeoutError, WorkerDiedError) as error:
            worker.kill_now()
            await worker.ended()
            raise WorkerStartError("a worker process ended, or hung, before it was ready") from error
        except asyncio.CancelledError:
            worker.kill_now()
            raise
        worker.capabilities = answer.data.get("capabilities", {})
        return worker

    async def do(self, task: Message, timeout: float) -> Answer:
        """Raises `TaskTimeoutError`, `WorkerDiedError`; the worker must be killed after either."""
        self.tasks += 1
        try:
            return await asyncio.wait_for(self._exchange({**task, "timeout": timeout}), timeout)
        except TimeoutError:
            raise TaskTimeoutError from None

    async def _exchange(self, message: Message) -> Answer:
        try:
            self._stdin.write(encode(message))
            await self._stdin.drain()
            lengths = HEADER.unpack(await self._stdout.readexactly(HEADER.size))
            if sum(lengths) > MAX_ANSWER:
                raise WorkerDiedError("its answer is too long")
            data = json.loads(await self._stdout.readexactly(lengths[0]))
            blob = await self._stdout.readexactly(lengths[1])
        except (asyncio.IncompleteReadError, OSError) as error:
            raise WorkerDiedError(await self._epitaph()) from error
        except ValueError as error:
            raise WorkerDiedError("its answer is garbled") from error
        if not isinstance(data, dict):
            raise WorkerDiedError("its answer is garbled")
        return Answer(data, blob)

    async def _epitaph(self) -> str:
        """How the process ended, in words."""
        try:
            code = await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            return "it closed its pipe"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def kill_now(self) -> None:
        """Kill the process and its children, without waiting for it to be gone."""
        if self.alive:
            self._killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it is just ending by itself
                os.killpg(self.pid, signal.SIGKILL)
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def ended(self) -> None:
        """Return when the process has ended; its scratch directory goes with it."""
        await self._process.wait()
        self._stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


class Pool:
    """`size` workers and a bounded queue in front of them.

    A worker that ends, for whatever reason, is replaced: a task that must be stopped is stopped by killing its worker.
    """

    def __init__(
        self, name: str, size: int, *, compiler: str, memory_bytes: int, queue_limit: int, worker_tasks: int
    ) -> None:
        self.name = name
        self.busy = 0
        self.capabilities: Message = {}
        self._size, self._compiler, self._memory_bytes = size, compiler, memory_bytes
        self._queue_limit, self._worker_tasks = queue_limit, worker_tasks
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiters: deque[asyncio.Future[Worker]] = deque()
        self._background: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are ready or busy."""
        return [worker.pid for worker in self._workers if worker.alive]

    async def start(self) -> None:
        """Start every worker and wait until all are ready. Raises `WorkerStartError`; nothing is left running then."""
        results = await asyncio.gather(*(self._add() for _ in range(self._size)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.close()
                raise result

    async def run(self, task: Message, timeout: float, on_start: Callable[[], None] | None = None) -> Answer:
        """Do `task` as soon as a worker is free, within `timeout` seconds of then.

        When the caller is cancelled while the task waits, the task leaves the queue; once it has begun (`on_start` has
        been called) it runs to its end.

        Raises `QueueFullError`, `TaskTimeoutError`, `WorkerDiedError`, `PoolClosedError`.
        """
        worker = await self._free_worker()
        if on_start is not None:
            on_start()
        return await asyncio.shield(self._spawn(self._do(worker, task, timeout)))

    async def _free_worker(self) -> Worker:
        if self._closed:
            raise PoolClosedError
        while self._idle:
            if (worker := self._idle.pop()).alive:
                return worker
        if len(self._waiters) >= self._queue_limit:
            raise QueueFullError
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled() or not turn.done():
                with contextlib.suppress(ValueError):
                    self._waiters.remove(turn)
            elif turn.exception() is None:  # it was this task's turn in the very moment that it was cancelled
                self._release(turn.result())
            raise

    def _release(self, worker: Worker) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(worker)
                return
        self._idle.append(worker)

    async def _do(self, worker: Worker, task: Message, timeout: float) -> Answer:
        self.busy += 1
        try:
            answer = await worker.do(task, timeout)
        except BaseException as error:
            worker.kill_now()
            if self._closed and isinstance(error, TaskTimeoutError | WorkerDiedError):
                raise PoolClosedError from None
            raise
        finally:
            self.busy -= 1
        if worker.tasks >= self._worker_tasks or answer.data.get("answer") == "memory":
            worker.kill_now()
        else:
            self._release(worker)
        return answer

    async def _add(self) -> None:
        worker = await Worker.start(self._compiler, self._memory_bytes)
        if self._closed:
            worker.kill_now()
            return await worker.ended()
        self.capabilities = worker.capabilities
        self._workers.add(worker)
        self._spawn(self._watch(worker))
        self._release(worker)

    async def _watch(self, worker: Worker) -> None:
        """Replace `worker` when its process has ended, after ever longer pauses while that does not succeed."""
        await worker.ended()
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        pause = 0.5
        while not self._closed:
            try:
                return await self._add()
            except WorkerStartError as error:
                log.error("worker_start_failed", pool=self.name, reason=str(error), retry_seconds=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._background.add(task)  # the event loop itself keeps only weak references
        task.add_done_callback(self._background.discard)
        return task

    def kill_now(self) -> None:
        """Kill every worker at once; for when the event loop is no more."""
        self._closed = True
        for worker in self._workers:
            worker.kill_now()

    async def close(self) -> None:
        """Kill every worker and wait until all are gone; what waits or runs ends with `PoolClosedError`."""
        self.kill_now()
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_exception(PoolClosedError())
        for worker in list(self._workers):
            await worker.ended()
        tasks = list(self._background)
        done, late = await asyncio.wait(tasks, timeout=1.0) if tasks else (set(), set())
        for task in late:  # a worker that is still starting, or a pause before starting one
            task.cancel()
        await asyncio.gather(*done, *late, return_exceptions=True)
