"""The HTTP service: compiles specs for build systems and keeps what it compiled.

Importing this package is cheap: FastAPI and uvicorn are loaded by `create_app` and `serve`, not by the import, because
worker processes import `service.worker` and need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.settings import Settings

#: The module whose functions compile: see `service.worker` for what it must define.
DEFAULT_COMPILER = "sched_compiler.driver"


def create_app(settings: Settings | None = None, compiler: str = DEFAULT_COMPILER) -> FastAPI:
    """The ASGI application; without `settings` they come from the environment."""
    from service.app import create_app as create

    return create(settings, compiler)


def serve(host: str, port: int, settings: Settings | None = None, compiler: str = DEFAULT_COMPILER) -> int:
    """Serve until SIGINT or SIGTERM; port 0 takes a free one. Returns the process's exit code."""
    from service.server import serve as run

    return run(host, port, settings, compiler)
