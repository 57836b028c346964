"""Run with changes: a form with what a run had, for other runs in the same experiment."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from experiments import access, services
from experiments.forms.common import RerunForm, attempt
from experiments.models import DefinitionVersion, TrainingRun, User
from experiments.selectors import code as source
from experiments.services import grid
from experiments.views.responses import begun, later, page, person, refused, run_crumbs


@require_http_methods(["GET", "HEAD", "POST"])
def again(request: HttpRequest, pk: int) -> HttpResponse:
    """The form; ?part=scripts&version=N is what the scripts of another version say of their arguments."""
    user = person(request)
    run = access.run(user, pk, need="write")
    if run.outside:
        return refused(request, services.reruns.OUTSIDE, to=reverse("run", args=[pk]))
    versions = DefinitionVersion.objects.filter(definition=run.version.definition_id).select_related("definition", "bundle")
    form = RerunForm(request.POST or None, initial=_initial(run))
    form.fields["version"].queryset = versions  # type: ignore[attr-defined]
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _run(run, user, form))
        if made:
            return redirect("run", made[0].pk) if len(made) == 1 else redirect("experiment", run.experiment_id)
    wanted = _version(request.GET.get("version", "") or str(form["version"].value() or ""), versions) or run.version
    begun(form, check=reverse("check_rerun", args=[pk]), first="command")
    context = {
        "section": "projects",
        "run": run,
        "project": run.experiment.project,
        "form": form,
        "each": later(lambda: source.associated([wanted], [str(form["command"].value() or "")])[0]),
        "crumbs": [*run_crumbs(run), (f"Run {run.pk}", reverse("run", args=[pk]))],
    }
    return page(request, "runs/again.html", context, parts={"scripts": "experiments/_scripts.html"})


def _initial(run: TrainingRun) -> dict[str, object]:
    return {
        "version": run.version_id,
        "command": run.command,
        "min_slots": run.min_slots,
        "max_slots": run.max_slots,
        "priority": run.priority,
        "environment": "\n".join(f"{name}={value}" for name, value in run.environment.items()),
    }


def _run(run: TrainingRun, user: User, form: RerunForm) -> list[TrainingRun]:
    said: dict[str, Any] = dict(form.cleaned_data)
    return services.run_with_changes(run, by=user, commands=grid.expanded(said.pop("command")), **said)


def _version(raw: str, versions: QuerySet[DefinitionVersion]) -> DefinitionVersion | None:
    return versions.filter(pk=int(raw)).first() if raw.isascii() and raw.isdigit() and len(raw) < 18 else None
