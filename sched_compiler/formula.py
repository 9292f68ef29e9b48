"""The expression language of specs: Python-like integer arithmetic, parsed, never evaluated as Python."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

BinaryOp = Literal["+", "-", "*", "//", "%", "min", "max", "ceil_div", "<", "<=", ">", ">=", "==", "!=", "and", "or"]


@dataclass(frozen=True, slots=True)
class Number:
    value: int
    column: int = 0  # 0-based offset of the node's first character within the formula's text


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    column: int = 0


@dataclass(frozen=True, slots=True)
class Unary:
    op: Literal["-", "not"]
    operand: Formula
    column: int = 0


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    left: Formula
    right: Formula
    column: int = 0  # of the operator (of the function's name for min, max, ceil_div)


@dataclass(frozen=True, slots=True)
class Conditional:
    condition: Formula
    then: Formula
    otherwise: Formula
    column: int = 0  # of the word `if`


Formula: TypeAlias = Number | Name | Unary | Binary | Conditional

MAX_LENGTH = 1000  # characters of a formula
MAX_DEPTH = 100  # nodes from the root of a formula to a leaf, and nested parentheses
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

FUNCTIONS = ("min", "max", "ceil_div")
#: Words that mean something in a formula, so that no parameter can have them as its name.
RESERVED = frozenset((*FUNCTIONS, "and", "or", "not", "if", "else"))
COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))

# Binding powers, as Python orders them; a comparison chain and `not` stand between `and` and `+`.
_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _ATOM = range(1, 10)
_POWER: dict[str, int] = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(COMPARISONS, _COMPARE),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "//", "%"), _PRODUCT),
}
_TOKENS = re.compile(
    r"\s*(?:(?P<number>[0-9][A-Za-z0-9_.]*)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op>\*\*|//|<<|>>|&&|\|\||[<>=!]=|[-+*%<>(),])|(?P<other>\S))"
)
#: The same where formulas are printed: names may begin with `$`, and have dots inside.
_PRINTED = re.compile(_TOKENS.pattern.replace("[A-Za-z_][A-Za-z0-9_]*", "[A-Za-z_$][A-Za-z0-9_.]*"))
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil_div": lambda left, right: -(-left // right),
    "min": min,
    "max": max,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda left, right: left and right,
    "or": lambda left, right: left or right,
}
_MENDS = {
    "/": "write `//` for floor division",
    "**": "write the product out: `a * a`",
    "<<": "multiply by the power of two: `a * 8`",
    ">>": "divide by the power of two: `a // 8`",
    "&": "write `and` for conditions, `a % 8` for `a & 7`",
    "&&": "write `and`",
    "|": "write `or` for conditions",
    "||": "write `or`",
    "!": "write `not`",
    "^": "write the product out, as `a * a`; there are no bit operations",
    "~": "write `-a - 1`",
    "=": "write `==` to compare",
    "?": "write `a if condition else b`",
    ":": "write `a if condition else b`",
    "[": "formulas have no tables; use parentheses to group",
    "{": "use parentheses to group",
}


class FormulaError(ValueError):
    """A formula that cannot be parsed; `column` is the 0-based offset of the fault in the formula's text."""

    def __init__(
        self,
        message: str,
        column: int,
        found: str | None = None,
        expected: str | None = None,
        mend: str | None = None,
    ) -> None:
        super().__init__(message, column, found, expected, mend)
        self.message = message
        self.column = column
        self.found = found
        self.expected = expected
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.message} (at offset {self.column})"


@lru_cache(maxsize=4096, typed=True)
def parse(text: int | str) -> Formula:
    """The formula that `text` writes; an integer stands for itself. Raises `FormulaError`.

    A minus sign before a number is part of the number, `min` and `max` of several arguments are nested to the left,
    and a chain of comparisons `a < b < c` is `a < b and b < c`. No formula is deeper than `MAX_DEPTH` nodes.
    """
    if isinstance(text, int):
        return Number(_in_range(int(text), 0))
    if len(text) > MAX_LENGTH:
        found = f"{len(text)} characters"
        message = f"the formula is longer than {MAX_LENGTH} characters"
        raise FormulaError(message, 0, found, f"at most {MAX_LENGTH} characters")
    return _Parser(text).whole()


