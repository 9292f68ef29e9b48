"""No input ends in a 500, in an answer that is no problem document, or in a server that answers no more."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from service.problems import PROBLEM_TYPE
from tests.service.support import Server

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENVELOPE = st.fixed_dictionaries(
    {},
    optional={
        "spec": ANYTHING,
        "arch": st.sampled_from(["sm_90a", "", "x", None, 90]) | st.text(),
        "backend": st.sampled_from(["cuda", "ptx"]) | ANYTHING,
        "emit": st.sampled_from(["cubin", "ptx", "elf"]) | ANYTHING,
    },
)
FIELD = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


BODIES = st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
BODIES |= ENVELOPE.map(as_json) | ANYTHING.map(as_json)


@effort(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/compile", "/check"]),
    query=st.sampled_from(["", "?arch=sm_90a", "?arch=sm_90a&emit=ptx", "?%00=%ff"]),
    media_type=st.sampled_from(["application/json", "application/yaml", "text/plain", None]) | FIELD,
    accept=st.sampled_from(["*/*", "application/json", None]) | FIELD,
    condition=st.sampled_from([None, "*", '"x"']) | FIELD,
    body=BODIES,
)
def test_fuzz(
    server: Server,
    path: str,
    query: str,
    media_type: str | None,
    accept: str | None,
    condition: str | None,
    body: bytes,
) -> None:
    named = {"Content-Type": media_type, "Accept": accept, "If-None-Match": condition}
    headers = {name: value.strip().encode("latin-1") for name, value in named.items() if value is not None}
    connection = server.connect()
    try:
        connection.request("POST", path + query, body, headers)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    assert response.status in (200, 400, 406, 412, 413, 415, 422), answer
    if response.status != 200:
        assert response.headers["content-type"] == PROBLEM_TYPE
        assert json.loads(answer)["diagnostics"]
