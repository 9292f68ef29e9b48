"""What the decode of a tile costs: instructions in the machine code of one loop, from this project and from its peers.

    decode.py table [--tvm PYTHON]            counts, by disassembly; no device
    decode.py build FOLDER [--tvm PYTHON]     the same kernels as cubins, for `decode_run.py FOLDER` on a device

The loop advances and writes every coordinate to one place in shared memory, by a store that no compiler may leave out.
A kernel walks the tiles of worker 0 but the first `skip` of them: a difference of two launches is free of what comes
before the loop. On a device, where the loop's own latencies count, there is a second form of it besides: `ahead`, in
which a tile is decoded at the end of the iteration before its own, as TVM's text has it.
Every figure is less that of a loop over the indices alone with as many stores. Where paths diverge, all are counted.
PYTHON is one that has TVM. CUTLASS is counted where the package nvidia-cutlass is; it knows one order, and pads bands.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import machine_code
import measure
from decode_cases import CASES, WORKERS, Case

from backends.ptx.emitter import Body
from backends.toolchain import nvjitlink, nvrtc
from backends.toolchain.resources import resources
from sched_compiler import SpecError, check, compile_spec, emit_text
from sched_compiler.driver import CompileRequest
from sched_compiler.program import Program
from sched_compiler.schedule import INDEX, RANK, WORKER

ARCH = "sm_90a"
CONTENDERS = ("bare", "cuda", "ptx", "plain", "tvm", "cutlass")
_ANY = "4294967295u"  # no index: the queue is empty

_HARNESS = """\
#define SINK(x) asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(place), "r"((unsigned)(x)))
#define ANY() any(place)
typedef unsigned uint;
__device__ unsigned any(unsigned place) {{
  unsigned index;
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(index) : "r"(place));
  return index;
}}
extern "C" __global__ void __launch_bounds__(32) kernel(long long* cycles, const unsigned skip{parameters}) {{
  if (blockIdx.x != 0) return;
  __shared__ unsigned stored;
  const unsigned place = (unsigned)__cvta_generic_to_shared(&stored);
{before}
  const long long begun = clock64();
{loop}
  *cycles = clock64() - begun;
}}
"""
_FOR = "#pragma unroll 1\n  for ({begin}; {valid}; {next}) {{\n{body}\n    {sinks}\n  }}"
_AHEAD = """\
  {begin};
  struct Coords {{ unsigned c0, c1, c2; }};
  const auto decode = [&] {{
{body}
    return Coords{{{coords}}};
  }};
  Coords t = decode();
#pragma unroll 1
  while ({valid}) {{
    {sinks}
    {next};
    t = decode();
  }}"""

_CUTLASS = """\
#include <cutlass/gemm/kernel/sm90_tile_scheduler.hpp>
using Scheduler = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;
extern "C" __global__ void prepare(Scheduler::Params* made, unsigned rows, unsigned columns) {  // as `initialize` does
  rows = (rows + 7) / 8 * 8, columns = (columns + 7) / 8 * 8;
  Scheduler::Params p;
  p.blocks_per_problem_ = rows * columns;
  p.log_swizzle_size_ = 3;
  p.raster_order_ = Scheduler::RasterOrder::AlongN;
  p.divmod_batch_ = cutlass::FastDivmodU64(rows * columns);
  p.divmod_cluster_shape_major_ = p.divmod_cluster_shape_minor_ = cutlass::FastDivmodU64Pow2(1);
  p.divmod_cluster_blk_major_ = cutlass::FastDivmodU64(columns);
  *made = p;
}
"""
_CUTLASS_SPEC = """\
version: 1
name: unused
space: {m: 1}
order: {loops: [m]}
dispatch: {single: {}}
kernel:
  source: cutlass.cu
  entry: kernel
  block: 32
  headers: [cuda, cccl, cutlass]
  arguments: [cycles: s64*, skip: u32, made: "bytes[PARAMS]@8"]
