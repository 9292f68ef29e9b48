"""A small kernel of the user's own, with requests to compile it."""

from __future__ import annotations

from typing import Any

import pytest

from sched_compiler import CompileRequest, SpecError, compile_spec
from sched_compiler.artifact import Artifact
from sched_compiler.diagnostics import Diagnostic

SPEC = """\
version: 1
name: gemm
params: {M: {min: 0, max: 65536}, N: {min: 0, max: 65536}}
space: {m: "ceil_div(M, 128)", n: "ceil_div(N, 64)"}
order: {split: {m: 4}, loops: [m.outer, n, m.inner]}
dispatch: {static: {workers: grid}}
kernel:
  source: k.cu
  entry: work
  block: [32, 4]
  shared_bytes: 1024 + M
  arguments: [A: f32*, M: s32, scale: f64, tiles: schedule]
"""
KERNEL = """\
#include <sched/gemm.cuh>
extern "C" __global__ void work(float* A, int M, double scale, sched::gemm::Arguments tiles) {
  for (sched::gemm s(tiles); s.valid(); s.next()) A[s.tile().m * M] = scale;
}
"""


def request(spec: str = SPEC, files: dict[str, str] | None = None, **more: Any) -> CompileRequest:
    return CompileRequest(spec, "spec.yaml", **{"arch": "sm_90a", "files": files or {"k.cu": KERNEL}, **more})


def built(spec: str = SPEC, kernel: str = KERNEL, **files: str) -> Artifact:
    return compile_spec(request(spec, {"k.cu": kernel, **files}))


def refusal(spec: str = SPEC, kernel: str = KERNEL, **more: Any) -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        compile_spec(request(spec, **{"files": {"k.cu": kernel}, **more}))
    return caught.value.diagnostics


def places(diagnostics: tuple[Diagnostic, ...]) -> list[tuple[str, str, int, int]]:
    return [(d.code, d.span.file, d.span.line, d.span.column) for d in diagnostics]
