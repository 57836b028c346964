"""How the object store stands: what waits to be copied, and what went wrong. For administrators of the cluster."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments import access
from experiments.ops import clock
from experiments.selectors import store as selected
from experiments.views.responses import later, page, person


@require_safe
def store(request: HttpRequest) -> HttpResponse:
    access.rules(person(request), need="admin")
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "store": later(lambda: selected.store_status(clock.now())),
    }
    return page(request, "cluster/store.html", context, parts={"store": "cluster/_store.html"})
