"""A user's source is confined: whatever it includes, nothing of this machine is read, and every compile ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from backends.toolchain import nvrtc, sandbox
from backends.toolchain.errors import ToolchainError
from backends.toolchain.sandbox import Limits
from sched_compiler.registry import LimitError

SECRET = "a_secret_of_this_machine"

needs_sandbox = pytest.mark.skipif(sandbox.unavailable() is not None, reason=str(sandbox.unavailable()))


def request(source: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "name": "kernel.cu", "arch": "sm_90a", "emit": "cubin", "headers": {}, **more}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.h"
    path.write_text(SECRET)
    return path


#: Every spelling by which a source could have a file read; @ stands for the file.
SPELLINGS = [
    '#include "@"',
    "#include <@>",
    '%:include "@"',
    '??=include "@"',
    '#define F "@"\n#include F',
    '#include_next "@"',
    '#import "@"',
    '#pragma include_alias("x.h", "@")\n#include "x.h"',
    '__device__ const char x[] = {\n#embed "@"\n};',
    '#if __has_include("@")\n#error FOUND_IT\n#endif',
    "#if __has_include(<@>)\n#error FOUND_IT\n#endif",
    '#if __has_embed("@")\n#error FOUND_IT\n#endif',
    'extern "C" __global__ void k() { asm volatile(".incbin \\"@\\";"); }',
    'extern "C" __global__ void k() { asm volatile(".include \\"@\\";"); }',
    'asm(".incbin \\"@\\"");',
    '#line 1 "@"\n#error',
    '#pragma GCC dependency "@"',
    'import "@";',
]


def said(source: str, **more: Any) -> str:
    """Everything that a compile tells its user."""
    try:
        compiled, _ = sandbox.compile_confined(request(source, **more))
    except ToolchainError as e:
        return e.log
    return compiled.log + compiled.blob.decode("latin-1")


@needs_sandbox
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_reads_a_file(spelling: str, secret: Path) -> None:
    for name in (str(secret), f"../..{secret}", f"/proc/self/root{secret}"):
        told = said(spelling.replace("@", name))
        assert SECRET not in told
        assert "directive: FOUND_IT" not in told


@needs_sandbox
@pytest.mark.parametrize("path", ["/etc/hostname", "/etc/passwd", "/proc/self/environ", "/proc/1/cmdline", "/root"])
def test_the_machine_s_own_files_are_not_there(path: str) -> None:
    assert "cannot open source file" in said(f'#include "{path}"')


def test_outside_a_sandbox_the_file_would_be_read(secret: Path) -> None:
    """Why there is one: this is what NVRTC does."""
    with pytest.raises(ToolchainError, match=SECRET):
        nvrtc.compile_with_headers(**request(f'#include "{secret}"'))


@needs_sandbox
def test_what_is_asked_for_is_there_and_gives_the_same() -> None:
    source = "#include <sched/x.cuh>\ntemplate <int N> __global__ void k(int* out) { *out = sched::x + N; }\n"
    headers = {"sched/x.cuh": "#include <y.cuh>\n", "y.cuh": "namespace sched { constexpr int x = 3; }\n"}
    asked = request(source, headers=headers, entry="k<4>")
    confined, name = sandbox.compile_confined(asked)
    free, same = nvrtc.compile_with_headers(**asked)
    assert name == same == "_Z1kILi4EEvPi"
    assert confined.blob == free.blob


@needs_sandbox
def test_errors_are_placed_in_the_source() -> None:
    with pytest.raises(ToolchainError) as caught:
        sandbox.compile_confined(request("\n\n  __device__ int x = y;\n"))
    assert (caught.value.line, caught.value.column) == (3, 22)


@needs_sandbox
@pytest.mark.parametrize(
    "source",
    [
        "template <int N> struct A { static constexpr int v = A<N - 1>::v + A<N + 1>::v; };\n"
        "__device__ int q = A<0>::v;",
        "template <class T> struct I { typename I<I<T>>::t x; }; __device__ I<int> q;",
        "constexpr int f() { int s = 0; for (;;) s++; return s; } static_assert(f() > 0);",
        "".join(f"#define M{k} {' '.join([f'M{k + 1}'] * 16)}\n" for k in range(9)) + "#define M9 +1\nint x = M0;",
        '#include "kernel.cu"\n',
    ],
)
def test_what_never_ends_is_ended(source: str) -> None:
    begin = time.monotonic()
    with pytest.raises((ToolchainError, LimitError)):
        sandbox.compile_confined(request(source), Limits(seconds=10, memory=3 << 30))
    assert time.monotonic() - begin < 30
    assert sandbox.compile_confined(request('extern "C" __global__ void k() {}'))[0].blob


@needs_sandbox
def test_sources_with_nul_or_without_end_are_refused() -> None:
    for source in ("int x;\0int y;", "/*", '"', "#if 1"):
        with pytest.raises(ToolchainError):
            sandbox.compile_confined(request(source))
