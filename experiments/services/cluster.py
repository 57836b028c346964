"""Verbs of an administrator of the cluster: drain, policy, quotas, weights. They store wishes and nudge the planner."""

from __future__ import annotations

import math
from collections.abc import Mapping

from django.db import transaction

from experiments import fleet, notify, snapshot
from experiments.models import ClusterRules, Node, Project, Slot, User
from experiments.services import checks

POLICIES = ("fair_share", "priority")
MOST_SLOTS = 1_000_000


def set_node_draining(node: Node, *, by: User, draining: bool) -> Node:
    """A draining node gets its runs moved off and takes no new ones."""
    checks.audit(by, "sets node %s draining: %s", node.name, draining)
    return fleet.drain_node(node, draining=draining)


def set_slot_draining(slot: Slot, *, by: User, draining: bool) -> Slot:
    """The same for one slot."""
    checks.audit(by, "sets slot %s draining: %s", slot.pk, draining)
    return fleet.drain_slot(slot, draining=draining)


def set_policy(
    *,
    by: User,
    policy: str,
    person_quota: Mapping[str, int] | None = None,
    project_quota: Mapping[str, int] | None = None,
) -> ClusterRules:
    """Policy and quotas in slots, by username and by project id. None leaves quotas as they are.

    Fields: policy, person_quota, project_quota.
    """
    if policy not in POLICIES:
        checks.refuse("policy", "Choose one of: Fair share, Priority.")
    if person_quota is not None:
        _check_quota(person_quota, known=set(User.objects.values_list("username", flat=True)), field="person_quota")
    if project_quota is not None:
        project_quota = {str(key): slots for key, slots in project_quota.items()}
        _check_quota(project_quota, known={str(pk) for pk in Project.objects.values_list("pk", flat=True)}, field="project_quota")
    with transaction.atomic():
        rules = snapshot.lock_rules()
        rules.policy = policy
        rules.person_quota = dict(person_quota) if person_quota is not None else rules.person_quota
        rules.project_quota = dict(project_quota) if project_quota is not None else rules.project_quota
        rules.save()
        checks.audit(by, "sets the policy to %s", policy)
        notify.changed("cluster", "rules")
        notify.nudge_schedule()
    return rules


def set_weight(user: User, *, by: User, weight: float) -> User:
    """The person's share under fair share: 2 gets twice what 1 gets. Field: weight."""
    if not math.isfinite(weight) or not 0.01 <= weight <= 1000:
        checks.refuse("weight", "Give a number from 0.01 to 1000; 1 is the usual share.")
    checks.audit(by, "sets the weight of %s to %g", user.username, weight)
    user.weight = weight
    user.save(update_fields=["weight"])
    notify.changed("cluster", "rules")
    notify.nudge_schedule()
    return user


def _check_quota(quota: Mapping[str, int], *, known: set[str], field: str) -> None:
    for key, slots in quota.items():
        if key not in known:
            checks.refuse(field, f"There is no {'user' if field == 'person_quota' else 'project'} {key!r}: correct it or leave it out.")
        checks.whole(slots, field=field, least=0, most=MOST_SLOTS)
