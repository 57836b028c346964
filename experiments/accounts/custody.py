"""Which projects depend on one person."""

from __future__ import annotations

from django.db.models import QuerySet

from experiments.models import Membership, Project, Role, User


def only_admin_of(person: User) -> QuerySet[Project]:
    """Projects that the person administers, and nobody else whose account is open."""
    admins = Membership.objects.filter(role=Role.ADMIN)
    others = admins.filter(user__is_active=True).exclude(user=person)
    mine = admins.filter(user=person)
    return Project.objects.filter(pk__in=mine.values("project")).exclude(pk__in=others.values("project")).order_by("name", "pk")
