"""PTX of a work ring: pieces for a kernel's text, printed from the protocol's steps; see `backends/ring.py`.

A piece is instructions without a scope. Its registers and labels begin with a prefix of the caller's, a different one
for each walker in a function; `registers()` declares a prefix's.
"""

from __future__ import annotations

from dataclasses import dataclass

from backends import ring as ptx
from sched_compiler.protocol import Name, Protocol, Release, Role, Step, Stop

#: Registers of a walker: its place in the ring, the addresses there, the current index, and two truths.
_WORDS = ("slots", "full", "empty", "place", "parity", "index")
_TRUTHS = ("more", "elected")
_ADDRESSES: dict[str, Name | None] = {"slots": None, "full": "full", "empty": "empty"}


def shared(protocol: Protocol, name: str) -> str:
    """The declaration of the ring's shared memory."""
    return f".shared .align 16 .b8 {name}[{ptx.size(protocol.ring)}];"


@dataclass(frozen=True, slots=True)
class Walker:
    """The pieces of one role. The grid is one-dimensional; `name` is that of the ring's shared memory.

    `counter`, `items` and `clusters` are registers with the counter's address (64 bits), the number of items, and that
    of clusters launched; `own` with the index of this cluster. The hardware source looks at `own` alone.
    """

    protocol: Protocol
    name: str
    prefix: str
    own: str
    counter: str = ""
    items: str = ""
    clusters: str = ""
    named_barrier: int = 0

    @property
    def index(self) -> str:
        """The register of the current work index, which is `ring.NONE` at the end."""
        return self._of("index")

    def registers(self) -> list[str]:
        return [
            f".reg .b32 {', '.join(map(self._of, _WORDS))};",
            f".reg .pred {', '.join(map(self._of, _TRUTHS))};",
        ]

    def initialise(self, first: str) -> list[str]:
        """For all threads of the cluster, before anything else; `first` is true in one thread of each CTA."""
        one, all_ = ptx.initialise(self.protocol)
        skip = self._of("initialised")
        return [*self._start(), f"@!{first} bra {skip};", *self._code(one), f"{skip}:", *self._code(all_)]

    def schedule(self) -> list[str]:
        """The scheduler's whole walk, for one thread of CTA 0 of the cluster."""
        role, again, drain, done = self.protocol.scheduler, *map(self._of, ("again", "drain", "done"))
        left = self._of("left")
        return [
            *self._start(),
            *self._guard(done),
            f"{again}:",
            *self._steps(role, role.loop),
            *self._advance(),
            f"setp.ne.u32 {self._of('more')}, {self.index}, {ptx.NONE};",
            f"@{self._of('more')} bra {again};",
            f".reg .b32 {left};",
            f"mov.b32 {left}, {self.protocol.ring.depth};",
            f"{drain}:",
            *self._steps(role, role.drain),
            *self._advance(),
            f"sub.u32 {left}, {left}, 1;",
            f"setp.ne.u32 {self._of('more')}, {left}, 0;",
            f"@{self._of('more')} bra {drain};",
            f"{done}:",
        ]

    def begin(self, thread: str = "0") -> list[str]:
        """The first work index; `thread` is the thread's number among its consumer's."""
        begun = self._of("begun")
        return [
            *self._start(),
            f"setp.eq.u32 {self._of('elected')}, {thread}, 0;" if thread != "0" else "",
            f"mov.b32 {self.index}, {ptx.NONE};",
            *self._guard(begun),
            f"mov.b32 {self.index}, {self.own};",
            f"{begun}:",
        ]

    def next(self, role: Role) -> list[str]:
        """The next work index of consumer `role`."""
        return [*self._steps(role, role.loop), *self._advance()]

    def _of(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def _guard(self, end: str) -> list[str]:
        """To `end` where the cluster's own index is no work."""
        if self.protocol.ring.source == "hardware":
            return []
        more = self._of("more")
        return [f"setp.lt.u32 {more}, {self.own}, {self.items};", f"@!{more} bra {end};"]

    def _start(self) -> list[str]:
        return [f"mov.b32 {self._of('place')}, 0;", f"mov.b32 {self._of('parity')}, 0;", *self._addresses()]

    def _addresses(self) -> list[str]:
        lines = [f"mov.b32 {self._of(a)}, {self.name};" for a in _ADDRESSES]
        for register, what in _ADDRESSES.items():
            start, stride = ptx.offset(self.protocol.ring, what)
            at = self._of(register)
            lines.append(f"mad.lo.u32 {at}, {self._of('place')}, {stride}, {at};")
            lines.append(f"add.u32 {at}, {at}, {start};")
        return lines

    def _advance(self) -> list[str]:
        place, parity, more = map(self._of, ("place", "parity", "more"))
        return [
            f"add.u32 {place}, {place}, 1;",
            f"setp.eq.u32 {more}, {place}, {self.protocol.ring.depth};",
            f"@{more} mov.b32 {place}, 0;",
            f"@{more} xor.b32 {parity}, {parity}, 1;",
            *self._addresses(),
        ]

    def _steps(self, role: Role, steps: tuple[Step, ...]) -> list[str]:
        lines: list[str] = []
        for n, step in enumerate(steps):
            if isinstance(step, Stop):  # always the last
                continue
            code = self._code(ptx.step(self.protocol, role, step, self.named_barrier))
            if isinstance(step, Release) and role.threads > 1:
                skip = f"{self._of('step')}{n}"
                code = [f"@!{self._of('elected')} bra {skip};", *code, f"{skip}:"]
            lines += code
        return lines

    def _code(self, code: ptx.Code) -> list[str]:
        names = {
            "slot": self._of("slots"), "counter": self.counter, "items": self.items, "clusters": self.clusters,
            **{word: self._of(word) for word in _WORDS},
        }  # fmt: skip
        lines = "\n".join(code.lines).format(**names).split("\n") if code.lines else []
        return ["{", *(f".reg {r};" for r in code.registers), *lines, "}"] if code.registers else lines
