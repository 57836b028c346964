"""Nodes and slots: what machines say of themselves, and what the studio wants of them. The only writer of Node and Slot. What is said of
stations is in `stations`.

What a host says is believed about its own processes, and checked in shape by `protocol`. How a run ended is read from its journal first.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import os
import signal
from pathlib import Path
from typing import cast

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from experiments.cluster import environments, isolation, remote_workers, scheduling, slot_health, snapshot, utilization
from experiments.definitions import launchers, variables
from experiments.files import bundles, datastore, runfiles, stores
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import ClusterRules, DefinitionVersion, Grant, Node, RunState, Slot, TrainingRun
from experiments.models.runs import LIVE
from experiments.runs import states
from training_runtime.errors import HostUnavailable
from training_runtime.protocol import Apply, Device, NodeFacts, Observation, RunObservation, RunSpec, SlotRef, WantedRun

log = logging.getLogger(__name__)
STILL_READ = "Its processes have ended; the rest of its journal is being read."
CPU_SLOTS = 4  # of a node without GPUs, unless EDT_SLOTS says otherwise
LOG_TAIL_BYTES = 4000
END_OF = {"completed": RunState.COMPLETED, "stopped": RunState.STOPPED, "failed": RunState.FAILED}


class AnotherHost(HostUnavailable):
    """Another machine goes by this node's name already."""


def register(facts: NodeFacts, *, now: dt.datetime, slots: int | None = None) -> Node:
    """Store what the node is, and its slots: `slots` (EDT_SLOTS) of them where given, else one per GPU, else 4 CPU slots. More slots than
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
        news = _set_slots(node, count=slots if slots is not None else _slots_setting(), gpus=len(facts.gpus))
        if news or made or silent or before != after:
            notify.changed("cluster", "nodes", "lanes")
            notify.nudge_schedule()
    return "", node


def _refusal(node: Node, facts: NodeFacts, *, now: dt.datetime) -> str:
    """Why this host is not the node's; empty where it is, or may become it: the one before is silent and nothing of it is left."""
    if facts.identity in ("", node.identity) or not node.identity:
        return ""
    held = Grant.objects.filter(slot__node=node, released_at__isnull=True).exists()
    if snapshot.is_silent(node, now) and not held and not TrainingRun.objects.filter(home=node, state__in=LIVE).exists():
        return ""
    return (
        f"Another machine is node {node.name} already. Give this one a name of its own (EDT_NODE and --node); or, if the other is gone for "
        "good, declare it lost on the node's page."
    )


def desired_state(node: Node, *, now: dt.datetime) -> Apply:
    """A new snapshot of what should run on the node: every live run whose driver lives there, and the stations of those that have slots
    there, or are not proven gone from them yet, each with the slots of this node that it should hold."""
    with transaction.atomic():
        # Locked, so that the snapshot and its number belong together: a tick reads the number under the same lock (see close_grants).
        node = Node.objects.select_for_update().get(pk=node.pk)
        # From the clock, so that a database that was put back does not make the host wait for numbers it has seen.
        node.revision = max(node.revision + 1, int(now.timestamp() * 1000))
        node.save(update_fields=["revision"])
        related = ("version__bundle", "submitted_by", "experiment__data_asset")
        here = Q(leave_revision__isnull=True) | Q(
            state=RunState.STOPPING
        )  # those that are sent off are listed no more, so the host ends them
        held: dict[int, list[SlotRef]] = {}
        for grant in Grant.objects.filter(slot__node=node, released_at__isnull=True).select_related("slot__node"):
            asked_back = grant.release_requested_at is not None
            held.setdefault(grant.run_id, []).extend([] if asked_back else [_slot_ref(grant.slot)])
        at_home = TrainingRun.objects.filter(here, home=node, state__in=LIVE).select_related(*related)
        guests = TrainingRun.objects.filter(pk__in=held, state__in=LIVE).exclude(Q(home=node) | Q(home=None)).select_related(*related)
        runs = sorted((*at_home, *guests), key=lambda run: run.pk)
        secrets = variables.Secrets(runs)
        strict = isolation.doors().strict(node)
        found = [_wanted_run(run, held.get(run.pk, []), on=node, secrets=secrets, strict=strict, now=now) for run in runs]
        listed = tuple(each for each in found if each is not None)
        wishes, drop = environments.desired(node)
        return Apply(revision=node.revision, runs=listed, identity=node.identity, fence=node.fence, environments=wishes, drop=drop)


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
    news, away = False, remote_workers.elsewhere(node, {seen.run for seen in observation.runs})
    for seen in observation.runs:
        if seen.station:
            news |= remote_workers.take_in(node, seen, now=now)
            continue
        run = TrainingRun.objects.filter(pk=seen.run, home=node, state__in=LIVE).select_related("experiment").first()
        if run is None or seen.attempt < run.attempt:  # of an attempt before this one, which may have been elsewhere since
            continue
        _count(run, seen)
        utilization.keep(run, seen, now=now, away=away.get(run.pk, ()))
        news |= utilization.renew(run, seen, now=now, node=node)
        if seen.exit_code is not None and (run.leave_revision is None or run.state == RunState.STOPPING):
            _finish(node, run, seen, exit_code=seen.exit_code, now=now)
    if news:
        notify.changed(f"node-{node.pk}", "use")
    remote_workers.forget(node, there={seen.run for seen in observation.runs if seen.station})
    holding = {seen.run: frozenset(seen.holding) for seen in observation.runs}
    scheduling.close_grants(node, holding=holding, revision=observation.revision, now=now)
    scheduling.finish_moves(node, there=holding.keys(), revision=observation.revision)
    return node


