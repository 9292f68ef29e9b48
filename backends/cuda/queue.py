"""The parts of a header that draw work from a counter that all workers share (`sched_compiler.dispatch.Dynamic`).

One thread draws, one item ahead, so that the counter's latency passes while a tile is computed; every thread of the
worker learns of it through shared memory. Two slots in turn make one barrier for each item enough.
"""

from __future__ import annotations

from backends.cuda.methods import Method
from sched_compiler.program import Program

#: Included once, however many headers there are. On the host a worker is one thread.
PRELUDE = """\
#ifndef SCHED_QUEUE
#define SCHED_QUEUE
namespace sched {
namespace detail {
SCHED_FUNCTION bool first_thread() {
#ifdef __CUDA_ARCH__
  return (threadIdx.x | threadIdx.y | threadIdx.z) == 0;
#else
  return true;
#endif
}
SCHED_FUNCTION unsigned long long draw(unsigned long long* counter) {
#ifdef __CUDA_ARCH__
  return atomicAdd(counter, 1ull);
#else
  return (*counter)++;
#endif
}
SCHED_FUNCTION void cta_barrier() {
#ifdef __CUDA_ARCH__
  __syncthreads();
#endif
}
// Every thread of the cluster waits for the others, and sees what they wrote.
SCHED_FUNCTION void cluster_barrier() {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.release;\\n\\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// Writes to the same place of the shared memory of CTA `rank` of this cluster.
template <typename T>
SCHED_FUNCTION void cluster_store(T* place, T value, unsigned rank) {
#ifdef __CUDA_ARCH__
  const unsigned own = (unsigned)__cvta_generic_to_shared(place);
  unsigned other;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  if (sizeof(T) == 4) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(other), "r"((unsigned)value) : "memory");
  } else {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(other), "l"((unsigned long long)value) : "memory");
  }
#else
  (void)rank;
  *place = value;
#endif
}
}  // namespace detail
}  // namespace sched
#endif
"""

TOGETHER = "All threads of the worker call this together."
#: What a worker needs in the shared memory of each of its CTAs.
SHARED = "  struct Shared { Index drawn[2]; };\n"
#: Where it is, unless a kernel gives the place.
STORAGE = Method(
    "Shared*", "storage", body=("__shared__ Shared shared;", "return &shared;"), static=True, side="cuda"
)  # fmt: skip


def arguments() -> list[tuple[str, str, str | None]]:
    """The constructor's arguments, beyond those of other schedules: type, name, and what they stand for."""
    return [("Shared*", "shared", "$shared"), ("unsigned long long*", "counter", "$counter")]


#: Members: type, name, what they are.
MEMBERS = (("Index", "ahead", "the leader's: the item drawn ahead"), ("unsigned", "turn", "which slot is next"))


def started(program: Program) -> list[str]:
    """The end of the constructor's body, where the first item is known."""
    body = ["ahead = index;", "turn = 0;", "draw();"]
    if program.schedule.cluster_size > 1:  # nothing may be written to a CTA that has not begun
        body.append("detail::cluster_barrier();")
    return body


def shared_out(size: int) -> list[str]:
    """The end of the body of `next()`: the leader's item `ahead` reaches all threads of `size` CTAs, and it draws."""
    if size == 1:
        share = ["if (leader()) shared->drawn[turn] = ahead;", "detail::cta_barrier();"]
    else:
        send = f"for (unsigned r = 0; r < {size}u; ++r) detail::cluster_store(&shared->drawn[turn], ahead, r);"
        share = ["if (leader()) {", f"  {send}", "}", "detail::cluster_barrier();"]
    return [*share, "index = shared->drawn[turn];", "turn ^= 1u;", "draw();"]


def functions(program: Program) -> list[Method]:
    """The functions that `next()` uses."""
    leader = "detail::first_thread()"
    if program.schedule.cluster_size > 1:
        leader = f"rank == 0 && {leader}"
    why = (
        "Every worker draws until it draws an item past the end: as many tickets in all as there are items.",
        "Whoever draws the last of them sets the counter back, so that the kernel can be launched again.",
    )
    draw = (
        "if (!leader() || !valid()) return;",
        "const Index n = items();",
        "ahead = n;",
        "if (n <= workers) return;",
        "const unsigned long long ticket = detail::draw(counter);",
        "if (ticket + 1 == n) *counter = 0;",
        "ahead = (Index)(workers + ticket);",
    )
    return [
        Method("bool", "leader", (), (f"return {leader};",), const=True, flat=True),
        Method("void", "draw", (), draw, why),
    ]
