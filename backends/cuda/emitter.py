"""CUDA C++ from a Program: the header that any kernel can include, and the trace kernel.

The header includes nothing, so that NVRTC takes it, and compiles for the host, so that it is tested without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from backends.cuda import cancelling, launch_control, methods, queue
from backends.cuda.methods import WIDTH, Member, Method
from backends.cuda.prelude import CHOOSE, PRELUDE
from backends.cuda.printer import CTYPE, Printer
from sched_compiler.expr import Expr, to_text
from sched_compiler.program import Program
from sched_compiler.protocol import Source
from sched_compiler.schedule import INDEX, RANK, WORKER, WORKERS, tile_input

#: Changed whenever the text that is emitted for some program changes.
VERSION = "10"

#: Words that C++ or a common compiler's predefined macros take; an axis of this name gets a trailing underscore.
_TAKEN = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl "
    "concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default "
    "delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long "
    "mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t "
    "while xor xor_eq NULL EOF assert errno linux unix i386 detail threadIdx blockIdx blockDim gridDim warpSize".split()
)
#: Names of the struct's own members, under any dispatch, so that its name is the same under all; a struct of such a
#: name gets a trailing underscore.
_MEMBER = re.compile(
    r"Index|Tile|Shared|index|index_to_tile|in_bounds|items|next|rank|tile|tile_to_index|valid|worker|workers|drawn|"
    r"counter|shared|position|end|digit[0-9]+|ahead|turn|draw|leader|Arguments|storage|begin|answer|Ring|Self|[kt][0-9]+|p_.*"
)


def safe(name: str) -> str:
    """An axis's name as a C++ identifier; the header's own macros begin with SCHED_. Different names stay different."""
    return f"{name}_" if name.rstrip("_") in _TAKEN or name.startswith(("_", "SCHED_")) else name


def struct_name(program: Program) -> str:
    """The struct's name in namespace `sched`: the schedule's, as far as C++ allows it."""
    name = safe(program.identifier)
    return f"{name}_" if _MEMBER.fullmatch(name) else name


def recording_consumer(program: Program) -> str:
    """The struct's name of the ring's first consumer, which the trace kernel records."""
    return _Header(program).consumers[0]


class _Header:
    """The pieces of the struct, with the names by which its methods know each value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        schedule = program.schedule
        self.struct = struct_name(program)
        self.index = CTYPE[schedule.index_type.name]
        self.coord = CTYPE[program.coord_type.name]
        self.fields = [safe(a.name) for a in schedule.axes]
        #: constructor arguments: type, name, the input of the schedule that they carry
        self.ring = schedule.dispatch.ring
        self.counted = schedule.dispatch.queue and self.ring is None
        self.arguments: list[tuple[str, str, str | None]] = [("unsigned", "worker", None)] if self.ring is None else []
        if self.counted:
            self.arguments += queue.arguments()
        if schedule.cluster_size > 1:
            self.arguments.append(("unsigned", "rank", RANK))
        if not schedule.dispatch.fixed:
            self.arguments.append(("unsigned", "workers", WORKERS))
        for p in schedule.params:
            self.arguments.append((CTYPE[p.var.dtype.name], f"p_{p.name}", p.name))
        for table in schedule.tables:
            self.arguments.append((f"const {CTYPE[table.element.name]}*", f"p_{table.name}", table.name))
        self.kept = [(t, n) for t, n, v in self.arguments if v is not None]
        self.inputs = {v: n for _, n, v in self.arguments if v is not None}
        #: what a worker keeps beside its index: type, name, variable
        self.state = [(CTYPE[v.dtype.name], str(v.attr).removeprefix("$"), v) for v in program.state]
        self.inputs |= {str(v.attr): name for _, name, v in self.state}
        consumers = [] if self.ring is None else [safe(c.name) for c in self.ring.consumers]
        self.consumers: list[str] = []
        for name in consumers:  # none may have another's name, either
            while (free := launch_control.free_name(name, self.struct, *self.consumers)) != name:
                name = free
            self.consumers.append(name)
        self.invariants = [(CTYPE[e.dtype.name], f"k{n}", e) for n, e in enumerate(program.invariants)]

    def constructor(self) -> Method:
        printer = Printer({**self.inputs, WORKER: "worker"}, choose=CHOOSE)
        body: list[str] = []
        for _, name, e in self.invariants:
            lines, (text,) = printer.print([e])
            body += [*lines, f"{name} = {text};"]
            printer.names[e.id] = name
        if self.ring is None:
            body += self._assign(printer, self.program.start)
        if self.counted:
            body += queue.started(self.program)
        # arguments are not called like members: users may compile with -Wshadow
        arguments = [f"{t} {n}" if v is None else f"{t} {n}_" for t, n, v in self.arguments]
        if self.ring is None and not any(re.search(r"\bworker\b", line) for line in body):  # there are no workers
            arguments[0] = "unsigned"
        initialisers = tuple(f"{n}({n}_)" for _, n in self.kept)
        explicit = len(self.arguments) == 1
        return Method("", self.struct, tuple(arguments), tuple(body), initialisers=initialisers, explicit=explicit)

    def passed(self) -> list[tuple[str, str]]:
        """Type and name of what a kernel has to pass, whatever the dispatch: parameters, tables, the counter."""
        own = ("worker", "rank", "workers", "shared", "counter")
        fields = [(t, n) for t, n, _ in self.arguments if n not in own]
        fields += [(t, n) for t, n, _ in self.arguments if n == "counter"]
        return fields if self.ring is None else [*fields, *cancelling.passed(self.program)]

    def launched(self) -> list[Member]:
        """The constructor that asks the device where it is."""
        size = self.program.schedule.worker_ctas
        block, grid = "blockIdx.x", "gridDim.x"
        if size > 1:
            block, grid = f"{block} / {size}u", f"{grid} / {size}u"
        known = {"worker": block, "rank": f"blockIdx.x % {size}u", "workers": grid, "shared": "storage()"}
        given = ", ".join(known.get(n, f"given.{n}") for _, n, _ in self.arguments)
        if len(given) > WIDTH // 2:
            given = "\n      " + given.replace(", ", ",\n      ")
        fields = "".join(f" {t} {n};" for t, n in self.passed())
        argument = f"const Arguments&{' given' if self.passed() else ''}"
        where = "In a grid along x; under a queue, by all threads of the CTA, and once in a kernel."
        body: list[str] = []
        if self.ring is not None:
            begun = [block, "storage()", *(f"given.{n}" for _, n in cancelling.passed(self.program))]
            body.append(f"begin({', '.join(begun)});")
        made = Method(
            "", self.struct, (argument,), tuple(body), (where,), (f"{self.struct}({given})",), explicit=True,
            side="cuda",
        )  # fmt: skip
        return [
            "  // What a kernel gets passed, whatever the dispatch, so that its source is the same for all of them.\n"
            f"  struct Arguments {{{fields} }};\n",
            *([queue.STORAGE] if self.program.schedule.dispatch.queue else []),
            made,
        ]

    def _assign(self, printer: Printer, values: Sequence[Expr]) -> list[str]:
        """What gives the index and the state these values, all of them computed before the first is given."""
        names = ["index", *(name for _, name, _ in self.state)]
        variables = [None, *(v for _, _, v in self.state)]
        changed = [(n, e) for n, e, v in zip(names, values, variables, strict=True) if e is not v]
        lines, texts = printer.print([e for _, e in changed])
        if len(changed) > 1:
            lines += [f"const auto {n}_ = {text};" for (n, _), text in zip(changed, texts, strict=True)]
            texts = [f"{n}_" for n, _ in changed]
        return [*lines, *(f"{n} = {text};" for (n, _), text in zip(changed, texts, strict=True))]

    def advance(self) -> Sequence[str]:
        """The body of `next()`."""
        if self.counted:
            return queue.shared_out(self.program.schedule.cluster_size)
        printer = self.printer({INDEX: "index"})
        lines = self._assign(printer, self.program.advance)
        if self.program.walk.carries or self.program.schedule.dispatch.step is None:  # not decoded, or not again
            return lines
        return [re.sub(r"^index = (.*);$", r"index = detail::opaque(\1);", line) for line in lines]

    def printer(self, bound: dict[str, str]) -> Printer:
        """For a method whose own inputs are `bound`."""
        return Printer({**self.inputs, **bound}, {e.id: n for _, n, e in self.invariants}, choose=CHOOSE)

    def method(self, roots: list[Expr], bound: dict[str, str]) -> tuple[list[str], list[str]]:
        """The body of a method whose own inputs are `bound`."""
        return self.printer(bound).print(roots)

    def function(self, head: str, argument: str, lines: list[str], result: str, comment: str = "") -> Method:
        """A method of one argument, which is left unnamed where the body does not use it."""
        body = (*lines, f"return {result};")
        kind, name = argument.split()
        used = any(re.search(rf"\b{name}\b", line) for line in body)
        returned, called = head.split()
        told = (comment,) if comment else ()
        return Method(returned, called, (argument if used else kind,), body, told, const=True)

    def walk(self) -> list[Member]:
        """The current index, and the methods that begin, end and advance the worker's walk."""
        lines, (condition,) = self.method([self.program.valid], {INDEX: "index"})
        valid = (*lines, f"return {condition};")
        begun = ["  Index index;  // the current work index\n\n", self.constructor(), *self.launched()]
        if self.ring is not None:
            return [*begun, *cancelling.functions(self.program, valid)]
        ask = "Whether there is a current tile. Ask before `tile()`."
        together = (queue.TOGETHER,) if self.counted else ()
        return [
            *begun,
            Method("bool", "valid", (), valid, (ask,), const=True),
            Method("void", "next", (), tuple(self.advance()), together),
            self.tile(),
        ]

    def tile(self) -> Method:
        """The current tile."""
        if not self.program.walk.carries:
            return Method("Tile", "tile", (), ("return index_to_tile(index);",), const=True, flat=True)
        lines, coords = self.method(list(self.program.tile), {INDEX: "index"})
        return Method("Tile", "tile", (), (*lines, f"return Tile{{{', '.join(coords)}}};"), const=True)

    def of_tile(self) -> list[Method]:
        """The methods that take a tile."""
        program = self.program
        bound = {tile_input(a.name): f"tile.{f}" for a, f in zip(program.schedule.axes, self.fields, strict=True)}
        lines, (inside,) = self.method([program.in_bounds], bound)
        told = "Whether a scheduled tile lies in the space; false for padding."
        found = [self.function("bool in_bounds", "Tile tile", lines, inside, told)]
        if program.inverse is not None:
            lines, (index,) = self.method([program.inverse], bound)
            told = "The work index that visits a scheduled tile."
            found.append(self.function("Index tile_to_index", "Tile tile", lines, index, told))
        return found

    def members(self) -> list[Member]:
        """Everything in the struct, but a ring and its consumers' handles."""
        program, counted = self.program, self.counted
        tile_lines, coords = self.method(list(program.coords), {INDEX: "i"})
        items_lines, (items,) = self.method([program.items], {})
        kept = [f"{t} {n};  // {_what(n)}" for t, n in self.kept]
        kept += [f"{t} {n};  // computed once" for t, n, _ in self.invariants]
        kept += [f"{t} {n};  // {_what(n)}" for t, n, _ in self.state]
        kept += [f"{t} {n};  // {what}" for t, n, what in queue.MEMBERS if counted]
        kept += [] if self.ring is None else cancelling.fields(program)
        fields = " ".join(f"{self.coord} {f};" for f in self.fields)
        return [
            f"  using Index = {self.index};\n  struct Tile {{ {fields} }};\n",
            *([queue.SHARED] if counted else [] if self.ring is None else [cancelling.shared()]),
            f"\n{methods.indented(kept, 1)}",
            *self.walk(),
            Method(
                "Index", "items", (), (*items_lines, f"return {items};"), ("The number of work items.",), const=True
            ),
            self.function("Tile index_to_tile", "Index i", tile_lines, f"Tile{{{', '.join(coords)}}}"),
            *self.of_tile(),
            *(queue.functions(program) if counted else []),
        ]

    def head(self) -> str:
        """The comment that begins every text: what it is, and the kernel that it is for."""
        schedule = self.program.schedule
        unit = "CTA" if schedule.worker_ctas == 1 else f"cluster of {schedule.worker_ctas} CTAs"
        arguments = ", ".join(n for _, n, _ in self.arguments)
        if len(arguments) > WIDTH // 2:
            arguments = "..."
        usage = [_loop(self.struct, arguments)]
        if self.ring is not None:
            usage = launch_control.usage(self.program, self.struct, arguments, self.consumers)
        told = f"A worker is a {unit}. Items: {_shorten(to_text(schedule.items))}."
        return self.comment(usage, [told, str(self.program.walk)])

    def comment(self, *parts: Sequence[str] | str) -> str:
        """Paragraphs after the line that every text begins with."""
        text = f"// Tile schedule {self.program.schedule.name}. Generated: change the spec, not this file.\n"
        for part in parts:
            lines = [part] if isinstance(part, str) else part
            text += "//\n" + "".join(f"// {line}".rstrip() + "\n" for line in lines)
        return text

    def prelude(self) -> str:
        """What the functions call."""
        queued = self.program.schedule.dispatch.queue
        return PRELUDE + (queue.PRELUDE if queued else "") + (launch_control.PRELUDE if self.ring is not None else "")

    def struct_of(self, inside: str) -> str:
        return f"namespace sched {{\nstruct {self.struct} {{\n{inside}}};\n}}  // namespace sched\n"


