"""People's accounts as administrators of the cluster see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404

from experiments import access
from experiments.access import AnyUser
from experiments.accounts import custody
from experiments.models import ApiToken, Identity, Membership, Project, TrainingRun, Trigger, User
from experiments.models.runs import LIVE

MOST_ROWS = 200  # of one person's projects and live runs


@dataclass(frozen=True)
class Account:
    """`alone`: projects that nobody else administers; `live`: runs that have not ended; `triggers`: how many act in the person's name;
    `identities`: whom they are at the OpenID provider, and were at others."""

    person: User
    memberships: Sequence[Membership]
    alone: Sequence[Project]
    live: Sequence[TrainingRun]
    tokens: int
    triggers: int
    identities: Sequence[Identity]


def people(query: str = "") -> QuerySet[User]:
    """All accounts, open ones first, by name; or those whose name, or address, has `query` in it. Each has `project_count`, `live_count`
    and `token_count`."""
    found = User.objects.all()
    if words := query.strip():
        found = found.filter(Q(username__icontains=words) | Q(email__icontains=words))
    counts = {
        "project_count": _count(Membership.objects.filter(project__state=Project.State.HERE), "user"),
        "live_count": _count(TrainingRun.objects.filter(state__in=LIVE), "submitted_by"),
        "token_count": _count(ApiToken.objects.all(), "person"),
    }
    return found.annotate(**counts).order_by("-is_active", "username")


def person(user: AnyUser, pk: int) -> User:
    """Anybody's account, open or closed, for administrators of the cluster alone. Raises Http404 where there is none."""
    access.rules(user, need="admin")
    found = User.objects.filter(pk=pk).first()
    if found is None:
        raise Http404("There is no such account.")
    return found


def account(person: User) -> Account:
    mine = Membership.objects.filter(user=person, project__state=Project.State.HERE).select_related("project").order_by("project__name")
    live = TrainingRun.objects.filter(submitted_by=person, state__in=LIVE).select_related("experiment__project").order_by("-pk")
    return Account(
        person,
        list(mine[:MOST_ROWS]),
        list(custody.only_admin_of(person)),
        list(live[:MOST_ROWS]),
        ApiToken.objects.filter(person=person).count(),
        Trigger.objects.filter(created_by=person).count(),
        list(Identity.objects.filter(person=person).order_by("linked_at")),
    )


def _count(rows: QuerySet[Any], whose: str) -> Coalesce:
    """Of the rows that belong to the person of the query around it."""
    of_one = rows.filter(**{whose: OuterRef("pk")}).order_by().values(whose).annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(of_one, output_field=IntegerField()), Value(0))
