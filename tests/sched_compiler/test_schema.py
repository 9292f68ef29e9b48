"""The JSON Schema is one, takes every good spec, and refuses most of what is malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sched_compiler.diagnostics import SpecError
from sched_compiler.presets import PRESETS
from sched_compiler.schema import json_schema
from sched_compiler.source import load_document
from tests.sched_compiler.test_loader import GOOD
from tests.support.random_specs import RandomChoices, random_spec

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
EXPECT = re.compile(r"^# expect: ([EW]\d{3}) \d+:\d+$", re.MULTILINE)
#: Faults of form, which a schema can tell.
FORM = {"E010", "E011", "E012", "E014"}
#: Faults of form that depend on more than the shape of the data.
BEYOND = {
    "param-empty-range",
    "curve-and-loops",
    "ring-preset-group-size",
    "kernel-define-value",
    "kernel-parameter-type",
    "kernel-source-absolute",
}


def validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


def data(text: str) -> Any:
    return load_document(text, "spec").data


def bad_specs() -> Iterator[tuple[str, Any, set[str]]]:
    """(name, data, codes) of each bad spec whose YAML can be read."""
    for path in sorted((ROOT / "tests" / "bad_specs").rglob("*.yaml")):
        text = path.read_bytes().decode()
        try:
            form = data(text)
        except SpecError:
            continue
        yield path.stem, form, set(EXPECT.findall(text))


def test_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    json.dumps(json_schema())


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_specs_are_valid(path: Path) -> None:
    validator().validate(data(path.read_text()))


@pytest.mark.parametrize("text", GOOD)
def test_the_documented_forms_are_valid(text: str) -> None:
    validator().validate(data(text))


@pytest.mark.parametrize("word", ["single", "{single: {}}", "{single: null}", "{static: {workers: grid}}"])
def test_ways_to_write_a_dispatch_are_valid(word: str) -> None:
    validator().validate(data(f"version: 1\nname: x\nspace: {{m: 4}}\ndispatch: {word}\n"))


def test_random_specs_are_valid() -> None:
    checker = validator()
    for seed in range(200):
        spec, _ = random_spec(RandomChoices(seed))
        checker.validate(spec)


def test_faults_of_form_are_invalid() -> None:
    checker = validator()
    accepted = {name for name, form, codes in bad_specs() if codes & FORM and checker.is_valid(form)}
    assert accepted == BEYOND


def test_faults_of_meaning_are_left_to_the_compiler() -> None:
    """Whatever is wrong with a well-formed spec, the schema does not get in its way."""
    checker = validator()
    for name, form, codes in bad_specs():
        if codes and all(code >= "E040" for code in codes):
            assert checker.is_valid(form) or name in {
                "fuse-single-axis",
                "pieces-none",
                "split-zero",
                "kernel-block-none",
            }, name


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_has_its_arguments(name: str) -> None:
    text = json.dumps(json_schema())
    assert all(f'"{argument}"' in text for argument in PRESETS[name].arguments)
    checker = validator()
    needed = {a.name: [4] if a.kind.table else 4 for a in PRESETS[name].arguments.values() if a.required}
    spec = {"version": 1, "name": "x", "uses": name, "with": needed}
    assert checker.is_valid(spec)
    assert not checker.is_valid({**spec, "with": {**needed, "num_tiles": 4}})
    for argument in needed:
        given = {k: v for k, v in needed.items() if k != argument}
        own = PRESETS[name].arguments[argument].kind.dispatch
        assert not checker.is_valid({**spec, "with": given})
        assert checker.is_valid({**spec, "with": given, "dispatch": "single"}) == own


def test_every_property_is_described() -> None:
    def undescribed(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(schema, list):
            for n, item in enumerate(schema):
                yield from undescribed(item, (*path, str(n)))
        elif isinstance(schema, dict):
            inside_condition = "if" in path or "not" in path or "anyOf" in path
            for name, value in schema.get("properties", {}).items():
                described = isinstance(value, bool) or "description" in value
                if not described and not inside_condition:
                    yield (*path, name)
            for key, value in schema.items():
                yield from undescribed(value, (*path, key))

    assert list(undescribed(json_schema(), ())) == []
