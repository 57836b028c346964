"""The clock of the control worker: what is due is sent, by one of several workers, whatever the wall clock does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from experiments.models import Lease
from experiments.ops import beat, clock

pytestmark = pytest.mark.django_db
SCHEDULE: dict[str, dict[str, Any]] = {
    "often": {"task": "tasks.often", "schedule": 5.0},
    "seldom": {"task": "tasks.seldom", "schedule": 60.0, "options": {"queue": "x"}},
}


def one(sent: list[tuple[str, dict[str, Any]]]) -> beat.Beat:
    return beat.Beat(SCHEDULE, lambda name, **options: sent.append((name, options)))


def test_everything_is_sent_at_the_start_and_then_when_it_is_due() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    made = one(sent)
    assert made.send_due(1000.0) == ["often", "seldom"]
    assert made.send_due(1004.9) == []
    assert made.send_due(1005.0) == ["often"]
    assert made.send_due(1300.0) == ["often", "seldom"], "once, however many turns were missed"
    assert sent[1] == ("tasks.seldom", {"retry": False, "queue": "x"})


def test_a_step_of_the_wall_clock_stops_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    made, right = one([]), timezone.now()
    assert made.send_due(1000.0)
    monkeypatch.setattr(timezone, "now", lambda: right - dt.timedelta(hours=1))
    assert made.send_due(1005.0) == ["often"]
    monkeypatch.setattr(timezone, "now", lambda: right + dt.timedelta(hours=1))
    assert made.send_due(1010.0) == ["often"]


def test_of_two_workers_one_sends_and_the_other_takes_over_when_that_is_gone() -> None:
    first, second = one([]), one([])
    assert first.send_due(1000.0)
    assert second.send_due(1000.0) == []
    assert first.send_due(1005.0), "it renews its lease"
    Lease.objects.update(until=clock.now() - dt.timedelta(seconds=1))
    assert second.send_due(1020.0)
    assert first.send_due(1020.0) == []


def test_a_lease_is_renewed_before_it_ends_and_nobody_writes_meanwhile(django_assert_num_queries: Any) -> None:
    now = clock.now()
    assert beat.hold("beat", holder="one", now=now)
    for seconds, who, has_it in ((1.0, "one", True), (1.0, "two", False), (4.9, "two", False)):
        with django_assert_num_queries(1):  # a look
            assert beat.hold("beat", holder=who, now=now + dt.timedelta(seconds=seconds)) is has_it
    later = now + dt.timedelta(seconds=2.5)
    assert beat.hold("beat", holder="one", now=later)
    assert Lease.objects.get(name="beat").until == later + dt.timedelta(seconds=beat.LEASE_S)
    over = later + dt.timedelta(seconds=beat.LEASE_S)
    assert beat.hold("beat", holder="two", now=over)
    assert not beat.hold("beat", holder="one", now=over)


def test_one_that_was_away_for_longer_than_its_lease_sends_nothing_while_another_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, now = one([]), one([]), clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    assert first.send_due(1000.0)
    monkeypatch.setattr(clock, "now", lambda: now + dt.timedelta(seconds=6))
    assert second.send_due(1006.0) == ["often", "seldom"], "all of it: nobody knows what the first still sent"
    assert first.send_due(1006.0) == []


def test_every_task_of_the_schedule_exists() -> None:
    from experiments import tasks

    assert settings.CELERY_BEAT_SCHEDULE
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        module, name = entry["task"].rsplit(".", 1)
        assert module == tasks.__name__
        assert callable(getattr(tasks, name))
