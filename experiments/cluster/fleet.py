"""Nodes and slots, as machines report them. The only writer of Node and Slot. The state that is wanted of them is in `desired`, reports
about remote agents are in `remote_workers`.

What a host says is believed about its own processes, and checked in shape by `protocol`. How a run ended is read from its journal first.
"""

from __future__ import annotations

import datetime as dt
import logging

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Greatest

from experiments.cluster import endings, environments, meetings, remote_workers, scheduling, slot_health, snapshot, utilization
from experiments.live import notify
from experiments.models import Grant, Node, RunState, Slot, TrainingRun
from experiments.models.runs import LIVE
from training_runtime.errors import HostUnavailable
from training_runtime.protocol import Device, NodeFacts, Observation, RunObservation
from training_runtime.version_skew import ProtocolVersion

log = logging.getLogger(__name__)
CPU_SLOTS = 4  # of a node without GPUs, unless it or its token says otherwise


class AnotherHost(HostUnavailable):
    """Another machine uses this node's name already."""


def register(facts: NodeFacts, *, now: dt.datetime, slots: int | None = None) -> Node:
    """Store what the node is, and its slots: `slots` of them where given, else one per GPU, else 4 CPU slots. More slots than
    GPUs share them. Raises AnotherHost for a second machine of that name: it would get every slot and run of the first once more."""
    refusal, node = _register(facts, now=now, slots=slots)
    if refusal:
        raise AnotherHost(refusal)
    return node


def _register(facts: NodeFacts, *, now: dt.datetime, slots: int | None) -> tuple[str, Node]:
    with transaction.atomic():
        node, made = Node.objects.select_for_update().get_or_create(name=facts.name)
        if refusal := _refusal(node, facts, now=now):
            node.refused_at = now
            node.save(update_fields=["refused_at"])
            return refusal, node
        after = {**vars(facts), "gpus": list(facts.gpus), "sandbox_notes": list(facts.sandbox_notes)}
        before = {name: getattr(node, name) for name in after}
        for name, value in after.items():
            setattr(node, name, value)
        silent = snapshot.is_silent(node, now) or node.removed_at is not None
        node.last_seen_at, node.removed_at = now, None
        node.save()
        news = _set_slots(node, count=slots, gpus=len(facts.gpus))
        if news or made or silent or before != after:
            notify.changed("cluster", "nodes", "lanes")
            notify.nudge_schedule()
    return "", node


def _refusal(node: Node, facts: NodeFacts, *, now: dt.datetime) -> str:
    """Why this host is not the node's; empty where it is, or may become it: the one before is silent and nothing of it is left."""
    if facts.identity in ("", node.identity) or not node.identity:
        return ""
    held = Grant.objects.filter(slot__node=node, released_at__isnull=True).exists()
    if snapshot.is_silent(node, now) and not held and not TrainingRun.objects.filter(head_node=node, state__in=LIVE).exists():
        return ""
    return (
        f"Another machine is node {node.name} already. Give this one a name of its own (EDT_NODE and --node); or, if the other is gone for "
        "good, declare it lost on the node's page."
    )


