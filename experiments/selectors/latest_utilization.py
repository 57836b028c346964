"""What slots do now, as their machines said a moment ago: how far they are at work, what memory is taken, and whose they are.

What is not known is said in words (`why`), never as a zero.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments.cluster import utilization
from experiments.cluster.snapshot import NODE_SILENT_S
from experiments.models import ClusterRules, Grant, LatestUtilization, Slot, TrainingRun
from training_runtime.gpu_memory import GpuMemoryHolder

NOT_YET = "not measured yet"
NO_NEWS = "no recent data"
CANNOT = "this machine cannot tell"


@dataclass(frozen=True)
class Present:
    """Of one slot: the share of the last seconds that was work, its memory, and all that its device has (None: not known, or a CPU share,
    which has none of its own). `why`: why the share is not known. `others`: who beside the run has memory of its GPU."""

    share: float | None = None
    memory: int | None = None
    device: int | None = None
    why: str = NOT_YET
    others: tuple[GpuMemoryHolder, ...] = ()


@dataclass(frozen=True)
class SlotNow:
    """A slot that is held, since when and what it does."""

    grant: Grant
    use: Present


@dataclass(frozen=True)
class RunNow:
    """The slots that a run holds. `share`: their average; `memory`: their sum; of those of which each is known, None where it is of none.
    `at`: when it was measured. `grace_s`: how long a worker has to leave a slot that is asked back."""

    slots: list[SlotNow]
    share: float | None
    memory: int | None
    at: dt.datetime | None
    grace_s: int

    @property
    def unknown(self) -> int:
        """Of how many slots the share is not known."""
        return sum(each.use.share is None for each in self.slots)


def of_run(run: TrainingRun, *, now: dt.datetime) -> RunNow:
    held = Grant.objects.filter(run=run, released_at__isnull=True).select_related("slot__node")
    grants = list(held.order_by("slot__node__name", "slot__device", "slot__index"))
    found, at = _of([run.pk], now=now)
    slots = [SlotNow(grant, _of_grant(found, grant)) for grant in grants]
    shares = [each.use.share for each in slots if each.use.share is not None]
    # Slots that share a GPU each say what is in use of all of it.
    sizes = {_device(each.grant.slot): each.use.memory for each in slots if each.use.memory is not None}
    return RunNow(
        slots=slots,
        share=sum(shares) / len(shares) if shares else None,
        memory=sum(sizes.values()) if sizes else None,
        at=at.get(run.pk),
        grace_s=ClusterRules.current().release_grace_s,
    )


def _device(slot: Slot) -> tuple[int, str, int]:
    return slot.node_id, slot.device, slot.device_index


def of_grants(grants: Mapping[int, Grant], *, now: dt.datetime) -> dict[int, Present]:
    """By slot, of open grants by slot."""
    found, _ = _of({grant.run_id for grant in grants.values()}, now=now)
    return {slot: _of_grant(found, grant) for slot, grant in grants.items()}


LatestByRun = Mapping[int, Mapping[int, Present] | None]


def _of(runs: Iterable[int], *, now: dt.datetime) -> tuple[LatestByRun, dict[int, dt.datetime]]:
    """By run and slot, and when it was measured; None for a run of which nothing was heard lately."""
    found: dict[int, Mapping[int, Present] | None] = {}
    at = {}
    for row in LatestUtilization.objects.filter(run__in=list(runs)):
        at[row.run_id] = dt.datetime.fromtimestamp(row.t, dt.UTC)
        fresh = now.timestamp() - row.t <= NODE_SILENT_S
        slots = {each.slot: _present(each, row.run_id, now) for each in utilization.entries(row)}
        found[row.run_id] = slots if fresh or not slots else None  # that nothing was there says nothing about what is there now
    return found, at


def _present(entry: utilization.Entry, run: int, now: dt.datetime) -> Present:
    """Of a run on several machines one may have fallen silent while the others speak."""
    if now.timestamp() - entry.t > NODE_SILENT_S:
        return Present(why=NO_NEWS)
    others = tuple(holder for each in entry.holders if (holder := GpuMemoryHolder(*each)).run != run)
    return Present(entry.share, entry.memory_bytes, entry.device_bytes, "" if entry.share is not None else CANNOT, others)


def _of_grant(found: LatestByRun, grant: Grant) -> Present:
    if grant.run_id not in found:
        return Present()
    slots = found[grant.run_id]
    return Present(why=NO_NEWS) if slots is None else slots.get(grant.slot_id, Present())
