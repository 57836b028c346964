"""A run's pages: Monitor and Overview. Its files are in results, its logs in logs, its curves in curves, its actions in run_actions."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from experiments import access, selectors, services
from experiments.cluster import accounting
from experiments.definitions.variables import Secrets
from experiments.forms.common import CheckpointsForm, WatchForm
from experiments.models import Slot, TrainingRun
from experiments.selectors import checkpoints as selected
from experiments.selectors import comments, data, environments, latest_utilization, reproductions, run_pages
from experiments.selectors.effective import effective
from experiments.selectors.utilization import Use, known, missing, slots_used, use
from experiments.views.curves import FEW_SLOTS, chosen_slots, slot_labels
from experiments.views.responses import later, page, person, run_crumbs

HEAD = {"head": "runs/_head.html"}  # the head of every tab is refetched from Monitor
TABLE_ROWS = 20  # of the table beside the charts of the slots' use


def run_tab(request: HttpRequest, pk: int, name: str) -> tuple[TrainingRun, dict[str, object]]:
    """The run, and what every tab of its page shows."""
    user = person(request)
    run = access.run(user, pk)
    may_write = access.may(run.experiment.project, "write")
    return run, {
        "section": "projects",
        "run": run,
        "tab": name,
        "project": run.experiment.project,
        "may_write": may_write,
        "may_control": may_write or user.administers,
        "crumbs": run_crumbs(run),
        "slots": later(lambda: selectors.run_slots(run)),
        "counted_priority": cache(lambda: run.counted_priority(access.rules(user).priority_ceiling)),
        "rules": later(lambda: access.rules(user)),
        "trusted_machines": later(lambda: run_pages.trusted_machines(run)),
        "packages": later(lambda: environments.of_run(run)),
        "missing_package": services.missing_package(run) if may_write and run.error_message else "",
        "continuable": cache(lambda: not run.is_live() and services.has_checkpoint(run)),
        "idempotency_key": uuid.uuid4(),
        "keeps": CheckpointsForm.of(run.checkpoints) if may_write and run.is_live() else None,
        "companions": later(lambda: run_pages.companions(run)),
        "best": later(lambda: selected.best(run)),
    }


@require_safe
def monitor(request: HttpRequest, pk: int) -> HttpResponse:
    run, tab = run_tab(request, pk, "monitor")
    use_known = later(lambda: known(run))
    event_kind = request.GET.get("events", "")[:16].replace("\0", "")
    most_comments = None if request.GET.get("comments") == "all" else comments.SHOWN
    context = {
        **tab,
        "charts": later(lambda: run_pages.chart_names(run)),
        "left_out": later(lambda: run_pages.left_out(run)),
        "use_known": use_known,
        "use_missing": later(lambda: missing(run, known=use_known)),
        "slot_seconds": cache(lambda: accounting.slot_seconds(run, now=timezone.now())),
        "use_open": request.GET.get("table") == "use",  # without script; else it is fetched when it is opened
        "use": later(lambda: _use_table(request, run)),
        "metrics": later(lambda: run_pages.latest_metrics(run)),
        "generations": later(lambda: selectors.generations(run, limit=20)),
        "events": later(lambda: selected.events_of(run, event_kind, limit=20)),
        "event_kinds": later(lambda: selected.event_kinds(run)),
        "event_kind": event_kind,
        "checkpoints": later(lambda: run_pages.checkpoints(run)),
        "comments": later(lambda: comments.of_run(run, reader=person(request), most=most_comments)),
        "watches": later(lambda: list(run.watches.filter(person=person(request)))),
        "line": WatchForm(auto_id=False),
        "metric_names": later(lambda: selectors.metric_names(run.experiment)),
    }
    parts = {
        **HEAD,
        "tiles": "runs/_tiles_live.html",
        "notes": "runs/_notes.html",
        "comments": "runs/_comments.html",
        "watches": "runs/_watches.html",
        "watch_form": "runs/_watch_form.html",
        "use": "runs/_use.html",
    }
    return page(request, "runs/monitor.html", context, parts=parts)


@dataclass(frozen=True)
class UseTable:
    """What the charts of the slots' use show, in words, newest first; of the single slots that were chosen too. `others`: links to
    those."""

    rows: list[tuple[Use, dt.datetime]]
    chosen: list[tuple[Slot, str]]
    others: list[tuple[Slot, str]]


def _use_table(request: HttpRequest, run: TrainingRun) -> UseTable:
    slots = slots_used(run)
    chosen = chosen_slots(request, slots)
    rows = use(run, most=TABLE_ROWS, slots=[slot.pk for slot in chosen])
    at = [(each, dt.datetime.fromtimestamp(each.t, dt.UTC)) for each in reversed(rows)]
    return UseTable(at, [each for each in slot_labels(slots) if each[0] in chosen], slot_labels(slots) if len(slots) > FEW_SLOTS else [])


@require_safe
def overview(request: HttpRequest, pk: int) -> HttpResponse:
    run, tab = run_tab(request, pk, "overview")
    now = timezone.now()
    held = later(lambda: run_pages.grants(run, now=now))
    context = {
        **tab,
        "newer_data": later(lambda: data.newer_than(run.experiment.data_asset)),
        "generations": later(lambda: selectors.generations(run)),
        "arguments": later(lambda: effective(run, run_pages.logged_facts(run))),
        "logged": later(lambda: run_pages.logged_facts(run)),
        "secrets": later(lambda: sorted(Secrets([run]).variables(run)) if run.is_live() else []),
        "grants": held,
        "picture": later(lambda: run_pages.picture(list(held))),
        "slot_seconds": cache(lambda: accounting.slot_seconds(run, now=now)),
        "busy_seconds": cache(lambda: accounting.busy_seconds(run, held_s=accounting.slot_seconds(run, now=now))),
        "transitions": later(lambda: run_pages.transitions(run)),
        "events": later(lambda: selected.events(run, run.events.order_by("-seq")[:200], limit=200)),
        "repeats": later(lambda: reproductions.of_run(person(request), run)),
        "repeated": later(lambda: reproductions.of_others(run)),
        "digest_count": cache(run.digests.count),
        "present": later(lambda: latest_utilization.of_run(run, now=now)),
    }
    return page(request, "runs/overview.html", context, parts={**HEAD, "body": "runs/_overview.html", "now": "runs/_now.html"})
