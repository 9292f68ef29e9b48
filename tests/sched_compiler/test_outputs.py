"""Files as build systems want them: whole or not there, and rules that Make and Ninja read as they are meant."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sched_compiler.cli import main
from sched_compiler.outputs import clash, depfile, write_whole
from tests.support.programs import environment, require

SPEC = """\
version: 1
name: x
tables: {rows: {file: out.json}}
space: {m: 3}
order: {points: {m: rows}}
dispatch: single
kernel: {source: k.cu, entry: k, block: 32, arguments: [tiles: schedule]}
"""
KERNEL = '#include <sched/x.cuh>\n#include "h.cuh"\n__global__ void k(sched::x::Arguments tiles) {}\n'


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "spec.yaml"], ["-o", "./k.cu"], ["-o", "h.cuh"], ["-o", "inc/h.cuh"], ["-o", "link"], ["-o", "out"],
        ["-o", "new", "--depfile", "k.cu"], ["-o", "new", "--depfile", "new"], ["-o", "new", "--depfile", "new.json"],
        ["emit", "-o", "spec.yaml"], ["emit", "-o", "k.cu"], ["emit", "-o", "inc/../out.json"],
    ],
)  # fmt: skip
def test_nothing_is_written_over_what_was_read(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or over another output; then nothing is written at all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    for name, text in {"spec.yaml": SPEC, "out.json": "[2, 0, 1]", "k.cu": KERNEL, "inc/h.cuh": ""}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "h.cuh").symlink_to("inc/h.cuh")
    (tmp_path / "link").symlink_to(tmp_path / "k.cu")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    verb, options = (["emit", "--to", "launcher"], options[1:]) if options[0] == "emit" else (["compile"], options)
    assert main([*verb, "spec.yaml", "--arch", "sm_90a", "-I", "inc", *options]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_streams_are_no_files_that_clash() -> None:
    assert clash(["-", "-", "/dev/null", "/dev/null", "/dev/stdout"], ["/dev/null", "-", "/dev/stdout"]) is None


# -- whole files ------------------------------------------------------------------------------------------------


def test_a_file_is_written_with_the_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(str(tmp_path / "new"), b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    write_whole(str(tmp_path / "new"), b"22")
    assert (tmp_path / "new").read_bytes() == b"22"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interruption_leaves_the_old_file(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise error

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(error):
        write_whole(str(tmp_path / "x"), b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    for text in (b"1", b"2"):
        write_whole(str(tmp_path / "link"), text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "file").read_bytes() == text


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_whole(str(tmp_path / "pipe"), b"through")
    reader.join()
    assert read == [b"through"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_stream_is_not_replaced(tmp_path: Path) -> None:
    code = "from sched_compiler.outputs import write_whole; write_whole('/dev/stdout', b'more')"
    with (tmp_path / "log").open("ab") as log:
        log.write(b"before ")
        log.flush()
        inode = (tmp_path / "log").stat().st_ino
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log").stat().st_ino == inode


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_whole(str(tmp_path), b"")


# -- rules ------------------------------------------------------------------------------------------------------


def test_a_rule_names_each_file_once() -> None:
    assert depfile("out", ["a", "b", "a"]) == "out: a b\n\na:\nb:\n"
    assert depfile("out", []) == "out:\n\n"


def test_a_line_break_cannot_be_said() -> None:
    with pytest.raises(ValueError, match="line break"):
        depfile("out", ["a\nb"])


NAMES = [
    "plain", "a b", "a  b", "a$b", "${a}", "a#b", "#a", "a:b", "a: b", "c:/x", "a\\b", "a\\ b", "a\\\\ b", "a,b",
    "a[1]", "(a)", "~a", "a@b+c", "ü",
]  # fmt: skip
MAKE = "out:\n\techo made >> log; touch $@\n-include rule.d\n"
NINJA = """\
rule make
  command = echo made >> log; touch $out; cp rule.d ninja.d
  depfile = ninja.d
  deps = gcc
build out: make
"""


def runs(command: list[str], folder: Path) -> int:
    """How often the target has been made, after one more build."""
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return len((folder / "log").read_text().splitlines())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tool", ["make", "ninja"])
def test_make_and_ninja_read_every_path(tool: str, name: str, tmp_path: Path) -> None:
    require(tool)
    (tmp_path / "Makefile").write_text(MAKE)
    (tmp_path / "build.ninja").write_text(NINJA)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (1, 1))
    (tmp_path / "rule.d").write_text(depfile("out", [name]))
    assert runs([tool], tmp_path) == 1
    assert runs([tool], tmp_path) == 1
    later = (tmp_path / "out").stat().st_mtime + 1
    os.utime(file, (later, later))
    assert runs([tool], tmp_path) == 2
    file.unlink()
    os.utime(tmp_path / "out", (later, later))
    assert runs([tool], tmp_path) == 3


@pytest.mark.parametrize("name", ["a b", "a$b", "a#b", "a:b", "a\\ b"])
def test_a_target_is_any_path_too(name: str, tmp_path: Path) -> None:
    require("make")
    (tmp_path / "in").touch()
    (tmp_path / "rule.d").write_text(depfile(name, ["in"]))
    (tmp_path / "Makefile").write_text("%:\n\techo made >> log; touch '$@'\n-include rule.d\nrule.d Makefile: ;\n")
    os.utime(tmp_path / "in", (1, 1))
    assert [runs(["make", name], tmp_path) for _ in range(2)] == [1, 1]
    later = (tmp_path / name).stat().st_mtime + 1
    os.utime(tmp_path / "in", (later, later))
    assert runs(["make", name], tmp_path) == 2
