"""The database as facts for the planner: slots, runs, rules, with the rows they came from. Reads and locks; decides and writes nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

from django.db.models import Model, QuerySet

from experiments.cluster import environments, isolation, machine_pools, meetings
from experiments.models import ClusterRules, DefinitionVersion, Grant, Node, RemoteAgent, RunState, Slot, TrainingRun
from experiments.models.runs import LIVE, TRAINED
from training_runtime.environments.readiness import Verdict
from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Policy, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.isolation import waits

NODE_SILENT_S = 15.0
TModel = TypeVar("TModel", bound=Model)
PLANNED = tuple(state for state in LIVE if state != RunState.STOPPING)


@dataclass(frozen=True)
class Snapshot:
    """Facts and their rows. `grants` are the open ones, by slot; `runs` (by id) are in the facts, `leaving` are live but not. `pools`: what
    the machines are called that share runs, by node. `unheard`: of runs whose driver is heard of, the slots on other machines that are not:
    no fact of theirs, they stay as they are until something is heard. `unready`: runs that wait for their environment, or that every
    machine refuses that they could be on, and why: to the planner they want nothing yet. `closed`: the machines that do (`isolation`).
    `met`: runs whose drivers are known where they can be reached."""

    slot_facts: tuple[SlotFacts, ...]
    run_facts: tuple[RunFacts, ...]
    rules: Rules
    nodes: Mapping[int, Node]
    slots: Mapping[int, Slot]
    grants: Mapping[int, Grant]
    runs: Mapping[int, TrainingRun]
    leaving: Mapping[int, TrainingRun]
    silent: frozenset[int]
    pools: Mapping[int, str]
    unheard: Mapping[int, tuple[int, ...]]
    unready: Mapping[int, str]
    closed: frozenset[int]
    met: frozenset[int]

    @cached_property
    def _grants_of(self) -> Mapping[int, Sequence[Grant]]:
        found: defaultdict[int, list[Grant]] = defaultdict(list)
        for grant in self.grants.values():
            found[grant.run_id].append(grant)
        return found

    def held_by(self, run_id: int) -> Sequence[Grant]:
        """The run's open grants, those it was asked to give back included."""
        return self._grants_of.get(run_id, ())

    def may_spread(self, run: TrainingRun) -> bool:
        """Whether it can have slots on other machines than its head node now."""
        return _spreads(run, self.met)


def is_silent(node: Node, now: dt.datetime) -> bool:
    """Whether the node has said that it has ended, or has not been heard of for so long that nothing new is placed there; nor since the
    clock was put back, if that was by more."""
    if node.last_seen_at is None or (node.left_at is not None and node.left_at >= node.last_seen_at):
        return True
    return abs((now - node.last_seen_at).total_seconds()) > NODE_SILENT_S


def usable_nodes(now: dt.datetime, rules: ClusterRules) -> list[Node]:
    """The machines on which something can be begun."""
    found = [node for node in Node.objects.filter(removed_at=None).order_by("pk") if not is_silent(node, now)]
    closed = isolation.doors(rules).closed(found)
    return [node for node in found if node.pk not in closed]


def lock_rules() -> ClusterRules:
    """The row that serialises all writers of grants, locked to the end of the transaction (SQLite: the transaction itself is the lock)."""
    locked = ClusterRules.objects.select_for_update()
    return locked.filter(pk=1).first() or locked.get(pk=ClusterRules.current().pk)


