"""What happens when a slot is asked back from a running training: facts in, decision out. Pure, standard library only.

The host lists the slots that the run may use (`host_link`; `Coordinator.desired`). `split` says which members are on a slot that is not
among them any more. `membership` puts these in no further generation: at the next step boundary they hand their state over where nobody
else has it (`worker.lifecycle`), say so and exit. Once the fork server has reaped one, the driver holds its slot no longer
(`Coordinator._tell_holding`), and the host has it for the next run.

User code decides when a step ends: a step may take minutes, a callback may block, and others wait for the slot. So a worker that is still
there after a `GracePeriod` is ended, which costs the others the step in flight. It is longer if nobody else holds the state, because all
progress since the last checkpoint would be lost. A worker that is writing or sending the state has until it makes no more progress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

GRACE_S = 30.0
LAST_TIMES = 4.0  # as long where no other member stays
UNSEEN_S = 0.5  # from one look to the next; if it is longer, the driver was away itself (it may wait for room on a disk): nobody is blamed


def split(members: Iterable[int], slots: Mapping[int, int], usable: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Worker ids of the `members` that stay, and of those that leave, in their order. `slots`: slot by worker id; who has none (its process
    is gone) leaves. `usable`: the slots that the run may still use."""
    members = tuple(members)
    stay = tuple(worker_id for worker_id in members if slots.get(worker_id) in usable)
    return stay, tuple(worker_id for worker_id in members if worker_id not in stay)


@dataclass(frozen=True)
class Holder:
    """A worker on `slot`. `gives`: it has come to the change of members and writes or hands over what it has; `beat`: its heartbeat."""

    worker_id: int
    slot: int
    gives: bool
    beat: int


class GracePeriod:
    """`grace_s` from the moment at which a slot was asked back."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._since: dict[int, tuple[int, float]] = {}  # worker id -> heartbeat that counts, and since when
        self._looked: float | None = None

    def overdue(self, now: float, holders: Collection[Holder], wanted: Collection[int]) -> tuple[Holder, ...]:
        """The `holders` (all workers that are alive) to be ended, because their slots are not among `wanted` and their time is over."""
        away = 0.0 if self._looked is None else max(0.0, now - self._looked - UNSEEN_S)
        self._looked, self._since = now, {worker_id: (beat, since + away) for worker_id, (beat, since) in self._since.items()}
        asked = [holder for holder in holders if holder.slot not in wanted]
        last = len(asked) == len(holders)
        found = []
        for holder in asked:
            beat = holder.beat if holder.gives else -1
            before = self._since.get(holder.worker_id)
            if before is None or before[0] != beat:
                before = (beat, now)
            self._since[holder.worker_id] = before
            if now > before[1] + self.grace_s * (LAST_TIMES if last else 1.0):
                found.append(holder)
        self._since = {holder.worker_id: self._since[holder.worker_id] for holder in asked}
        return tuple(found)
