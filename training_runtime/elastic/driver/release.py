"""Decides which workers keep a slot that was asked back for too long: facts in, decision out. Pure, standard library only.

A worker leaves at a step boundary, and user code decides when that is: a step may take minutes, a callback may block. Others wait for the
slot. So a worker that is still there after a grace period is ended, which costs the others the step in flight. It gets longer if nobody
else holds the state, because all progress since the last checkpoint would be lost. A worker that is writing or sending the state has until
it makes no more progress.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

GRACE_S = 30.0
LAST_TIMES = 4.0  # as long where no other member stays
UNSEEN_S = (
    0.5  # from one look to the next; what is longer, the driver was away itself (it waits for room on a disk, too), and nobody is blamed
)


@dataclass(frozen=True)
class Holder:
    """A worker on `slot`. `gives`: it has come to the change of members and writes or hands over what it has; `beat`: its heartbeat."""

    worker_id: int
    slot: int
    gives: bool
    beat: int


class Release:
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
