"""Verbs of an administrator of the cluster: drain, declare lost, remove, policy, quotas, weights. They store wishes, a row of history with
the reason that was given, and nudge the planner."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from experiments.cluster import fleet, joining, losses, meetings, slot_health, snapshot
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import ClusterChange, ClusterRules, Grant, Node, Project, Slot, TrainingRun, User
from experiments.models.runs import LIVE
from experiments.ops import clock
from experiments.services import checks

POLICIES = {"fair_share": "fair share", "priority": "priority"}
MOST_SLOTS = 1_000_000
REASON_LIMIT = 400
MOST_TITLE = 100
MOST_PRIORITY = 10_000
MOST_GB = 1_000_000
LEAST_GRACE_S, MOST_GRACE_S = 1, 3600
MAY_BE_NONE = ("new_project_quota", "new_project_disk", "each_person_disk")
OTHERS: dict[str, Callable[[Any, Any], str]] = {  # (before, after) -> what was done, in words
    "several_machines": lambda _, after: ("allowed" if after else "no longer allows") + " runs to use several machines",
    "priority_ceiling": lambda before, after: f"changed the highest priority without an administrator from {before} to {after}",
    "without_network": lambda before, after: _networks(before, after),
    "release_grace_s": lambda before, after: f"changed the time for leaving a slot from {before} s to {after} s",
    "new_projects_network": lambda _, after: f"{'allows' if after else 'no longer allows'} new projects the network",
    "people_trust_each_other": lambda _, after: (
        f"{'said' if after else 'no longer says'} that the people here trust each other with their code, where a box does not keep it apart"
    ),
    "new_project_quota": lambda before, after: f"changed the quota of new projects from {_slots(before)} to {_slots(after)}",
    "project_disk": lambda before, after: " and ".join(
        _quotas(before, after, names={key: f"the disk of project {key}" for key in {*before, *after}}, words=_gb)
    ),
    "new_project_disk": lambda before, after: f"changed the disk of new projects from {_gb(before)} to {_gb(after)}",
    "each_person_disk": lambda before, after: f"changed the disk of each person from {_gb(before)} to {_gb(after)}",
}


def set_node_draining(node: Node, *, by: User, draining: bool, reason: str = "", now: dt.datetime | None = None) -> Node:
    """A draining node gets its runs moved off and takes no new ones. Harmless when it is so already."""
    with transaction.atomic():
        node = Node.objects.select_for_update().get(pk=node.pk)
        if node.draining != draining:
            note(by, [f"{'drained' if draining else 'took back into service'} node {node.name}"], reason=reason, now=now)
            fleet.drain_node(node, draining=draining)
    return node


def set_cluster_draining(*, by: User, draining: bool, reason: str = "", now: dt.datetime | None = None) -> int:
    """All nodes at once; how many that changed."""
    with transaction.atomic():
        nodes = list(Node.objects.select_for_update().filter(removed_at=None, draining=not draining).order_by("pk"))
        for node in nodes:
            set_node_draining(node, by=by, draining=draining, reason=reason, now=now)
    return len(nodes)


def declare_node_lost(node: Node, *, by: User, confirm_name: str, reason: str = "", now: dt.datetime | None = None) -> tuple[int, int]:
    """The machine is gone for good: its slots are free, its runs go on elsewhere or end where that was asked; how many of each.

    Refused while it is heard of. Fields: confirm_name.
    """
    now = now or clock.now()
    node = Node.objects.get(pk=node.pk)
    if confirm_name.strip() != node.name:
        checks.refuse("confirm_name", "Nothing was changed: type the node's name to confirm.")
    if not snapshot.is_silent(node, now):
        checks.refuse("confirm_name", f"{node.name} is heard of: it is not lost. Drain it to take it out of service.")
    found = losses.abandon(node, now=now, reason=f"{node.name} was declared lost by {by.username}.")
    note(by, [f"declared node {node.name} lost"], reason=reason, now=now)
    return found


def rename_node(node: Node, *, by: User, title: str, reason: str = "", now: dt.datetime | None = None) -> Node:
    """What people call the machine, beside its name, which stays what it is known by; empty: nothing else. Field: title."""
    title = " ".join(title.split())
    if len(title) > MOST_TITLE or not title.isprintable():
        checks.refuse("title", f"Give a title of at most {MOST_TITLE} letters, or none.")
    with transaction.atomic():
        node = Node.objects.select_for_update().get(pk=node.pk)
        if node.title != title:
            note(by, [f"calls node {node.name} {title!r}" if title else f"took the title of node {node.name} away"], reason=reason, now=now)
            fleet.entitle(node, title=title)
            node.refresh_from_db()
    return node


def remove_node(node: Node, *, by: User, reason: str = "", now: dt.datetime | None = None) -> None:
    """Take a machine that is not heard of, and that no run has to do with, out of the lists. Refused otherwise."""
    now = now or clock.now()
    with transaction.atomic():
        node = Node.objects.select_for_update().get(pk=node.pk)
        if not snapshot.is_silent(node, now):
            raise DomainError(f"{node.name} is heard of: end edt-node there first.")
        held = Grant.objects.filter(slot__node=node, released_at__isnull=True).exists()
        if held or TrainingRun.objects.filter(head_node=node, state__in=LIVE).exists():
            raise DomainError(f"Runs are on {node.name}: declare it lost first, so that they go on elsewhere.")
        if node.removed_at is None:
            note(by, [f"removed node {node.name}"], reason=reason, now=now)
            joining.end(node.name)
            fleet.remove_node(node, now=now)


def set_slot_draining(slot: Slot, *, by: User, draining: bool, reason: str = "", now: dt.datetime | None = None) -> Slot:
    """The same for one slot."""
    with transaction.atomic():
        slot = Slot.objects.select_related("node").get(pk=slot.pk)
        if slot.draining != draining:
            what = f"{'drained' if draining else 'took back into service'} slot {slot.label()} of node {slot.node.name}"
            note(by, [what], reason=reason, now=now)
            fleet.drain_slot(slot, draining=draining)
    return slot


def put_slot_back(slot: Slot, *, by: User, reason: str = "", now: dt.datetime | None = None) -> Slot:
    """A slot that was taken out of service because it looked ill is used again, and what spoke against it is forgotten. Harmless where it
    is in service."""
    with transaction.atomic():
        slot = Slot.objects.select_for_update(of=("self",)).select_related("node").get(pk=slot.pk)
        if slot.out_reason or slot.doubt:
            note(by, [f"put slot {slot.label()} of node {slot.node.name} back into service"], reason=reason, now=now)
            slot_health.put_back(slot, now=now or clock.now())
            slot.refresh_from_db()
    return slot


def set_policy(
    *,
    by: User,
    policy: str,
    person_quota: Mapping[str, int] | None = None,
    project_quota: Mapping[str, int] | None = None,
    reason: str = "",
    now: dt.datetime | None = None,
    **others: Any,
) -> ClusterRules:
    """Policy, quotas in slots, by username and by project id; `others` are further rules by name (see OTHERS). None leaves these as they
    are, where it is no value of theirs. Fields: policy, person_quota, project_quota, priority_ceiling, new_project_quota,
    without_network, new_projects_network, release_grace_s, project_disk, new_project_disk,
    each_person_disk.
    """
    if policy not in POLICIES:
        checks.refuse("policy", "Choose one of: Fair share, Priority.")
    if person_quota is not None:
        _check_quota(person_quota, known=set(User.objects.values_list("username", flat=True)), field="person_quota")
    if project_quota is not None:
        known = {str(pk) for pk in Project.objects.values_list("pk", flat=True)}
        gone = ClusterRules.current().project_quota.keys() - known  # quotas of projects that were deleted: nobody could take them back
        project_quota = {str(key): slots for key, slots in project_quota.items() if str(key) not in gone}
        _check_quota(project_quota, known=known, field="project_quota")
    with transaction.atomic():
        rules = snapshot.lock_rules()
        said = _differences(rules, policy=policy, person_quota=person_quota, project_quota=project_quota)
        said += _set_others(rules, others)
        if said:
            rules.policy = policy
            rules.person_quota = dict(person_quota) if person_quota is not None else rules.person_quota
            rules.project_quota = dict(project_quota) if project_quota is not None else rules.project_quota
            rules.save(update_fields=["policy", "person_quota", "project_quota", *OTHERS, "updated_at"])
            if not rules.several_machines:
                meetings.forget_meetings()
            note(by, said, reason=reason, now=now)
    return rules


def set_weight(user: User, *, by: User, weight: float, reason: str = "", now: dt.datetime | None = None) -> User:
    """The person's share under fair share: 2 gets twice what 1 gets. Field: weight."""
    if not math.isfinite(weight) or not 0.01 <= weight <= 1000:
        checks.refuse("weight", "Give a number from 0.01 to 1000; 1 is the usual share.")
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user.pk)
        if user.weight != weight:
            note(by, [f"changed {user.username}'s weight from {user.weight:g} to {weight:g}"], reason=reason, now=now)
            user.weight = weight
            user.save(update_fields=["weight"])
    return user


