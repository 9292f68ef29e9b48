"""Kernels of users' own over HTTP: compiled in a sandbox or not at all, whatever they try."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backends.toolchain import sandbox
from sched_compiler import client
from sched_compiler.driver import CompileRequest, compile_spec
from tests.service.support import Server, served, settings

DRIVER = "sched_compiler.driver"
SECRET = "a_secret_of_this_server"

needs_sandbox = pytest.mark.skipif(sandbox.unavailable() is not None, reason=str(sandbox.unavailable()))

SPEC = """\
version: 1
name: fill
space: {m: 64}
dispatch: {static: {workers: grid}}
kernel: {source: k.cu, entry: fill, block: 32, arguments: [A: f32*, tiles: schedule]}
"""
KERNEL = """\
#include <sched/fill.cuh>
extern "C" __global__ void fill(float* A, sched::fill::Arguments tiles) {
  for (sched::fill s(tiles); s.valid(); s.next()) A[s.tile().m] = 1;
}
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that compiles."""
    with served(settings(tmp_path_factory.mktemp("real"), compile_timeout=60), DRIVER) as server:
        yield server


def exchange(server: Server, method: str, path: str, body: str | None = None) -> tuple[int, Any, str]:
    """Status, the JSON of the answer, and whether it was a hit."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    with closing(server.connect(timeout=90)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.getheader("x-cache") or ""


def ask(server: Server, body: dict[str, Any]) -> tuple[int, Any, str]:
    return exchange(server, "POST", "/compile", json.dumps(body))


def post(server: Server, kernel: str = KERNEL, spec: str = SPEC, **files: str) -> tuple[int, Any, str]:
    return ask(server, {"spec": spec, "arch": "sm_90a", "files": {"k.cu": kernel, **files}})


@needs_sandbox
def test_a_kernel_is_compiled_and_found_again(real: Server) -> None:
    status, manifest, cache = post(real)
    assert (status, cache) == (200, "miss")
    assert manifest["entry"] == "fill"
    assert post(real)[2] == "hit"
    assert post(real, **{"unused.h": "x"})[2] == "hit"
    assert post(real, KERNEL + "\n")[2] == "miss"


@needs_sandbox
def test_it_is_the_artifact_of_a_local_compile(real: Server, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL.replace("float* A,", "float* A, "))
    request = CompileRequest(SPEC, str(tmp_path / "spec.yaml"), "sm_90a", directory=str(tmp_path))
    remote = client.compile_remotely(f"http://127.0.0.1:{real.port}", request)
    local = compile_spec(request)
    assert (remote.key, remote.blob, remote.manifest) == (local.key, local.blob, local.manifest)


@needs_sandbox
def test_faults_stand_in_the_files_that_were_sent(real: Server) -> None:
    status, problem, _ = post(real, '#include "a/b.h"\n' + KERNEL, **{"a/b.h": "\n#error here\n"})
    assert status == 422
    places = [(d["code"], d["file"], d["line"]) for d in problem["diagnostics"]]
    assert places[0] == ("E075", "a/b.h", 2)
    assert post(real, spec=SPEC.replace("k.cu", "other.cu"))[1]["diagnostics"][0]["code"] == "E074"


def test_tables_and_further_specs_come_as_files_too(real: Server) -> None:
    spec = "{version: 1, name: t, space: {m: 4}, order: {points: {m: {file: sub/t.json}}}, dispatch: single}"
    status, manifest, _ = ask(real, {"spec": spec, "arch": "sm_90a", "files": {"sub/t.json": "[3, 1, 0, 2]"}})
    assert status == 200, manifest
    status, problem, _ = ask(real, {"spec": spec, "arch": "sm_90a", "files": {"t.json": "[3, 1, 0, 2]"}})
    assert (status, problem["diagnostics"][0]["code"]) == (422, "E047")


@pytest.mark.parametrize(
    "files",
    [
        [],
        "text",
        {"a": 1},
        {"": "x"},
        {"/etc/passwd": "x"},
        {"a\0b": "x"},
        {"a\nb": "x"},
        {str(n): "" for n in range(300)},
    ],
    ids=lambda value: str(value)[:20],
)
def test_files_that_are_none_are_refused(real: Server, files: Any) -> None:
    assert ask(real, {"spec": SPEC, "arch": "sm_90a", "files": files})[0] == 400


