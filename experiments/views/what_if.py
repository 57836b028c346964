"""What if: the futures of everybody's slots, as things are and as they might be; and last week under another policy. Nothing is changed.

Everybody who is logged in may ask, as everybody sees the cluster; runs of others' projects have no names here either.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments.forms.what_if import ReplayForm, WhatIfForm
from experiments.models import User
from experiments.ops import clock
from experiments.selectors import run_pages
from experiments.selectors.replay import replay
from experiments.selectors.sharing import nodes_in_service, sharers
from experiments.selectors.what_if import FutureLane, WhatIf, what_if
from experiments.views.responses import later, page, person
from training_runtime.scheduling.what_if import Wish

MOST_ROWS = 100


@require_safe
def ask(request: HttpRequest) -> HttpResponse:
    """?more=1&like=gpu-1, ?without=gpu-2, ?person=bob&weight=2, ?job_hours=3&job_slots=4&job_in=8: all at once, if wanted."""
    user, now = person(request), clock.now()
    sent = any(name != "part" for name in request.GET)
    machines = [node.name for node in nodes_in_service(now=now)]
    form = WhatIfForm(request.GET if sent else None, machines=machines, people=sharers(), me=user.username, now=now)
    wish = form.wish() if sent and form.is_valid() else Wish()
    found = later(lambda: what_if(wish, now=now, named=partial(run_pages.named_ids, user)))
    query = request.GET.copy()
    query.pop("part", None)
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "form": form,
        "problem": form.problems() if sent and not form.is_valid() else "",
        "asked": not wish.is_nothing(),
        "found": found,
        "rows": later(lambda: found.rows[:MOST_ROWS]),
        "more_rows": later(lambda: max(0, len(found.rows) - MOST_ROWS)),
        "readable": later(lambda: run_pages.readable_ids(user, [row.run for row in found.rows])),
        "picture": later(lambda: picture(user, found, asked=not wish.is_nothing())),
        "address": f"{reverse('what_if')}?{query.urlencode()}" if query else reverse("what_if"),
    }
    return page(request, "what_if/page.html", context, parts={"panel": "what_if/_panel.html", "answer": "what_if/_answer.html"})


@require_safe
def again(request: HttpRequest) -> HttpResponse:
    """The last ?days=1|7|30 under ?policy= and with ?person=bob&weight=2."""
    user, now = person(request), clock.now()
    form = ReplayForm(request.GET or None, people=sharers())
    valid = form.is_valid()
    found = later(
        lambda: replay(
            policy=form.chosen_policy() if valid else None,
            person_weights=form.weights() if valid else {},
            days=(form.cleaned_data["days"] or 7) if valid else 7,
            now=now,
            named=partial(run_pages.named_ids, user),
        )
    )
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster")), ("What if", reverse("what_if"))],
        "form": form,
        "asked": valid and bool(form.chosen_policy() or form.weights()),
        "found": found,
        "rows": later(lambda: found.runs[:MOST_ROWS]),
        "more_rows": later(lambda: max(0, len(found.runs) - MOST_ROWS)),
        "readable": later(lambda: run_pages.readable_ids(user, [row.run for row in found.runs])),
    }
    return page(request, "what_if/replay.html", context)


def picture(user: User, found: WhatIf, *, asked: bool) -> str:
    """What static/js/whatif.js draws, as JSON: both courses on one axis, a bar as [run, begin, end or null] in seconds from now."""
    runs = {bar.run: [bar.name, bar.person] for lane in (*found.today, *found.then) for bar in lane.bars}
    drawn = {
        "begin": found.now.timestamp(),
        "seconds": (found.end - found.now).total_seconds(),
        "readable": sorted(run_pages.readable_ids(user, runs)),
        "runs": runs,
        "today": _drawn(found.today, found.now),
        "then": _drawn(found.then, found.now) if asked else [],
    }
    return json.dumps(drawn, separators=(",", ":"))


def _drawn(lanes: Iterable[FutureLane], now: dt.datetime) -> list[dict[str, object]]:
    def ahead(moment: dt.datetime) -> float:
        return round((moment - now).total_seconds(), 1)

    return [
        {
            "label": lane.label,
            "node": lane.node,
            "state": lane.state,
            "bars": [[bar.run, ahead(bar.begin), ahead(bar.end) if bar.end else None] for bar in lane.bars],
        }
        for lane in lanes
    ]
