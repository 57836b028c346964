"""Runs: found, looked at, stopped, paused, changed, gone on with, deleted; what happened to them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access, selectors, services
from experiments.api.auth import person
from experiments.api.foresight import Foresight, foreseen
from experiments.api.paging import Page, PageParameters, newest, whole
from experiments.api.requests import idempotency_key
from experiments.api.schemas import Body, Reason, page_of
from experiments.cluster.plan_preview import RunChange
from experiments.errors import DomainError
from experiments.models import TrainingRun
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.models.runs import ENDED, LIVE
from experiments.services import grid
from experiments.views.curves import finite

router = Router(tags=["runs"])
Id = Annotated[int, Query(ge=1, le=2**62)]
GROUPS: dict[str, tuple[str, ...]] = {"live": LIVE, "ended": ENDED}


class Run(Schema):
    """`slots`: what it holds now; `metrics`: the last value of each, as "train loss"; `exact`: whether its results depend on its script,
    data and seed alone, by what was seen so far; times in seconds. `queue_position` and `expected_start_s` of one that waits."""

    id: int
    name: str
    project: int
    experiment: int
    definition: int
    version: int
    outside: bool
    state: str
    state_reason: str
    plan_reason: str
    queue_position: int | None
    expected_start_s: float | None
    submitted_by: str
    submitted_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    node: str | None
    command: str
    data_folder: str
    continues: int | None
    priority: int
    min_slots: int
    max_slots: int
    any_kind: bool
    slots: int
    paused: bool
    workers: int
    tags: list[str]
    note: str
    step: int
    total_steps: int | None
    epoch: int
    epochs: int | None
    step_rate: float | None
    remaining_s: float | None
    engines: int | None
    batch_size: int | None
    parameters: int | None
    exact: bool | None
    exact_reasons: list[str]
    metrics: dict[str, float | None]
    error_message: str
    error_traceback: str
    exit_code: int | None
    disk_bytes: int | None
    url: str


class ChangedRun(Body):
    """What is left out stays as it is. `any_kind`: it may go on on other kinds of machines than it has trained on, where results differ."""

    priority: int | None = None
    min_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    max_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    any_kind: bool | None = None
    tags: list[str] | None = None
    note: str | None = None


class RunForesight(Body):
    """What is left out stays as it is."""

    priority: int | None = Field(None, ge=1, le=10_000)
    min_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    max_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    paused: bool | None = None
    stop: bool = False


class RunsQuery(Schema):
    """`state`: one, or "live" or "ended"; `q`: part of a name, a command, a submitter or a note."""

    project: Id | None = None
    experiment: Id | None = None
    state: str = ""
    submitter: str = ""
    tag: str = ""
    q: str = ""


class Continuation(Body):
    """`command`: left out, that of the run."""

    command: str = ""


class RunChanges(Body):
    """What is left out stays as the run has it. `grid`: values of its arguments by name, as in {"lr": ["0.1", "0.3"]}; a run is made for
    each combination, 100 at most. `version`: another one of its definition."""

    version: Annotated[int, Field(ge=1, le=2**62)] | None = None
    command: str = ""
    grid: dict[str, list[str]] = {}
    min_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    max_slots: int | None = Field(None, ge=1, le=MAX_SLOTS_LIMIT)
    priority: int | None = None
    environment: dict[str, str] | None = None


def run_response(request: HttpRequest, row: TrainingRun) -> Run:
    """One that `access.run` has fetched."""
    return run_responses(request, [row])[0]


def run_responses(request: HttpRequest, rows: list[TrainingRun]) -> list[Run]:
    """With a few queries, however many they are."""
    held = selectors.slots_of([row.pk for row in rows])
    metrics = selectors.last_metrics([row.pk for row in rows])
    return [_response(request, row, held.get(row.pk, 0), metrics.get(row.pk, {})) for row in rows]


SAME = (
    *("name", "outside", "state", "state_reason", "plan_reason", "queue_position", "submitted_at", "started_at", "ended_at", "command"),
    *("data_folder", "continues", "priority", "min_slots", "max_slots", "any_kind", "paused", "tags", "note", "step", "epoch", "epochs"),
    *(
        "workers",
        "engines",
        "batch_size",
        "parameters",
        "exact",
        "exact_reasons",
        "error_message",
        "error_traceback",
        "exit_code",
        "disk_bytes",
    ),
)


def _response(request: HttpRequest, row: TrainingRun, slots: int, metrics: dict[str, float | None]) -> Run:
    return Run(
        id=row.pk,
        project=row.experiment.project_id,
        experiment=row.experiment_id,
        definition=row.version.definition_id,
        version=row.version_id,
        expected_start_s=finite(row.expected_start_s),
        submitted_by=row.submitted_by.username,
        node=row.head_node.name if row.head_node is not None else None,
        slots=slots,
        total_steps=row.total_steps(),
        step_rate=finite(row.step_rate),
        remaining_s=finite(row.left_s()) if row.is_live() else None,
        metrics=metrics,
        url=page_of(request, "run", row.pk),
        **{name: getattr(row, name) for name in SAME},
    )


UNREAD: dict[str, Any] = {
    "command": "",
    "data_folder": "",
    "tags": [],
    "note": "",
    "metrics": {},
    "error_message": "",
    "error_traceback": "",
}


def _controlled(request: HttpRequest, run: int) -> Run:
    """As `run_response`; for an administrator who is no member of its project without what only members may read."""
    row = access.run_control(person(request), run)
    found = run_response(request, row)
    return found if row.experiment.project.my_role else found.model_copy(update=UNREAD)


@router.get("/runs", response=Page[Run])
def runs(request: HttpRequest, page: PageParameters, wanted: Annotated[RunsQuery, Query()]) -> Page[Run]:
    """Of all projects that the caller is a member of, newest first."""
    user = person(request)
    found = TrainingRun.objects.filter(experiment__project__in=access.projects_for(user).values("pk"))
    rows = _matching(found, wanted).select_related("experiment", "version", "submitted_by", "head_node")
    listed = newest(rows, page, lambda row: row)
    return Page(items=run_responses(request, listed.items), next=listed.next)


def _matching(found: QuerySet[TrainingRun], wanted: RunsQuery) -> QuerySet[TrainingRun]:
    if wanted.project is not None:
        found = found.filter(experiment__project=wanted.project)
    if wanted.experiment is not None:
        found = found.filter(experiment=wanted.experiment)
    if wanted.state:
        found = found.filter(state__in=GROUPS.get(wanted.state, (wanted.state.replace("\0", ""),)))
    if wanted.submitter:
        found = found.filter(submitted_by__username=wanted.submitter.replace("\0", ""))
    if wanted.tag:
        found = found.filter(pk__in=selectors.runs_with_tag(found, wanted.tag))
    if q := wanted.q.replace("\0", "").strip():
        named = Q(name__icontains=q) | Q(command__icontains=q) | Q(note__icontains=q) | Q(submitted_by__username__icontains=q)
        found = found.filter(named)
    return found


@router.get("/runs/{int:run}", response=Run)
def run(request: HttpRequest, run: int) -> Run:
    return run_response(request, access.run(person(request), run))


@router.patch("/runs/{int:run}", response=Run)
def change_run(request: HttpRequest, run: int, body: ChangedRun) -> Run:
    """Its priority, its slots, its tags, its note: all that is named, or nothing."""
    user = person(request)
    found = access.run_control(user, run)
    with transaction.atomic():
        if body.priority is not None:
            services.set_priority(found, by=user, priority=body.priority)
        if body.min_slots is not None or body.max_slots is not None:
            least, most = body.min_slots or found.min_slots, body.max_slots or found.max_slots
            services.set_slots(found, by=user, min_slots=least, max_slots=most)
        if body.any_kind is not None:
            services.set_any_kind(found, by=user, allowed=body.any_kind)
        if body.tags is not None or body.note is not None:
            mine = access.run(user, run, need="write")
            services.annotate_run(mine, by=user, tags=body.tags, note=body.note)
    return _controlled(request, run)


@router.post("/runs/{int:run}/preview", response=Foresight)
def preview_run(request: HttpRequest, run: int, body: RunForesight) -> Foresight:
    """What such a change would do to everybody. Changes nothing."""
    user = person(request)
    found = access.run_control(user, run)
    if (body.min_slots or 1) > (body.max_slots or found.max_slots):
        raise DomainError({"min_slots": "The minimum is greater than the maximum."})
    return foreseen(user, changes={found.pk: RunChange(agreed=user.administers, **body.model_dump())})


@router.delete("/runs/{int:run}", response={204: None})
def delete_run(request: HttpRequest, run: int) -> Status[None]:
    """With its files. Refused while it has not ended."""
    user = person(request)
    services.delete_run(access.run(user, run, need="write"), by=user)
    return Status(204, None)


@router.post("/runs/{int:run}/stop", response=Run)
def stop_run(request: HttpRequest, run: int, body: Reason) -> Run:
    """It ends at its next step. Harmless on one that has ended."""
    user = person(request)
    services.stop_run(access.run_control(user, run), by=user, reason=body.reason)
    return _controlled(request, run)


@router.post("/runs/{int:run}/pause", response=Run)
def pause_run(request: HttpRequest, run: int, body: Reason) -> Run:
    """It gives its slots back and keeps its state. Harmless on one that is paused."""
    user = person(request)
    services.pause_run(access.run_control(user, run), by=user, reason=body.reason)
    return _controlled(request, run)


@router.post("/runs/{int:run}/resume", response=Run)
def resume_run(request: HttpRequest, run: int, body: Reason) -> Run:
    """It goes on as soon as it gets a slot. Harmless on one that is not paused."""
    user = person(request)
    services.resume_run(access.run_control(user, run), by=user, reason=body.reason)
    return _controlled(request, run)


@router.post("/runs/{int:run}/continue", response={201: Run})
def continue_run(request: HttpRequest, run: int, body: Continuation) -> Status[Run]:
    """A new run that begins with the last checkpoint of this one, which has ended."""
    user = person(request)
    made = services.continue_run(
        access.run(user, run, need="write"), by=user, command=body.command, idempotency_key=idempotency_key(request)
    )
    return Status(201, run_response(request, access.run(user, made.pk)))


@router.post("/runs/{int:run}/rerun", response={201: Page[Run]})
def run_with_changes(request: HttpRequest, run: int, body: RunChanges) -> Status[Page[Run]]:
    """New runs in the experiment of this one, whatever has become of it, with what it had and what is named here."""
    user = person(request)
    found = access.run(user, run, need="write")
    made = services.run_with_changes(
        found,
        by=user,
        commands=grid.combined(body.command or found.command, body.grid),
        version=access.version(user, body.version) if body.version else None,
        min_slots=body.min_slots,
        max_slots=body.max_slots,
        priority=body.priority,
        environment=body.environment,
        idempotency_key=idempotency_key(request),
    )
    return Status(201, whole([run_response(request, access.run(user, each.pk)) for each in made]))


@router.post("/runs/{int:run}/add-package", response={201: int})
def add_package(request: HttpRequest, run: int) -> Status[int]:
    """The number of a new version whose requirements name the package that the run failed for the want of."""
    user = person(request)
    found = access.run(user, run, need="write")
    if not services.missing_package(found):
        raise DomainError("The run did not fail for the want of a package.")
    version, _ = services.add_package(found, by=user, idempotency_key=idempotency_key(request))
    return Status(201, version.pk)