def header(program: Program) -> str:
    """The struct `sched::NAME`: construct from a worker's id, `valid()`, `tile()`, `next()`.

    Where work comes through a ring, these are methods of its consumers' handles.
    """
    h = _Header(program)
    inside = methods.inline(h.members())
    if h.ring is not None:
        inside += launch_control.members(program, h.struct, h.consumers)
    return f"{h.head()}#pragma once\n{h.prelude()}{h.struct_of(inside)}"


def declarations(program: Program) -> str:
    """The struct with its functions declared, for a kernel that is linked with `library`. For device code alone."""
    h = _Header(program)
    linked = (
        "The functions are in what `schedc compile --emit ltoir` or `--emit object` makes of the same spec: link it."
    )
    usage = [_loop(h.struct, "arguments")]
    return f"{h.comment(usage, linked)}#pragma once\n{h.struct_of(methods.declarations(h.members()))}"


def library(program: Program) -> str:
    """The functions that `declarations` declares, and no kernel."""
    h = _Header(program)
    defined = f"namespace sched {{\n{methods.definitions(h.struct, h.members())}}}  // namespace sched\n"
    return f"{declarations(program).replace('#pragma once', '', 1)}{h.prelude()}{defined}"


def _loop(struct: str, arguments: str) -> str:
    return f"  for (sched::{struct} s({arguments}); s.valid(); s.next()) {{ auto t = s.tile(); ... }}"


