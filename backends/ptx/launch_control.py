"""The part of the trace kernel that walks a ring; see `backends.cuda.launch_control`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from backends.ptx import ring
from backends.ring import NONE, PTX_VERSION, named_barriers
from sched_compiler.expr import U64
from sched_compiler.program import Program
from sched_compiler.protocol import Source

if TYPE_CHECKING:
    from backends.ptx.emitter import Body


#: The release of PTX whose cluster barriers release and acquire.
_CLUSTER_BARRIER = "8.0"


def release(program: Program, least: str) -> str:
    """The PTX release that a module needs: `least`, or what the instructions of its dispatch need."""
    schedule = program.schedule
    needed = [least]
    if schedule.dispatch.ring is not None:
        needed.append(PTX_VERSION)
    if schedule.dispatch.queue and schedule.worker_ctas > 1:
        needed.append(_CLUSTER_BARRIER)
    return max(needed, key=lambda version: tuple(map(int, version.split("."))))


def walks(
    body: Body, program: Program, source: Source, bound: Mapping[str, str], record: Callable[[str], None]
) -> None:
    """All roles of the ring. `record` prints what the first consumer does with the index in a register."""
    found = program.protocol(source)
    assert found is not None
    ctas, own = found.ring.ctas, "%cta" if found.ring.ctas == 1 else "%worker"
    body.value(program.items, bound)
    items = body.in_register(program.items)
    if program.items.dtype.bits == 64:
        body.emit(f"cvt.u32.u64 %items, {items}")
        items = "%items"
    body.emit("mov.u32 %clusters, %nctaid.x")
    if ctas > 1:
        body.emit(f"div.u32 %clusters, %clusters, {ctas}")
    if source == "counter":
        body.emit("ld.param.u64 %counter, [counter]")
        body.emit("cvta.to.global.u64 %counter, %counter")
    barriers = named_barriers(found, 1)
    scheduler = ring.Walker(found, "ring", "s_", own, "%counter", items, "%clusters")
    # prefixes have numbers, for a consumer may be called like anything else in the kernel
    walkers = [
        ring.Walker(found, "ring", f"c{n}_", own, "%counter", items, "%clusters", barriers.get(role.name, 0))
        for n, role in enumerate(found.consumers)
    ]
    declared = [
        ring.shared(found, "ring"), ".reg .b32 %items, %clusters, %member;", ".reg .b64 %counter;",
        ".reg .pred %begins, %here, %more;", *(line for w in (scheduler, *walkers) for line in w.registers()),
    ]  # fmt: skip
    body.lines[:0] = [f"\t{line}" for line in declared]

    def put(lines: list[str]) -> None:
        body.lines += [line if line.endswith(":") else f"\t{line}" for line in lines if line]

    body.emit("setp.eq.u32 %begins, %thread, 0")
    put(scheduler.initialise("%begins"))
    if ctas > 1:  # in CTA 0 of the cluster
        body.emit("setp.eq.and.u32 %begins, %rank, 0, %begins")
    body.lines.append("\t@!%begins bra SCHEDULED;")
    put(scheduler.schedule())
    body.label("SCHEDULED")
    for n, (role, walker, start) in enumerate(zip(found.consumers, walkers, found.starts, strict=True)):
        body.emit(f"sub.u32 %member, %thread, {start}")
        body.emit(f"setp.lt.u32 %here, %member, {role.threads}")
        body.lines.append(f"\t@!%here bra END{n};")
        put(walker.begin("%member" if role.threads > 1 else "0"))
        body.label(f"WALK{n}")
        body.emit(f"setp.ne.u32 %more, {walker.index}, {NONE}")
        body.lines.append(f"\t@!%more bra {'DONE' if n == 0 else f'END{n}'};")
        if n == 0:
            record(walker.index)
        put(walker.next(role))
        body.emit(f"bra WALK{n}")
        if n == 0:
            body.label("DONE")
            body.lines.append("\t@%other bra END0;")
            counts = body.register(U64)
            body.emit(f"mul.wide.u32 {counts}, %row, 8")
            body.emit(f"add.u64 {counts}, %counts, {counts}")
            body.emit(f"st.global.u64 [{counts}], %n")
        body.label(f"END{n}")
