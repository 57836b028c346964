"""A clock that is put forward or back: nothing is removed for its age before somebody could have noticed; no run lasts less than 0 s."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from experiments import services, tasks
from experiments.files import runfiles
from experiments.models import BrowserSession, Project, TrainingRun, User
from experiments.ops import clock, installation
from experiments.ops.clock import Steadiness
from tests import cast

NOON = dt.datetime(2028, 2, 29, 12, tzinfo=dt.UTC)
HOUR, DAY, YEAR = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(days=366)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dt.timedelta]]:
    """By how much it is wrong, its last entry."""
    wrong = [dt.timedelta(0)]
    monkeypatch.setattr(clock, "now", lambda: timezone.now() + wrong[-1])
    monkeypatch.setattr(clock, "_seen", [])
    yield wrong


def delete_a_run(project: Project, alice: User) -> None:
    """Its files go to the trash."""
    run = cast.run(project, by=alice)
    runfiles.folder(run).mkdir(parents=True)
    (runfiles.folder(run) / "model.pt").write_bytes(b"weights")
    services.delete_run(services.stop_run(run, by=alice), by=alice)
    tasks.prune()


def steady(*seen: tuple[dt.timedelta, dt.timedelta]) -> list[bool]:
    """Of a process that sees the clock so far from NOON when so much time has gone by."""
    watch = Steadiness(NOON.timestamp())
    return [watch.holds(NOON + at, gone.total_seconds()) for at, gone in seen]


@pytest.mark.parametrize("step", [YEAR, -YEAR, 2 * HOUR, -2 * HOUR])
def test_after_a_step_it_is_waited_for_a_day_or_until_the_clock_is_put_back(step: dt.timedelta) -> None:
    assert steady((step, HOUR - HOUR), (step + HOUR, HOUR), (2 * HOUR, 2 * HOUR)) == [False, False, True]
    assert steady((HOUR, HOUR), (step + 2 * HOUR, 2 * HOUR), (step + 25 * HOUR, 25 * HOUR), (step + 27 * HOUR, 27 * HOUR)) == [
        True,
        False,
        False,
        True,
    ]


def test_a_clock_that_is_set_a_little_each_day_and_a_machine_that_slept_are_no_step() -> None:
    assert all(steady(*((n * (DAY + HOUR / 2), n * DAY) for n in range(60))))
    assert steady((YEAR, YEAR)) == [True]


def test_a_clock_that_is_a_year_ahead_for_a_turn_removes_nothing_for_good(
    project: Project, alice: User, home: Path, client: Client, wall: list[dt.timedelta]
) -> None:
    installation.bind()
    client.force_login(alice)
    delete_a_run(project, alice)
    wall.append(YEAR)
    for task in (tasks.prune, tasks.clear):
        task()
    wall.append(dt.timedelta(0))
    tasks.prune()
    assert [(each / "model.pt").read_bytes() for each in (home / "runs" / ".trash").iterdir()] == [b"weights"]
    assert BrowserSession.objects.exists()


def test_what_came_into_the_trash_while_the_clock_was_ahead_is_removed_when_an_administrator_makes_room(
    project: Project, alice: User, home: Path, wall: list[dt.timedelta]
) -> None:
    installation.bind()
    wall.append(YEAR)
    delete_a_run(project, alice)
    assert list((home / "runs" / ".trash").iterdir())
    call_command("prune", "--empty-trash")
    assert list((home / "runs" / ".trash").iterdir()) == []


def test_a_run_over_which_the_clock_was_put_back_has_lasted_no_time_and_not_less() -> None:
    run = TrainingRun(started_at=NOON, ended_at=NOON - HOUR)
    assert run.duration(NOON) == dt.timedelta(0)
    assert TrainingRun(started_at=NOON).duration(NOON - HOUR) == dt.timedelta(0)
    assert TrainingRun(started_at=NOON, ended_at=NOON + HOUR).duration(NOON) == HOUR
