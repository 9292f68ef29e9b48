"""Threads that wait for one another: barriers of a block, a warp and a cluster, mbarriers, and the queue of clusters.

A thread that must wait is set aside until no other can go on; then all those go on whose wait is over. Nothing happens
late here: a response, and bytes that are on their way, arrive at once, which hardware may do too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .access import active_addresses, address_of, fault_of, values_of
from .arithmetic import UNSIGNED
from .memory import Array
from .operands import Control, Frame, Mask, Operands, Step, write
from .syntax import Group, Immediate, Symbol

WARP = 32
#: Bytes of a response of the queue: the first CTA's id along x, y and z, and whether a cluster was cancelled.
_RESPONSE = 16
_ORDER = frozenset(("relaxed", "acquire", "release", "cta", "cluster", "aligned"))


@dataclass
class Threads:
    """The threads of a launch: `block` of each block, in clusters of `cluster` blocks, and what is between them."""

    lanes: int
    block: int = 1
    cluster: int = 1
    first: int = 0  # the first cluster
    answers: Mapping[int, Sequence[int]] = field(default_factory=dict)  # CTA ids that the queue answers a cluster
    none: int = 0xFFFFFFFF  # what stands there where nothing is left
    ended: Array = field(init=False)
    arrived: Array = field(init=False)  # at barriers of the cluster, how often
    asked: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ended = np.zeros(self.lanes, dtype=np.bool_)
        self.arrived = np.zeros(self.lanes, dtype=np.int64)

    def group(self, kind: str) -> Array:
        """The number of each thread's block, warp or cluster."""
        lanes = np.arange(self.lanes)
        if kind == "warp":
            warps = -(-self.block // WARP)
            return lanes // self.block * warps + lanes % self.block // WARP
        return lanes // (self.block * (self.cluster if kind == "cluster" else 1))

    def answer(self, cluster: int) -> int | None:
        """The next CTA id of the queue; None where nothing is left. Raises LookupError for one request too many."""
        number = self.asked.get(cluster, 0)
        self.asked[cluster] = number + 1
        found = self.answers.get(cluster, ())[number]
        return None if found == self.none else found


# -- barriers of groups -----------------------------------------------------------------------------------------------


def meet(r: Operands) -> Step | Control:
    """`bar` and `barrier`. Threads meet at one instruction; a block of one thread has nobody to wait for."""
    opcode, *modifiers = (r.instruction.opcode, *r.instruction.modifiers)
    kind = "block" if modifiers[:1] == ["sync"] else modifiers[0] if modifiers else ""
    rest = set(modifiers[1:]) - _ORDER
    if opcode == "barrier" and kind == "cluster" and rest == {"arrive"}:
        r.count(0)
        return _arrive_at_cluster
    if opcode == "barrier" and kind == "cluster" and rest == {"wait"}:
        r.count(0)
        return Control("wait", r.instruction, r.guard(), ready=_cluster_arrived, threaded=True)
    if opcode == "bar" and kind == "warp" and rest == {"sync"}:
        r.count(1)
        mask = r.operands[0]
        if not isinstance(mask, Immediate) or r.fit(mask, 32) != 0xFFFFFFFF:
            r.fail("is interpreted for whole warps only")
        return Control("wait", r.instruction, r.guard(), ready=_all_of("warp"), threaded=True)
    if kind != "block" or rest:
        r.fail("is not interpreted")
    r.count(1, 2)
    if not all(isinstance(operand, Immediate) for operand in r.operands):
        r.fail("is interpreted for literals only")
    count = r.operands[1].value if len(r.operands) == 2 and isinstance(r.operands[1], Immediate) else None
    return Control("wait", r.instruction, r.guard(), ready=_all_of("block", count), threaded=True)


def _arrive_at_cluster(frame: Frame, mask: Mask) -> None:
    frame.threads.arrived[slice(None) if mask is None else mask] += 1


def _cluster_arrived(frame: Frame, lanes: Array) -> Array:
    threads = frame.threads
    groups = threads.group("cluster")
    least = np.full(int(groups[-1]) + 1, np.iinfo(np.int64).max)
    alive = ~threads.ended
    np.minimum.at(least, groups[alive], threads.arrived[alive])
    found: Array = least[groups[lanes]] >= threads.arrived[lanes]
    return found


def _all_of(kind: str, count: int | None = None) -> Callable[[Frame, Array], Array]:
    """Whether all threads that are left of a group, or `count` of them, wait."""

    def ready(frame: Frame, lanes: Array) -> Array:
        groups = frame.threads.group(kind)
        waiting = np.bincount(groups[lanes], minlength=int(groups[-1]) + 1)
        needed = np.bincount(groups[~frame.threads.ended], minlength=len(waiting)) if count is None else count
        found: Array = (waiting == needed)[groups[lanes]]
        return found

    return ready


# -- mbarriers --------------------------------------------------------------------------------------------------------

# An mbarrier's 64 bits: pending arrivals, arrivals of a phase, bytes awaited (from a middle value), a mark that it has
# been initialised, and the parity of the phase.
_COUNT = (1 << 20) - 1
_MIDDLE, _MARK, _PHASE = 1 << 20, 1 << 62, 1 << 63


class _MisuseError(Exception):
    pass


def _changed(old: int, arrivals: int, expected: int) -> int:
    """An mbarrier after arrivals, and `expected` bytes more to wait for; fewer where they have come."""
    if not old & _MARK:
        raise _MisuseError("no mbarrier lies there")
    pending, count, awaited = old & _COUNT, old >> 20 & _COUNT, (old >> 40 & (1 << 21) - 1) - _MIDDLE
    pending, awaited = pending - arrivals, awaited + expected
    if pending < 0:
        raise _MisuseError("the phase has had all its arrivals")
    phase = old & _PHASE
    if pending == 0 and awaited == 0:
        pending, phase = count, phase ^ _PHASE
    return phase | _MARK | awaited + _MIDDLE << 40 | count << 20 | pending


def mbarrier(r: Operands) -> Step | Control:
    kind, *rest = r.instruction.modifiers
    if kind == "init":
        return _initialise(r)
    if kind == "try_wait" and rest[:1] == ["parity"]:
        return _try_wait(r)
    if kind == "complete_tx":
        _modifiers(r, rest)
        r.count(2)
        return _change(r, 0, 0, -1)
    if kind != "arrive":
        r.fail("is not interpreted")
    expects = rest[:1] == ["expect_tx"]
    _modifiers(r, rest[expects:])
    r.count(3 if expects else 2)
    if not isinstance(r.operands[0], Symbol) or r.operands[0].name != "_":
        r.fail("gives no state here")
    return _change(r, 1, 1, 1 if expects else 0)


def _modifiers(r: Operands, modifiers: Sequence[str]) -> None:
    left = [m for m in modifiers if m not in _ORDER]
    if left not in (["shared::cta", "b64"], ["shared::cluster", "b64"]):
        r.fail("is not interpreted")


def _initialise(r: Operands) -> Step:
    _modifiers(r, r.instruction.modifiers[1:])
    r.count(2)
    address = address_of(r, r.operands[0], "shared")
    count = r.operands[1]
    if not isinstance(count, Immediate) or not 1 <= count.value <= _COUNT:
        r.fail(f"counts 1 to {_COUNT} arrivals")
    state = np.array([_MARK | _MIDDLE << 40 | count.value << 20 | count.value], dtype=np.uint64)

    def initialise(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, "shared")
        frame.memory.store(addresses, [np.repeat(state, len(active))], "shared", fault_of(r, active))

    return initialise


def _change(r: Operands, at: int, arrivals: int, sign: int) -> Step:
    """Arrivals at the mbarrier of operand `at`, and bytes of the next one: to come, or come."""
    address = address_of(r, r.operands[at], "shared")
    expected = r.read(r.operands[at + 1], 32) if sign else None

    def change(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, "shared")
        size = 0 if expected is None else sign * int(expected(frame)[0])
        _at(r, frame, active, addresses, arrivals, size)

    return change


def _at(r: Operands, frame: Frame, active: Array, addresses: Array, arrivals: int, expected: int) -> None:
    fault = fault_of(r, active)
    try:
        frame.memory.exchange(
            addresses, UNSIGNED[64], "shared", fault, lambda old: _changed(old, arrivals, expected), []
        )
    except _MisuseError as e:
        fault(0, int(addresses[0]), str(e))


def _try_wait(r: Operands) -> Control:
    _modifiers(r, r.instruction.modifiers[2:])
    r.count(3)
    slot = r.target(r.operands[0], 1).slot
    address, parity = address_of(r, r.operands[1], "shared"), r.read(r.operands[2], 32)

    def ready(frame: Frame, lanes: Array) -> Array:
        mask = np.zeros(frame.threads.lanes, dtype=np.bool_)
        mask[lanes] = True
        active, addresses = active_addresses(r, frame, mask, address, "shared")
        fault = fault_of(r, active)
        (state,) = frame.memory.load(addresses, UNSIGNED[64], 1, "shared", fault)
        if not (state & np.uint64(_MARK)).all():
            fault(0, int(addresses[0]), "no mbarrier lies there")
        found: Array = state >> np.uint64(63) != (values_of(parity(frame), active) & np.uint32(1))
        return found

    def passed(frame: Frame, mask: Mask) -> None:
        write(frame, slot, np.ones(1, dtype=np.bool_), mask)

    return Control("wait", r.instruction, r.guard(), ready=ready, passed=passed)


def store_async(r: Operands) -> Step:
    """`st.async` of four words, with their bytes told to an mbarrier."""
    if r.instruction.modifiers != ("async", "shared::cluster", "mbarrier::complete_tx::bytes", "v4", "b32"):
        r.fail("is not interpreted")
    r.count(3)
    words = r.operands[1]
    if not isinstance(words, Group) or len(words.items) != 4:
        r.fail("takes 4 values in braces")
    address, barrier = (address_of(r, r.operands[n], "shared") for n in (0, 2))
    reads = [r.read(item, 32) for item in words.items]

    def store(frame: Frame, mask: Mask) -> None:
        active, addresses = active_addresses(r, frame, mask, address, "shared")
        _, barriers = active_addresses(r, frame, mask, barrier, "shared")
        values = [values_of(read(frame), active) for read in reads]
        frame.memory.store(addresses, values, "shared", fault_of(r, active))
        _at(r, frame, active, barriers, 0, -16)

    return store


# -- cluster launch control -------------------------------------------------------------------------------------------


def launch_control(r: Operands) -> Step:
    modifiers = r.instruction.modifiers
    if modifiers[:1] == ("try_cancel",):
        return _try_cancel(r)
    if modifiers == ("query_cancel", "is_canceled", "pred", "b128"):
        r.count(2)
        slot, response = r.target(r.operands[0], 1).slot, r.read(r.operands[1], 128)
        return lambda frame, mask: write(frame, slot, _words(response(frame))[:, 3] == 1, mask)
    if modifiers != ("query_cancel", "get_first_ctaid::x", "b32", "b128"):
        r.fail("is not interpreted")
    r.count(2)
    slot, response = r.target(r.operands[0], 32).slot, r.read(r.operands[1], 128)

    def first(frame: Frame, mask: Mask) -> None:
        words = _words(response(frame))
        active = np.arange(len(words)) if mask is None else np.flatnonzero(mask)
        if (words[active, 3] != 1).any():
            fault_of(r, active)(0, 0, "this response is no cluster's")
        write(frame, slot, words[:, 0], mask)

    return first


def _words(responses: Array) -> Array:
    words: Array = responses.view(np.uint32).reshape(-1, 4)
    return words


def _try_cancel(r: Operands) -> Step:
    head = ("try_cancel", "async", "shared::cta", "mbarrier::complete_tx::bytes")
    rest = r.instruction.modifiers[len(head) :]
    if r.instruction.modifiers[: len(head)] != head or rest not in (("b128",), ("multicast::cluster::all", "b128")):
        r.fail("is not interpreted")
    r.count(2)
    address, barrier = (address_of(r, operand, "shared") for operand in r.operands)
    to_all = len(rest) == 2

    def try_cancel(frame: Frame, mask: Mask) -> None:
        threads = frame.threads
        active, slots = active_addresses(r, frame, mask, address, "shared")
        _, barriers = active_addresses(r, frame, mask, barrier, "shared")
        for place, lane in enumerate(active):
            fault = fault_of(r, active[place : place + 1])
            cluster = threads.first + int(lane) // (threads.block * threads.cluster)
            try:
                answer = threads.answer(cluster)
            except LookupError:
                fault(0, int(slots[place]), "the queue is asked after it has answered that nothing is left")
            words = [0, 0, 0, 0] if answer is None else [answer, 0, 0, 1]
            rank = int(lane) // threads.block % threads.cluster
            for other in range(threads.cluster) if to_all else (rank,):
                away = (other - rank) * frame.memory.window
                one = active[place : place + 1]
                there, full = (np.array([int(at[place]) + away], dtype=np.uint64) for at in (slots, barriers))
                frame.memory.store(there, [np.array([w], dtype=np.uint32) for w in words], "shared", fault)
                _at(r, frame, one, full, 0, -_RESPONSE)

    return try_cancel
