"""PTX text to functions of instructions, with names resolved and every line number kept.

Only the shape is judged here; what an instruction means, and whether its operands fit, is `semantics`' business.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NoReturn

from .syntax import (
    TYPES,
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Parameter,
    PtxError,
    Register,
    Source,
    Special,
    Symbol,
    Type,
    Variable,
)

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<word>[%$_.A-Za-z](?:[\w.$]|::)*)
      | (?P<number>0[xX][0-9a-fA-F]+U?|0[fF][0-9a-fA-F]{8}\b|[0-9][\w.]*)
      | (?P<string>"[^"\n]*")
      | (?P<mark>[][{}()<>,;:@!|+=-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NUMBER = re.compile(r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<octal>0[0-7]+)|(?P<decimal>0|[1-9][0-9]*))U?", re.ASCII)
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}", re.ASCII)
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]"
    r"|cluster_ctarank|cluster_nctarank|laneid)"
)
_QUALIFIERS = {".visible", ".extern", ".weak", ".common"}
_DEEPEST = 50  # blocks in blocks
#: Bytes of shared memory of a block, on the largest device (CUDA C++ Programming Guide).
MOST_SHARED = 227 * 1024
_MOST_REGISTERS = 100_000  # of one declaration: a guard against %r<4000000000>


def parse(text: str) -> Source:
    """Parse one module. Raises PtxError."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.starts: list[int] = []
        self.lines = [match.end() for match in re.finditer("\n", text)]
        at = 0
        for match in _TOKEN.finditer(text):
            if match.start() != at:
                break
            at = match.end()
            if match.lastgroup != "skip":
                self.tokens.append(match.group())
                self.starts.append(match.start())
        if at != len(text):
            raise PtxError(f"no PTX begins with {text[at]!r}", self._line_of(at))
        self.tokens.append("")  # the end
        self.starts.append(len(text))
        self.at = 0
        self.source = Source()
        self.function = Function("", False, 0)
        self.scopes: list[dict[str, Register | Parameter | Symbol]] = []
        self.directives: dict[str, Callable[[], None]] = {
            ".version": self._version,
            ".target": self._target,
            ".address_size": self._address_size,
            ".entry": lambda: self._function(entry=True),
            ".func": lambda: self._function(entry=False),
            ".global": lambda: self._variable("global"),
            ".const": lambda: self._variable("const"),
        }

    # Tokens

    def _line_of(self, position: int) -> int:
        return bisect_right(self.lines, position) + 1

    def _fail(self, reason: str) -> NoReturn:
        raise PtxError(reason, self._line_of(self.starts[min(self.at, len(self.starts) - 1)]))

    def _next(self) -> str:
        token = self.tokens[self.at]
        if not token:
            self._fail("the text ends too early")
        self.at += 1
        return token

    def _take(self, token: str) -> bool:
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(f"expected {token!r}, found {self.tokens[self.at] or 'the end'!r}")

    def _name(self) -> str:
        token = self._next()
        if not re.match(r"[%$_A-Za-z]", token):
            self.at -= 1
            self._fail(f"expected a name, found {token!r}")
        return token

    def _integer(self) -> int:
        negative = self._take("-")
        token = self._next()
        match = _NUMBER.fullmatch(token)
        if match is None:
            self.at -= 1
            self._fail(f"expected an integer, found {token!r}")
        digits, base = (match["hex"], 16) if match["hex"] else (match["octal"], 8) if match["octal"] else (token, 10)
        value = int(digits.rstrip("U") if base == 10 else digits, base)
        return -value if negative else value

    def _type(self) -> Type:
        token = self._next()
        kind = TYPES.get(token[1:]) if token.startswith(".") else None
        if kind is None:
            self.at -= 1
            self._fail(f"expected a type, found {token!r}")
        return kind

    # The module

    def module(self) -> Source:
        while self.tokens[self.at]:
            if self.tokens[self.at] in _QUALIFIERS:
                self.at += 1
                continue
            directive = self.directives.get(self.tokens[self.at])
            if directive is None:
                self._fail(f"{self.tokens[self.at]!r} cannot stand here")
            self.at += 1
            directive()
        if not self.source.version or not self.source.target:
            raise PtxError("a module begins with .version and .target", 1)
        return self.source

    def _version(self) -> None:
        self.source.version = self._next()

    def _target(self) -> None:
        self.source.target = self._next()
        while self._take(","):
            self._next()

    def _address_size(self) -> None:
        if self._integer() != 64:
            self._fail("only 64-bit addresses are interpreted")

    def _variable(self, space: str) -> None:
        self._alignment()
        kind = self._type()
        name = self._name()
        count: int | None = None
        if self._take("["):
            count = None if self.tokens[self.at] == "]" else self._integer()
            self._expect("]")
            shaped = True
        else:
            count, shaped = 1, False
        values: list[int] = []
        if self._take("="):
            values = self._initializer() if shaped else [self._integer()]
        self._expect(";")
        count = len(values) if count is None else count
        if len(values) > count:
            self._fail(f"{name} has more values than elements")
        mask = (1 << kind.bits) - 1
        data = b"".join((value & mask).to_bytes(kind.bytes, "little") for value in values)
        self.source.variables[name] = Variable(name, space, data.ljust(count * kind.bytes, b"\0"), kind.bytes)

    def _initializer(self) -> list[int]:
        self._expect("{")
        values = [self._integer()]
        while self._take(","):
            values.append(self._integer())
        self._expect("}")
        return values

    def _alignment(self) -> None:
        if self._take(".align"):
            self._integer()

    # Functions

    def _function(self, entry: bool) -> None:
        line = self._line_of(self.starts[self.at - 1])
        self.function = function = Function("", entry, line)
        self.scopes = [{}]
        if not entry and self.tokens[self.at] == "(":
            function.results = self._parameters()
        function.name = self._name()
        if self.tokens[self.at] == "(":
            function.parameters = self._parameters()
        self._bounds()
        if self._take(";"):
            return  # a declaration; the definition follows
        if self.source.functions.get(function.name) is not None:
            self._fail(f"{function.name} is defined twice")
        self.source.functions[function.name] = function
        self._expect("{")
        self._block()

    def _bounds(self) -> None:
        function = self.function
        while True:
            if self._take(".maxntid"):
                function.maximal_threads = self._triple()
            elif self._take(".reqntid"):
                function.required_threads = self._triple()
            elif self._take(".reqnctapercluster"):
                function.cluster = self._triple()
            elif self._take(".explicitcluster"):
                function.explicit_cluster = True
            elif self._take(".minnctapersm") or self._take(".maxnreg") or self._take(".maxclusterrank"):
                self._integer()
            elif not self._take(".noreturn"):
                return

    def _triple(self) -> tuple[int, int, int]:
        values = [self._integer()]
        while self._take(","):
            values.append(self._integer())
        x, y, z = [*values, 1, 1][:3]
        return x, y, z

    def _parameters(self) -> list[Parameter]:
        self._expect("(")
        found: list[Parameter] = []
        if self._take(")"):
            return found
        while True:
            if self._take(".reg"):
                kind = self._type()
                name = self._name()
                register = self._register(name, kind)
                found.append(Parameter(name, -1, kind.bytes, register))
            else:
                self._expect(".param")
                found.append(self._parameter())
            if not self._take(","):
                self._expect(")")
                return found

    def _parameter(self) -> Parameter:
        self._alignment()
        kind = self._type()
        if self._take(".ptr"):
            if self.tokens[self.at] in (".global", ".const", ".shared", ".local"):
                self.at += 1
            self._alignment()
        name = self._name()
        count = 1
        if self._take("["):
            count = self._integer()
            self._expect("]")
        parameter = Parameter(name, len(self.function.spaces), kind.bytes * count)
        self.function.spaces.append(parameter.size)
        self._declare(name, parameter)
        return parameter

    def _declare(self, name: str, what: Register | Parameter) -> None:
        if name in self.scopes[-1]:
            self._fail(f"{name} is declared twice")
        self.scopes[-1][name] = what

    def _register(self, name: str, kind: Type) -> Register:
        register = Register(len(self.function.registers), kind.bits)
        self.function.registers.append(kind.bits)
        self._declare(name, register)
        return register

    def _block(self, nested: bool = False) -> None:
        """Statements up to the closing brace, in a scope of their own, also for labels where it is `nested`."""
        if len(self.scopes) > _DEEPEST:
            self._fail("blocks are nested too deeply")
        self.scopes.append({name: Symbol(f"{name}@{at}") for name, at in self._labels()} if nested else {})
        while not self._take("}"):
            token = self.tokens[self.at]
            if token == "{":
                self.at += 1
                self._block(nested=True)
            elif token.startswith("."):
                self.at += 1
                self._local(token)
            elif self.tokens[self.at + 1 : self.at + 2] == [":"]:
                symbol = self.scopes[-1].get(token)
                label = symbol.name if isinstance(symbol, Symbol) else token
                if label in self.function.labels:
                    self._fail(f"label {token} stands twice")
                self.function.labels[label] = len(self.function.body)
                self.at += 2
            else:
                self._instruction()
        self.scopes.pop()

    def _labels(self) -> Iterator[tuple[str, int]]:
        """The labels of the block that begins here, each with its place; not those of blocks in it."""
        depth = 0
        for at in range(self.at, len(self.tokens) - 1):
            depth += {"{": 1, "}": -1}.get(self.tokens[at], 0)
            if depth < 0:
                return
            if depth == 0 and self.tokens[at + 1] == ":":
                yield self.tokens[at], at

    def _local(self, directive: str) -> None:
        if directive == ".reg":
            kind = self._type()
            while True:
                name = self._name()
                if self._take("<"):
                    count = self._integer()
                    if count > _MOST_REGISTERS:
                        self._fail(f"{count} registers are too many")
                    for number in range(count):
                        self._register(f"{name}{number}", kind)
                    self._expect(">")
                else:
                    self._register(name, kind)
                if not self._take(","):
                    break
        elif directive == ".param":
            self._parameter()
        elif directive == ".shared":
            self._shared()
        elif directive == ".pragma":
            self._next()
        elif directive == ".loc":
            # The only directive without a semicolon; its line ends it.
            line = self._line_of(self.starts[self.at - 1])
            while self.tokens[self.at] and self._line_of(self.starts[self.at]) == line:
                self.at += 1
            return
        else:
            self.at -= 1
            self._fail(f"{directive} is not interpreted")
        self._expect(";")

    def _shared(self) -> None:
        """A variable in the block's shared memory; its address is an offset there."""
        align = self._integer() if self._take(".align") else 0
        kind = self._type()
        name = self._name()
        count = 1
        if self._take("["):
            count = self._integer()
            self._expect("]")
        if name in self.source.shared:
            self._fail(f"{name} is declared twice")
        align = max(align, kind.bytes)
        offset = -(-self.source.shared_bytes // align) * align
        self.source.shared[name] = offset
        self.source.shared_bytes = offset + count * kind.bytes
        if self.source.shared_bytes > MOST_SHARED:
            self._fail(f"a block has at most {MOST_SHARED} bytes of shared memory")

    def _instruction(self) -> None:
        start = self.starts[self.at]
        line = self._line_of(start)
        guard: Register | Not | None = None
        if self._take("@"):
            operand = self._predicate() if self._take("!") else self._resolve(self._name())
            if not isinstance(operand, Register | Not):
                self._fail("expected a predicate")
            guard = operand
        opcode, *modifiers = self._name().split(".")
        operands: list[Operand] = []
        if self.tokens[self.at] != ";":
            operands.append(self._operand())
            while self._take(","):
                operands.append(self._operand())
        text = " ".join(self.text[start : self.starts[self.at]].split())
        self._expect(";")
        self.function.body.append(Instruction(line, text, guard, opcode, tuple(modifiers), tuple(operands)))

    def _predicate(self) -> Not:
        operand = self._resolve(self._name())
        if not isinstance(operand, Register):
            self._fail("expected a predicate")
        return Not(operand)

    def _simple(self) -> Operand:
        """An operand that may stand in a group: a literal or a name."""
        token = self.tokens[self.at]
        if _FLOAT.fullmatch(token):
            return Immediate(int(self._next()[2:], 16), floating=True)
        if token == "-" or token[:1].isdigit():
            return Immediate(self._integer())
        return self._resolve(self._name())

    def _operand(self) -> Operand:
        token = self.tokens[self.at]
        if token == "-" or token[:1].isdigit():
            return self._simple()
        if token in ("{", "("):
            self.at += 1
            closing = "}" if token == "{" else ")"
            items: list[Operand] = []
            if not self._take(closing):
                items.append(self._simple())
                while self._take(","):
                    items.append(self._simple())
                self._expect(closing)
            return Group(tuple(items))
        if token == "[":
            self.at += 1
            return self._address()
        if token == "!":
            self.at += 1
            return self._predicate()
        first = self._resolve(self._name())
        if self._take("|"):
            second = self._resolve(self._name())
            if not isinstance(first, Register) or not isinstance(second, Register):
                self._fail("expected two predicates")
            return Pair(first, second)
        return first

    def _address(self) -> Address:
        base: Register | Symbol | Parameter | None = None
        offset = 0
        token = self.tokens[self.at]
        if token == "-" or token[:1].isdigit():
            offset = self._integer()
        else:
            operand = self._resolve(self._name())
            if isinstance(operand, Special):
                self._fail("expected an address")
            base = operand
            if self._take("+") or self.tokens[self.at] == "-":
                offset = self._integer()
        self._expect("]")
        return Address(base, offset)

    def _resolve(self, name: str) -> Register | Parameter | Special | Symbol:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name.startswith("%"):
            if _SPECIAL.fullmatch(name):
                return Special(name)
            self.at -= 1
            self._fail(f"{name} is not declared, or is a special register that is not interpreted")
        return Symbol(name)
