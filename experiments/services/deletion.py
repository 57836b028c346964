"""Deletes ended runs: at once from every page, and in one transaction with all checks. Their files, points and what else there is very much
of are removed afterwards by `pruning`, which finds them by the tombstones.

A project is first gone for everybody (`projects.delete_project`), and what it owns after it in pieces, a transaction each: other people's
writes come in between, and whoever is killed leaves the rest to the next turn.
"""

from __future__ import annotations

import datetime as dt
import time

from django.db import transaction
from django.db.models import QuerySet

from experiments.cluster import scheduling
from experiments.files import modelstore, tombstones
from experiments.live import notify
from experiments.models import Experiment, JournalCursor, ModelFile, Project, TrainingDefinition, TrainingRun, User
from experiments.services import registry

AT_ONCE = 500  # in one statement
PIECE = 100  # runs, experiments, ... of a project in one transaction
TURN_PIECES = 20
REST_S = 0.01  # between two of them: who waits to write on SQLite looks every millisecond


def go_on(now: dt.datetime) -> bool:
    """One turn of removing what deleted projects own; whether there is more."""
    pieces = TURN_PIECES
    for project in Project.every.filter(state=Project.State.DELETED).select_related("deleted_by").order_by("pk"):
        while pieces > 0 and not of_project(project, now=now):
            pieces -= 1
            time.sleep(REST_S)
        if pieces <= 0:
            return True
    return False


def of_project(project: Project, *, now: dt.datetime) -> bool:
    """Remove a piece of what a deleted project owns; whether all of it is gone, and the project's row with it. Two that are at it at once
    take turns."""
    by = project.deleted_by or project.created_by
    with modelstore.files_stay(), transaction.atomic():
        if Project.every.select_for_update().filter(pk=project.pk, state=Project.State.DELETED).first() is None:
            return True
        if of_runs(TrainingRun.objects.filter(experiment__project=project), by=by, now=now, most=PIECE):
            return False
        for model in (Experiment, TrainingDefinition):
            if some := list(model._default_manager.filter(project=project).order_by("pk").values_list("pk", flat=True)[:PIECE]):
                model._default_manager.filter(pk__in=some).delete()
                return False
        if keys := dict(project.data_assets.order_by("pk").values_list("pk", "key")[:PIECE]):
            tombstones.of_assets(keys.values(), by=by, now=now)
            project.data_assets.filter(pk__in=keys).delete()
            return False
        if models := list(project.registered_models.order_by("pk").values_list("pk", flat=True)[:PIECE]):
            hashes = set(ModelFile.objects.filter(version__model__in=models).values_list("sha256", flat=True))
            project.registered_models.filter(pk__in=models).delete()
            registry.trash_unreferenced(hashes, by=by, now=now)
            return False
        tombstones.of_uploads(project.data_uploads.values_list("key", flat=True), by=by, now=now)
        project.delete()
        return True


def of_runs(runs: QuerySet[TrainingRun], *, by: User, now: dt.datetime, most: int | None = None) -> int:
    """Delete these, or the first `most`, which have all ended; how many. The caller is in a transaction and holds their
    project's row. Pages that show one of them hear of it; of very many they find out by themselves within half a minute."""
    numbers = list(runs.order_by("pk").values_list("pk", flat=True)[:most])
    for first in range(0, len(numbers), AT_ONCE):
        some = numbers[first : first + AT_ONCE]
        # Cursors before their runs, as ingest takes them: it may be storing a journal's last lines.
        list(JournalCursor.objects.select_for_update().filter(pk__in=some).order_by("pk").values_list("pk", flat=True))
        tombstones.of_runs(TrainingRun.objects.filter(pk__in=some).only("pk", "folder"), by=by, now=now)
        scheduling.keep_accounts(some)
        TrainingRun.objects.filter(pk__in=some).delete()
    if len(numbers) <= AT_ONCE:
        for number in numbers:
            notify.changed(f"run-{number}", "state")
    return len(numbers)
