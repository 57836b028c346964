"""Experiments: the page with the runs, running it again, deleting it. A new one is in `new_experiment`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_POST, require_safe

from experiments import access, selectors, services
from experiments.errors import DomainError
from experiments.forms.common import WatchForm
from experiments.forms.sent_once import RequestForm
from experiments.models import Experiment
from experiments.selectors import ExperimentTables, RunFilter, data, searches
from experiments.views.responses import act, done, later, number, page, person, project_crumbs, refused, spreadsheet

PAGE_ROWS = 40
MOST_WAITING = 25
COMMAND_LIMIT = 2000
ASKED = ("q", "tag", "sort", "order", "offset")  # what stands in the address of an experiment's page


def experiment_tab(request: HttpRequest, pk: int, name: str) -> tuple[Experiment, dict[str, object]]:
    """The experiment, and what every tab of its page shows."""
    user = person(request)
    experiment = access.experiment(user, pk)
    may_write = access.may(experiment.project, "write")
    return experiment, {
        "section": "projects",
        "experiment": experiment,
        "project": experiment.project,
        "tab": name,
        "idempotency_key": uuid.uuid4(),
        "may_write": may_write,
        "may_control": may_write or user.administers,
        "crumbs": project_crumbs(experiment.project),
    }


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    experiment, tab = experiment_tab(request, pk, "runs")
    offset = number(request, "offset", 0, least=0, most=10_000_000)
    wanted = RunFilter(
        query=request.GET.get("q", "").strip()[:120],
        tag=request.GET.get("tag", "")[:40],
        sort=request.GET.get("sort", "")[:220],
        descending=request.GET.get("order") == "down",
        offset=offset,
        most_queued=MOST_WAITING,
        most_ended=PAGE_ROWS,
    )
    if request.GET.get("format") == "csv":
        every = replace(wanted, offset=0, most_queued=None, most_ended=None)
        tables = selectors.experiment_tables(experiment, every, now=timezone.now())
        return spreadsheet(f"{slugify(experiment.name)[:60] or 'experiment'}-runs.csv", _csv(tables))
    context = {
        **tab,
        "tables": later(lambda: selectors.experiment_tables(experiment, wanted, now=timezone.now())),
        "search": later(lambda: searches.of_experiment(experiment)),
        "wanted": wanted,
        "kept": urlencode(_search(wanted)),
        "sorted": urlencode(_search(wanted) | {"sort": wanted.sort} | ({"order": "down"} if wanted.descending else {})),
        "asked": urlencode({key: value for key, value in request.GET.items() if key in ASKED}),
        "offset": offset,
        "newer": max(0, offset - PAGE_ROWS) if offset else None,
        "older": offset + PAGE_ROWS,
    }
    return page(request, "experiments/detail.html", context, parts={"runs": "experiments/_runs.html"})


def _search(wanted: RunFilter) -> dict[str, str]:
    """What was searched for, as the page's address says it."""
    return {key: value for key, value in (("q", wanted.query), ("tag", wanted.tag)) if value}


def _csv(tables: ExperimentTables) -> Iterator[list[object]]:
    """A line for each run that the page would show on all its pages, in its order."""
    facts = ["id", "name", "state", "submitted_by", "submitted", "started", "ended", "step", "epoch", "command", "tags", "note"]
    yield [*facts, *tables.columns]
    for row in (*tables.queued.rows, *tables.in_progress.rows, *tables.completed.rows):
        run = row.run
        times = [at.isoformat(timespec="seconds") if at else "" for at in (run.submitted_at, run.started_at, run.ended_at)]
        who = run.submitted_by.username
        yield [
            run.pk, run.name, run.state, who, *times, run.step, run.epoch, run.command, ", ".join(run.tags), run.note, *row.metrics
        ]  # fmt: skip


@require_safe
def overview(request: HttpRequest, pk: int) -> HttpResponse:
    experiment, tab = experiment_tab(request, pk, "overview")
    context = {
        **tab,
        "parts": later(lambda: list(experiment.parts.select_related("version__definition"))),
        "newer_data": later(lambda: data.newer_than(experiment.data_asset)),
        "watches": later(lambda: list(experiment.watches.filter(person=person(request)))),
        "line": WatchForm(auto_id=False),
        "metric_names": later(lambda: selectors.metric_names(experiment) or selectors.recent_metric_names(experiment.project)),
    }
    return page(request, "experiments/overview.html", context)


@require_POST
def duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    form = RequestForm(request.POST)
    idempotency_key = form.cleaned_data["idempotency_key"] if form.is_valid() else None
    try:
        made = services.duplicate_experiment(experiment, by=user, idempotency_key=idempotency_key)
    except DomainError as error:
        return refused(request, str(error), to=reverse("experiment", args=[pk]))
    return done(request, "This is the copy. It has not run yet.", to=reverse("experiment", args=[made.pk]))


@require_POST
def run(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    to = reverse("experiment", args=[pk])
    form = RequestForm(request.POST)
    idempotency_key = form.cleaned_data["idempotency_key"] if form.is_valid() else None
    return act(
        request,
        lambda: services.run_experiment(experiment, by=user, idempotency_key=idempotency_key),
        said="Queued: the runs are below.",
        to=to,
    )


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    to = reverse("assets", args=[experiment.project.pk])
    said = f"{experiment.name} is deleted with its runs and their files."
    return act(request, lambda: services.delete_experiment(experiment, by=user), said=said, to=to, back=reverse("experiment", args=[pk]))
