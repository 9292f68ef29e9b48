"""The emitted header compiled for the host: what the C++ says, seen without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backends.cuda.emitter import header, recording_consumer, safe, struct_name
from backends.cuda.printer import CTYPE
from backends.tracing import answers_of
from sched_compiler.dispatch import ClusterLaunchControl
from sched_compiler.program import Program
from sched_compiler.registry import BackendError, ToolMissingError, TraceRequest

#: Seconds that a compile or a run may take.
DEADLINE = 300.0

_MAIN = """\
#include <cstdio>
#include <cstdlib>
#include <vector>
static void put(std::vector<long long>& out, long long v) { out.push_back(v); }
"""


def _runner(program: Program, number: int) -> str:
    """A function that follows workers: reads (workers, parameters, worker ids), appends (count, rows) for each."""
    schedule = program.schedule
    size = schedule.cluster_size
    dispatch, ring = schedule.dispatch, schedule.dispatch.ring
    arguments = ["(unsigned)w"] if ring is None else []
    if schedule.dispatch.queue and ring is None:
        arguments += ["&shared[w]", "&counter"]
    if size > 1:
        arguments.append("rank")
    if not schedule.dispatch.fixed:
        arguments.append("(unsigned)in[0]")
    arguments += [f"({CTYPE[p.var.dtype.name]})in[{k + 1}]" for k, p in enumerate(schedule.params)]
    place = f"in + {len(schedule.params) + 1}"
    tables = ""
    for table in schedule.tables:  # each in memory of its own length, so that reading past its end is noticed
        kind = CTYPE[table.element.name]
        tables += f"  const long long* at_{table.name} = {place};\n"
        begin, place = f"at_{table.name} + 1", f"at_{table.name} + 1 + *at_{table.name}"
        tables += f"  const std::vector<{kind}> t_{table.name}({begin}, {place});\n"
        arguments.append(f"t_{table.name}.data()")
    name = f"sched::{struct_name(program)}"
    fields = "".join(f"put(out, t.{safe(a.name)}); " for a in schedule.axes)
    inverse = "s.tile_to_index(t)" if program.inverse is not None else "s.index" if ring is None else "w.index"
    if ring is not None:
        handle = f"{name}::{recording_consumer(program)}"
        thread = ", 0u" if ring.consumers[0].threads > 1 else ""
        given = f"({', '.join(arguments)})" if arguments else ""
        counter = ", nullptr" if isinstance(dispatch, ClusterLaunchControl) and dispatch.fallback else ""
        return f"""
static void run{number}([[maybe_unused]] const long long* in, const long long* ids, long long n,
    std::vector<long long>& out) {{
{tables}  // What the queue answers each worker: how many answers, then these.
  std::vector<std::vector<unsigned>> answers;
  const long long* next = {place};
  for (long long w = 0; w < in[0]; ++w) {{
    answers.emplace_back(next + 1, next + 1 + *next);
    next += 1 + *next;
  }}
  for (long long k = 0; k < n; ++k) {{
    const {name}::Ring ring{{(unsigned)ids[k], answers[ids[k]].data()}};
    const size_t head = out.size();
    put(out, 0);
    long long count = 0;
    for (unsigned rank = 0; rank < {size}u; ++rank) {{
      count = 0;
      const {name} s{given};
      std::vector<{name}::Index> taken;
      for ({handle} w(s, ring{thread}); w.valid(); w.next(), ++count) {{
        const auto t = w.tile();
        {fields}put(out, s.in_bounds(t)); put(out, (long long)w.index); put(out, (long long){inverse});
        taken.push_back(w.index);
      }}
      {name}::Shared shared{{}};  // without a ring, the same
      shared.answers = ring.answers;
      {name} all{given};
      all.begin((unsigned)ids[k], &shared{counter});
      for (const auto index : taken) {{
        if (!all.valid() || all.index != index) exit(4);
        all.next();
      }}
      if (all.valid()) exit(4);
    }}
    out[head] = count;
  }}
}}
"""
    if schedule.dispatch.queue:
        return f"""
static void run{number}([[maybe_unused]] const long long* in, const long long* ids, long long n,
    std::vector<long long>& out) {{
{tables}  // All workers take equally long, and worker w asks w-th.
  const long long workers = in[0];
  unsigned long long counter = 0;
  std::vector<{name}::Shared> shared(workers);
  std::vector<{name}> all;
  for (long long w = 0; w < workers; ++w)
    for (unsigned rank = 0; rank < {size}u; ++rank) all.push_back({name}({", ".join(arguments)}));
  std::vector<std::vector<long long>> rows(all.size());
  for (bool more = true; more;) {{
    more = false;
    for (size_t k = 0; k < all.size(); ++k) {{
      auto& s = all[k];
      if (!s.valid()) continue;
      more = true;
      auto& out = rows[k];
      const auto t = s.tile();
      {fields}put(out, s.in_bounds(t)); put(out, (long long)s.index); put(out, (long long){inverse});
      s.next();
    }}
  }}
  if (counter != 0) exit(3);
  for (long long k = 0; k < n; ++k) {{
    put(out, (long long)rows[ids[k] * {size}].size() / {len(schedule.axes) + 3});
    for (unsigned rank = 0; rank < {size}u; ++rank)
      for (long long v : rows[ids[k] * {size} + rank]) put(out, v);
  }}
}}
"""
    return f"""
