"""Errors as `application/problem+json` (RFC 9457) with a `diagnostics` array."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.responses import Response

from sched_compiler.artifact import JSON
from sched_compiler.diagnostics import Diagnostic, Span

PROBLEM_TYPE = "application/problem+json"

#: Stands in for a file where the fault is in the request and not in the spec that it carries.
REQUEST = Span(file="<request>", line=1, column=1, end_line=1, end_column=1)

#: What diagnostics about the service's own state (busy, stopping, a compiler that died) are filed under.
UNAVAILABLE = "E083"


#: Where RFC 9110 has another phrase than older Pythons.
_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}


class ProblemError(Exception):
    """Ends a request with an error status. `diagnostics` are JSON objects as `Diagnostic.as_json` makes them."""

    def __init__(
        self, status: int, detail: str, diagnostics: Iterable[dict[str, JSON]], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.diagnostics = list(diagnostics)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        return problem_response(self.status, self.detail, self.diagnostics, self.headers)


def fault(
    status: int,
    code: str,
    message: str,
    *,
    found: str | None = None,
    expected: str | None = None,
    mend: str | None = None,
    span: Span = REQUEST,
    headers: Mapping[str, str] | None = None,
) -> ProblemError:
    """A problem with one diagnostic."""
    diagnostic = Diagnostic(code, message, span, found=found, expected=expected, mend=mend)
    return ProblemError(status, message, [diagnostic.as_json()], headers)


def problem_response(
    status: int, detail: str, diagnostics: list[dict[str, JSON]], headers: Mapping[str, str]
) -> Response:
    body = {
        "type": "about:blank",
        "title": _PHRASES.get(status) or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "diagnostics": diagnostics,
    }
    content = json.dumps(body, ensure_ascii=False, indent=2).encode("utf-8", errors="backslashreplace")
    return Response(content, status, {"X-Content-Type-Options": "nosniff", **headers}, PROBLEM_TYPE)
