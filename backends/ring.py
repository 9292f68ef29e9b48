"""The instructions of a work ring's steps, in PTX: what `backends/cuda` wraps and `backends/ptx` prints.

A group of one CTA synchronises at CTA scope. In a cluster, waits and arrivals are relaxed at cluster scope and paired
with fences restricted to shared memory: acquire and release at cluster scope would also invalidate L1 and drain global
memory for every item (`CCTL.IVALL`, `MEMBAR.ALL.GPU`), and nothing in the ring needs that.

Sources: PTX ISA 9.1, mbarrier, st.async, clusterlaunchcontrol.try_cancel and .query_cancel, membar/fence; CUDA
Programming Guide, cluster launch control.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sched_compiler.protocol import (
    NONE_LEFT,
    RESPONSE_BYTES,
    Arm,
    Fence,
    Name,
    Protocol,
    Read,
    Release,
    Request,
    Ring,
    Role,
    Step,
    Sync,
    Wait,
)

#: The first PTX ISA release with all that is used here (relaxed arrivals, restricted fences).
PTX_VERSION = "8.6"
#: The index that stands for "nothing left".
NONE = NONE_LEFT
#: Named barriers of a block; 0 is `__syncthreads`.
NAMED_BARRIERS = 16

_BARRIER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions that stand in a scope of their own.

    Operands are fields: `{full}`, `{empty}` and `{slot}` are addresses in the own CTA's shared memory, `{parity}` is of
    the current round, `{index}` the current index; `{counter}`, `{items}` and `{clusters}` are the source's.
    `registers` are local.
    """

    lines: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    registers: tuple[str, ...] = ()


def size(ring: Ring) -> int:
    """Bytes of a ring in the shared memory of each CTA; aligned to 16."""
    return ring.depth * (RESPONSE_BYTES + 2 * _BARRIER_BYTES)


def offset(ring: Ring, what: Name | None) -> tuple[int, int]:
    """Where slot 0, or its barrier, stands in the ring, and the distance to the next: bytes."""
    if what is None:
        return 0, RESPONSE_BYTES
    return ring.depth * (RESPONSE_BYTES + (_BARRIER_BYTES if what == "empty" else 0)), _BARRIER_BYTES


def named_barriers(protocol: Protocol, first: int) -> dict[str, int]:
    """The named barrier of each consumer of more than one warp. Raises ValueError where a block has too few."""
    names = [role.name for role in protocol.consumers if role.threads > 32]
    if first < 1 or first + len(names) > NAMED_BARRIERS:
        raise ValueError(f"{len(names)} named barriers from {first} on: a block has 1 to {NAMED_BARRIERS - 1}")
    return {name: first + n for n, name in enumerate(names)}


def initialise(protocol: Protocol, names: tuple[Name, ...] = ("full", "empty")) -> tuple[Code, Code]:
    """What one thread of each CTA does first, and then all threads of the cluster. `names` are the barriers in use."""
    lines = []
    for name in names:
        count = protocol.full if name == "full" else protocol.empty
        lines += [
            f"mbarrier.init.shared::cta.b64 [{{{name}}} + {n * _BARRIER_BYTES}], {count};"
            for n in range(protocol.ring.depth)
        ]
    lines.append("fence.mbarrier_init.release.cluster;")
    meet = ["bar.sync 0;"]
    if protocol.ring.ctas > 1:
        meet = ["barrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.wait.acquire.aligned;"]
    return Code(tuple(lines), names), Code(tuple(meet))


def step(protocol: Protocol, role: Role, what: Step, named_barrier: int = 0) -> Code:
    """The instructions of a step of `role`; `Release` is for its elected thread alone, and `Stop` is control flow."""
    ring = protocol.ring
    match what:
        case Wait(name, earlier):
            return _wait(ring, name, earlier)
        case Arm(cta):
            if _writes_itself(ring):
                return Code(())
            return _arrive(ring, "full", cta, f".expect_tx.relaxed.{_scope(ring)}", f", {RESPONSE_BYTES}")
        case Request():
            return _try_cancel(ring) if ring.source == "hardware" else _draw(ring)
        case Read():
            return _read(ring)
        case Fence():
            return Code(("fence.proxy.async.shared::cta;",))
        case Sync():
            met = f"bar.sync {named_barrier}, {role.threads};" if role.threads > 32 else "bar.warp.sync 0xffffffff;"
            return Code((met,))
        case Release(cta):
            if ring.ctas == 1:
                return _arrive(ring, "empty", cta, ".release.cta")
            code = _arrive(ring, "empty", cta, ".relaxed.cluster")
            fence = "fence.release.sync_restrict::shared::cta.cluster;"
            return Code((fence, *code.lines), code.reads, registers=code.registers)
    raise TypeError(f"no instructions for {what}")


