"""Thresholds of metrics, on a run or an experiment: whoever may see it may ask to be told when one is crossed. They are personal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from experiments import access
from experiments.forms.common import WatchForm
from experiments.services import watches
from experiments.views.responses import act, person, refused


@require_POST
def add(request: HttpRequest, pk: int) -> HttpResponse:
    set_it = partial(watches.watch_metric, access.run(person(request), pk))
    return _add(request, set_it, said="You are told when that happens.", to=reverse("run", args=[pk]))


@require_POST
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    watch = access.watch(person(request), pk)
    said = "The threshold is removed from this run alone." if watch.inherited else "The threshold is removed."
    return act(request, lambda: watches.drop_watch(watch), said=said, to=reverse("run", args=[watch.run_id]))


@require_POST
def add_to_experiment(request: HttpRequest, pk: int) -> HttpResponse:
    set_it = partial(watches.watch_experiment, access.experiment(person(request), pk))
    said = "You are told when that happens in a run that is made from now on."
    return _add(request, set_it, said=said, to=reverse("experiment_overview", args=[pk]))


@require_POST
def drop_from_experiment(request: HttpRequest, pk: int) -> HttpResponse:
    watch = access.experiment_watch(person(request), pk)
    said = "The threshold is removed: runs that are made from now on do not have it."
    return act(request, lambda: watches.drop_watch(watch), said=said, to=reverse("experiment_overview", args=[watch.experiment_id]))


def _add(request: HttpRequest, set_it: Callable[..., object], *, said: str, to: str) -> HttpResponse:
    """Set the threshold that the form says, or say what is wrong with it."""
    form = WatchForm(request.POST)
    if not form.is_valid():
        return refused(request, form.problems(), to=to)
    return act(request, lambda: set_it(by=person(request), **asdict(form.crossing())), said=said, to=to)