def set_sharing(
    *,
    by: User,
    policy: str,
    weights: Mapping[str, float],
    person_quota: Mapping[str, int],
    project_quota: Mapping[str, int],
    reason: str = "",
    now: dt.datetime | None = None,
    **others: Any,
) -> ClusterRules:
    """Everything about sharing at once, or nothing of it. `weights` by username. Fields as of `set_policy` and `set_weight`."""
    with transaction.atomic():
        for username, weight in weights.items():
            user = User.objects.filter(username=username).first()
            if user is None:
                checks.refuse("weight", f"There is no user {username!r}: open the page again.")
            try:
                set_weight(user, by=by, weight=weight, reason=reason, now=now)
            except DomainError as error:
                checks.refuse("weight", f"{username}: {error}")
        quotas = {"person_quota": person_quota, "project_quota": project_quota}
        return set_policy(by=by, policy=policy, **quotas, reason=reason, now=now, **others)


def note(by: User, said: Iterable[str], *, reason: str, now: dt.datetime | None) -> None:
    """A row of history for each thing said; pages and planner hear of it on commit."""
    clean = " ".join(reason.split())[:REASON_LIMIT].replace("\0", "").encode(errors="replace").decode()
    for what in said:
        ClusterChange.objects.create(at=now or timezone.now(), actor=by, text=f"{by.username} {what}", reason=clean)
        checks.audit(by, "%s", what)
    notify.changed("cluster", "rules", "nodes", "feed")
    notify.nudge_schedule()


