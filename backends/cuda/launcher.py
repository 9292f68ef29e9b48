"""A header for host C++17 that launches a kernel through CUDA's driver, by its manifest and its schedule's expressions.

The same checks as `backends.launching` makes in Python, before anything is launched; formulas are those of the IR,
which no value in its range makes overflow. What is around a kernel's namespace is named from the global one on, for the
user may have given any name to the kernel or to an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.cuda.host_names import host_name
from backends.cuda.launcher_prelude import PRELUDE
from backends.cuda.printer import CTYPE, Printer, literal
from backends.launching.description import Description, Place, capability_of, described
from backends.launching.device import expected_capability, in_hardware
from backends.launching.types import bounds
from sched_compiler.dispatch import GRID_LIMIT, WORKERS
from sched_compiler.expr import INT_TYPES, U64, Dtype, Expr
from sched_compiler.lower import lower
from sched_compiler.program import Program

#: Types of the fields of `Arguments`; f16 and bf16 are passed as their bits.
_FIELDS = {
    "u8": "unsigned char", "s8": "signed char", "u16": "unsigned short", "s16": "short", "f16": "unsigned short",
    "bf16": "unsigned short", "f32": "float", "f64": "double", **{t.name: CTYPE[t.name] for t in INT_TYPES},
}  # fmt: skip


def launcher(program: Program, manifest: Mapping[str, Any], shared: Expr) -> str:
    """The header `sched_launch::NAME` for the kernel of `manifest`, whose schedule is that of `program`.

    `shared` is the dynamic shared memory in bytes, an expression of the schedule's parameters. Raises LaunchError for a
    kernel that the driver alone does not launch.
    """
    return _Launcher(program, described(manifest), shared).text()


def _indented(lines: Sequence[str], depth: int = 1) -> str:
    return "".join(f"{'  ' * depth}{line}\n" for line in lines)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _dtype(scalar: str) -> Dtype:
    """The type of a literal to compare a field with, whose smaller types become `int`."""
    return next((t for t in INT_TYPES if t.name == scalar), next(t for t in INT_TYPES if t.name == "s32"))


class _Launcher:
    """The pieces of the header."""

    def __init__(self, program: Program, kernel: Description, shared: Expr) -> None:
        self.program, self.kernel = program, kernel
        self.name = host_name(program.identifier)
        schedule = program.schedule
        lengths = {t.name: t.length for t in schedule.tables}
        self.shared, *lowered = lower(schedule.graph, [shared, *lengths.values()])
        self.lengths = dict(zip(lengths, lowered, strict=True))
        workers = program.launched(kernel.arch)
        self.workers = schedule.graph.cast(workers, U64)
        self.ctas = schedule.graph.cast(workers * schedule.worker_ctas, U64)
        self.inputs = {WORKERS: "workers"}
        for p in schedule.params:
            if p.name in kernel.by_name:
                kind, field = kernel.by_name[p.name][0].type, f"a.{host_name(p.name)}"
                dtype = p.var.dtype.name
                self.inputs[p.name] = field if kind == dtype else f"(({CTYPE[dtype]}){field})"

    def text(self) -> str:
        kernel = self.kernel
        x, y, z = kernel.block
        cx, cy, cz = kernel.cluster
        example = f"const auto status = sched_launch::{self.name}::launch(function, arguments, stream);"
        return (
            f"// Launches the kernel {kernel.entry} of schedule {kernel.name}, compiled for {kernel.arch}. Generated:\n"
            f"// change the spec, not this file.\n//\n"
            f"//   sched_launch::{self.name}::Arguments arguments;  // its fields, then\n"
            f"//   {example}\n"
            f"//   if (!status) ... status.message\n"
            f"#pragma once\n{PRELUDE}\n"
            f"namespace sched_launch {{\nnamespace {self.name} {{\n\n"
            f"constexpr const char* entry = {_quoted(kernel.entry)};\n"
            f"constexpr const char* arch = {_quoted(kernel.arch)};\n"
            f"constexpr Grid block = {{{x}, {y}, {z}}};\n"
            f"constexpr Grid cluster = {{{cx}, {cy}, {cz}}};\n"
            f"constexpr unsigned static_shared_bytes = {kernel.static_shared};\n\n"
            f"{self.arguments()}\n{self.formulas()}\n{self.check()}\n{self.pack()}\n{self.launch()}"
            f"}}  // namespace {self.name}\n}}  // namespace sched_launch\n"
        )

    # -- arguments --------------------------------------------------------------------------------------------

    def arguments(self) -> str:
        fields = [f"{self._field(places[0])}  // {self._what(places)}" for places in self.kernel.by_name.values()]
        return f"struct Arguments {{\n{_indented(fields)}}};\n"

    def _field(self, place: Place) -> str:
        name = host_name(place.name)
        if place.element is not None:
            return f"::CUdeviceptr {name} = 0;"
        if place.type in _FIELDS:
            return f"{_FIELDS[place.type]} {name} = {{}};"
        return (
            f"::CUtensorMap {name} = {{}};"
            if place.type == "tensormap"
            else f"unsigned char {name}[{place.size}] = {{}};"
        )

    def _what(self, places: Sequence[Place]) -> str:
        place = places[0]
        if place.role == "counter":
            return f"{place.type}, zero before the first launch; of launches that follow one another"
        if place.role == "table":
            return f"{place.type}, see {host_name(place.name)}_length; elements from {place.lo} to {place.hi}"
        if place.lo is not None and place.element is None:
            lo, hi = self._range(places)
            return f"{lo} to {hi}"
        return f"the bits of a {place.type}" if place.type in ("f16", "bf16") else place.type

    @staticmethod
    def _range(places: Sequence[Place]) -> tuple[int, int]:
        return max(p.lo for p in places if p.lo is not None), min(p.hi for p in places if p.hi is not None)

    def pack(self) -> str:
        lines = []
        for place in self.kernel.places:
            field, at = f"a.{host_name(place.name)}", f"bytes + {place.offset}"
            if place.type in _FIELDS or place.element is not None:
                kind = "::CUdeviceptr" if place.element is not None else _FIELDS[place.type]
                lines.append(f"detail::put<{kind}>({at}, ({kind}){field});")
            else:
                lines.append(f"::std::memcpy({at}, &{field}, {place.size});")
        return (
            f"constexpr unsigned parameter_bytes = {self.kernel.size};\n"
            f"// Writes the kernel's parameters, one after another.\n"
            f"inline void pack([[maybe_unused]] const Arguments& a, [[maybe_unused]] unsigned char* bytes) {{\n"
            f"{_indented(lines)}}}\n"
        )

    # -- formulas ---------------------------------------------------------------------------------------------

    def formulas(self) -> str:
        """Functions of arguments that are in their ranges."""
        graph = self.program.schedule.graph
        text = "// What follows is for arguments that are in their ranges: ask `check` first.\n\n"
        text += self._function("items", "Work items.", self.program.items)
        for name, length in self.lengths.items():
            if name in self.kernel.by_name:
                text += self._function(f"{host_name(name)}_length", f"Elements of {name}.", length)
        text += self._function("shared_bytes", "Dynamic shared memory of a block.", self.shared)
        if not self.kernel.any_workers:
            text += self._function("workers_of", "The number of workers.", self.workers)
        lines, (ctas,) = Printer(self.inputs).print([graph.cast(self.ctas, U64)])
        signature = "[[maybe_unused]] const Arguments& a, [[maybe_unused]] unsigned workers"
        text += "// CTAs along x, y, z, for a number of workers.\n"
        text += f"inline Grid grid({signature}) {{\n{_indented([*lines, f'return {{{ctas}, 1, 1}};'])}}}\n"
        return text

    def _function(self, name: str, what: str, value: Expr) -> str:
        lines, (result,) = Printer(self.inputs).print([self.program.schedule.graph.cast(value, U64)])
        head = f"inline unsigned long long {name}([[maybe_unused]] const Arguments& a)"
        return f"// {what}\n{head} {{\n{_indented([*lines, f'return {result};'])}}}\n"

    # -- checks -----------------------------------------------------------------------------------------------

    def check(self) -> str:
        kernel = self.kernel
        lines = [*self._device(), *self._ranges(), "const bool known = found.empty();", *self._pointers()]
        lines += ["if (known) {", *(f"  {line}" for line in self._shape()), "}", "return found;"]
        limit = GRID_LIMIT // kernel.ctas
        multiple = "cluster" if in_hardware(kernel) else "Grid{1, 1, 1}"
        grid = [
            "::std::string found;",
            f"detail::check_grid(found, device, grid(a, workers), {multiple});",
            "return found;",
        ]
        return (
            f"constexpr unsigned most_workers = {limit};\n\n"
            f"inline ::std::string check_grid(const Arguments& a, ::CUdevice device, unsigned workers) {{\n"
            f"{_indented(grid)}}}\n\n"
            f"// What is wrong with a launch; empty where nothing is. 0 workers are those of the schedule, or where\n"
            f"// it takes any number, as many as the device holds at a time.\n"
            f"inline ::std::string check(const Arguments& a, ::CUdevice device, unsigned workers = 0) {{\n"
            f"  ::std::string found;\n{_indented(lines)}}}\n"
        )

    def _device(self) -> list[str]:
        kernel = self.kernel
        major, minor = capability_of(kernel.arch)
        exact, expected = str(kernel.arch.endswith("a")).lower(), _quoted(expected_capability(kernel.arch))
        lines = [
            f"detail::check_device(found, device, {major}, {minor}, {exact}, {expected});",
            "detail::check_block(found, device, block);",
        ]
        if in_hardware(kernel):
            lines.append(f"detail::check_clusters(found, device, {kernel.ctas});")
        return lines

    def _ranges(self) -> list[str]:
        lines = []
        for name, places in self.kernel.by_name.items():
            limits = bounds(places[0].type)
            if limits is None:
                continue
            lo, hi = self._range(places)
            field, dtype = f"a.{host_name(name)}", _dtype(places[0].type)
            tests = [f"{field} < {literal(lo, dtype)}"] * (lo > limits[0])
            tests += [f"{field} > {literal(hi, dtype)}"] * (hi < limits[1])
            if tests:
                fault = f'detail::fault(found, {_quoted(name)}, ::std::to_string({field}), "{lo} to {hi}");'
                lines.append(f"if ({' || '.join(tests)}) {fault}")
        return lines

    def _pointers(self) -> list[str]:
        lines = []
        for name, places in self.kernel.by_name.items():
            element = places[0].element
            if element is None:
                continue
            field, empty = f"a.{host_name(name)}", ""
            if places[0].role == "table" and name in self.lengths:
                empty = f" && !(known && {host_name(name)}_length(a) == 0)"
            fault = f'detail::fault(found, {_quoted(name)}, "a null pointer", "the address of an array of {element}");'
            lines.append(f"if ({field} == 0{empty}) {fault}")
        return lines

    def _shape(self) -> list[str]:
        lines = ["detail::check_shared(found, device, shared_bytes(a), static_shared_bytes);"]
        if self.kernel.any_workers:
            expected = '"1 to " + ::std::to_string(most_workers)'
            return [
                *lines,
                f"if (workers > most_workers) {self._other_workers(expected)}",
                "else if (workers != 0) detail::add(found, check_grid(a, device, workers));",
            ]
        expected = '::std::to_string(count) + ", as the schedule has"'
        return [
            *lines,
            "const unsigned long long count = workers_of(a);",
            f"if (workers != 0 && workers != count) {self._other_workers(expected)}",
            "else detail::add(found, check_grid(a, device, workers));",
        ]

    @staticmethod
    def _other_workers(expected: str) -> str:
        return f'detail::fault(found, "workers", ::std::to_string(workers), {expected});'

    # -- launching --------------------------------------------------------------------------------------------

    def launch(self) -> str:
        kernel = self.kernel
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        lines = [
            "::CUdevice device = 0;",
            'if (const ::CUresult r = ::cuCtxGetDevice(&device)) return detail::failed("cuCtxGetDevice", r);',
            f"detail::Launching own = {{{_quoted(kernel.name)}, function, stream, block, cluster, 0}};",
            f"own.clusters = {str(in_hardware(kernel)).lower()};",
            "if (const ::std::string wrong = check(a, device, workers); !wrong.empty()) return own.refused(wrong);",
            "own.shared = (unsigned)shared_bytes(a);",
            "if (const Status s = own.allow_shared(); !s) return s;",
        ]
        resident = [
            "unsigned long long resident = 0;  // workers that the device holds at a time",
            f"if (const Status s = own.resident(device, {threads}, {kernel.ctas}, resident); !s) return s;",
        ]
        if kernel.co_resident:
            lines += resident
        if kernel.any_workers:
            lines += [
                "if (workers == 0) {",
                *(f"  {line}" for line in ([] if kernel.co_resident else resident)),
                "  const unsigned long long most = ::std::min(items(a), resident);",
                "  workers = most == 0 ? 1u : (unsigned)most;",
                "  const ::std::string wrong = check_grid(a, device, workers);",
                "  if (!wrong.empty()) return own.refused(wrong);",
                "}",
            ]
        lines.append("const Grid g = grid(a, workers);")
        if kernel.co_resident:
            lines.append(
                f"if (g.x * g.y * g.z > resident * {kernel.ctas}) "
                'return own.refused("grid: found more CTAs than can run at once, expected no more");'
            )
        offsets = ", ".join(f"bytes + {offset}" for offset, _ in kernel.parameters) or "nullptr"
        lines += [
            f"alignas(64) unsigned char bytes[{max(kernel.size, 1)}] = {{}};",
            "pack(a, bytes);",
            f"void* parameters[] = {{{offsets}}};",
            "return own.launch(g, parameters);",
        ]
        return (
            "// Launches `function`, which is `entry` in its module, on a stream: nothing where something is wrong,\n"
            "// or where there is nothing to do. Allocates nothing and waits for nothing: it may be captured.\n"
            "inline Status launch(::CUfunction function, const Arguments& a, ::CUstream stream, unsigned workers = 0)"
            f" {{\n{_indented(lines)}}}\n"
        )
