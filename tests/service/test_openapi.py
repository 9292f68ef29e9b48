"""The OpenAPI document: complete, with examples, and true (as far as schemathesis can tell)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sched_compiler.diagnostics import CODES
from service import create_app, openapi
from service.problems import PROBLEM_TYPE, fault
from tests.service.support import COMPILER, Server, settings


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(settings(tmp_path_factory.mktemp("unused")), COMPILER).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_endpoint_is_described(document: dict[str, Any]) -> None:
    assert {name for name, _ in operations(document)} == {
        "GET /",
        "POST /compile",
        "POST /check",
        "GET /artifacts/{key}",
        "HEAD /artifacts/{key}",
        "GET /capabilities",
        "GET /healthz",
        "GET /metrics",
    }


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        answers = operation["responses"].values()
        contents = [answer.get("content", {}) for answer in [operation.get("requestBody", {}), *answers]]
        for content in contents:
            for media_type, body in content.items():
                assert "example" in body or body["schema"].get("format") == "binary", (name, media_type)


def test_every_problem_is_an_example_of_the_one_form(document: dict[str, Any]) -> None:
    form = json.loads(bytes(fault(400, "E080", "x").response().body))
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and name != "HEAD /artifacts/{key}":
                example = answer["content"][PROBLEM_TYPE]["example"]
                assert example.keys() == form.keys()
                assert example["status"] == int(status)
                assert example["title"] == json.loads(bytes(fault(int(status), "E080", "x").response().body))["title"]
                for diagnostic in example["diagnostics"]:
                    assert diagnostic.keys() == form["diagnostics"][0].keys()
                    assert diagnostic["code"] in CODES


def test_the_two_examples_of_a_spec_are_the_same_spec() -> None:
    assert yaml.safe_load(openapi.SPEC_YAML) == openapi.SPEC_JSON


def test_the_service_does_what_its_document_says(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    # Left out: that whatever breaks the schema is refused, and nothing else. A schema cannot say that a query goes with
    # YAML only, and a missing body is an empty spec, about which the answer to /check has diagnostics.
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
        "response_schema_conformance,unsupported_method"
    )
    url = f"http://127.0.0.1:{server.port}/openapi.json"
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", url]
    options = ["--checks", checks, "--max-examples", "10", "--seed", "1", "--no-color"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ended = subprocess.run(command + options, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
