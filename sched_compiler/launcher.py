"""A launcher in C++, printed for a compiled kernel: what `schedc emit --to launcher` does."""

from __future__ import annotations

from collections.abc import Mapping

from sched_compiler import registry
from sched_compiler.artifact import JSON
from sched_compiler.driver import Checked, CompileRequest, compile_spec, prove
from sched_compiler.launching import LaunchError
from sched_compiler.translate import Translator


def emit_launcher(request: CompileRequest) -> str:
    """A header for host C++17 that checks and launches the kernel of `request`, which is compiled to a cubin.

    Where its parameters stand and how much shared memory it has is known only then. Raises SpecError.
    """
    loaded = request.load()
    asking = next((name for name, p in loaded.spec.params.items() if p.source is not None), None)
    if asking is not None:
        raise loaded.error(
            "E053", ("params", asking, "source"), "no launcher is printed for a job of NVSHMEM",
            found=f"{asking} comes from it", expected="parameters that are passed",
        )  # fmt: skip
    return launcher(prove(loaded), compile_spec(request).manifest)


def launcher(checked: Checked, manifest: Mapping[str, JSON]) -> str:
    """The same for a proven spec whose kernel has been compiled. Raises SpecError."""
    launch = manifest["launch"]
    assert isinstance(launch, dict)
    formula = launch["dynamic_shared_bytes"]
    assert isinstance(formula, int | str)
    names = {p.name: p.var for p in checked.schedule.params}
    shared = Translator(checked.schedule.graph, checked.loaded, names).integer(formula, ("kernel", "shared_bytes"))
    try:
        text: str = registry.launcher("cpp")(checked.program, manifest, shared)
    except LaunchError as e:
        raise checked.loaded.error("E053", (), "no launcher is printed for this kernel", found=str(e)) from None
    return text
