"""The example projects build what changed and nothing else, in folders with blanks in their names."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.toolchain.cubin import describe
from tests.backends.test_linking import newer_than_nvcc
from tests.support.programs import environment, require

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TOOLS = {"make": ("make",), "Ninja": ("cmake", "ninja"), "Unix Makefiles": ("cmake", "make")}
#: No compiler for the host, and so no program: it would take the most time.
CUBINS_ALONE = "-DCMAKE_CXX_COMPILER=NOTFOUND"

#: Notes its calls and is schedc.
COMPILER = f"""\
#!{sys.executable}
import pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from sched_compiler.cli import main
verb, spec, *others = sys.argv[1:]
with pathlib.Path(__file__).with_name("log").open("a") as log:
    print(verb, pathlib.Path(spec).stem, others[others.index("--arch") + 1], file=log)
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Project:
    """A copy of an example, what builds it, and a compiler that notes its calls."""

    folder: Path
    out: Path
    build: list[str]
    compiler: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = environment(SCHEDC=shlex.quote(str(self.compiler)))
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    def built(self, *more: str, fails: bool = False) -> list[str]:
        """Build; the calls of the compiler: `VERB SPEC ARCH`."""
        log = self.compiler.with_name("log")
        log.write_text("")
        done = self.run(*self.build, *more)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return sorted(log.read_text().splitlines())

    def edit(self, name: str) -> None:
        """Change a file so that it means the same."""
        path = self.folder / name
        path.write_text(path.read_text() + "\n")


def project(tmp_path: Path, tool: str) -> Project:
    """A copy of the example for `tool`: for CMake with this generator, configured."""
    require(*TOOLS[tool])
    kind = "make" if tool == "make" else "cmake"
    folder, out, compiler = tmp_path / "the project", tmp_path / "the result", tmp_path / "the tools" / "schedc"
    shutil.copytree(EXAMPLES / kind, folder)
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    if kind == "make":
        return Project(folder, folder / "build", ["make"], compiler)
    it = Project(folder, out, ["cmake", "--build", str(out)], compiler)
    configure(it, tool, folder, CUBINS_ALONE)
    return it


def configure(it: Project, generator: str, source: Path, *options: str) -> None:
    command = ["cmake", "-G", generator, "-S", str(source), "-B", str(it.out), f"-DSCHEDC_EXECUTABLE={it.compiler}"]
    done = it.run(*command, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def calls(*kernels: str, arch: str = "sm_90a") -> list[str]:
    """Those that make kernels again; of axpy its launcher too."""
    return sorted([f"compile {kernel} {arch}" for kernel in kernels] + [f"emit axpy {arch}"] * ("axpy" in kernels))


#: What is changed, and which kernels are made of it.
CHANGES: dict[str, dict[str, list[str]]] = {
    "make": {
        "kernels/scale.yaml": ["scale"],
        "kernels/reduce.cu": ["reduce"],
        "kernels/elements.cuh": ["scale", "visit"],
        "include/tiles/extent.cuh": ["scale", "visit"],
        "kernels/rows.json": ["visit"],
        "kernels/by_column.yaml": ["reduce"],
        "README.md": [],
        "include/tiles/other.cuh": [],
    },
    "cmake": {
        "kernels/axpy.yaml": ["axpy"],
        "kernels/visit.cu": ["visit"],
        "kernels/elements.cuh": ["axpy", "visit"],
        "include/tiles/extent.cuh": ["axpy", "visit"],
        "kernels/listed.json": ["visit"],
        "README.md": [],
        "include/tiles/other.cuh": [],
    },
}


@pytest.mark.parametrize("tool", TOOLS)
def test_what_changed_is_built_again(tool: str, tmp_path: Path) -> None:
    it = project(tmp_path, tool)
    (it.folder / "include" / "tiles" / "other.cuh").touch()
    changes = CHANGES["make" if tool == "make" else "cmake"]
    everything = {kernel for kernels in changes.values() for kernel in kernels}
    assert it.built() == calls(*everything)
    for kernel in everything:
        cubin = it.out / f"{kernel}.sm_90a.cubin"
        assert [k.entry for k in describe(cubin.read_bytes())] == [kernel]
        assert cubin.with_name(f"{cubin.name}.json").exists()
    assert it.built() == []
    for name, kernels in changes.items():
        it.edit(name)
        assert (name, it.built()) == (name, calls(*kernels))
        assert it.built() == []


@pytest.mark.parametrize("tool", TOOLS)
def test_what_failed_is_built_when_it_is_mended(tool: str, tmp_path: Path) -> None:
    it = project(tmp_path, tool)
    it.build.extend(["KERNELS=visit"] if tool == "make" else ["--target", "visit"])
    assert it.built() == calls("visit")
    cubin, source = it.out / "visit.sm_90a.cubin", it.folder / "kernels" / "visit.cu"
    before, text = cubin.read_bytes(), source.read_text()
    source.write_text(f"#error no\n{text}")
    for _ in range(2):
        assert it.built(fails=True) == calls("visit")
        assert cubin.read_bytes() == before
    (it.folder / "kernels" / "elements.cuh").rename(it.folder / "kernels" / "renamed.cuh")
    source.write_text(text.replace("elements.cuh", "renamed.cuh"))
    assert it.built() == calls("visit")
    if tool != "Unix Makefiles":  # where some releases of CMake keep a header for ever that once was included
        assert it.built() == []


def test_architectures_and_folders_of_make(tmp_path: Path) -> None:
    it = project(tmp_path, "make")
    it.build.append("KERNELS=visit")
    for arch in ("sm_90a", "sm_100a"):
        assert it.built(f"ARCH={arch}") == calls("visit", arch=arch)
    assert it.built() == []
    out = tmp_path / "elsewhere"
    it.build.append(f"BUILD={out}")
    assert it.built() == calls("visit")
    it.edit("kernels/columns.json")
    assert it.built() == calls("visit")
    assert it.built() == []
    it.built("clean")
    assert not out.exists()


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_the_module_works_in_a_folder_of_a_project(generator: str, tmp_path: Path) -> None:
    """With several architectures, in a binary folder that is not the topmost."""
    it = project(tmp_path, generator)
    shutil.rmtree(it.out)
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(outer LANGUAGES NONE)\n"
        f'add_subdirectory("{it.folder}" "inner")\n'
    )
    configure(it, generator, outer, CUBINS_ALONE, "-DKERNEL_ARCHITECTURES=sm_90a;sm_100a")
    it.build.extend(("--target", "visit"))
    both = ["compile visit sm_100a", "compile visit sm_90a"]
    assert it.built() == both
    assert it.built() == []
    it.edit("kernels/listed.json")
    assert it.built() == both
    (it.out / "inner" / "visit.sm_90a.cubin.json").unlink()
    assert it.built() == both[1:]
    assert it.built() == []


