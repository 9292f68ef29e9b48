"""The PTX interpreter: control flow, calls, memory, traps, and what it refuses to read."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends.ptx.interpreter import Module, PtxError, PtxTrap
from backends.toolchain.errors import ToolMissing
from tests.backends.test_ptx_instructions import HEAD, module, quotient, signed

# Control flow


def entry(body: str, parameters: str = ".param .u64 out", bounds: str = "") -> str:
    """A kernel with registers %r0-9, %d0-9 (64 bits), %p0-9, and %out, the address of this block's 32-bit element."""
    return f"""
.visible .entry k({parameters}) {bounds}
{{
.reg .b32 %r<10>;
.reg .b64 %d<10>, %out;
.reg .pred %p<10>;
ld.param.u64 %out, [out];
cvta.to.global.u64 %out, %out;
mov.u32 %r0, %ctaid.x;
mul.wide.u32 %d0, %r0, 4;
add.u64 %out, %out, %d0;
{body}
}}
"""


def run(body: str, blocks: int, *args: Any, cluster: int = 1, bounds: str = "", **more: Any) -> list[int]:
    """Launch `entry(body)`; each further argument is a 64-bit parameter a, b, ...; gives the elements written."""
    out = np.zeros(blocks, np.uint32)
    parameters = ".param .u64 out" + "".join(f", .param .u64 {name}" for name in "abc"[: len(args)])
    module(entry(body, parameters, bounds)).launch("k", np.arange(blocks), blocks, [out, *args], cluster, **more)
    return out.tolist()


COLLATZ = """
mov.u32 %r1, %r0;
mov.u32 %r2, 0;
LOOP:
setp.le.u32 %p0, %r1, 1;
@%p0 bra DONE;
add.u32 %r2, %r2, 1;
and.b32 %r3, %r1, 1;
setp.eq.u32 %p1, %r3, 1;
@%p1 bra ODD;
shr.u32 %r1, %r1, 1;
bra.uni LOOP;
ODD:
mad.lo.u32 %r1, %r1, 3, 1;
bra LOOP;
DONE:
st.global.u32 [%out], %r2;
ret;
"""


