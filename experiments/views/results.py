"""A run's Results: its metrics and files, and a look into one of them, as text or as a picture, never as a page."""

from __future__ import annotations

import uuid
from functools import cache

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments import access, selectors
from experiments.selectors import RunFile, previews, registry, run_pages
from experiments.views.downloads import picture_response
from experiments.views.runs import HEAD, run_tab
from experiments.views.shown import later, page, person

ROLES = (
    ("model", "Model"),
    ("checkpoint", "Checkpoint"),
    ("log", "Log"),
    ("journal", "Journal"),
    ("other", "Other"),
)


@require_safe
def results(request: HttpRequest, pk: int) -> HttpResponse:
    run, tab = run_tab(request, pk, "results")
    listed = cache(lambda: selectors.listed(run))
    found = later(lambda: listed().files)
    context = {
        **tab,
        "missing": later(lambda: listed().missing),
        "groups": later(lambda: _by_role(list(found))),
        "pictures": later(lambda: selectors.pictures(run, list(found))),
        "total_bytes": cache(lambda: sum(file.size_bytes for file in found)),
        "registered": later(lambda: registry.of_run(run)),
        "metrics": later(lambda: run_pages.latest_metrics(run)),
        "request_id": uuid.uuid4(),
    }
    return page(request, "runs/results.html", context, parts={**HEAD, "body": "runs/_results.html"})


def _by_role(found: list[RunFile]) -> list[tuple[str, list[RunFile]]]:
    return [(title, [file for file in found if file.role == role]) for role, title in ROLES if any(file.role == role for file in found)]


@require_safe
def look(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """One file of the run: the picture, the first rows of a table or an array, or the beginning of the text, which ?as=text asks for."""
    run, tab = run_tab(request, pk, "results")
    name = path.rsplit("/", 1)[-1]
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        raise Http404("There is no such file in this run.") from None
    with opened:
        file = previews.preview(opened, size, name=name, as_text=request.GET.get("as") == "text")
    ways = {"laid_out": request.path, "text": "?as=text"}
    links = {"download": reverse("run_file", args=[pk, path]), "picture": reverse("run_picture", args=[pk, path])}
    return page(request, "runs/look.html", {**tab, **links, "path": path, "name": name, "file": file, "ways": ways})


@require_safe
def picture(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """A picture of a kind that runs no script, by its content and not by its name; 404 for all else."""
    run = access.run(person(request), pk)
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        raise Http404("There is no such picture in this run.") from None
    with opened:
        return picture_response(opened, size, name=path.rsplit("/", 1)[-1])
