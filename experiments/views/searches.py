"""A search for hyperparameters: ending it. How it stands is on its experiment's page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from experiments import access
from experiments.selectors import searches
from experiments.services import searches as verbs
from experiments.views.responses import act, person

STOPPED = "The search is over: nothing more is tried, and trials that run are being stopped."


@require_POST
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    found = searches.of_experiment(access.experiment(user, pk, need="write"))
    if found is None:
        raise Http404
    to = reverse("experiment", args=[pk])
    return act(request, lambda: verbs.stop_search(found.search, by=user, now=timezone.now()), said=STOPPED, to=to)