def test_threads_part_and_meet_again() -> None:
    def steps(n: int) -> int:
        count = 0
        while n > 1:
            n, count = (3 * n + 1 if n & 1 else n // 2), count + 1
        return count

    assert run(COLLATZ, 60) == [steps(n) for n in range(60)]


def test_threads_that_meet_again_run_together() -> None:
    # Both ways of the branch, the tail once: 5 instructions before it, then 2 + 1 + 2.
    body = """
setp.lt.u32 %p0, %r0, 3;
@%p0 bra SMALL;
mov.u32 %r1, 10;
bra TAIL;
SMALL:
mov.u32 %r1, 20;
TAIL:
st.global.u32 [%out], %r1;
ret;
"""
    assert run(body, 6, step_limit=12) == [20, 20, 20, 10, 10, 10]
    with pytest.raises(PtxTrap, match="endless"):
        run(body, 6, step_limit=11)


def test_guards_choose_threads() -> None:
    body = """
setp.gt.u32 %p0, %r0, 2;
mov.u32 %r1, 1;
@%p0 mov.u32 %r1, 2;
@!%p0 add.u32 %r1, %r1, 4;
@%p0 st.global.u32 [%out], %r1;
@%p0 exit;
@!%p0 st.global.u32 [%out], %r1;
"""
    assert run(body, 5) == [5, 5, 5, 2, 2]


def test_an_endless_loop_ends() -> None:
    with pytest.raises(PtxTrap, match="endless") as raised:
        run("HERE:\nbra HERE;", 2, step_limit=1000)
    assert raised.value.text == "bra HERE"
    assert raised.value.lane == 0


def test_special_registers() -> None:
    body = """
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %clusterid.x;
mov.u32 %r3, %nclusterid.x;
mov.u32 %r4, %cluster_nctarank;
mov.u32 %r5, %nctaid.x;
mov.u32 %r6, %ntid.x;
mov.u32 %r7, %tid.x;
mad.lo.u32 %r1, %r2, 10, %r1;
mad.lo.u32 %r1, %r3, 100, %r1;
mad.lo.u32 %r1, %r4, 1000, %r1;
mad.lo.u32 %r1, %r5, 10000, %r1;
mad.lo.u32 %r1, %r6, 1000000, %r1;
add.u32 %r1, %r1, %r7;
mov.u32 %r8, %ctaid.y;
add.u32 %r1, %r1, %r8;
mov.u32 %r8, %nctaid.z;
mad.lo.u32 %r1, %r8, 100000000, %r1;
st.global.u32 [%out], %r1;
"""
    found = run(body, 6, cluster=2, bounds=".reqntid 64\n.explicitcluster\n.reqnctapercluster 2, 1, 1")
    assert found == [164_062_300 + 10 * (block // 2) + block % 2 for block in range(6)]


def test_only_the_listed_blocks_run() -> None:
    out = np.zeros(8, np.uint32)
    module(entry("st.global.u32 [%out], 1;")).launch("k", np.array([1, 6]), 1000, [out])
    assert out.tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
    module(entry("st.global.u32 [%out], 1;")).launch("k", np.array([], dtype=np.int64), 1000, [out])


@pytest.mark.parametrize(
    ("blocks", "grid", "cluster", "arguments", "message"),
    [
        ([8], 8, 1, 1, "outside"),
        ([-1], 8, 1, 1, "outside"),
        ([0], 0, 1, 1, "blocks in x"),
        ([0], 1 << 31, 1, 1, "blocks in x"),
        ([0], 9, 2, 1, "whole clusters"),
        ([0], 8, 4, 1, "compiled for clusters"),
        ([0], 8, 2, 2, "takes 1 arguments"),
    ],
)
def test_launches_that_a_device_refuses(
    blocks: list[int], grid: int, cluster: int, arguments: int, message: str
) -> None:
    kernel = module(entry("ret;", bounds=".reqnctapercluster 2, 1, 1"))
    with pytest.raises(ValueError, match=message):
        kernel.launch("k", np.array(blocks), grid, [np.zeros(1, np.uint32)] * arguments, cluster)


def test_arguments_must_fit() -> None:
    kernel = module(".visible .entry k(.param .s32 a) { ret; }")
    kernel.launch("k", np.arange(1), 1, [-(1 << 31)])
    kernel.launch("k", np.arange(1), 1, [(1 << 32) - 1])
    for value in (1 << 32, -(1 << 31) - 1):
        with pytest.raises(ValueError, match="does not fit"):
            kernel.launch("k", np.arange(1), 1, [value])
    with pytest.raises(ValueError, match="no entry"):
        kernel.launch("other", np.arange(1), 1, [])


# Functions


CALLS = """
.func (.param .b32 out) twice(.param .b32 a);
.func (.param .b32 out) twice(.param .b32 a)
{
  .reg .b32 %r<3>;
  .reg .pred %p;
  ld.param.u32 %r1, [a];
  setp.gt.u32 %p, %r1, 3;
  @%p bra BIG;
  add.u32 %r2, %r1, %r1;
  st.param.b32 [out+0], %r2;
  ret;
BIG:
  mul.lo.u32 %r2, %r1, 20;
  st.param.b32 [out], %r2;
}
.func (.reg .b32 %sum) sum(.reg .b32 %a, .reg .b32 %b) { add.u32 %sum, %a, %b; ret; }
.func stop(.param .b32 a)
{
  .reg .b32 %r;
  .reg .pred %p;
  ld.param.u32 %r, [a];
  setp.eq.u32 %p, %r, 2;
  @%p exit;
}
"""


def test_calls() -> None:
    body = """
setp.lt.u32 %p0, %r0, 6;
@!%p0 bra LAST;
{
  .reg .b32 %r1;
  .param .b32 argument;
  .param .b32 result;
  st.param.b32 [argument+0], %r0;
  call.uni (result), twice, (argument);
  ld.param.b32 %r1, [result+0];
  call (%r1), sum, (%r1, %r0);
  st.global.u32 [%out], %r1;
}
{
  .param .b32 argument;
  st.param.b32 [argument], %r0;
  call.uni stop, (argument);
}
ld.global.u32 %r1, [%out];
add.u32 %r1, %r1, 1000;
st.global.u32 [%out], %r1;
LAST:
ret;
"""
    out = np.zeros(8, np.uint32)
    module(CALLS + entry(body)).launch("k", np.arange(8), 8, [out])
    assert out.tolist() == [1000, 1003, 6, 1009, 1084, 1105, 0, 0]


def test_a_function_can_be_called_from_outside() -> None:
    found = module(CALLS).call("twice", [np.array([1, 2, 3, 4, 5], np.uint32)]).view(np.uint32)[:, 0]
    assert found.tolist() == [2, 4, 6, 80, 100]
    sums = module(CALLS).call("sum", [np.array([1, 2], np.uint32), np.array([5, -1 % 2**32], np.uint32)])
    assert sums.view(np.uint32)[:, 0].tolist() == [6, 1]
    with pytest.raises(ValueError, match="takes 4 bytes"):
        module(CALLS).call("twice", [np.array([1], np.uint64)])


def test_endless_recursion_ends() -> None:
    with pytest.raises(PtxTrap, match="nested too deeply"):
        module(".func f() { call.uni f; }\n.visible .entry k() { call.uni f; }").launch("k", np.arange(1), 1, [])


# Memory


def test_loads_extend_and_stores_cut() -> None:
    data = np.array([0x80, 0xFF, 0x34, 0x92, 1, 2, 3, 4], np.uint8)
    for kind, offset, expected in (
        ("u8", 0, 0x80),
        ("s8", 0, 0xFFFFFF80),
        ("u16", 2, 0x9234),
        ("s16", 2, 0xFFFF9234),
        ("b32", 4, 0x04030201),
    ):
        body = f"ld.param.u64 %d1, [a];\nld.global.nc.{kind} %r1, [%d1+{offset}];\nst.global.u32 [%out], %r1;"
        assert run(body, 1, data) == [expected]
    run("ld.param.u64 %d1, [a];\nmov.u32 %r1, 0xABCDEF;\nst.global.u8 [%d1+7], %r1;", 1, data)
    assert data[7] == 0xEF


def test_vectors() -> None:
    data = np.arange(100, 116, dtype=np.uint32)
    body = """
ld.param.u64 %d1, [a];
mul.wide.u32 %d2, %r0, 16;
add.u64 %d1, %d1, %d2;
ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1];
st.global.v2.u32 [%d1+8], {%r1, %r2};
add.u32 %r5, %r3, %r4;
st.global.u32 [%out], %r5;
"""
    assert run(body, 4, data) == [205, 213, 221, 229]
    assert data.reshape(4, 4)[1].tolist() == [104, 105, 104, 105]


def test_threads_may_access_different_arrays() -> None:
    first, second = np.array([10, 11], np.uint32), np.array([20, 21], np.uint32)
    body = """
ld.param.u64 %d1, [a];
ld.param.u64 %d2, [b];
setp.eq.u32 %p0, %r0, 1;
selp.u64 %d3, %d2, %d1, %p0;
ld.global.u32 %r1, [%d3+4];
st.global.u32 [%d3], %r1;
st.global.u32 [%out], %r1;
"""
    assert run(body, 3, first, second) == [11, 21, 11]
    assert (first[0], second[0]) == (11, 21)


def test_the_same_array_has_one_address() -> None:
    body = "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nsub.u64 %d1, %d1, %d2;\n"
    data = np.zeros(1, np.uint8)
    assert run(body + "cvt.u32.u64 %r1, %d1;\nst.global.u32 [%out], %r1;", 1, data, data) == [0]


TABLE = """
.const .align 4 .u16 table[4] = {1, 0x10, 300, -1};
.visible .global .align 8 .b64 counter;
"""


def test_variables_of_the_module() -> None:
    body = """
mov.u64 %d1, table;
mul.wide.u32 %d2, %r0, 2;
add.u64 %d1, %d1, %d2;
ld.const.u16 %r1, [%d1];
ld.const.s16 %r2, [table+6];
add.u32 %r1, %r1, %r2;
ld.global.u64 %d3, [counter];
cvt.u32.u64 %r3, %d3;
mad.lo.u32 %r1, %r3, 1000, %r1;
st.global.u32 [%out], %r1;
add.u64 %d3, %d3, 1;
st.global.u64 [counter], %d3;
"""
    out = np.zeros(4, np.uint32)
    loaded = module(TABLE + entry(body))
    for launch in range(2):  # what a launch leaves in a variable is there in the next
        loaded.launch("k", np.arange(4), 4, [out])
        assert out.tolist() == [1000 * launch + value for value in (0, 15, 299, 65534)]


def test_atomics_go_one_after_another() -> None:
    counter = np.array([5], np.uint32)
    body = "ld.param.u64 %d1, [a];\natom.global.{} %r1, [%d1], {};\nst.global.u32 [%out], %r1;"
    assert run(body.format("add.u32", "3"), 4, counter) == [5, 8, 11, 14]
    assert counter[0] == 17
    assert run(body.format("inc.u32", "18"), 4, counter) == [17, 18, 0, 1]
    assert run(body.format("exch.b32", "%r0"), 3, counter) == [2, 0, 1]
    assert run(body.format("cas.b32", "2, 9"), 2, counter) == [2, 9]
    run("ld.param.u64 %d1, [a];\nred.global.add.u32 [%d1], 0xFFFFFFFF;", 3, counter)
    assert counter[0] == 6


@pytest.mark.parametrize(
    ("body", "message", "lane", "address"),
    [
        ("st.global.u32 [%out+12], 1;", "outside the 16 bytes", 1, (1 << 40) + 16),
        ("st.global.u32 [%out+-4], 1;", "nothing lies there", 0, (1 << 40) - 4),
        ("ld.global.u32 %r1, [%out+2];", "not aligned to 4 bytes", 0, (1 << 40) + 2),
        ("ld.global.v2.u32 {%r1, %r2}, [%out];", "not aligned to 8 bytes", 1, (1 << 40) + 4),
        ("cvt.u32.u64 %r1, %out;\ncvt.u64.u32 %out, %r1;\nld.global.u32 %r1, [%out];", "nothing lies there", 0, 0),
        ("ld.global.u32 %r1, [8];", "nothing lies there", 0, 8),
        ("ld.const.u32 %r1, [%out];", "this is global memory", 0, 1 << 40),
        ("setp.gt.u32 %p0, %r0, 2;\n@%p0 ld.global.u32 %r1, [%out+4];", "outside", 3, (1 << 40) + 16),
        ("setp.eq.u32 %p0, %r0, 2;\nselp.u64 %out, 0, %out, %p0;\nld.global.u32 %r1, [%out];", "nothing", 2, 0),
        ("setp.eq.u32 %p0, %r0, 3;\n@%p0 atom.global.add.u32 %r1, [%out+4], 1;", "outside", 3, (1 << 40) + 16),
        ("sub.u32 %r1, %r0, 2;\ndiv.u32 %r1, 7, %r1;", "division by zero", 2, None),
        ("setp.gt.u32 %p0, %r0, 1;\nsub.u32 %r1, %r0, 3;\n@%p0 rem.s32 %r1, 7, %r1;", "division by zero", 3, None),
        ("setp.gt.u32 %p0, %r0, 1;\n@%p0 trap;", "the program says so", 2, None),
    ],
)
def test_traps(body: str, message: str, lane: int, address: int | None) -> None:
    with pytest.raises(PtxTrap, match=message) as raised:
        run(body, 4)
    trap = raised.value
    assert (trap.lane, trap.address) == (lane, address)
    assert trap.line == len(HEAD.splitlines()) + 11 + len(body.splitlines())
    assert trap.text == body.splitlines()[-1].rstrip(";")
    copy = pickle.loads(pickle.dumps(trap))
    assert str(copy) == str(trap)
    assert trap.text in str(trap)


def test_no_trap_where_the_thread_is_not_active() -> None:
    body = "setp.ne.u32 %p0, %r0, 0;\n@%p0 div.u32 %r1, 6, %r0;\n@!%p0 mov.u32 %r1, 9;\nst.global.u32 [%out], %r1;"
    assert run(body, 4) == [9, 6, 3, 2]


def test_read_only_memory() -> None:
    frozen = np.zeros(1, np.uint32)
    frozen.flags.writeable = False
    assert run("ld.param.u64 %d1, [a];\nld.global.u32 %r1, [%d1];", 1, frozen) == [0]
    with pytest.raises(PtxTrap, match="read-only"):
        run("ld.param.u64 %d1, [a];\nst.global.u32 [%d1], 1;", 1, frozen)
    with pytest.raises(PtxTrap, match="this is const memory"):
        module(TABLE + entry("mov.u64 %d1, table;\nst.global.u16 [%d1], %r1;")).launch(
            "k", np.arange(1), 1, [np.zeros(1, np.uint32)]
        )
    with pytest.raises(ValueError, match="contiguous"):
        run("ret;", 1, np.zeros((4, 4), np.uint32)[:, 0])


def test_a_register_that_was_never_written_is_no_plausible_value() -> None:
    assert run("st.global.u32 [%out], %r5;", 1) == [0xA5A5A5A5]


# Reading


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("sub.f32 %r1, %r2, %r3;", "not interpreted"),
        ("add.sat.s32 %r1, %r2, %r3;", "not interpreted"),
        ("add.b32 %r1, %r2, %r3;", "not interpreted for type 'b32'"),
        ("and.u32 %r1, %r2, %r3;", "not interpreted for type 'u32'"),
        ("add.u32 %d1, %r2, %r3;", "register of 32 bits, not of 64"),
        ("add.u64 %d1, %d2, %r3;", "register of 64 bits, not of 32"),
        ("add.u32 %r1, %r2;", "takes 3 operands"),
        ("add.u32 %r1, %r2, 4294967296;", "does not fit"),
        ("add.s32 %r1, %r2, -2147483649;", "does not fit"),
        ("add.u32 5, %r2, %r3;", "writes to a register"),
        ("mul.u32 %r1, %r2, %r3;", "not interpreted"),
        ("mul.wide.u64 %d1, %d2, %d3;", "not interpreted for type"),
        ("div.full.u32 %r1, %r2, %r3;", "not interpreted"),
        ("shl.b64 %d1, %d2, %d3;", "register of 32 bits"),
        ("setp.lt.b32 %p1, %r2, %r3;", "does not compare"),
        ("setp.lo.s32 %p1, %r2, %r3;", "does not compare"),
        ("setp.xx.u32 %p1, %r2, %r3;", "does not compare"),
        ("setp.eq.nand.u32 %p1, %r2, %r3, %p1;", "not interpreted"),
        ("selp.b32 %r1, %r2, %r3, %r4;", "register of 1 bits"),
        ("cvt.sat.u8.u32 %r1, %r2;", "not interpreted"),
        ("cvt.u64.u32 %r1, %r2;", "register of 64 bits"),
        ("cvt.u32.u64 %r1, %r2;", "register of 64 bits"),
        ("prmt.b32 %r1, %r2, %r3, 0x5410;", "not interpreted"),
        ("ld.local.u32 %r1, [%d1];", "'local' is not interpreted"),
        ("ld.global.u32 %r1, [%r2];", "register of 64 bits"),
        ("ld.global.u32 %r1, %d2;", "address in brackets"),
        ("ld.global.v4.u64 {%d1, %d2, %d3, %d4}, [%d5];", "more than 16 bytes"),
        ("ld.global.v2.u32 %r1, [%d5];", "values in braces"),
        ("ld.param.u64 %d1, [out+8];", "8 bytes at 8 are not in out"),
        ("ld.param.u64 %d1, [%d2];", "address of a parameter"),
        ("mov.u32 %r1, %nothing;", "not declared"),
        ("mov.u32 %r1, %clock;", "not declared, or is a special"),
        ("mov.u64 %d1, nowhere;", "takes a value of 64 bits"),
        ("mov.b64 %d1, {%r1, %r2, %r3};", "do not make 64 bits"),
        ("bra NOWHERE;", "no label"),
        ("call.uni nothing;", "no function nothing"),
        ("@%r1 mov.u32 %r1, 0;", "register of 1 bits"),
        ("mov.u32 %r1 %r2;", "expected ';'"),
        ("mov.u32 %r1, 09;", "expected an integer"),
        ("mov.u32 %r1, 0f3F800000;", "takes an integer"),
        ("mov.u32 %r1, #;", "no PTX begins with '#'"),
        (".local .b32 x;", ".local is not interpreted"),
        (".reg .f64 %f;", "expected a type"),
        (".reg .b32 %z<4000000000>;", "too many"),
        ("bar.red.popc.u32 %r1, 0, %p1;", "not interpreted"),
    ],
)
def test_what_is_not_interpreted_is_refused_with_its_line(statement: str, message: str) -> None:
    with pytest.raises(PtxError, match=message) as raised:
        module(entry("\n" + statement))
    assert raised.value.line == len(HEAD.splitlines()) + 13
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".version 8.0",
        HEAD + ".visible .entry k( {",
        HEAD + ".visible .entry k() { ret;",
        HEAD + ".visible .entry k() { ret }",
        HEAD + ".visible .entry k() { A: A: ret; }",
        HEAD + ".visible .entry k() { .reg .b32 %a; .reg .b32 %a; }",
        HEAD + ".entry k() { } .entry k() { }",
        HEAD + ".entry k() " + "{" * 5000,
        HEAD + ".const .u32 a[1] = {1, 2};",
        HEAD + "ret;",
        ".version 8.0\n.target sm_90a\n.address_size 32\n",
    ],
)
def test_broken_modules(text: str) -> None:
    with pytest.raises(PtxError):
        Module.parse(text)


