"""The shell around `plan`: facts from the database in, differences of grants out. The only writer of Grant and of runs' plan fields.

It decides nothing: `training_runtime.scheduling.plan` does, and its reasons are stored as they are. Every writer here holds the lock of the
rules row, so plans and proofs of freed slots come one after the other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from experiments import bulk
from experiments.cluster import environments, machine_pools, snapshot
from experiments.cluster.placement import head_node_for, usable_now
from experiments.cluster.plan_preview import ClusterWish, Difference, Preview, RunChange, preview
from experiments.cluster.snapshot import NODE_SILENT_S, Snapshot
from experiments.live import notify
from experiments.models import ClusterRules, Grant, Node, PastGrant, RunState, TrainingRun
from experiments.models.runs import TRAINED
from experiments.runs import states
from training_runtime.scheduling.ageing import TURN_S
from training_runtime.scheduling.facts import Plan
from training_runtime.scheduling.plan import plan

__all__ = [
    "NODE_SILENT_S",
    "ClusterWish",
    "Difference",
    "Preview",
    "RunChange",
    "TickSummary",
    "close_all",
    "close_grants",
    "finish_moves",
    "keep_accounts",
    "preview",
    "tick",
]

SUSPENDED_REASON = "Its slots went elsewhere; its state is kept and it goes on with the next step."
TRAINED_REASON = "Its training is done. What its script does now needs no slot."


@dataclass(frozen=True)
class TickSummary:
    """What a tick changed: its number, (run, slot) granted and asked back, and the nodes that were nudged."""

    tick: int
    granted: tuple[tuple[int, int], ...]
    asked_back: tuple[tuple[int, int], ...]
    nodes: tuple[str, ...]


@notify.together()
def tick(now: dt.datetime) -> TickSummary:
    """Plan and write the differences, in one transaction that no other tick overlaps."""
    with transaction.atomic():
        rules = snapshot.lock_rules()
        environments.want(nodes=snapshot.usable_nodes(now, rules), now=now)
        seen = snapshot.take_snapshot(rules, now=now, lock=True)
        decision = _with_words(seen, plan(seen.slot_facts, seen.run_facts, now=now.timestamp(), rules=seen.rules))
        head_nodes = _settle(seen, decision, now) | _migrate(seen)
        targets = {run: usable_now(seen, seen.runs[run], decision.grants.get(run, frozenset())) for run in seen.runs}
        asked = _ask_back(seen, targets, decision, now)
        granted = _grant(seen, targets, decision, now)
        _store_words(seen, decision, now)
        _change_states(seen, granted, now)
        rules.tick += 1
        rules.save(update_fields=["tick"])
        moved = {run for run, _ in (*asked, *granted)}
        nodes = _nodes(seen, moved | head_nodes, granted)
        _say(rules, nodes, moved=moved)
    return TickSummary(rules.tick, tuple(granted), tuple(asked), nodes)


def close_grants(node: Node, *, holding: Mapping[int, frozenset[int]], revision: int, now: dt.datetime) -> int:
    """Close the grants on the node that were asked back and whose slot the host has proven free; how many.

    `holding`: per run, the slots for which a process may still be alive, as the host saw them after snapshot `revision`.
    """
    asked = Grant.objects.filter(slot__node=node, released_at__isnull=True, release_requested_at__isnull=False)
    if not asked.exists():  # seen without the lock: one that is asked back now is proven free by a later snapshot
        return 0
    with transaction.atomic():
        rules = snapshot.lock_rules()
        # A host that has not seen the request yet may be about to start a process on a slot that it does not hold at this moment: only what
        # it says after a later snapshot than the one at the time of the request proves anything.
        free = [
            grant
            for grant in asked
            if grant.slot_id not in holding.get(grant.run_id, frozenset()) and revision > (grant.release_revision or 0)
        ]
        return _close(free, rules, now)


def close_all(run: TrainingRun, *, node: Node, now: dt.datetime, reason: str) -> int:
    """Close every open grant on the node of a run whose processes there are all proven gone; how many. Those on other machines are closed
    as they are proven free there."""
    with transaction.atomic():
        rules = snapshot.lock_rules()
        still = Grant.objects.filter(run=run, slot__node=node, released_at__isnull=True)
        still.filter(release_requested_at__isnull=True).update(release_requested_at=now, release_reason=reason)
        return _close(list(still), rules, now)


def keep_accounts(runs: Collection[int]) -> None:
    """Write down what these ended runs have held, by their ids, before they are deleted: nobody's usage goes away with their runs."""
    found = Grant.objects.filter(run__in=runs, released_at__isnull=False).order_by("pk")
    grants = list(found.values_list("run", "granted_at", "released_at", "slot__device"))
    held: defaultdict[int, float] = defaultdict(float)
    for run, granted_at, released_at, _ in grants:
        assert released_at is not None, "an ended run holds nothing"
        held[run] += (released_at - granted_at).total_seconds()
    columns = ("pk", "name", "busy_s", "submitted_by__username", "experiment__project", "experiment__project__name")
    said = {}
    for pk, name, busy_s, person, project, project_name in TrainingRun.objects.filter(pk__in=held).values_list(*columns):
        share = None if busy_s is None or not held[pk] else min(1.0, busy_s / held[pk])
        said[pk] = {"run": pk, "run_name": name, "person": person, "project": project, "project_name": project_name, "busy_share": share}
    rows = (PastGrant(**said[run], device=device, granted_at=begin, released_at=end) for run, begin, end, device in grants if end)
    PastGrant.objects.bulk_create(rows, batch_size=1000)


