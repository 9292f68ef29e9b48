"""Media types: which body forms are taken, and which representation an `Accept` field asks for (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

BINARY = "application/octet-stream"
JSON_TYPE = "application/json"
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml", "text/plain")

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_RANGE = re.compile(rf"({_TOKEN})/({_TOKEN})")
_QVALUE = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")

Representation = Literal["bytes", "json"]


@dataclass(frozen=True, slots=True)
class MediaRange:
    type: str
    subtype: str
    q: float

    def specificity(self, media_type: str) -> int:
        """How closely this range fits `media_type`: 0 not at all, 1 `*/*`, 2 `type/*`, 3 exactly."""
        type_, subtype = media_type.split("/")
        if self.type == "*":
            return 1 if self.subtype == "*" else 0
        if self.type != type_:
            return 0
        if self.subtype == "*":
            return 2
        return 3 if self.subtype == subtype else 0


def parse_accept(field: str) -> list[MediaRange]:
    """The ranges of an `Accept` field; members that are malformed are left out. Parameters but `q` are ignored."""
    ranges = []
    for member in field.split(","):
        name, *parameters = (part.strip() for part in member.split(";"))
        match = _RANGE.fullmatch(name.lower())
        q = next((p[2:].strip() for p in parameters if p[:2].lower() == "q="), "1")
        if match and _QVALUE.fullmatch(q):
            ranges.append(MediaRange(match[1], match[2], float(q)))
    return ranges


def choose(accept: str | None, own_type: str) -> Representation | None:
    """Which representation of an artifact to send; None when the client wants neither.

    The artifact's bytes answer to `application/octet-stream` and to their `own_type` (without parameters), the manifest
    to `application/json`. The most specific range that fits a type gives its quality; the higher quality wins, then the
    more specific range (so `application/json, */*` means JSON), then the bytes. A field with no well-formed member says
    nothing and counts as missing.
    """
    ranges = parse_accept(accept) if accept else []
    if not ranges:
        return "bytes"

    def rank(media_type: str) -> tuple[float, int]:
        specificity, q = max(((r.specificity(media_type), r.q) for r in ranges), default=(0, 0.0))
        return (q, specificity) if specificity and q > 0 else (0.0, 0)

    as_bytes, as_json = max(rank(BINARY), rank(own_type)), rank(JSON_TYPE)
    if as_bytes == as_json == (0.0, 0):
        return None
    return "bytes" if as_bytes >= as_json else "json"


def parse_content_type(field: str | None) -> tuple[str, str]:
    """(media type, charset), both lower-case; empty when not given."""
    essence, *parameters = (part.strip().lower() for part in (field or "").split(";"))
    charset = next((p[8:].strip(' "') for p in parameters if p.startswith("charset=")), "")
    return essence, charset
