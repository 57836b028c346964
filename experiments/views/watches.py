"""Thresholds of a run's metrics: whoever may see the run may ask to be told when one is crossed. They are the person's own."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from experiments import access
from experiments.forms import WatchForm
from experiments.services import watches
from experiments.views.shown import act, person, refused


@require_POST
def add(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run(user, pk)
    form = WatchForm(request.POST)
    to = reverse("run", args=[pk])
    if not form.is_valid():
        return refused(request, " ".join(f"{form.fields[name].label}: {errors[0]}" for name, errors in form.errors.items()), to=to)
    said = "You are told when that happens."
    return act(request, lambda: watches.watch_metric(run, by=user, **form.wanted()), said=said, to=to)


@require_POST
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    watch = access.watch(person(request), pk)
    return act(request, lambda: watches.drop_watch(watch), said="The threshold is removed.", to=reverse("run", args=[watch.run_id]))