def _note_storage(node: Node, problem: str) -> None:
    """Whether runs can write on the node, for which they wait there."""
    if Node.objects.filter(pk=node.pk).exclude(storage_problem=problem[:500]).update(storage_problem=problem[:500]):
        log.warning("Node %s: %s", node.name, problem or "There is room on its disk again.")
        notify.changed("cluster", "nodes", "lanes")
        notify.changed(f"node-{node.pk}", "storage")
        notify.nudge_schedule()


def _count(run: TrainingRun, seen: RunObservation) -> None:
    """Which attempt it is, and how long its slots were at work so far: unknown for good once its machine could not tell."""
    same = TrainingRun.objects.filter(pk=run.pk, busy_counted_s=run.busy_counted_s)  # what another agent has counted since is not undone
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
    """Whether the planner keeps the node empty."""
    with transaction.atomic():
        node.draining = draining
        node.save(update_fields=["draining"])
        _say()
    return node


def entitle(node: Node, *, title: str) -> None:
    """What people call it from now on."""
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
    """Whether the planner keeps the slot empty."""
    with transaction.atomic():
        slot.draining = draining
        slot.save(update_fields=["draining"])
        _say()
    return slot


def _say() -> None:
    notify.changed("cluster", "nodes", "lanes")


def _slots_setting() -> int | None:
    """EDT_SLOTS of this process, which is the node's own agent."""
    value = os.environ.get("EDT_SLOTS", "").strip()
    return int(value) if value.isdigit() and int(value) > 0 else None


def _set_slots(node: Node, *, count: int | None, gpus: int) -> bool:
    """The node has these slots from now on; those it lost are retired, not deleted, since grants name them. Whether something changed."""
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


def _slot_ref(slot: Slot) -> SlotRef:
    return SlotRef(id=slot.pk, node=slot.node.name, index=slot.place, device=cast(Device, slot.device))


def _wanted_run(
    run: TrainingRun, slots: list[SlotRef], *, on: Node, secrets: variables.Secrets, strict: bool, now: dt.datetime
) -> WantedRun | None:
    """None for a run whose code cannot be run any more, or whose secrets cannot be read, which fails, and for one whose folder cannot be
    made, which waits: the others of the node are not kept waiting by either."""
    station = run.home_id != on.pk
    stop = run.stop_requested_at is not None and not station  # its driver is told, and tells them
    reason = (run.stop_reason if stop else run.plan_reason) or run.state_reason
    try:
        # One that trains is not ended for a key that was replaced.
        values = secrets.of(run) if run.started_at is None else secrets.readable_of(run)
        spec = dataclasses.replace(_spec(run, on=on, secrets=values), apart=strict)
    except OSError as error:
        log.error("The folder of a run cannot be made: %s run=%d", error, run.pk)
        return None  # so nothing of it has ever begun, and nothing is stopped; it begins when there is room
    except (bundles.BundleRefused, variables.Unreadable) as refusal:
        if station:
            return None  # that is for its home to say
        states.transition(run, RunState.FAILED, reason=str(refusal), now=now)
        notify.nudge_schedule()
        return None
    return WantedRun(spec=spec, slots=() if stop else tuple(sorted(slots, key=lambda s: (s.index, s.id))), reason=reason[:2000], stop=stop)


