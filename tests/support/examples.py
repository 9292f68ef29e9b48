"""The specs of `examples/`: their schedules' headers, also under another dispatch, and their kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from sched_compiler import Artifact, CompileRequest, check, compile_spec, emit_text


def header(spec: Path, arch: str, dispatch: Any = None) -> str:
    """The schedule's header, under another dispatch where one is given."""
    form = yaml.safe_load(spec.read_text(encoding="utf-8"))
    form.pop("kernel")
    if dispatch is not None:
        form["dispatch"] = dispatch
    return emit_text(check(json.dumps(form), spec.name), "header", arch)


def built(spec: Path, arch: str, dispatch: Any = None) -> Artifact:
    """The spec's kernel as a cubin, under another dispatch where one is given."""
    text = spec.read_text(encoding="utf-8")
    if dispatch is not None:
        text = json.dumps({**yaml.safe_load(text), "dispatch": dispatch})
    return compile_spec(CompileRequest(text, spec.name, arch, directory=str(spec.parent)))
