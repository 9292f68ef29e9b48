"""On a device: divisions that use floating point, for every divisor, where they are nearest to a whole number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backends.cuda.prelude import PRELUDE
from backends.launch import Device
from backends.ptx.emitter import Body
from backends.toolchain import nvjitlink, nvrtc
from sched_compiler.expr import FDIV_LIMIT, RECIP_LIMIT, U32, Graph

#: A thread for each divisor; every dividend where the quotient changes, and the ones before. Counts what is wrong.
QUOTIENTS = f"""\
extern "C" __global__ void kernel(unsigned long long* wrong) {{
  const unsigned d = blockIdx.x * blockDim.x + threadIdx.x + 1, most = {FDIV_LIMIT - 1}u;
  if (d > most + 1) return;
  unsigned long long found = asked(most, d) != most / d;
  for (unsigned x = 0; x <= most; x += d) {{
    found += asked(x, d) != x / d;
    found += x > 0 && asked(x - 1, d) != (x - 1) / d;
  }}
  atomicAdd(wrong, found);
}}
"""
#: The same for reciprocals, with every shift for which they fit 32 bits.
RECIPROCALS = f"""\
extern "C" __global__ void kernel(unsigned long long* wrong) {{
  const unsigned d = blockIdx.x * blockDim.x + threadIdx.x + 1;
  if (d > {RECIP_LIMIT}u) return;
  unsigned long long found = 0;
  for (unsigned k = 0; k <= 20 && (1u << k) <= d; ++k) found += asked(d, k) != ((1ull << (32 + k)) - 1) / d;
  atomicAdd(wrong, found);
}}
"""
KERNELS = {"fdiv": QUOTIENTS, "recip": RECIPROCALS}


def by_header(name: str) -> str:
    text = PRELUDE + f"#define asked sched::detail::{name}\n" + KERNELS[name]
    return nvrtc.compile(text, "division.cu", "sm_80", "ptx").blob.decode().rstrip("\0")


def by_ptx(name: str) -> str:
    """The same kernel, which calls what the backend `ptx` prints."""
    g, body = Graph(), Body()
    a, b = g.var("a", 0, FDIV_LIMIT - 1 if name == "fdiv" else RECIP_LIMIT), g.var("b", 1, U32.hi)
    bound = {v: body.load_parameter(e, v) for v, e in (("a", a), ("b", b))}
    result = body.value(g.fdiv(a, b) if name == "fdiv" else g.recip(g.narrow(a, 1, RECIP_LIMIT), b), bound)
    lines = [*body.declarations(), *body.lines, f"\tst.param.b32 [out], {result};", "\tret;"]
    head = ".visible .func (.param .b32 out) asked(.param .b32 a, .param .b32 b)\n"
    text = 'extern "C" __device__ unsigned asked(unsigned, unsigned);\n' + KERNELS[name]
    caller = nvrtc.compile(text, "division.cu", "sm_80", "ptx").blob.decode().rstrip("\0")
    declared = caller.index(".extern .func")
    return caller[:declared] + head + "{\n" + "\n".join(lines) + "\n}\n" + caller[caller.index(";", declared) + 1 :]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("made", [by_header, by_ptx])
def test_nothing_is_wrong(made: Callable[[str], str], name: str, device: Device) -> None:
    wrong = np.zeros(1, dtype=np.uint64)
    with device.kernel(nvjitlink.assemble(made(name), device.arch).blob, "kernel") as kernel:
        kernel(-(-(FDIV_LIMIT + 1) // 256), (256, 1, 1), [wrong])
    assert wrong[0] == 0


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("made", [by_header, by_ptx])
def test_the_kernels_assemble_and_use_floating_point(made: Callable[[str], str], name: str) -> None:
    text = made(name)
    assert "rcp.approx.ftz.f32" in text
    assert nvjitlink.assemble(text, "sm_90a").blob