def next_revision(node: Node, *, now: dt.datetime) -> Node:
    """Locked, so that the snapshot and its number belong together: a tick reads the number under the same lock (see close_grants). From the
    clock, so that a database that was put back does not make the host wait for numbers it has seen."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    node.revision = max(node.revision + 1, int(now.timestamp() * 1000))
    node.save(update_fields=["revision"])
    return node


@notify.together()
def record(observation: Observation, *, now: dt.datetime, slots: int | None = None) -> Node:
    """Take in what a node host saw: facts, slots that became free, runs whose processes have all ended. `slots`: see `register`.

    What one that was declared lost had then counts no more: until it has heard of that, only that it is there is taken in.
    """
    node = register(observation.node, now=now, slots=slots)
    _note_storage(node, observation.storage_problem)
    slot_health.take_in(node, observation.gpus, now=now)
    environments.take_in(node, observation.environments, observation.folders, now=now)
    if observation.revision < node.fence:
        return node
    with transaction.atomic():  # one turn at SQLite's lock; without the node's, which others want who have a run's
        runs = _note(node, observation, now=now)
    for run, seen in runs:
        if seen.exit_code is not None:
            _end(node, run, seen, exit_code=seen.exit_code, now=now)
    holding = {seen.run: frozenset(seen.holding) for seen in observation.runs}
    scheduling.close_grants(node, holding=holding, revision=observation.revision, now=now)
    scheduling.finish_moves(node, there=holding.keys(), revision=observation.revision)
    return node


def _note(node: Node, observation: Observation, *, now: dt.datetime) -> list[tuple[TrainingRun, RunObservation]]:
    """Figures of its runs; the live ones whose driver is there, with what was seen of them."""
    news, numbers, found = False, {seen.run for seen in observation.runs}, []
    away = remote_workers.elsewhere(node, numbers)
    runs = TrainingRun.objects.filter(pk__in=numbers, head_node=node, state__in=LIVE).select_related("experiment").in_bulk()
    for seen in sorted(observation.runs, key=lambda each: each.run):  # as a plan locks them
        run = runs.get(seen.run)
        if seen.remote:
            news |= remote_workers.take_in(node, seen, now=now)
        elif run is not None and seen.attempt >= run.attempt:  # else of an attempt before, which may have been elsewhere since
            _count(run, seen)
            utilization.store_sample(run, seen, now=now, away=away.get(run.pk, ()))
            news |= utilization.renew(run, seen, now=now, node=node)
            if seen.meeting is not None:
                meetings.store_meeting(run, seen.meeting, on=node)
            found.append((run, seen))
    if news:
        notify.changed(f"node-{node.pk}", "use")
    remote_workers.forget(node, there={seen.run for seen in observation.runs if seen.remote})
    return found


def _end(node: Node, run: TrainingRun, seen: RunObservation, *, exit_code: int, now: dt.datetime) -> None:
    """Unless the run migrates, or has gone, meanwhile."""
    still = TrainingRun.objects.filter(pk=run.pk, head_node=node, state__in=LIVE).select_related("experiment").first()
    if still is not None and seen.attempt >= still.attempt and (still.leave_revision is None or still.state == RunState.STOPPING):
        endings.finish(node, still, seen, exit_code=exit_code, now=now)


def note_version(node: Node, spoken: ProtocolVersion) -> None:
    """Which version of the messages the machine speaks."""
    if (node.protocol_version, node.protocol_oldest) != (spoken.version, spoken.oldest):
        Node.objects.filter(pk=node.pk).update(protocol_version=spoken.version, protocol_oldest=spoken.oldest)
        notify.changed("cluster", "nodes")


def _note_storage(node: Node, problem: str) -> None:
    """Store the problem that keeps runs from writing on the node, if any; they wait for it to pass."""
    if node.storage_problem == problem[:500]:
        return
    if Node.objects.filter(pk=node.pk).exclude(storage_problem=problem[:500]).update(storage_problem=problem[:500]):
        log.warning("Node %s: %s", node.name, problem or "There is room on its disk again.")
        notify.changed("cluster", "nodes", "lanes")
        notify.changed(f"node-{node.pk}", "storage")
        notify.nudge_schedule()


def _count(run: TrainingRun, seen: RunObservation) -> None:
    """Which attempt it is, and how long its slots were at work so far: unknown for good once its machine could not tell."""
    same = TrainingRun.objects.filter(pk=run.pk, busy_counted_s=run.busy_counted_s)  # what was counted meanwhile is not undone
    again = seen.attempt > run.attempt
    if again:  # only upwards: sending a run to another machine raises it too
        TrainingRun.objects.filter(pk=run.pk, attempt__lt=seen.attempt).update(attempt=seen.attempt)
    if run.busy_counted_s is None:
        return
    if seen.busy_s is None:
        TrainingRun.objects.filter(pk=run.pk).update(busy_s=None, busy_counted_s=None)
        return
    # A host that was replaced counts from nothing: until it has caught up nothing is added, so that nothing is counted twice.
    counted = 0.0 if again else run.busy_counted_s
    added = max(0.0, seen.busy_s - counted)
    if added or run.busy_s is None or counted != run.busy_counted_s:
        same.update(busy_s=Coalesce(F("busy_s"), 0.0) + added, busy_counted_s=max(counted, seen.busy_s))


def drain_node(node: Node, *, draining: bool) -> Node:
    """Drain the node, or take it back: the planner keeps a drained one empty."""
    with transaction.atomic():
        node.draining = draining
        node.save(update_fields=["draining"])
        _say()
    return node


def depart(node: Node, *, now: dt.datetime) -> None:
    """The machine has ended, and nothing of it is left there: nothing is placed on it until it is heard of again."""
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(left_at=Greatest(Value(now), F("last_seen_at")))
        _say()


def entitle(node: Node, *, title: str) -> None:
    """Set the node's title, by which pages call it."""
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(title=title)
        _say()


def fence(node: Node, *, now: dt.datetime) -> Node:
    """From now on nothing counts that the node's host has from before, and any host may become the node's. In the caller's transaction."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    node.revision = node.fence = max(node.revision + 1, int(now.timestamp() * 1000))
    node.identity, node.refused_at = "", None
    node.save(update_fields=["revision", "fence", "identity", "refused_at"])
    return node


def remove_node(node: Node, *, now: dt.datetime) -> None:
    """List it no more. Its row stays, since grants of the past name its slots; it is back when its host is heard of again."""
    with transaction.atomic():
        Slot.objects.filter(node=node).update(retired=True)
        Node.objects.filter(pk=node.pk).update(removed_at=now)
        _say()


def drain_slot(slot: Slot, *, draining: bool) -> Slot:
    """Drain the slot, or take it back: the planner keeps a drained one empty."""
    with transaction.atomic():
        slot.draining = draining
        slot.save(update_fields=["draining"])
        _say()
    return slot


def _say() -> None:
    notify.changed("cluster", "nodes", "lanes")


def _set_slots(node: Node, *, count: int | None, gpus: int) -> bool:
    """Set the node's slots. Slots that it lost are retired, not deleted, since grants refer to them. Returns whether anything changed."""
    device: Device = "gpu" if gpus else "cpu"
    total = count if count is not None else (gpus or CPU_SLOTS)
    there = {(slot.device, slot.index): slot for slot in Slot.objects.filter(node=node)}
    wanted_places = {(str(device), index) for index in range(total)}
    changed = 0
    for place in sorted(wanted_places - set(there)):
        Slot.objects.create(node=node, device=place[0], index=place[1])
        changed += 1
    for place, slot in there.items():
        if slot.retired == (place in wanted_places):
            changed += Slot.objects.filter(pk=slot.pk).update(retired=place not in wanted_places)
    return bool(changed)
