"""What a source includes is found as a compiler finds it, and named so that it compiles from memory."""

from __future__ import annotations

from backends.cuda.includes import closure, included, rewritten
from backends.toolchain import nvrtc

FILES = {
    "src/k.cu": '#include "a.h"\n#include <lib/b.h>\n#include <cuda_bf16.h>\n#include <sched/x.cuh>\n',
    "src/a.h": '#pragma once\n#  include "../lib/b.h"\n',
    "lib/b.h": '#pragma once\n#include "detail/c.h" // and a remark\n',
    "lib/detail/c.h": '#pragma once\n#include "c.h"\n#include "../b.h"\n#define C 1\n',
    "I0/only.h": "",
    "unused.h": "",
}


def test_every_directive_is_seen_once() -> None:
    text = '#include "a"\n  #\tinclude <b/c>\n%:include "d"\n// #include "no"\n#include "a"\nint x; #include "no"\n'
    assert included(text) == (("a", True), ("b/c", False), ("d", True))


def test_files_are_found_beside_their_includer_and_below_the_roots() -> None:
    found = closure("src/k.cu", FILES.get, ("", "I0/"))
    assert set(found) == {"src/k.cu", "src/a.h", "lib/b.h", "lib/detail/c.h"}
    assert set(closure("x", {"x": "#include <only.h>", **FILES}.get, ("", "I0/"))) == {"x", "I0/only.h"}


def test_a_quoted_name_is_looked_for_beside_first_and_one_in_brackets_is_not() -> None:
    files = {"s/k.cu": '#include "h"\n#include <h>\n', "s/h": "", "h": ""}
    assert list(closure("s/k.cu", files.get, ("",))) == ["s/k.cu", "s/h", "h"]
    assert rewritten("s/k.cu", files["s/k.cu"], files, ("",)) == '#include "s/h"\n#include <h>\n'


def test_no_path_leaves_by_a_slash() -> None:
    asked: list[str] = []

    def find(path: str) -> str | None:
        asked.append(path)
        return '#include "/etc/passwd"\n#include </etc/passwd>\n' if path == "k" else None

    assert set(closure("k", find, ("",))) == {"k"}
    assert asked == ["k"]


def test_rewritten_texts_compile_from_memory_and_keep_their_lines() -> None:
    known = closure("src/k.cu", FILES.get, ("",))
    texts = {path: rewritten(path, text, known, ("",)) for path, text in known.items()}
    assert all(text.count("\n") == FILES[path].count("\n") for path, text in texts.items())
    source = texts.pop("src/k.cu") + 'static_assert(C == 1, "");\nextern "C" __global__ void k(int* p) { *p = C; }\n'
    headers = {**texts, "cuda_bf16.h": "", "sched/x.cuh": ""}
    compiled, name = nvrtc.compile_with_headers(source, "src/k.cu", "sm_90", "cubin", headers, (), "k")
    assert name == "k"
    assert compiled.blob[:4] == b"\x7fELF"


def test_the_question_whether_a_header_is_there_is_answered_from_memory() -> None:
    files = {"s/k.cu": '#if __has_include("a.h") && !__has_include(<none.h>)\nint is_there;\n#endif\n', "s/a.h": ""}
    known = closure("s/k.cu", files.get, ("",))
    assert list(known) == ["s/k.cu", "s/a.h"]
    assert '__has_include("s/a.h")' in rewritten("s/k.cu", files["s/k.cu"], known, ("",))
