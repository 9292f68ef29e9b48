"""What the documentation shows is run: commands against their output, specs, configuration, code.

The blocks of a document share a scratch directory with copies of `specs/` and `examples/`, in order of appearance:

- `yaml`: a spec that must be proven, or `yaml refused`. A first line `# FILE.yaml` also writes it to that file.
- `console`: lines after `$ ` are commands, what follows is their output, standard error included. In it, `...` stands
  for any text, and alone on a line for any lines. `console exit=1` where the last command must end so.
- `yml`: other YAML, which must parse. `json`: must parse. `python`: is run. `py`: must parse, as it needs a device to
  run. `cpp`: stands in an example.
- `sh`: the two commands of the README, see `test_the_readmes_commands`.

`http://127.0.0.1:8000` is the real service. With UPDATE_EXPECTED=1 in the environment, output that differs is written
into the document instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sched_compiler.diagnostics import CODES
from sched_compiler.driver import CompileRequest, check_text, compile_spec
from sched_compiler.presets import PRESETS
from sched_compiler.spec import (
    Cluster,
    ClusterLaunchControl,
    Dispatch,
    Dynamic,
    Expect,
    Kernel,
    Order,
    Param,
    Partitions,
    Raster,
    Spec,
    Split,
    Static,
    Table,
    TableSource,
)
from service.settings import variable

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    line: int  # of the opening fence
    language: str
    options: str
    body: str


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        language, _, options = match["info"].strip().partition(" ")
        found.append(Block(text.count("\n", 0, match.start()) + 1, language, options, match["body"]))
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real service with an empty cache."""
    directory = tmp_path_factory.mktemp("service")
    environment = {**os.environ, variable("cache_dir"): str(directory / "cache"), variable("log_level"): "error"}
    command = [sys.executable, "-m", "sched_compiler.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield "http://" + line.strip().partition("http://")[2]
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_shows_is_so(document: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    missing: set[str] = set()
    for block in blocks(document):
        where = f"{document.name}:{block.line}"
        match block.language:
            case "yaml":
                _spec(block, tmp_path, where)
            case "console":
                if "curl " in block.body and shutil.which("curl") is None:
                    missing.add("curl")
                    continue
                address = request.getfixturevalue("service") if ADDRESS in block.body else ADDRESS
                shown = _console(block, tmp_path, where, address)
                if shown != block.body:
                    text = document.read_text(encoding="utf-8")
                    document.write_text(text.replace(block.body, shown, 1), encoding="utf-8")
            case "yml":
                assert isinstance(yaml.safe_load(block.body), dict), where
            case "json":
                json.loads(block.body)
            case "python":
                output = _run([sys.executable, "-"], tmp_path, block.body)
                assert output.returncode == 0, f"{where}: {output.stdout}"
            case "py":
                compile(block.body, where, "exec")
            case "cpp":
                kernels = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.cu")]
                assert any(block.body in kernel for kernel in kernels), f"{where}: in no example"
            case "cuda":  # the first line names the file
                (tmp_path / block.body.split()[1]).write_text(block.body, encoding="utf-8")
            case "sh":
                assert document.name == "README.md", f"{where}: nothing runs this"
            case language:
                pytest.fail(f"{where}: what is a block of {language or 'nothing'}?")
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; the other blocks were run")


def _spec(block: Block, directory: Path, where: str) -> None:
    first = re.match(r"# (\S+\.yaml)\n", block.body)
    if first:
        (directory / first[1]).write_text(block.body, encoding="utf-8")
    report = check_text(block.body, where)
    if block.options == "refused":
        assert not report.ok, f"{where}: should be refused"
    else:
        assert block.options == "", where
        assert report.ok, f"{where}: {report.diagnostics}"
        assert report.diagnostics == (), where


def _run(command: list[str], directory: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"},
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def _console(block: Block, directory: Path, where: str, address: str) -> str:
    """Run the commands of a block; its text, with new output where that is wanted."""
    steps = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
    assert steps[0] == "", f"{where}: begins with no command"
    assert len(steps) > 1, f"{where}: has no command"
    text = ""
    for number, step in enumerate(steps[1:], 1):
        command, _, expected = step.partition("\n")
        done = _run(["bash", "-c", command.replace(ADDRESS, address)], directory)
        shown = done.stdout.replace("\r\n", "\n").replace(address, ADDRESS)
        code = int(block.options.removeprefix("exit=") or 0) if number == len(steps) - 1 else 0
        if not _matches(expected, shown):
            assert os.environ.get("UPDATE_EXPECTED") == "1", f"{where}: {command}\nshows\n{shown}\nnot\n{expected}"
            expected = shown
        assert done.returncode == code, f"{where}: {command} ended with {done.returncode}\n{shown}"
        text += f"$ {command}\n{expected}"
    return text


def _matches(expected: str, shown: str) -> bool:
    lines = expected.rstrip().split("\n")
    patterns = [
        "(?:.*\n)*?.*" if line == "..." else ".*".join(re.escape(part) for part in line.split("...")) for line in lines
    ]
    pattern = "\n".join(patterns)
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in shown.rstrip().split("\n"))) is not None


def test_the_readmes_commands() -> None:
    """The demo command runs what `tests/test_examples.py` runs; the test command is what `.ci/run` runs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    marked = re.findall(r"^<!-- (\w+) command -->\n```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in marked] == ["demo", "test"]
    demo, test = (command for _, command in marked)
    assert demo.rstrip().endswith(".venv/bin/python examples/compile_everything.py")
    assert test.rstrip().endswith(".venv/bin/python -m pytest")
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in (demo, test):
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
        assert done.returncode == 0


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_table_of_diagnostics_is_generated() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "diagnostics.py"), "-"], capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8"), "run docs/diagnostics.py"
    for code, meaning in CODES.items():
        assert f"| {code} | {meaning} |" in done.stdout


def test_every_preset_is_documented() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    for preset in PRESETS.values():
        assert f"| `{preset.usage()}` | {', '.join(preset.axes)} |" in text


def test_every_key_of_the_language_is_documented() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    models = (
        *(Spec, Order, Split, Param, Cluster, Partitions, Raster, Expect, TableSource),
        *(Dispatch, Static, Table, Dynamic, ClusterLaunchControl, Kernel),
    )
    for model in models:
        for name in (info.alias or name for name, info in model.model_fields.items()):
            if (model, name) != (Cluster, "shape"):  # the axes themselves
                assert re.search(rf"\b{name}\b", text), f"{model.__name__}.{name}"


def test_the_map_of_the_house_shows_every_module() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    modules = {path.name for path in (ROOT / "sched_compiler").glob("*.py")} - {"__init__.py", "__main__.py"}
    assert {name for name in modules if f"`{name}`" not in text} == set()
    named = set(re.findall(r"`([a-z_]+\.py)`", text))
    assert named - modules == set()


def test_every_field_of_the_manifest_is_documented() -> None:
    text = (ROOT / "docs" / "manifest.md").read_text(encoding="utf-8")
    spec = (ROOT / "specs" / "clusters_2x1.yaml").read_text(encoding="utf-8")
    manifest = compile_spec(CompileRequest(spec, "spec.yaml", "sm_90a", "ptx")).manifest
    free = {"tile", "where"}  # their keys are axes, and numbers

    def names(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield name
                if name not in free:
                    yield from names(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from names(inner)

    assert {name for name in names(manifest) if f"`{name}`" not in text} == set()


def test_no_line_is_wider_than_the_code() -> None:
    """Tables, commands and their output aside."""
    for document in DOCUMENTS:
        prose = BLOCK.sub("", document.read_text(encoding="utf-8"))
        wide = [line for line in prose.splitlines() if len(line) > 130 and not line.startswith("|")]
        assert wide == [], document.name
