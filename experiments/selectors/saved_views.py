"""The tables of runs that a person finds kept: the project's, and their own."""

from __future__ import annotations

from django.db.models import Q

from experiments.models import Project, SavedView, User


def visible(user: User, project: Project) -> list[SavedView]:
    """The project's first."""
    found = SavedView.objects.filter(Q(person=None) | Q(person=user), project=project).select_related("experiment", "saved_by")
    return sorted(found, key=lambda view: (view.person_id is not None, view.name.casefold(), view.pk))
