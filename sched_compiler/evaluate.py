"""The reference evaluator: expressions over NumPy arrays, on exactly the machine types of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sched_compiler.expr import PRED, S32, S64, U32, U64, Dtype, Expr, topological

Array: TypeAlias = "npt.NDArray[Any]"

NUMPY: dict[str, type[np.generic]] = {
    PRED.name: np.bool_,
    U32.name: np.uint32,
    S32.name: np.int32,
    U64.name: np.uint64,
    S64.name: np.int64,
}


def _mulhi(a: Array, b: Array) -> Array:
    """Upper half of the unsigned product; 64-bit products are put together from 32-bit halves."""
    if a.dtype == np.uint32:
        return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    return np.asarray(a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half))


def _madhi(a: Array, b: Array, c: Array) -> Array:
    wide = a.astype(np.uint64) * b.astype(np.uint64) + c.astype(np.uint64)
    return np.asarray(wide >> np.uint64(32)).astype(np.uint32)


def _recip(d: Array, more: Array) -> Array:
    whole = (np.uint64(1) << np.uint64(32) + more.astype(np.uint64)) - np.uint64(1)
    return _div(whole, d.astype(np.uint64)).astype(np.uint32)


def _log2(a: Array) -> Array:
    """By the exponent, after halving, for a float of 53 bits would round the largest up."""
    large = a >> np.asarray(32, a.dtype) if a.dtype.itemsize == 8 else np.zeros_like(a)
    exponent = np.frexp(np.where(large, large, a).astype(np.float64))[1] - 1
    return np.asarray(np.where(large, exponent + 32, exponent)).astype(np.uint32)


def _div(a: Array, b: Array) -> Array:
    """Floor division; where the divisor is zero (only in an arm that is not taken) the result is zero."""
    return np.asarray(np.floor_divide(a, b))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "fdiv": _div,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "select": np.where,
    "mulhi": _mulhi,
    "madhi": _madhi,
    "recip": _recip,
    "neg": np.negative,
    "log2": _log2,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "merge": lambda high, low, mask: high & ~mask | low & mask,
}


def _shift(a: Array, count: Array) -> Array:
    return np.asarray(np.right_shift(a, count.astype(a.dtype)))


def _cast(a: Array, dtype: Dtype) -> Array:
    return a.astype(NUMPY[dtype.name])


def _load(table: Array, index: Array, guard: Array) -> Array:
    """Raises IndexError for an index outside the table where the guard holds: the machine would read elsewhere."""
    index, guard = np.broadcast_arrays(index, guard)
    wrong = guard & ((index < 0) | (index >= len(table)))
    if wrong.any():
        raise IndexError(f"element {index[wrong][0]} of a table of {len(table)}")
    if not len(table):
        return np.zeros(index.shape, dtype=table.dtype)
    return np.where(guard, table[np.where(guard, index, 0)], 0)


def evaluate(roots: Iterable[Expr], inputs: Mapping[str, Array | int]) -> list[Array]:
    """The values of `roots` for each element of the inputs, which are broadcast against one another.

    Inputs are named as the graph's variables are; every value must lie in its variable's interval where the result
    is to be used. Tables are inputs too, each an array of its own length. Raises KeyError for a variable or a table
    without an input.
    """
    roots = list(roots)
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):  # wrap-around is the defined meaning
        for node in topological(roots):
            if node.op == "const":
                value = np.full(1, node.lo, dtype=NUMPY[node.dtype.name])
            elif node.op == "var":
                value = np.atleast_1d(np.asarray(inputs[str(node.attr)])).astype(NUMPY[node.dtype.name])
            else:
                args = [values[a.id] for a in node.args]
                if node.op == "load":
                    value = _load(np.asarray(inputs[str(node.attr)]), *args).astype(NUMPY[node.dtype.name])
                elif node.op == "cast":
                    value = _cast(args[0], node.dtype)
                elif node.op == "shr":
                    value = _shift(args[0], args[1])
                else:
                    value = np.asarray(_OPERATIONS[node.op](*args))
            values[node.id] = value
    return [values[root.id] for root in roots]
