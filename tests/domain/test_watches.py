"""Being told of a metric: a threshold that it crosses, and that it is no number any more."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments import services
from experiments.errors import DomainError
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import (
    Delivery,
    ExperimentWatch,
    MetricSeries,
    MetricWatch,
    Notification,
    NotificationKind,
    Project,
    TrainingRun,
    User,
)
from experiments.services import watches
from experiments.services.watches import Crossing
from tests import cast
from training_runtime import journal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("said")]
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    """Alice's, and nobody has been told of anything."""
    Notification.objects.all().delete()  # of their memberships
    return cast.run(project, by=alice, name="rates")


def arrives(run: TrainingRun, *events: journal.Event) -> None:
    cast.write_journal(run, *events)
    ingest.catch_up(run.pk, now=NOW)


def test_a_threshold_is_told_of_once_to_who_set_it(run: TrainingRun, victor: User) -> None:
    watch = watches.watch_metric(run, by=victor, metric="train loss", above=False, threshold=0.5)
    arrives(run, cast.step(1, loss=0.9), cast.step(2, loss=0.5))
    assert not Notification.objects.exists(), "at the threshold is not below it"
    arrives(run, cast.step(3, loss=0.25), cast.step(4, loss=0.2))
    arrives(run, cast.step(5, loss=0.1))
    told = Notification.objects.get()
    assert (told.person, told.kind, told.run) == (victor, NotificationKind.THRESHOLD, run)
    assert told.text == f"rates (run {run.pk}): train loss below 0.5, 0.25 at step 3."
    watch.refresh_from_db()
    assert (watch.told_at, watch.told_step, watch.told_value) == (NOW, 3, 0.25)
    again = watches.watch_metric(run, by=victor, metric="train loss", above=False, threshold=0.5)
    assert (again.pk, again.told_at) == (watch.pk, None)
    arrives(run, cast.step(6, loss=0.1))
    assert Notification.objects.count() == 2


def test_two_thresholds_that_are_crossed_at_once_are_both_told(run: TrainingRun, alice: User) -> None:
    for threshold in (90, 95):
        watches.watch_metric(run, by=alice, metric="test accuracy", above=True, threshold=threshold)
    arrives(run, cast.step(1), journal.Test(step=1, epoch=1, metrics={"accuracy": 97.0}, samples=1))
    assert {told.text for told in Notification.objects.all()} == {
        f"rates (run {run.pk}): test accuracy above 90, 97 at step 1.",
        f"rates (run {run.pk}): test accuracy above 95, 97 at step 1.",
    }


def test_that_a_metric_is_no_number_any_more_is_told_once_for_each(run: TrainingRun, alice: User) -> None:
    watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=5)
    broken = {"loss": float("nan"), "norm": float("inf"), "lr": 0.1}
    arrives(run, cast.step(1, loss=0.5))
    arrives(run, *(journal.Train(step=n, epoch=1, metrics=broken, samples=16, workers=4, step_s=0.1) for n in (2, 3)))
    arrives(run, cast.step(4, loss=float("nan")))
    told = Notification.objects.get()
    assert (told.person, told.kind) == (alice, NotificationKind.NOT_FINITE)
    assert told.text == f"rates (run {run.pk}): no finite number (NaN or infinite) since step 2: train loss, train norm."
    assert {one.name: one.not_finite_from for one in MetricSeries.objects.all()} == {"loss": 2, "norm": 2, "lr": None}


def test_it_goes_outward_as_chosen(run: TrainingRun, alice: User, settings: object) -> None:
    settings.EDT_EMAIL = True  # type: ignore[attr-defined]
    cast.choose_notifications(alice, ways={NotificationKind.THRESHOLD: ["mail"]}, email="alice@example.org")
    watches.watch_metric(run, by=alice, metric="train loss", above=False, threshold=1)
    arrives(run, cast.step(1, loss=0.5), cast.step(2, loss=float("nan")))
    assert not Notification.objects.exists()
    body = Delivery.objects.get(person=alice).body
    assert (body["event"], body["run"]["id"]) == ("run.threshold", run.pk)


def test_who_has_left_the_project_hears_no_more_of_it(run: TrainingRun, project: Project, alice: User, bob: User) -> None:
    watches.watch_metric(run, by=bob, metric="train loss", above=False, threshold=1)
    services.remove_member(project, by=alice, username="bob")
    arrives(run, cast.step(1, loss=0.5))
    assert not Notification.objects.exists()


@pytest.mark.parametrize(("metric", "threshold"), [("loss", 1.0), ("valid loss", 1.0), ("train ", 1.0), ("train loss", float("nan"))])
def test_what_no_metric_can_cross_is_refused(metric: str, threshold: float, run: TrainingRun, alice: User) -> None:
    with pytest.raises(DomainError):
        watches.watch_metric(run, by=alice, metric=metric, above=True, threshold=threshold)