"""


@dataclass(frozen=True)
class Built:
    """One kernel and what was counted of it."""

    case: int
    contender: str
    instructions: int  # of the loop
    registers: int
    named: int  # registers in the loop
    local: int
    cubin: bytes


def harness(case: Case, before: str, loop: str, given: str | None = None) -> str:
    """The CUDA C++ of a kernel; `given` is how it takes its parameters."""
    usual = "".join(f", const unsigned {name}" for name in case.parameters)
    if case.tables:
        tables = ("b_indices", "h_indices", "q_indices", "tiles_indptr")
        usual = "".join(f", const int* __restrict__ {name}_ptr" for name in tables)
    return _HARNESS.format(parameters=usual if given is None else given, before=before, loop=loop)


def looped(begin: str, valid: str, following: str, body: str, coords: Sequence[str], ahead: bool) -> str:
    """The loop over the tiles; `body` declares what is in the texts of the coordinates."""
    if not ahead:
        sinks = " ".join(f"SINK({c});" for c in coords)
        return _FOR.format(begin=begin, valid=valid, next=following, body=body, sinks=sinks)
    sinks = " ".join(f"SINK(t.c{k});" for k in range(len(coords)))
    given = ", ".join(f"(unsigned)({c})" for c in coords)
    return _AHEAD.format(begin=begin, valid=valid, next=following, body=body, coords=given, sinks=sinks)


def _over_indices(case: Case, body: str, coords: Sequence[str], ahead: bool) -> str:
    """A loop over the indices, written by hand."""
    constants = [f"{k} = {v}" for k, v in case.extents.items() if k not in case.runtime]
    constants += [case.of.fixed] if case.of.fixed else []
    before = f"  constexpr unsigned {', '.join(constants)};\n" if constants else ""
    begin, valid, following = f"{case.of.index} i = skip * {WORKERS}", f"i < {case.of.items}", f"i += {WORKERS}"
    if case.of.index != "unsigned":
        valid = f"i < 1ull * {case.of.items}"
    if case.tables:
        before += "  const int end = tiles_indptr_ptr[1];\n"
        begin, valid, following = "int i = tiles_indptr_ptr[0] + skip", "i < end", "++i"
    if case.queued:
        valid, following = f"i != {_ANY}", "i = ANY()"
    return harness(case, before, looped(begin, valid, following, body, coords, ahead))


def plain(case: Case, ahead: bool = False) -> str:
    """The decode as one writes it by hand."""
    coords = [f"{c}_indices_ptr[i]" for c in case.of.coords] if case.tables else case.of.coords
    return _over_indices(case, case.of.plain, coords, ahead)


def bare(case: Case, ahead: bool = False) -> str:
    """The same without a decode."""
    return _over_indices(case, "", ["i"] * len(case.of.coords), ahead)


def ours(case: Case, text: str, carries: bool, ahead: bool = False) -> str:
    """The header's struct in the loop; a worker that carries digits skips tiles one by one."""
    begin, valid, following, tile = "", "s.valid()", "s.next()", "s.tile()"
    if case.queued:
        begin, valid, following, tile = "unsigned i = skip", f"i != {_ANY}", "i = ANY()", "s.index_to_tile(i)"
    before = "  sched::decoded s(given);\n"
    if carries:
        before += "#pragma unroll 1\n  for (unsigned k = 0; k < skip; ++k) s.next();"
    elif not case.queued:
        before += f"  s.index += skip * {1 if case.tables else WORKERS};"
    coords = [f"tile.{c}" for c in case.of.coords]
    loop = looped(begin, valid, following, f"    const auto tile = {tile};", coords, ahead)
    return text + harness(case, before, loop, given=", const sched::decoded::Arguments given")


