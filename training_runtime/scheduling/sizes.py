"""Which numbers of slots help a run: its useful sizes. Pure arithmetic, standard library only.

A run's global batch is cut into V engines that its W workers share, so a step lasts as long as its busiest worker: ceil(V / W) engines.
A size is useful when it makes that number smaller. With V = 4 the useful sizes are 1, 2 and 4: three workers are no faster than two.
"""

from __future__ import annotations

from training_runtime.scheduling.facts import RunFacts


def bounds(run: RunFacts) -> tuple[int, int]:
    """The least and the most slots the run can hold. Below the least it holds nothing; V engines keep no more than V workers busy."""
    most = run.max_slots  # without min() and max(): a plan asks this of every run
    if run.engines is not None and run.engines < most:
        most = run.engines
    if most < 1:
        most = 1
    least = run.min_slots if run.min_slots < most else most
    return (least if least > 1 else 1), most


def next_size(size: int, *, engines: int | None, most: int) -> int | None:
    """The next useful size after `size` (at least 1), or None when more slots, up to `most`, would make the run no faster.

    Until the script has told its engines every size counts as useful.
    """
    if engines is None:
        larger = size + 1
    else:
        load = -(-engines // size)
        if load <= 1:
            return None
        larger = -(-engines // (load - 1))
    return larger if larger <= most else None


def speed(size: int, *, engines: int | None) -> float:
    """How many times one slot's speed `size` slots give, communication left out: V / ceil(V / size)."""
    if size <= 0:
        return 0.0
    return float(size) if engines is None else engines / -(-engines // size)
