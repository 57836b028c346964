"""Tables of runs that people keep: save, open, delete."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from experiments import access, services
from experiments.errors import DomainError
from experiments.runtable import table_query
from experiments.views.responses import act, done, person, refused
from experiments.views.run_table import address


@require_POST
def save(request: HttpRequest, pk: int) -> HttpResponse:
    """`experiment`: whose runs it shows; without, all the project's. `shared`: with all members of the project."""
    user, shared = person(request), request.POST.get("shared") == "on"
    project = access.project(user, pk, need="write" if shared else "read")
    raw = request.POST.get("experiment", "")
    experiment = access.experiment(user, int(raw)) if raw.isascii() and raw.isdigit() and len(raw) < 18 else None
    name, query = request.POST.get("name", ""), request.POST.get("query", "")
    try:
        view = services.save_view(project, by=user, name=name, query=query, shared=shared, experiment=experiment, now=timezone.now())
    except DomainError as error:
        there = reverse("experiment_table", args=[experiment.pk]) if experiment else reverse("project_runs", args=[pk])
        state = table_query.read(QueryDict(query.lstrip("?"))).query()
        return refused(request, str(error), to=f"{there}?{state}")
    return done(request, f"Saved as {view.name}. Its address can be shared.", to=reverse("saved_view", args=[view.pk]))


@require_safe
def open_(request: HttpRequest, pk: int) -> HttpResponse:
    view = access.saved_view(person(request), pk)
    return redirect(f"{address(view)}&view={view.pk}")


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    view = access.saved_view(user, pk, need="write")
    return act(request, lambda: services.delete_view(view, by=user), said=f"The view {view.name} is deleted.", to=address(view))