def take_snapshot(rules: ClusterRules, *, now: dt.datetime, lock: bool) -> Snapshot:
    """The facts now. With `lock` the nodes and live runs are locked too, in this order: nobody else locks them the other way round."""
    nodes = {node.pk: node for node in _locked(Node.objects.order_by("pk"), lock)}
    live = (
        TrainingRun.objects.filter(state__in=LIVE, outside=False)
        .select_related("version", "submitted_by", "experiment__project")
        .order_by("pk")
    )
    rows = list(_locked(live, lock))
    silent = frozenset(pk for pk, node in nodes.items() if is_silent(node, now))
    grants = _open_grants(rows)
    slots = {slot.pk: slot for slot in Slot.objects.order_by("pk") if slot.pk in grants or not (slot.retired or slot.node_id in silent)}
    for slot in slots.values():
        slot.node = nodes[slot.node_id]
    kept, unheard = _held(grants, slots, silent)
    closed = isolation.doors(rules).closed(nodes.values())
    with_slots = {slot.node_id: slot.node for slot in slots.values() if slot.node_id not in closed}
    pools = machine_pools.pools(with_slots.values()) if rules.several_machines else {}
    largest = max(Counter(slot.node_id for slot in slots.values()).values(), default=0)
    lost = frozenset(slot for of_run in unheard.values() for slot in of_run)
    planned = {run.pk: run for run in rows if run.state in PLANNED and run.stop_requested_at is None and not _is_done(run)}
    avoids, met = (_avoided(planned, nodes), meetings.met()) if pools else ({}, frozenset())
    heard = [node for node in nodes.values() if node.pk not in silent and node.removed_at is None]
    begins = [node for node in heard if node.pk not in closed]
    verdicts = environments.verdicts(nodes=begins)
    unready = {pk: each.waits or each.fails for pk, each in verdicts.items() if pk in planned and not each.on and not kept[pk]}
    unready |= _refused([run for run in planned.values() if not kept[run.pk]], heard, closed, slots.values())
    isolated_in = frozenset(pools.get(node.pk) or node.name for node in begins) if closed else None
    return Snapshot(
        slot_facts=tuple(
            _slot_facts(slot, grants.get(slot.pk), silent=slot.node_id in silent, lost=slot.pk in lost, pool=pools.get(slot.node_id, ""))
            for slot in slots.values()
        ),
        run_facts=tuple(
            dataclasses.replace(
                _run_facts(run, frozenset(kept[run.pk]), rules, unheard=len(unheard[run.pk]), nodes=nodes, silent=silent),
                pool=pools.get(run.head_node_id or 0, ""),
                alone=bool(pools) and (run.version.starts_over or (run.min_slots <= largest and not _spreads(run, met))),
                always_alone=bool(pools) and run.version.starts_over,
                avoids=avoids.get(run.pk, frozenset()) | _unreachable(run, nodes) | _without(run, verdicts, begins, pools),
                paused=run.paused or run.pk in unready,
                ready_in=_ready_in(run, verdicts, begins, pools),
                isolated_in=isolated_in,
            )
            for run in planned.values()
        ),
        rules=planner_rules(rules, planned),
        nodes=nodes,
        slots=slots,
        grants=grants,
        runs=planned,
        leaving={run.pk: run for run in rows if run.pk not in planned},
        silent=silent,
        pools=pools,
        unheard={run: tuple(sorted(of_run)) for run, of_run in unheard.items() if of_run},
        unready=unready,
        closed=closed,
        met=met,
    )


def _open_grants(live: Iterable[TrainingRun]) -> dict[int, Grant]:
    """By slot, each with its run, which is one of the live ones as a rule and is not read twice then."""
    found = {grant.slot_id: grant for grant in Grant.objects.filter(released_at__isnull=True)}
    runs = {run.pk: run for run in live}
    runs |= TrainingRun.objects.in_bulk({grant.run_id for grant in found.values()} - runs.keys())
    for grant in found.values():
        grant.run = runs[grant.run_id]
    return found


def _held(
    grants: Mapping[int, Grant], slots: Mapping[int, Slot], silent: Collection[int]
) -> tuple[defaultdict[int, set[int]], defaultdict[int, list[int]]]:
    """Per run, the slots that it holds and was not asked for, and those of which nothing is heard although its driver is."""
    kept: defaultdict[int, set[int]] = defaultdict(set)
    unheard: defaultdict[int, list[int]] = defaultdict(list)
    for slot_id, grant in grants.items():
        if slots[slot_id].node_id in silent and _has_head_node_elsewhere(grant, silent):
            unheard[grant.run_id].append(slot_id)
        elif grant.release_requested_at is None:
            kept[grant.run_id].add(slot_id)
    return kept, unheard


def _ready_in(run: TrainingRun, verdicts: Mapping[int, Verdict], heard: Sequence[Node], pools: Mapping[int, str]) -> frozenset[str] | None:
    """The rooms in which its environment is built on some machine; None where that is everywhere."""
    on = verdicts[run.pk].on if run.pk in verdicts else frozenset()
    if not on or all(node.name in on for node in heard):
        return None
    return frozenset(pools.get(node.pk) or node.name for node in heard if node.name in on)


def _without(run: TrainingRun, verdicts: Mapping[int, Verdict], heard: Sequence[Node], pools: Mapping[int, str]) -> frozenset[str]:
    """The machines, of those that share runs, where its environment is not built. Where its driver is it has it."""
    on = verdicts[run.pk].on if run.pk in verdicts else frozenset()
    return frozenset(node.name for node in heard if on and pools.get(node.pk) and node.name not in on and node.pk != run.head_node_id)


def _refused(runs: Iterable[TrainingRun], heard: Iterable[Node], closed: Collection[int], slots: Iterable[Slot]) -> dict[int, str]:
    """Of runs that hold nothing, those that every machine refuses that they could be on, and why they wait."""
    if not closed:
        return {}
    devices: defaultdict[int, set[str]] = defaultdict(set)
    for slot in slots:
        if not slot.retired:
            devices[slot.node_id].add(slot.device)
    found = {}
    for run in runs:
        device = {run.version.device} & {"cpu", "gpu"}
        able = [
            node for node in heard if devices[node.pk] >= device and devices[node.pk] and (not _stays(run) or node.pk == run.head_node_id)
        ]
        if able and all(node.pk in closed for node in able):
            found[run.pk] = waits([(node.name, node.sandbox_level) for node in able])
    return found


