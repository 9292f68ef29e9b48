"""What a launch of a user's kernel gives is one value for each name, in whatever argument or struct it goes to.

So a name that is a parameter of one schedule cannot be a table of another, nor a pointer to something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sched_compiler.checking import Checked
from sched_compiler.diagnostics import SpecError
from sched_compiler.kernel import INTEGERS, argument_type
from sched_compiler.loader import LoadedSpec
from sched_compiler.manifest import table_digest
from sched_compiler.spec import Kernel


def require_one_meaning(spec: Kernel, own: Checked, others: Sequence[Checked]) -> None:
    """Refuse a name that means several things in the schedules and arguments of a kernel. Raises SpecError."""
    loaded = own.loaded
    params: set[str] = set()
    tables: dict[str, tuple[str, str | None]] = {}  # the elements' type, and what they are where they are given
    for n, checked in enumerate((own, *others)):
        mine = {p.name for p in checked.schedule.params}
        lists = {t.name: (t.element.name, _digest(checked, t.name, t.given)) for t in checked.schedule.tables}
        both = sorted((mine & tables.keys()) | (params & lists.keys()))
        other = sorted(name for name in lists.keys() & tables.keys() if lists[name] != tables[name])
        if both or other:
            name = (both or other)[0]
            what = "a parameter of one schedule and a table of another" if both else "another table in another schedule"
            raise loaded.error(
                "E013", ("kernel", "schedules", n - 1), f"`{name}` is {what}", found=checked.schedule.name,
                expected="one value for each name, since a launch gives it once", mend="choose another name",
            )  # fmt: skip
        params |= mine
        tables |= lists
    for name, kind in spec.arguments.items():
        type_ = argument_type(kind)
        if type_ is None or type_.kind == "schedule":
            continue
        if name in params and kind not in INTEGERS:
            raise _misnamed(loaded, name, kind, "a parameter", f"one of: {', '.join(INTEGERS)}")
        if name in tables:
            bits = tables[name][0][1:]
            fitting = (f"s{bits}*", f"u{bits}*", "void*")
            if kind not in fitting:
                raise _misnamed(loaded, name, kind, "a table", f"one of: {', '.join(fitting)}")


def _digest(checked: Checked, table: str, given: bool) -> str | None:
    return table_digest(checked.loaded, table) if given else None


def _misnamed(loaded: LoadedSpec, name: str, kind: str, what: str, expected: str) -> SpecError:
    return loaded.error(
        "E012", ("kernel", "arguments", name), f"`{name}` is {what} of a schedule, and its argument is given with it",
        found=kind, expected=expected, mend=f"give the argument another name, if it is not the {what.split()[1]}",
    )  # fmt: skip
