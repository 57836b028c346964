"""A run while slots are shared out: what it asks for and what it has been given so far. Standard library only, no decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training_runtime.protocol import Device
from training_runtime.scheduling.facts import RunFacts

Block = Literal["paused", "no_device", "too_large", "bound", "person_quota", "project_quota", "room"]
Bound = Literal["", "stays", "moved", "kind", "environment", "isolated"]  # why it cannot use every machine: see RunFacts


@dataclass(slots=True)
class Demand:
    """The sizes a run can have, its class of slots, and what it has been given so far.

    `first`: the class that a run which takes any tries first while it holds nothing. `held`: how many slots of its class it holds and may
    keep. `occupied`: those, and the ones that its processes have yet to leave. `on`: the machine of those held, None where there are none
    or a run may be spread; `node`: the one that it gets its slots on; machines that share runs are one here (`SlotFacts.domain`). `keeps`:
    between equals it goes before newcomers. `larger`: the next useful size after `size`. `order`: what tells equals apart, the time left
    before the age. `capped`: it could use more than `most`, but not on the machines where that would be. `domains`: where it can have
    slots at all, None: anywhere; `bound` says why.
    """

    run: RunFacts
    least: int
    most: int
    first: Device | None
    device: Device | None
    on: str | None
    held: int
    occupied: int
    weight: float
    order: tuple[float, float, int]
    capped: bool = False
    keeps: bool = False
    node: str | None = None
    size: int = 0
    larger: int | None = None
    domains: frozenset[str] | None = None
    bound: Bound = ""

    def forget(self, *, occupied: int) -> None:
        """Ask once more, for a run that holds nothing."""
        self.device, self.on, self.held, self.occupied, self.keeps = self.first, self.only_room(), 0, occupied, False

    def only_room(self) -> str | None:
        """The one place where it can have slots, if there is just one."""
        return next(iter(self.domains)) if self.domains is not None and len(self.domains) == 1 else None


def positive(weight: float) -> float:
    """A weight of nothing would divide by zero; it counts as very little instead."""
    return weight if weight > 1e-9 else 1e-9
