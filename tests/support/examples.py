"""The kernels of `examples/`, compiled as `schedc compile` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from backends.toolchain import nvrtc
from sched_compiler import check, emit_text


def header(spec: Path, arch: str, dispatch: Any = None) -> str:
    """The schedule's header, under another dispatch where one is given."""
    form = yaml.safe_load(spec.read_text(encoding="utf-8"))
    form.pop("kernel", None)
    if dispatch is not None:
        form["dispatch"] = dispatch
    return emit_text(check(json.dumps(form), spec.name), "header", arch)


def built(spec: Path, arch: str) -> bytes:
    """The cubin of the spec's kernel."""
    kernel = yaml.safe_load(spec.read_text(encoding="utf-8"))["kernel"]
    name = yaml.safe_load(spec.read_text(encoding="utf-8"))["name"]
    headers = {f"sched/{name}.cuh": header(spec, arch)}
    headers |= {path.name: path.read_text(encoding="utf-8") for path in spec.parent.glob("*.cuh")}
    source = (spec.parent / kernel["source"]).read_text(encoding="utf-8")
    compiled, _ = nvrtc.compile_with_headers(source, kernel["source"], arch, "cubin", headers)
    return compiled.blob
