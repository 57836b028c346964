"""A run's Media: pictures, texts and histograms of its script, each tag at the newest step or at the one that was chosen. What a script
wrote is shown as text, or as a picture of a kind that runs no script; never as a page."""

from __future__ import annotations

import io

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from experiments import access
from experiments.selectors import media
from experiments.views.downloads import picture_response
from experiments.views.responses import later, number, page, person
from experiments.views.runs import HEAD, run_tab
from training_runtime.media import MOST_PIECE_BYTES

MOST_OFFSET = 1 << 62
TITLES = {"image": "Pictures", "text": "Texts", "histogram": "Histograms"}


@require_safe
def looks(request: HttpRequest, pk: int) -> HttpResponse:
    """?at=KIND:STEP:NAME for each tag that is not to be shown at its newest step; ?all=KIND shows all tags of that kind. The part "tag" is
    the one that the first ?at= names."""
    run, tab = run_tab(request, pk, "media")
    steps, all_of = _steps(request), request.GET.get("all", "")
    context = {**tab, "titles": TITLES, "all_of": all_of, "groups": later(lambda: media.by_kind(run, steps, all_of=all_of))}
    if request.GET.get("part") == "tag":
        kind, name = next(iter(steps), ("", ""))
        found = next((each for each in media.tags(run) if (each.kind, each.name) == (kind, name)), None)
        if found is None:
            raise Http404("This run shows nothing of that name.")
        context["each"] = media.tag_at_step(run, found, steps[kind, name])
    return page(request, "runs/media.html", context, parts={**HEAD, "body": "runs/_media.html", "tag": "runs/_medium.html"})


def _steps(request: HttpRequest) -> dict[tuple[str, str], int]:
    found = {}
    for each in request.GET.getlist("at")[: 3 * 100]:
        kind, _, rest = each.partition(":")
        step, _, name = rest.partition(":")
        if step.isascii() and step.isdigit() and len(step) < 20:
            found[kind, name] = int(step)
    return found


@require_safe
def picture(request: HttpRequest, pk: int) -> HttpResponse:
    """The picture in ?file= of the run, ?size= bytes from ?at= on; 404 for what is none."""
    run = access.run(person(request), pk)
    at = number(request, "at", 0, least=0, most=MOST_OFFSET)
    size = number(request, "size", 0, least=0, most=MOST_PIECE_BYTES)
    content = media.piece(run, request.GET.get("file", ""), at, size)
    return picture_response(io.BytesIO(content), len(content), name=f"run-{pk}-{at}")