@lru_cache(maxsize=4096)
def parse_printed(text: str) -> Formula:
    """A formula of a manifest, which may be longer and deeper than what users write, and name `$workers` or `$0`.

    Raises `FormulaError`, also for what has no value before a launch: elements of tables, operations on bits.
    """
    return _Parser(text, _PRINTED, 2 * MAX_DEPTH).whole()


def evaluate(formula: Formula, value: Callable[[str], int]) -> int:
    """The exact value, given that of each name; of a conditional, only the arm that is taken. Truth is 0 or 1.

    Raises ZeroDivisionError, and what `value` raises.
    """
    match formula:
        case Number():
            return formula.value
        case Name():
            return value(formula.name)
        case Unary():
            operand = evaluate(formula.operand, value)
            return -operand if formula.op == "-" else int(not operand)
        case Binary():
            return int(_OPERATIONS[formula.op](evaluate(formula.left, value), evaluate(formula.right, value)))
        case Conditional():
            taken = formula.then if evaluate(formula.condition, value) else formula.otherwise
            return evaluate(taken, value)


def _in_range(value: int, column: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        found, expected = str(value), "an integer from -2^63 to 2^63-1"
        raise FormulaError("the integer does not fit 64 bits", column, found, expected)
    return value


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # number, word, op, end
    text: str
    column: int
    fault: FormulaError | None = None  # raised once the parser gets here, so that the first fault is the one given

    def __str__(self) -> str:
        return "the end of the formula" if self.kind == "end" else f"`{self.text}`"


def _tokens(text: str, pattern: re.Pattern[str]) -> list[_Token]:
    result: list[_Token] = []
    position = 0
    while match := pattern.match(text, position):
        kind = match.lastgroup
        assert kind is not None  # every alternative of the pattern is named
        part, column = match[kind], match.start(kind)
        fault = None
        if kind == "other" or part in _MENDS:
            expected = "integers, names, `+ - * // %`, comparisons, `and or not`, `a if c else b`, min, max, ceil_div"
            message = f"`{part}` cannot stand in a formula"
            fault = FormulaError(message, column, f"`{part}`", expected, _MENDS.get(part))
        elif kind == "number" and not part.isdecimal():
            fault = _number_fault(part, column)
        result.append(_Token(kind, part, column, fault))
        position = match.end()
    result.append(_Token("end", "", len(text.rstrip())))
    return result


def _number_fault(text: str, column: int) -> FormulaError:
    mend = None
    if "_" in text and text.replace("_", "").isdecimal():
        mend = f"write {text.replace('_', '')}"
    elif re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        mend = f"write {int(text, 16)}"
    elif "." in text:
        mend = "formulas are in whole numbers"
    return FormulaError("not a decimal integer", column, f"`{text}`", "a decimal integer or a name", mend)


class _Parser:
    """A Pratt parser; every method returns a node and the number of nodes from it down to its deepest leaf."""

    def __init__(self, text: str, pattern: re.Pattern[str] = _TOKENS, most: int = MAX_DEPTH) -> None:
        self._tokens = _tokens(text, pattern)
        self._most = most
        self._next = 0
        self._nesting = 0

    def whole(self) -> Formula:
        node, _ = self._expression(0)
        token = self._peek()
        if token.kind != "end":
            mend = None
            if token.kind in ("number", "word"):
                mend = "an operator is missing between the two"
            elif token.text == ")":
                mend = "remove it, or add the `(` that it closes"
            raise FormulaError("the formula should end here", token.column, str(token), "an operator or the end", mend)
        return node

    def _peek(self) -> _Token:
        token = self._tokens[self._next]
        if token.fault is not None:
            raise token.fault
        return token

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, text: str, mend: str | None = None) -> None:
        token = self._peek()
        if token.kind == "end" or token.text != text:
            raise FormulaError(f"`{text}` is missing here", token.column, str(token), f"`{text}`", mend)
        self._next += 1

    def _grown(self, node: Formula, *depths: int) -> tuple[Formula, int]:
        depth = max(depths) + 1
        if depth > self._most:
            raise self._too_deep(node.column)
        return node, depth

    def _too_deep(self, column: int) -> FormulaError:
        message = f"the formula is nested more than {self._most} levels deep"
        return FormulaError(message, column, expected=f"at most {self._most} levels")

    def _expression(self, minimum: int) -> tuple[Formula, int]:
        """What binds more tightly than `minimum`."""
        self._nesting += 1
        if self._nesting > self._most:
            raise self._too_deep(self._peek().column)
        left, depth = self._prefix()
        while True:
            token = self._peek()
            if token.text == "if" and minimum < _CONDITIONAL:
                self._take()
                condition, first = self._expression(_CONDITIONAL)
                self._expect("else", "a conditional is written `a if condition else b`")
                otherwise, second = self._expression(0)
                left, depth = self._grown(Conditional(condition, left, otherwise, token.column), depth, first, second)
                continue
            power = _POWER.get(token.text, 0)
            if power <= minimum:
                break
            if power == _COMPARE:
                left, depth = self._comparisons(left, depth)
                continue
            self._take()
            right, height = self._expression(power)
            op: BinaryOp = token.text  # type: ignore[assignment]
            left, depth = self._grown(Binary(op, left, right, token.column), depth, height)
        self._nesting -= 1
        return left, depth

    def _comparisons(self, left: Formula, depth: int) -> tuple[Formula, int]:
        """`a < b < c`: every neighbour is compared with the next, and all must hold."""
        result: tuple[Formula, int] | None = None
        while self._peek().text in COMPARISONS:
            token = self._take()
            right, height = self._expression(_COMPARE)
            op: BinaryOp = token.text  # type: ignore[assignment]
            link = self._grown(Binary(op, left, right, token.column), depth, height)
            if result is None:
                result = link
            else:
                result = self._grown(Binary("and", result[0], link[0], token.column), result[1], link[1])
            left, depth = right, height
        assert result is not None  # called at a comparison
        return result

    def _prefix(self) -> tuple[Formula, int]:
        token = self._take()
        if token.kind == "number":
            return Number(_in_range(self._integer(token), token.column), token.column), 1
        if token.text == "-":
            return self._negation(token)
        if token.text == "not":
            operand, depth = self._expression(_NOT - 1)
            return self._grown(Unary("not", operand, token.column), depth)
        if token.text == "(":
            node, depth = self._expression(0)
            self._expect(")")
            return node, depth
        if token.text in FUNCTIONS:
            return self._call(token)
        if token.kind == "word" and token.text not in RESERVED:
            if self._peek().text == "(":
                message = f"there is no function `{token.text}`"
                raise FormulaError(message, token.column, f"`{token.text}`", "min, max or ceil_div")
            return Name(token.text, token.column), 1
        mend = "a plus sign before a value has no effect: remove it" if token.text == "+" else None
        raise FormulaError("a value is missing here", token.column, str(token), "an integer, a name or `(`", mend)

    @staticmethod
    def _integer(token: _Token) -> int:
        digits = token.text.lstrip("0")
        if len(digits) > 20:  # longer ones cannot fit, and very long ones are slow or refused to convert
            found = f"an integer of {len(digits)} digits"
            message = "the integer does not fit 64 bits"
            raise FormulaError(message, token.column, found, "an integer from -2^63 to 2^63-1")
        return int(digits or "0")

    def _negation(self, token: _Token) -> tuple[Formula, int]:
        following = self._peek()
        if following.kind == "number":
            self._take()
            return Number(_in_range(-self._integer(following), token.column), token.column), 1
        operand, depth = self._expression(_SIGN - 1)
        if isinstance(operand, Number):
            return Number(_in_range(-operand.value, token.column), token.column), 1
        return self._grown(Unary("-", operand, token.column), depth)

    def _call(self, token: _Token) -> tuple[Formula, int]:
        name: BinaryOp = token.text  # type: ignore[assignment]
        self._expect("(", f"{name} is a function: `{name}(a, b)`")
        arguments = [self._expression(0)]
        while self._peek().text == ",":
            self._take()
            arguments.append(self._expression(0))
        closing = self._peek()
        self._expect(")", f"close the arguments of {name}; in [...] or {{...}}, a formula with a comma must be quoted")
        exact = name == "ceil_div"
        if len(arguments) < 2 or (exact and len(arguments) > 2):
            message = f"{name} takes {'two' if exact else 'at least two'} arguments"
            found = f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}"
            raise FormulaError(message, closing.column, found, f"`{name}(a, b)`")
        node, depth = arguments[0]
        for argument, height in arguments[1:]:
            node, depth = self._grown(Binary(name, node, argument, token.column), depth, height)
        return node, depth


