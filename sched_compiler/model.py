"""Model checking of a work ring: the steps of its roles, run in every order that can matter.

Besides barriers and slots, a state keeps a clock for each thread: how far it is ordered after every other thread, every
barrier's phases and every slot's writes, by program order and by the barriers it has waited on. So two accesses that
nothing orders are found in any run in which both happen, whichever came first. Where all are ordered, the runs in which
the source gives the same answers are one partial order of the same steps, and one of them stands for all: `check`
follows one run for each sequence of answers and, where clusters share a counter, for each order of their draws. With
`every_order` it follows all interleavings instead; the tests hold the one against the other.

The threads of a consumer beyond its elected one do the same steps, and meet others at their Sync alone: one thread
stands for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import ge
from typing import NamedTuple, TypeAlias, TypeVar

from sched_compiler.protocol import (
    RESPONSE_BYTES,
    Arm,
    Fence,
    Name,
    Protocol,
    Read,
    Release,
    Request,
    Role,
    Step,
    Stop,
    Sync,
    Wait,
    draws,
    ticket,
)

Clock: TypeAlias = tuple[int, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`fault` is None where the protocol holds; otherwise it says what breaks after the steps of `trace`."""

    fault: str | None
    states: int
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.fault is None:
            return f"holds in {self.states} states"
        return "\n".join([*(f"{n:3}  {line}" for n, line in enumerate(self.trace, 1)), f"then {self.fault}"])


def check(
    protocol: Protocol, items: int, *, clusters: int = 1, every_order: bool = False, most_states: int = 1_000_000
) -> Verdict:
    """Check `protocol` for `items` work items.

    With the hardware source, `items` clusters wait in the queue besides this one, and others may take any of them. With
    the counter, `clusters` share the items, their own indices included. `every_order` finds a shortest trace to a
    fault. Raises OverflowError past `most_states`.
    """
    model = _Model(protocol, items, clusters)
    first = model.start()
    came: dict[_State, tuple[_State, str] | None] = {first: None}
    queue = deque([first])
    states = 0

    def trace(state: _State, *last: str) -> tuple[str, ...]:
        lines = [*reversed(last)]
        while (step := came[state]) is not None:
            state, label = step
            lines.append(label)
        return tuple(reversed(lines))

    while queue:
        state = queue.popleft() if every_order else queue.pop()
        states += 1
        if states > most_states:
            raise OverflowError(f"more than {most_states} states")
        moves = model.moves(state)
        if not moves:
            fault = model.fault_at_end(state)
            if fault is not None:
                return Verdict(fault, states, trace(state))
        for move in moves if every_order else _representative(moves):
            try:
                following = move.make()
            except _FaultFound as found:
                return Verdict(str(found), states, trace(state, move.label))
            if following not in came:
                came[following] = (state, move.label)
                queue.append(following)
    return Verdict(None, states)


# -- states -----------------------------------------------------------------------------------------------------------


class _FaultFound(Exception):  # noqa: N818
    """A step that breaks a property."""


class _At(NamedTuple):
    """Where a thread is. `place` numbers the ring's slots through all rounds."""

    steps: tuple[Step, ...]
    step: int = 0
    place: int = 0
    stop: int | None = None  # the place at which it ends, once the walk is over
    value: int | None = -1  # the last response read; -1 before the first
    unread: bool = False  # it has made a request whose response it has not read
    seen: tuple[int, ...] = ()
    ended: bool = False


class _Barrier(NamedTuple):
    """An mbarrier. A thread that has waited is ordered after `done`; `gathered` is of the phase that is going on."""

    pending: int
    done: Clock
    gathered: Clock
    phase: int = 0
    bytes: int = 0
    waits: tuple[tuple[int, int], ...] = ()  # the threads that waited for the phase before this one, and when
    remote: int = -1  # the last phase in which something arrived from outside the CTA


class _Slot(NamedTuple):
    armed: bool = False
    writes: int = 0
    value: int | None = None
    reads: tuple[tuple[int, int, int], ...] = ()  # a thread, the write that it read, when it fenced (0: not yet)


