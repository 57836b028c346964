"""When a running run goes to another machine: the one exception from keeping its own while it holds slots. Standard library only.

A move costs a run a second or two: its state is written down, its process ends and another begins elsewhere. So it moves only from where it
is refused more slots to where slots lie idle after everybody has got theirs, if it is at least twice as fast there and has a while to go.
One run at a time, so that what it leaves is shared out before the next one looks around.
"""

from __future__ import annotations

from collections.abc import Iterable

from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.limits import Limits
from training_runtime.scheduling.sizes import next_size, speed

WORTH_S = 60.0
FASTER = 2.0


def relocate(demands: Iterable[Demand], limits: Limits) -> None:
    """Move the run that gains most, the older one of equals, if there is one that gains enough."""
    idle = {device: max(of.room, key=lambda name: (of.room[name], name)) for device, of in limits.machines.items() if of.room}
    free = {device: limits.machines[device].room[name] for device, name in idle.items()}
    best: tuple[float, Demand, int] | None = None
    for demand in demands:
        device, run = demand.device, demand.run
        if device is None or demand.larger is None or free[device] <= demand.size or not _may_move(demand):
            continue
        size = _largest(demand, free[device])
        gain = speed(size, engines=run.engines) / speed(demand.size, engines=run.engines)
        if gain >= FASTER and (best is None or gain > best[0]) and limits.over_quota(run, size - demand.size) is None:
            best = gain, demand, size
    if best is not None:
        _, demand, size = best
        assert demand.device is not None, "a run that moves has slots of a class"
        limits.move(demand, to=idle[demand.device], size=size)


def _may_move(demand: Demand) -> bool:
    """It trains, on a machine that can be spoken to, and for a while yet."""
    run = demand.run
    running = demand.size > 0 and bool(run.held) and run.room == demand.node
    return running and not run.pinned and (run.remaining_s is None or run.remaining_s >= WORTH_S)


def _largest(demand: Demand, room: int) -> int:
    """The largest useful size for which there is room."""
    size = demand.size
    while (larger := next_size(size, engines=demand.run.engines, most=min(demand.most, room))) is not None:
        size = larger
    return size