def names(formula: Formula) -> set[Name]:
    """Every place where the formula names something."""
    match formula:
        case Number():
            return set()
        case Name():
            return {formula}
        case Unary():
            return names(formula.operand)
        case Binary():
            return names(formula.left) | names(formula.right)
        case Conditional():
            return names(formula.condition) | names(formula.then) | names(formula.otherwise)


def is_condition(formula: Formula) -> bool:
    """Whether the formula is true or false, rather than a number."""
    match formula:
        case Unary():
            return formula.op == "not"
        case Binary():
            return formula.op in COMPARISONS or formula.op in ("and", "or")
        case Conditional():
            return is_condition(formula.then)
        case _:
            return False


def misplaced(formula: Formula, *, condition: bool = False) -> list[tuple[Formula, bool]]:
    """The operands that are conditions where numbers are needed, or the other way round (and what is needed).

    `condition` says which of the two the formula itself should be.
    """
    if is_condition(formula) != condition:
        return [(formula, condition)]
    match formula:
        case Unary():
            return misplaced(formula.operand, condition=formula.op == "not")
        case Binary():
            logical = formula.op in ("and", "or")
            return misplaced(formula.left, condition=logical) + misplaced(formula.right, condition=logical)
        case Conditional():
            return (
                misplaced(formula.condition, condition=True)
                + misplaced(formula.then, condition=condition)
                + misplaced(formula.otherwise, condition=condition)
            )
        case _:
            return []


