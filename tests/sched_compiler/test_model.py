"""The ring's protocol holds; and the checker finds every fault that is put into its description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sched_compiler.model import Verdict, check
from sched_compiler.protocol import (
    Arm,
    Consumer,
    Fence,
    Protocol,
    Read,
    Release,
    Request,
    Ring,
    Source,
    Step,
    Sync,
    Wait,
    protocol,
)

LOAD, MMA, EPILOGUE = Consumer("load"), Consumer("mma"), Consumer("epilogue", 128)
CONSUMERS = (LOAD, MMA, EPILOGUE, Consumer("store", 32))


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_it_holds_with_the_hardware_queue(depth: int, count: int, ctas: int) -> None:
    for items in range(7):
        verdict = check(protocol(Ring(depth, CONSUMERS[:count], ctas)), items)
        assert verdict.fault is None, f"{items} items\n{verdict}"


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_it_holds_with_a_counter(depth: int, count: int, ctas: int) -> None:
    for items in range(7):
        verdict = check(protocol(Ring(depth, CONSUMERS[:count], ctas, "counter")), items)
        assert verdict.fault is None, f"{items} items\n{verdict}"


@pytest.mark.parametrize("clusters", [2, 3])
@pytest.mark.parametrize("ctas", [1, 2])
def test_it_holds_where_clusters_share_a_counter(ctas: int, clusters: int) -> None:
    for items in range(7):
        verdict = check(protocol(Ring(2, (LOAD,), ctas, "counter")), items, clusters=clusters)
        assert verdict.fault is None, f"{items} items\n{verdict}"


@pytest.mark.parametrize(
    ("source", "consumers", "depth", "ctas", "items", "clusters"),
    [
        ("hardware", (LOAD,), 1, 1, 3, 1),
        ("hardware", (LOAD,), 2, 1, 3, 1),
        ("hardware", (LOAD,), 1, 2, 2, 1),
        ("hardware", (LOAD, MMA), 1, 1, 2, 1),
        ("hardware", (EPILOGUE,), 1, 1, 2, 1),
        ("counter", (LOAD,), 1, 1, 2, 3),
        ("counter", (LOAD,), 1, 2, 2, 1),
        ("counter", (EPILOGUE,), 1, 1, 3, 1),
    ],
)
def test_all_interleavings_say_the_same(
    source: Source, consumers: tuple[Consumer, ...], depth: int, ctas: int, items: int, clusters: int
) -> None:
    described = protocol(Ring(depth, consumers, ctas, source))
    every = check(described, items, clusters=clusters, every_order=True)
    assert every.fault is None
    assert every.states > check(described, items, clusters=clusters).states


# -- faults -----------------------------------------------------------------------------------------------------------

Change = Callable[[tuple[Step, ...]], tuple[Step, ...]]


def without(*steps: Step) -> Change:
    return lambda loop: tuple(s for s in loop if s not in steps)


def moved(step: Step, *, before: Step) -> Change:
    def change(loop: tuple[Step, ...]) -> tuple[Step, ...]:
        others = without(step)(loop)
        at = others.index(before)
        return (*others[:at], step, *others[at:])

    return change


def consumers(described: Protocol, change: Change) -> Protocol:
    return replace(described, consumers=tuple(replace(r, loop=change(r.loop)) for r in described.consumers))


def scheduler(described: Protocol, change: Change) -> Protocol:
    return replace(described, scheduler=replace(described.scheduler, loop=change(described.scheduler.loop)))


TWO, PEERS, MANY = Ring(1, (LOAD, MMA)), Ring(1, (LOAD,), 2), Ring(1, (EPILOGUE,))

#: name: the ring, the fault put into its protocol, and what its report must say
FAULTS: dict[str, tuple[Ring, Callable[[Protocol], Protocol], str]] = {
    "an arrival too few": (TWO, lambda p: replace(p, empty=p.empty - 1), "may count for that phase of empty"),
    "an arrival too many": (TWO, lambda p: replace(p, empty=p.empty + 1), "deadlock: scheduler waits for empty"),
    "a peer's arrival not counted": (PEERS, lambda p: replace(p, empty=p.empty - 1), "empty"),
    "an arming too many": (TWO, lambda p: replace(p, full=p.full + 1), "deadlock: scheduler waits for full"),
    "no fence": (TWO, lambda p: consumers(p, without(Fence())), "load of CTA 0 has read without a fence"),
    "no fence of the scheduler": (TWO, lambda p: scheduler(p, without(Fence())), "scheduler has read without a fence"),
    "fence after the release": (
        TWO, lambda p: consumers(p, moved(Release(0), before=Fence())), "has read without a fence",
    ),
    "read after the release": (TWO, lambda p: consumers(p, moved(Release(0), before=Read())), "has not read"),
    "threads do not meet": (MANY, lambda p: consumers(p, without(Sync())), "another thread of epilogue"),
    "threads meet after the release": (
        MANY, lambda p: consumers(p, moved(Release(0), before=Sync())), "another thread of epilogue",
    ),
    "armed after the request": (TWO, lambda p: scheduler(p, moved(Request(), before=Arm(0))), "does not expect"),
    "the peer is armed after the request": (
        PEERS, lambda p: scheduler(p, moved(Request(), before=Arm(1))), "full[0] of CTA 1 does not expect",
    ),
    "the peer is not armed": (PEERS, lambda p: scheduler(p, without(Arm(1))), "full[0] of CTA 1 does not expect"),
    "consumers start a phase early": (
        TWO, lambda p: consumers(p, lambda loop: (Wait("full", earlier=True), *loop[1:])), "has not been written",
    ),
    "consumers do not wait": (TWO, lambda p: consumers(p, without(Wait("full"))), "has not been written"),
    "the scheduler starts a phase late": (
        TWO, lambda p: scheduler(p, lambda loop: (Wait("empty"), *loop[1:])), "deadlock: scheduler waits for empty",
    ),
    "the scheduler does not wait": (
        TWO, lambda p: scheduler(p, without(Wait("empty", earlier=True))), "load of CTA 0 has not read",
    ),
    "the scheduler does not drain": (
        PEERS, lambda p: replace(p, scheduler=replace(p.scheduler, drain=())), "the CTA has ended",
    ),
    "the scheduler does not read": (
        TWO, lambda p: scheduler(p, without(Wait("full"), Read(), Fence())), "before it has read the response",
    ),
    "consumers stop before they release": (
        TWO, lambda p: consumers(p, lambda loop: (*loop[:-2], loop[-1], loop[-2])), "scheduler waits for empty",
    ),
}  # fmt: skip


def verdict_of(name: str, *, every_order: bool) -> Verdict:
    ring, fault, _ = FAULTS[name]
    described = protocol(ring)
    assert fault(described) != described
    return check(fault(described), 2, every_order=every_order)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_a_shortest_trace(name: str) -> None:
    found = verdict_of(name, every_order=True)
    assert found.fault is not None
    assert FAULTS[name][2] in found.fault, str(found)
    assert len(found.trace) <= 26


@pytest.mark.parametrize("name", FAULTS)
def test_one_order_for_each_sequence_of_answers_finds_it_too(name: str) -> None:
    assert verdict_of(name, every_order=False).fault is not None


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("source", ["hardware", "counter"])
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_an_arrival_count_off_by_one_is_found(depth: int, count: int, ctas: int, source: Source, off: int) -> None:
    described = protocol(Ring(depth, CONSUMERS[:count], ctas, source))
    if described.empty + off == 0:  # a barrier of no arrivals does not exist
        return
    assert check(replace(described, empty=described.empty + off), 6).fault is not None


def test_a_trace_reads_like_a_story() -> None:
    found = str(verdict_of("an arrival too few", every_order=True))
    assert found.splitlines()[0] == "  1  scheduler waits for empty[0]"
    assert found.splitlines()[-1].startswith("then nothing orders it after the phase before")
    assert "arrives at empty[0] of CTA 0" in found


def test_too_many_states_are_refused() -> None:
    with pytest.raises(OverflowError):
        check(protocol(TWO), 2, every_order=True, most_states=100)
