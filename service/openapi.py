"""What the OpenAPI document says of each endpoint: descriptions, schemas, and examples of requests and answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from sched_compiler.artifact import JSON
from sched_compiler.diagnostics import CODES
from service.bodies import MOST_FILES
from service.cache import EMITS

Document = dict[str, Any]

SPEC_YAML = """\
version: 1
name: gemm-group-major
params: {m_tiles: {min: 1, max: 65536}}
space: {m: m_tiles, n: 32}
order:
  split: {m: 8}
  loops: [m.outer, n, m.inner]
dispatch:
  static: {workers: 66}
"""
SPEC_JSON: Document = {
    "version": 1,
    "name": "gemm-group-major",
    "params": {"m_tiles": {"min": 1, "max": 65536}},
    "space": {"m": "m_tiles", "n": 32},
    "order": {"split": {"m": 8}, "loops": ["m.outer", "n", "m.inner"]},
    "dispatch": {"static": {"workers": 66}},
}
KEY = "3f0e8b6d2c19a7450d6b8e21f7c3a99150e4d2b8f6a1c07395be84d21f60ca17"
DIGEST = "a81c5f0b37d2e964508bd1c6ef2930745c8a16be9d047f3215e68bca90d37f42"

#: The answer of `GET /`.
INDEX_BODY: dict[str, JSON] = {
    "service": "schedc",
    "documentation": "/docs",
    "openapi": "/openapi.json",
    "compile": "/compile",
    "check": "/check",
    "capabilities": "/capabilities",
}

_TEXT: Document = {"type": ["string", "null"]}
_COUNT: Document = {"type": "integer", "minimum": 1}
_HEX64: Document = {"type": "string", "pattern": "^[0-9a-f]{64}$"}

_FILES: Document = {
    "files": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_FILES,
        "description": "What the spec names, by path relative to it: a kernel's source, headers, tables, specs.",
    },
    "include": {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "maxItems": MOST_FILES,
        "description": "Folders of `files` in which headers are searched, as by -I.",
    },
}

SCHEMAS: dict[str, Document] = {
    "Diagnostic": {
        "type": "object",
        "description": "One fault. Lines and columns count from 1, the end is exclusive.",
        "required": ["code", "severity", "message", "file", "line", "column", "end_line", "end_column"],
        "properties": {
            "code": {"type": "string", "enum": list(CODES)},
            "severity": {"type": "string", "enum": ["error", "warning"]},
            "message": {"type": "string"},
            "file": {"type": "string"},
            "line": _COUNT,
            "column": _COUNT,
            "end_line": _COUNT,
            "end_column": _COUNT,
            "found": _TEXT,
            "expected": _TEXT,
            "mend": _TEXT,
        },
    },
    "Problem": {
        "type": "object",
        "description": "RFC 9457, with diagnostics.",
        "required": ["type", "title", "status", "detail", "diagnostics"],
        "properties": {
            "type": {"type": "string", "const": "about:blank"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "diagnostics": {
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/components/schemas/Diagnostic"},
            },
        },
    },
    "Manifest": {
        "type": "object",
        "description": "What is known about an artifact: entry, parameters, launch shape, resources.",
        "required": ["digest", "key", "address"],
        "properties": {
            "digest": {**_HEX64, "description": "SHA-256 of the artifact's bytes."},
            "key": {**_HEX64, "description": "Digest of everything that the artifact was made from."},
            "address": {"type": "string"},
            "cache": {"type": "string", "enum": ["hit", "miss"]},
        },
    },
    "Report": {
        "type": "object",
        "required": ["ok", "diagnostics", "verdicts"],
        "properties": {
            "ok": {"type": "boolean"},
            "diagnostics": {"type": "array", "items": {"$ref": "#/components/schemas/Diagnostic"}},
            "verdicts": {"type": "array"},
        },
    },
    "CompileRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["spec", "arch"],
        "properties": {
            "spec": {"oneOf": [{"type": "object"}, {"type": "string", "description": "the spec as YAML text"}]},
            "arch": {"type": "string", "minLength": 1},
            "backend": {"type": "string", "default": "cuda"},
            "emit": {"type": "string", "enum": list(EMITS), "default": "cubin"},
            **_FILES,
        },
    },
    "CheckRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["spec"],
        "properties": {"spec": {"oneOf": [{"type": "object"}, {"type": "string"}]}, **_FILES},
    },
}


def _diagnostic(code: str, message: str, **more: object) -> Document:
    place = {"file": "<request>", "line": 1, "column": 1, "end_line": 1, "end_column": 1}
    empty = {"found": None, "expected": None, "mend": None}
    return {"code": code, "severity": "error", "message": message, **place, **empty, **more}


def _problem(title: str, status: int, description: str, diagnostic: Document, detail: str | None = None) -> Document:
    example = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail or diagnostic["message"],
        "diagnostics": [diagnostic],
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    headers = {"Retry-After": {"schema": {"type": "string"}}} if status == 503 else {}
    content = {"application/problem+json": {"schema": schema, "example": example}}
    return {"description": description, "content": content, **({"headers": headers} if headers else {})}


_AT_AXIS = {"file": "spec.yaml", "line": 7, "column": 20, "end_line": 7, "end_column": 27}
_PROBLEMS: dict[int, Document] = {
    400: _problem(
        "Bad Request",
        400,
        "The request is malformed: JSON, encoding, query.",
        _diagnostic("E080", "'arch' is missing", expected="an architecture such as sm_90a", mend="add ?arch=sm_90a"),
    ),
    404: _problem(
        "Not Found",
        404,
        "No artifact has this key, or it has been evicted.",
        _diagnostic("E082", "no artifact has this key", found=KEY, mend="compile the spec again: POST /compile"),
    ),
    406: _problem(
        "Not Acceptable",
        406,
        "None of the accepted media types can be sent.",
        _diagnostic(
            "E080",
            "none of the accepted media types can be sent",
            found="image/png",
            expected="application/octet-stream or application/json",
        ),
    ),
    408: _problem(
        "Request Timeout",
        408,
        "The body did not arrive in time.",
        _diagnostic("E080", "the body did not arrive within 30 s"),
    ),
    412: _problem(
        "Precondition Failed",
        412,
        "`If-Match` does not hold.",
        _diagnostic("E080", "a precondition of the request does not hold"),
    ),
    413: _problem(
        "Content Too Large",
        413,
        "The body is too large.",
        _diagnostic("E081", "the request body is too large", found="1300000 bytes", expected="at most 1048576 bytes"),
    ),
    415: _problem(
        "Unsupported Media Type",
        415,
        "The body has a media type, charset or coding that is not taken.",
        _diagnostic(
            "E080",
            "the body has a media type that is not taken here",
            found="application/x-www-form-urlencoded",
            expected="application/yaml or application/json",
            mend="send the header Content-Type: application/yaml",
        ),
    ),
    422: _problem(
        "Unprocessable Content",
        422,
        "The spec, the architecture or the backend is wrong.",
        _diagnostic("E041", "loops must list every remaining axis exactly once", found="m.inner twice", **_AT_AXIS),
        "spec.yaml:7:20: E041 loops must list every remaining axis exactly once",
    ),
    501: _problem(
        "Not Implemented",
        501,
        "The spec needs what this service does not have, such as a sandbox for a kernel's source. Compile locally.",
        _diagnostic("E077", "no sources are compiled here", found="bubblewrap (bwrap) is not installed"),
    ),
    503: _problem(
        "Service Unavailable",
        503,
        "The queue is full, the server is being stopped, or a compiler process failed. Try later, or compile locally.",
        _diagnostic("E083", "the server is busy: too many requests are waiting"),
    ),
    504: _problem(
        "Gateway Timeout",
        504,
        "The compile took longer than is allowed; its process has been killed.",
        _diagnostic("E072", "the compiler took longer than is allowed", expected="at most 60 s"),
    ),
}


def _problems(*statuses: int) -> dict[int, Document]:
    return {status: _PROBLEMS[status] for status in statuses}


_MANIFEST: Document = {
    "digest": DIGEST,
    "key": KEY,
    "address": f"/artifacts/{KEY}",
    "entry": "gemm_group_major_trace",
    "arch": "sm_90a",
}
_ETAG: Document = {"description": "Strong entity tag.", "schema": {"type": "string"}, "example": f'"{DIGEST}"'}
_BINARY: Document = {"schema": {"type": "string", "format": "binary"}}
_TEXT_ARTIFACT: Document = {"schema": {"type": "string"}, "example": ".version 8.0\n.target sm_90a\n"}


def _json_content(schema: str, example: object) -> Document:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}}


def _artifact_content(manifest: Document) -> Document:
    return {
        "application/octet-stream": _BINARY,
        "text/plain": _TEXT_ARTIFACT,
        **_json_content("Manifest", manifest),
    }


def _body(schema: str, example: Document) -> Document:
    yaml = {"schema": {"type": "string"}, "example": SPEC_YAML}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/yaml": yaml, "text/plain": yaml, **_json_content(schema, example)},
        }
    }


def _query(name: str, description: str, schema: Document) -> Document:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


COMPILE: Document = {
    "operation_id": "compile",
    "summary": "Compile a spec",
    "description": "YAML with the target in the query, or JSON with the target in the body. The answer is the "
    "artifact, or its manifest with `Accept: application/json`; `ETag` is the digest of the artifact's bytes.",
    "responses": {
        200: {
            "description": "The artifact, or its manifest.",
            "content": _artifact_content({**_MANIFEST, "cache": "miss"}),
            "headers": {
                "ETag": _ETAG,
                "X-Cache": {"schema": {"type": "string", "enum": ["hit", "miss"]}},
                "Content-Location": {
                    "description": "Where the artifact can be had again (not with a manifest, whose address it names).",
                    "schema": {"type": "string"},
                },
            },
        },
        **_problems(400, 406, 408, 412, 413, 415, 422, 501, 503, 504),
    },
    "openapi_extra": {
        "parameters": [
            _query("arch", "Architecture with its suffix; required with YAML.", {"type": "string"}),
            _query("backend", "The language compiled from.", {"type": "string", "default": "cuda"}),
            _query("emit", "The form wanted.", {"type": "string", "enum": list(EMITS), "default": "cubin"}),
        ],
        **_body("CompileRequest", {"spec": SPEC_JSON, "arch": "sm_90a", "backend": "cuda", "emit": "cubin"}),
    },
}
COMPILE["openapi_extra"]["parameters"][0]["example"] = "sm_90a"

CHECK: Document = {
    "operation_id": "check",
    "summary": "Check a spec",
    "description": "Answers 200 also for a spec that does not hold: `ok` says so.",
    "responses": {
        200: {
            "description": "The verdict.",
            "content": _json_content("Report", {"ok": True, "diagnostics": [], "verdicts": []}),
        },
        **_problems(400, 408, 413, 415, 422, 503, 504),
    },
    "openapi_extra": _body("CheckRequest", {"spec": SPEC_JSON}),
}

_KEY_PARAMETER: Document = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "64 lower-case hex digits.",
    "schema": {"type": "string"},
    "example": KEY,
}
ARTIFACT: Document = {
    "operation_id": "artifact",
    "summary": "An artifact by its key",
    "description": "Immutable. With `Accept: application/json`, its manifest. Honours `If-None-Match` and `If-Match`.",
    "responses": {
        200: {
            "description": "The artifact, or its manifest.",
            "content": _artifact_content(_MANIFEST),
            "headers": {"ETag": _ETAG},
        },
        304: {"description": "The client has it already.", "headers": {"ETag": _ETAG}},
        **_problems(404, 406, 412),
    },
    "openapi_extra": {"parameters": [_KEY_PARAMETER]},
}
ARTIFACT_HEAD: Document = {
    "operation_id": "artifact_head",
    "summary": "Whether there is an artifact",
    "description": "GET without the body.",
    "responses": {
        status: {name: part for name, part in answer.items() if name != "content"}
        for status, answer in ARTIFACT["responses"].items()
    },
    "openapi_extra": {"parameters": [_KEY_PARAMETER]},
}


def _plain(operation_id: str, summary: str, content: Document, *problems: int) -> Document:
    responses = {200: {"description": summary, "content": content}, **_problems(*problems)}
    return {"operation_id": operation_id, "summary": summary, "responses": responses}


def _object(example: object) -> Document:
    return {"application/json": {"schema": {"type": "object"}, "example": example}}


INDEX = _plain("index", "Where things are", _object(INDEX_BODY))
CAPABILITIES = _plain(
    "capabilities",
    "Architectures, backends, forms and versions",
    _object(
        {
            "version": "0.1.0",
            "backends": {"cuda": {"architectures": ["sm_90a"], "emits": list(EMITS), "compiler": "nvrtc 13.0"}},
            "emits": list(EMITS),
            "sources": {"compiled": True, "reason": None, "headers": {"cuda": ["nvidia-cuda-runtime 13.0.96"]}},
        }
    ),
)
HEALTH = _plain(
    "healthz",
    "Whether the service can compile",
    _object({"status": "ok", "workers": {"compile": 2, "front": 1}, "cache": "read-write"}),
    503,
)
METRICS = _plain(
    "metrics",
    "Counters in Prometheus's text format",
    {"text/plain": {"schema": {"type": "string"}, "example": "schedc_queue_refused_total 0.0\n"}},
)


def install(app: FastAPI) -> None:
    """Let `app` answer with its routes' documents and the schemas they refer to."""

    def document() -> Document:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            for route in app.routes:
                if isinstance(route, APIRoute):
                    # As they stand in this module: FastAPI adds a JSON answer of its own and takes out what is null.
                    answers = {str(status): answer for status, answer in route.responses.items()}
                    for method in route.methods or ():
                        made["paths"][route.path][method.lower()]["responses"] = answers
            made["components"] = {"schemas": SCHEMAS}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