def _close(grants: Sequence[Grant], rules: ClusterRules, now: dt.datetime) -> int:
    if grants:
        for grant in grants:
            grant.released_at = max(now, grant.granted_at)  # the machine that granted may have a clock ahead of the one that closes
        bulk.update(grants, ["released_at"])
        rules.tick += 1
        rules.save(update_fields=["tick"])
        _say(rules, (), moved={grant.run_id for grant in grants})
        notify.nudge_schedule()
    return len(grants)


def _with_words(seen: Snapshot, decision: Plan) -> Plan:
    """The plan with reasons that name the disk for which runs wait, whose slots are out of service to the planner like any others, or the
    environment, without which they want nothing yet."""
    problems = [node.storage_problem for _, node in sorted(seen.nodes.items()) if node.storage_problem]
    reasons = dict(decision.reasons)
    for run_id, run in seen.runs.items():
        head_node = seen.nodes.get(run.head_node_id or 0)
        if not problems or run.paused or decision.grants.get(run_id) or (head_node is not None and not head_node.storage_problem):
            continue
        at_head = f"waits: {head_node.storage_problem}" if head_node is not None else ""
        reasons[run_id] = at_head or f"{reasons.get(run_id, 'waits')}. {problems[0]}"
    reasons |= {run_id: why for run_id, why in seen.unready.items() if not seen.runs[run_id].paused}
    return dataclasses.replace(decision, reasons=reasons)


def _settle(seen: Snapshot, decision: Plan, now: dt.datetime) -> set[int]:
    """Give each run that is promised slots its head node, so that its driver starts before the slots are free; the runs for which that is
    news.

    A run that is promised slots elsewhere than where its process waits migrates: once its head node has let it go (see
    `finish_moves`) it has none. A head node that is not heard of cannot do that, and need not: the run holds nothing there, so no worker of
    it can be at work. A script that had slots and never came to train() does not migrate: its process may be at work without them, and
    nothing of it is written down.
    """
    settled = set()
    for run_id, slots in decision.grants.items():
        run = seen.runs[run_id]
        head_node = head_node_for(seen, run, slots)
        if (head_node == run.head_node_id and run.leave_revision is None) or (run.head_node_id is not None and seen.held_by(run_id)):
            continue
        if run.head_node_id is None:
            run.head_node_id, run.moved_at = head_node, now
        elif not snapshot.may_end(run):
            continue
        elif run.head_node_id in seen.silent:
            run.head_node_id, run.leave_revision, run.attempt, run.moved_at = head_node, None, run.attempt + 1, now
        elif run.leave_revision is None:
            run.leave_revision = seen.nodes[run.head_node_id].revision
        else:
            continue
        settled.add(run_id)
    bulk.update([seen.runs[run] for run in sorted(settled)], ["head_node", "leave_revision", "attempt", "moved_at"])
    return settled


