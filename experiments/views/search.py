"""Search over everything that a person may open."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from experiments.selectors.search import search
from experiments.views.responses import later, page, person


@require_safe
def results(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:120]
    found = later(lambda: search(person(request), query))
    return page(request, "search.html", {"query": query, "found": found}, parts={"found": "_found.html"})