static void run{number}([[maybe_unused]] const long long* in, const long long* ids, long long n,
    std::vector<long long>& out) {{
{tables}  for (long long k = 0; k < n; ++k) {{
    const long long w = ids[k];
    const size_t head = out.size();
    put(out, 0);
    long long count = 0;
    for (unsigned rank = 0; rank < {size}u; ++rank) {{
      count = 0;
      for ({name} s({", ".join(arguments)}); s.valid(); s.next(), ++count) {{
        const auto t = s.tile();
        {fields}put(out, s.in_bounds(t)); put(out, (long long)s.index); put(out, (long long){inverse});
      }}
    }}
    out[head] = count;
  }}
}}
"""


class Harness:
    """An executable that follows workers of one or more programs. A context manager: it owns a directory.

    `options` are the host compiler's, beyond the warnings, all of which are errors.
    """

    def __init__(self, programs: Sequence[Program], options: Sequence[str] = ("-O1",)) -> None:
        compiler = os.environ.get("CXX") or next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
        if compiler is None or shutil.which(compiler) is None:
            raise ToolMissingError("a C++ compiler for the host (g++ or clang++, or set CXX)")
        self.programs = list(programs)
        self._directory = tempfile.TemporaryDirectory(prefix="schedc-")
        source, self._binary = Path(self._directory.name, "trace.cpp"), Path(self._directory.name, "trace")
        source.write_text(self._text(), encoding="utf-8")
        command = [
            compiler,
            "-std=c++17",
            *options,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            str(self._binary),
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        if done.returncode != 0:
            self._directory.cleanup()
            raise BackendError(done.stderr)

    def _text(self) -> str:
        headers, runners, cases = [], [], []
        for number, program in enumerate(self.programs):
            text = header(program).replace("#pragma once\n", "")
            name = struct_name(program)
            # programs of one name can stand side by side in namespaces of their own
            own = text.replace("namespace sched {\nstruct", f"namespace sched {{ namespace n{number} {{\nstruct")
            headers.append(own.removesuffix("}  // namespace sched\n") + "} }\n")
            runners.append(_runner(program, number).replace(f"sched::{name}", f"sched::n{number}::{name}"))
            cases.append(f"      case {number}: run{number}(p, ids, n, out); break;\n")
        return (
            _MAIN + "".join(headers) + "".join(runners) + "int main() {\n"
            "  long long head[3];\n"  # program, inputs, workers to follow
            "  while (fread(head, 8, 3, stdin) == 3) {\n"
            "    std::vector<long long> in(head[1] + head[2] + 1), out;\n"
            "    if (fread(in.data(), 8, head[1] + head[2], stdin) != (size_t)(head[1] + head[2])) return 1;\n"
            "    const long long *p = in.data(), *ids = p + head[1], n = head[2];\n"
            f"    switch (head[0]) {{\n{''.join(cases)}      default: return 2;\n    }}\n"
            "    const long long size = (long long)out.size();\n"
            "    fwrite(&size, 8, 1, stdout);\n"
            "    if (size) fwrite(out.data(), 8, out.size(), stdout);\n"
            "  }\n  return 0;\n}\n"
        )

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def run(self, requests: Sequence[tuple[int, TraceRequest]]) -> list[list[npt.NDArray[np.int64]]]:
        """For each (program number, request), one array for each followed worker.

        Columns: the coordinates, 1 where in bounds, the work index, and `tile_to_index` of the tile (the work index
        again where there is no inverse). Raises BackendError where the executable fails.
        """
        words: list[int] = []
        for number, request in requests:
            schedule = self.programs[number].schedule
            params = [request.values[p.name] for p in schedule.params]
            for table in schedule.tables:
                elements = request.tables[table.name]
                params += [len(elements), *(int(v) for v in elements)]
            if schedule.dispatch.ring is not None:
                for answers in answers_of(self.programs[number], request):
                    params += [len(answers), *answers]
            words += [number, 1 + len(params), len(request.follow), request.workers, *params, *request.follow]
        data = np.array([w - 2**64 if w >= 2**63 else w for w in words], dtype=np.int64).tobytes()
        done = subprocess.run([str(self._binary)], input=data, capture_output=True, timeout=DEADLINE, check=False)
        if done.returncode != 0:
            raise BackendError(f"the host trace ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        out = np.frombuffer(done.stdout, dtype=np.int64)
        results: list[list[npt.NDArray[np.int64]]] = []
        place = 0
        for number, request in requests:
            schedule = self.programs[number].schedule
            width, size = len(schedule.axes) + 3, schedule.cluster_size
            place += 1
            followed: list[npt.NDArray[np.int64]] = []
            for _ in request.follow:
                count = int(out[place])
                block = out[place + 1 : place + 1 + count * size * width].reshape(size, count, width)
                followed.append(block.transpose(1, 0, 2).reshape(-1, width))
                place += 1 + count * size * width
            results.append(followed)
        return results


def trace(program: Program, request: TraceRequest) -> list[npt.NDArray[np.int64]]:
    """The engine `cuda`: the emitted header, compiled for the host."""
    with Harness([program]) as harness:
        (followed,) = harness.run([(0, request)])
    return [rows[:, :-2] for rows in followed]
