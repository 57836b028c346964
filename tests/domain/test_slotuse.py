"""The use of a run's slots over time: what is kept of what a machine says, how much of it, and what is read from it."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from experiments import fleet, scheduling, slotuse
from experiments.models import Project, SlotUse, TrainingRun, User
from experiments.selectors.use import use
from tests import cast
from tests.conftest import Said
from training_runtime.protocol import Observation, RunObservation, SlotMemory

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def host(db: None) -> cast.Host:
    return cast.Host(cast.node(now=NOW))


@pytest.fixture
def run(project: Project, alice: User, host: cast.Host) -> TrainingRun:
    made = cast.run(project, by=alice, name="digits", now=NOW)
    scheduling.tick(NOW)
    return made


def seen(run: TrainingRun, busy_s: float | None, counted_s: float, *sizes: int, attempt: int = 1) -> RunObservation:
    memory = tuple(SlotMemory(slot, size) for slot, size in enumerate(sizes, start=1))
    return RunObservation(run.pk, attempt, "running", (1, 2), busy_s=busy_s, counted_s=counted_s, memory=memory)


def at(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def shares(run: TrainingRun, **given: int) -> list[float | None]:
    return [each.share if each.share is None else round(each.share, 3) for each in use(run, **given)]


def test_what_a_machine_says_becomes_points(run: TrainingRun, host: cast.Host, said: Said) -> None:
    for second, busy_s in ((0, 0.0), (6, 9.0), (12, 12.0)):
        observation = Observation(host.revision, cast.facts(host.node.name), (seen(run, busy_s, 2.0 * second, 100 + second, 50),))
        fleet.record(observation, now=at(second))
    assert shares(run) == [None, 0.75, 0.25]
    assert [(each.memory, each.largest) for each in use(run)] == [(150, 100), (156, 106), (162, 112)]
    last = SlotUse.objects.filter(run=run)[1].tick
    assert shares(run, after=last) == [0.25], "a page asks for what it has not got"


def test_there_is_at_most_one_point_in_five_seconds_and_its_page_is_told(run: TrainingRun, said: Said) -> None:
    kept = [second / 10 for second in range(400) if slotuse.keep(run, seen(run, second / 10, second / 5 + 1, 7), now=at(second / 10))]
    assert len(kept) == 8
    assert min(later - before for before, later in itertools.pairwise(kept)) >= SlotUse.EVERY_S


def test_two_that_write_at_once_leave_one_point(run: TrainingRun) -> None:
    row = {"run": run, "tick": int(NOW.timestamp()) // 5, "t": NOW.timestamp() - 60, "counted_s": 1.0}
    SlotUse.objects.create(**row)  # the other one's, which was not there yet when this one looked
    slotuse.keep(run, seen(run, 1.0, 2.0), now=NOW)
    assert SlotUse.objects.filter(run=run).count() == 1


def test_a_run_of_a_month_has_some_thousand_points_and_its_chart_a_few_hundred(run: TrainingRun) -> None:
    t, month_s, rows = 0.0, 30 * 86400.0, []
    while t < month_s:
        at_s = NOW.timestamp() + t
        rows.append(SlotUse(run=run, tick=int(at_s // 5), t=at_s, busy_s=t, counted_s=2 * t, memory_bytes=len(rows), largest_bytes=1))
        t += slotuse.interval_s(0.0, t)
    assert len(rows) < 5000
    SlotUse.objects.bulk_create(rows)
    late = at(month_s)
    assert not slotuse.keep(run, seen(run, t, 2 * t, 1), now=late), "the points of a long run are further apart"
    found = use(run)
    assert 500 < len(found) <= 600
    assert set(shares(run)[1:]) == {0.5}, "several points together still have their exact share"
    assert found[-1].memory == len(rows) - 1
    assert len(use(run, most=20)) <= 20


def test_nothing_is_kept_of_a_machine_that_cannot_tell_nor_while_nothing_is_held(run: TrainingRun) -> None:
    assert not slotuse.keep(run, seen(run, None, 0.0), now=at(0))
    assert slotuse.keep(run, seen(run, 1.0, 2.0, 7), now=at(10))
    assert slotuse.keep(run, seen(run, 3.0, 4.0), now=at(20)), "that it holds nothing any more"
    assert not slotuse.keep(run, seen(run, 3.0, 4.0), now=at(30))
    assert slotuse.keep(run, seen(run, 4.0, 6.0, 9), now=at(3600))
    assert shares(run) == [0.5, 1.0, None, 0.5], "the line breaks off where it held nothing"


def test_a_share_is_of_one_attempt_and_unknown_stays_unknown(run: TrainingRun) -> None:
    assert slotuse.keep(run, seen(run, 8.0, 10.0, 7), now=at(0))
    assert slotuse.keep(run, seen(run, 1.0, 4.0, 7, attempt=2), now=at(10))
    assert slotuse.keep(run, seen(run, None, 8.0, 7, attempt=2), now=at(20))
    assert shares(run) == [0.8, 0.25, None]
