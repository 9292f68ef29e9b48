"""Settings of the service, each from one environment variable `SCHEDC_<NAME>`.

Every field has a description and a row in `docs/service.md`; a test fails for a field that has not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MIB, GIB = 1 << 20, 1 << 30
DAY = 86400.0


class SettingsError(Exception):
    """An environment variable has a value that its setting cannot take; the text says which and why."""


def _default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "schedc"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(BaseModel):
    """How one server process behaves. Sizes are bytes, times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cache_dir: Path = Field(
        default_factory=_default_cache_dir,
        description="Directory of the artifact cache; several server processes on one machine may share it.",
    )
    cache_bytes: int = Field(
        default=GIB, ge=MIB, description="Size to which the cache directory is kept, least recently used first out."
    )
    memory_bytes: int = Field(
        default=64 * MIB, ge=0, description="Size of the artifacts also kept in memory; 0 reads the disk every time."
    )
    body_bytes: int = Field(default=MIB, ge=1, description="Largest request body; a larger one is refused (413).")
    head_timeout: float = Field(
        default=10.0, gt=0, le=DAY, description="Time within which the head of a request must have arrived (408)."
    )
    body_timeout: float = Field(
        default=30.0, gt=0, le=DAY, description="Time within which a request body must have arrived in full (408)."
    )
    workers: int = Field(
        default_factory=_cpus, ge=1, description="Processes that compile; one for each available core by default."
    )
    front_workers: int = Field(
        default_factory=lambda: max(1, _cpus() // 2),
        ge=1,
        description="Processes that read and check specs, so that these never wait for a compile.",
    )
    queue_limit: int = Field(
        default=64, ge=0, description="Requests that may wait for a process of either kind; more are refused (503)."
    )
    compile_timeout: float = Field(
        default=60.0, gt=0, le=DAY, description="Time for one compile; then its process is killed (504)."
    )
    check_timeout: float = Field(
        default=10.0,
        gt=0,
        le=DAY,
        description="Time for reading or checking one spec; then its process is killed (504).",
    )
    worker_memory_bytes: int = Field(
        default=4 * GIB,
        ge=64 * MIB,
        description="Address space of one worker process; a compile that needs more fails.",
    )
    worker_tasks: int = Field(
        default=1000, ge=1, description="Tasks after which a worker process is replaced by a new one."
    )
    drain_seconds: float = Field(
        default=20.0,
        ge=0,
        le=DAY,
        description="Time that requests in flight are given to finish when the server is stopped.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe event that is logged."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="Form of the log lines on standard error."
    )


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"SCHEDC_{name.upper()}"


def load_settings() -> Settings:
    """The settings in the environment; raises `SettingsError`, which names each variable at fault."""
    given = {name: value for name in Settings.model_fields if (value := os.environ.get(variable(name))) is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        faults = [f"{variable(str(e['loc'][0]))}={e['input']!r}: {e['msg']}" for e in error.errors()]
        raise SettingsError("; ".join(faults)) from None
