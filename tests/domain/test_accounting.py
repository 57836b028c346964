"""Slot-seconds: how much of what was held was work, where a machine can tell, and that unknown is not nothing."""

from __future__ import annotations

import csv
import datetime as dt
import io

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.cluster import accounting, fleet
from experiments.models import Grant, Project, TrainingRun, User
from tests import cast
from tests.domain.conftest import NOW
from training_runtime.protocol import Observation, RunObservation

pytestmark = pytest.mark.django_db
SECOND = dt.timedelta(seconds=1)


def counted(host: cast.Host, run: TrainingRun, busy_s: float | None, *, attempt: int = 1) -> float | None:
    """What the run's work comes to after its machine has said so."""
    seen = RunObservation(run.pk, attempt, "running", tuple(sorted(cast.slots_of(run))), busy_s=busy_s)
    fleet.record(Observation(host.revision, cast.facts(host.node.name), (seen,)), now=NOW)
    run.refresh_from_db()
    return run.busy_s


def test_what_the_machine_counts_is_added_up_over_attempts_and_never_twice(run: TrainingRun, host: cast.Host) -> None:
    assert run.busy_s is None
    assert counted(host, run, 10.0) == 10.0
    assert counted(host, run, 10.0) == 10.0
    assert counted(host, run, 25.0) == 25.0
    assert counted(host, run, 5.0) == 25.0, "a host that was replaced counts from nothing"
    assert counted(host, run, 26.0) == 26.0
    assert counted(host, run, 4.0, attempt=2) == 30.0


def test_a_machine_that_cannot_tell_makes_it_unknown(run: TrainingRun, host: cast.Host) -> None:
    counted(host, run, 10.0)
    assert counted(host, run, None) is None
    assert counted(host, run, 20.0) is None, "a part would pass for the whole"
    assert accounting.busy_seconds(run, held_s=40.0) is None


def test_work_is_never_more_than_was_held(run: TrainingRun, host: cast.Host) -> None:
    counted(host, run, 1000.0)
    assert accounting.busy_seconds(run, held_s=40.0) == 40.0
    (usage,) = accounting.by_run(begin=NOW, end=NOW + 10 * SECOND)
    assert (usage.slot_s, usage.busy_slot_s, usage.known) == (40.0, 40.0, True)


def test_a_window_has_its_part_of_the_work(run: TrainingRun, host: cast.Host) -> None:
    """Four slots held for 20 s, two of them given back before the window; 30 of 80 slot-seconds were work."""
    Grant.objects.filter(run=run).update(released_at=NOW + 20 * SECOND)
    Grant.objects.filter(run=run, slot__index__lt=2).update(released_at=NOW + 5 * SECOND)
    counted(host, run, 25.0)
    (usage,) = accounting.by_person(begin=NOW + 10 * SECOND, end=NOW + 30 * SECOND)
    assert usage.slot_s == 20.0
    assert usage.busy_slot_s == pytest.approx(25.0 * 20 / 50)


def test_the_page_and_the_csv_say_what_is_known_and_what_is_not(run: TrainingRun, host: cast.Host, bob: User, project: Project) -> None:
    other = cast.run(project, by=bob, name="faces", max_slots=1, now=NOW)
    lately = dt.datetime.now(dt.UTC)
    Grant.objects.filter(run=run).update(granted_at=lately - 200 * SECOND, released_at=lately - 100 * SECOND)
    grant = Grant.objects.filter(run=run).first()
    assert grant is not None
    Grant.objects.filter(pk=grant.pk).update(run=other)
    counted(host, run, 60.0)
    client = Client()
    client.force_login(bob)
    page = client.get(reverse("usage"), {"by": "run"}).content.decode()
    assert "unknown" in page
    assert "20.0 %" in page
    rows = {
        row["name"]: row
        for row in csv.DictReader(io.StringIO(client.get(reverse("usage"), {"by": "run", "format": "csv"}).content.decode()))
    }
    assert rows["faces"]["busy_slot_seconds"] == "unknown"
    assert float(rows["digits"]["busy_slot_seconds"]) == pytest.approx(60.0)
    assert float(rows["digits"]["busy_known_of_slot_seconds"]) == pytest.approx(300.0)
    (together,) = accounting.by_project(begin=lately - 300 * SECOND, end=lately)
    assert (together.known_slot_s, together.slot_s) == (pytest.approx(300.0), pytest.approx(400.0))


@pytest.mark.parametrize("what", ["run", "experiment", "project"])
def test_usage_does_not_go_away_with_what_is_deleted(run: TrainingRun, host: cast.Host, alice: User, project: Project, what: str) -> None:
    services.stop_run(run, by=alice, now=NOW + 5 * SECOND)
    ended = RunObservation(run.pk, 1, "exited", (), exit_code=0, busy_s=10.0)
    fleet.record(Observation(host.revision, cast.facts(host.node.name), (ended,)), now=NOW + 10 * SECOND)
    window = {"begin": NOW + 5 * SECOND, "end": NOW + 60 * SECOND}
    before = accounting.by_person(**window), accounting.by_project(**window)
    (held,) = before[0]
    assert (held.slot_s, held.busy_slot_s) == (20.0, pytest.approx(5.0))
    run.refresh_from_db()
    number = str(run.pk)
    delete = {
        "run": lambda: services.delete_run(run, by=alice),
        "experiment": lambda: services.delete_experiment(run.experiment, by=alice),
        "project": lambda: services.delete_project(project, by=alice),
    }
    delete[what]()
    assert not TrainingRun.objects.exists()
    assert (accounting.by_person(**window), accounting.by_project(**window)) == before
    assert [(row.key, row.name) for row in accounting.by_run(**window)] == [(number, "digits (deleted)")]
    assert accounting.by_run(begin=NOW + 10 * SECOND, end=NOW + 60 * SECOND) == []


def test_the_speed_of_an_ended_run_is_that_of_its_whole_length() -> None:
    run = TrainingRun(step=100, step_rate=18.9, started_at=NOW)
    assert run.average_rate() is None, "it has not ended"
    run.ended_at = NOW + dt.timedelta(seconds=40)
    assert run.average_rate() == 2.5
