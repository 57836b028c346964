"""A slot on which workers keep dying: what counts as evidence, that it is taken out and says so, and how it comes back."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments import services
from experiments.cluster import fleet, scheduling, slot_health
from experiments.metrics import ingest, slot_deaths
from experiments.models import ClusterChange, Grant, Node, Notification, NotificationKind, Project, Slot, SlotDeath, TrainingRun, User
from experiments.selectors import feed, lanes
from tests import cast
from training_runtime.gpu_health import GpuHealth, fault
from training_runtime.journal import Died
from training_runtime.protocol import Observation
from training_runtime.scheduling.slot_health import WINDOW_S

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def slot(index: int = 2) -> Slot:
    return Slot.objects.get(index=index, node__name="local")


def die(run: TrainingRun, times: int, *, on: Slot | None = None, at: dt.datetime = NOW) -> None:
    deaths = [((on or slot()).pk, at + number * dt.timedelta(seconds=1)) for number in range(times)]
    slot_deaths.store_deaths(run, deaths, now=at + MINUTE)


def earlier(project: Project, by: User) -> TrainingRun:
    """A run that had all four slots in the hour before, and made steps."""
    made = cast.run(project, by=by, name="earlier", now=NOW - 60 * MINUTE)
    services.stop_run(made, by=by, now=NOW)
    for each in Slot.objects.all():
        Grant.objects.create(run=made, slot=each, granted_at=NOW - 60 * MINUTE, released_at=NOW - MINUTE, reason="")
    TrainingRun.objects.filter(pk=made.pk).update(last_step_at=NOW - MINUTE)
    return made


@pytest.fixture
def both(run: TrainingRun, project: Project, bob: User) -> tuple[TrainingRun, TrainingRun]:
    """Alice's run, which has all slots since an hour, and one that Bob had."""
    Grant.objects.filter(run=run).update(granted_at=NOW - 59 * MINUTE)
    TrainingRun.objects.filter(pk=run.pk).update(last_step_at=NOW)
    return run, earlier(project, bob)


def look(now: dt.datetime = NOW + MINUTE) -> int:
    Node.objects.update(last_seen_at=now)
    return slot_health.look(now)


def test_runs_of_two_people_that_die_there_take_it_out(both: tuple[TrainingRun, TrainingRun], host: cast.Host, dora: User) -> None:
    for run in both:
        die(run, 6)
    assert look() == 1
    assert look() == 0, "it is out already"
    ill = slot()
    assert ill.out_reason == "Workers of 2 runs of 2 people keep dying on it, and the same runs do well on 3 other slots."
    assert ill.out_at == NOW + MINUTE
    scheduling.tick(NOW + MINUTE)
    host.apply(NOW + MINUTE)
    scheduling.tick(NOW + MINUTE)
    assert cast.slots_of(both[0]) == set(cast.slot_ids(host.node)) - {ill.pk}, "given back, and nobody gets it"
    assert [lane.state for lane in lanes(begin=NOW, end=NOW + MINUTE)] == ["held", "held", "out", "held"]
    words = "Slot CPU 2 of node local was taken out of service: Workers of 2 runs of 2 people keep dying on it"
    assert [item.text[: len(words)] for item in feed() if item.kind == "cluster"] == [words]
    assert [(each.person, each.text[: len(words)]) for each in Notification.objects.filter(kind=NotificationKind.SLOT)] == [(dora, words)]


def test_one_persons_runs_alone_do_not(both: tuple[TrainingRun, TrainingRun], project: Project, alice: User) -> None:
    for run in (both[0], earlier(project, alice)):
        die(run, 50)
    assert look() == 0


def test_a_script_that_dies_everywhere_does_not(both: tuple[TrainingRun, TrainingRun]) -> None:
    for run in both:
        for index in range(4):
            die(run, 9, on=slot(index))
    assert look() == 0


def test_an_administrator_puts_it_back_and_the_evidence_is_forgotten(both: tuple[TrainingRun, TrainingRun], dora: User) -> None:
    for run in both:
        die(run, 6)
    look()
    services.put_slot_back(slot(), by=dora, reason="a new fan", now=NOW + 5 * MINUTE)
    assert (slot().out_reason, slot().out_at, slot().trusted_since) == ("", None, NOW + 5 * MINUTE)
    assert look(NOW + 6 * MINUTE) == 0
    for run in both:
        die(run, 6)
    assert not SlotDeath.objects.exists(), "a journal that is read again says nothing new"
    changes = ClusterChange.objects.count()
    services.put_slot_back(slot(), by=dora, now=NOW + 7 * MINUTE)
    assert ClusterChange.objects.count() == changes, "it is in service"
    assert ClusterChange.objects.latest("pk").text == "dora put slot CPU 2 of node local back into service"


def test_the_last_slot_in_service_stays_and_is_doubted_in_words(both: tuple[TrainingRun, TrainingRun], dora: User) -> None:
    for run in both:
        die(run, 6)
    Slot.objects.exclude(index=2).update(draining=True)
    assert (look(), look()) == (0, 0)
    assert slot().doubt.endswith("It stays in service because it is the last CPU slot that is.")
    assert Notification.objects.filter(kind=NotificationKind.SLOT, person=dora).count() == 1
    Slot.objects.update(draining=False)
    assert look() == 1
    assert slot().doubt == ""


