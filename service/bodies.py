"""Request bodies: read within a limit, and turned into the text of a spec with what is to be made of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from starlette.requests import Request

from sched_compiler.artifact import Emit
from sched_compiler.diagnostics import Span
from service.cache import EMITS
from service.negotiation import JSON_TYPE, YAML_TYPES, parse_content_type
from service.problems import REQUEST, ProblemError, fault

DEFAULT_BACKEND, DEFAULT_EMIT = "cuda", "cubin"
_TARGET_KEYS = ("arch", "backend", "emit")
_FILE_KEYS = ("files", "include")
#: Files that may come with a spec, and characters of a path.
MOST_FILES, MOST_PATH = 256, 400


@dataclass(frozen=True, slots=True)
class SpecText:
    """A spec as text, the name under which diagnostics speak of it, and the files that came with it, by path.

    Headers are searched below the folders `include` of these paths, too.
    """

    text: str
    file: str
    files: dict[str, str] | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to compile."""

    spec: SpecText
    arch: str
    backend: str
    emit: Emit


async def read_body(request: Request, limit: int, timeout: float) -> bytes:
    """The body, at most `limit` bytes of it: a longer one is refused before it is read when `Content-Length` says so,
    else while it is read. Raises `ProblemError` (400, 408, 413) and Starlette's
    `ClientDisconnect`."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit, length[:20])
    chunks, size = [], 0
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit, None)
                chunks.append(chunk)
    except TimeoutError:
        raise fault(
            408, "E080", f"the body did not arrive within {timeout:g} s", headers={"Connection": "close"}
        ) from None
    if length.isdecimal() and size != int(length[:20]):
        raise fault(400, "E080", "the body has another length than Content-Length says", found=f"{size} bytes")
    return b"".join(chunks)


def _too_large(limit: int, found: str | None) -> ProblemError:
    return fault(
        413,
        "E081",
        "the request body is too large",
        found=None if found is None else f"{found} bytes",
        expected=f"at most {limit} bytes",
        headers={"Connection": "close"},  # what is still under way is not read
    )


def parse_job(body: bytes, content_type: str | None, content_encoding: str | None, query: Query) -> Job:
    """The job of `POST /compile`; raises `ProblemError` (400, 415, 422)."""
    if _is_json(content_type, content_encoding):
        if query:
            _malformed(
                "with a JSON body the target stands in the body, not in the query",
                found=f"query parameter {query[0][0]!r}",
                mend="move the query's parameters into the JSON object",
            )
        document = _json_object(body, ("spec", *_FILE_KEYS, *_TARGET_KEYS))
        target = {key: value for key in _TARGET_KEYS if (value := document.get(key)) is not None}
        spec = _spec_of(document)
    else:
        target = _single_values(query)
        spec = _yaml_text(body)
    for key, value in target.items():
        if not isinstance(value, str):
            _malformed(f"{key!r} must be text", found=json.dumps(value)[:80])
    return _job(spec, {key: value for key, value in target.items() if isinstance(value, str)})


def parse_spec(body: bytes, content_type: str | None, content_encoding: str | None, query: Query) -> SpecText:
    """The spec of `POST /check`; raises `ProblemError` (400, 415, 422)."""
    if query:
        _malformed("/check takes no query parameters", found=f"query parameter {query[0][0]!r}")
    if _is_json(content_type, content_encoding):
        return _spec_of(_json_object(body, ("spec", *_FILE_KEYS)))
    return _yaml_text(body)


#: A query string's parameters in order, decoded.
Query = list[tuple[str, str]]


def _malformed(
    message: str, *, found: str | None = None, expected: str | None = None, mend: str | None = None
) -> NoReturn:
    raise fault(400, "E080", message, found=found, expected=expected, mend=mend)


def _is_json(content_type: str | None, content_encoding: str | None) -> bool:
    media_type, charset = parse_content_type(content_type)
    if content_encoding and content_encoding.strip().lower() != "identity":
        raise fault(
            415,
            "E080",
            "the body must not be compressed",
            found=f"Content-Encoding: {content_encoding[:80]}",
            headers={"Accept-Encoding": "identity"},
        )
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise fault(415, "E080", "the body must be UTF-8", found=f"charset {charset[:80]}")
    if media_type == JSON_TYPE:
        return True
    if media_type and media_type not in YAML_TYPES:
        raise fault(
            415,
            "E080",
            "the body has a media type that is not taken here",
            found=media_type[:80],
            expected=f"{YAML_TYPES[0]} or {JSON_TYPE}",
            mend="send the header Content-Type: application/yaml",
        )
    return False


def _yaml_text(body: bytes) -> SpecText:
    return SpecText(_decode(body, "spec.yaml"), "spec.yaml")


def _decode(body: bytes, file: str) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise fault(
            400,
            "E006",
            "the body is not valid UTF-8",
            found=f"byte 0x{body[error.start]:02x} at offset {error.start}",
            span=Span(file, line, column, line, column + 1),
        ) from None


class _DuplicateKeyError(Exception):
    """A JSON object has this key twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise _DuplicateKeyError(name)
        result[name] = value
    return result


def _too_deep() -> ProblemError:
    return fault(400, "E005", "the JSON is nested too deeply")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


#: Digits that Python certainly reads as an integer, and more than 64 bits have.
_MOST_DIGITS = 600
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?', re.DOTALL)


