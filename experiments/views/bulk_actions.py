"""What people do with the runs that they ticked on an experiment's page, and what they write beside one."""

from __future__ import annotations

from urllib.parse import urlencode

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from experiments import access, services
from experiments.errors import DomainError
from experiments.forms.common import NoteForm, attempt
from experiments.models import Experiment, TrainingRun, User
from experiments.views.responses import back, done, experiment_crumbs, page, person, refused

MOST_SELECTED = 500


@require_POST
def selected(request: HttpRequest, pk: int) -> HttpResponse:
    """`do` is compare, stop, delete or tag, with the runs ticked. Comparing needs no more than reading."""
    experiment = access.experiment(person(request), pk, need=_need(request))
    found = TrainingRun.objects.filter(experiment=experiment)
    return _done(request, found, to=back(request, reverse("experiment", args=[pk])), compare_at=reverse("compare", args=[pk]))


@require_POST
def of_project(request: HttpRequest, pk: int) -> HttpResponse:
    """The same, of all runs of a project."""
    project = access.project(person(request), pk, need=_need(request))
    found = TrainingRun.objects.filter(experiment__project=project)
    return _done(request, found, to=back(request, reverse("project_runs", args=[pk])), compare_at=reverse("compare_runs"))


def _need(request: HttpRequest) -> access.Need:
    return "read" if request.POST.get("do") == "compare" else "write"


def _done(request: HttpRequest, found: QuerySet[TrainingRun], *, to: str, compare_at: str) -> HttpResponse:
    user, do = person(request), request.POST.get("do", "")
    numbers = [int(raw) for raw in request.POST.getlist("run")[:MOST_SELECTED] if raw.isascii() and raw.isdigit() and len(raw) < 18]
    runs = list(found.filter(pk__in=numbers).select_related("experiment__project", "submitted_by"))
    if not runs:
        return refused(request, "Tick the runs first.", to=to)
    if do == "compare":
        return redirect(f"{compare_at}?{urlencode([('run', run.pk) for run in runs])}")
    try:
        said = _act(do, runs, by=user, tag=request.POST.get("tag", ""))
    except DomainError as error:
        return refused(request, str(error), to=to)
    return done(request, said, to=to)


@require_http_methods(["GET", "HEAD", "POST"])
def notes(request: HttpRequest, pk: int) -> HttpResponse:
    """Tags and a note of a run."""
    user = person(request)
    run = access.run(user, pk, need="write")
    experiment: Experiment = run.experiment
    form = NoteForm(request.POST or None, initial={"tags": ", ".join(run.tags), "note": run.note})
    if request.method == "POST" and form.is_valid():
        tags, note = form.cleaned_data["tags"].split(","), form.cleaned_data["note"]
        saved = attempt(form, lambda: services.annotate_run(run, by=user, tags=tags, note=note))
        if saved:
            return done(request, "Saved.", to=reverse("experiment", args=[experiment.pk]))
    context = {"section": "projects", "run": run, "experiment": experiment, "form": form, "crumbs": experiment_crumbs(experiment)}
    return page(request, "experiments/notes.html", context)


def _act(do: str, runs: list[TrainingRun], *, by: User, tag: str) -> str:
    """What was done, in words. Raises DomainError at the first run that refuses: of those to be deleted none is then."""
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    match do:
        case "stop":
            live = [run for run in runs if run.is_live()]
            for run in live:
                services.stop_run(run, by=by)
            return f"Stopping {len(live)} of {count}." if live else f"All {count} had ended already."
        case "delete":
            with transaction.atomic():
                for experiment in sorted({run.experiment_id for run in runs}):
                    services.delete_runs([run for run in runs if run.experiment_id == experiment], by=by)
            return f"{count} deleted with all files."
        case "tag":
            if not tag.strip():
                raise DomainError("Write the tag into the field beside the button.")
            services.tag_runs(runs, by=by, tag=tag)
            return f"{count} tagged."
    raise DomainError("Choose what to do with the runs.")
