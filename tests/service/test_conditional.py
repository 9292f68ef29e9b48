"""RFC 9110, section 13, as a table."""

from __future__ import annotations

import pytest

from service.conditional import Outcome, evaluate, parse_etags

ME = '"abc"'


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "outcome"),
    [
        (None, None, "proceed"),
        (None, '"abc"', "not_modified"),
        (None, 'W/"abc"', "not_modified"),  # weak comparison
        (None, "*", "not_modified"),
        (None, ' "x" ,, "abc"', "not_modified"),
        (None, '"x", W/"abc"', "not_modified"),
        (None, '"a,b", "abc"', "not_modified"),  # a comma inside a tag
        (None, '"abcd"', "proceed"),
        (None, "abc", "proceed"),  # unquoted: no entity tag
        (None, '"abc', "proceed"),
        (None, 'w/"abc"', "proceed"),  # W is case-sensitive
        (None, '"abc"x', "proceed"),
        (None, "", "proceed"),
        ('"abc"', None, "proceed"),
        ('"x", "abc"', None, "proceed"),
        ("*", None, "proceed"),
        ('W/"abc"', None, "failed"),  # strong comparison
        ('"x"', None, "failed"),
        ("", None, "failed"),
        ('"x"', '"abc"', "failed"),  # If-Match comes first
        ('"abc"', '"abc"', "not_modified"),
    ],
)
def test_get(if_match: str | None, if_none_match: str | None, outcome: Outcome) -> None:
    assert evaluate("GET", if_match, if_none_match, ME) == outcome
    assert evaluate("HEAD", if_match, if_none_match, ME) == outcome
    changed = "failed" if outcome == "not_modified" else outcome
    assert evaluate("PUT", if_match, if_none_match, ME) == changed


@pytest.mark.parametrize("field", ["*", '"abc"', 'W/"abc"'])
def test_a_target_without_representation_matches_nothing(field: str) -> None:
    assert evaluate("POST", None, field, None) == "proceed"
    assert evaluate("POST", field, None, None) == "failed"


def test_reading_stops_at_what_is_no_tag() -> None:
    assert parse_etags('"a", b, "c"') == [(False, "a")]
    assert parse_etags(" * ") is None
