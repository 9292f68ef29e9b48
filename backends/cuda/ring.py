"""CUDA C++ of a work ring: a struct for shared memory with the scheduler's walk and a handle for each consumer.

It includes nothing, so that NVRTC takes it. What is inside is printed from the protocol's steps: `backends/ring.py`.
"""

from __future__ import annotations

from backends import ring as ptx
from sched_compiler.protocol import Name, Protocol, Release, Role, Step, Stop

#: How operands are passed to inline assembly: constraint and C++ expression.
_OPERANDS = {
    "slot": ("r", "slots"),
    "full": ("r", "full"),
    "empty": ("r", "empty"),
    "parity": ("r", "parity"),
    "index": ("r", "index"),
    "counter": ("l", "counter"),
    "items": ("r", "items"),
    "clusters": ("r", "clusters"),
}
#: The methods of a place that give these addresses, and what stands there.
_ADDRESSES: dict[str, tuple[str, Name | None]] = {
    "slot": ("slots", None), "full": ("full", "full"), "empty": ("empty", "empty"),
}  # fmt: skip
_FUNCTION = "__device__ __forceinline__"


def ring(protocol: Protocol, name: str, named_barrier: int = 1) -> str:
    """The struct `sched::NAME`. `named_barrier` is the first of those that consumers of several warps use.

    A kernel calls `init()` from all threads of the cluster, `schedule(counter, items)` from one thread of CTA 0, and
    walks `for (sched::NAME::CONSUMER w(ring, items); w.valid(); w.next()) ... w.index`; a consumer of several threads
    is told the thread's number among them too. The grid is one-dimensional. With the hardware source it has one cluster
    for each item, and `counter` and `items` are not looked at; with the counter source, `counter` is 0 before the first
    launch and after each.
    """
    described = protocol.ring
    by = "the hardware queue" if described.source == "hardware" else "tickets of a counter"
    return (
        f"// A ring of {described.depth} work indices, fed by {by}. Generated: change the spec, not this file.\n"
        f"namespace sched {{\nstruct {name} {{\n{_indented(members(protocol, name, named_barrier))}}};\n"
        f"}}  // namespace sched\n"
    )


def members(protocol: Protocol, name: str, named_barrier: int = 1) -> list[str]:
    """What stands in the struct `name`."""
    barriers = ptx.named_barriers(protocol, named_barrier)
    described = protocol.ring
    body = [
        f"static constexpr unsigned depth = {described.depth}, ctas = {described.ctas}, none = {ptx.NONE}u;",
        f"alignas(16) unsigned char memory[{ptx.size(described)}];",
        "",
        "// A place in the ring: a slot, its barriers (addresses in shared memory), and the parity of the round.",
        *_place(protocol),
        "",
        "// All threads of the cluster, before anything else.",
        *_init(protocol),
        "",
        "// One thread of CTA 0 of the cluster: hands out work until none is left.",
        *_schedule(protocol),
    ]
    for role in protocol.consumers:
        body += [
            "",
            f"// What consumer `{role.name}` of each CTA walks with.",
            *_handle(protocol, role, name, barriers),
        ]
    return body


def _indented(lines: list[str]) -> str:
    return "".join([f"  {line}\n" if line else "\n" for line in lines])


def _place(protocol: Protocol) -> list[str]:
    lines = ["struct Place {", "  unsigned ring, slot = 0, parity = 0;"]
    for name, what in _ADDRESSES.values():
        start, stride = ptx.offset(protocol.ring, what)
        lines.append(f"  {_FUNCTION} unsigned {name}() const {{ return ring + {start}u + slot * {stride}u; }}")
    return [
        *lines,
        f"  {_FUNCTION} void advance() {{",
        "    if (++slot == depth) { slot = 0; parity ^= 1u; }",
        "  }",
        "};",
        f"{_FUNCTION} Place place() const {{ return Place{{(unsigned)__cvta_generic_to_shared(memory)}}; }}",
    ]