def ptx(case: Case, program: Program, ahead: bool = False) -> str:
    """What the ptx backend prints for each value, in the loop that its trace kernel has."""

    def decoded() -> list[str]:
        return [body.in_register(e) for e in program.tile if body.value(e, bound)]

    schedule, body = program.schedule, Body()
    signature = ["\t.param .u64 cycles", "\t.param .u32 skip"]
    signature += [f"\t.param .{p.var.dtype.name} p_{p.name}" for p in schedule.params]
    signature += [f"\t.param .u64 p_{t.name}" for t in schedule.tables]
    body.emit("mov.u32 %place, stored")
    body.emit("mov.u32 %worker, %ctaid.x")
    index = "%index" if schedule.index_type.bits == 32 else "%wide"
    bound = {WORKER: "%worker", RANK: "%worker"}
    bound |= {p.name: body.load_parameter(p.var, f"p_{p.name}") for p in schedule.params}
    for table in schedule.tables:
        body.load_table(table, f"p_{table.name}")
    for e in program.invariants:
        body.value(e, bound)
    state = [(str(v.attr), body.register(v.dtype), v) for v in program.state]
    places = [(index, schedule.index), *((register, v) for _, register, v in state)]
    body.assign(places, program.start, bound)
    bound |= {INDEX: index} | {name: register for name, register, _ in state}
    kept = list(body.values)
    body.emit("ld.param.u32 %skip, [skip]")
    if program.walk.carries:
        body.label("SKIP")
        body.emit('.pragma "nounroll"')
        body.emit("setp.eq.u32 %going, %skip, 0")
        body.lines.append("\t@%going bra SKIPPED;")
        body.emit("sub.u32 %skip, %skip, 1")
        body.assign(places, program.advance, bound)
        body.forget(kept)
        body.lines += ["\tbra SKIP;", "SKIPPED:"]
    elif not case.queued:
        body.emit(f"mad.lo.u32 %index, %skip, {1 if case.tables else WORKERS}, %index")
    body.emit("mov.u64 %begun, %clock64")
    held = [body.register(e.dtype) for e in program.tile] if ahead else []
    if ahead:
        for register, found in zip(held, decoded(), strict=True):
            body.emit(f"mov.b32 {register}, {found}")
        body.forget(kept)
    body.label("LOOP")
    body.emit('.pragma "nounroll"')
    if case.queued:
        body.emit(f"setp.ne.u32 %going, %index, {_ANY[:-1]}")
        body.lines.append("\t@!%going bra DONE;")
    else:
        body.value(program.valid, bound)
        body.lines.append(f"\t@!{body.in_register(program.valid)} bra DONE;")
    for register in held or decoded():
        body.emit(f"st.volatile.shared.u32 [%place], {register}")
    body.forget(kept)
    if case.queued:
        body.emit("ld.volatile.shared.u32 %index, [%place]")
    else:
        body.assign(places, program.advance, bound)
    if ahead:
        body.forget(kept)
        for register, found in zip(held, decoded(), strict=True):
            body.emit(f"mov.b32 {register}, {found}")
    body.lines += ["\tbra LOOP;", "DONE:"]
    body.emit("mov.u64 %ended, %clock64")
    body.emit("sub.s64 %ended, %ended, %begun")
    body.emit("ld.param.u64 %out, [cycles]")
    body.emit("st.global.u64 [%out], %ended")
    body.emit("ret")
    lines = [
        *body.declarations(),
        "\t.reg .b32 %place, %worker, %index, %skip;",
        "\t.reg .b64 %begun, %ended, %out, %wide;",
    ]
    lines += ["\t.reg .pred %going;", "\t.shared .align 4 .b32 stored;", *body.lines]
    head = f".version {nvjitlink.ptx_version(ARCH)}\n.target {ARCH}\n.address_size 64\n"
    return (
        f"{head}.visible .entry kernel(\n"
        + ",\n".join(signature)
        + "\n)\n.maxntid 32, 1, 1\n{\n"
        + ("\n".join(lines) + "\n}\n")
    )