def _migrate(seen: Snapshot) -> set[int]:
    """Ask for the runs back that were to begin on a machine that has come to refuse them: its host may start their scripts before they have
    slots. What has begun stays, and goes on where it holds slots. The runs for which that is news."""
    waiting = [run for _, run in sorted(seen.runs.items()) if run.head_node_id in seen.closed and run.state == RunState.QUEUED]
    asked = [run for run in waiting if run.leave_revision is None and not seen.held_by(run.pk)]
    for run in asked:
        run.leave_revision = seen.nodes[run.head_node_id or 0].revision
    bulk.update(asked, ["leave_revision"])
    return {run.pk for run in asked}


def finish_moves(node: Node, *, there: Collection[int], revision: int) -> int:
    """Take note of the runs that are to leave the node and have no process there any more; how many.

    `there`: the runs that the host knows, as it said after snapshot `revision`. The next attempt starts wherever the plan says.
    """
    migrating = TrainingRun.objects.filter(head_node=node, leave_revision__lt=revision, state__in=snapshot.PLANNED)
    if not migrating.exists():  # as above
        return 0
    with transaction.atomic():
        snapshot.lock_rules()
        gone = migrating.exclude(pk__in=there).update(head_node=None, leave_revision=None, attempt=F("attempt") + 1)
        if gone:
            notify.nudge_schedule()
    return gone


def _ask_back(seen: Snapshot, targets: Mapping[int, frozenset[int]], decision: Plan, now: dt.datetime) -> list[tuple[int, int]]:
    """Ask for the slots that a run should not keep; take a request back where the slot is to stay after all."""
    changed = []
    for slot_id, grant in seen.grants.items():
        keeps = slot_id in targets.get(grant.run_id, frozenset())
        unheard = seen.slots[slot_id].node_id in seen.silent and grant.run_id in seen.runs  # nobody could use the slot meanwhile
        if keeps == (grant.release_requested_at is None) or unheard:
            continue
        grant.release_requested_at = None if keeps else now
        grant.release_reason = "" if keeps else _leaving_reason(grant, decision)
        grant.release_revision = None if keeps else seen.slots[slot_id].node.revision
        changed.append(grant)
    bulk.update(changed, ["release_requested_at", "release_reason", "release_revision"])
    return [(grant.run_id, grant.slot_id) for grant in changed]


def _leaving_reason(grant: Grant, decision: Plan) -> str:
    if grant.run.outcome == TRAINED:
        return TRAINED_REASON
    stopping = grant.run.stop_reason or ("It is being stopped." if grant.run.is_live() else "It has ended.")
    return decision.reasons.get(grant.run_id) or stopping


def _grant(seen: Snapshot, targets: Mapping[int, frozenset[int]], decision: Plan, now: dt.datetime) -> list[tuple[int, int]]:
    """Grant the promised slots that nobody holds; the others follow when they are proven free."""
    granted = [(run_id, slot_id) for run_id, slots in targets.items() for slot_id in sorted(slots) if slot_id not in seen.grants]
    Grant.objects.bulk_create(
        [Grant(run_id=run_id, slot_id=slot_id, granted_at=now, reason=decision.reasons[run_id]) for run_id, slot_id in granted]
    )
    return granted


def _change_states(seen: Snapshot, granted: Iterable[tuple[int, int]], now: dt.datetime) -> None:
    counts = Counter(run for run, _ in granted)
    steps = []
    for run in seen.runs.values():
        holds = len(seen.held_by(run.pk)) + counts[run.pk]
        if counts[run.pk] and run.state in (RunState.QUEUED, RunState.SUSPENDED):
            words = "1 slot" if counts[run.pk] == 1 else f"{counts[run.pk]} slots"
            steps.append(states.Step(run, RunState.STARTING, f"Granted {words}."))
        elif not holds and run.state in (RunState.STARTING, RunState.RUNNING):
            steps.append(states.Step(run, RunState.SUSPENDED, run.plan_reason or SUSPENDED_REASON))
    states.transition_all(steps, now=now)


