"""The database as facts for the planner: slots, runs, rules, with the rows they came from. Reads and locks; decides and writes nothing."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from django.db.models import Model, QuerySet

from experiments.models import ClusterRules, Grant, Node, RunState, Slot, TrainingRun
from experiments.models.runs import LIVE, TRAINED
from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Policy, Rules, RunFacts, SlotFacts

NODE_SILENT_S = 15.0
TModel = TypeVar("TModel", bound=Model)
PLANNED = tuple(state for state in LIVE if state != RunState.STOPPING)


@dataclass(frozen=True)
class Snapshot:
    """Facts and their rows. `grants` are the open ones, by slot; `runs` (by id) are in the facts, `leaving` are live but not."""

    slot_facts: tuple[SlotFacts, ...]
    run_facts: tuple[RunFacts, ...]
    rules: Rules
    nodes: Mapping[int, Node]
    slots: Mapping[int, Slot]
    grants: Mapping[int, Grant]
    runs: Mapping[int, TrainingRun]
    leaving: Mapping[int, TrainingRun]
    silent: frozenset[int]

    def held_by(self, run_id: int) -> list[Grant]:
        """The run's open grants, those it was asked to give back included."""
        return [grant for grant in self.grants.values() if grant.run_id == run_id]


def is_silent(node: Node, now: dt.datetime) -> bool:
    """Whether the node has not been heard of for so long that nothing new is placed there."""
    return node.last_seen_at is None or (now - node.last_seen_at).total_seconds() > NODE_SILENT_S


def lock_rules() -> ClusterRules:
    """The row that serialises all writers of grants, locked to the end of the transaction (SQLite: the transaction itself is the lock)."""
    ClusterRules.current()
    return ClusterRules.objects.select_for_update().get(pk=1)


def take(rules: ClusterRules, *, now: dt.datetime, lock: bool) -> Snapshot:
    """The facts now. With `lock` the nodes and live runs are locked too, in this order: nobody else locks them the other way round."""
    nodes = {node.pk: node for node in _locked(Node.objects.order_by("pk"), lock)}
    live = TrainingRun.objects.filter(state__in=LIVE).select_related("version", "submitted_by", "experiment").order_by("pk")
    rows = list(_locked(live, lock))
    silent = frozenset(pk for pk, node in nodes.items() if is_silent(node, now))
    grants = {grant.slot_id: grant for grant in Grant.objects.filter(released_at__isnull=True).select_related("run")}
    slots = {slot.pk: slot for slot in Slot.objects.order_by("pk") if slot.pk in grants or not (slot.retired or slot.node_id in silent)}
    for slot in slots.values():
        slot.node = nodes[slot.node_id]
    kept: defaultdict[int, set[int]] = defaultdict(set)
    for slot_id, grant in grants.items():
        if grant.release_requested_at is None:
            kept[grant.run_id].add(slot_id)
    planned = {run.pk: run for run in rows if run.state in PLANNED and run.stop_requested_at is None and run.outcome != TRAINED}
    return Snapshot(
        slot_facts=tuple(_slot_facts(slot, grants.get(slot.pk), silent=slot.node_id in silent) for slot in slots.values()),
        run_facts=tuple(_run_facts(run, frozenset(kept[run.pk]), nodes=nodes, silent=silent) for run in planned.values()),
        rules=planner_rules(rules, planned),
        nodes=nodes,
        slots=slots,
        grants=grants,
        runs=planned,
        leaving={run.pk: run for run in rows if run.pk not in planned},
        silent=silent,
    )


def planner_rules(rules: ClusterRules, runs: Mapping[int, TrainingRun]) -> Rules:
    """What the administrator set, and the weights of the people who have runs."""
    return Rules(
        policy=cast(Policy, rules.policy),
        person_weights={run.submitted_by.username: run.submitted_by.weight for run in runs.values()},
        person_quota=dict(rules.person_quota),
        project_quota={str(key): value for key, value in rules.project_quota.items()},
        one_machine=True,
    )


def _locked(found: QuerySet[TModel], lock: bool) -> QuerySet[TModel]:
    return found.select_for_update(of=("self",), no_key=True) if lock else found


def _slot_facts(slot: Slot, grant: Grant | None, *, silent: bool) -> SlotFacts:
    gone = slot.draining or slot.retired or slot.node.draining
    if silent:  # silence stops no training: what a run holds there it keeps, whatever becomes of the slot, and nobody else could use it
        gone = grant is None or grant.release_requested_at is not None
    return SlotFacts(
        id=slot.pk, node=slot.node.name, device=cast(Device, slot.device), draining=gone, holder=grant.run_id if grant is not None else None
    )


def _run_facts(run: TrainingRun, held: frozenset[int], *, nodes: Mapping[int, Node], silent: Collection[int]) -> RunFacts:
    device = run.version.device
    return RunFacts(
        id=run.pk,
        name=run.name,
        person=run.submitted_by.username,
        project=str(run.experiment.project_id),
        submitted_at=run.submitted_at.timestamp(),
        min_slots=run.min_slots,
        max_slots=run.max_slots,
        engines=run.engines,
        priority=run.priority,
        device=cast(Device, device) if device in ("cpu", "gpu") else None,
        paused=run.paused,
        held=held,
        remaining_s=run.remaining_s(),
        node=nodes[run.home_id].name if run.home_id is not None else None,
        pinned=run.home_id in silent and bool(held),
    )
