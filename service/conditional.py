"""Conditional requests (RFC 9110, section 13) for representations that have a strong entity tag and no date.

`If-Modified-Since` and `If-Unmodified-Since` are ignored, as the RFC asks where no modification date is known.
"""

from __future__ import annotations

import re
from typing import Literal

_ETAG = re.compile(r'\s*(?P<weak>W/)?"(?P<opaque>[\x21\x23-\x7e\x80-\xff]*)"\s*')

Outcome = Literal["proceed", "not_modified", "failed"]


def strong_etag(digest: str) -> str:
    """The entity tag, quotes included, of the representation with this digest (lower-case hex)."""
    return f'"{digest}"'


def parse_etags(field: str) -> list[tuple[bool, str]] | None:
    """The tags of an `If-Match` or `If-None-Match` field, as (is weak, opaque text); None for `*`.

    Reading stops at the first thing that is not an entity tag: an unquoted tag therefore matches nothing. Commas may
    stand inside a tag, so the field cannot be split at them.
    """
    if field.strip() == "*":
        return None
    tags: list[tuple[bool, str]] = []
    position = 0
    while position < len(field):
        if field[position] in ", \t":  # empty list members are allowed
            position += 1
            continue
        match = _ETAG.match(field, position)
        if match is None or (match.end() < len(field) and field[match.end()] != ","):
            break
        tags.append((match["weak"] is not None, match["opaque"]))
        position = match.end()
    return tags


def evaluate(method: str, if_match: str | None, if_none_match: str | None, etag: str | None) -> Outcome:
    """Apply the preconditions, in the RFC's order, to a target whose current representation has the strong tag `etag`
    (None: it has no representation).

    `failed` asks for 412; `not_modified`, which only GET and HEAD can give, for 304. POST /compile targets a resource
    that has no representation of its own, so there `If-None-Match` always holds and `If-Match` never does.
    """
    opaque = None if etag is None else etag.strip('"')
    if if_match is not None:
        tags = parse_etags(if_match)
        if opaque is None or not (tags is None or (False, opaque) in tags):  # strong comparison
            return "failed"
    if if_none_match is not None and opaque is not None:
        tags = parse_etags(if_none_match)
        if tags is None or any(tag == opaque for _, tag in tags):  # weak comparison
            return "not_modified" if method in ("GET", "HEAD") else "failed"
    return "proceed"