def _store_words(seen: Snapshot, decision: Plan, now: dt.datetime) -> None:
    """Reasons, queue positions and forecasts, and what the next plan has to know, where they say something new."""
    noted = [run for run in seen.runs.values() if _note(run, seen, decision, now)]
    bulk.update(noted, ["kind", "waits_since", "favoured_at"])
    trained = [run for run in seen.leaving.values() if run.outcome == TRAINED]
    changed = []
    for run in (*seen.runs.values(), *trained):
        waiting = decision.queue.get(run.pk)
        position = waiting.position if waiting is not None else None
        expected = (
            waiting.expected_s if waiting is not None and waiting.expected_s is not None and math.isfinite(waiting.expected_s) else None
        )
        words = decision.reasons.get(run.pk, TRAINED_REASON if run.outcome == TRAINED else "") + _unheard(seen, run.pk)
        if (words, position) != (run.plan_reason, run.queue_position) or not _about_equal(expected, run.expected_start_s):
            run.plan_reason, run.queue_position, run.expected_start_s = words, position, expected
            changed.append(run)
    bulk.update(changed, ["plan_reason", "queue_position", "expected_start_s"])
    for run in changed:
        notify.changed(f"run-{run.pk}", "plan")
        notify.changed(f"experiment-{run.experiment_id}", "runs")
        notify.changed("cluster", "jobs")


def _note(run: TrainingRun, seen: Snapshot, decision: Plan, now: dt.datetime) -> bool:
    """Note on the run since when it waits, when it was let first, and on what kind of machine it trains; whether that is news."""
    before = run.kind, run.waits_since, run.favoured_at
    if decision.grants.get(run.pk) or run.paused or run.pk in seen.unready:
        run.waits_since = None
    elif run.waits_since is None:
        run.waits_since = now
    if run.pk in decision.favoured and (run.favoured_at is None or (now - run.favoured_at).total_seconds() >= TURN_S):
        run.favoured_at = now
    if run.engines is not None and run.head_node_id is not None and seen.held_by(run.pk):
        run.kind = machine_pools.kind(seen.nodes[run.head_node_id])
    return before != (run.kind, run.waits_since, run.favoured_at)


def _unheard(seen: Snapshot, run: int) -> str:
    counts = Counter(seen.slots[slot].node.name for slot in seen.unheard.get(run, ()))
    return "".join(f"; {count} more on {name}, which is offline" for name, count in sorted(counts.items()))


def _about_equal(new: float | None, old: float | None) -> bool:
    if new is None or old is None:
        return new is old
    return abs(new - old) <= max(5.0, 0.1 * old)


def _nodes(seen: Snapshot, runs: Iterable[int], granted: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Names of the nodes where something changes for these runs; `granted`: (run, slot) since the snapshot."""
    known = {**seen.runs, **seen.leaving}
    head_nodes = {known[run].head_node_id for run in runs if run in known} | {
        seen.slots[g.slot_id].node_id for r in runs for g in seen.held_by(r)
    }
    head_nodes |= {seen.slots[slot].node_id for _, slot in granted}
    return tuple(sorted(seen.nodes[head_node].name for head_node in head_nodes if head_node is not None))


def _say(rules: ClusterRules, nodes: Iterable[str], *, moved: set[int]) -> None:
    """Tell the nodes to look again, and the pages who holds what now; `moved` are the runs whose slots changed."""
    for name in nodes:
        notify.nudge_node(name)
    if moved:
        held = dict(Grant.objects.filter(released_at__isnull=True).values_list("slot_id", "run_id"))
        notify.slots(tick=rules.tick, held=held, counts=Counter(held.values()))
        notify.changed("cluster", "lanes", "feed")
        for run_id in moved:
            notify.changed(f"run-{run_id}", "slots")
