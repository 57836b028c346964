"""When a running run goes to another machine: the one exception from keeping its own while it holds slots. Standard library only.

It moves only from where it is refused more slots to where slots lie idle after everybody has got theirs, if it is at least twice as fast
there, and saves several times what the move costs (see `moves`). One run at a time, so that what it leaves is shared out before the next
one looks around.
"""

from __future__ import annotations

from collections.abc import Iterable

from training_runtime.scheduling.demand import Demand
from training_runtime.scheduling.limits import Limits
from training_runtime.scheduling.moves import is_worth
from training_runtime.scheduling.sizes import next_size, speed

FASTER = 2.0


def relocate(demands: Iterable[Demand], limits: Limits) -> None:
    """Move the run that gains most, the older one of equals, if there is one that gains enough."""
    idle = {device: max(of.free, key=lambda name: (of.free[name], name)) for device, of in limits.machines.items() if of.free}
    best: tuple[float, Demand, int, str] | None = None
    for demand in demands:
        device, run = demand.device, demand.run
        if device is None or demand.larger is None or not _may_move(demand):
            continue
        free = limits.machines[device].free
        target = (
            idle[device] if demand.domains is None else max(demand.domains & free.keys(), key=lambda name: (free[name], name), default="")
        )
        if free.get(target, 0) <= demand.size:
            continue
        size = _largest(demand, free[target])
        gain = speed(size, engines=run.engines) / speed(demand.size, engines=run.engines)
        if gain < FASTER or not is_worth(run, faster=gain) or limits.over_quota(run, size - demand.size) is not None:
            continue
        if best is None or gain > best[0]:
            best = gain, demand, size, target
    if best is not None:
        _, demand, size, target = best
        limits.move(demand, to=target, size=size)


def _may_move(demand: Demand) -> bool:
    """It trains, on a machine that can be spoken to, and need not stay there."""
    run = demand.run
    running = demand.size > 0 and bool(run.held) and run.domain == demand.node
    return running and not run.pinned and demand.only_room() is None


def _largest(demand: Demand, free: int) -> int:
    """The largest useful size for which there is room."""
    size = demand.size
    while (larger := next_size(size, engines=demand.run.engines, most=min(demand.most, free))) is not None:
        size = larger
    return size
