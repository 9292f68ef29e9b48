"""A host function that checks tables before a launch: the same rules as `sched_compiler.tables`, in C++17."""

from __future__ import annotations

from backends.cuda.printer import CTYPE, Printer
from sched_compiler.dispatch import Table
from sched_compiler.expr import S64, Expr
from sched_compiler.program import Program

_PRELUDE = """\
#ifndef SCHED_VALIDATOR
#define SCHED_VALIDATOR
#include <algorithm>
#include <vector>
namespace sched {
// What is wrong: `what` is null where nothing is; `element` is -1 where no single element is at fault.
struct TableFault {
  const char* table;
  long long element;
  const char* what;
  explicit operator bool() const { return what != nullptr; }
};
namespace detail {
// The first element that is not between 0 and below `extent`, or -1.
template <typename T>
long long outside(const T* table, long long length, long long extent) {
  for (long long k = 0; k < length; ++k)
    if (table[k] < 0 || table[k] >= extent) return k;
  return -1;
}
// The first element that is equal to an earlier one, or -1. Takes memory for two integers for each element.
inline long long repeated(const std::vector<long long>& values) {
  std::vector<long long> places(values.size());
  for (size_t k = 0; k < places.size(); ++k) places[k] = (long long)k;
  std::stable_sort(places.begin(), places.end(), [&](long long a, long long b) { return values[a] < values[b]; });
  long long found = -1;
  for (size_t k = 1; k < places.size(); ++k)
    if (values[places[k]] == values[places[k - 1]] && (found < 0 || places[k] < found)) found = places[k];
  return found;
}
// Whether `indptr` is a list of ranges one after another that fill 0 to `length`, or with `subset` lie in it.
template <typename T>
TableFault ranges(const char* name, const T* indptr, long long count, long long length, bool subset) {
  if (count < 1) return {name, -1, "it has an element for each worker, and one more"};
  if (indptr[0] < 0 || (indptr[0] != 0 && !subset)) return {name, 0, "the first range does not begin at 0"};
  for (long long k = 1; k < count; ++k)
    if (indptr[k] < indptr[k - 1]) return {name, k, "a range ends before it begins"};
  if (indptr[count - 1] > length) return {name, count - 1, "the ranges end past the items"};
  if (indptr[count - 1] != length && !subset) return {name, count - 1, "items are in no range"};
  return {nullptr, -1, nullptr};
}
}  // namespace detail
}  // namespace sched
#endif
"""


def validator(program: Program) -> str:
    """`sched::NAME_validate(params..., table, its length, ...)`, for the tables of a schedule; a header of its own."""
    schedule = program.schedule
    printer = Printer({p.name: f"p_{p.name}" for p in schedule.params}, prefix="v")
    arguments = [f"{CTYPE[p.var.dtype.name]} p_{p.name}" for p in schedule.params]
    for t in schedule.tables:
        arguments += [f"const {CTYPE[t.element.name]}* p_{t.name}", f"long long n_{t.name}"]
    lines: list[str] = []

    def number(e: Expr, name: str) -> str:
        """Declares a value; gives its name."""
        before, (text,) = printer.print([schedule.graph.cast(e, S64)])
        lines.extend([*before, f"const long long {name} = {text};"])
        return name

    for k, t in enumerate(schedule.tables):
        wanted = number(t.length, f"length{k}")
        lines.append(f'if (n_{t.name} != {wanted}) return {{"{t.name}", -1, "the table has another length"}};')
    subset = "true" if schedule.subset else "false"
    if schedule.points is not None:
        count = f"n_{schedule.points[0]}"
        lines.append("long long volume = 1;")
        lines.append(f"std::vector<long long> tiles({count}, 0);")
        for k, (axis, name) in enumerate(zip(schedule.axes, schedule.points, strict=True)):
            extent = number(schedule.graph.ceil_div(axis.extent, axis.cluster), f"extent{k}")
            lines += [
                f"if (const long long at = detail::outside(p_{name}, n_{name}, {extent}); at >= 0)",
                f'  return {{"{name}", at, "a tile outside the space is listed"}};',
                f"volume *= {extent};",
                f"for (long long k = 0; k < {count}; ++k) tiles[k] = tiles[k] * {extent} + p_{name}[k];",
            ]
        first = schedule.points[0]
        lines += [
            "if (const long long at = detail::repeated(tiles); at >= 0)",
            f'  return {{"{first}", at, "a tile is listed more than once"}};',
            f'if (!{subset} && {count} != volume) return {{"{first}", -1, "a tile is not listed"}};',
        ]
    dispatch = schedule.dispatch
    if isinstance(dispatch, Table):
        positions = number(dispatch.length, "positions")
        some = "true" if dispatch.subset else "false"
        ranges = f'detail::ranges("{dispatch.indptr}", p_{dispatch.indptr}, n_{dispatch.indptr}, {positions}, {some})'
        lines.append(f"if (const TableFault fault = {ranges}) return fault;")
        if dispatch.indices is not None:
            name = dispatch.indices
            items = number(schedule.items, "items")
            lines += [
                f"if (const long long at = detail::outside(p_{name}, n_{name}, {items}); at >= 0)",
                f'  return {{"{name}", at, "there is no such item"}};',
                f"const std::vector<long long> listed(p_{name}, p_{name} + n_{name});",
                "if (const long long at = detail::repeated(listed); at >= 0)",
                f'  return {{"{name}", at, "an item is listed more than once"}};',
                f'if (!{some} && n_{name} != {items}) return {{"{name}", -1, "an item is not listed"}};',
            ]
    body = "".join(f"  {line}\n" for line in lines)
    signature = ",\n    ".join(f"[[maybe_unused]] {a}" for a in arguments)
    return (
        f"// Checks the tables of {schedule.name} before a launch. Generated: change the spec, not this file.\n"
        f"#pragma once\n{_PRELUDE}namespace sched {{\n"
        f"inline TableFault {program.identifier}_validate(\n    {signature}) {{\n"
        f"{body}  return {{nullptr, -1, nullptr}};\n}}\n"
        f"}}  // namespace sched\n"
    )
