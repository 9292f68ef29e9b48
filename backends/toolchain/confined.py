"""What runs inside the sandbox: one compile of a user's source, asked for and answered in JSON.

`python -m backends.toolchain.confined` reads a request from standard input and writes the answer to standard output.
It knows nothing of the sandbox around it; see `backends.toolchain.sandbox`.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from backends.toolchain import nvrtc
from backends.toolchain.errors import ToolchainError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The artifact and what the compiler said, or the compiler's error and its place."""
    try:
        compiled, lowered = nvrtc.compile_with_headers(**request)
    except ToolchainError as e:
        return {"error": e.log, "line": e.line, "column": e.column}
    return {"blob": base64.b64encode(compiled.blob).decode(), "log": compiled.log, "lowered": lowered}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
