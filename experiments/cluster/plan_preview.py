"""Previews a change of the allocation: runs the same pure plan on changed facts, and describes the differences in sentences.

Writes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from experiments.cluster import snapshot
from experiments.cluster.snapshot import Snapshot
from experiments.models import ClusterRules, Node, TrainingRun
from training_runtime.scheduling.changes import difference, machines
from training_runtime.scheduling.facts import Plan, Policy, RunFacts
from training_runtime.scheduling.plan import plan

OF_FACTS = ("several_machines", "priority_ceiling", "people_trust_each_other")  # rules by which the planner's facts are made
NOT_PLANNED = (
    *("draining", "new_project_quota", "without_network", "new_projects_network", "release_grace_s"),
    *("project_disk", "new_project_disk", "each_person_disk"),
)


@dataclass(frozen=True)
class RunChange:
    """A change of one run to preview; None leaves a field as it is. `agreed`: by an administrator, above the ceiling of priority too."""

    priority: int | None = None
    min_slots: int | None = None
    max_slots: int | None = None
    paused: bool | None = None
    stop: bool = False
    agreed: bool = False


@dataclass(frozen=True)
class ClusterWish:
    """A change of the cluster's rules to preview; None leaves a field as it is.

    Weights and quotas by username, projects' quotas by id: all of them, as they would be. `draining`: by slot id.
    """

    policy: Policy | None = None
    person_weights: Mapping[str, float] | None = None
    person_quota: Mapping[str, int] | None = None
    project_quota: Mapping[str, int] | None = None
    draining: Mapping[int, bool] | None = None
    several_machines: bool | None = None
    priority_ceiling: int | None = None
    new_project_quota: int | None = None
    project_disk: Mapping[str, int] | None = None
    new_project_disk: int | None = None
    each_person_disk: int | None = None
    without_network: list[str] | None = None
    new_projects_network: bool | None = None
    release_grace_s: int | None = None
    people_trust_each_other: bool | None = None


@dataclass(frozen=True)
class Difference:
    """What a change would do to one run: slots held by the plan before and after, and the plan's reason after. `name`: the run's, or
    nothing where whoever asked may not know it."""

    run: TrainingRun
    name: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True)
class Preview:
    """The plan as things are, the plan with the changes, the runs whose slots or machine would differ, and the same in sentences."""

    before: Plan
    after: Plan
    differences: tuple[Difference, ...]
    sentences: tuple[str, ...]


def drained(node: Node, *, draining: bool, slot: int | None) -> ClusterWish:
    """That the node is drained or taken back, or one of its slots, by its id. A slot is out of service by itself, or with its node."""
    slots = [each for each in node.slots.all() if slot is None or each.pk == slot]
    kept = [each.draining if slot is None else node.draining for each in slots]
    return ClusterWish(
        draining={each.pk: each.retired or bool(each.out_reason) or draining or also for each, also in zip(slots, kept, strict=True)}
    )


def preview(
    *,
    now: dt.datetime,
    changes: Mapping[int, RunChange] | None = None,
    cluster: ClusterWish | None = None,
    named: Callable[[Collection[int]], Collection[int]] = frozenset,
) -> Preview:
    """What the allocation would become with changes to runs (by their ids) and to what holds for everybody. Writes nothing. `named`: which
    of these runs whoever asks may know by name."""
    rules = ClusterRules.current()
    seen = would = snapshot.take_snapshot(rules, now=now, lock=False)
    changes, wish = changes or {}, cluster or ClusterWish()
    asked = {name: value for name in OF_FACTS if (value := getattr(wish, name)) not in (None, getattr(rules, name))}
    if asked:
        vars(rules).update(asked)
        would = snapshot.take_snapshot(rules, now=now, lock=False)
    left = [facts for facts in would.run_facts if not changes.get(facts.id, RunChange()).stop]
    changed = [_changed(facts, changes.get(facts.id), would, rules.priority_ceiling) for facts in left]
    given = {name: value for name, value in vars(wish).items() if name not in (*OF_FACTS, *NOT_PLANNED) and value is not None}
    draining = wish.draining or {}
    slots = [dataclasses.replace(slot, draining=draining.get(slot.id, slot.draining)) for slot in would.slot_facts]
    known = frozenset(named(seen.runs.keys()))
    facts_before, changed = _named(seen.run_facts, known), _named(changed, known)
    before = plan(seen.slot_facts, facts_before, now=now.timestamp(), rules=seen.rules)
    after = plan(slots, changed, now=now.timestamp(), rules=dataclasses.replace(seen.rules, **given))
    node_of = {slot.id: slot.node for slot in slots}
    differences = [
        Difference(seen.runs[facts.id], facts.name, before=had, after=has, reason=after.reasons.get(facts.id, "It is stopped."))
        for facts in facts_before
        if (had := len(before.grants.get(facts.id, ()))) != (has := len(after.grants.get(facts.id, ())))
        or machines(before, facts.id, node_of) != machines(after, facts.id, node_of)
    ]
    return Preview(before, after, tuple(differences), tuple(difference(before, after, facts_before, slots)))


def _named(runs: Iterable[RunFacts], known: Collection[int]) -> list[RunFacts]:
    return [facts if facts.id in known else dataclasses.replace(facts, name="") for facts in runs]


def _changed(facts: RunFacts, change: RunChange | None, seen: Snapshot, ceiling: int) -> RunFacts:
    if change is None:
        return facts
    given = {name: value for name, value in dataclasses.asdict(change).items() if name not in ("stop", "agreed") and value is not None}
    if change.priority is not None and not change.agreed:
        given["priority"] = seen.runs[facts.id].counted_priority(ceiling, change.priority)
    return dataclasses.replace(facts, **given)
