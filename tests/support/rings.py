"""A kernel that walks a work ring and writes down what every consumer saw, as CUDA C++ and as PTX.

Warp 0 holds the scheduler; the consumers' warps follow. `visits[(consumer * ctas + rank) * items + index]` counts the
threads that saw an index, `owners[...]` is the cluster of those that did.
"""

from __future__ import annotations

from backends.cuda import ring as cuda
from backends.ptx import ring as ptx
from backends.ring import NONE, PTX_VERSION, named_barriers
from backends.toolchain import nvjitlink
from sched_compiler.protocol import Consumer, Protocol, Role

ENTRY = "walk"
LOAD, MMA, EPILOGUE = Consumer("load"), Consumer("mma"), Consumer("epilogue", 128)
STORE = Consumer("store", 32)


def warps(role: Role) -> int:
    return -(-role.threads // 32)


def block(protocol: Protocol) -> int:
    """Threads of the kernel's block."""
    return 32 * (1 + sum(warps(role) for role in protocol.consumers))


def cuda_source(protocol: Protocol) -> str:
    ctas = protocol.ring.ctas
    cluster = f"__cluster_dims__({ctas}, 1, 1) " if ctas > 1 else ""
    branches, first = "", 32
    for n, role in enumerate(protocol.consumers):
        thread = "" if role.threads == 1 else f", threadIdx.x - {first}u"
        branches += (
            f"  if (threadIdx.x >= {first} && threadIdx.x < {first + role.threads}) {{\n"
            f"    for (sched::walked::{role.name} w(ring, items{thread}); w.valid(); w.next()) {{\n"
            f"      const unsigned at = ({n} * {ctas} + blockIdx.x % {ctas}) * items + w.index;\n"
            f"      atomicAdd(visits + at, 1u);\n"
            f"      owners[at] = blockIdx.x / {ctas};\n"
            f"    }}\n"
            f"  }}\n"
        )
        first += 32 * warps(role)
    return (
        f"{cuda.ring(protocol, 'walked')}\n"
        f'extern "C" __global__ void {cluster}__launch_bounds__({block(protocol)})\n'
        f"{ENTRY}(unsigned* visits, unsigned* owners, unsigned* counter, unsigned items) {{\n"
        f"  __shared__ sched::walked ring;\n"
        f"  ring.init();\n"
        f"  if (threadIdx.x == 0 && blockIdx.x % {ctas} == 0) ring.schedule(counter, items);\n"
        f"{branches}}}\n"
    )


def ptx_source(protocol: Protocol, arch: str) -> str:
    ctas = protocol.ring.ctas
    release = max(PTX_VERSION, nvjitlink.ptx_version(arch), key=lambda v: tuple(map(int, v.split("."))))
    barriers = named_barriers(protocol, 1)
    passed = ("own", "counter", "items", "clusters")
    scheduler = ptx.Walker(protocol, "ring", "s_", *passed)
    walkers = [
        ptx.Walker(protocol, "ring", f"{role.name}_", *passed, named_barrier=barriers.get(role.name, 0))
        for role in protocol.consumers
    ]
    lines = [
        ptx.shared(protocol, "ring"),
        ".reg .b32 tid, cta, own, rank, items, clusters, thread, at;",
        ".reg .b64 visits, owners, counter, entry;",
        ".reg .pred first, here, more;",
        *(line for w in (scheduler, *walkers) for line in w.registers()),
        "ld.param.b64 visits, [p0];", "ld.param.b64 owners, [p1];", "ld.param.b64 counter, [p2];",
        "ld.param.b32 items, [p3];",
        "mov.b32 tid, %tid.x;", "mov.b32 cta, %ctaid.x;", "mov.b32 clusters, %nctaid.x;",
        f"div.u32 own, cta, {ctas};", f"rem.u32 rank, cta, {ctas};", f"div.u32 clusters, clusters, {ctas};",
        "setp.eq.u32 first, tid, 0;",
        *scheduler.initialise("first"),
        "setp.eq.and.u32 here, rank, 0, first;",
        "@!here bra scheduled;",
        *scheduler.schedule(),
        "scheduled:",
    ]  # fmt: skip
    first = 32
    for n, (role, walker) in enumerate(zip(protocol.consumers, walkers, strict=True)):
        name = role.name
        lines += [
            f"sub.u32 thread, tid, {first};", f"setp.lt.u32 here, thread, {role.threads};", f"@!here bra {name}_end;",
            *walker.begin("thread" if role.threads > 1 else "0"),
            f"{name}_walk:",
            f"setp.ne.u32 more, {walker.index}, {NONE};", f"@!more bra {name}_end;",
            f"add.u32 at, rank, {n * ctas};", f"mad.lo.u32 at, at, items, {walker.index};",
            "mad.wide.u32 entry, at, 4, visits;", "red.global.add.u32 [entry], 1;",
            "mad.wide.u32 entry, at, 4, owners;", "st.global.u32 [entry], own;",
            *walker.next(role),
            f"bra {name}_walk;",
            f"{name}_end:",
        ]  # fmt: skip
        first += 32 * warps(role)
    cluster = f".explicitcluster\n.reqnctapercluster {ctas}, 1, 1\n" if ctas > 1 else ""
    body = "\n".join(f"\t{line}" for line in [*lines, "ret;"] if line)
    parameters = ", ".join(f".param .b{bits} p{n}" for n, bits in enumerate((64, 64, 64, 32)))
    return (
        f".version {release}\n.target {arch}\n.address_size 64\n"
        f".visible .entry {ENTRY}({parameters})\n.reqntid {block(protocol)}, 1, 1\n{cluster}{{\n{body}\n}}\n"
    )
