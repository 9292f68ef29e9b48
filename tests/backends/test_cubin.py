"""What `describe` reads from cubins, against what the assembler itself reports."""

from __future__ import annotations

import random
import re

import pytest

from backends.toolchain import nvjitlink, nvrtc
from backends.toolchain.cubin import KernelInfo, Parameter, describe
from backends.toolchain.errors import ToolMissing

try:
    nvrtc.version(), nvjitlink.version()
except ToolMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

SOURCE = """
struct Big { long long a[20]; char c; };
extern "C" __global__ void __launch_bounds__(128) shared(const Big b, int n, long long* out, char c) {
  __shared__ int s[100];
  s[threadIdx.x] = n + c;
  __syncthreads();
  out[threadIdx.x] = s[n] + b.a[n];
}
extern "C" __global__ void frame(int* p, int n) {
  volatile int a[300];
  for (int i = 0; i < 300; ++i) a[(i * n) % 300] = p[i];
  p[n] = a[n];
  asm volatile("bar.sync 3, 64;");
}
extern "C" __global__ void nothing() {}
__noinline__ __device__ int helper(int x, int* p) { return p[x] * x; }
extern "C" __global__ void calls(int* p, short n) { extern __shared__ int d[]; p[0] = helper(n, p) + d[n]; }
"""

PTX = """
.visible .entry large(.param .align 8 .b8 a[20000], .param .u32 b)
.reqntid 64, 2, 1
{ ret; }
.visible .entry pair(.param .u32 a)
.explicitcluster
.reqnctapercluster 2, 1, 2
{ ret; }
.visible .entry ranked(.param .u32 a)
.maxclusterrank 4
.minnctapersm 2
.maxntid 64
{
  .shared .align 16 .b8 buffer[64];
  .reg .b32 %r<3>;
  .reg .b64 %d;
  ld.param.u32 %r1, [a];
  st.shared.u32 [buffer], %r1;
  bar.sync 0;
  ld.shared.u32 %r2, [buffer];
  mov.u64 %d, 0;
  st.global.u32 [%d], %r2;
  ret;
}
"""

REPORT = re.compile(
    r"Compiling entry function '(?P<entry>\w+)'.*?(?P<frame>\d+) bytes stack frame.*?"
    r"Used (?P<registers>\d+) registers, used (?P<barriers>\d+) barriers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def by_name(cubin: bytes) -> dict[str, KernelInfo]:
    return {kernel.entry: kernel for kernel in describe(cubin)}


def agree(kernels: dict[str, KernelInfo], log: str) -> None:
    reports = {match["entry"]: match for match in REPORT.finditer(log)}
    assert set(reports) == set(kernels)
    for name, report in reports.items():
        kernel = kernels[name]
        shared = re.search(r"(\d+) bytes smem", report["rest"])
        assert kernel.local == int(report["frame"])
        assert kernel.barriers == int(report["barriers"])
        assert kernel.static_shared == (int(shared[1]) if shared else 0)
        assert kernel.registers == int(report["registers"])


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_100a", "sm_120f"])
def test_nvrtc_agrees(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--ptxas-options=-v"))
    made = nvrtc.compile(SOURCE, "k.cu", arch, "cubin")
    kernels = by_name(made.blob)
    agree(kernels, made.log)

    shared = kernels["shared"]
    assert shared.static_shared == 400
    assert shared.max_threads == (128, 1, 1)
    assert shared.required_threads is None
    assert shared.cluster is None
    assert shared.max_cluster_rank is None
    assert shared.parameter_bytes == 185
    assert shared.parameters == (Parameter(0, 0, 168), Parameter(1, 168, 4), Parameter(2, 176, 8), Parameter(3, 184, 1))
    assert kernels["frame"].local == kernels["frame"].stack == 1200
    assert kernels["frame"].barriers == 4
    assert kernels["nothing"].parameters == ()


@pytest.mark.parametrize("arch", ["sm_90a", "sm_103a", "sm_120a"])
def test_nvjitlink_agrees(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvjitlink, "OPTIONS", (*nvjitlink.OPTIONS, "-verbose"))
    release = max("8.1", nvjitlink.ptx_version(arch))  # 8.1 brought large parameters
    head = f".version {release}\n.target {arch}\n.address_size 64\n"
    made = nvjitlink.assemble(head + PTX, arch)
    kernels = by_name(made.blob)
    agree(kernels, made.log)

    large, pair, ranked = kernels["large"], kernels["pair"], kernels["ranked"]
    assert large.parameters == (Parameter(0, 0, 20000), Parameter(1, 20000, 4))
    assert large.parameter_bytes == 20004
    assert large.required_threads == (64, 2, 1)
    assert pair.cluster == (2, 1, 2)
    assert pair.explicit_cluster
    assert large.cluster is None
    assert not large.explicit_cluster
    assert ranked.max_cluster_rank == 4
    assert ranked.static_shared == 64
    assert ranked.max_threads == (64, 1, 1)


def test_kernels_are_in_the_order_of_their_names() -> None:
    names = [kernel.entry for kernel in describe(nvrtc.compile(SOURCE, "k.cu", "sm_90a", "cubin").blob)]
    assert names == ["calls", "frame", "nothing", "shared"]


@pytest.mark.parametrize("garbage", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"\0" * 500, b"\x7fELF\x01\x01"])
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="cubin"):
        describe(garbage)


def test_damage_never_ends_in_another_error() -> None:
    whole = nvrtc.compile(SOURCE, "k.cu", "sm_90a", "cubin").blob
    draw = random.Random(1)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole[: draw.randrange(len(whole))] if draw.random() < 0.3 else whole)
        for _ in range(draw.randrange(8)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            describe(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 100
    with pytest.raises(ValueError, match="cubin"):
        describe(whole[: len(whole) - 1000])
