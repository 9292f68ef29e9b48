"""The ring's description: what is derived from the declared consumers, and what is refused."""

from __future__ import annotations

import pytest

from sched_compiler.protocol import (
    Arm,
    Consumer,
    Fence,
    Read,
    Release,
    Request,
    Ring,
    Sync,
    Wait,
    draws,
    protocol,
    ticket,
)

LOAD, MMA, EPILOGUE = Consumer("load"), Consumer("mma"), Consumer("epilogue", 128)


@pytest.mark.parametrize(
    ("consumers", "ctas", "arrivals"),
    [((LOAD,), 1, 1), ((LOAD, MMA), 1, 2), ((LOAD, MMA, EPILOGUE), 1, 3), ((LOAD, MMA, EPILOGUE), 2, 6)],
)
def test_arrivals_follow_from_the_consumers(consumers: tuple[Consumer, ...], ctas: int, arrivals: int) -> None:
    derived = protocol(Ring(3, consumers, ctas))
    assert derived.full == 1
    assert derived.empty == arrivals


def test_every_cta_is_armed_before_the_request_and_the_response_read_after_it() -> None:
    loop = protocol(Ring(2, (LOAD,), 2)).scheduler.loop
    order = [
        loop.index(step) for step in (Wait("empty", earlier=True), Arm(0), Arm(1), Request(), Wait("full"), Read())
    ]
    assert order == sorted(order)


def test_a_consumer_of_many_threads_meets_between_its_reads_and_its_release() -> None:
    one, many = (protocol(Ring(1, (c,))).consumers[0].loop for c in (LOAD, EPILOGUE))
    assert Sync() not in one
    order = [many.index(step) for step in (Wait("full"), Read(), Fence(), Sync(), Release(0))]
    assert order == sorted(order)


@pytest.mark.parametrize("threads", [0, -32, 2, 33, 1056])
def test_a_consumer_is_one_thread_or_whole_warps(threads: int) -> None:
    with pytest.raises(ValueError, match="neither one nor whole warps"):
        Consumer("load", threads)


@pytest.mark.parametrize(
    ("depth", "consumers", "ctas"), [(0, (LOAD,), 1), (1, (), 1), (1, (LOAD, LOAD), 1), (1, (LOAD,), 3)]
)
def test_a_ring_has_slots_and_consumers_of_different_names(
    depth: int, consumers: tuple[Consumer, ...], ctas: int
) -> None:
    with pytest.raises(ValueError, match="not a ring"):
        Ring(depth, consumers, ctas)


@pytest.mark.parametrize("clusters", range(1, 6))
@pytest.mark.parametrize("items", range(12))
def test_tickets_give_every_item_once_and_the_last_is_known(items: int, clusters: int) -> None:
    if not draws(items, clusters):
        assert items <= clusters
        return
    drawn = [ticket(n, items, clusters) for n in range(items)]
    assert [t.index for t in drawn if t.index is not None] == list(range(clusters, items))
    assert sum(t.index is None for t in drawn) == clusters
    assert [t.last for t in drawn] == [False] * (items - 1) + [True]