def driver_without_devices(folder: Path, *users: Path) -> Path:
    """A library with the functions that `users` and launchers call, each of which fails."""
    texts = [path.read_text() for path in (*users, *(ROOT / "backends" / "cuda").glob("launcher*.py"))]
    names = {name for text in texts for name in re.findall(r"\bcu[A-Z]\w+", text)}
    functions = [f'extern "C" int {name}{suffix}() {{ return 100; }}\n' for name in names for suffix in ("", "_v2")]
    library = folder / "libcuda.so.1"
    command = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input="".join(functions), text=True, check=True)
    return library


def test_the_program_is_built_with_the_launcher(tmp_path: Path) -> None:
    """Against a driver that has no device."""
    require("nvcc", "g++")
    it = project(tmp_path, "Ninja")
    driver = driver_without_devices(tmp_path, it.folder / "main.cpp")
    shutil.rmtree(it.out)
    configure(it, "Ninja", it.folder, f"-DCUDA_cuda_driver_LIBRARY={driver}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    if not (it.out / "build.ninja").read_text().count("run_axpy"):
        pytest.skip("CMake finds no CUDA toolkit")
    it.build.extend(("--target", "run_axpy"))
    assert it.built() == calls("axpy")
    assert it.built() == []
    done = it.run(str(it.out / "run_axpy"), str(it.out / "axpy.sm_90a.cubin"))
    assert done.returncode == 1
    assert done.stderr.startswith("cuInit(0): ")
    before = (it.out / "run_axpy").stat().st_mtime_ns
    it.edit("kernels/axpy.yaml")
    assert it.built() == calls("axpy")
    assert (it.out / "run_axpy").stat().st_mtime_ns > before


def test_a_kernel_of_nvcc_s_is_linked(tmp_path: Path) -> None:
    require("nvcc")
    if reason := newer_than_nvcc():
        pytest.skip(reason)
    it = project(tmp_path, "Ninja")
    configure(it, "Ninja", it.folder, "-DLINK_WITH_NVCC=ON")
    it.build.extend(("--target", "clear"))
    made = ["compile stripes sm_90a", "emit stripes sm_90a"]
    assert it.built() == made
    assert b".nv.info.clear\0" in (it.out / "clear.sm_90a.cubin").read_bytes()
    assert it.built() == []
    it.edit("kernels/stripes.yaml")
    assert it.built() == made


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("SPEC x.yaml ARCH sm_90a", "TARGET is missing"),
        ("TARGET x ARCH sm_90a", "SPEC is missing"),
        ("TARGET x SPEC x.yaml", "ARCH is missing"),
        ("TARGET x SPEC x.yaml ARCH sm_90a INCLUDE include", "what is INCLUDE"),
        ("INCLUDE include TARGET x SPEC x.yaml ARCH sm_90a", "what is INCLUDE;include"),
    ],
)
def test_a_wrong_call_is_refused(call: str, message: str, tmp_path: Path) -> None:
    require("cmake", "make")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES NONE)\n"
        f'include("{EXAMPLES / "cmake" / "Schedc.cmake"}")\nschedc_add_kernel({call})\n'
    )
    command = ["cmake", "-G", "Unix Makefiles", "-B", "out", f"-DSCHEDC_EXECUTABLE={sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr
