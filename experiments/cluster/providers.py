"""Engines that lend machines (Slurm, Ray, Kubernetes): what the studio asks of each. An engine stays the authority on who may use which
machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Standing = Literal["waiting", "running", "ending", "ended"]


class EngineProblem(Exception):
    """The engine does not answer, or refuses; in its own words."""


@dataclass(frozen=True)
class Offer:
    """What can be asked for, as the engine has it. `option`: with what it is asked for; `words`: its machines and limits."""

    option: str
    words: str
    usable: bool


@dataclass(frozen=True)
class Order:
    """A pilot that is to be had. `name`: of the allocation in the engine, known before it is asked for, so that it is found again whatever
    happens meanwhile. `notice_s`: so long before its end, or when it is taken back, the pilot is told. `options`: as an administrator typed
    them, checked."""

    name: str
    node: str
    studio: str
    token: str = field(repr=False)
    walltime_minutes: int
    notice_s: int
    slots: int
    options: Sequence[str]


@dataclass(frozen=True)
class Lease:
    """An allocation as the engine sees it. `left_s`: until it ends, where that is known. `words`: in the engine's words. `lasts_s`: for how
    long in all, where the engine knows no end of it. `unserved`: it has ended because there was no room for it for too long."""

    id: str
    name: str
    standing: Standing
    left_s: float | None
    words: str
    lasts_s: float | None = None
    unserved: bool = False


class Provider(Protocol):
    """Any method raises EngineProblem. `options_of`: whose options an administrator types; `example`: of some."""

    options_of: str
    example: str

    def offers(self) -> Sequence[Offer]: ...

    def hold(self, order: Order) -> str:
        """Ask for an allocation; its id."""
        ...

    def leases(self) -> Mapping[str, Lease]:
        """Those that are the studio's user's, also such as have ended lately, by id."""
        ...

    def ending(self, lease: str) -> str:
        """How an allocation has ended, in the engine's words; empty where it knows no more."""
        ...

    def release(self, lease: str, *, begun: bool, hurry: bool) -> None:
        """Give it back. `begun`: a pilot runs in it, which is told to end in order; with `hurry` it is ended. Harmless where it is gone."""
        ...

    def check(self, options: str) -> Sequence[str]:
        """The options that were typed, one by one. Raises ValueError with what is wrong with them."""
        ...


def named(leases: Collection[Lease], name: str) -> Lease | None:
    """The allocation of that name."""
    return next((lease for lease in leases if lease.name == name), None)