def tvm(case: Case, generated: str) -> str:
    """TVM's kernel, its stores to `out` made sinks."""
    body = generated[generated.rindex("main_kernel(") :]
    body = body[body.index("{") + 1 : body.rindex("}")]
    body = body.replace("tvm_builtin_nvshmem_my_pe()", "(int)rank")
    body = body.replace("blockIdx.x", "(skip != 0)" if case.tables else f"(skip * {WORKERS})")
    begin = body.index("#pragma unroll 1")
    before, loop = body[:begin], body[begin:]
    loop = re.sub(r"out_ptr\[\d\] = (_ptr\w*\[0\]);", r"SINK(\1);", loop)
    loop = loop.replace("_ptr_2[0] = out_ptr[9]", "_ptr_2[0] = ANY()").replace("out_ptr[9]", "_ptr_2[0]")
    for name in case.runtime:
        loop, before = (re.sub(rf"\b{name}\b", f"((int){name})", text) for text in (loop, before))
    return harness(case, before, loop)


def cutlass() -> bytes:
    """CUTLASS's persistent scheduler, its parameters those that its host code makes."""
    loop = _FOR.format(
        begin="auto work = scheduler.get_current_work()", valid="work.is_valid()",
        next="scheduler.advance_to_next_work(), work = scheduler.get_current_work()", body="",
        sinks="SINK(work.M_idx); SINK(work.N_idx);",
    )  # fmt: skip
    before = "  Scheduler scheduler(made);\n  scheduler.advance_to_next_work(skip);"
    text = _CUTLASS + harness(CASES[0], before, loop, given=", const Scheduler::Params made")
    spec = _CUTLASS_SPEC.replace("PARAMS", "120")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cutlass.cu").write_text(text)
        request = CompileRequest(text=spec, file=f"{folder}/cutlass.yaml", arch=ARCH, emit="cubin", directory=folder)
        return compile_spec(request).blob


def kernels(case: Case, generated: str | None, ahead: bool = False) -> Iterator[tuple[str, bytes]]:
    """The cubin of every contender that has this case, and has this form of the loop."""
    checked = check(case.spec())
    for name, text in (
        ("bare", bare(case, ahead)),
        ("cuda", ours(case, emit_text(checked, "header"), checked.program.walk.carries, ahead)),
        ("plain", plain(case, ahead)),
        ("tvm", tvm(case, generated) if generated and not ahead else ""),
    ):
        if text:
            yield name, nvrtc.compile(text, f"{name}.cu", ARCH, "cubin").blob
    yield "ptx", nvjitlink.assemble(ptx(case, checked.program, ahead), ARCH).blob


