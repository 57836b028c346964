"""Runs side by side: on a tab of their experiment, or on a page of its own for runs of any experiments and projects."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from experiments import access
from experiments.models import MetricSeries, TrainingRun
from experiments.selectors import compare as comparison
from experiments.views.experiments import experiment_tab
from experiments.views.responses import later, page, person

FEW = 20  # runs: of more the table is long to write, and comes after the curves


def address(runs: list[int]) -> str:
    """Of the page with these runs, to be shared."""
    return f"{reverse('compare_runs')}?{urlencode([('run', number) for number in runs])}"


@require_safe
def of_experiment(request: HttpRequest, pk: int) -> HttpResponse:
    """?run=1&run=2, which may have left the newest that are offered; with runs of other experiments, or too many, it is the other page."""
    experiment, tab = experiment_tab(request, pk, "compare")
    found = comparison.candidates(experiment)
    named = comparison.numbers(request.GET.getlist("run"))
    runs, missing = access.runs(person(request), named[: comparison.MOST_RUNS])
    if missing or len(named) > comparison.MOST_RUNS or any(run.experiment_id != experiment.pk for run in runs):
        return redirect(address(named))
    runs = runs or comparison.chosen(found)
    context = {**tab, **_comparison_context(request, runs), "others": [run for run in found if run not in runs], "found": found}
    return page(request, "experiments/compare.html", context, parts={"table": "experiments/_differences.html"})


@require_safe
def of_all(request: HttpRequest) -> HttpResponse:
    """?run=1&run=2 or ?run=1,2, of all that the person may see; ?q= finds more to add."""
    user = person(request)
    named = comparison.numbers(request.GET.getlist("run"))
    runs, missing = access.runs(user, named[: comparison.MOST_RUNS])
    query = request.GET.get("q", "").strip()[:120]
    context = {
        "section": "projects",
        **_comparison_context(request, runs),
        "missing": _not_shown(missing),
        "left_out": max(0, len(named) - comparison.MOST_RUNS),
        "most_runs": comparison.MOST_RUNS,
        "query": query,
        "others": later(lambda: comparison.findable(user, query, but=runs)),
    }
    parts = {"table": "experiments/_differences.html", "others": "experiments/_others.html"}
    return page(request, "experiments/compare_runs.html", context, parts=parts)


def _not_shown(numbers: list[int]) -> str:
    """Nothing of why: whether there is such a run is for who may see it."""
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f"Run {numbers[0]} is not shown: there is no such run, or it is in a project that you may not open."
    return f"Runs {', '.join(map(str, numbers))} are not shown: there are no such runs, or they are in projects that you may not open."


def _curves(runs: list[TrainingRun], metrics: list[str]) -> str:
    asked = [("run", ",".join(str(run.pk) for run in runs)), *(("metric", name) for name in metrics[: comparison.MOST_METRICS])]
    return f"{reverse('compared_series')}?{urlencode(asked)}"


def _comparison_context(request: HttpRequest, runs: list[TrainingRun]) -> dict[str, Any]:
    """What both pages show of the chosen runs; ?baseline=1 is what the others are compared with."""
    baseline = next((i for i, run in enumerate(runs) if str(run.pk) == request.GET.get("baseline")), None)

    def table() -> list[comparison.Row]:
        rows = comparison.table(runs, now=timezone.now())
        return rows if baseline is None else comparison.against(rows, baseline)

    rows = later(table)
    axes = later(lambda: [asdict(axis) for axis in comparison.parallel(list(rows))])
    return {
        "runs": runs,
        "baseline": None if baseline is None else runs[baseline],
        "topics": " ".join(f"experiment-{experiment}" for experiment in dict.fromkeys(run.experiment_id for run in runs)),
        "shared": address([run.pk for run in runs]),
        "first_curves": _curves(runs, request.GET.getlist("metric")),  # asked for while the page is still being read
        "any_live": any(run.is_live() for run in runs),
        "rows": rows,
        "rows_later": len(runs) > FEW and "whole" not in request.GET,
        "has_curves": cache(lambda: MetricSeries.objects.filter(run__in=runs).exists()),
        "has_lines": cache(lambda: len(axes) > 1),  # on one axis alone a run is a point
        "parallel": cache(lambda: json.dumps(list(axes))),
    }
