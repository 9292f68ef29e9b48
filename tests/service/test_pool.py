"""Worker processes: limits, deaths, the queue, and that none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.pool import (
    Answer,
    Pool,
    PoolClosedError,
    QueueFullError,
    TaskTimeoutError,
    WorkerDiedError,
    WorkerStartError,
)
from service.wire import Message
from tests.service.support import COMPILER, alive, until


def task(spec: str) -> Message:
    target: Message = {"arch": "sm_90a", "backend": "cuda", "emit": "cubin"}
    return {"do": "compile", "text": spec, "file": "spec.yaml", "files": {}, "include": [], **target}


@asynccontextmanager
async def pool(size: int = 1, **more: Any) -> AsyncIterator[Pool]:
    chosen = {"compiler": COMPILER, "memory_bytes": 1 << 30, "queue_limit": 8, "worker_tasks": 1000, **more}
    made = Pool("test", size, **chosen)
    await made.start()
    try:
        yield made
    finally:
        pids = made.pids
        await made.close()
        assert not any(alive(pid) for pid in pids)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(bounded())


async def compiles(p: Pool, spec: str = "a: 1", timeout: float = 5.0) -> Answer:
    answer = await p.run(task(spec), timeout)
    assert answer.data["answer"] == "done", answer.data
    return answer


def test_a_task_is_done_by_a_warm_process() -> None:
    async def test() -> None:
        async with pool(2) as p:
            assert len(p.pids) == 2
            assert p.capabilities["architectures"] == ["sm_90a"]
            answer = await compiles(p, "size: 3000000")
            assert len(answer.blob) == 3_000_000

    run(test)


def test_a_timeout_kills_the_process_and_frees_the_slot() -> None:
    async def test() -> None:
        async with pool() as p:
            (pid,) = p.pids
            with pytest.raises(TaskTimeoutError):
                await p.run(task("sleep: 60"), 0.2)
            await until(lambda: not alive(pid))
            await compiles(p)
            assert p.busy == 0

    run(test)


def test_a_timeout_kills_what_the_process_started(tmp_path: Path) -> None:
    async def test() -> None:
        async with pool() as p:
            with pytest.raises(TaskTimeoutError):
                await p.run(task(f"fault: spawn\npids: {tmp_path}/pids\nsleep: 60"), 0.7)
            pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
            assert len(pids) == 2
            await until(lambda: not any(alive(pid) for pid in pids))

    run(test)


def test_a_crash_leaves_the_others_alone() -> None:
    async def test() -> None:
        async with pool(2) as p:
            slow = asyncio.create_task(compiles(p, "sleep: 0.5"))
            await until(lambda: p.busy == 1)
            with pytest.raises(WorkerDiedError, match="exit code 3"):
                await p.run(task("crash: 3"), 5)
            await slow
            await until(lambda: len(p.pids) == 2)

    run(test)


def test_a_killed_process_is_named_and_replaced() -> None:
    async def test() -> None:
        async with pool() as p:
            (pid,) = p.pids
            running = asyncio.create_task(p.run(task("sleep: 30"), 60))
            await until(lambda: p.busy == 1)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDiedError, match="SIGKILL"):
                await running
            await compiles(p)
            assert pid not in p.pids

    run(test)


def test_an_idle_process_that_dies_is_replaced() -> None:
    async def test() -> None:
        async with pool() as p:
            (pid,) = p.pids
            os.kill(pid, signal.SIGKILL)
            await until(lambda: len(p.pids) == 1 and pid not in p.pids)
            await compiles(p)

    run(test)


def test_memory_is_limited() -> None:
    async def test() -> None:
        async with pool(memory_bytes=256 << 20) as p:
            answer = await p.run(task("allocate: 4096"), 10)
            assert answer.data == {"answer": "memory"}
            await compiles(p, "allocate: 20")

    run(test)


@pytest.mark.parametrize(
    ("spec", "answer"), [("fault: raise", "fault"), ("fault: recurse", "refused"), ("refuse: E041", "refused")]
)
def test_what_the_compiler_raises_is_an_answer(spec: str, answer: str) -> None:
    async def test() -> None:
        async with pool() as p:
            assert (await p.run(task(spec), 5)).data["answer"] == answer
            assert len(p.pids) == 1

    run(test)


def test_what_a_library_prints_does_not_garble_the_answer() -> None:
    async def test() -> None:
        async with pool() as p:
            await compiles(p, "fault: print")

    run(test)


def test_signals_to_the_group_do_not_reach_a_process_at_work() -> None:
    async def test() -> None:
        async with pool() as p:
            (pid,) = p.pids
            working = asyncio.create_task(compiles(p, "sleep: 0.3"))
            await until(lambda: p.busy == 1)
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
            await working

    run(test)


def test_the_queue_is_bounded() -> None:
    async def test() -> None:
        async with pool(queue_limit=1) as p:
            first = asyncio.create_task(compiles(p, "sleep: 0.3"))
            await until(lambda: p.busy == 1)
            second = asyncio.create_task(compiles(p))
            await until(lambda: p.waiting == 1)
            with pytest.raises(QueueFullError):
                await p.run(task("a: 2"), 5)
            await asyncio.gather(first, second)

    run(test)


def test_a_cancelled_task_leaves_the_queue(tmp_path: Path) -> None:
    async def test() -> None:
        async with pool() as p:
            first = asyncio.create_task(compiles(p, "sleep: 0.3"))
            await until(lambda: p.busy == 1)
            second = asyncio.create_task(p.run(task(f"log: {tmp_path}/log"), 5))
            await until(lambda: p.waiting == 1)
            second.cancel()
            await until(lambda: p.waiting == 0)
            await first
            await compiles(p)
            assert not (tmp_path / "log").exists()

    run(test)


def test_a_task_cancelled_in_its_turn_gives_the_process_back() -> None:
    async def test() -> None:
        async with pool() as p:
            worker = await p._free_worker()
            waiting = asyncio.create_task(p.run(task("a: 1"), 5))
            await until(lambda: p.waiting == 1)
            p._release(worker)  # its turn ...
            waiting.cancel()  # ... and its end, before it could notice
            await asyncio.gather(waiting, return_exceptions=True)
            await compiles(p)

    run(test)


def test_a_process_is_replaced_after_its_share_of_tasks() -> None:
    async def test() -> None:
        async with pool(worker_tasks=2) as p:
            seen = set()
            for _ in range(5):
                await until(lambda: len(p.pids) == 1)
                seen.update(p.pids)
                await compiles(p)
            assert len(seen) >= 3

    run(test)


def test_closing_ends_everything() -> None:
    async def test() -> None:
        async with pool() as p:
            running = asyncio.create_task(p.run(task("sleep: 30"), 60))
            await until(lambda: p.busy == 1)
            waiting = asyncio.create_task(p.run(task("a: 1"), 60))
            await until(lambda: p.waiting == 1)
            await p.close()
            for ended in (running, waiting):
                with pytest.raises(PoolClosedError):
                    await ended
            with pytest.raises(PoolClosedError):
                await p.run(task("a: 1"), 5)

    run(test)


def test_a_compiler_that_cannot_be_loaded_fails_the_start() -> None:
    async def test() -> None:
        with pytest.raises(WorkerStartError):
            async with pool(2, compiler="no.such.module"):
                pass

    run(test)