def _differences(
    rules: ClusterRules, *, policy: str, person_quota: Mapping[str, int] | None, project_quota: Mapping[str, int] | None
) -> list[str]:
    """What would be other than it is, in words."""
    said = []
    if policy != rules.policy:
        said.append(f"changed the policy from {POLICIES[rules.policy]} to {POLICIES[policy]}")
    if person_quota is not None:
        said += _quotas(rules.person_quota, person_quota, names={name: f"{name}'s quota" for name in {*rules.person_quota, *person_quota}})
    if project_quota is not None:
        # Everybody may read this, and the names of others' projects are not theirs to read.
        keys = {*rules.project_quota, *project_quota}
        said += _quotas(rules.project_quota, project_quota, names={key: f"the quota of project {key}" for key in keys})
    return said


def _set_others(rules: ClusterRules, others: Mapping[str, Any]) -> list[str]:
    """What is other than it was, in words."""
    said = []
    for name, value in others.items():
        before = getattr(rules, name)
        if value == before or (value is None and name not in MAY_BE_NONE):
            continue
        if name == "release_grace_s":
            checks.whole(value, field=name, least=LEAST_GRACE_S, most=MOST_GRACE_S)
        elif name == "priority_ceiling":
            checks.whole(value, field=name, least=1, most=MOST_PRIORITY)
        elif name == "new_project_quota" and value is not None:
            checks.whole(value, field=name, least=0, most=MOST_SLOTS)
        elif name in ("new_project_disk", "each_person_disk") and value is not None:
            checks.whole(value, field=name, least=1, most=MOST_GB)
        elif name == "project_disk":
            for gb in value.values():
                checks.whole(gb, field=name, least=1, most=MOST_GB)
        said.append(OTHERS[name](before, value))
        setattr(rules, name, value)
    return said


def _networks(before: Sequence[str], after: Sequence[str]) -> str:
    """Of projects by their numbers: everybody may read this."""
    words = (("closed the network to", set(after) - set(before)), ("opened the network to", set(before) - set(after)))
    return " and ".join(f"{what} project {', '.join(sorted(keys))}" for what, keys in words if keys)


def _slots(slots: int | None) -> str:
    return "none" if slots is None else "1 slot" if slots == 1 else f"{slots} slots"


def _gb(gb: int | None) -> str:
    return "no limit" if gb is None else f"{gb} GB"


def _quotas(
    before: Mapping[str, int], after: Mapping[str, int], *, names: Mapping[str, str], words: Callable[[int | None], str] = _slots
) -> list[str]:
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return [f"changed {names[key]} from {words(before.get(key))} to {words(after.get(key))}" for key in changed]


def _check_quota(quota: Mapping[str, int], *, known: set[str], field: str) -> None:
    for key, slots in quota.items():
        if key not in known:
            checks.refuse(field, f"There is no {'user' if field == 'person_quota' else 'project'} {key!r}: correct it or leave it out.")
        checks.whole(slots, field=field, least=0, most=MOST_SLOTS)
