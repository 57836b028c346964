"""What people do with the runs that they ticked on an experiment's page, and what they write beside one."""

from __future__ import annotations

from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from experiments import access, services
from experiments.forms import NoteForm, attempt
from experiments.models import Experiment, TrainingRun, User
from experiments.views.shown import done, experiment_crumbs, page, person, refused

MOST_SELECTED = 500


@require_POST
def selected(request: HttpRequest, pk: int) -> HttpResponse:
    """`do` is compare, stop, delete or tag, with the runs ticked. Comparing needs no more than reading."""
    user = person(request)
    do = request.POST.get("do", "")
    experiment = access.experiment(user, pk, need="read" if do == "compare" else "write")
    to = reverse("experiment", args=[pk])
    numbers = [int(raw) for raw in request.POST.getlist("run")[:MOST_SELECTED] if raw.isascii() and raw.isdigit() and len(raw) < 18]
    runs = list(TrainingRun.objects.filter(pk__in=numbers, experiment=experiment).select_related("experiment__project", "submitted_by"))
    if not runs:
        return refused(request, "Tick the runs first.", to=to)
    if do == "compare":
        return redirect(f"{reverse('compare', args=[pk])}?{urlencode([('run', run.pk) for run in runs])}")
    try:
        said = _act(do, runs, by=user, tag=request.POST.get("tag", ""))
    except ValidationError as error:
        return refused(request, " ".join(error.messages), to=to)
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
    """What was done, in words. Raises ValidationError at the first run that refuses: of those to be deleted none is then."""
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    match do:
        case "stop":
            live = [run for run in runs if run.is_live()]
            for run in live:
                services.stop_run(run, by=by)
            return f"Stopping {len(live)} of {count}." if live else f"All {count} had ended already."
        case "delete":
            services.delete_runs(runs, by=by)
            return f"{count} deleted with all files."
        case "tag":
            if not tag.strip():
                raise ValidationError("Write the tag into the field beside the button.")
            services.tag_runs(runs, by=by, tag=tag)
            return f"{count} tagged."
    raise ValidationError("Choose what to do with the runs.")
