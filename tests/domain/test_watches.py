"""Being told of a metric: a threshold that it crosses, and that it is no number any more."""

from __future__ import annotations

import datetime as dt

import pytest
from django.core.exceptions import ValidationError

from experiments import ingest, services
from experiments.models import Delivery, MetricSeries, MetricWatch, Notice, NoticeKind, Project, TrainingRun, User
from experiments.services import watches
from tests import cast
from training_runtime import journal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("said")]
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    """Alice's, and nobody has been told of anything."""
    Notice.objects.all().delete()  # of their memberships
    return cast.run(project, by=alice, name="rates")


def arrives(run: TrainingRun, *events: journal.Event) -> None:
    cast.write_journal(run, *events)
    ingest.catch_up(run.pk, now=NOW)


def test_a_threshold_is_told_of_once_to_who_set_it(run: TrainingRun, victor: User) -> None:
    watch = watches.watch_metric(run, by=victor, metric="train loss", above=False, threshold=0.5)
    arrives(run, cast.step(1, loss=0.9), cast.step(2, loss=0.5))
    assert not Notice.objects.exists(), "at the threshold is not below it"
    arrives(run, cast.step(3, loss=0.25), cast.step(4, loss=0.2))
    arrives(run, cast.step(5, loss=0.1))
    told = Notice.objects.get()
    assert (told.person, told.kind, told.run) == (victor, NoticeKind.THRESHOLD, run)
    assert told.text == "rates: train loss below 0.5, 0.25 at step 3."
    watch.refresh_from_db()
    assert (watch.told_at, watch.told_step, watch.told_value) == (NOW, 3, 0.25)
    again = watches.watch_metric(run, by=victor, metric="train loss", above=False, threshold=0.5)
    assert (again.pk, again.told_at) == (watch.pk, None)
    arrives(run, cast.step(6, loss=0.1))
    assert Notice.objects.count() == 2


def test_two_thresholds_that_are_crossed_at_once_are_both_told(run: TrainingRun, alice: User) -> None:
    for threshold in (90, 95):
        watches.watch_metric(run, by=alice, metric="test accuracy", above=True, threshold=threshold)
    arrives(run, cast.step(1), journal.Test(step=1, epoch=1, metrics={"accuracy": 97.0}, samples=1))
    assert {told.text for told in Notice.objects.all()} == {
        "rates: test accuracy above 90, 97 at step 1.",
        "rates: test accuracy above 95, 97 at step 1.",
    }


def test_that_a_metric_is_no_number_any_more_is_told_once_for_each(run: TrainingRun, alice: User) -> None:
    watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=5)
    broken = {"loss": float("nan"), "norm": float("inf"), "lr": 0.1}
    arrives(run, cast.step(1, loss=0.5))
    arrives(run, *(journal.Train(step=n, epoch=1, metrics=broken, samples=16, workers=4, step_s=0.1) for n in (2, 3)))
    arrives(run, cast.step(4, loss=float("nan")))
    told = Notice.objects.get()
    assert (told.person, told.kind) == (alice, NoticeKind.NOT_FINITE)
    assert told.text == "rates: no finite number (NaN or infinite) since step 2: train loss, train norm."
    assert {one.name: one.not_finite_from for one in MetricSeries.objects.all()} == {"loss": 2, "norm": 2, "lr": None}


def test_it_goes_outward_as_chosen(run: TrainingRun, alice: User, settings: object) -> None:
    settings.EDT_EMAIL = True  # type: ignore[attr-defined]
    services.choose_notices(alice, ways={NoticeKind.THRESHOLD: ["mail"]}, email="alice@example.org")
    watches.watch_metric(run, by=alice, metric="train loss", above=False, threshold=1)
    arrives(run, cast.step(1, loss=0.5), cast.step(2, loss=float("nan")))
    assert not Notice.objects.exists()
    body = Delivery.objects.get(person=alice).body
    assert (body["event"], body["run"]["id"]) == ("run.threshold", run.pk)


def test_who_has_left_the_project_hears_no_more_of_it(run: TrainingRun, project: Project, alice: User, bob: User) -> None:
    watches.watch_metric(run, by=bob, metric="train loss", above=False, threshold=1)
    services.remove_member(project, by=alice, username="bob")
    arrives(run, cast.step(1, loss=0.5))
    assert not Notice.objects.exists()


@pytest.mark.parametrize(("metric", "threshold"), [("loss", 1.0), ("valid loss", 1.0), ("train ", 1.0), ("train loss", float("nan"))])
def test_what_no_metric_can_cross_is_refused(metric: str, threshold: float, run: TrainingRun, alice: User) -> None:
    with pytest.raises(ValidationError):
        watches.watch_metric(run, by=alice, metric=metric, above=True, threshold=threshold)


def test_there_is_an_end_to_thresholds(run: TrainingRun, alice: User) -> None:
    for threshold in range(watches.MOST_WATCHES):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=threshold)
    watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=0)
    with pytest.raises(ValidationError, match="remove one first"):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=-1)
    services.stop_run(run, by=alice)
    run.refresh_from_db()
    MetricWatch.objects.all().delete()
    with pytest.raises(ValidationError, match="has ended"):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=1)
