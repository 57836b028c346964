"""A run's curves as JSON for the charts: whole ones down-sampled, and what came after a journal line. Both have caps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from pydantic_core import to_json

from experiments import access, selectors
from experiments.models import GenerationRecord, Slot, TrainingRun
from experiments.selectors import compare as comparison
from experiments.selectors import run_pages
from experiments.selectors.curves import Curve, RunCurves, of_runs
from experiments.selectors.utilization import slots_used
from experiments.selectors.utilization import use as use_of
from experiments.views.responses import number, person

MOST_POINTS = 2000
MOST_STEPS = 2**62
MOST_MARKS = 500
MOST_CATCH_UP = 5000
FEW_SLOTS = 4  # so many have a line each without being asked for
MOST_LINES = 6  # of single slots in one chart: more are not told apart


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity; a chart leaves a gap there."""
    return value if value is not None and math.isfinite(value) else None


def marks(generations: Iterable[GenerationRecord]) -> list[dict[str, object]]:
    """The changes of members, oldest first, as the charts mark them."""
    return [
        {
            "generation": g.generation,
            "t": g.at.timestamp(),
            "step": g.step,
            "workers": g.workers,
            "before": g.workers_before,
            "reason": g.reason,
            "pause_ms": finite(g.pause_ms),
            "redone": None if g.is_restart() else g.redone,
        }
        for g in sorted(generations, key=lambda g: g.seq)
    ]


def drawn(curve: Curve) -> dict[str, object]:
    return {"steps": curve.steps, "times": [round(t, 3) for t in curve.times], "values": [finite(v) for v in curve.values]}


def shape(run: TrainingRun, samples: int | None) -> dict[str, object]:
    """How steps become samples, of which an epoch has so many."""
    return {"batch": run.global_batch(), "steps_per_epoch": run.steps_per_epoch, "samples": samples}


@require_safe
def series(request: HttpRequest, pk: int) -> JsonResponse:
    run = access.run(person(request), pk)
    most = number(request, "max", 1000, least=10, most=MOST_POINTS)
    begin = number(request, "from", 0, least=0, most=MOST_STEPS)
    end = number(request, "to", MOST_STEPS, least=begin, most=MOST_STEPS)
    seq, curves = selectors.series(run, max_points=most, x="time" if request.GET.get("x") == "time" else "step", steps=(begin, end))
    answer = {
        "seq": seq,
        "name": run.name,
        "curves": [
            {
                "group": curve.group,
                "name": curve.name,
                **drawn(curve),
                "total": curve.total,
                "sampled": curve.sampled,
            }
            for curve in curves
        ],
        "marks": marks(selectors.generations(run, limit=MOST_MARKS)),
        "shape": shape(run, run_pages.epoch_samples(run)),
        "live": run.is_live(),
    }
    response = JsonResponse(answer)
    response["Cache-Control"] = "no-store"
    return response


@require_safe
def compared(request: HttpRequest) -> HttpResponse:
    """?run=1,2&metric=train+loss&metric=...: what of these several runs have, in one answer. `metrics`: all that any of them has; without
    ?metric= the first of those is sent, and with an empty one no curve: the page asks how far the runs are.

    A run that the person may not see is left out, as if there were none.
    """
    named = comparison.numbers(request.GET.getlist("run"))
    runs, _ = access.runs(person(request), named[: comparison.MOST_RUNS])
    metrics = comparison.metric_names(runs)
    wanted = request.GET.getlist("metric")[: comparison.MOST_METRICS] or metrics[:1]
    most = number(request, "max", 1000, least=10, most=MOST_POINTS)
    found = of_runs(runs, names=wanted, max_points=most)
    began = run_pages.began(runs)
    answer = {"metrics": metrics, "runs": [_compared(run, found[run.pk], began.get(run.pk)) for run in runs]}
    written = to_json(answer, inf_nan_mode="null")  # a hundred thousand points: a third of the time that json takes for them
    return HttpResponse(written, content_type="application/json", headers={"Cache-Control": "no-store"})


def _compared(run: TrainingRun, found: RunCurves, began: run_pages.Began | None) -> dict[str, object]:
    """Times and values as they are: what is no number becomes null where it is written."""
    return {
        "run": run.pk,
        "seq": found.seq,
        "start": began.at.timestamp() if began else None,
        "shape": shape(run, began.samples if began else None),
        "metrics": found.names,
        "curves": [
            {
                "name": f"{curve.group} {curve.name}",
                "steps": curve.steps,
                "times": curve.times,
                "values": curve.values,
            }
            for curve in found.curves
        ],
    }


@require_safe
def points(request: HttpRequest, pk: int) -> JsonResponse:
    """As a "points" message of the socket; `reload` where the caller is too far behind and should fetch the curves anew."""
    run = access.run(person(request), pk)
    after = number(request, "after", 0, least=0, most=1 << 62)
    new = selectors.points_after(run, seq=after, limit=MOST_CATCH_UP)
    rows = [[group, name, step, t, finite(value), workers, epoch] for group, name, step, t, value, workers, epoch in new.points]
    answer = {"type": "points", "topic": f"run-{pk}", "after": new.after, "seq": new.seq, "points": rows}
    response = JsonResponse({**answer, "progress": new.progress, "reload": new.reload})
    response["Cache-Control"] = "no-store"
    return response


@require_safe
def use(request: HttpRequest, pk: int) -> JsonResponse:
    """How the run's slots worked, and their memory, after a tick, oldest first.

    A point: [t, share, bytes of all slots, of the largest, least share of a slot, greatest, bytes of the smallest]. `slots`: every one that
    it has held, [number, label]. `lines`: the share and bytes of those of ?slots=3,4 in each point; without that, of all where they are
    few.
    """
    run = access.run(person(request), pk)
    slots = slots_used(run)
    chosen = chosen_slots(request, slots)
    found = use_of(run, after=number(request, "after", 0, least=0, most=1 << 40), slots=[slot.pk for slot in chosen])
    answer = {
        "points": [
            [each.t, short(each.share), each.memory, each.largest, short(each.least_share), short(each.greatest_share), each.least]
            for each in found
        ],
        "slots": [[slot.pk, label] for slot, label in slot_labels(slots)],
        "lines": {
            slot.pk: [[short(each.lines[place].share), each.lines[place].memory] for each in found] for place, slot in enumerate(chosen)
        },
    }
    response = JsonResponse(answer)
    response["Cache-Control"] = "no-store"
    return response


def short(share: float | None) -> float | None:
    """A chart shows no thousandth part."""
    return None if share is None else round(share, 3)


def chosen_slots(request: HttpRequest, slots: Sequence[Slot]) -> list[Slot]:
    """Those of the run's slots that ?slots=3,4 asks for, at most MOST_LINES; where it does not say, all of them if they are few."""
    asked = request.GET.get("slots")
    if asked is None:
        return list(slots) if len(slots) <= FEW_SLOTS else []
    wanted = set(asked.split(","))
    return [slot for slot in slots if str(slot.pk) in wanted][:MOST_LINES]


def slot_labels(slots: Sequence[Slot]) -> list[tuple[Slot, str]]:
    """With their machine where they are of several."""
    several = len({slot.node_id for slot in slots}) > 1
    return [(slot, f"{slot.label()} on {slot.node.name}" if several else slot.label()) for slot in slots]
