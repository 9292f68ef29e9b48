"""PTX from a Program: the trace kernel and the device functions, one instruction for each operation."""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping, Sequence

from backends.ptx import launch_control, queue
from sched_compiler.dispatch import CLUSTERS
from sched_compiler.expr import INT_TYPES, PRED, S32, U32, U64, Dtype, Expr
from sched_compiler.program import Program, generation
from sched_compiler.schedule import DRAWN, INDEX, RANK, WORKER, WORKERS, TableInput, tile_input

#: Changed whenever the text that is emitted for some program changes.
VERSION = "6"

#: Operations that are one instruction of two operands, on their type, or on its bits.
_DIRECT = {
    "add": "add", "sub": "sub", "mul": "mul.lo", "div": "div", "mod": "rem", "min": "min", "max": "max",
    "mulhi": "mul.hi", "shr": "shr", "lt": "setp.lt", "le": "setp.le", "eq": "setp.eq",
}  # fmt: skip
_BITWISE = {"band": "and", "bor": "or", "bxor": "xor"}
_TRUTHS = ("and", "or", "xor")
_INSTRUCTIONS = {
    **{(op, t.name): f"{name}.{t.name}" for op, name in _DIRECT.items() for t in INT_TYPES},
    **{(op, t.name): f"{name}.b{t.bits}" for op, name in _BITWISE.items() for t in INT_TYPES},
    **{(op, PRED.name): f"{op}.pred" for op in _TRUTHS},
}
_BANKS = {PRED.name: "%p", **{t.name: "%r" if t.bits == 32 else "%rd" for t in INT_TYPES}}