def _spec(run: TrainingRun, *, on: Node, secrets: dict[str, str]) -> RunSpec:
    station, rules = run.home_id != on.pk, ClusterRules.current()
    data_root = datastore.root(run.experiment.data_asset)
    return RunSpec(
        run=run.pk,
        name=run.name,
        user=run.submitted_by.username,
        argv=bundles.entry(run.version.bundle, run.command),
        code_dir=str(bundles.unpacked(run.version.bundle)),
        result_dir=str(runfiles.make(run)),
        data_dir=str(stores.inside(data_root, run.data_folder)),
        max_slots=run.max_slots,
        env={str(key): str(value) for key, value in run.environment.items()},
        attempt=run.attempt,
        continue_from=str(_continued(run.continues)) if run.continues and not station else "",
        station=station,
        data_root=str(data_root),
        elastic=run.version.distributed != DefinitionVersion.Distributed.SINGLE,
        torchrun=run.version.torchrun,
        max_restarts=_max_restarts(run),
        environment=environments.folder_of(run, on),
        secrets=secrets,
        network=run.version.network == DefinitionVersion.Network.OUTWARD and rules.may_use_network(run.experiment.project_id),
        release_grace_s=rules.release_grace_s,
    )


def _max_restarts(run: TrainingRun) -> int:
    launcher = bundles.launcher(run.command)
    return launchers.MAX_RESTARTS if launcher is None or launcher.max_restarts is None else launcher.max_restarts


def _continued(number: int) -> Path:
    """The folder of the run to continue from. Of one that was deleted a place where nothing is: the host says so, or needs it no more."""
    return runfiles.folder_of(number) or settings.EDT_HOME / "runs" / f"{number}.deleted"


def _finish(node: Node, run: TrainingRun, seen: RunObservation, *, exit_code: int, now: dt.datetime) -> None:
    """Every process of the run is gone: free its slots, take in the rest of its journal, then say how it ended.

    A long journal is taken in elsewhere, in turns; meanwhile the run is stopping, and the host says again and again that it has ended.
    """
    _, over = ingest.catch_up_some(run.pk, now=now, most_batches=1, final=True)
    run.refresh_from_db()
    if not over:
        states.transition(run, RunState.STOPPING, reason=STILL_READ, now=now)
        scheduling.close_all(run, node=node, now=now, reason=STILL_READ)
        return
    state, reason = _ending(run, exit_code, detail=seen.detail)
    with transaction.atomic():
        facts: dict[str, object] = {"exit_code": exit_code}
        if state == RunState.FAILED:
            # Without a traceback (a wrong argument, say) what the script said last is what a person needs to read.
            facts |= {"error_message": run.error_message or reason, "error_traceback": run.error_traceback or _log_tail(run)}
        if run.started_at is None:  # it trained no step: its time is that of its script
            facts["started_at"] = run.started_at = states.began_at(run)
        TrainingRun.objects.filter(pk=run.pk).update(**facts)
        states.transition(run, state, reason=reason, now=now)
    scheduling.close_all(run, node=node, now=now, reason=reason)
    notify.nudge_node(node.name)  # the host forgets it


def _ending(run: TrainingRun, exit_code: int, *, detail: str) -> tuple[RunState, str]:
    """How a run ended and why: its journal's word where there is one, else its exit code."""
    asked = run.stop_requested_at is not None
    if run.outcome in END_OF:
        return ending(run)
    if asked:
        return RunState.STOPPED, run.stop_reason or "It was stopped."
    if exit_code == 0:
        return RunState.COMPLETED, "The script ended."
    if exit_code < 0:
        return RunState.FAILED, " ".join(filter(None, (f"Killed by {_signal_name(-exit_code)}.", detail)))
    if run.error_message:
        return RunState.FAILED, run.error_message
    return RunState.FAILED, " ".join(filter(None, (f"The script ended with exit code {exit_code}.", detail)))


def ending(run: TrainingRun) -> tuple[RunState, str]:
    """How a run ended whose journal says so, and why."""
    words = {"completed": "It finished.", "stopped": run.stop_reason or "It was stopped.", "failed": run.error_message or "It failed."}
    return END_OF[run.outcome], words[run.outcome]


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _log_tail(run: TrainingRun) -> str:
    """The last lines of the driver's console."""
    _, size = runfiles.read(run, runfiles.DRIVER_LOG, begin=0, limit_bytes=0)
    text, _ = runfiles.read(run, runfiles.DRIVER_LOG, begin=max(0, size - LOG_TAIL_BYTES), limit_bytes=LOG_TAIL_BYTES)
    return "\n".join(text.decode(errors="replace").replace("\0", "").splitlines()[-20:])
