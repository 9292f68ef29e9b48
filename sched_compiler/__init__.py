"""Tile schedules from a declarative description: checked, proven, and lowered to CUDA C++ and PTX.

The verbs are functions on text: `check_text`, `check`, `expand`, `trace`, `emit_text`, `compile_spec`. `load` makes
what was compiled callable. All are loaded when they are first used, so that importing this package is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sched_compiler.artifact import Artifact, Emit
    from sched_compiler.diagnostics import CODES, Diagnostic, Span, SpecError
    from sched_compiler.driver import (
        Checked,
        CheckReport,
        CompileRequest,
        artifact_key,
        capabilities,
        check,
        check_text,
        compile_spec,
        emit_text,
        expand,
        trace,
        validate_tables,
    )
    from sched_compiler.launcher import emit_launcher
    from sched_compiler.launching import Kernel, LaunchError, LaunchFault, load
    from sched_compiler.loader import LoadedSpec
    from sched_compiler.ragged import triples
    from sched_compiler.traces import Trace

_WHERE = {
    "Artifact": "artifact", "Emit": "artifact",
    "CODES": "diagnostics", "Diagnostic": "diagnostics", "Span": "diagnostics", "SpecError": "diagnostics",
    "CheckReport": "driver", "Checked": "driver", "CompileRequest": "driver", "artifact_key": "driver",
    "capabilities": "driver", "check": "driver", "check_text": "driver", "compile_spec": "driver",
    "emit_text": "driver", "expand": "driver", "trace": "driver", "validate_tables": "driver",
    "emit_launcher": "launcher",
    "Kernel": "launching", "LaunchError": "launching", "LaunchFault": "launching", "load": "launching",
    "LoadedSpec": "loader",
    "Trace": "traces",
    "triples": "ragged",
}  # fmt: skip

__all__ = [
    "CODES", "Artifact", "CheckReport", "Checked", "CompileRequest", "Diagnostic", "Emit", "Kernel", "LaunchError",
    "LaunchFault", "LoadedSpec", "Span", "SpecError", "Trace", "artifact_key", "capabilities", "check", "check_text",
    "compile_spec", "emit_launcher", "emit_text", "expand", "load", "trace", "triples", "validate_tables",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
