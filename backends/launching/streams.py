"""Streams of any library as the driver's handles."""

from __future__ import annotations

import sys
from typing import Any


def handle(stream: Any, device: int) -> int | None:
    """The handle of a stream of cuda.core, PyTorch or CuPy, or of a handle; None for what is no stream.

    None stands for PyTorch's current stream on `device` where PyTorch is imported, and else for the default stream.
    """
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return 0
        return int(torch.cuda.current_stream(device).cuda_stream)
    if isinstance(stream, int):
        return None if isinstance(stream, bool) or not 0 <= stream < 2**64 else stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        _, number = protocol() if callable(protocol) else protocol
        return int(number)
    for name in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        if isinstance(found := getattr(stream, name, None), int):
            return found
    return None
