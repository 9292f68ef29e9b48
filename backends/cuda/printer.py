"""Expressions as C++: one declaration for each value that is used twice, the rest in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from sched_compiler.expr import PRED, S32, S64, U32, U64, Dtype, Expr, may_wrap, topological

#: Types without <cstdint>, which NVRTC lacks. `long` differs between platforms; these do not.
CTYPE: dict[str, str] = {
    PRED.name: "bool",
    U32.name: "unsigned",
    S32.name: "int",
    U64.name: "unsigned long long",
    S64.name: "long long",
}
_UNSIGNED = {S32.name: U32, S64.name: U64}
_INFIX = {
    "div": "/", "mod": "%", "lt": "<", "le": "<=", "eq": "==", "and": "&&", "or": "||", "xor": "!=", "shr": ">>",
    "band": "&", "bor": "|", "bxor": "^",
}  # fmt: skip
#: Operations that are functions of the header's.
CALLED = ("mulhi", "madhi", "neg", "log2", "merge")
_WRAPPING = {"add": "+", "sub": "-", "mul": "*"}
#: A value used once is written in place while the text stays shorter than this.
IN_PLACE = 72


def literal(value: int, dtype: Dtype) -> str:
    """A literal of exactly this type."""
    if dtype is PRED:
        return "true" if value else "false"
    if value == dtype.lo and dtype.signed:  # the most negative number is no literal in C++
        return f"({literal(value + 1, dtype)} - 1)"
    if dtype is U32 and U32.hi - 2**16 < value < U32.hi:  # added instead of subtracting
        return f"(0u - {U32.hi + 1 - value}u)"
    return str(value) + {U32.name: "u", S32.name: "", U64.name: "ull", S64.name: "ll"}[dtype.name]


def operation(node: Expr, args: Sequence[str]) -> str:
    """The node's operation on its operands, which are names, literals or in parentheses."""
    if node.op in _WRAPPING:
        sign = _WRAPPING[node.op]
        if node.dtype.signed and may_wrap(node):  # in C++ that must not happen, even in an arm that is not taken
            unsigned = CTYPE[_UNSIGNED[node.dtype.name].name]
            return f"({CTYPE[node.dtype.name]})(({unsigned}){args[0]} {sign} ({unsigned}){args[1]})"
        return f"{args[0]} {sign} {args[1]}"
    if node.op in _INFIX:
        return f"{args[0]} {_INFIX[node.op]} {args[1]}"
    if node.op == "not":
        return f"!{args[0]}"
    if node.op == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if node.op == "cast":
        return f"({CTYPE[node.dtype.name]}){args[0]}"
    if node.op in CALLED:
        return f"detail::{node.op}({', '.join(args)})"
    assert node.op in ("min", "max"), node.op
    return f"{args[0]} {'<' if node.op == 'min' else '>'} {args[1]} ? {args[0]} : {args[1]}"


class Printer:
    """Prints expressions, given the texts of their inputs, by name, and of values that exist already, by node id."""

    def __init__(self, inputs: Mapping[str, str], names: Mapping[int, str] | None = None, prefix: str = "t") -> None:
        self.inputs = inputs
        self.names = dict(names or {})
        self.prefix = prefix
        self._count = 0

    def _load(self, node: Expr, args: Sequence[str]) -> str:
        element = f"{self.inputs[str(node.attr)]}[{args[0]}]"
        return element if node.args[1].value == 1 else f"{args[1]} ? {element} : {literal(0, node.dtype)}"

    def print(self, roots: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """The declarations that `roots` need, and the text of each root."""
        order = topological(roots, self.names)
        uses = Counter(chain(roots, *(node.args for node in order)))
        repeated = {a for node in order if node.op in ("min", "max") for a in node.args}  # written twice each
        operands: dict[Expr, str] = {}  # as an operand of another operation
        alone: dict[Expr, str] = {}  # as a whole expression, where that is shorter
        lines: list[str] = []
        for node in order:
            if node.id in self.names:
                operands[node] = self.names[node.id]
            elif node.op == "const":
                operands[node] = literal(node.lo, node.dtype)
            elif node.op == "var":
                operands[node] = self.inputs[str(node.attr)]
            else:
                args = list(map(operands.__getitem__, node.args))
                text = self._load(node, args) if node.op == "load" else operation(node, args)
                if uses[node] > 1 or node in repeated or len(text) > IN_PLACE:
                    name = f"{self.prefix}{self._count}"
                    self._count += 1
                    lines.append(f"const {CTYPE[node.dtype.name]} {name} = {text};")
                    operands[node] = name
                else:
                    alone[node] = text
                    operands[node] = text if node.op in CALLED else f"({text})"
        return lines, [alone.get(r, operands[r]) for r in roots]
