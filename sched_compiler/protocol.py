"""The work ring: how one scheduler thread hands work indices to the consumers of its cluster, as data.

A ring has `depth` slots of 16 bytes in the shared memory of every CTA of the cluster, each with a barrier `full`; CTA 0
also has a barrier `empty` for each slot. The scheduler, one thread of CTA 0, requests a response into the next slot of
every CTA; every thread of every consumer reads it there and gives the slot back. A response is the next work index, or
says that there is none, which ends every role.

Emitters print the steps of the roles, and the model checker (`model.py`) executes the same steps: neither has a
protocol of its own. Barriers are those of the PTX ISA's `mbarrier`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: Bytes of a response: one slot, and one transaction on its barrier.
RESPONSE_BYTES = 16
#: The most threads of a block, and the most CTAs of a group.
MOST_THREADS, MOST_CTAS = 1024, 2

#: The most slots and consumers: a guard for the model checker, and more than a kernel has use for.
MOST_DEPTH = MOST_CONSUMERS = 8
#: Threads of a warp. A role has warps of its own.
WARP = 32
#: The answer that says that nothing is left.
NONE_LEFT = 0xFFFFFFFF

#: Who answers: the hardware queue of clusters that have not started, or tickets of a counter in global memory.
Source: TypeAlias = Literal["hardware", "counter"]
Name: TypeAlias = Literal["full", "empty"]


@dataclass(frozen=True, slots=True)
class Consumer:
    """Threads of a CTA that take every work index together: one elected thread, or whole warps."""

    name: str
    threads: int = 1

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)

    def __post_init__(self) -> None:
        if not (self.threads == 1 or (self.threads % WARP == 0 and 0 < self.threads <= MOST_THREADS)):
            raise ValueError(f"consumer {self.name} has {self.threads} threads: neither one nor whole warps")


@dataclass(frozen=True, slots=True)
class Ring:
    """What is declared. Every CTA of the group has every consumer; the group is the cluster."""

    depth: int
    consumers: tuple[Consumer, ...]
    ctas: int = 1
    source: Source = "hardware"

    def __post_init__(self) -> None:
        names = [c.name for c in self.consumers]
        if self.depth < 1 or not names or len(set(names)) < len(names) or not 1 <= self.ctas <= MOST_CTAS:
            raise ValueError(f"not a ring: {self}")


# -- steps: each is done by the thread, or by every thread, of a role, at the ring's current slot ---------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, with acquire, until the barrier in the own CTA has completed the phase of this round of the ring.

    `earlier` asks for the phase of the round before; in the first round there was none, and the wait passes.
    """

    barrier: Name
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Arm:
    """Arrive at `full` of a CTA and add the response's bytes to what its phase expects."""

    cta: int


@dataclass(frozen=True, slots=True)
class Request:
    """Ask for the next index. The source writes every CTA's slot and completes `full` there, each in its own time."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the response in the own CTA's slot with one load of 128 bits."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Order the own reads before later writes by the asynchronous proxy."""


@dataclass(frozen=True, slots=True)
class Sync:
    """All threads of the role meet."""


@dataclass(frozen=True, slots=True)
class Release:
    """One elected thread of the role arrives, with release, at `empty` of a CTA."""

    cta: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the loop if the response read says that there is nothing left; otherwise its index is the current one."""


Step: TypeAlias = Wait | Arm | Request | Read | Fence | Sync | Release | Stop


@dataclass(frozen=True, slots=True)
class Role:
    """`loop`, once for each slot in turn until it stops; then `drain`, once for each of the next `depth` slots.

    A role begins only if the cluster's own index, its first item, is work; nothing is requested for that one.
    """

    name: str
    threads: int
    ctas: tuple[int, ...]
    loop: tuple[Step, ...]
    drain: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Protocol:
    """A ring's barriers and roles. `full` and `empty` are the arrivals that complete a phase."""

    ring: Ring
    full: int
    empty: int
    scheduler: Role
    consumers: tuple[Role, ...]

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.scheduler, *self.consumers)

    @property
    def block(self) -> int:
        """Threads of a block with a warp for the scheduler, then the warps of each consumer in turn."""
        return WARP * (1 + sum(c.warps for c in self.ring.consumers))

    @property
    def starts(self) -> tuple[int, ...]:
        """The first thread of each consumer in such a block."""
        before = [sum(c.warps for c in self.ring.consumers[:n]) for n in range(len(self.consumers))]
        return tuple(WARP * (1 + warps) for warps in before)


@functools.lru_cache(maxsize=64)  # many ask, once for each text
def protocol(ring: Ring) -> Protocol:
    """What follows from a ring's declaration."""
    ctas = tuple(range(ring.ctas))
    scheduler = Role(
        "scheduler", 1, (0,),
        # It reads each response before the next request: one must not follow an observed failure.
        loop=(
            Wait("empty", earlier=True), *(Arm(c) for c in ctas), Request(), Wait("full"), Read(), Fence(), Stop(),
        ),
        # CTA 0 must not end while the others' arrivals are on their way to it.
        drain=(Wait("empty", earlier=True),),
    )  # fmt: skip
    consumers = tuple(
        Role(
            c.name, c.threads, ctas,
            loop=(Wait("full"), Read(), Fence(), *([Sync()] if c.threads > 1 else []), Release(0), Stop()),
        )
        for c in ring.consumers
    )  # fmt: skip
    return Protocol(
        ring,
        full=sum(isinstance(step, Arm) for step in scheduler.loop) // ring.ctas,
        empty=sum(len(c.ctas) * sum(isinstance(step, Release) for step in c.loop) for c in consumers),
        scheduler=scheduler,
        consumers=consumers,
    )


# -- the counter ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a drawn ticket means: an index, or None; and whether it is the launch's last, whose drawer sets 0 again."""

    index: int | None
    last: bool


def draws(items: int, clusters: int) -> bool:
    """Whether tickets are drawn at all: otherwise every request is answered that there is nothing left."""
    return items > clusters


def ticket(number: int, items: int, clusters: int) -> Ticket:
    """Ticket `number` of the counter, from 0. The first `clusters` items are the clusters' own.

    Every cluster draws one ticket that wins nothing, so `items` are drawn in all: `items - clusters` and `clusters`.
    """
    index = clusters + number
    return Ticket(index if index < items else None, number == items - 1)
