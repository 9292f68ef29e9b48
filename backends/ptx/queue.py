"""The parts of the trace kernel that draw work from a counter that all workers share; see `backends.cuda.queue`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sched_compiler.expr import U64
from sched_compiler.program import Program
from sched_compiler.schedule import WORKERS

if TYPE_CHECKING:
    from backends.ptx.emitter import Body


def _width(program: Program) -> int:
    """Bytes of a slot, which holds a work index."""
    return program.schedule.index_type.bits // 8


def prepare(body: Body, program: Program, index: str) -> None:
    """Declare what a worker keeps: the item drawn ahead, the slot that is next, and who draws."""
    width = _width(program)
    bits = 8 * width
    body.lines.insert(0, f"\t.shared .align {2 * width} .b8 drawn[{2 * width}];")
    body.lines.insert(0, f"\t.reg .b{bits} %ahead;")
    body.lines.insert(0, "\t.reg .b32 %slot, %peer;")
    body.lines.insert(0, "\t.reg .b64 %counter, %ticket;")
    body.lines.insert(0, "\t.reg .pred %leader, %draws, %few, %last;")
    body.emit("ld.param.u64 %counter, [counter]")
    body.emit("cvta.to.global.u64 %counter, %counter")
    body.emit("setp.eq.u32 %leader, %thread, 0")
    if program.schedule.cluster_size > 1:
        body.emit("setp.eq.and.u32 %leader, %rank, 0, %leader")
        body.emit("barrier.cluster.arrive.release")  # nothing may be written to a CTA that has not begun
        body.emit("barrier.cluster.wait.acquire")
    body.emit("mov.u32 %slot, drawn")
    body.emit(f"mov.b{bits} %ahead, {index}")


def draw(body: Body, program: Program, bound: Mapping[str, str]) -> None:
    """The leader of a worker that holds an item draws the next; the last ticket of all sets the counter back."""
    width = _width(program)
    bits = 8 * width
    kind = f"u{bits}"
    items = body.value(program.items, bound)
    workers = bound[WORKERS]
    total, launched = body.register(program.schedule.index_type), body.register(program.schedule.index_type)
    wide = body.register(U64)
    same = program.items.dtype.bits == bits
    body.emit(f"mov.b{bits} {total}, {items}" if same else f"cvt.{kind}.{program.items.dtype.name} {total}, {items}")
    body.emit(f"mov.b{bits} {launched}, {workers}" if bits == 32 else f"cvt.u64.u32 {launched}, {workers}")
    body.lines.append("\t@!%leader bra HELD;")
    body.emit(f"mov.b{bits} %ahead, {total}")
    body.emit(f"setp.le.{kind} %few, {total}, {launched}")
    body.lines.append("\t@%few bra HELD;")
    body.emit("atom.global.add.u64 %ticket, [%counter], 1")
    body.emit(f"add.u64 {wide}, %ticket, 1")
    if bits == 32:
        limit = body.register(U64)
        body.emit(f"cvt.u64.u32 {limit}, {total}")
        body.emit(f"setp.eq.u64 %last, {wide}, {limit}")
        body.lines.append("\t@%last st.global.u64 [%counter], 0;")
        body.emit("cvt.u32.u64 %ahead, %ticket")
        body.emit(f"add.u32 %ahead, %ahead, {launched}")
    else:
        body.emit(f"setp.eq.u64 %last, {wide}, {total}")
        body.lines.append("\t@%last st.global.u64 [%counter], 0;")
        body.emit(f"add.u64 %ahead, %ticket, {launched}")
    body.label("HELD")


def receive(body: Body, program: Program) -> str:
    """All threads of the worker learn of the item that was drawn: the register that holds it.

    Two slots in turn make one barrier enough.
    """
    width = _width(program)
    size = program.schedule.cluster_size
    if size == 1:
        body.lines.append(f"\t@%leader st.shared.u{8 * width} [%slot], %ahead;")
        body.emit("barrier.sync 0")
    else:
        body.lines.append("\t@!%leader bra SENT;")
        for rank in range(size):
            body.emit(f"mapa.shared::cluster.u32 %peer, %slot, {rank}")
            body.emit(f"st.shared::cluster.u{8 * width} [%peer], %ahead")
        body.label("SENT")
        body.emit("barrier.cluster.arrive.release")
        body.emit("barrier.cluster.wait.acquire")
    result = body.register(program.schedule.index_type)
    body.emit(f"ld.shared.u{8 * width} {result}, [%slot]")
    body.emit(f"xor.b32 %slot, %slot, {width}")
    return result
