"""Threads of a block that have to do with one another, interpreted: barriers, mbarriers, the queue of clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.ptx.interpreter import Module, PtxError, PtxTrap
from backends.ring import NONE
from sched_compiler.protocol import Consumer, Protocol, Ring, Source, protocol
from tests.support.rings import ENTRY, EPILOGUE, LOAD, MMA, STORE, block, ptx_source


def module(body: str, shared: int = 64) -> Module:
    return Module.parse(
        ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 out) {\n"
        f".shared .align 16 .b8 memory[{shared}];\n"
        ".reg .b32 %t, %v, %a;\n.reg .b64 %out, %at;\n.reg .pred %p, %q;\n.reg .b128 %r;\n"
        "ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nsetp.eq.u32 %q, %t, 0;\n"
        f"{body}\nmul.wide.u32 %at, %t, 4;\nadd.u64 %at, %at, %out;\nst.global.u32 [%at], %v;\nret;\n}}\n"
    )


def run(body: str, threads: int, answers: dict[int, list[int]] | None = None) -> list[int]:
    """What each thread of one block left in %v."""
    out = np.zeros(threads, dtype=np.uint32)
    module(body).launch("k", np.array([0]), 4, [out], threads=threads, answers=answers)
    return out.tolist()


def test_a_block_meets_at_its_barrier() -> None:
    body = (
        "mov.u32 %v, 7;\n@!%q bra NEXT;\nst.shared.u32 [memory], %v;\nNEXT:\nbar.sync 0;\nld.shared.u32 %v, [memory];"
    )
    assert run(body.replace("%v, 7", "%v, %laneid"), 40) == [0] * 40
    assert run(body, 3) == [7, 7, 7]


def test_threads_that_have_ended_are_not_waited_for() -> None:
    assert run("mov.u32 %v, 1;\n@%q ret;\nbar.sync 0;", 3) == [0, 1, 1]


@pytest.mark.parametrize("barrier", ["bar.sync 1, 64", "bar.warp.sync 0xffffffff", "barrier.sync 0, 32"])
def test_who_is_missed_is_a_deadlock(barrier: str) -> None:
    body = f"mov.u32 %v, 1;\n@!%q bra NEXT;\n{barrier};\nNEXT:\n@%q bra END;\nbar.sync 2, 64;\nEND:"
    with pytest.raises(PtxTrap, match="every thread that is left waits"):
        run(body, 32)


def test_labels_belong_to_their_block() -> None:
    one = "{ again: add.u32 %v, %v, 1; setp.lt.u32 %p, %v, LIMIT; @%p bra again; }\n"
    assert run("mov.u32 %v, 0;\n" + one.replace("LIMIT", "3") + one.replace("LIMIT", "9"), 1) == [9]
    with pytest.raises(PtxError, match="goes to no label"):
        run("mov.u32 %v, 0;\n@%p bra again;\n{ again: add.u32 %v, %v, 1; }", 1)
    with pytest.raises(PtxError, match="stands twice"):
        run("{ again: mov.u32 %v, 0; again: mov.u32 %v, 1; }", 1)


WAIT = "{ again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [memory], PARITY; @!%p bra again; }\n"
INIT = "@%q mbarrier.init.shared::cta.b64 [memory], COUNT;\nbar.sync 0;\nmov.u32 %v, 5;\n"
ARRIVE = "mbarrier.arrive.release.cta.shared::cta.b64 _, [memory];\n"


def test_an_mbarrier_lets_go_when_all_have_arrived() -> None:
    assert run(INIT.replace("COUNT", "4") + ARRIVE + WAIT.replace("PARITY", "0"), 4) == [5] * 4
    before = WAIT.replace("PARITY", "1")  # of the phase before the first one there was none: nobody waits
    assert run(INIT.replace("COUNT", "4") + before, 4) == [5] * 4


def test_an_mbarrier_waits_for_bytes() -> None:
    expect = "@%q mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [memory], 16;\n"
    come = "@%q mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [memory], 16;\n"
    wait = WAIT.replace("PARITY", "0")
    assert run(INIT.replace("COUNT", "1") + expect + come + wait, 2) == [5, 5]
    with pytest.raises(PtxTrap, match="every thread that is left waits"):
        run(INIT.replace("COUNT", "1") + expect + wait, 2)


def test_misuse_of_an_mbarrier_is_a_trap() -> None:
    with pytest.raises(PtxTrap, match="no mbarrier lies there"):
        run(ARRIVE, 1)
    with pytest.raises(PtxTrap, match="no mbarrier lies there"):
        run(WAIT.replace("PARITY", "0"), 1)
    bytes_ = "@%q mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [memory], 16;\n"
    with pytest.raises(PtxTrap, match="all its arrivals"):
        run(INIT.replace("COUNT", "1") + bytes_ + ARRIVE, 1)


CANCEL = (
    INIT.replace("COUNT", "1") + "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [memory], 16;\n"
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [memory+16], [memory];\n"
    + WAIT.replace("PARITY", "0")
    + "ld.shared::cta.b128 %r, [memory+16];\n"
)
FIRST = "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %v, %r;"


def test_the_queue_answers_as_it_is_told() -> None:
    assert run(CANCEL + FIRST, 1, answers={0: [3, NONE]}) == [3]
    guarded = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %r;\nmov.u32 %v, 9;\n@%p " + FIRST
    assert run(CANCEL + guarded, 1, answers={0: [NONE]}) == [9]


def test_misuse_of_the_queue_is_a_trap() -> None:
    with pytest.raises(PtxTrap, match="no cluster's"):
        run(CANCEL + FIRST, 1, answers={0: [NONE]})
    with pytest.raises(PtxTrap, match="asked after"):
        run(CANCEL + FIRST, 1, answers={0: []})


@pytest.mark.parametrize(
    "text",
    [
        "bar.arrive 0, 64;", "bar.warp.sync 1;", "bar.sync %t;", "bar.red.popc.u32 %v, 0, %p;", "barrier.cluster.sync;",
        "mbarrier.arrive.shared.b64 _, [memory];", "mbarrier.inval.shared::cta.b64 [memory];",
        "mbarrier.init.shared::cta.b64 [memory], 0;", "mbarrier.arrive.shared::cta.b64 %out, [memory];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [memory], %v, [memory];",
        "clusterlaunchcontrol.try_cancel.async.shared::cta.b128 [memory], [memory];",
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 %v, %r;", "add.u128 %r, %r, %r;",
    ],
)  # fmt: skip
def test_what_is_not_interpreted_is_said_so(text: str) -> None:
    with pytest.raises(PtxError):
        module(text)


# -- the ring ---------------------------------------------------------------------------------------------------------


def walk(described: Protocol, items: int, clusters: int) -> np.ndarray:
    """Walk the ring's test kernel; how often each item was seen by each consumer of each CTA."""
    ring = described.ring
    arch = "sm_100a" if ring.source == "hardware" else "sm_90a"
    visits = np.zeros((len(ring.consumers), ring.ctas, items), dtype=np.uint32)
    owners, counter = np.zeros_like(visits), np.zeros(1, dtype=np.uint32)
    grid, answers = clusters * ring.ctas, {}
    if ring.source == "hardware":
        grid = items * ring.ctas
        ids = range(0, grid, ring.ctas)
        answers = {w: [*ids[w + clusters :: clusters], NONE] for w in range(clusters)}
    followed = np.arange(min(clusters * ring.ctas, grid))
    Module.parse(ptx_source(described, arch)).launch(
        ENTRY, followed, grid, [visits, owners, counter, items], ring.ctas, threads=block(described), answers=answers
    )
    assert counter[0] == 0
    np.testing.assert_array_equal(owners, np.broadcast_to(owners[:1, :1], owners.shape))
    return visits


@pytest.mark.parametrize("source", ["hardware", "counter"])
@pytest.mark.parametrize("consumers", [(LOAD,), (LOAD, EPILOGUE), (LOAD, MMA, EPILOGUE, STORE)])
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_every_thread_of_a_ring_sees_every_item_once(
    depth: int, ctas: int, consumers: tuple[Consumer, ...], source: Source
) -> None:
    described = protocol(Ring(depth, consumers, ctas, source))
    threads = np.array([c.threads for c in consumers])[:, None, None]
    for items, clusters in ((1, 1), (7, 1), (11, 3), (3, 3)):
        visits = walk(described, items, clusters)
        np.testing.assert_array_equal(visits, np.broadcast_to(threads, visits.shape))


@pytest.mark.parametrize("source", ["hardware", "counter"])
def test_arrivals_that_are_counted_wrongly_do_not_pass(source: Source) -> None:
    described = protocol(Ring(1, (LOAD, MMA), 1, source))
    for empty in (described.empty - 1, described.empty + 1):
        with pytest.raises(PtxTrap):
            walk(replace(described, empty=empty), 7, 1)