def constant(formula: Formula) -> int | None:
    """The value of a formula without names; None where it has names, divides by zero or leaves 64 bits."""
    match formula:
        case Number():
            return formula.value
        case Unary():
            operand = constant(formula.operand)
            value = None if operand is None else (-operand if formula.op == "-" else int(not operand))
        case Binary():
            left, right = constant(formula.left), constant(formula.right)
            value = None if left is None or right is None else _apply(formula.op, left, right)
        case Conditional():
            chosen = constant(formula.condition)
            value = None if chosen is None else constant(formula.then if chosen else formula.otherwise)
        case Name():
            return None
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def _apply(op: BinaryOp, left: int, right: int) -> int | None:
    if op in ("//", "%", "ceil_div") and right == 0:
        return None
    return int(_OPERATIONS[op](left, right))


def to_text(formula: Formula) -> str:
    """The formula's canonical text: single blanks, no parentheses that are not needed.

    For every formula that `parse` returned, parsing the text gives the same formula again, columns aside.
    """
    return _written(formula)[0]


def _written(formula: Formula) -> tuple[str, int]:
    """The text, and how tightly its outermost operation binds."""
    match formula:
        case Number():
            return str(formula.value), _SIGN if formula.value < 0 else _ATOM
        case Name():
            return formula.name, _ATOM
        case Unary(op="-"):
            # `-5` would be read as a number, so that a negated number keeps its parentheses.
            return f"-{_wrapped(formula.operand, _ATOM if isinstance(formula.operand, Number) else _SIGN)}", _SIGN
        case Unary():
            return f"not {_wrapped(formula.operand, _NOT)}", _NOT
        case Binary() if formula.op in FUNCTIONS:
            return f"{formula.op}({', '.join(_arguments(formula))})", _ATOM
        case Binary():
            power = _POWER[formula.op]
            # `a < b < c` is read as a chain, so a comparison in a comparison needs parentheses on either side.
            left = _wrapped(formula.left, power + (power == _COMPARE))
            return f"{left} {formula.op} {_wrapped(formula.right, power + 1)}", power
        case Conditional():
            then = _wrapped(formula.then, _OR)
            condition = _wrapped(formula.condition, _OR)
            return f"{then} if {condition} else {_wrapped(formula.otherwise, _CONDITIONAL)}", _CONDITIONAL


def _wrapped(formula: Formula, minimum: int) -> str:
    text, power = _written(formula)
    return text if power >= minimum else f"({text})"


def _arguments(formula: Binary) -> list[str]:
    """The arguments of a call; `min(min(a, b), c)` is what `min(a, b, c)` is read as."""
    left = formula.left
    if isinstance(left, Binary) and left.op == formula.op != "ceil_div":
        return [*_arguments(left), to_text(formula.right)]
    return [to_text(left), to_text(formula.right)]
