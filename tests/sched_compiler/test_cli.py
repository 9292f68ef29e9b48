"""The command line: exit codes, what goes where, and that asking for help costs nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sched_compiler.cli import main

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
BAD = sorted((ROOT / "tests" / "bad_specs").rglob("*.yaml"))
GOOD = """\
version: 1
name: rows-first
params:
  rows: {min: 0, max: 100}
space: {m: rows, n: 3}
dispatch: {static: {workers: 2}}
"""
WARNED = GOOD.replace("params:\n", "params:\n  unused: {min: 0, max: 1}\n")
HEAVY = ("numpy", "pydantic", "fastapi", "cuda", "yaml", "rich", "uvicorn", "backends", "service")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("rows.yaml").write_text(GOOD)
    Path("warned.yaml").write_text(WARNED)
    Path("bad.yaml").write_text(GOOD.replace("n: 3", "n: -3"))
    return "rows.yaml"


def schedc(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sched_compiler.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=120, check=False)


# -- light ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "import sched_compiler",
        "import sched_compiler.cli",
        "from sched_compiler.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from sched_compiler.cli import main\ntry: main(['--version'])\nexcept SystemExit: print()",
        "from sched_compiler.cli import main\ntry: main(['compile', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_imports_and_help_bring_nothing_heavy(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint('LOADED', *(m for m in {HEAVY!r} if m in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("name", ["gemm_group_major", "cluster_persistent_2d_serpentine_runtime"])
def test_a_compile_loads_only_what_it_needs(name: str, tmp_path: Path) -> None:
    """NumPy evaluates and traces; what is compiled is proven without."""
    arguments = ["compile", str(ROOT / "specs" / f"{name}.yaml"), "--arch", "sm_90a", "--backend", "ptx", "-o", "x"]
    code = (
        f"from sched_compiler.cli import main\nassert main({arguments!r}) == 0\nimport sys\n"
        "print([m for m in ('numpy', 'http.client', 'urllib.request', 'rich', 'service') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    assert done.stdout == "[]\n"


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for verb in ("check", "expand", "trace", "emit", "compile", "serve", "schema"):
        assert verb in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"schedc \d+\.\d+\S*\n", capsys.readouterr().out)


# -- check ------------------------------------------------------------------------------------------------------


class TestCheck:
    def test_a_good_spec_is_proven(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", spec]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("rows.yaml: proven\n")
        assert "1 of 1 specs proven" in err

    def test_a_bad_spec_is_a_fault_and_complaints_go_to_stderr(
        self, spec: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", spec, "bad.yaml"]) == 1
        out, err = capsys.readouterr()
        assert "bad.yaml" not in out
        assert "bad.yaml:5:21" in err
        assert "1 of 2 specs proven" in err

    def test_a_missing_file_is_a_wrong_call(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", spec, "nowhere.yaml"]) == 2
        assert capsys.readouterr().err == "schedc: cannot read nowhere.yaml: No such file or directory\n"

    @pytest.mark.parametrize(
        "arguments", [[], ["check"], ["check", "x", "--format", "xml"], ["chek"], ["trace", "x", "-w"]]
    )
    def test_a_wrong_call_ends_with_2(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "usage: schedc" in capsys.readouterr().err

    def test_warnings_are_faults_only_under_strict(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "warned.yaml"]) == 0
        assert "warning[W002]" in capsys.readouterr().err
        assert main(["check", "warned.yaml", "--strict"]) == 1
        assert main(["check", spec, "--strict"]) == 0

    @pytest.mark.parametrize("form", ["json", "sarif"])
    @pytest.mark.parametrize("name", ["rows.yaml", "bad.yaml", "warned.yaml"])
    def test_machine_output_is_json_and_nothing_else(
        self, spec: str, name: str, form: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", name, "--format", form]) == (name == "bad.yaml")
        found = json.loads(capsys.readouterr().out)
        if form == "json":
            (report,) = found
            assert (report["file"], report["ok"]) == (name, name != "bad.yaml")
            assert [d["code"] for d in report["diagnostics"]] == {"bad.yaml": ["E023"], "warned.yaml": ["W002"]}.get(
                name, []
            )
        else:
            assert found["version"] == "2.1.0"

    def test_github_annotations_name_the_file(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "bad.yaml", "--format", "github"]) == 1
        assert capsys.readouterr().out.startswith("::error file=bad.yaml,line=5,col=")
        assert main(["check", spec, "--format", "github"]) == 0
        assert capsys.readouterr().out == ""

    def test_a_directory_stands_for_the_specs_in_it(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("deep/er").mkdir(parents=True)
        Path("deep/er/one.yml").write_text(GOOD)
        Path("deep/notes.txt").write_text("no spec")
        assert main(["check", "deep", "--format", "json"]) == 0
        assert [r["file"] for r in json.loads(capsys.readouterr().out)] == [str(Path("deep", "er", "one.yml"))]
        Path("empty").mkdir()
        assert main(["check", "empty"]) == 2

    def test_standard_input(
        self, spec: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
        assert main(["check", "-"]) == 0
        assert capsys.readouterr().out.startswith("<stdin>: proven")

    def test_bytes_that_are_no_text_are_a_diagnostic(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("bytes.yaml").write_bytes(b"version: 1\nname: \xff\xfe\n")
        assert main(["check", "bytes.yaml"]) == 1
        error = capsys.readouterr().err
        assert "the byte 0xFF cannot stand in a spec" in error
        assert "bytes.yaml:2:7" in error

    def test_the_shipped_specs_are_proven(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(ROOT / "specs"), "--strict"]) == 0
        assert capsys.readouterr().out.count(": proven") == len(list((ROOT / "specs").rglob("*.yaml")))


@pytest.mark.parametrize("path", BAD, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_bad_specs_are_faults_without_a_traceback(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warning = all(line.startswith("# expect: W") for line in path.read_text(errors="replace").splitlines()[:1])
    assert main(["check", str(path)]) == (0 if warning else 1)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert ("warning[" if warning else "error[") in err


def test_bad_specs_in_one_process_of_its_own() -> None:
    done = schedc("check", str(ROOT / "tests" / "bad_specs"))
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert f"of {len(BAD)} specs proven".encode() in done.stderr


# -- expand, trace, emit, schema ----------------------------------------------------------------------------------


def test_expand_prints_a_spec(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path in SPECS:
        assert main(["expand", str(path)]) == 0
        Path("expanded.yaml").write_text(capsys.readouterr().out)
        assert main(["check", "expanded.yaml"]) == 0
        capsys.readouterr()
    assert main(["expand", "bad.yaml"]) == 0  # it can be written out; only a proof would refuse it
    Path("worse.yaml").write_text("space: 1")
    assert main(["expand", "worse.yaml"]) == 1


class TestTrace:
    @pytest.mark.parametrize("engine", ["numpy", "cuda", "ptx"])
    def test_json(self, spec: str, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", spec, "--set", "rows=2", "--engine", engine, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "axes": ["m", "n"],
            "workers": 2,
            "tiles": [[[0, 0], [0, 2], [1, 1]], [[0, 1], [1, 0], [1, 2]]],
            "out_of_bounds": [],
        }

    def test_text(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", spec, "--set", "rows=2"]) == 0
        out = capsys.readouterr().out
        assert "6 tiles (m, n) for 2 workers" in out
        assert "worker 1: (0, 1) (1, 0) (1, 2)" in out

    def test_workers_and_follow(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", spec, "--set", "rows=0x2", "--workers", "3", "--follow", "2,0", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["tiles"] == [[[0, 2], [1, 2]], [[0, 0], [1, 0]]]

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["--set", "rows"], 2), (["--set", "rows=many"], 2), (["--set", "=3"], 2), (["--set", ""], 2),
            (["--set", "rows=1", "--set", "rows=1"], 2), (["--set", "rows=" + "9" * 5000], 2),
            (["--set", "rows=1", "--follow", "a"], 2),
            ([], 1), (["--set", "rows=101"], 1), (["--set", "rows=1", "--set", "m=1"], 1),
            (["--set", "rows=1", "--workers", "0"], 1), (["--set", "rows=1", "--follow", "2"], 1),
        ],
    )  # fmt: skip
    def test_what_is_wrong(
        self, spec: str, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", spec, *arguments, "--format", "json"]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert 0 < len(err) < 500
        assert "4300" not in err, "Python's limits are not the user's"


class TestEmit:
    @pytest.mark.parametrize("to", ["cuda", "ptx", "header", "declarations", "json"])
    def test_text(self, spec: str, to: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["emit", spec, "--to", to]) == 0
        out, err = capsys.readouterr()
        assert out.endswith("\n")
        assert not err
        mark = {"cuda": "__global__", "ptx": ".visible .entry rows_first_trace", "header": "struct rows_first"}
        mark["declarations"] = "__device__ Tile tile() const;"
        assert mark.get(to, '"tile"') in out
        assert main(["emit", spec, "--to", to, "-o", "out.txt"]) == 0
        assert Path("out.txt").read_text() == out

    def test_launcher(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["emit", spec, "--to", "launcher", "--arch", "sm_80"]) == 0
        out = capsys.readouterr().out
        assert "namespace rows_first {" in out
        assert 'arch = "sm_80";' in out
        assert main(["emit", spec, "--to", "launcher", "--arch", "sm_1"]) == 1

    def test_ptx_is_for_the_architecture(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["emit", spec, "--to", "ptx", "--arch", "sm_80"]) == 0
        assert ".target sm_80\n" in capsys.readouterr().out
        assert main(["emit", spec, "--to", "ptx", "--arch", "sm_1"]) == 1

    def test_a_directory_that_is_not_there(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["emit", spec, "--to", "json", "-o", "nowhere/out.json"]) == 2
        assert "cannot write nowhere" in capsys.readouterr().err


def test_schema_prints_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Tile schedule"


# -- compile ------------------------------------------------------------------------------------------------------


class TestCompile:
    def test_the_cubin_and_its_manifest(self, spec: str) -> None:
        assert main(["compile", spec, "--arch", "sm_90a"]) == 0
        blob = Path("rows-first.sm_90a.cubin").read_bytes()
        manifest: dict[str, Any] = json.loads(Path("rows-first.sm_90a.cubin.json").read_text())
        assert manifest["digest"] == hashlib.sha256(blob).hexdigest()
        assert blob[:4] == b"\x7fELF"

    @pytest.mark.parametrize(("emit", "suffix"), [("ptx", "ptx"), ("header", "cuh")])
    def test_texts(self, spec: str, emit: str, suffix: str) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--emit", emit]) == 0
        assert Path(f"rows-first.sm_90a.{suffix}").read_text().endswith("\n")

    @pytest.mark.parametrize(("emit", "suffix"), [("ltoir", "ltoir"), ("object", "o")])
    def test_libraries(self, spec: str, emit: str, suffix: str) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--emit", emit]) == 0
        blob = Path(f"rows-first.sm_90a.{suffix}").read_bytes()
        manifest: dict[str, Any] = json.loads(Path(f"rows-first.sm_90a.{suffix}.json").read_text())
        assert manifest["digest"] == hashlib.sha256(blob).hexdigest()
        assert manifest["entry"] is None

    def test_backends(self, spec: str) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--backend", "ptx", "-o", "out"]) == 0
        assert json.loads(Path("out.json").read_text())["backend"] == "ptx"
        assert main(["compile", spec, "--arch", "sm_90a", "--backend", "triton"]) == 1

    def test_a_form_that_a_backend_does_not_build(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--backend", "ptx", "--emit", "header"]) == 1
        error = capsys.readouterr().err
        assert "the backend ptx builds no header" in error
        assert "one of: cubin, ptx" in error
        assert "take the backend cuda" in error

    @pytest.mark.parametrize(
        "address",
        ["", "notaurl", "localhost:8000", "http://", "http://[", "ftp://127.0.0.1/", "file:///etc/passwd",
         "http://127.0.0.1:99999", "http://no such host/", "http://127.0.0.1:80/?arch=x"],
    )  # fmt: skip
    def test_what_is_no_address_is_a_wrong_call(
        self, spec: str, address: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--server", address]) == 2
        assert capsys.readouterr().err.startswith("schedc: --server takes the address of a service")
        assert not list(Path().glob("*.cubin"))

    def test_an_unknown_architecture(self, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", spec, "--arch", "sm_9"]) == 1
        assert "sm_90a" in capsys.readouterr().err
        assert sorted(p.name for p in Path().iterdir()) == ["bad.yaml", "rows.yaml", "warned.yaml"]

    def test_standard_output_takes_the_artifact_alone(self, spec: str, tmp_path: Path) -> None:
        done = schedc("compile", spec, "--arch", "sm_90a", "-o", "-", cwd=tmp_path)
        assert done.returncode == 0
        assert done.stdout[:4] == b"\x7fELF"
        assert not Path("-.json").exists()

    def test_the_artifact_comes_last(self, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where a compile is interrupted, build systems find the old artifact, which is older than what changed."""
        written: list[str] = []
        monkeypatch.setattr("sched_compiler.outputs.write_whole", lambda name, data: written.append(name))
        assert main(["compile", spec, "--arch", "sm_90a", "-o", "x", "--depfile", "d"]) == 0
        assert written == ["d", "x.json", "x"]

    def test_a_depfile_names_files_alone(self, spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["compile", "--arch", "sm_90a", "--depfile", "d", "-o"]
        assert schedc(*command, "x", "-", stdin=GOOD.encode(), cwd=tmp_path).returncode == 0
        assert Path("d").read_text() == "x:\n\n"
        Path("d").unlink()
        assert main([*command, "-", spec]) == 2
        assert "standard output is none" in capsys.readouterr().err
        Path("li\nne").mkdir()
        assert main([*command, "li\nne/x", spec]) == 2
        assert "line break" in capsys.readouterr().err
        assert not Path("d").exists()
        assert not list(Path("li\nne").iterdir())

    def test_an_unreachable_server_is_said_once_and_done_without(
        self, spec: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", spec, "--arch", "sm_90a", "--server", "http://127.0.0.1:9"]) == 0
        assert capsys.readouterr().err.count("compiling here instead") == 1
        assert Path("rows-first.sm_90a.cubin").exists()


# -- as a process -------------------------------------------------------------------------------------------------


def test_exit_codes_of_the_process(spec: str, tmp_path: Path) -> None:
    assert schedc("check", spec, cwd=tmp_path).returncode == 0
    assert schedc("check", "bad.yaml", cwd=tmp_path).returncode == 1
    assert schedc("check", "nowhere.yaml", cwd=tmp_path).returncode == 2
    assert schedc("check", "-", stdin=GOOD.encode(), cwd=tmp_path).returncode == 0
    assert schedc(cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("arguments", [["expand", "rows.yaml"], ["trace", "rows.yaml", "--set", "rows=100"]])
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(spec: str, tmp_path: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "sched_compiler.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")  # as of a program that the signal ends


@pytest.mark.parametrize("redirection", ["<&-", ">&-", ">/dev/full"])
@pytest.mark.parametrize("verb", ["check -", "expand -", "emit --to json -", "trace -", "schema"])
def test_closed_and_full_files_are_one_line(verb: str, redirection: str) -> None:
    if redirection == "<&-" and verb == "schema":
        pytest.skip("schema reads nothing")
    spec = "{version: 1, name: a, space: {m: 2}, dispatch: {single: {}}}"
    command = f"echo '{spec}' | {{ {sys.executable} -m sched_compiler.cli {verb} {redirection}; }}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("schedc: ")


def test_a_name_that_no_file_can_have_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "n" * 300 + ".yaml"]) == 2
    assert capsys.readouterr().err.startswith("schedc: ")


def test_an_endless_file_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "/dev/zero"]) == 1
    assert "E005" in capsys.readouterr().err


def test_both_outputs_keep_their_order_in_one_pipe() -> None:
    """As in a build's log, whatever the interpreter buffers."""
    command = f"{sys.executable} -m sched_compiler.cli check specs/gemm_group_major.yaml 2>&1"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False, env=environment
    )
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("specs/gemm_group_major.yaml: proven", "1 of 1 specs proven")