class Body:
    """The instructions of one function. Values that exist already are operands by node: registers, or literals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: dict[Expr, str] = {}
        self.tables: dict[str, str] = {}  # registers of the tables' addresses
        self._registers = {"%p": 0, "%r": 0, "%rd": 0}

    def register(self, dtype: Dtype) -> str:
        bank = _BANKS[dtype.name]
        number = self._registers[bank] = self._registers[bank] + 1
        return f"{bank}{number}"

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def declarations(self) -> list[str]:
        types = {"%p": "pred", "%r": "b32", "%rd": "b64"}
        return [f"\t.reg .{types[b]} {b}<{n + 1}>;" for b, n in self._registers.items() if n]

    def load_parameter(self, e: Expr, name: str) -> str:
        register = self.register(e.dtype)
        self.emit(f"ld.param.{e.dtype.name} {register}, [{name}]")
        return register

    def value(self, e: Expr, bound: Mapping[str, str]) -> str:
        """The operand that holds `e`: a register, or a literal. `bound` gives the registers of inputs by name."""
        values = self.values
        stack: list[Expr | None] = [e]  # a node after None is one whose operands are there
        while stack:
            node = stack.pop()
            if node is None:
                ready = stack.pop()
                assert ready is not None
                values[ready] = self._compute(ready)
            elif node.op == "var":
                values[node] = bound[str(node.attr)]
            elif node not in values:
                if node.op == "const":
                    values[node] = str(node.lo)
                else:
                    stack += (node, None, *node.args[::-1])
        return values[e]

    def assign(self, places: Sequence[tuple[str, Expr]], values: Sequence[Expr], bound: Mapping[str, str]) -> None:
        """Put values into registers, all of them computed before the first is put; one that stays is left alone."""
        changed = [(register, e) for (register, v), e in zip(places, values, strict=True) if e is not v]
        texts = [self.value(e, bound) for _, e in changed]
        for (register, e), text in zip(changed, texts, strict=True):
            self.emit(f"mov.b{e.dtype.bits} {register}, {text}")

    def forget(self, keep: Container[Expr]) -> None:
        """Drop every value but those of these nodes: what follows is not dominated by what came before."""
        self.values = {k: v for k, v in self.values.items() if k in keep}

    def in_register(self, e: Expr) -> str:
        """The operand of `e` in a register, where an instruction takes no literal."""
        if e.op != "const":
            return self.values[e]
        register = self.register(e.dtype)
        if e.dtype is PRED:
            self.emit(f"setp.eq.u32 {register}, {e.lo}, 1")
        else:
            self.emit(f"mov.{e.dtype.name} {register}, {e.lo}")
        return register

    def load_table(self, table: TableInput, name: str) -> None:
        register = self.register(U64)
        self.emit(f"ld.param.u64 {register}, [{name}]")
        self.emit(f"cvta.to.global.u64 {register}, {register}")
        self.tables[table.name] = register

    def _load(self, node: Expr) -> str:
        """Element `args[0]` of a table, or 0; the address of an element that is not read may be any."""
        index, guard = node.args
        address, result = self.register(U64), self.register(node.dtype)
        at, size = self.in_register(index), node.dtype.bits // 8
        if index.dtype.bits == 32:
            self.emit(f"mul.wide.{index.dtype.name} {address}, {at}, {size}")
        else:
            self.emit(f"shl.b64 {address}, {at}, {size.bit_length() - 1}")
        self.emit(f"add.u64 {address}, {self.tables[str(node.attr)]}, {address}")
        loading = f"ld.global.{node.dtype.name} {result}, [{address}]"
        if guard.value == 1:
            self.emit(loading)
        else:
            self.emit(f"mov.{node.dtype.name} {result}, 0")
            self.lines.append(f"\t@{self.in_register(guard)} {loading};")
        return result

    def _compute(self, node: Expr) -> str:
        if node.op == "load":
            return self._load(node)
        if node.op == "cast":
            return self._cast(node)
        if node.op == "fdiv":
            return self._divide_small(node)
        if node.op == "recip":
            return self._reciprocal(node)
        if node.op == "select" and node.dtype is PRED:
            return self._select_truth(node)
        args = list(map(self.values.__getitem__, node.args))
        first = node.args[0]
        if first.op == "const" and node.op not in _TRUTHS:
            args[0] = self.in_register(first)
        result = self.register(node.dtype)
        instruction = _INSTRUCTIONS.get((node.op, first.dtype.name))
        if instruction is not None:
            if node.op in _TRUTHS:
                args = [self.in_register(a) for a in node.args]
            self.emit(f"{instruction} {result}, {args[0]}, {args[1]}")
        elif node.op == "select":
            self.emit(f"selp.b{node.dtype.bits} {result}, {args[1]}, {args[2]}, {args[0]}")
        elif node.op == "madhi":
            whole, low = self.register(U64), self.register(U32)
            # apart, for ptxas makes one instruction of these and three of mad.wide
            self.emit(f"mul.wide.u32 {whole}, {args[0]}, {args[1]}")
            self.emit(f"add.u64 {whole}, {whole}, {args[2]}")
            self.emit(f"mov.b64 {{{low}, {result}}}, {whole}")
        elif node.op == "neg":
            # not neg, which ptxas would do again in the loop
            self.emit(f"not.b{node.dtype.bits} {result}, {args[0]}")
            self.emit(f"add.u{node.dtype.bits} {result}, {result}, 1")
        elif node.op == "log2":
            self.emit(f"bfind.u32 {result}, {args[0]}")
        elif node.op == "merge":
            self.emit(f"lop3.b32 {result}, {', '.join(args)}, 0xD8")
        else:
            assert node.op == "not", node.op
            self.emit(f"not.pred {result}, {args[0]}")
        return result

    def _divide_small(self, node: Expr) -> str:
        """See `FDIV_LIMIT`. The registers hold floating point in between."""
        dividend, divisor = node.args
        reciprocal, result = self.register(U32), self.register(U32)
        if dividend.value is not None:
            half_more = f"0f{struct.pack('>f', dividend.value + 0.5).hex().upper()}"
        else:
            half_more = self.register(U32)
            self.emit(f"cvt.rn.f32.u32 {half_more}, {self.values[dividend]}")
            self.emit(f"add.f32 {half_more}, {half_more}, 0f3F000000")
        self.emit(f"cvt.rn.f32.u32 {reciprocal}, {self.in_register(divisor)}")
        self.emit(f"rcp.approx.ftz.f32 {reciprocal}, {reciprocal}")
        self.emit(f"mul.f32 {reciprocal}, {reciprocal}, {half_more}")
        self.emit(f"cvt.rzi.u32.f32 {result}, {reciprocal}")
        return result

    def _reciprocal(self, node: Expr) -> str:
        """See `RECIP_LIMIT`. Adding to an exponent multiplies by a power of two."""
        d, k = self.in_register(node.args[0]), self.values[node.args[1]]
        low, left, more, above = (self.register(U32) for _ in range(4))
        beyond = self.register(PRED)
        self.emit(f"cvt.rn.f32.u32 {low}, {d}")
        self.emit(f"rcp.approx.ftz.f32 {low}, {low}")
        self.emit(f"add.u32 {low}, {low}, {(32 << 23) - 4}")
        if k != "0":
            self.emit(f"shl.b32 {above}, {k}, 23")
            self.emit(f"add.u32 {low}, {low}, {above}")
        self.emit(f"cvt.rzi.u32.f32 {low}, {low}")
        self.emit(f"mul.lo.u32 {left}, {low}, {d}")
        self.emit(f"not.b32 {left}, {left}")
        self.emit(f"mul.hi.u32 {more}, {left}, {low}")
        if k != "0":
            self.emit(f"shr.u32 {more}, {more}, {k}")
        self.emit(f"add.u32 {low}, {low}, {more}")
        self.emit(f"mul.lo.u32 {more}, {more}, {d}")
        self.emit(f"sub.u32 {left}, {left}, {more}")
        self.emit(f"setp.ge.u32 {beyond}, {left}, {d}")
        self.emit(f"selp.u32 {left}, 1, 0, {beyond}")
        self.emit(f"add.u32 {left}, {low}, {left}")
        return left

    def _cast(self, node: Expr) -> str:
        (arg,) = node.args
        register = self.values[arg]
        if arg.dtype.bits == node.dtype.bits:  # the registers are untyped
            return register
        result = self.register(node.dtype)
        if node.dtype.bits < arg.dtype.bits:
            self.emit(f"cvt.u32.u64 {result}, {register}")
        else:
            sign = "s" if arg.dtype is S32 else "u"
            self.emit(f"cvt.{sign}64.{sign}32 {result}, {register}")
        return result

    def _select_truth(self, node: Expr) -> str:
        c, a, b = (self.in_register(arg) for arg in node.args)
        both, neither, inverted, result = (self.register(PRED) for _ in range(4))
        self.emit(f"and.pred {both}, {c}, {a}")
        self.emit(f"not.pred {inverted}, {c}")
        self.emit(f"and.pred {neither}, {inverted}, {b}")
        self.emit(f"or.pred {result}, {both}, {neither}")
        return result


def _module(program: Program, arch: str, ptx_version: str) -> str:
    """What begins every module: the comment says how tiles follow one another."""
    told = f"// Tile schedule {program.schedule.name}. {program.walk}\n"
    return f"{told}.version {ptx_version}\n.target {arch}\n.address_size 64\n"


def _pointer(name: str, align: int) -> str:
    return f"\t.param .u64 .ptr .global .align {align} {name}"


def _param(e: Expr) -> str:
    return f".{e.dtype.name}"


def kernel(program: Program, arch: str) -> str:
    """The trace kernel; see `backends.cuda.emitter.trace_source` for what it records."""
    schedule, body = program.schedule, Body()
    size, coord = schedule.worker_ctas, program.coord_type
    source = program.source(arch)
    params = [(f"p_{p.name}", p.var) for p in schedule.params]
    signature = [
        "\t.param .u64 .ptr .global .align 8 tiles",
        "\t.param .u64 .ptr .global .align 8 counts",
        "\t.param .u64 capacity",
        "\t.param .u32 first",
        "\t.param .u32 ctas",
    ]
    signature += [f"\t.param {_param(v)} {name}" for name, v in params]
    signature += [_pointer(f"p_{t.name}", t.element.bits // 8) for t in schedule.tables]
    ring = schedule.dispatch.ring is not None
    shares = schedule.dispatch.queue and not ring
    if shares:
        signature.append(_pointer("counter", 8))
    elif source == "counter":
        signature.append(_pointer("counter", 4))

    body.emit("mov.u32 %thread, %tid.x")
    body.emit(f"setp.ne.u32 %other, %thread, {program.recorder}")
    if not schedule.dispatch.queue:
        body.lines.append("\t@%other ret;")
    body.emit("mov.u32 %cta, %ctaid.x")
    body.emit("ld.param.u32 %first, [first]")
    body.emit("ld.param.u32 %ctas, [ctas]")
    body.emit("sub.u32 %row, %cta, %first")
    if schedule.dispatch.queue:  # every thread of every CTA takes part, and some record
        body.emit("setp.ge.or.u32 %other, %row, %ctas, %other")
    else:
        body.emit("setp.ge.u32 %other, %row, %ctas")
        body.lines.append("\t@%other ret;")
    bound = {p.name: body.load_parameter(p.var, f"p_{p.name}") for p in schedule.params}
    body.emit("ld.param.u64 %tiles, [tiles]")
    body.emit("ld.param.u64 %counts, [counts]")
    body.emit("ld.param.u64 %capacity, [capacity]")
    for table in schedule.tables:
        body.load_table(table, f"p_{table.name}")
    body.emit("cvta.to.global.u64 %tiles, %tiles")
    body.emit("cvta.to.global.u64 %counts, %counts")
    if size == 1:
        bound[WORKER] = "%cta"
    else:
        bound |= {WORKER: "%worker", RANK: "%rank"}
        body.emit(f"div.u32 %worker, %cta, {size}")
        body.emit(f"rem.u32 %rank, %cta, {size}")
    if not schedule.dispatch.fixed:
        bound[WORKERS] = "%workers"
        body.emit("mov.u32 %workers, %nctaid.x")
        if size > 1:
            body.emit(f"div.u32 %workers, %workers, {size}")
    for e in program.invariants:
        body.value(e, bound)
    row = (len(schedule.axes) + 1) * coord.bits // 8

    def begin_records() -> None:
        body.emit("mov.u64 %n, 0")
        body.emit("cvt.u64.u32 %out, %row")
        body.emit("mul.lo.u64 %out, %out, %capacity")
        body.emit(f"mul.lo.u64 %out, %out, {row}")
        body.emit("add.u64 %out, %tiles, %out")

    if ring:
        begin_records()

        def record(index: str) -> None:
            kept = set(body.values)
            body.emit("setp.ge.or.u64 %full, %n, %capacity, %other")
            body.lines.append("\t@%full bra NEXT;")
            _record(body, program, {**bound, INDEX: index})
            body.label("NEXT")
            body.forget(kept)
            body.emit("add.u64 %n, %n, 1")

        launch_control.walks(body, program, source or "hardware", bound, record)
        body.emit("ret")
        return _entry(program, arch, signature, body)

    index = "%index" if schedule.index_type.bits == 32 else "%wide"
    state = [(str(v.attr), body.register(v.dtype), v) for v in program.state]
    kept_values = [(index, schedule.index), *((register, v) for _, register, v in state)]
    body.assign(kept_values, program.start, bound)
    bound |= {name: register for name, register, _ in state}
    if shares:
        queue.prepare(body, program, index)
    begin_records()
    kept = set(body.values)
    bound[INDEX] = index

    body.label("LOOP")
    body.value(program.valid, bound)
    going = body.in_register(program.valid)
    body.lines.append(f"\t@!{going} bra DONE;")
    if shares:
        queue.draw(body, program, bound)
        body.emit("setp.ge.or.u64 %full, %n, %capacity, %other")
    else:
        body.emit("setp.ge.u64 %full, %n, %capacity")
    body.lines.append("\t@%full bra NEXT;")
    _record(body, program, bound)
    body.label("NEXT")
    body.forget(kept)
    body.emit("add.u64 %n, %n, 1")
    if shares:
        bound[DRAWN] = queue.receive(body, program)
    body.assign(kept_values, program.advance, bound)
    body.emit("bra LOOP")
    body.label("DONE")
    if shares:
        body.lines.append("\t@%other ret;")
    body.emit("mul.wide.u32 %out, %row, 8")
    body.emit("add.u64 %out, %counts, %out")
    body.emit("st.global.u64 [%out], %n")
    body.emit("ret")
    return _entry(program, arch, signature, body)


def _record(body: Body, program: Program, inputs: Mapping[str, str]) -> None:
    """Write the tile of the current index to `%out`, and move that to the next row."""
    schedule, coord, bound = program.schedule, program.coord_type, dict(inputs)
    for axis, e in zip(schedule.axes, program.tile, strict=True):
        body.value(e, bound)
        bound[tile_input(axis.name)] = body.in_register(e)
    for k, axis in enumerate(schedule.axes):
        body.emit(f"st.global.{coord.name} [%out+{k * coord.bits // 8}], {bound[tile_input(axis.name)]}")
    flag = body.register(coord)
    if program.in_bounds.value is not None:
        body.emit(f"mov.b{coord.bits} {flag}, {program.in_bounds.value}")
    else:
        body.emit(f"selp.b{coord.bits} {flag}, 1, 0, {body.value(program.in_bounds, bound)}")
    body.emit(f"st.global.{coord.name} [%out+{len(schedule.axes) * coord.bits // 8}], {flag}")
    body.emit(f"add.u64 %out, %out, {(len(schedule.axes) + 1) * coord.bits // 8}")


def _entry(program: Program, arch: str, signature: Sequence[str], body: Body) -> str:
    """The kernel of these parameters and instructions."""
    size = program.schedule.worker_ctas
    named = [
        "\t.reg .b32 %thread, %cta, %worker, %rank, %workers, %index, %first, %ctas, %row;",
        "\t.reg .b64 %tiles, %counts, %capacity, %n, %out, %wide;",
        "\t.reg .pred %other, %full;",
    ]
    cluster = f".explicitcluster\n.reqnctapercluster {size}, 1, 1\n" if size > 1 and _has_clusters(arch) else ""
    head = f".visible .entry {program.entry}(\n" + ",\n".join(signature) + f"\n)\n.maxntid {program.block}, 1, 1\n"
    return f"{head}{cluster}{{\n" + "\n".join([*body.declarations(), *named, *body.lines]) + "\n}\n"


def _has_clusters(arch: str) -> bool:
    return generation(arch) >= CLUSTERS


def functions(program: Program) -> str:
    """Device functions: `NAME_index_to_tile` and, where there is an inverse, `NAME_tile_to_index`.

    Arguments: the work index (then the CTA's rank in its cluster, where there are clusters) or the coordinates, then
    the parameters in the order of the spec, then the addresses of the tables that it reads. A tile is returned as its
    coordinates one after another.
    """
    schedule = program.schedule
    width = program.coord_type.bits // 8
    extra = [(RANK, schedule.rank)] if schedule.cluster_size > 1 else []
    inputs = [(INDEX, schedule.index), *extra]
    names = [a.name for a in schedule.axes]
    result = _function(
        program, f"{program.identifier}_index_to_tile", inputs, list(program.coords), len(names) * width, width
    )
    if program.inverse is not None:
        tile = [(tile_input(a.name), t) for a, t in zip(schedule.axes, schedule.tile, strict=True)]
        bytes_ = schedule.index_type.bits // 8
        result += _function(program, f"{program.identifier}_tile_to_index", tile, [program.inverse], bytes_, bytes_)
    return result


def _function(
    program: Program, name: str, inputs: Sequence[tuple[str, Expr]], roots: Sequence[Expr], size: int, width: int
) -> str:
    schedule, body = program.schedule, Body()
    variables = [*inputs, *((p.name, p.var) for p in schedule.params)]
    signature = [f"\t.param {_param(v)} a{k}" for k, (_, v) in enumerate(variables)]
    tables = schedule.tables
    if tables:
        read = {node.attr for node in schedule.graph.needed(roots) if node.op == "load"}
        tables = tuple(t for t in tables if t.name in read)
    signature += [f"\t.param .u64 p_{t.name}" for t in tables]
    bound = {n: body.load_parameter(v, f"a{k}") for k, (n, v) in enumerate(variables)}
    for table in tables:
        body.load_table(table, f"p_{table.name}")
    for k, root in enumerate(roots):
        body.value(root, bound)
        body.emit(f"st.param.b{width * 8} [out+{k * width}], {body.in_register(root)}")
    body.emit("ret")
    return (
        f".visible .func (.param .align {width} .b8 out[{size}]) {name}(\n" + ",\n".join(signature) + "\n)\n{\n"
        + "\n".join([*body.declarations(), *body.lines]) + "\n}\n"
    )  # fmt: skip


def kernel_module(program: Program, arch: str, ptx_version: str) -> str:
    """A module of the trace kernel alone: what becomes a cubin."""
    return f"{_module(program, arch, launch_control.release(program, ptx_version))}\n{kernel(program, arch)}"


def source(program: Program, arch: str, ptx_version: str) -> str:
    """A module of the device functions and the trace kernel: what users read and link."""
    head = _module(program, arch, launch_control.release(program, ptx_version))
    return f"{head}\n{functions(program)}\n{kernel(program, arch)}"