def _what(name: str) -> str:
    own = {
        "rank": "this CTA's rank in its cluster", "counter": "in global memory, zero before the first launch",
        "shared": "in shared memory", "end": "of this worker's range", "position": "in this worker's range",
    }  # fmt: skip
    if name in own:
        return own[name]
    if name.startswith("digit"):
        return "of the current work index"
    return "the number of workers launched" if name == "workers" else "run-time parameter"


def _shorten(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def trace_source(program: Program, source: Source | None = None) -> str:
    """The header and the trace kernel, which records the tiles of CTAs `first` to below `first + ctas`, in order.

    With c = cta - first, `tiles[(c * capacity + n) * (axes + 1)]` holds the coordinates of the CTA's n-th tile, then 1
    if it is in bounds; `counts[c]` the number of its tiles, which may exceed `capacity`. `source` answers a ring.
    """
    h, schedule = _Header(program), program.schedule
    size, width = schedule.worker_ctas, len(schedule.axes) + 1
    launched = {"worker": "blockIdx.x", "rank": "0u", "workers": "gridDim.x", "shared": "&shared"}
    if size > 1:
        own, all_ = f"blockIdx.x / {size}u", f"gridDim.x / {size}u"
        launched |= {"worker": own, "rank": f"blockIdx.x % {size}u", "workers": all_}
    passed = ", ".join(launched.get(name, name) for _, name, _ in h.arguments)
    params = "".join(f", {CTYPE[p.var.dtype.name]} p_{p.name}" for p in schedule.params if not p.nvshmem)
    asked = [p for p in schedule.params if p.nvshmem]
    own = "".join(f"  const {CTYPE[p.var.dtype.name]} p_{p.name} = nvshmem_my_pe();\n" for p in asked)
    include = "#include <nvshmem.h>\n" if asked else ""
    params += "".join(f", const {CTYPE[t.element.name]}* p_{t.name}" for t in schedule.tables)
    shared = only = ""
    records = "n < capacity"
    leaves = "  if (threadIdx.x != 0 || row >= ctas) return;\n"
    if h.counted:  # every thread of every CTA takes part
        params += ", unsigned long long* counter"
        shared = f"  __shared__ sched::{h.struct}::Shared shared;\n"
        leaves, records, only = (
            "",
            "threadIdx.x == 0 && row < ctas && n < capacity",
            "if (threadIdx.x == 0 && row < ctas) ",
        )
    elif h.ring is not None:
        params += ", unsigned* counter" if source == "counter" else ""
        records = f"threadIdx.x == {program.recorder} && row < ctas && n < capacity"
    variable = "s" if h.ring is None else "w"
    cluster = f"\n#if __CUDA_ARCH__ >= 900\n__cluster_dims__({size}, 1, 1)\n#endif\n" if size > 1 else ""
    record = [
        f"if ({records}) {{",
        f"  const auto t = {variable}.tile();",
        f"  {h.coord}* out = tiles + (row * capacity + n) * {width};",
        *(f"  out[{k}] = t.{f};" for k, f in enumerate(h.fields)),
        f"  out[{width - 1}] = s.in_bounds(t);",
        "}",
    ]
    if h.ring is None:
        walk = (
            f"{leaves}{shared}"
            f"  unsigned long long n = 0;\n"
            f"  for (sched::{h.struct} s({passed}); s.valid(); s.next(), ++n) {{\n"
            f"{methods.indented(record, 2)}"
            f"  }}\n"
            f"  {only}counts[row] = n;\n"
        )
    else:
        walk = f"  const sched::{h.struct} s{f'({passed})' if passed else ''};\n"
        walk += launch_control.walks(program, h.struct, h.consumers, source or "hardware", methods.indented(record, 3))
    return (
        f"{include}{header(program)}\n"
        f'extern "C" __global__ void {cluster}__launch_bounds__({program.block})\n'
        f"{program.entry}({h.coord}* tiles, unsigned long long* counts, unsigned long long capacity, "
        f"unsigned first, unsigned ctas{params}) {{\n"
        f"  const unsigned row = blockIdx.x - first;  // past `ctas` for a CTA below `first`\n"
        f"{own}{walk}"
        f"}}\n"
    )
