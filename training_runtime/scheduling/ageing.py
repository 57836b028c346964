"""Who goes first because it has waited too long. Standard library only.

Slots become free one by one, so a run that needs several at once may be overtaken by smaller ones for ever: by those of people who have
less than its owner, or on every machine by somebody. After AGEING_S of waiting it gets its least before anybody of its priority gets
anything, for TURN_S; then it is a run like all others, and whoever else waits has a turn. One at a time for each class of slots.
"""

from __future__ import annotations

from collections.abc import Iterable

from training_runtime.protocol import Device
from training_runtime.scheduling.demand import Demand

AGEING_S = 600.0
TURN_S = 600.0


def favoured_of(wanting: Iterable[Demand], *, now: float) -> dict[Device, Demand]:
    """For each class of slots the run whose turn it is: one that has begun its turn, else the one that has waited longest."""
    found: dict[Device, tuple[tuple[bool, float, int], Demand]] = {}
    for demand in wanting:
        run = demand.run
        in_turn = run.favoured_since is not None and now - run.favoured_since < TURN_S
        since = run.favoured_since if in_turn else run.waits_since
        if since is None or demand.device is None or demand.least < 2 or not (in_turn or (not demand.held and now - since >= AGEING_S)):
            continue
        rank = (not in_turn, since, run.id)
        if demand.device not in found or rank < found[demand.device][0]:
            found[demand.device] = rank, demand
    return {device: demand for device, (_, demand) in found.items()}
