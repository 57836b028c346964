"""Slots that look ill: facts for `training_runtime.scheduling.slot_health`, which decides, and what follows. The only writer of what Slot
says of its health.

Such a slot is out of service as if it were drained: the run on it gives it back, and none gets it, until an administrator puts it back.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models import F, Max, Q

from experiments.cluster import isolation, snapshot
from experiments.live import notify
from experiments.models import ClusterChange, Grant, Node, Slot, SlotDeath
from experiments.notifications import rules
from training_runtime.gpu_health import GpuHealth, fault
from training_runtime.protocol import Device
from training_runtime.scheduling.slot_health import WINDOW_S, SlotCondition, Stay, faded, judge

log = logging.getLogger(__name__)
REASON_LIMIT = 500
MOST_RUNS = 200  # that are heard, those whose workers died last: a decision takes a moment, however many scripts crash
DEVICES: dict[str, Device] = {"cpu": "cpu", "gpu": "gpu"}


@notify.together()
def look(now: dt.datetime) -> int:
    """Take slots out of service on which workers keep dying. Returns how many."""
    since = now - dt.timedelta(seconds=WINDOW_S)
    newest = SlotDeath.objects.filter(last_at__gte=since).values("run").annotate(at=Max("last_at")).order_by("-at")[:MOST_RUNS]
    deaths = list(SlotDeath.objects.filter(run__in=[row["run"] for row in newest], last_at__gte=since).select_related("run__submitted_by"))
    slots = {slot.pk: slot for slot in Slot.objects.filter(retired=False, node__removed_at=None).select_related("node")}
    decision = judge([_condition(slot, now) for slot in slots.values()], _stays(deaths, since, now), several_people=isolation.people() > 1)
    for slot in slots.values():
        doubt = decision.kept.get(slot.pk, "")
        if doubt != slot.doubt and not slot.out_reason:
            _doubt(slot, doubt, now=now)
    return sum(take_out(slots[pk], reason, now=now) for pk, reason in sorted(decision.out.items()))


def take_out(slot: Slot, reason: str, *, now: dt.datetime) -> bool:
    """Take the slot out of service and notify administrators. False if it is out already."""
    with transaction.atomic():
        if not Slot.objects.filter(pk=slot.pk, out_reason="").update(out_reason=reason[:REASON_LIMIT], out_at=now, doubt=""):
            return False
        _say(slot, f"Slot {slot.label()} of node {slot.node.name} was taken out of service", reason, now=now)
    return True


def take_in(node: Node, gpus: Sequence[GpuHealth], *, now: dt.datetime) -> None:
    """What the drivers of its GPUs say, also of the last slot: a GPU that has failed fails whatever runs on it."""
    said = {health.gpu: health for health in gpus if health.uncorrected_errors or health.xid}
    for slot in Slot.objects.filter(node=node, device="gpu", retired=False).select_related("node") if said else ():
        if (health := said.get(slot.device_index)) is None:
            continue
        if health.uncorrected_errors is not None and health.uncorrected_errors != slot.seen_errors:
            if health.uncorrected_errors < slot.seen_errors:  # its driver was loaded anew, and counts from nothing
                slot.accepted_errors = 0
            slot.seen_errors = health.uncorrected_errors
            Slot.objects.filter(pk=slot.pk).update(seen_errors=slot.seen_errors, accepted_errors=slot.accepted_errors)
        trusted_for_s = (now - slot.trusted_since).total_seconds() if slot.trusted_since is not None else None
        if not slot.out_reason and (reason := fault(health, accepted_errors=slot.accepted_errors, trusted_for_s=trusted_for_s)):
            take_out(slot, reason, now=now)


def put_back(slot: Slot, *, now: dt.datetime) -> None:
    """Put the slot back into service and forget its past deaths."""
    with transaction.atomic():
        Slot.objects.filter(pk=slot.pk).update(out_reason="", out_at=None, doubt="", trusted_since=now, accepted_errors=F("seen_errors"))
        SlotDeath.objects.filter(slot=slot).delete()
        _changed(slot)


def _doubt(slot: Slot, doubt: str, *, now: dt.datetime) -> None:
    with transaction.atomic():
        news = Slot.objects.filter(pk=slot.pk, doubt=slot.doubt).update(doubt=doubt[:REASON_LIMIT])
        if news and doubt and not slot.doubt:
            _say(slot, f"Slot {slot.label()} of node {slot.node.name} looks ill", doubt, now=now)
        _changed(slot)


def _say(slot: Slot, what: str, reason: str, *, now: dt.datetime) -> None:
    log.warning("%s: %s", what, reason)
    ClusterChange.objects.create(at=now, text=what, reason=reason[:REASON_LIMIT])
    rules.notify_slot(f"{what}: {reason}", now=now)
    _changed(slot)


def _changed(slot: Slot) -> None:
    notify.changed("cluster", "nodes", "lanes", "feed")
    notify.changed(f"node-{slot.node_id}", "health")
    notify.nudge_schedule()


def _condition(slot: Slot, now: dt.datetime) -> SlotCondition:
    node = slot.node
    serves = not (slot.draining or slot.out_reason or node.draining or node.storage_problem or snapshot.is_silent(node, now))
    return SlotCondition(slot.pk, node.name, DEVICES[slot.device], in_service=serves, out=bool(slot.out_reason))


def _stays(deaths: Iterable[SlotDeath], since: dt.datetime, now: dt.datetime) -> list[Stay]:
    """Where the runs that had deaths have been since then, and how it went there."""
    counts = {(row.run_id, row.slot_id): faded(row.deaths, (now - row.last_at).total_seconds()) for row in deaths}
    runs = {row.run_id: row.run for row in deaths}
    held: defaultdict[tuple[int, int], float] = defaultdict(float)
    worked: set[tuple[int, int]] = set()
    grants = Grant.objects.filter(Q(released_at=None) | Q(released_at__gte=since), run__in=runs)
    for run, slot, begin, end in grants.values_list("run", "slot", "granted_at", "released_at"):
        held[run, slot] += max(0.0, ((end or now) - max(begin, since)).total_seconds())  # a clock may have been put back
        last_step = runs[run].last_step_at
        if last_step is not None and last_step >= begin:
            worked.add((run, slot))
    return [
        Stay(run, runs[run].submitted_by.username, slot, held_s, counts.get((run, slot), 0.0), worked=(run, slot) in worked)
        for (run, slot), held_s in held.items()
    ]
