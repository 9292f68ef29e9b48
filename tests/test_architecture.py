"""The house rules as tests: who may import whom, what an import costs, how long a file may be, which codes exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sched_compiler.diagnostics import CODES

ROOT = Path(__file__).parents[1]
MOST_LINES = 700

#: The index-mapping IR: what a backend may see.
IR = (
    "carry", "cost", "curve", "dispatch", "evaluate", "expr", "lower", "nest", "node", "program", "protocol",
    "rewrite", "schedule",
)  # fmt: skip
#: What the IR's analyses add; they place diagnostics, so they know of loaded specs.
ANALYSES = (
    "bijective", "build", "build_order", "expectation", "linear", "model", "polynomial", "prove", "responses", "smt",
    "tables", "tiling", "traces", "translate", "tried", "verdict", "verify", "verify_tables",
)  # fmt: skip
#: What else of `sched_compiler` a backend may see.
SHARED = ("artifact", "formula", "launching", "registry")
#: What `sched_compiler` may be built on. The compilers and the service bring theirs.
THIRD_PARTY = {"pydantic", "pydantic_core", "yaml", "numpy", "rich"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def ir(*names: str) -> list[Path]:
    return [ROOT / "sched_compiler" / f"{name}.py" for name in names]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, wherever it stands, with its line; relative ones made absolute."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), node.lineno


def offences(paths: list[Path], forbidden: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in paths
        for name, line in imports(path)
        if forbidden.match(name)
    ]


def test_the_ir_knows_nothing_above_it() -> None:
    above = re.compile(r"(backends|service|fastapi|starlette|ctypes|yaml|pydantic)\b")
    assert offences(ir(*IR, *ANALYSES), above) == []


def test_the_ir_that_backends_see_knows_no_specs() -> None:
    known = "|".join((*IR, *SHARED))
    assert offences(ir(*IR), re.compile(rf"sched_compiler\.(?!({known})\b)")) == []


def test_backends_see_the_ir_and_the_registry_alone() -> None:
    known = "|".join((*IR, *SHARED))
    paths = modules("backends")
    assert offences(paths, re.compile(rf"sched_compiler(\.(?!({known})\b)|$)")) == []
    assert offences(paths, re.compile(r"(service|fastapi|yaml|pydantic)\b")) == []


def test_the_compiler_finds_backends_through_the_registry_alone() -> None:
    assert offences(modules("sched_compiler"), re.compile(r"backends\b")) == []


def test_the_compiler_is_built_on_little() -> None:
    allowed = THIRD_PARTY | sys.stdlib_module_names | {"sched_compiler"}
    found = {
        (path.stem, name.partition(".")[0])
        for path in modules("sched_compiler")
        for name, _ in imports(path)
        if name.partition(".")[0] not in allowed
    }
    assert found == {("cli", "service"), ("smt", "z3")}  # `schedc serve`, and the extra `proof`
    assert offences(modules("sched_compiler"), re.compile(r"ctypes\b")) == []


def test_the_service_sees_the_driver_and_the_shared_types_alone() -> None:
    assert offences(modules("service"), re.compile(r"sched_compiler\.(?!(driver|artifact|diagnostics)\b)")) == []
    assert offences(modules("service"), re.compile(r"backends\b")) == []


@pytest.mark.parametrize(
    "name",
    ["fastapi", "starlette", "uvicorn", "pydantic", "yaml", "numpy", "ctypes", "backends", "service", "rich", "z3"],
)
def test_importing_the_package_is_light(name: str) -> None:
    code = f"import sys, sched_compiler; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("name", ["fastapi", "uvicorn", "pydantic", "numpy", "backends", "service", "rich"])
def test_the_command_lines_help_is_light(name: str) -> None:
    code = (
        "import sys, contextlib\nfrom sched_compiler.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        f"sys.exit({name!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"check" in done.stdout


@pytest.mark.parametrize("name", ["fastapi", "uvicorn", "service", "backends.toolchain", "z3"])
def test_checking_a_spec_loads_no_service_and_no_compiler(name: str) -> None:
    code = (
        "import sys\nfrom sched_compiler.cli import main\nmain(['check', 'specs/gemm_group_major.yaml'])\n"
        f"sys.exit({name!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_no_file_is_long() -> None:
    folders = ("sched_compiler", "backends", "service", "tests", "examples", "benchmarks")
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in modules(folder)
    }
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_every_module_says_what_it_is() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for folder in ("sched_compiler", "backends", "service", "examples", "benchmarks")
        for path in modules(folder)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert bare == []


# -- diagnostic codes -----------------------------------------------------------------------------------------


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r"\b[EW]\d{3}\b", path.read_text(encoding="utf-8", errors="replace")))


def test_every_code_is_given_by_a_bad_spec_or_looked_at_by_a_test() -> None:
    bad = [path for path in (ROOT / "tests/bad_specs").rglob("*") if path.is_file()]
    tests = [path for path in modules("tests") if path != Path(__file__)]
    exercised: set[str] = set().union(*(codes_in(path) for path in [*bad, *tests]))
    assert sorted(set(CODES) - exercised) == []


def test_every_code_is_given_somewhere() -> None:
    sources = [p for folder in ("sched_compiler", "backends", "service") for p in modules(folder)]
    given: set[str] = set().union(*(codes_in(p) for p in sources if p.name != "diagnostics.py"))
    assert sorted(set(CODES) - given) == []
    assert sorted(given - set(CODES)) == []


def test_every_code_is_documented() -> None:
    assert set(CODES) <= codes_in(ROOT / "docs" / "diagnostics.md")