def generated(python: str | None) -> tuple[str, list[str | None]]:
    """TVM's version and its CUDA C++ of every case; none without a Python that has TVM."""
    if python is None:
        return "not measured", [None] * len(CASES)
    cases = [[c.of.tvm, dict(c.extents), list(c.runtime), list(c.of.coords), c.queued] for c in CASES]
    script = Path(__file__).with_name("decode_tvm.py")
    done = subprocess.run([python, script], input=json.dumps(cases), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return str(found["version"]), found["texts"]


def built(python: str | None) -> tuple[dict[str, str], list[Built]]:
    """The peers' versions, and every kernel of every case."""
    tvm_version, texts = generated(python)
    versions, padded = {"tvm": tvm_version}, b""
    try:
        padded = cutlass()
        versions["cutlass"] = version("nvidia-cutlass")
    except (SpecError, PackageNotFoundError):
        versions["cutlass"] = "not installed"
    found = []
    for number, case in enumerate(CASES):
        made = dict(kernels(case, texts[number]))
        if case.of.cutlass and padded:
            made["cutlass"] = padded
        for contender, cubin in made.items():
            needs = resources(cubin, "kernel")
            code = machine_code.loop(machine_code.disassembled(cubin), "STS")
            named = machine_code.registers(code)
            found.append(Built(number, contender, len(code), needs.registers, named, needs.local_bytes, cubin))
        print(f"{case.name} built", file=sys.stderr)
    return versions, found


def rows(found: list[Built]) -> list[list[object]]:
    """For each case its bare loop, then each contender: instructions less those of the bare loop, and registers."""
    shown: list[list[object]] = []
    for number, case in enumerate(CASES):
        of = {b.contender: b for b in found if b.case == number}
        bare_, row = of["bare"], [case.name, f"{of['bare'].instructions} ({of['bare'].named})"]
        for name in CONTENDERS[1:]:
            b = of.get(name)
            row.append("-" if b is None else f"{b.instructions - bare_.instructions} ({b.named})")
        peers = [of[n].instructions - bare_.instructions for n in ("tvm", "cutlass") if n in of]
        own = of["cuda"].instructions - bare_.instructions
        shown.append([*row, f"{own / min(peers):.2f}" if peers else "-"])
    return shown


ABOUT = """\
SASS instructions for each tile, sm_90a, and the registers that the loop names in parentheses. The loop advances,
tests and stores every coordinate; counted is what a contender has beyond the same loop that stores the index instead
(`bare`: that loop alone). All paths are counted, also those that a tile may not take: those of `tvm` and `plain`
diverge in ragged shapes, and run-time divisions of 64 bits are calls, whose instructions are counted once. `cuda` is
the header, `ptx` the other backend; `plain` is C++ with / and %. CUTLASS pads bands and visits the padding; TVM's
serpentine loses tiles where both extents are ragged. The last column is `cuda` by the better of TVM and CUTLASS. Of
`cluster_launch_control` only the decode of an answer is measured."""


def table(python: str | None) -> None:
    versions, found = built(python)
    head = ["case", "bare", *CONTENDERS[1:], "ratio"]
    counted = [{k: v for k, v in asdict(b).items() if k != "cubin"} for b in found]
    result = {"versions": versions, "cases": [c.name for c in CASES], "counted": counted}
    local = [f"{b.contender} of {CASES[b.case].name}" for b in found if b.local and b.contender in ("cuda", "ptx")]
    fixed = [b for b in found if b.contender in ("cuda", "ptx") and not CASES[b.case].runtime]
    most = max(fixed, key=lambda b: b.named)
    body = measure.table(head, rows(found))
    body += f"\nMost registers of a loop of ours with static extents: {most.named}, {CASES[most.case].name}.\n"
    body += (
        f"\nPeers: {', '.join(f'{k} {v}' for k, v in versions.items())}. Local memory: {', '.join(local) or 'none'}.\n"
    )
    measure.write("decode", ABOUT, result, body)


def build(folder: Path, python: str | None) -> None:
    """Cubins, and what a launch needs to know of them."""
    folder.mkdir(parents=True, exist_ok=True)
    _, found = built(python)
    made = [(b.case, b.contender, b.contender in ("tvm", "cutlass"), b.cubin) for b in found]
    for number, case in enumerate(CASES):
        made += [(number, contender, True, cubin) for contender, cubin in kernels(case, None, ahead=True)]
    listed = []
    for number, contender, ahead, cubin in made:
        name = f"{number:02}-{contender}{'-ahead' if ahead else ''}.cubin"
        (folder / name).write_bytes(cubin)
        listed.append({"case": number, "contender": contender, "ahead": ahead, "file": name})
    cases = [
        {"name": c.name, "items": c.items, "values": [c.extents.get(n, 1) for n in c.parameters], "tables": c.tables,
         "queued": c.queued, "carried": check(c.spec()).program.walk.carries, "shape": list(c.extents.values())}
        for c in CASES
    ]  # fmt: skip
    listed.sort(key=lambda k: (k["case"], k["ahead"], k["contender"] != "bare"))
    (folder / "kernels.json").write_text(json.dumps({"cases": cases, "kernels": listed}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["table", "build"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tvm", metavar="PYTHON", help="a Python that has TVM")
    given = parser.parse_args()
    if given.verb == "table":
        table(given.tvm)
    elif given.folder is None:
        parser.error("a folder of cubins is needed")
    else:
        build(given.folder, given.tvm)


if __name__ == "__main__":
    main()