class _Message(NamedTuple):
    """What is on its way to a CTA: an arrival, bytes, or a response for a slot with its bytes."""

    label: str
    cta: tuple[int, int]
    barrier: int
    clock: Clock
    arrivals: int = 0
    bytes: int = 0
    slot: int | None = None
    value: int | None = None


class _State(NamedTuple):
    threads: tuple[_At, ...]
    clocks: tuple[Clock, ...]
    barriers: tuple[_Barrier, ...]
    slots: tuple[_Slot, ...]
    flight: tuple[_Message, ...]
    left: int  # clusters in the hardware queue
    counter: int


@dataclass(frozen=True, slots=True)
class _Move:
    """A step that can be taken. A `choice` is between answers of the source, or between those who draw first."""

    label: str
    choice: bool
    make: Callable[[], _State]


def _representative(moves: list[_Move]) -> list[_Move]:
    """One of the moves that are ordered whenever it matters, or else every choice."""
    return next(([m] for m in moves if not m.choice), moves)


def _put(items: tuple[_T, ...], at: int, item: _T) -> tuple[_T, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _join(a: Clock, b: Clock) -> Clock:
    return tuple(map(max, a, b))


def _covers(a: Clock, b: Clock) -> bool:
    return all(map(ge, a, b))


def _said(value: int | None) -> str:
    return "none" if value is None else f"item {value}"


# -- what is common to all states -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Thread:
    id: int
    label: str
    role: Role
    cluster: int
    cta: int
    loop: tuple[Step, ...]
    drain: tuple[Step, ...]
    partner: int | None  # the other thread of its consumer
    elected: bool


class _Model:
    """The threads of every cluster, and what each of their steps does to a state."""

    def __init__(self, protocol: Protocol, items: int, clusters: int) -> None:
        self.protocol, self.items, self.clusters = protocol, items, clusters
        self.ring = ring = protocol.ring
        self.threads: list[_Thread] = []
        for cluster in range(clusters):
            for role in protocol.roles:
                for cta in role.ctas:
                    self._add(role, cluster, cta)
        # clocks count the steps of threads, then the phases of barriers, then the writes to slots
        homes = [(k, c) for k in range(clusters) for c in range(ring.ctas)]
        self.barriers: list[tuple[Name, int, int, int]] = [
            (name, k, c, s) for name in ("full", "empty") for k, c in homes for s in range(ring.depth)
        ]
        self.barrier_ids = {b: n for n, b in enumerate(self.barriers)}
        self.slot_ids = {
            (k, c, s): n for n, (k, c, s) in enumerate((k, c, s) for k, c in homes for s in range(ring.depth))
        }
        self.readers = {
            (k, c): [t for t in self.threads if (t.cluster, t.cta) == (k, c) and Read() in t.loop] for k, c in homes
        }

    def _add(self, role: Role, cluster: int, cta: int) -> None:
        label = role.name if role is self.protocol.scheduler else f"{role.name} of CTA {cta}"
        if self.clusters > 1:
            label += f" of cluster {cluster}"
        first = len(self.threads)
        kinds = (True,) if role.threads == 1 else (True, False)
        for n, elected in enumerate(kinds):
            own = [
                tuple(s for s in steps if elected or not isinstance(s, Release)) for steps in (role.loop, role.drain)
            ]
            partner = None if len(kinds) == 1 else first + 1 - n
            name = label if elected else f"another thread of {label}"
            self.threads.append(_Thread(first + n, name, role, cluster, cta, own[0], own[1], partner, elected))

    def start(self) -> _State:
        nothing = (0,) * (len(self.threads) + len(self.barriers) + len(self.slot_ids))
        counts = {"full": self.protocol.full, "empty": self.protocol.empty}
        return _State(
            threads=tuple(_At(t.loop, ended=not self._has_own_item(t.cluster)) for t in self.threads),
            clocks=(nothing,) * len(self.threads),
            barriers=tuple(_Barrier(counts[name], nothing, nothing) for name, *_ in self.barriers),
            slots=(_Slot(),) * len(self.slot_ids),
            flight=(),
            left=self.items if self.ring.source == "hardware" else 0,
            counter=0,
        )

    def _has_own_item(self, cluster: int) -> bool:
        return self.ring.source == "hardware" or cluster < self.items

    # -- moves --

    def moves(self, state: _State) -> list[_Move]:
        found = [move for t in self.threads if not state.threads[t.id].ended for move in self._steps(state, t)]
        for n, message in enumerate(state.flight):
            found.append(_Move(message.label, False, partial(self._deliver, state, n)))
        return found

    def _steps(self, state: _State, t: _Thread) -> Iterator[_Move]:
        at = state.threads[t.id]
        step, slot = at.steps[at.step], at.place % self.ring.depth
        match step:
            case Wait(name, earlier):
                parity = (at.place // self.ring.depth + earlier) & 1
                if state.barriers[self._barrier(name, t, slot)].phase & 1 != parity:
                    yield self._move(t, f"waits for {name}[{slot}]", self._wait, state, name)
            case Arm(cta):
                yield self._move(t, f"arms full[{slot}] of CTA {cta}", self._arm, state, cta)
            case Request():
                for answer in self._answers(state):
                    what = f"requests into slot {slot}; the answer will be {_said(answer)}"
                    yield self._move(t, what, self._request, state, answer, choice=True)
            case Read():
                yield self._move(t, f"reads slot {slot}", self._read, state)
            case Fence():
                yield self._move(t, "fences its reads", self._fence, state)
            case Sync():
                if t.partner is None:
                    yield self._move(t, "meets no one", self._sync, state)
                elif t.elected and state.threads[t.partner].steps[state.threads[t.partner].step] == step:
                    yield self._move(t, "meets the others of its threads", self._sync, state)
            case Release(cta):
                yield self._move(t, f"arrives at empty[{slot}] of CTA {cta}", self._release, state, cta)
            case Stop():
                yield self._move(t, f"takes {_said(at.value)}", self._stop, state)

    @staticmethod
    def _move(t: _Thread, what: str, make: Callable[..., _State], *arguments: object, choice: bool = False) -> _Move:
        return _Move(f"{t.label} {what}", choice, partial(make, t, *arguments))

    # -- what a step does --

    def _step(self, state: _State, t: _Thread) -> tuple[_At, Clock]:
        """Where `t` is after its step, and its clock during it."""
        at, clock = state.threads[t.id], state.clocks[t.id]
        step, place = (at.step + 1, at.place) if at.step + 1 < len(at.steps) else (0, at.place + 1)
        after = at._replace(step=step, place=place, ended=place == at.stop)
        return after, _put(clock, t.id, clock[t.id] + 1)

    def _moved(self, state: _State, t: _Thread, after: _At, clock: Clock) -> _State:
        return state._replace(threads=_put(state.threads, t.id, after), clocks=_put(state.clocks, t.id, clock))

    def _slot(self, state: _State, t: _Thread, cta: int) -> int:
        return self.slot_ids[t.cluster, cta, state.threads[t.id].place % self.ring.depth]

    def _barrier(self, name: Name, t: _Thread, slot: int, cta: int | None = None) -> int:
        return self.barrier_ids[name, t.cluster, t.cta if cta is None else cta, slot]

    def _wait(self, t: _Thread, state: _State, name: Name) -> _State:
        after, clock = self._step(state, t)
        n = self._barrier(name, t, state.threads[t.id].place % self.ring.depth)
        barrier = state.barriers[n]
        waited = barrier._replace(waits=(*barrier.waits, (t.id, clock[t.id])))
        state = state._replace(barriers=_put(state.barriers, n, waited))
        return self._moved(state, t, after, _join(clock, barrier.done))

    def _arm(self, t: _Thread, state: _State, cta: int) -> _State:
        n = self._slot(state, t, cta)
        state = state._replace(slots=_put(state.slots, n, state.slots[n]._replace(armed=True)))
        return self._arrive(t, state, "full", cta, RESPONSE_BYTES)

    def _release(self, t: _Thread, state: _State, cta: int) -> _State:
        return self._arrive(t, state, "empty", cta, 0)

    def _arrive(self, t: _Thread, state: _State, name: Name, cta: int, expected: int) -> _State:
        """An arrival at the own CTA happens at once; at another, some time later."""
        after, clock = self._step(state, t)
        slot = state.threads[t.id].place % self.ring.depth
        label = f"the arrival of {t.label} reaches {name}[{slot}] of CTA {cta}"
        message = _Message(label, (t.cluster, cta), self._barrier(name, t, slot, cta), clock, 1, expected)
        state = self._moved(state, t, after, clock)
        if cta != t.cta:
            return state._replace(flight=(*state.flight, message))
        return self._arrived(state, message, remote=False)

    def _request(self, t: _Thread, state: _State, answer: int | None) -> _State:
        after, clock = self._step(state, t)
        at, place = state.threads[t.id], state.threads[t.id].place % self.ring.depth
        if at.value is None:
            raise _FaultFound("it requests after a response has told it that nothing is left")
        if at.unread:
            raise _FaultFound("it requests before it has read the response to its last request")
        for cta in range(self.ring.ctas):
            n = self._slot(state, t, cta)
            if not state.slots[n].armed:
                raise _FaultFound(f"full[{place}] of CTA {cta} does not expect the response yet")
            message = _Message(
                f"the response ({_said(answer)}) reaches slot {place} of CTA {cta}",
                (t.cluster, cta), self._barrier("full", t, place, cta), clock, 0, -RESPONSE_BYTES, n, answer,
            )  # fmt: skip
            state = state._replace(
                slots=_put(state.slots, n, state.slots[n]._replace(armed=False)), flight=(*state.flight, message)
            )
        if self.ring.source == "hardware":
            state = state._replace(left=0 if answer is None else state.left - 1)
        elif draws(self.items, self.clusters):
            last = ticket(state.counter, self.items, self.clusters).last
            state = state._replace(counter=0 if last else state.counter + 1)
        return self._moved(state, t, after._replace(unread=True), clock)

    def _answers(self, state: _State) -> list[int | None]:
        if self.ring.source == "hardware":  # the other clusters may have taken all that was left
            return [self.items - state.left + 1, None] if state.left else [None]
        if not draws(self.items, self.clusters):
            return [None]
        return [ticket(state.counter, self.items, self.clusters).index]

    def _read(self, t: _Thread, state: _State) -> _State:
        after, clock = self._step(state, t)
        n = self._slot(state, t, t.cta)
        slot, expected = state.slots[n], state.threads[t.id].place // self.ring.depth + 1
        if slot.writes < expected:
            raise _FaultFound("the response has not been written")
        if slot.writes > expected:
            raise _FaultFound("a later response has overwritten it")
        if clock[self._slot_component(n)] < slot.writes:
            raise _FaultFound("nothing orders the read after the response is written")
        state = state._replace(slots=_put(state.slots, n, slot._replace(reads=(*slot.reads, (t.id, slot.writes, 0)))))
        return self._moved(state, t, after._replace(value=slot.value, unread=False), clock)

    def _fence(self, t: _Thread, state: _State) -> _State:
        after, clock = self._step(state, t)
        slots = tuple(
            slot._replace(
                reads=tuple((r, w, when or clock[r]) if r == t.id else (r, w, when) for r, w, when in slot.reads)
            )
            for slot in state.slots
        )
        return self._moved(state._replace(slots=slots), t, after, clock)

    def _sync(self, t: _Thread, state: _State) -> _State:
        after, clock = self._step(state, t)
        if t.partner is None:
            return self._moved(state, t, after, clock)
        other = self.threads[t.partner]
        other_after, other_clock = self._step(state, other)
        met = _join(clock, other_clock)
        return self._moved(self._moved(state, t, after, met), other, other_after, met)

    def _stop(self, t: _Thread, state: _State) -> _State:
        after, clock = self._step(state, t)
        at = state.threads[t.id]
        if at.value is not None:
            after = after._replace(seen=(*at.seen, at.value))
        elif t.drain:
            place = at.place + 1
            after = after._replace(steps=t.drain, step=0, place=place, stop=place + self.ring.depth)
        else:
            after = after._replace(ended=True)
        return self._moved(state, t, after, clock)

    # -- what arrives --

    def _deliver(self, state: _State, n: int) -> _State:
        message = state.flight[n]
        state = state._replace(flight=(*state.flight[:n], *state.flight[n + 1 :]))
        if all(state.threads[t.id].ended for t in self.threads if (t.cluster, t.cta) == message.cta):
            raise _FaultFound("the CTA has ended")
        if message.slot is not None:
            slot = state.slots[message.slot]
            for reader in self.readers[message.cta] if slot.writes else ():
                self._check_read(slot, reader, message)
            written = _Slot(slot.armed, slot.writes + 1, message.value)
            clock = _put(message.clock, self._slot_component(message.slot), written.writes)
            state = state._replace(slots=_put(state.slots, message.slot, written))
            message = message._replace(clock=clock)
        return self._arrived(state, message, remote=True)

    @staticmethod
    def _check_read(slot: _Slot, reader: _Thread, message: _Message) -> None:
        """That `message` may overwrite the response that `reader` was to read."""
        fenced = next((when for r, write, when in slot.reads if (r, write) == (reader.id, slot.writes)), None)
        if fenced is None:
            raise _FaultFound(f"it overwrites a response that {reader.label} has not read")
        if fenced == 0:
            raise _FaultFound(f"it overwrites a response that {reader.label} has read without a fence since")
        if message.clock[reader.id] < fenced:
            raise _FaultFound(f"nothing orders it after the read and the fence of {reader.label}")

    def _arrived(self, state: _State, message: _Message, *, remote: bool) -> _State:
        barrier, (name, _, cta, slot) = state.barriers[message.barrier], self.barriers[message.barrier]
        where = f"{name}[{slot}] of CTA {cta}"
        if not _covers(message.clock, barrier.done):
            raise _FaultFound(f"nothing orders it after the phase before, so it may count for that phase of {where}")
        if message.arrivals > barrier.pending:
            raise _FaultFound(f"{where} has had all arrivals of this phase")
        # an arrival that expects bytes is relaxed: it publishes nothing
        gathered = barrier.gathered if message.bytes > 0 else _join(barrier.gathered, message.clock)
        barrier = barrier._replace(
            pending=barrier.pending - message.arrivals,
            bytes=barrier.bytes + message.bytes,
            gathered=gathered,
            remote=barrier.phase if remote else barrier.remote,
        )
        if barrier.pending == 0 and barrier.bytes == 0:
            for waiter, when in barrier.waits:
                if gathered[waiter] < when:
                    raise _FaultFound(f"{where} completes its next phase, and {self.threads[waiter].label} may miss it")
            nothing = (0,) * len(gathered)
            done = _put(gathered, len(self.threads) + message.barrier, barrier.phase + 1)
            count = self.protocol.full if name == "full" else self.protocol.empty
            barrier = _Barrier(count, done, nothing, barrier.phase + 1, remote=barrier.remote)
        return state._replace(barriers=_put(state.barriers, message.barrier, barrier))

    def _slot_component(self, slot: int) -> int:
        return len(self.threads) + len(self.barriers) + slot

    # -- the end --

    def fault_at_end(self, state: _State) -> str | None:
        waiting = [self._waiting(t, state.threads[t.id]) for t in self.threads if not state.threads[t.id].ended]
        if waiting:
            return f"deadlock: {'; '.join(waiting)}"
        for n, (barrier, (name, cluster, cta, slot)) in enumerate(zip(state.barriers, self.barriers, strict=True)):
            known = max(
                state.clocks[t.id][len(self.threads) + n] for t in self.threads if (t.cluster, t.cta) == (cluster, cta)
            )
            if barrier.remote >= known:
                return f"CTA {cta} may end before all that is sent to its {name}[{slot}] has arrived"
        given: list[int] = []
        for cluster in range(self.clusters):
            seen = [state.threads[t.id].seen for t in self.threads if t.cluster == cluster]
            if len(set(seen)) > 1:
                return f"the roles of a cluster saw different items: {seen}"
            given += [cluster, *seen[0]] if self._has_own_item(cluster) else []
        expected = len(given) if self.ring.source == "hardware" else self.items
        if sorted(given) != list(range(expected)):
            return f"the items given are {given}"
        return None if state.counter == 0 else f"the counter is left at {state.counter}"

    def _waiting(self, t: _Thread, at: _At) -> str:
        step = at.steps[at.step]
        what = f"{step.barrier}[{at.place % self.ring.depth}]" if isinstance(step, Wait) else "its other threads"
        return f"{t.label} waits for {what}"
