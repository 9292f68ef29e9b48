"""CUDA C++ that TVM generates for its schedulers, as JSON on standard output: `PYTHON decode_tvm.py < cases.json`.

It is run by a Python that has TVM, and imports nothing of this project. A case is [class and arguments, extents,
names of run-time extents, coordinates]; coordinate k is stored to `out[k]`, and `out[9]` is any index.
"""

import json
import linecache
import re
import sys

import tvm
from tvm.backend.cuda.lang import tile_scheduler
from tvm.script import tirx as T  # noqa: N812

_STATIC = """
@T.prim_func
def main(out_ptr: T.handle{parameters}):
    out = T.match_buffer(out_ptr, (16,), "int32")
{tables}    T.device_entry()
    worker = T.cta_id([132])
    thread = T.thread_id([32])
    s = T.meta_var({made})
    s.init(worker)
    while {valid}:
{stores}        {advance}
"""
_FIELDS = {
    "m": "m_idx", "n": "n_idx", "k": "k_idx", "b": "b_idx", "h": "h_idx", "q": "q_idx", "batch": "batch_idx",
    "head": "head_idx", "m_block": "m_block_idx",
}  # fmt: skip


def generated(made: str, extents: dict[str, int], runtime: list[str], coords: list[str], queued: bool) -> str:
    """The CUDA C++ of one case."""
    tables = ["b_indices", "h_indices", "q_indices", "tiles_indptr"] if made.startswith("Indexed") else []
    if tables:
        made = f'{made}("s", {", ".join(tables)})'
    for name, value in extents.items():
        if name not in runtime:
            made = re.sub(rf"\b{name}\b", str(value), made)
    parameters = "".join(f", {name}: T.int32" for name in runtime) + "".join(f", {t}_: T.handle" for t in tables)
    matched = "".join(f'    {t} = T.match_buffer({t}_, (8,), "int32")\n' for t in tables)
    stores = "".join(f"        out[{k}] = s.{_FIELDS[c]}\n" for k, c in enumerate(coords))
    advance = "s.next_tile(132)" if made.startswith("RankAware") else "s.next_tile()"
    text = _STATIC.format(
        parameters=parameters, tables=matched, made=made, stores=stores,
        valid="s.linear_idx != -1" if queued else "s.valid()", advance="s.init(out[9])" if queued else advance,
    )  # fmt: skip
    place: dict[str, object] = {"T": T, **vars(tile_scheduler)}
    name = f"<{made}>"
    # TVM reads the source of what it compiles
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), place)
    module = tvm.IRModule({"main": place["main"]})
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    with target:
        return str(tvm.compile(module, target=target, tir_pipeline="tirx").mod.imports[0].inspect_source())


def main() -> None:
    tvm.register_global_func("tvm_callback_cuda_compile", lambda code, target=None: "not compiled here", override=True)
    found: list[str] = []
    for case in json.load(sys.stdin):
        try:
            found.append(generated(*case))
        except Exception as e:
            found.append("")
            print(case[0], case[2], f"{type(e).__name__}: {str(e)[:300]}", file=sys.stderr)
    json.dump({"version": tvm.__version__, "texts": found}, sys.stdout)


if __name__ == "__main__":
    main()
