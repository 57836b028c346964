"""Beside a run's curves: its alerts, and its events by kind, with checkpoints put together."""

from __future__ import annotations

from django.urls import reverse
from django.utils import timezone

from experiments.models import MetricWatch
from tests.web.conftest import As
from tests.web.seed import Seeded


def test_events_are_shown_by_kind_and_checkpoints_put_together(studio: Seeded, as_: As) -> None:
    run, client = studio.completed, as_(studio.alice)
    run.events.create(seq=9001, at=timezone.now(), kind="warning", message="a worker was slow")
    for number in range(30):
        said = f"Wrote the state of step {number}, to resume from."
        run.events.create(seq=9100 + number, at=timezone.now(), kind="checkpoint", message=said)
    shown = client.get(reverse("run", args=[run.pk]), {"part": "notes"}).content.decode()
    assert "a worker was slow" in shown
    assert shown.count("to resume from.") <= 1, "one line for all of them"
    only = client.get(reverse("run", args=[run.pk]), {"part": "notes", "events": "checkpoint"}).content.decode()
    assert "a worker was slow" not in only
    assert only.count("to resume from.") == 20
    assert '<input type="hidden" name="events" value="checkpoint">' in only, "what updates it asks for the same"
    assert "a worker was slow" not in client.get(reverse("run", args=[run.pk]), {"part": "notes", "events": "<b>"}).content.decode()


def test_alerts_stand_beside_the_charts_with_the_place_of_their_marks(studio: Seeded, as_: As) -> None:
    run = studio.running
    MetricWatch.objects.create(
        person=studio.alice,
        run=run,
        group="train",
        name="loss",
        above=False,
        threshold=2,
        told_at=timezone.now(),
        told_step=30,
        told_value=1.9,
    )
    shown = as_(studio.alice).get(reverse("run", args=[run.pk])).content.decode()
    assert 'data-alert="loss" data-group="train" data-step="30"' in shown
    assert shown.index('id="chart-list"') < shown.index('id="watches-title"') < shown.index('id="notes"')
