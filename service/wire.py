"""What travels between the server and its worker processes: JSON with an optional block of bytes behind it.

Nothing is unpickled, so that a compiler brought down by hostile input cannot hand objects to the server.
"""

from __future__ import annotations

import json
import struct

from sched_compiler.artifact import JSON

#: Length of the JSON, then length of the bytes.
HEADER = struct.Struct(">QQ")

Message = dict[str, JSON]


def encode(message: Message, blob: bytes = b"") -> bytes:
    """One message as it goes over the pipe."""
    text = json.dumps(message).encode("ascii")
    return HEADER.pack(len(text), len(blob)) + text + blob
