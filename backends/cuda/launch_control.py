"""The parts of a header whose work comes from cluster launch control (`sched_compiler.dispatch.ClusterLaunchControl`).

A scheduler thread and the consumers of a cluster share a ring (`backends/cuda/ring.py`). One header serves every
architecture: the preprocessor chooses who answers. On the host, for tests, what is answered is given as a list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from backends.cuda import ring as device
from backends.cuda.cancelling import HOST
from backends.ring import NONE
from sched_compiler.dispatch import CLUSTERS, HARDWARE_QUEUE, ClusterLaunchControl
from sched_compiler.program import Program
from sched_compiler.protocol import Protocol, Source, protocol

#: Included once, however many headers there are. What walks a ring runs on the device, or in a host compiler alone.
PRELUDE = """\
#ifndef SCHED_DEVICE
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SCHED_DEVICE __device__ __forceinline__
#else
#define SCHED_DEVICE inline
#endif
#endif
"""
#: Names that the schedule, the ring and its consumers' handles have for themselves.
_RING_MEMBER = re.compile(
    r"Ring|Place|place|init|schedule|ring|depth|ctas|none|memory|own|answers|at|elected|thread|tiles|counter|clusters|"
    r"Index|Tile|index|index_to_tile|in_bounds|items|next|rank|tile|tile_to_index|valid|[kt][0-9]+|p_.*|"
    r"Self|Shared|Arguments|storage|shared|drawn|turn|begin|leader|draw|answer"
)


def free_name(name: str, *taken: str) -> str:
    """A consumer's name that is neither one that the header has for itself nor taken."""
    return f"{name}_" if name in taken or _RING_MEMBER.fullmatch(name) else name


def described(program: Program, names: Sequence[str], source: Source) -> Protocol:
    """The ring's protocol with its consumers under names of C++."""
    ring = program.schedule.dispatch.ring
    assert ring is not None
    consumers = tuple(replace(c, name=name) for c, name in zip(ring.consumers, names, strict=True))
    return protocol(replace(ring, consumers=consumers, source=source))


def usage(program: Program, struct: str, arguments: str, names: Sequence[str]) -> list[str]:
    """The kernel that the header is for, as lines of a comment."""
    dispatch, found = program.schedule.dispatch, described(program, names, "hardware")
    assert isinstance(dispatch, ClusterLaunchControl)
    own = f" && blockIdx.x % {found.ring.ctas}u == 0" if found.ring.ctas > 1 else ""
    counter = "counter" if dispatch.fallback else "nullptr"
    lines = [
        "  for (sched::{0} s(arguments); s.valid(); s.next()) {{ auto t = s.tile(); ... }}",
        "",
        "by all threads of the worker, from `sched::{0}::Arguments arguments`: the same kernel as under any dispatch.",
        "Or, where parts of the kernel walk on their own:",
        "",
        "  __shared__ sched::{0}::Ring ring;",
        f"  const sched::{{0}} s{f'({arguments})' if arguments else ''};",
        "  ring.init();  // all threads of the cluster",
        f"  if (threadIdx.x == 0{own}) ring.schedule({counter}, s.items());  // a warp of its own",
    ]
    for role, name, first in zip(found.consumers, names, found.starts, strict=True):
        here = f"threadIdx.x == {first}"
        thread = ""
        if role.threads > 1:
            here, thread = f"threadIdx.x >= {first} && threadIdx.x < {first + role.threads}", f", threadIdx.x - {first}"
        lines += [
            f"  if ({here})",
            f"    for (sched::{{0}}::{name} w(s, ring{thread}); w.valid(); w.next()) {{{{ auto t = w.tile(); ... }}}}",
        ]
    ctas = f" of {found.ring.ctas} CTAs" if found.ring.ctas > 1 else ""
    when = f"From sm_{HARDWARE_QUEUE} on launch" if dispatch.fallback else "Launch"
    lines += [
        "",
        "Either way, walk to the end. Every consumer takes every item: a slot is free when all of them have read it.",
        f"{when} one cluster{ctas} for each item, along x; others cancel most of them.",
    ]
    if dispatch.fallback:
        lines += [
            "`counter` may be null there. Below, launch any number of clusters; `counter` is in global memory, zero",
            "before the first launch, and set back by every launch.",
        ]
    return [line.format(struct) for line in lines]


