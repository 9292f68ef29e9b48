"""Expressions as C++: one declaration for each value that is used twice, the rest in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
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
_SUFFIX = {U32.name: "u", S32.name: "", U64.name: "ull", S64.name: "ll"}
_UNSIGNED = {S32.name: U32, S64.name: U64}
_INFIX = {
    "div": "/", "mod": "%", "lt": "<", "le": "<=", "eq": "==", "and": "&&", "or": "||", "xor": "!=", "shr": ">>",
    "band": "&", "bor": "|", "bxor": "^",
}  # fmt: skip
#: Operations that are functions of the header's.
CALLED = frozenset(("mulhi", "madhi", "fdiv", "recip", "neg", "log2", "merge"))
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
    return f"{value}{_SUFFIX[dtype.name]}"


def operation(node: Expr, args: Sequence[str]) -> str:
    """The node's operation on its operands, which are names, literals or in parentheses."""
    op = node.op
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _WRAPPING:
        sign = _WRAPPING[op]
        if node.dtype.signed and may_wrap(node):  # in C++ that must not happen, even in an arm that is not taken
            unsigned = CTYPE[_UNSIGNED[node.dtype.name].name]
            return f"({CTYPE[node.dtype.name]})(({unsigned}){args[0]} {sign} ({unsigned}){args[1]})"
        return f"{args[0]} {sign} {args[1]}"
    if op == "cast":
        return f"({CTYPE[node.dtype.name]}){args[0]}"
    if op in CALLED:
        return f"detail::{op}({', '.join(args)})"
    if op == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if op == "not":
        return f"!{args[0]}"
    assert op in ("min", "max"), op
    return f"{args[0]} {'<' if op == 'min' else '>'} {args[1]} ? {args[0]} : {args[1]}"


class Printer:
    """Prints the expressions of one function, given the texts of inputs, by name, and of values there are, by node id.

    What is declared for one expression serves the next. With `choose`, the name of a macro, no choice becomes a branch.
    """

    def __init__(
        self,
        inputs: Mapping[str, str],
        names: Mapping[int, str] | None = None,
        prefix: str = "t",
        choose: str | None = None,
    ) -> None:
        self.inputs = inputs
        self.names = dict(names or {})
        self.prefix = prefix
        self.choose = choose
        self._declared: dict[str, str] = {}  # names by what they stand for

    def _load(self, node: Expr, args: Sequence[str]) -> str:
        element = f"{self.inputs[str(node.attr)]}[{args[0]}]"
        return element if node.args[1].value == 1 else f"{args[1]} ? {element} : {literal(0, node.dtype)}"

    def print(self, roots: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """The declarations that `roots` need, and the text of each root."""
        order = topological(roots, self.names)
        uses = Counter(chain(roots, *(node.args for node in order)))
        repeated = {node for node in order if uses[node] > 1}
        repeated.update(*(node.args for node in order if node.op in ("min", "max")))  # written twice each
        while True:
            lines, texts, twins = self._printed(roots, order, repeated)
            if not twins:
                return lines, texts
            repeated |= twins

    def _printed(
        self, roots: Sequence[Expr], order: Sequence[Expr], repeated: Set[Expr]
    ) -> tuple[list[str], list[str], set[Expr]]:
        """What `print` gives, `repeated` being declared, or what else has to be.

        That are the values that others are written like, told apart from them by their intervals alone.
        """
        names, choose = self.names, self.choose
        operands: dict[Expr, str] = {}  # as an operand of another operation
        alone: dict[Expr, str] = {}  # as a whole expression, where that is shorter
        lines: list[str] = []
        declared = self._declared.copy()
        in_place: dict[str, Expr] = {}
        twins: set[Expr] = set()
        for node in order:
            op, name = node.op, names.get(node.id)
            if name is not None:
                operands[node] = name
            elif op == "const":
                operands[node] = literal(node.lo, node.dtype)
            elif op == "var":
                operands[node] = self.inputs[str(node.attr)]
            else:
                args = [operands[a] for a in node.args]
                called = op in CALLED
                if op == "select" and choose is not None and node.dtype is not PRED:
                    called, text = True, f"{choose}({args[0]}, {args[1]}, {args[2]})"
                else:
                    text = self._load(node, args) if op == "load" else operation(node, args)
                name = declared.get(text)
                if name is not None:
                    operands[node] = name
                    continue
                twin = in_place.setdefault(text, node)
                if twin is not node:
                    twins.add(twin)
                if node in repeated or len(text) > IN_PLACE:
                    name = operands[node] = declared[text] = f"{self.prefix}{len(declared)}"
                    lines.append(f"const {CTYPE[node.dtype.name]} {name} = {text};")
                else:
                    alone[node] = text
                    operands[node] = text if called else f"({text})"
        if not twins:
            self._declared = declared
        return lines, [alone.get(r, operands[r]) for r in roots], twins
