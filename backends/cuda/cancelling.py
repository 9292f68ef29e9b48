"""The worker interface of a header whose work comes from cluster launch control: `valid()`, `tile()`, `next()`.

A kernel without roles needs no ring: all threads of a worker walk together, as under `dynamic` (`queue.py`). One thread
asks for the next item while the current one is worked on, waits for the answer, and hands it on through shared memory.
The instructions are those of a ring of one slot in the own CTA, whose only reader gives it back by asking again.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends import ring as instructions
from backends.cuda import queue
from backends.cuda.methods import CUDA, Member, Method
from backends.cuda.ring import assembly
from sched_compiler.dispatch import HARDWARE_QUEUE, ClusterLaunchControl
from sched_compiler.program import Program
from sched_compiler.protocol import RESPONSE_BYTES, Arm, Consumer, Fence, Protocol, Read, Request, Ring, Source, Wait
from sched_compiler.protocol import protocol as described

HOST = "!defined(__CUDACC__) && !defined(__CUDACC_RTC__)"
_OLDER = f"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {HARDWARE_QUEUE * 10}"


def _slot(source: Source) -> Protocol:
    return described(Ring(1, (Consumer("worker"),), source=source))


def _dispatch(program: Program) -> ClusterLaunchControl:
    dispatch = program.schedule.dispatch
    assert isinstance(dispatch, ClusterLaunchControl)
    return dispatch


def passed(program: Program) -> list[tuple[str, str]]:
    """Type and name of what a kernel has to pass beside parameters and tables."""
    return [("unsigned*", "counter")] if _dispatch(program).fallback else []


def shared() -> str:
    """What a worker needs in the shared memory of each of its CTAs. On the host the answers are given as a list."""
    size = RESPONSE_BYTES + 8
    return (
        "  struct Shared {\n"
        f"    alignas({RESPONSE_BYTES}) unsigned char memory[{size}];  // an answer, and its barrier\n"
        "    Index drawn[2];\n"
        f"#if {HOST}\n"
        "    const unsigned* answers;  // the CTA ids that the queue answers, 4294967295 at last\n"
        "#endif\n"
        "  };\n"
    )


def fields(program: Program) -> list[str]:
    """What a worker keeps, beside its index; a schedule that is made for a ring leaves it alone."""
    counter = ["unsigned* counter;  // below sm_100: in global memory, zero before the first launch"]
    return [
        "Shared* shared;  // in shared memory",
        *(counter if _dispatch(program).fallback else []),
        "unsigned turn;  // which slot is next, and the parity of the answer's barrier",
    ]


def functions(program: Program, valid: Sequence[str]) -> list[Member]:
    """What walks. `valid` is the body that tells whether there is a current tile."""
    size = program.schedule.worker_ctas
    fallback = _dispatch(program).fallback
    leader = "detail::first_thread()" if size == 1 else f"blockIdx.x % {size}u == 0 && detail::first_thread()"
    init, _ = instructions.initialise(_slot("hardware"), ("full",))
    begin = [
        "index = worker;", "turn = 0;", "shared = shared_;",
        *(["counter = counter_;"] if fallback else []),
        CUDA, "if (leader()) {", *(f"  {line}" for line in _addresses("full")), *assembly(init, "  "), "}", "#endif",
        "draw();",
        *(["detail::cluster_barrier();"] if size > 1 else []),  # nothing may be written to a CTA that has not begun
    ]  # fmt: skip
    counter = ("unsigned* counter_",) if fallback else ()
    ask = "Whether there is a current tile. Ask before `tile()`."
    once = "The worker's number, the same memory for all threads of a CTA, and the counter." if fallback else (
        "The worker's number, and the same memory for all threads of a CTA."
    )  # fmt: skip
    return [
        Method("void", "begin", ("unsigned worker", "Shared* shared_", *counter), tuple(begin), (once,), side="device"),
        Method("bool", "valid", (), tuple(valid), (ask,), const=True),
        Method(
            "void", "next", (),
            ("if (!valid()) return;", "const Index ahead = leader() ? answer() : 0;", *queue.shared_out(size)),
            (queue.TOGETHER,), side="device",
        ),
        Method("Tile", "tile", (), ("return index_to_tile(index);",), const=True, flat=True),
        Method(
            "bool", "leader", (), (CUDA, f"return {leader};", "#else", "return true;", "#endif"),
            const=True, side="device",
        ),
        Method(
            "void", "draw", (), tuple(_draw(size, fallback)),
            ("The leader asks for an item, but not again after the answer that there is none.",), side="device",
        ),
        Method("Index", "answer", (), tuple(_answer(size, fallback)), ("What the leader asked for.",), side="device"),
    ]  # fmt: skip


def _steps(source: Source, *steps: Arm | Request | Wait | Read | Fence) -> list[str]:
    protocol = _slot(source)
    return [
        line for step in steps for line in assembly(instructions.step(protocol, protocol.scheduler, step), "")
    ]  # fmt: skip


def _addresses(*names: str) -> list[str]:
    """Local variables of the names by which `assembly` knows the slot and its barrier."""
    start, _ = instructions.offset(_slot("hardware").ring, "full")
    place = "(unsigned)__cvta_generic_to_shared(shared->memory)"
    texts = {"slots": place, "full": f"{place} + {start}u"}
    return [f"const unsigned {name} = {texts[name]};" for name in names]


def _by_source(fallback: bool, counted: list[str], asked: list[str]) -> list[str]:
    return [_OLDER, *counted, "#else", *asked, "#endif"] if fallback else asked


def _draw(size: int, fallback: bool) -> list[str]:
    counted = [
        "const unsigned items = (unsigned)this->items();",
        f"const unsigned clusters = gridDim.x{f' / {size}u' if size > 1 else ''};",
        *_steps("counter", Request()),
    ]
    return [
        CUDA,
        "if (!leader() || !valid()) return;",
        *_addresses("slots", "full"),
        *_by_source(fallback, counted, _steps("hardware", Arm(0), Request())),
        "#endif",
    ]


def _answer(size: int, fallback: bool) -> list[str]:
    """The answer to the leader: read at once, and before it asks again, whatever proxy writes then."""
    none = f"{instructions.NONE}u"
    read = (Wait("full"), Read(), Fence())
    # the queue answers with the first CTA of a cluster
    divide = [f"if (index != {none}) index /= {size}u;"] if size > 1 else []
    return [
        CUDA,
        *_addresses("slots", "full"),
        "const unsigned parity = turn;",
        "unsigned index;",
        *_by_source(fallback, _steps("counter", *read), [*_steps("hardware", *read), *divide]),
        "#else",
        "unsigned index = *shared->answers++;",
        *divide,
        "#endif",
        f"return index == {none} ? items() : (Index)index;",
    ]
