"""Verbs on tables of runs that people keep: save one under a name, in place of the one that had it; forget it."""

from __future__ import annotations

import datetime as dt

from django.db import transaction
from django.http import QueryDict

from experiments.live import notify
from experiments.models import Experiment, Project, SavedView, User
from experiments.runtable import table_query
from experiments.services import checks

NAME_LIMIT = 80
QUERY_LIMIT = 4000
MOST_VIEWS = 100  # of a project, and of a person in it


def save_view(
    project: Project, *, by: User, name: str, query: str, shared: bool, experiment: Experiment | None = None, now: dt.datetime
) -> SavedView:
    """`query`: of the table's address; what is no part of a table's state is left out. `shared`: with all members. Fields: name, query."""
    clean = checks.name(name, limit=NAME_LIMIT)
    if experiment is not None and experiment.project_id != project.pk:
        checks.refuse("experiment", "Choose an experiment of this project.")
    state = checked(query)
    whose = None if shared else by
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)  # two of one name at once: the second waits, and replaces the first
        there = SavedView.objects.filter(project=project, person=whose)
        found = there.filter(name=clean).first()
        if found is None and there.count() >= MOST_VIEWS:
            checks.refuse("name", f"There are {MOST_VIEWS} views already: delete one first.")
        view = found or SavedView(project=project, person=whose, name=clean)
        view.experiment, view.query, view.saved_by, view.saved_at = experiment, state, by, now
        view.save()
        checks.audit(by, "saves view %s of project %s", view.pk, project.pk)
        notify.changed(f"project-{project.pk}", "views")
    return view


def checked(query: str) -> str:
    """What is stored of it. Field: query."""
    state = table_query.read(QueryDict(query[: 4 * QUERY_LIMIT].lstrip("?"))).query()
    if len(state) > QUERY_LIMIT:
        checks.refuse("query", f"The table's address has {len(state):,} characters, at most {QUERY_LIMIT:,} are kept: show fewer columns.")
    return state


def delete_view(view: SavedView, *, by: User) -> None:
    with transaction.atomic():
        checks.audit(by, "deletes view %s (%s)", view.pk, view.name)
        view.delete()
        notify.changed(f"project-{view.project_id}", "views")