def test_deaths_come_from_the_journal_and_only_of_slots_that_the_run_had(run: TrainingRun) -> None:
    other = cast.node("beta", now=NOW)
    died = [Died(slot().pk), Died(cast.slot_ids(other)[0]), Died(999_999)]
    cast.write_journal(run, cast.started(), cast.step(1), *died, Died(slot().pk), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=NOW + MINUTE)
    (row,) = SlotDeath.objects.all()
    assert (row.run, row.slot) == (run, slot())
    assert row.deaths == pytest.approx(2, abs=0.01)


def test_what_was_said_before_is_not_counted_again_and_old_deaths_fade(run: TrainingRun) -> None:
    die(run, 3)
    die(run, 3)
    assert SlotDeath.objects.get().deaths == pytest.approx(3, abs=0.01)
    die(run, 1, at=NOW + dt.timedelta(seconds=WINDOW_S / 4))
    assert SlotDeath.objects.get().deaths == pytest.approx(2.5, abs=0.01)
    slot_deaths.store_deaths(run, [(slot(1).pk, NOW - dt.timedelta(seconds=WINDOW_S + 1))], now=NOW)
    assert SlotDeath.objects.count() == 1, "too old"


@pytest.mark.parametrize(
    ("health", "accepted", "trusted_for_s", "says"),
    [
        (GpuHealth(0, 0), 0, None, ""),
        (GpuHealth(0, None), 0, None, ""),
        (GpuHealth(0, 1), 0, None, "The driver of GPU 0 counts 1 uncorrected ECC error of its memory."),
        (GpuHealth(0, 3), 3, None, ""),
        (GpuHealth(0, 4), 3, 60.0, "The driver of GPU 0 counts 4 uncorrected ECC errors of its memory."),
        (GpuHealth(0, None, 79, 5.0), 0, None, "The driver of GPU 0 reports Xid 79: the GPU has fallen off the bus."),
        (GpuHealth(0, None, 79, 5.0), 0, 60.0, "The driver of GPU 0 reports Xid 79: the GPU has fallen off the bus."),
        (GpuHealth(0, None, 79, 65.0), 0, 60.0, ""),
        (GpuHealth(0, None, 31, 5.0), 0, None, ""),  # a program's own doing
    ],
)
def test_what_a_driver_says_takes_out_what_it_is_about(health: GpuHealth, accepted: int, trusted_for_s: float | None, says: str) -> None:
    assert fault(health, accepted_errors=accepted, trusted_for_s=trusted_for_s) == says


def test_slots_of_a_gpu_whose_driver_reports_an_error_are_out_until_they_are_put_back(dora: User) -> None:
    node = cast.node("alpha", slots=4, gpus=2, now=NOW)

    def heard(*gpus: GpuHealth, at: dt.datetime) -> list[int]:
        fleet.record(Observation(revision=1, node=cast.facts("alpha", gpus=2), runs=(), gpus=gpus), now=at, slots=4)
        return [slot.index for slot in Slot.objects.filter(node=node).exclude(out_reason="").order_by("index")]

    two = GpuHealth(1, 2)
    assert heard(GpuHealth(0, 0), two, at=NOW) == [1, 3], "both share it"
    assert Notification.objects.filter(person=dora, kind=NotificationKind.SLOT).count() == 2
    for each in Slot.objects.filter(node=node):
        services.put_slot_back(each, by=dora, now=NOW + MINUTE)
    assert heard(two, at=NOW + 2 * MINUTE) == []
    assert heard(GpuHealth(1, 3), at=NOW + 3 * MINUTE) == [1, 3]
    for each in Slot.objects.filter(node=node):
        services.put_slot_back(each, by=dora, now=NOW + 4 * MINUTE)
    assert heard(GpuHealth(1, 1), at=NOW + 5 * MINUTE) == [1, 3], "its driver was loaded anew since, and counts from nothing"
    assert heard(GpuHealth(0, None, 79, 3.0), at=NOW + 6 * MINUTE) == [0, 1, 2, 3], "also the last"


def test_a_clock_that_was_put_back_does_not_make_deaths_unheard_of(run: TrainingRun) -> None:
    ahead = NOW + dt.timedelta(days=30)
    die(run, 1, at=ahead)
    slot_deaths.store_deaths(run, [(slot().pk, NOW)], now=NOW)
    assert SlotDeath.objects.get().last_at <= NOW
    slot_deaths.store_deaths(run, [(slot().pk, NOW + MINUTE)], now=NOW + MINUTE)
    assert SlotDeath.objects.get().deaths == pytest.approx(2, abs=0.01)


def test_only_the_runs_whose_workers_died_last_are_heard(both: tuple[TrainingRun, TrainingRun], monkeypatch: pytest.MonkeyPatch) -> None:
    for run in both:
        die(run, 6)
    monkeypatch.setattr(slot_health, "MOST_RUNS", 1)
    assert look() == 0, "the other one is not heard"
    monkeypatch.setattr(slot_health, "MOST_RUNS", 2)
    assert look() == 1