def test_half_of_a_surrogate_pair_is_refused(real: Server) -> None:
    assert post(real, "\ud800")[0] == 422


@pytest.mark.parametrize("source", ["../k.cu", "a/../../k.cu", "./k.cu", "k.cu/", "no such file", "K.CU"])
def test_a_path_leads_to_nothing_but_what_was_sent(real: Server, source: str) -> None:
    status, problem, _ = post(real, spec=SPEC.replace("k.cu", f'"{source}"'), **{"../k.cu": "#error other\n"})
    if source in ("./k.cu", "k.cu/"):  # which are k.cu
        assert status in (200, 501)
    else:
        assert problem["diagnostics"][0]["code"] in ("E074", "E075", "E077")


HOSTILE = {
    "include": '#include "@"',
    "include in brackets": "#include <@>",
    "digraph": '%:include "@"',
    "computed": '#define F "@"\n#include F',
    "embed": '__device__ const char x[] = {\n#embed "@"\n};',
    "probe": '#if __has_include("@")\n#error FOUND_IT\n#endif',
    "incbin": 'extern "C" __global__ void k() { asm volatile(".incbin \\"@\\";"); }',
    "line": '#line 1 "@"\n#error',
}


@needs_sandbox
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_the_server_is_read(real: Server, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text(f"#error {SECRET}\n")
    for path in (str(secret), f"../../..{secret}", "/etc/passwd", "/proc/self/environ"):
        status, said, _ = post(real, HOSTILE[name].replace("@", path) + "\n" + KERNEL)
        told = json.dumps(said)
        assert SECRET not in told
        assert "root:" not in told
        assert "directive: FOUND_IT" not in told
        assert status in (200, 422)


ENDLESS = {
    "templates": "template <int N> struct S { static const int v = S<N + 1>::v; };\n__device__ int x = S<0>::v;\n",
    "constexpr": "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i; return s; }\n"
    "__device__ long x[f(1l << 60) & 1];\n",
    "macros": "".join(f"#define M{n} M{n - 1} M{n - 1} M{n - 1} M{n - 1}\n" for n in range(1, 40))
    + "#define M0 x\n__device__ int M39;\n",
    "includes itself": '#include "k.cu"\n',
    "array": "__device__ int x[1l << 60] = {1};\n",
}


@needs_sandbox
@pytest.mark.parametrize("name", ENDLESS)
def test_every_compile_ends_and_the_server_lives(real: Server, name: str) -> None:
    began = time.monotonic()
    status, said, _ = post(real, ENDLESS[name] + KERNEL)
    assert status in (422, 504), said
    assert said["diagnostics"][0]["code"] in ("E071", "E072", "E075")
    assert time.monotonic() - began < 75
    assert post(real)[0] == 200


def test_capabilities_say_what_is_compiled(real: Server) -> None:
    sources = exchange(real, "GET", "/capabilities")[1]["sources"]
    assert sources["reason"] == sandbox.unavailable()
    assert sources["compiled"] == (sandbox.unavailable() is None)
    assert set(sources["headers"]) == {"cuda", "cccl", "cutlass"}


def test_without_a_sandbox_it_says_why_and_compiles_the_rest(tmp_path: Path) -> None:
    with served(settings(tmp_path), DRIVER, PATH="/nowhere") as server:
        status, problem, _ = post(server)
        assert status == 501
        (d,) = problem["diagnostics"]
        assert (d["code"], d["file"]) == ("E077", "spec.yaml")
        assert "bubblewrap" in d["found"]
        assert "bubblewrap" in exchange(server, "GET", "/capabilities")[1]["sources"]["reason"]
        assert ask(server, {"spec": SPEC.split("kernel:")[0], "arch": "sm_90a"})[0] == 200
        (tmp_path / "k.cu").write_text(KERNEL)
        request = CompileRequest(SPEC, "spec.yaml", "sm_90a", directory=str(tmp_path))
        with pytest.raises(client.UnreachableError, match="501"):
            client.compile_remotely(f"http://127.0.0.1:{server.port}", request)