def _writes_itself(ring: Ring) -> bool:
    """Whether the scheduler puts the response into the slot with a store of its own.

    The request is then complete at once, so that to arm the barrier, to write and to complete the bytes is the same as
    to write and then to arrive.
    """
    return ring.source == "counter" and ring.ctas == 1  # st.async is defined in a cluster of several CTAs only


def _scope(ring: Ring) -> str:
    return "cta" if ring.ctas == 1 else "cluster"


def _wait(ring: Ring, name: Name, earlier: bool) -> Code:
    order = "acquire.cta" if ring.ctas == 1 else "relaxed.cluster"
    parity = "before" if earlier else "{parity}"
    lines = ["xor.b32 before, {parity}, 1;"] if earlier else []
    lines += [
        "again:",
        f"mbarrier.try_wait.parity.{order}.shared::cta.b64 complete, [{{{name}}}], {parity};",
        "@!complete bra again;",
    ]
    if ring.ctas > 1:
        lines.append("fence.acquire.sync_restrict::shared::cluster.cluster;")
    return Code(tuple(lines), (name, "parity"), registers=(".pred complete", *([".b32 before"] if earlier else [])))


def _arrive(ring: Ring, name: Name, cta: int, kind: str, count: str = "") -> Code:
    if ring.ctas == 1:
        return Code((f"mbarrier.arrive{kind}.shared::cta.b64 _, [{{{name}}}]{count};",), (name,))
    return Code(
        (
            f"mapa.shared::cluster.u32 there, {{{name}}}, {cta};",
            f"mbarrier.arrive{kind}.shared::cluster.b64 _, [there]{count};",
        ),
        (name,),
        registers=(".b32 there",),
    )


def _try_cancel(ring: Ring) -> Code:
    to_all = ".multicast::cluster::all" if ring.ctas > 1 else ""
    request = f"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{to_all}.b128"
    return Code((f"{request} [{{slot}}], [{{full}}];",), ("slot", "full"))


def _draw(ring: Ring) -> Code:
    """The tickets of `protocol.ticket`, and what `try_cancel` does by itself: every CTA's slot and barrier."""
    lines = [
        f"mov.b32 answer, {NONE};",
        "setp.gt.u32 draws, {items}, {clusters};",
        "@!draws bra answered;",
        "atom.relaxed.gpu.global.add.u32 number, [{counter}], 1;",
        "add.u32 next, {clusters}, number;",
        "setp.lt.u32 wins, next, {items};",
        "@wins mov.b32 answer, next;",
        "add.u32 number, number, 1;",
        "setp.eq.u32 last, number, {items};",
        "@last st.relaxed.gpu.global.u32 [{counter}], 0;",
        "answered:",
        *_deliver(ring),
    ]
    registers = (".pred draws", ".pred wins", ".pred last", ".b32 answer", ".b32 number", ".b32 next")
    there = () if ring.ctas == 1 else (".b32 slot_there", ".b32 full_there")
    return Code(tuple(lines), ("slot", "full", "counter", "items", "clusters"), registers=(*registers, *there))


def _deliver(ring: Ring) -> Iterator[str]:
    four = "{{answer, answer, answer, answer}}"
    if _writes_itself(ring):
        yield f"st.shared::cta.v4.b32 [{{slot}}], {four};"
        yield "mbarrier.arrive.release.cta.shared::cta.b64 _, [{full}];"
        return
    for cta in range(ring.ctas):
        yield f"mapa.shared::cluster.u32 slot_there, {{slot}}, {cta};"
        yield f"mapa.shared::cluster.u32 full_there, {{full}}, {cta};"
        yield f"st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [slot_there], {four}, [full_there];"


def _read(ring: Ring) -> Code:
    if ring.source == "counter":
        registers = tuple(f".b32 same{n}" for n in range(3))
        return Code(
            ("ld.shared::cta.v4.b32 {{{index}, same0, same1, same2}}, [{slot}];",), ("slot",), ("index",), registers
        )
    query = "clusterlaunchcontrol.query_cancel"
    lines = [
        "ld.shared::cta.b128 response, [{slot}];",
        f"{query}.is_canceled.pred.b128 given, response;",
        f"mov.b32 {{index}}, {NONE};",
        f"@given {query}.get_first_ctaid::x.b32.b128 {{index}}, response;",
    ]
    if ring.ctas > 1:  # the first CTA of a cluster is `ctas` times the cluster's own index, and `ctas` is 2
        lines.append("@given shr.u32 {index}, {index}, 1;")
    return Code(tuple(lines), ("slot",), ("index",), (".b128 response", ".pred given"))
