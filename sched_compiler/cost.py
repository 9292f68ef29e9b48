"""What expressions cost on the machine: instructions, counted on the expressions after lowering.

The counts are those of sm_80 to sm_120 SASS, as disassembled: 32-bit operations are one instruction each, a product and
a sum are one together, 64-bit operations are made of 32-bit ones, and a division is a subroutine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from itertools import chain

from sched_compiler.expr import PRED, Expr, Graph
from sched_compiler.lower import multiplies

#: Instructions of an operation on 32 and on 64 bits. Of comparisons, the width is that of the operands.
_INSTRUCTIONS: dict[str, tuple[int, int]] = {
    "add": (1, 2), "sub": (1, 2), "neg": (1, 2), "mul": (1, 4), "mulhi": (1, 9), "madhi": (1, 9),
    "div": (16, 70), "fdiv": (6, 0), "recip": (13, 0), "mod": (18, 74), "min": (1, 3), "max": (1, 3),
    "lt": (1, 2), "le": (1, 2), "eq": (1, 2), "and": (1, 1), "or": (1, 1), "xor": (1, 1), "not": (0, 0),
    "select": (1, 2), "load": (2, 2), "shr": (1, 2), "band": (1, 2), "bor": (1, 2), "bxor": (1, 2),
    "merge": (1, 2), "log2": (2, 4),
}  # fmt: skip


def instructions(g: Graph, roots: Iterable[Expr], fixed: Container[str]) -> int:
    """An estimate of the instructions that compute `roots`, but what depends on the inputs `fixed` alone."""
    order = g.needed(roots)
    known: set[Expr] = set()
    uses = Counter(chain(*(node.args for node in order)))
    total = 0
    for node in order:
        op, args = node.op, node.args
        if node.attr in fixed if op == "var" else op != "load" and known.issuperset(args):
            known.add(node)
        elif op == "cast":
            total += node.dtype.bits > args[0].dtype.bits  # the upper half is made
        elif args:
            wide = (args[0] if node.dtype is PRED else node).dtype.bits == 64
            total += _INSTRUCTIONS[op][wide]
            if op == "add" and not wide and any(a.op == "mul" and uses[a] == 1 and a not in known for a in args):
                total -= 1
    return total


def division(x: Expr, d: Expr) -> int:
    """An estimate of x // d after lowering, the divisor a literal or known before the loop."""
    wide = x.dtype.bits == 64 or d.dtype.bits == 64
    if d.value is not None and not d.value & (d.value - 1):
        return _INSTRUCTIONS["shr"][wide]
    if not multiplies(x, d):
        return _INSTRUCTIONS["div"][wide]
    return _INSTRUCTIONS["mulhi"][wide] + 1