def members(program: Program, struct: str, names: Sequence[str]) -> str:
    """The ring, and a handle for each consumer."""
    dispatch, hardware = program.schedule.dispatch, described(program, names, "hardware")
    assert isinstance(dispatch, ClusterLaunchControl)
    if dispatch.fallback:
        least, older = CLUSTERS, device.members(described(program, names, "counter"), "Ring")
    else:
        least, older = HARDWARE_QUEUE, []
    text = (
        f"\n  using Self = {struct};\n"
        "  // Between the scheduler and the consumers of a cluster; in shared memory.\n"
        f"  struct Ring {{\n#if {HOST}\n{_indented(_host(hardware))}"
        f"#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {least * 10}\n"
        f'#error "{struct}: dispatch clc needs sm_{least} or later{"" if dispatch.fallback else ", or a fallback"}"\n'
    )
    if older:
        text += f"#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {HARDWARE_QUEUE * 10}\n{_indented(older)}"
    text += f"#else\n{_indented(device.members(hardware, 'Ring'))}#endif\n  }};\n"
    for role, name in zip(hardware.consumers, names, strict=True):
        threads = "one thread" if role.threads == 1 else f"{role.threads} threads"
        argument, passed = (", unsigned thread_", ", thread_") if role.threads > 1 else ("", "")
        text += (
            f"  // What consumer `{name}`, {threads} of each CTA, walks with: `valid()`, `tile()`, `next()`.\n"
            f"  struct {name} : Ring::{name} {{\n"
            f"    const Self& tiles;\n"
            f"    SCHED_DEVICE {name}(const Self& tiles_, const Ring& ring_{argument})\n"
            f"        : Ring::{name}(ring_, tiles_.items(){passed}), tiles(tiles_) {{}}\n"
            f"    SCHED_DEVICE Tile tile() const {{ return tiles.index_to_tile(this->index); }}\n"
            f"  }};\n"
        )
    return text


def _host(found: Protocol) -> list[str]:
    """On the host a consumer is one thread, and nobody schedules: `answers` are read in turn."""
    lines = [
        f"static constexpr unsigned depth = {found.ring.depth}, ctas = {found.ring.ctas}, none = {NONE}u;",
        "unsigned own;  // the cluster's own index",
        "const unsigned* answers;  // the CTA ids that the queue answers, `none` at last",
    ]
    for role in found.consumers:
        argument = ", unsigned" if role.threads > 1 else ""
        lines += [
            f"struct {role.name} {{",
            "  const unsigned* at;",
            "  unsigned index;",
            f"  SCHED_DEVICE {role.name}(const Ring& ring, unsigned items{argument})",
            "      : at(ring.answers), index(ring.own < items ? ring.own : none) {}",
            "  SCHED_DEVICE bool valid() const { return index != none; }",
            "  SCHED_DEVICE void next() {",
            "    index = *at == none ? none : *at / ctas;",
            "    ++at;",
            "  }",
            "};",
        ]
    return lines


def walks(program: Program, struct: str, names: Sequence[str], source: Source, record: str) -> str:
    """The body of the trace kernel from the ring on: the first consumer records, the others walk along."""
    found = described(program, names, source)
    own = f" && blockIdx.x % {found.ring.ctas}u == 0" if found.ring.ctas > 1 else ""  # in CTA 0 of the cluster
    counter = "counter" if source == "counter" else "nullptr"
    text = (
        f"  __shared__ sched::{struct}::Ring ring;\n  ring.init();\n"
        f"  if (threadIdx.x == 0{own}) ring.schedule({counter}, s.items());\n"
    )
    for n, (role, name, first) in enumerate(zip(found.consumers, names, found.starts, strict=True)):
        condition = f"threadIdx.x >= {first} && threadIdx.x < {first + role.threads}"
        thread = f", threadIdx.x - {first}" if role.threads > 1 else ""
        walk = f"for (sched::{struct}::{name} w(s, ring{thread}); w.valid(); w.next()"
        if n == 0:
            text += f"  if ({condition}) {{\n    unsigned long long n = 0;\n    {walk}, ++n) {{\n{record}    }}\n"
            text += f"    if (threadIdx.x == {first} && row < ctas) counts[row] = n;\n  }}\n"
        else:
            text += f"  if ({condition}) {{\n    {walk}) {{\n    }}\n  }}\n"
    return text


def _indented(lines: list[str]) -> str:
    return "".join([f"    {line}\n" if line else "\n" for line in lines])
