"""What a node host can do to a run, each with its reason: decided by `reconcile`, carried out by the supervisor. Records only."""

from __future__ import annotations

from dataclasses import dataclass

from training_runtime.meeting import Meeting
from training_runtime.protocol import SlotRef


@dataclass(frozen=True)
class Start:
    run: int
    attempt: int
    restarts: int
    reason: str
    losses: int = 0


@dataclass(frozen=True)
class TellMembers:
    """`suspend`, `meeting`: see `protocol.Members`."""

    run: int
    slots: tuple[SlotRef, ...]
    reason: str
    suspend: bool = False
    meeting: Meeting | None = None


@dataclass(frozen=True)
class AskToStop:
    run: int
    reason: str


@dataclass(frozen=True)
class Terminate:
    """SIGTERM to the driver's process group. `interrupts`: see Kill."""

    run: int
    reason: str
    interrupts: bool = False


@dataclass(frozen=True)
class Kill:
    """SIGKILL to every process of the run. `interrupts`: the run is not at fault and goes on when the host is back."""

    run: int
    reason: str
    interrupts: bool = False


@dataclass(frozen=True)
class KillDriver:
    """SIGKILL to the driver alone: its workers write down their state, and the next attempt goes on from there. `interrupts`: see Kill."""

    run: int
    reason: str
    interrupts: bool = False


@dataclass(frozen=True)
class KillWorkers:
    """SIGKILL to the workers on slots that were asked back: the others go on without them."""

    run: int
    reason: str


@dataclass(frozen=True)
class Decline:
    """It was to be stopped before it had ever been started: nothing to do but to say so."""

    run: int
    attempt: int
    reason: str


@dataclass(frozen=True)
class Forget:
    run: int
    reason: str


Action = Start | TellMembers | AskToStop | Terminate | Kill | KillDriver | KillWorkers | Decline | Forget