def _no_number(text: str) -> ProblemError:
    """The first word of JSON text that stands for a number and is none, or none that fits."""
    word = next(
        w for w in _WORD.finditer(text) if w[0][-1] in "Ny" or (len(w[0]) > _MOST_DIGITS and w[0].lstrip("-").isdigit())
    )
    line, column = text.count("\n", 0, word.start()) + 1, word.start() - text.rfind("\n", 0, word.start())
    span = Span(REQUEST.file, line, column, line, column + len(word[0]))
    if word[0][-1] in "Ny":
        return fault(400, "E080", f"the body is not valid JSON: {word[0]} is not JSON", span=span)
    found, expected = f"an integer of {len(word[0])} characters", "an integer from -2^63 to 2^63-1"
    return fault(400, "E080", "the integer does not fit 64 bits", found=found, expected=expected, span=span)


def _json_object(body: bytes, keys: tuple[str, ...]) -> dict[str, object]:
    """The JSON object in `body`, with no keys but `keys`."""
    text = _decode(body, REQUEST.file).removeprefix("\ufeff")
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _DuplicateKeyError as error:
        raise fault(400, "E003", "a key stands twice in one JSON object", found=repr(str(error))[:80]) from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        span = Span(REQUEST.file, error.lineno, error.colno, error.lineno, error.colno + 1)
        raise fault(400, "E080", f"the body is not valid JSON: {error.msg}", span=span) from None
    except ValueError:  # a constant such as NaN, or an integer of more digits than Python reads
        raise _no_number(text) from None
    if not isinstance(document, dict):
        _malformed("the body must be a JSON object", found=type(document).__name__)
    for key in document:
        if key not in keys:
            _malformed(f"the key {key[:80]!r} is unknown here", expected=" | ".join(keys))
    return document


def _spec_of(document: Mapping[str, object]) -> SpecText:
    """A spec given as text is taken as YAML; one given as an object becomes JSON text, which is YAML, in the order of
    its keys, and the positions in diagnostics relate to that text (two spaces of indentation)."""
    spec = document.get("spec")
    if isinstance(spec, str):
        text = SpecText(spec, "spec.yaml")
    elif isinstance(spec, dict):
        try:
            text = SpecText(json.dumps(spec, ensure_ascii=False, indent=2), "spec.json")
        except RecursionError:
            raise _too_deep() from None
    else:
        _malformed("'spec' must be an object or YAML text", found="nothing" if spec is None else type(spec).__name__)
    _require_utf8(text.text, text.file, "the spec")
    return replace(text, files=_files_of(document), include=_include_of(document))


def _require_utf8(text: str, file: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        before = text[: error.start]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise fault(
            422,
            "E006",
            f"{what} holds half of a surrogate pair, which no text can hold",
            found=f"\\u{ord(text[error.start]):04x}",
            span=Span(file, line, column, line, column + 1),
        ) from None


def _files_of(document: Mapping[str, object]) -> dict[str, str] | None:
    """The files that came with a spec, by path relative to it."""
    files = document.get("files")
    if files is None:
        return None
    if not isinstance(files, dict):
        _malformed("'files' must be an object: texts by path", found=type(files).__name__)
    if len(files) > MOST_FILES:
        _malformed("there are too many files", found=str(len(files)), expected=f"at most {MOST_FILES}")
    for path, text in files.items():
        if not path or len(path) > MOST_PATH or path.startswith("/") or not path.isprintable():
            _malformed("a file has a path relative to the spec", found=ascii(path)[:80])
        if not isinstance(text, str):
            _malformed("a file is text", found=f"{ascii(path)[:80]}: {type(text).__name__}")
        _require_utf8(text, path, "the file")
    return files


def _include_of(document: Mapping[str, object]) -> tuple[str, ...]:
    """The folders of `files` in which headers are searched."""
    include = document.get("include")
    if include is None:
        return ()
    if not isinstance(include, list) or len(include) > MOST_FILES:
        _malformed("'include' must be a list of folders", found=type(include).__name__)
    for folder in include:
        if not isinstance(folder, str) or not folder or len(folder) > MOST_PATH or not folder.isprintable():
            _malformed("a folder of 'include' is the beginning of paths in 'files'", found=ascii(folder)[:80])
    return tuple(folder.rstrip("/") for folder in include)


def _single_values(query: Query) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in query:
        if name not in _TARGET_KEYS:
            _malformed(f"the query parameter {name[:80]!r} is unknown", expected=" | ".join(_TARGET_KEYS))
        if name in values:
            _malformed(f"the query parameter {name!r} stands twice")
        values[name] = value
    return values


def _job(spec: SpecText, target: Mapping[str, str]) -> Job:
    arch = target.get("arch", "")
    if not arch:
        _malformed("'arch' is missing", expected="an architecture such as sm_90a", mend="add ?arch=sm_90a")
    emit = next((e for e in EMITS if e == target.get("emit", DEFAULT_EMIT)), None)
    if emit is None:
        _malformed("'emit' is not one of the known forms", found=target["emit"][:80], expected=" | ".join(EMITS))
    backend = target.get("backend", DEFAULT_BACKEND)
    for name, value in (("architecture", arch), ("backend", backend)):
        if len(value) > 64 or not value.isascii() or not value.isprintable():
            raise fault(422, "E053", f"the {name} is unknown", found=ascii(value[:64]))
    return Job(spec, arch, backend, emit)
