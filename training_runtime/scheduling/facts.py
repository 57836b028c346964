"""The facts that `plan` decides on and the decision it returns. Frozen records, no behaviour, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from training_runtime.protocol import Device

Policy = Literal["fair_share", "priority"]


@dataclass(frozen=True)
class SlotFacts:
    """A slot as the planner sees it. `draining`: keeps no run and takes no new one. `holder`: the run whose process may still be there.
    `pool`: what the machines are called among which its own shares runs; empty where it shares them with no other. `kind`: what its machine
    is (processor, GPUs, torch), which results depend on; empty where that is not known."""

    id: int
    node: str
    device: Device
    draining: bool = False
    holder: int | None = None
    pool: str = ""
    kind: str = ""

    @property
    def domain(self) -> str:
        """Where a run is that has this slot: all that it has is on this machine, or on those of this pool."""
        return self.pool or self.node


@dataclass(frozen=True)
class RunFacts:
    """A run that wants slots.

    `engines` is V where the script has told it (None before). `device` is the class of slot it needs (None: any). `submitted_at` and all
    times are seconds of one clock. `remaining_s` is the estimated time to its end on the slots it holds, where known. `paused` by a person:
    gets nothing. `held` are the slots it was granted and has not been asked to give back. `node`: the machine where its process is, with or
    without slots; where runs train on one machine (`Rules.one_machine`) it may change while nothing is held. `pool`: of that machine.
    `pinned`: that machine is not heard of, so the run keeps just what it holds. `alone`: in a pool too it can use the slots of one machine
    only, for it has not come to train() yet or, `always_alone`, its script runs on one machine. `avoids`: machines where it cannot work.
    `stays`: its process cannot be sent to another machine, for nothing of it is written down. `moved_at`: when its process last got a
    machine; `prologue_s`: how long its script then took to come to train(), where that was measured. `kind`: of the machine that it has
    trained on, which another has to be of too. `waits_since`: since when it holds nothing although it wants something; `favoured_since`:
    when a plan last let it go first for that. `ready_in`: the domains (`SlotFacts.domain`) where its environment is built, None: wherever
    it may be. `isolated_in`: the domains where people's code may be run beside each other's (see `isolation`), None: everywhere; where it
    has slots it stays, wherever that is.
    """

    id: int
    name: str
    person: str
    project: str
    submitted_at: float
    min_slots: int = 1
    max_slots: int = 1
    engines: int | None = None
    priority: int = 5000
    weight: float = 1.0
    device: Device | None = None
    paused: bool = False
    held: frozenset[int] = frozenset()
    remaining_s: float | None = None
    node: str | None = None
    pinned: bool = False
    pool: str = ""
    alone: bool = False
    always_alone: bool = False
    avoids: frozenset[str] = frozenset()
    stays: bool = False
    moved_at: float | None = None
    prologue_s: float | None = None
    kind: str = ""
    waits_since: float | None = None
    favoured_since: float | None = None
    ready_in: frozenset[str] | None = None
    isolated_in: frozenset[str] | None = None

    @property
    def domain(self) -> str | None:
        """See `SlotFacts.domain`."""
        return self.pool or self.node


@dataclass(frozen=True)
class Rules:
    """What an administrator sets: the policy, weights of persons (1.0 where not named) and quotas in slots.

    `one_machine`: a run has all its slots on one machine, or on those of one pool (`SlotFacts.pool`). Otherwise it may be spread over all.
    """

    policy: Policy = "fair_share"
    person_weights: Mapping[str, float] = field(default_factory=dict)
    person_quota: Mapping[str, int] = field(default_factory=dict)
    project_quota: Mapping[str, int] = field(default_factory=dict)
    one_machine: bool = False


@dataclass(frozen=True)
class Waiting:
    """A run that holds nothing and why: `position` from 1, `needs` slots, `expected_s` from now until it may start, where that is known."""

    position: int
    needs: int
    expected_s: float | None


@dataclass(frozen=True)
class Plan:
    """The decision: who should hold which slots, a sentence for every run (for people to read), and the queue of those that hold nothing.

    `grants` names each run of the input; slots that another run still holds may be in it (they are promised, and granted once proven free).
    `reasons[run]` says why it has what it has, or waits; for a run whose slots change it says who or what caused the change. `favoured`:
    runs that went first because they had waited too long; whoever carries the plan out notes since when (`RunFacts.favoured_since`).
    """

    grants: Mapping[int, frozenset[int]]
    reasons: Mapping[int, str]
    queue: Mapping[int, Waiting]
    favoured: frozenset[int] = frozenset()
