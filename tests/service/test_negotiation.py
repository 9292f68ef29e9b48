"""Content negotiation as a table."""

from __future__ import annotations

import pytest

from service.negotiation import BINARY, Representation, choose, parse_content_type


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, "bytes"),
        ("", "bytes"),
        ("*/*", "bytes"),
        ("application/*", "bytes"),
        ("application/octet-stream", "bytes"),
        ("APPLICATION/Octet-Stream", "bytes"),
        ("application/json", "json"),
        ("application/json;charset=utf-8", "json"),
        ("application/json, */*", "json"),
        ("application/json, text/plain, */*", "json"),
        ("application/json, application/octet-stream", "bytes"),
        ("application/json, application/octet-stream;q=0.9", "json"),
        ("application/json;q=0.4, */*;q=0.5", "bytes"),
        ("application/json; q=0.5 , */*;q=0.1", "json"),
        ("application/*;q=0.5, application/octet-stream;q=0", "json"),
        ("*/*, application/octet-stream;q=0", "json"),
        ("*/*;q=0", None),
        ("application/json;q=0", None),
        ("application/json;q=0, */*", "bytes"),
        ("image/png", None),
        ("text/html, image/*", None),
        ("text/plain", None),  # a cubin is not text
        ("nonsense", "bytes"),
        ("*/json", None),
        ("application/json;q=7, application/octet-stream;q=0.1", "bytes"),  # a malformed quality
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "bytes"),
    ],
)
def test_cubin(accept: str | None, wanted: Representation | None) -> None:
    assert choose(accept, BINARY) == wanted


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/plain", "bytes"),
        ("text/*", "bytes"),
        ("application/octet-stream", "bytes"),
        ("application/json", "json"),
        ("text/plain;q=0.1, application/json;q=0.2", "json"),
        ("text/html", None),
    ],
)
def test_text(accept: str, wanted: Representation | None) -> None:
    assert choose(accept, "text/plain") == wanted


@pytest.mark.parametrize(
    ("field", "parsed"),
    [
        (None, ("", "")),
        ("", ("", "")),
        ("Application/YAML", ("application/yaml", "")),
        ('text/yaml ; Charset="UTF-8"; x=y', ("text/yaml", "utf-8")),
        (";charset=latin-1", ("", "latin-1")),
    ],
)
def test_content_type(field: str | None, parsed: tuple[str, str]) -> None:
    assert parse_content_type(field) == parsed