def _is_done(run: TrainingRun) -> bool:
    """Whether it has trained, so that the rest of its script needs no slot. A single process has its slots for its life."""
    return run.outcome == TRAINED and run.version.distributed != DefinitionVersion.Distributed.SINGLE


def may_end(run: TrainingRun) -> bool:
    """Whether the process of a run that holds nothing may be ended, to go on elsewhere: before train() nothing of it is written down,
    unless its script keeps checkpoints of its own."""
    return run.engines is not None or run.state == RunState.QUEUED or run.version.starts_over


def _stays(run: TrainingRun) -> bool:
    """Whether its process cannot be sent to another machine. A script that starts over would begin with a checkpoint of unknown age: it is
    left where it is as long as it has slots."""
    if run.head_node_id is None or run.leave_revision is not None:
        return False
    return not may_end(run) or (run.version.starts_over and run.state not in (RunState.QUEUED, RunState.SUSPENDED))


def _spreads(run: TrainingRun, met: Collection[int]) -> bool:
    """Whether it has come to train(), and the studio knows where the other machines reach its driver."""
    return run.engines is not None and (run.head_node_id is None or run.pk in met)


def _unreachable(run: TrainingRun, nodes: Mapping[int, Node]) -> frozenset[str]:
    """The machines, of those that share runs, where it could not use what it was promised: its own is being emptied, and it stays there."""
    if run.head_node_id is None or not _stays(run) or not (nodes[run.head_node_id].draining or nodes[run.head_node_id].storage_problem):
        return frozenset()
    return frozenset(node.name for node in nodes.values() if node.pk != run.head_node_id)


def _has_head_node_elsewhere(grant: Grant, silent: Collection[int]) -> bool:
    """Whether the slot's run has its driver on another machine, which is heard of."""
    head_node = grant.run.head_node_id
    return head_node is not None and head_node not in silent


def _avoided(runs: Mapping[int, TrainingRun], nodes: Mapping[int, Node]) -> dict[int, frozenset[str]]:
    """The machines where a run's remote agent gave up in this attempt of the run, by name."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for agent in RemoteAgent.objects.filter(abandoned=True, run__state__in=LIVE):
        if agent.run_id in runs and agent.attempt >= runs[agent.run_id].attempt and agent.node_id != runs[agent.run_id].head_node_id:
            found[agent.run_id].add(nodes[agent.node_id].name)
    return {run: frozenset(names) for run, names in found.items()}


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


def _slot_facts(slot: Slot, grant: Grant | None, *, silent: bool, lost: bool, pool: str) -> SlotFacts:
    """`lost`: its run goes on elsewhere without it, until its machine is heard of."""
    gone = slot.draining or slot.retired or slot.node.draining or bool(slot.out_reason or slot.node.storage_problem)
    if silent:  # silence stops no training: what a run holds there it keeps, whatever becomes of the slot, and nobody else could use it
        gone = grant is None or grant.release_requested_at is not None or lost
    holder = grant.run_id if grant is not None else None
    device, kind = cast(Device, slot.device), machine_pools.kind(slot.node)
    return SlotFacts(id=slot.pk, node=slot.node.name, device=device, draining=gone, holder=holder, pool=pool, kind=kind)


def _run_facts(
    run: TrainingRun, held: frozenset[int], rules: ClusterRules, *, unheard: int, nodes: Mapping[int, Node], silent: Collection[int]
) -> RunFacts:
    """`unheard`: how many slots it has beside those held, where nobody hears of it; they may be at work, so they count for its maximum."""
    device, most = run.version.device, run.max_slots
    if unheard:
        most = max(1, min(most, run.engines or most) - unheard)
    return RunFacts(
        id=run.pk,
        name=run.name,
        person=run.submitted_by.username,
        project=str(run.experiment.project_id),
        submitted_at=run.submitted_at.timestamp(),
        min_slots=max(1, min(run.min_slots - unheard, most)),
        max_slots=most,
        engines=run.engines,
        priority=run.counted_priority(rules.priority_ceiling),
        device=cast(Device, device) if device in ("cpu", "gpu") else None,
        paused=run.paused,
        held=held,
        remaining_s=run.remaining_s(),
        node=nodes[run.head_node_id].name if run.head_node_id is not None else None,
        pinned=run.head_node_id in silent and bool(held),
        stays=_stays(run),
        moved_at=run.moved_at.timestamp() if run.moved_at is not None else None,
        prologue_s=run.prologue_s,
        kind="" if run.any_kind else run.kind,
        waits_since=run.waits_since.timestamp() if run.waits_since is not None else None,
        favoured_since=run.favoured_at.timestamp() if run.favoured_at is not None else None,
    )