def _init(protocol: Protocol) -> list[str]:
    one, all_ = ptx.initialise(protocol)
    return [
        f"{_FUNCTION} void init() const {{",
        "  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {",
        *_addresses("place()", one),
        *assembly(one, "    "),
        "  }",
        *assembly(all_, "  "),
        "}",
    ]


def _addresses(place: str, *codes: ptx.Code) -> list[str]:
    used = {name for code in codes for name in code.reads}
    lines = [f"    const unsigned {v} = {place}.{v}();" for k, (v, _) in _ADDRESSES.items() if k in used]
    return [*lines, *([f"    const unsigned parity = {place}.parity;"] if "parity" in used else [])]


def assembly(code: ptx.Code, indent: str, condition: str = "") -> list[str]:
    """One statement, an instruction to a line; its operands are C++ variables of the names in `_OPERANDS`."""
    if not code.lines:
        return []
    operands = [*code.writes, *code.reads]
    places = {name: f"%{n}" for n, name in enumerate(operands)}
    text = "\n".join([*(f".reg {r};" for r in code.registers), *code.lines]).format(**places).split("\n")
    if code.registers:
        text = ["{", *text, "}"]
    outs = ", ".join(f'"={_OPERANDS[n][0]}"({_OPERANDS[n][1]})' for n in code.writes)
    ins = ", ".join(f'"{_OPERANDS[n][0]}"({_OPERANDS[n][1]})' for n in code.reads)
    end = f' : {outs} : {ins} : "memory");'
    if len(text) == 1:
        return [f'{indent}{condition}asm volatile("{text[0]}"{end}']
    lines = [f'{indent}    "{line} "' for line in text]
    return [f"{indent}{condition}asm volatile(", *lines[:-1], f'{indent}    "{text[-1]}"{end}']


def _steps(protocol: Protocol, role: Role, steps: tuple[Step, ...], place: str, named_barrier: int = 0) -> list[str]:
    """Statements for the steps before `Stop`, which is always the last."""
    lines, codes = [], []
    for step in steps:
        if isinstance(step, Stop):
            continue
        code = ptx.step(protocol, role, step, named_barrier)
        codes.append(code)
        elected = "if (elected) " if isinstance(step, Release) and role.threads > 1 else ""
        lines += assembly(code, "    ", elected)
    return [*_addresses(place, *codes), *lines]


def _schedule(protocol: Protocol) -> list[str]:
    role, described = protocol.scheduler, protocol.ring
    arguments, guard = "unsigned*, unsigned", []
    if described.source == "counter":
        arguments = "unsigned* counter, unsigned items"
        guard = ["  if (blockIdx.x / ctas >= items) return;", "  const unsigned clusters = gridDim.x / ctas;"]
    return [
        f"{_FUNCTION} void schedule({arguments}) const {{",
        *guard,
        "  Place at = place();",
        "  for (unsigned index = 0; index != none; at.advance()) {",
        *_steps(protocol, role, role.loop, "at"),
        "  }",
        "  for (unsigned n = 0; n < depth; ++n, at.advance()) {",
        *_steps(protocol, role, role.drain, "at"),
        "  }",
        "}",
    ]


def _handle(protocol: Protocol, role: Role, ring_name: str, barriers: dict[str, int]) -> list[str]:
    many, counted = role.threads > 1, protocol.ring.source == "counter"
    own = "blockIdx.x / ctas"
    first = f"{own} < items ? {own} : none" if counted else own
    name = role.name
    argument = f"unsigned{' items' if counted else ''}{', unsigned thread' if many else ''}"
    return [
        f"struct {name} {{",
        "  Place at;",
        "  unsigned index;  // the current work index",
        *(["  bool elected;"] if many else []),
        f"  {_FUNCTION} {name}(const {ring_name}& ring, {argument})",
        f"      : at(ring.place()), index({first}){', elected(thread == 0)' if many else ''} {{}}",
        f"  {_FUNCTION} bool valid() const {{ return index != none; }}",
        f"  {_FUNCTION} void next() {{",
        *_steps(protocol, role, role.loop, "at", barriers.get(name, 0)),
        "    at.advance();",
        "  }",
        "};",
    ]
