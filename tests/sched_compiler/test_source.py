"""Text to data with places: YAML 1.2's scalars, refusals with line and column, and limits."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sched_compiler import source
from sched_compiler.diagnostics import Diagnostic, SpecError
from sched_compiler.source import MAX_BYTES, MAX_DEPTH, load_document


def place(text: str, path: source.Path) -> tuple[int, int, int, int]:
    span = load_document(text, "f").spans[path]
    return span.line, span.column, span.end_line, span.end_column


def faults(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(SpecError) as caught:
        load_document(text, "f")
    return [(d.code, d.span.line, d.span.column) for d in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        ("012", 12),
        ("-7", -7),
        ("+7", 7),
        ("0o14", 12),
        ("0x1F", 31),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("00000000000000000000000000000007", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        *((text, text) for text in ("n", "y", "on", "off", "yes", "no", "1:30", "2020-01-01", "1_000", "0b11", "<")),
        ('"12"', "12"),
        ("'true'", "true"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    data = load_document(f"a: {text}\n", "f").data
    assert isinstance(data, dict)
    assert data["a"] == value
    assert type(data["a"]) is type(value)


def test_keys_are_text() -> None:
    text = "{n: 1, y: 2, on: 3, 1: 4, 'null': 5}"
    assert load_document(text, "f").data == {"n": 1, "y": 2, "on": 3, "1": 4, "null": 5}


@pytest.mark.parametrize(("key", "found"), [("NULL", "null"), ("~", "null"), ("True", "true"), ("false", "false")])
def test_keys_that_yaml_takes_for_something_else_are_refused(key: str, found: str) -> None:
    """Other readers of YAML, and a JSON Schema after them, would not see text there."""
    with pytest.raises(SpecError) as caught:
        load_document(f"a: {{{key}: 1}}", "f")
    (d,) = caught.value.diagnostics
    assert (d.code, d.found, d.mend) == ("E012", found, f'quote it: "{key}"')
    assert load_document(f"'{key}': 1", "f").data == {key: 1}


def test_places_of_values_and_keys() -> None:
    text = "space: {m: tiles, n: 32}\norder:\n  loops:\n    - m\n    - n\nempty:\n"
    assert place(text, ("space", "m")) == (1, 12, 1, 17)
    assert place(text, ("space",)) == (1, 8, 1, 25)
    assert place(text, ("order", "loops", 1)) == (5, 7, 5, 8)
    assert place(text, ("order", "loops")) == (4, 5, 5, 8)
    assert place(text, ("empty",)) == (6, 1, 6, 6), "a value that is not written has the place of its key"
    key = load_document(text, "f").key_spans[("order", "loops")]
    assert (key.line, key.column, key.end_column) == (3, 3, 8)


def test_columns_count_characters() -> None:
    assert place('é: "öü"\nb: {c: "\U0001d538", d: 1}\n', ("b", "d")) == (2, 16, 2, 17)


def test_byte_order_mark_is_no_column() -> None:
    assert place("\ufeffa: 1", ("a",)) == (1, 4, 1, 5)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_line_break_counts_once(newline: str) -> None:
    assert place(newline.join(("a: 1", "b: 2", "c: 3")), ("c",)) == (3, 4, 3, 5)


@pytest.mark.parametrize(
    ("scalar", "token", "expected"),
    [
        ("i // 8 + k", "k", (2, 16)),
        ("'i // 8 + k'", "k", (2, 17)),
        ('"i // 8 + k"', "k", (2, 17)),
        ("i //\n    8 + k", "k", (3, 9)),
        (">-  # folded\n    i //\n\n    8 + k", "k", (5, 9)),
        ("|\n    i // 8\n    + k", "k", (4, 7)),
        ('"i \\u002f/ k"', "k", (2, 7)),  # with escapes, the whole scalar
    ],
)
def test_places_within_text(scalar: str, token: str, expected: tuple[int, int]) -> None:
    document = load_document(f"map:\n   m: {scalar}\n", "f")
    value = document.value(("map", "m"))
    assert isinstance(value, str)
    span = document.span_within(("map", "m"), value.index(token))
    assert (span.line, span.column) == expected


def test_json_is_yaml() -> None:
    text = '{\n\t"a":\t1,\n\t"b":[true,null,"x\ty"],\n\t"c":{"n":-1}\n}'
    assert load_document(text, "f").data == {"a": 1, "b": [True, None, "x\ty"], "c": {"n": -1}}


def test_pure_python_reader_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{\n\t"a":\t1,\n\t"b": [n, 012, "x"]\n}\n'
    fast = load_document(text, "f")
    monkeypatch.setattr(source, "_LOADER", yaml.SafeLoader)
    assert load_document(text, "f") == fast
    assert faults("[" * 100_000)[0][0] == "E005"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("E002", 1, 1)]),
        ("# nothing\n", [("E002", 1, 1)]),
        ("a: 1\n---\nb: 1\n", [("E002", 2, 1)]),
        ("a: [1,\n\n", [("E002", 1, 7)]),
        ("\ta: 1", [("E002", 1, 1)]),
        ("a: 1\na: 2\nb: {c: 1, c: 2}\n", [("E003", 2, 1), ("E003", 3, 11)]),
        ("a: {b: 1, b: {c: 1, c: 2}}", [("E003", 1, 11), ("E003", 1, 21)]),
        ("a: &x 1\nb: *x\nc: !t 1\n<<: {d: 1}\n", [("E004", 1, 4), ("E004", 2, 4), ("E004", 3, 4), ("E004", 4, 1)]),
        ("*x : 1\n", [("E004", 1, 1)]),
        ("? [a]\n: 1\n", [("E012", 1, 3)]),
        ("a: 99999999999999999999\n", [("E012", 1, 4)]),
        ("a: 9223372036854775808\n", [("E012", 1, 4)]),
        ("a: " + "9" * 200_000, [("E012", 1, 4)]),
        ("a: x\0y", [("E006", 1, 5)]),
        ("b: 1\na: \ud800", [("E006", 2, 4)]),
        ("a: 1\n  \ufeff", [("E006", 2, 3)]),
        ("a: 1 # \x85", [("E006", 1, 8)]),
        ('a: "\\0"', [("E006", 1, 4)]),
    ],
)
def test_refusals_have_their_place(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert faults(text) == expected


def test_quoted_merge_key_is_a_plain_key() -> None:
    assert load_document('"<<": 1', "f").data == {"<<": 1}


def test_nesting_up_to_the_limit() -> None:
    assert load_document("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f").data
    assert faults("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [("E005", 1, MAX_DEPTH + 1)]


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 60_000, "- " * 100_000, "? " * 100_000, "[[],\n" * 50_000])
def test_deep_nesting_is_refused_quickly(text: str) -> None:
    begin = time.perf_counter()
    assert faults(text)[0][0] in ("E005", "E012")
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize("text", ["#" * (MAX_BYTES + 1), "é" * (MAX_BYTES // 2 + 1), "a" * 10_000_000])
def test_long_text_is_refused(text: str) -> None:
    assert faults(text) == [("E005", 1, 1)]


def test_number_of_faults_is_bounded() -> None:
    text = "{" + ", ".join(["a: 1"] * 20_000) + "}"
    assert len(faults(text)) == source.MAX_FAULTS


@given(st.text() | st.text(alphabet=st.sampled_from("ab1:-?[]{},&*!|>'\"%@# \n\t~<=."), max_size=60))
def test_any_text_is_data_or_a_diagnostic(text: str) -> None:
    found: tuple[Diagnostic, ...] | None = None
    try:
        load_document(text, "f")
    except SpecError as error:
        found = error.diagnostics
    assert found != ()
    for diagnostic in found or ():
        span = diagnostic.span
        assert (1, 1) <= (span.line, span.column) <= (span.end_line, span.end_column)
