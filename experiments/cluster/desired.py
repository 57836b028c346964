"""What should run on a node: the desired state that its host is sent, whole and numbered. Fails a run that cannot be begun."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from pathlib import Path
from typing import NamedTuple, cast

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from experiments.cluster import environments, fleet, isolation, meetings
from experiments.definitions import launchers, variables
from experiments.files import bundles, datastore, runfiles, stores
from experiments.files.store import needed
from experiments.live import notify
from experiments.models import ClusterRules, DefinitionVersion, Grant, Node, RunState, Slot, TrainingRun
from experiments.models.runs import LIVE
from experiments.runs import states
from training_runtime.protocol import Apply, Device, RunSpec, SlotRef, WantedRun

log = logging.getLogger(__name__)
NOT_MIGRATING = Q(leave_revision__isnull=True) | Q(state=RunState.STOPPING)  # those that migrate are not listed, so the host ends them
TRIES = 3  # to put together without a lock what is wanted of a node
RUN_FACTS = (
    "pk",
    "head_node",
    "state",
    "attempt",
    "leave_revision",
    "moved_at",
    "stop_requested_at",
    "stop_reason",
    "plan_reason",
    "state_reason",
)


class Desired(NamedTuple):
    """The desired state that a node was sent, and the facts that it was made from (see `renewed`)."""

    apply: Apply
    facts: tuple[object, ...]


def desired_state(node: Node, *, now: dt.datetime) -> Apply:
    """A new snapshot of what should run on the node: every live run whose driver lives there, and the remote agents of those that have
    slots there, or are not proven gone from them yet, each with the slots of this node that it should hold."""
    return numbered(node, now=now).apply


def numbered(node: Node, *, now: dt.datetime) -> Desired:
    """`desired_state` with the facts that it was made from.

    It is put together without a lock and counts if its facts are still so when it gets its number: a plan is not kept waiting by it.
    """
    for _ in range(TRIES):
        found = _put_together(Node.objects.get(pk=node.pk), now=now)
        if (same := renewed(node, found, now=now)) is not None:
            return same
    with transaction.atomic():
        return _put_together(fleet.next_revision(node, now=now), now=now)


def renewed(node: Node, before: Desired, *, now: dt.datetime) -> Desired | None:
    """The same under a new number; None where grants or runs of the node have changed, so that it has to be put together anew. What else it
    depends on (policy, people, environments, variables) is not looked at: who changes that nudges the node, or it can wait a little."""
    with transaction.atomic():
        node = fleet.next_revision(node, now=now)
        if _facts_of(node) != before.facts:
            return None
        return before._replace(apply=dataclasses.replace(before.apply, revision=node.revision))


def _put_together(node: Node, *, now: dt.datetime) -> Desired:
    facts = _facts_of(node)
    held: dict[int, list[SlotRef]] = {}
    for grant in Grant.objects.filter(slot__node=node, released_at__isnull=True).select_related("slot__node"):
        asked_back = grant.release_requested_at is not None
        held.setdefault(grant.run_id, []).extend([] if asked_back else [_slot_ref(grant.slot)])
    related = ("version__bundle", "submitted_by", "experiment__data_asset")
    guests = Q(pk__in=held) & ~Q(head_node=node) & ~Q(head_node=None)
    runs = TrainingRun.objects.filter(Q(NOT_MIGRATING, head_node=node) | guests, state__in=LIVE).select_related(*related).order_by("pk")
    rules = ClusterRules.current()
    doors = isolation.doors(rules)
    about = _About(node, rules, variables.Secrets(runs), doors.strict(node), now)
    found = [_wanted_run(run, held.get(run.pk, []), about) for run in runs]
    listed = tuple(each for each in found if each is not None)
    wishes, drop = environments.desired(node, doors)
    apply = Apply(revision=node.revision, runs=listed, identity=node.identity, fence=node.fence, environments=wishes, drop=drop)
    return Desired(apply, facts)


def _facts_of(node: Node) -> tuple[object, ...]:
    """Of the node's grants and of its runs, what its snapshot depends on."""
    grants = Grant.objects.filter(slot__node=node, released_at__isnull=True).order_by("pk")
    held = tuple(grants.values_list("pk", "run", "slot", "release_requested_at"))
    runs = TrainingRun.objects.filter(Q(head_node=node) | Q(pk__in={row[1] for row in held}), state__in=LIVE).order_by("pk")
    return node.identity, node.fence, node.sandbox_level, node.base, held, tuple(runs.values_list(*RUN_FACTS))


