"""Structured logs on standard error: one event a line, uvicorn's and the warnings of libraries included."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from service.settings import Settings


def configure(settings: Settings) -> None:
    """Set up structlog, and the standard library's logging through it, for this process."""
    level = getattr(logging, settings.log_level.upper())
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer() if settings.log_format == "json" else structlog.dev.ConsoleRenderer()
    )
    errors: list[Processor] = [structlog.processors.format_exc_info] if settings.log_format == "json" else []
    structlog.configure(
        processors=[*shared, *errors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
