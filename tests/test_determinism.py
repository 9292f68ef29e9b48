"""Two builds of one input give the same bytes, wherever and whenever they are made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))

#: Compiles every spec given, with both backends, and keeps every form; specs in the order that is asked for.
BUILD = """
import json, sys
from pathlib import Path
from sched_compiler.driver import CompileRequest, check, compile_spec, emit_text
out, order, *specs = sys.argv[1:]
for path in map(Path, specs if order == "forwards" else reversed(specs)):
    text = path.read_text()
    for backend, emits in (("cuda", ("cubin", "ptx", "header", "ltoir", "object")), ("ptx", ("cubin", "ptx"))):
        for emit in emits:
            artifact = compile_spec(CompileRequest(text, str(path), "sm_90a", backend, emit))
            target = Path(out, f"{path.stem}.{backend}.{emit}")
            target.write_bytes(artifact.blob)
            target.with_name(target.name + ".json").write_text(json.dumps(artifact.manifest))
    for to in ("cuda", "ptx", "header", "declarations", "json"):
        Path(out, f"{path.stem}.emitted.{to}").write_text(emit_text(check(text, str(path)), to))
"""


def build(home: Path, seed: str, order: str) -> dict[str, bytes]:
    """Everything that is made of the specs, in a process with a working directory and surroundings of its own."""
    out, scratch = home / "out", home / "tmp"
    specs = home / "specs"
    for directory in (out, scratch, specs):
        directory.mkdir(parents=True)
    names = []
    for path in SPECS:
        (specs / path.name).write_bytes(path.read_bytes())
        names.append(str(specs / path.name))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": seed,
        "TMPDIR": str(scratch),
        "HOME": str(home),
        "USER": f"user{seed}",
        "TZ": "UTC" if seed == "1" else "Asia/Tokyo",
        "LC_ALL": "C" if seed == "1" else "C.UTF-8",
    }
    command = [sys.executable, "-c", BUILD, str(out), order, *names]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    first = build(tmp_path / "one", "1", "forwards")
    second = build(tmp_path / "a longer" / "name ä", "2", "backwards")
    assert len(first) == len(SPECS) * 19
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    for name, data in first.items():  # nothing of the surroundings is inside
        assert str(tmp_path).encode() not in data, name
        assert b"user1" not in data, name