def test_there_is_an_end_to_thresholds(run: TrainingRun, alice: User) -> None:
    for threshold in range(watches.MOST_WATCHES):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=threshold)
    watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=0)
    with pytest.raises(DomainError, match="remove one first"):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=-1)
    services.stop_run(run, by=alice)
    run.refresh_from_db()
    MetricWatch.objects.all().delete()
    with pytest.raises(DomainError, match="has ended"):
        watches.watch_metric(run, by=alice, metric="train loss", above=True, threshold=1)


def inherited(run: TrainingRun) -> set[tuple[str, str]]:
    return {(watch.person.username, str(watch)) for watch in run.watches.filter(inherited=True)}


def test_every_run_that_is_made_of_an_experiment_has_its_thresholds(run: TrainingRun, alice: User, victor: User) -> None:
    experiment = run.experiment
    of_victor = watches.watch_experiment(experiment, by=victor, metric="train loss", above=False, threshold=0.5)
    again = watches.watch_experiment(experiment, by=victor, metric="train loss", above=False, threshold=0.5)
    assert again == of_victor, "set twice, it is one"
    watches.watch_experiment(experiment, by=alice, metric="test accuracy", above=True, threshold=99)
    assert inherited(run) == set(), "it was made before"
    second, third = (services.run_experiment(experiment, by=alice)[0] for _ in range(2))
    both = {("victor", "train loss below 0.5"), ("alice", "test accuracy above 99")}
    assert inherited(second) == inherited(third) == both
    arrives(second, cast.step(1, loss=0.25))
    arrives(third, cast.step(4, loss=0.1))
    assert [told.text for told in Notification.objects.order_by("id")] == [
        f"rates (run {second.pk}): train loss below 0.5, 0.25 at step 1.",
        f"rates (run {third.pk}): train loss below 0.5, 0.1 at step 4.",
    ]
    watches.drop_watch(second.watches.get(person=alice))
    watches.drop_watch(of_victor)
    assert inherited(third) == both, "what a run has, it keeps"
    assert inherited(services.run_experiment(experiment, by=alice)[0]) == {("alice", "test accuracy above 99")}


def test_a_run_that_continues_another_has_them_and_who_left_the_project_asks_no_more(
    run: TrainingRun, project: Project, alice: User, bob: User
) -> None:
    for person in (alice, bob):
        watches.watch_experiment(run.experiment, by=person, metric="train loss", above=False, threshold=0.5)
    services.remove_member(project, by=alice, username="bob")
    folder = runfiles.make(run) / "checkpoint"
    folder.mkdir()
    (folder / "engine.pt").write_bytes(b"weights")
    services.stop_run(run, by=alice)
    assert inherited(services.continue_run(run, by=alice)) == {("alice", "train loss below 0.5")}


def test_an_experiment_is_made_with_thresholds_and_a_copy_takes_along_ones_own(project: Project, alice: User, bob: User) -> None:
    wanted = [Crossing("train loss", False, 0.5), Crossing("test accuracy", True, 99.0)]
    version = cast.definition(project, by=alice)
    made = services.create_experiment(project, by=alice, name="rates", versions=[version], thresholds=[*wanted, wanted[0]])
    watches.watch_experiment(made, by=bob, metric="train norm", above=True, threshold=10)
    assert watches.crossings(made, of=alice) == wanted
    assert watches.crossings(services.duplicate_experiment(made, by=alice), of=alice) == wanted
    copy = services.duplicate_experiment(made, by=bob)
    assert [str(watch) for watch in copy.watches.all()] == ["train norm above 10"]
    run = services.run_experiment(made, by=bob)[0]
    assert len(inherited(run)) == 3
    services.stop_run(run, by=bob)
    services.delete_experiment(made, by=alice)
    assert ExperimentWatch.objects.count() == 3


def test_thresholds_of_an_experiment_have_the_limits_of_a_runs(run: TrainingRun, project: Project, alice: User) -> None:
    version, many = run.version, [Crossing("train loss", True, float(n)) for n in range(watches.MOST_WATCHES + 1)]
    for wrong in ([Crossing("loss", True, 1.0)], [Crossing("train loss", True, float("inf"))], many):
        with pytest.raises(DomainError) as refused:
            services.create_experiment(project, by=alice, name="rates", versions=[version], thresholds=wrong)
        assert list(refused.value.fields) == ["thresholds"]
    for crossing in many[:-1]:
        watches.watch_experiment(run.experiment, by=alice, metric=crossing.metric, above=True, threshold=crossing.threshold)
    with pytest.raises(DomainError, match="remove one first"):
        watches.watch_experiment(run.experiment, by=alice, metric="train loss", above=True, threshold=-1)
    with pytest.raises(DomainError, match="Name a curve"):
        watches.watch_experiment(run.experiment, by=alice, metric="loss", above=True, threshold=1)
