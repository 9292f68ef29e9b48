"""The client of the service: `schedc compile --server`. Standard library only."""

from __future__ import annotations

import hashlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from typing import Any

from sched_compiler.artifact import Artifact
from sched_compiler.compiling import files_of
from sched_compiler.diagnostics import CODES, Diagnostic, Span, SpecError
from sched_compiler.driver import CompileRequest
from sched_compiler.loader import LoadedSpec, to_yaml
from sched_compiler.spec import TableSource

#: Seconds to wait for an answer: a cold compile, and a queue before it.
PATIENCE = 120.0
#: Elements of tables in files that are sent along.
MOST_SENT = 20_000


class UnreachableError(Exception):
    """No usable answer from the service; compiling locally is the way on."""


def fault_of_address(server: str) -> str | None:
    """Why `server` can be no service's address, in words; None where it can."""
    try:
        parts = urllib.parse.urlsplit(server)
        host, _ = parts.hostname, parts.port  # asking for a port that is none raises ValueError
    except ValueError as e:
        return f"{server!r} is no address ({e})"
    if parts.scheme not in ("http", "https"):
        return f"{server!r} does not begin with http:// or https://"
    if not host or any(c.isspace() or not c.isprintable() for c in server):
        return f"{server!r} names no host"
    if parts.query or parts.fragment:
        return f"{server!r} goes on after the path"
    return None


def compile_remotely(server: str, request: CompileRequest) -> Artifact:
    """Ask the service at `server` for an artifact; its digest is checked.

    Raises SpecError where the service finds the spec at fault, UnreachableError where it gives no usable answer.
    """
    loaded = request.load()
    target = {"arch": request.arch, "backend": request.backend, "emit": request.emit}
    text, content_type, query = _complete(request, loaded), "application/yaml", f"?{urllib.parse.urlencode(target)}"
    files, read = files_of(request, loaded)
    if files:
        body = {"spec": text, "files": files, "include": [f"-I{n}" for n in range(len(request.include))], **target}
        text, content_type, query = json.dumps(body), "application/json", ""
    manifest = _ask(
        f"{server.rstrip('/')}/compile{query}",
        data=text.encode("utf-8", errors="surrogateescape"),
        headers={"Content-Type": content_type, "Accept": "application/json"},
        request=request,
        sent=files,
    )
    try:
        description: dict[str, Any] = json.loads(manifest)
        address, digest, key, _ = (str(description[name]) for name in ("address", "digest", "key", "name"))
    except (ValueError, KeyError, TypeError):
        raise UnreachableError(f"{server} answered with no manifest") from None
    blob = _ask(urllib.parse.urljoin(f"{server.rstrip('/')}/", address), data=None, headers={}, request=request)
    if hashlib.sha256(blob).hexdigest() != digest:
        raise UnreachableError(f"{server} sent an artifact with a wrong digest")
    for extra in ("address", "cache"):
        description.pop(extra, None)
    return Artifact(key, request.emit, blob, description, files=read)


def _complete(request: CompileRequest, loaded: LoadedSpec) -> str:
    """The spec's text, with tables from files written out, which the service cannot read.

    Raises SpecError for a table that cannot be read, UnreachableError where the text would be too long to send.
    """
    tables = loaded.spec.tables or {}
    if all(table.file is None for table in tables.values()):
        return request.text
    if sum(len(loaded.tables[name]) for name in tables if name in loaded.tables) > MOST_SENT:
        raise UnreachableError(f"tables of more than {MOST_SENT} elements are not sent to a service")
    given = {
        name: table if table.file is None else TableSource(values=[int(v) for v in loaded.tables[name]])
        for name, table in tables.items()
    }
    return to_yaml(loaded.spec.model_copy(update={"tables": given}))


def _ask(
    url: str, *, data: bytes | None, headers: dict[str, str], request: CompileRequest, sent: Collection[str] = ()
) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise UnreachableError(f"{url} is no HTTP address")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=PATIENCE) as reply:
            body: bytes = reply.read()
            return body
    except urllib.error.HTTPError as e:
        with e:
            body = e.read()
        diagnostics = _diagnostics(body, request, sent)
        if e.code == 422 and diagnostics:
            raise SpecError(diagnostics) from None
        raise UnreachableError(f"{url} answered {e.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise UnreachableError(f"{url} cannot be reached ({getattr(e, 'reason', e)})") from None


def _local(name: str, request: CompileRequest, sent: Collection[str]) -> str:
    """The file of this machine that the service calls `name`."""
    if name in sent:
        return request.beside().shown(name)
    return name if name.startswith("<") and name != "<spec>" else request.file


def _diagnostics(body: bytes, request: CompileRequest, sent: Collection[str]) -> list[Diagnostic]:
    """The diagnostics of a problem, placed in the file that was sent; none if it holds none."""
    found: list[Diagnostic] = []
    try:
        for d in json.loads(body)["diagnostics"]:
            name = _local(str(d["file"]), request, sent)
            span = Span(name, int(d["line"]), int(d["column"]), int(d["end_line"]), int(d["end_column"]))
            if d["code"] in CODES:
                found.append(
                    Diagnostic(d["code"], str(d["message"]), span, d.get("found"), d.get("expected"), d.get("mend"))
                )
    except (ValueError, KeyError, TypeError):
        return []
    return found