def _slot_ref(slot: Slot) -> SlotRef:
    return SlotRef(id=slot.pk, node=slot.node.name, index=slot.device_index, device=cast(Device, slot.device))


class _About(NamedTuple):
    """Settings that all runs of a snapshot share. `strict`: see `isolation.Doors.strict`."""

    node: Node
    rules: ClusterRules
    secrets: variables.Secrets
    strict: bool
    now: dt.datetime


def _wanted_run(run: TrainingRun, slots: list[SlotRef], about: _About) -> WantedRun | None:
    """None for a run whose code cannot be run any more, or whose secrets cannot be read, which fails, and for one whose folder cannot be
    made, or whose driver nobody could find, which waits: the others of the node are not kept waiting by either."""
    remote = run.head_node_id != about.node.pk
    meeting = meetings.meeting_of(run) if remote else None
    if remote and meeting is None:
        return None
    stop = run.stop_requested_at is not None and not remote  # its driver is told, and tells them
    reason = (run.stop_reason if stop else run.plan_reason) or run.state_reason
    try:
        # One that trains is not ended for a key that was replaced.
        values = about.secrets.of(run) if run.started_at is None else about.secrets.readable_of(run)
        spec = dataclasses.replace(_spec(run, on=about.node, rules=about.rules, secrets=values), isolated=about.strict, meeting=meeting)
    except OSError as error:
        log.error("The folder of a run cannot be made: %s run=%d", error, run.pk)
        return None  # so nothing of it has ever begun, and nothing is stopped; it begins when there is room
    except (bundles.BundleRefused, variables.Unreadable) as refusal:
        if remote:
            return None  # that is for its head node to say
        states.transition(run, RunState.FAILED, reason=str(refusal), now=about.now)
        notify.nudge_schedule()
        return None
    return WantedRun(spec=spec, slots=() if stop else tuple(sorted(slots, key=lambda s: (s.index, s.id))), reason=reason[:2000], stop=stop)


def _spec(run: TrainingRun, *, on: Node, rules: ClusterRules, secrets: dict[str, str]) -> RunSpec:
    remote = run.head_node_id != on.pk
    data_root = datastore.present(run.experiment.data_asset)
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
        continue_from=str(_continued(run.continues)) if run.continues and not remote else "",
        remote=remote,
        data_root=str(data_root),
        elastic=run.version.distributed != DefinitionVersion.Distributed.SINGLE,
        torchrun=run.version.torchrun,
        max_restarts=_max_restarts(run),
        environment=environments.folder_of(run, on),
        secrets=secrets,
        network=run.version.network == DefinitionVersion.Network.OUTWARD and rules.may_use_network(run.experiment.project_id),
        release_grace_s=rules.release_grace_s,
        module=bundles.module(run.command),
    )


def _max_restarts(run: TrainingRun) -> int:
    launcher = bundles.launcher(run.command)
    return launchers.MAX_RESTARTS if launcher is None or launcher.max_restarts is None else launcher.max_restarts


def _continued(number: int) -> Path:
    """The folder of the run to continue from. Of one that was deleted a place where nothing is: the host says so, or needs it no more."""
    return needed.folder_of(number) or settings.EDT_HOME / "runs" / f"{number}.deleted"