def test_comments_and_directives_are_skipped() -> None:
    body = '// a comment ; }\n/* another\n one */ .pragma "nounroll";\nbar.sync 0;\nmembar.gl;\n'
    assert run(body + "st.global.u32 [%out], 3;", 1, bounds=".maxntid 32, 1, 1\n.minnctapersm 1") == [3]


def test_reading_is_quick() -> None:
    text = HEAD + entry(COLLATZ.split("LOOP:")[0] + "mad.lo.u32 %r1, %r2, 3, %r4;\n" * 150)
    best = min(_seconds(lambda: Module.parse(text)) for _ in range(5))
    assert best < 0.05  # about 0.004 on an ordinary machine


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


CUDA = """
struct Pair { int first; unsigned long long second; };
__device__ __noinline__ Pair split(unsigned n, int by) {
  return Pair{int(n) / by, (unsigned long long)n * n % 1000003};
}
extern "C" __global__ void k(unsigned* out, const short* table, unsigned count, long long scale) {
  unsigned sum = 0;
  for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
    Pair p = split(i * 2654435761u, -7);
    sum += p.first ^ unsigned(p.second) ^ __clz(i) ^ __popc(i) ^ __brev(i) ^ __umulhi(i << 20, 0xCCCCCCCDu);
    sum += unsigned(table[i % 5] * scale >> 7);
    sum = i % 3 ? sum : __mulhi(int(sum), 77777777);
  }
  out[blockIdx.x] = sum;
}
"""


def test_what_nvrtc_prints_runs_as_cuda_says() -> None:
    nvrtc = pytest.importorskip("backends.toolchain.nvrtc")
    try:
        text = nvrtc.compile(CUDA, "k.cu", "sm_90a", "ptx").blob.decode()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    table, scale, count, blocks = np.array([3, -5, 700, -32768, 32767], np.int16), -123456789, 1000, 13
    out = np.zeros(blocks, np.uint32)
    Module.parse(text).launch("k", np.arange(blocks), blocks, [out, table, count, scale])
    expected = []
    for block in range(blocks):
        total = 0
        for i in range(block, count, blocks):
            n = i * 2654435761 % 2**32
            mixed = quotient(signed(n, 32), -7) ^ n * n % 2**64 % 1000003 ^ 32 - i.bit_length() ^ i.bit_count()
            total += mixed ^ int(f"{i:032b}"[::-1], 2) ^ (i << 20) % 2**32 * 0xCCCCCCCD >> 32
            total += int(table[i % 5]) * scale >> 7
            total = total if i % 3 else signed(total % 2**32, 32) * 77777777 >> 32
        expected.append(total % 2**32)
    assert out.tolist() == expected
