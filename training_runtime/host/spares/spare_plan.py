"""Which spare processes a host keeps, and which run may have one: facts in, decision and reason out. Pure.

A spare is made for a run like the last one (`Likeness`): of the same code, in the same environment, by the same person, with the same
variables. Then what it has imported is what the script itself imports, and nobody decides what another person's run finds in its process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MOST_BYTES, MOST_PROCESSES = 2 << 30, 512  # of one while it waits
PREPARE_S, WAIT_S = 120.0, 900.0
_LEFT = 8  # an eighth of the machine's memory is not for spares


@dataclass(frozen=True)
class Likeness:
    """What a run must have in common with the one before. `variables`: those that do not name the run itself, paths in its folder as a
    spare calls them; `slots`: that it computes on in its driver's process; `shown`: the folders in which its own folders lie."""

    environment: str
    person: str
    code: str
    script: str
    slots: int
    variables: tuple[tuple[str, str], ...]
    python_path: tuple[str, ...]
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """A run like that has said what it imports, last at `at`. `spoiled`: why none is made all the same."""

    at: float
    spoiled: str = ""


@dataclass(frozen=True)
class Seen:
    """A spare that there is. `ready`: it has imported all and waits."""

    number: int
    like: Likeness
    made_at: float
    ready: bool


@dataclass(frozen=True)
class Memory:
    """Of the machine, in bytes."""

    total: int
    available: int

    @property
    def is_short(self) -> bool:
        return self.available < self.total // _LEFT

    @property
    def has_room(self) -> bool:
        return self.available >= self.total // _LEFT + MOST_BYTES


@dataclass(frozen=True)
class Plan:
    """`make`: for a run like these; `drop`: spares by their numbers, each with the reason. `look_at`: when to decide again, if nothing
    happens before."""

    make: tuple[Likeness, ...] = ()
    drop: tuple[tuple[int, str], ...] = ()
    look_at: float | None = None


def plan(
    wishes: Mapping[Likeness, Wish], spares: Collection[Seen], *, now: float, most: int, memory: Memory, built: Collection[str]
) -> Plan:
    """`most`: how many there may be; `built`: the environments that are there. One is prepared at a time."""
    live = {like: wish for like, wish in wishes.items() if now < wish.at + WAIT_S and like.environment in built and not wish.spoiled}
    kept = sorted(live, key=lambda like: live[like].at, reverse=True)[: max(0, most)]
    drop = [(spare.number, why) for spare in spares if (why := _why_not(spare, wishes, kept, now, memory, built))]
    dropped = {number for number, _ in drop}
    left = [spare for spare in spares if spare.number not in dropped]
    missing = [like for like in kept if like not in {spare.like for spare in left}]
    busy = not memory.has_room or any(not spare.ready for spare in spares) or len(left) >= most
    ends = [live[like].at + WAIT_S for like in kept] + [spare.made_at + PREPARE_S for spare in left if not spare.ready]
    return Plan(() if busy else tuple(missing[:1]), tuple(drop), min(ends, default=None))


def _why_not(
    spare: Seen, wishes: Mapping[Likeness, Wish], kept: Collection[Likeness], now: float, memory: Memory, built: Collection[str]
) -> str:
    """Why this one goes; empty where it stays."""
    wish = wishes.get(spare.like)
    if spare.like.environment not in built:
        return "its environment is not there any more"
    if memory.is_short:
        return "the machine's memory is short"
    if not spare.ready and now >= spare.made_at + PREPARE_S:
        return f"its packages were not imported within {PREPARE_S:g} s"
    if wish is not None and wish.spoiled:
        return wish.spoiled
    if wish is None or now >= wish.at + WAIT_S:
        return f"no such run came for {WAIT_S / 60:g} minutes"
    return "" if spare.like in kept else "other environments were used since"


def choose(like: Likeness, spares: Collection[Seen]) -> tuple[int | None, str]:
    """The number of the spare for a run like this, and why that or none."""
    ready = [spare for spare in spares if spare.ready and spare.like == like]
    if ready:
        return ready[0].number, "its packages are imported already"
    same = [spare for spare in spares if spare.like.environment == like.environment]
    if not same:
        return None, "there is no spare process for its environment"
    if any(spare.like == like for spare in same):
        return None, "the spare process of its environment is not ready yet"
    return None, f"the spare process of its environment is of a run {_difference(like, same[0].like)}"


def _difference(like: Likeness, other: Likeness) -> str:
    if like.person != other.person:
        return "of another person"
    if (like.code, like.script) != (other.code, other.script):
        return "with other code"
    mine, others = dict(like.variables), dict(other.variables)
    names = sorted(name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name))
    return f"with other variables ({', '.join(names[:5])})" if names else "with other slots or folders"
