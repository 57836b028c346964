"""Reads for the pages of a project: the list of projects, what one owns, its jobs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db.models import Count, F, IntegerField, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from experiments import access
from experiments.models import (
    DefinitionVersion,
    Experiment,
    Grant,
    Membership,
    Project,
    RunState,
    Slot,
    TrainingRun,
    User,
)
from experiments.models.runs import ENDED, LIVE
from experiments.selectors.jobs import JobFilter, JobRow


@dataclass(frozen=True)
class Summary:
    """What a project's overview counts."""

    members: int
    definitions: int
    experiments: int
    data: int
    runs: int
    live: int
    waiting: int
    completed: int
    failed: int


def project_list(user: User, *, query: str = "", archived: bool = False) -> QuerySet[Project]:
    """The person's projects, or those archived; those with recent runs first, each with `member_count`, `live_runs`, `last_run_at`."""
    found = access.projects_for(user).filter(archived_at__isnull=not archived)
    if query:
        found = found.filter(Q(name__icontains=query) | Q(description__icontains=query))
    runs = TrainingRun.objects.filter(experiment__project=OuterRef("pk")).order_by().values("experiment__project")
    members = Membership.objects.filter(project=OuterRef("pk")).order_by().values("project").annotate(n=Count("pk")).values("n")
    annotated = found.annotate(
        member_count=Coalesce(Subquery(members, output_field=IntegerField()), 0),
        live_runs=Coalesce(Subquery(runs.filter(state__in=LIVE).annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0),
        last_run_at=Subquery(runs.annotate(at=Max("submitted_at")).values("at")),
    )
    return annotated.order_by(F("last_run_at").desc(nulls_last=True), "-created_at", "-id")


def in_archive(user: User) -> int:
    """How many of the person's projects are archived."""
    return access.projects_for(user).exclude(archived_at=None).count()


def comparable(project: Project) -> list[TrainingRun]:
    """The newest two runs that have completed, the older one first; none where there are not two."""
    completed = TrainingRun.objects.filter(experiment__project=project, state=RunState.COMPLETED)
    found = list(completed.order_by("-submitted_at", "-id")[:2])
    return found[::-1] if len(found) == 2 else []


def summary(project: Project) -> Summary:
    runs = TrainingRun.objects.filter(experiment__project=project)
    states = dict(runs.order_by().values_list("state").annotate(n=Count("pk")))
    return Summary(
        members=project.memberships.count(),
        definitions=project.definitions.count(),
        experiments=project.experiments.count(),
        data=project.data_series.count(),
        runs=sum(states.values()),
        live=sum(count for state, count in states.items() if state not in ENDED),
        waiting=states.get(RunState.QUEUED, 0),
        completed=states.get(RunState.COMPLETED, 0),
        failed=states.get(RunState.FAILED, 0),
    )


def newest_versions(project: Project, *, query: str = "") -> QuerySet[DefinitionVersion]:
    """The newest version of each training definition of the project whose name or description has `query` in it, by the definition's
    age."""
    newest = DefinitionVersion.objects.filter(definition=OuterRef("definition")).order_by("-number").values("pk")[:1]
    found: QuerySet[DefinitionVersion] = DefinitionVersion.objects.filter(definition__project=project, pk=Subquery(newest))
    if query:
        found = found.filter(Q(definition__name__icontains=query) | Q(definition__description__icontains=query))
    return found.select_related("definition", "bundle", "created_by").order_by("-definition__created_at", "-definition_id")


def experiments(project: Project, *, query: str = "") -> QuerySet[Experiment]:
    """Those whose name or description has `query` in it, each with `runs_total`, `runs_live`, `runs_failed` and `last_run_at`, newest
    first."""
    found = project.experiments.select_related("created_by")
    if query:
        found = found.filter(Q(name__icontains=query) | Q(description__icontains=query))
    found = found.annotate(
        runs_total=Count("runs"),
        runs_live=Count("runs", filter=Q(runs__state__in=LIVE)),
        runs_failed=Count("runs", filter=Q(runs__state=RunState.FAILED)),
        last_run_at=Max("runs__submitted_at"),
    )
    return found.order_by("-created_at", "-id")


def held_slots(device: str) -> Coalesce:
    """How many slots of a device class a run holds, as a column of a query on runs."""
    open_grants = Grant.objects.filter(run=OuterRef("pk"), released_at__isnull=True, slot__device=device)
    counted = open_grants.order_by().values("run").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def project_jobs(project: Project, wanted: JobFilter, *, now: dt.datetime) -> tuple[list[JobRow], int]:
    """(rows of this page, number that match) of the project's runs, newest first; as `selectors.jobs` for the cluster."""
    found = TrainingRun.objects.filter(experiment__project=project)
    if wanted.name:
        named = Q(name__icontains=wanted.name) | Q(submitted_by__username__icontains=wanted.name)
        found = found.filter(
            named | Q(pk=int(wanted.name)) if wanted.name.isascii() and wanted.name.isdigit() and len(wanted.name) < 18 else named
        )
    if wanted.state:
        states = {"live": LIVE, "ended": ENDED}.get(wanted.state, (wanted.state,))
        found = found.filter(state__in=states)
    rows = found.select_related("submitted_by", "version", "experiment").annotate(
        cpu=held_slots(Slot.Device.CPU), gpu=held_slots(Slot.Device.GPU)
    )
    shown = rows.order_by("-submitted_at", "-id")[wanted.offset : wanted.offset + wanted.limit]
    return [
        JobRow(
            run=run,
            submitter=run.submitted_by.username,
            kind=run.version.get_distributed_display(),
            cpu_slots=run.cpu,
            gpu_slots=run.gpu,
            duration=run.duration(now),
        )
        for run in shown
    ], found.count()
