"""A spec loaded, built, verified and placed in its kernel; and all that can be said of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sched_compiler import loader
from sched_compiler.build import Built, build
from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.expr import RangeError
from sched_compiler.files import Beside
from sched_compiler.loader import LoadedSpec, Progress
from sched_compiler.program import Program, place
from sched_compiler.schedule import Schedule
from sched_compiler.verdict import Verdict
from sched_compiler.verify import Verification, verify


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Whether a spec holds, and everything found about it."""

    file: str
    diagnostics: tuple[Diagnostic, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Every property is proven and nothing is an error; warnings do not count."""
        return all(v.holds() for v in self.verdicts) and not any(d.severity == "error" for d in self.diagnostics)

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": self.ok,
            "diagnostics": [d.as_json() for d in self.diagnostics],
            "verdicts": [{"property": v.property, "status": v.status, "how": v.how} for v in self.verdicts],
        }


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec that has been built, verified and placed in its kernel."""

    loaded: LoadedSpec
    built: Built
    verification: Verification
    program: Program

    @property
    def schedule(self) -> Schedule:
        return self.built.schedule


def check_text(
    text: str, file: str = "<spec>", directory: Beside = None, progress: Progress | None = None
) -> CheckReport:
    """Everything that can be said of a spec. Never raises for what stands in it.

    Here and below, files that the spec names are read from the folder `directory` and below it, or are found in it, if
    it holds texts by path; without one, none is read.
    """
    try:
        checked = _checked(loader.load(text, file, directory, progress), progress)
    except SpecError as e:
        return CheckReport(file, e.diagnostics, ())
    diagnostics = (*checked.verification.diagnostics, *checked.built.warnings)
    return CheckReport(file, diagnostics, checked.verification.verdicts)


def check(text: str, file: str = "<spec>", directory: Beside = None) -> Checked:
    """The built and proven spec. Raises SpecError unless every property is proven."""
    return prove(loader.load(text, file, directory))


def prove(loaded: LoadedSpec) -> Checked:
    """Build and verify a loaded spec. Raises SpecError unless every property is proven."""
    checked = _checked(loaded)
    if not checked.verification.proven:
        raise SpecError(checked.verification.diagnostics)
    return checked


def _checked(loaded: LoadedSpec, progress: Progress | None = None) -> Checked:
    built = build(loaded)
    verification = verify(built.schedule, loaded, progress)
    try:
        program = place(built.schedule)
    except RangeError as e:
        raise loaded.error(
            "E063", ("space",), "the arithmetic of this schedule does not fit 64 bits", found=str(e),
            mend="narrow the parameters' ranges",
        ) from None  # fmt: skip
    if not verification.proven and not verification.diagnostics:
        open_ = [v for v in verification.verdicts if not v.holds()]
        found = "; ".join(f"{v.property}: {v.how}" for v in open_)
        diagnostic = loaded.diagnostic("E064", (), "a property of the schedule is not proven", found=found)
        verification = replace(verification, diagnostics=(diagnostic,))
    return Checked(loaded, built, verification, program)


def expand(text: str, file: str = "<spec>", directory: Beside = None) -> str:
    """The composed form of a spec, as YAML."""
    return loader.to_yaml(loader.load(text, file, directory).spec)
