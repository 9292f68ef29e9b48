"""Writes the table of all diagnostic codes, diagnostics.md, beside this file; `-` prints it instead."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sched_compiler.diagnostics import CODES

HERE = Path(__file__).resolve().parent
BAD_SPECS = HERE.parent / "tests" / "bad_specs"
GROUPS = {
    "E00": "The text",
    "E01": "The shape of a spec",
    "E02": "Formulas",
    "E03": "Presets",
    "E04": "Orders",
    "E05": "Cluster, dispatch, target",
    "E06": "Verification",
    "E07": "Running and compiling",
    "E08": "The service",
    "W00": "Warnings (errors under `--strict`)",
}
INTRODUCTION = """\
# Diagnostics

Every fault that a user can cause has a stable code, a place (file, line, column), what was found, what was expected
and, where possible, the mend. The same data become text for a terminal, JSON, SARIF 2.1.0, annotations of GitHub
Actions (`schedc check --format text|json|sarif|github`) and the `diagnostics` of `application/problem+json`. Lines and
columns count from 1, columns in characters, ends are exclusive. An example is a small spec that is refused with this
code, among the tests.

This file is written by `docs/diagnostics.py`.
"""


def examples() -> dict[str, str]:
    """For each code the first bad spec that gives it alone, or else the first that gives it."""
    found: dict[str, str] = {}
    alone: dict[str, str] = {}
    for path in sorted(BAD_SPECS.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8", errors="replace")
        codes = re.findall(r"^# expect: ([EW]\d{3})", text, re.MULTILINE)
        for code in codes:
            (alone if len(set(codes)) == 1 else found).setdefault(code, path.relative_to(BAD_SPECS).as_posix())
    return found | alone


def table() -> str:
    """The whole document."""
    links = examples()
    lines = [INTRODUCTION]
    for prefix, title in GROUPS.items():
        lines += [f"## {title}\n", "| code | meaning | example |", "|---|---|---|"]
        for code, meaning in CODES.items():
            if code.startswith(prefix):
                name = links.get(code)
                link = f"[{Path(name).stem}](../tests/bad_specs/{name})" if name else ""
                lines.append(f"| {code} | {meaning} | {link} |")
        lines.append("")
    missing = [code for code in CODES if code[:3] not in GROUPS]
    if missing:
        raise SystemExit(f"no group for {', '.join(missing)}")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(table())
    else:
        (HERE / "diagnostics.md").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
