"""Suspended runs do not keep their processes in memory for ever, and lose nothing by it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.conf import settings

from experiments import services
from experiments.cluster import desired, evictions, fleet, scheduling
from experiments.cluster.evictions import Waiting
from experiments.metrics import ingest
from experiments.models import Project, RunState, TrainingRun, User
from tests import cast

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def test_the_longest_suspended_go_first_where_there_are_too_many() -> None:
    waiting = [Waiting(run, 1, NOW + run * SECOND) for run in range(5)] + [Waiting(9, 2, NOW)]
    found = evictions.chosen(waiting, now=NOW + 10 * SECOND, after_s=600, most=3)
    assert set(found) == {0, 1}
    assert found[0] == "More than 3 suspended runs were kept in memory on its machine"
    later = evictions.chosen(waiting, now=NOW + 603 * SECOND, after_s=600, most=9)
    assert set(later) == {0, 1, 2, 3, 9}
    assert later[9] == "It was suspended for 10 minutes"


@pytest.fixture
def host(db: None) -> cast.Host:
    return cast.Host(cast.node(now=NOW))


@pytest.fixture
def suspended(project: Project, alice: User, host: cast.Host) -> TrainingRun:
    """It has trained, and was paused."""
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    cast.write_journal(run, cast.started(), cast.step(1))
    ingest.catch_up(run.pk, now=NOW)
    services.pause_run(run, by=alice, now=NOW)
    for _ in range(2):
        scheduling.tick(NOW)
        host.apply(NOW)
    scheduling.tick(NOW)
    run.refresh_from_db()
    assert (run.state, cast.slots_of(run)) == (RunState.SUSPENDED, set())
    return run


def test_its_process_is_ended_after_a_while_and_it_goes_on_as_the_next_attempt(
    suspended: TrainingRun, host: cast.Host, alice: User
) -> None:
    late = NOW + dt.timedelta(seconds=settings.EDT_SUSPENDED_PROCESS_S)
    fleet.register(cast.facts(), now=late)
    assert evictions.evict(late - SECOND) == []
    assert [wanted.spec.run for wanted in desired.desired_state(host.node, now=late).runs] == [suspended.pk]
    assert evictions.evict(late) == [suspended.pk]
    assert evictions.evict(late) == [], "once"
    assert suspended.transitions.last().reason.startswith("It was suspended for 10 minutes: its process was ended")
    assert desired.desired_state(host.node, now=late).runs == (), "so the host ends it"
    host.apply(late)
    suspended.refresh_from_db()
    assert (suspended.state, suspended.head_node, suspended.attempt) == (RunState.SUSPENDED, None, 2)
    services.resume_run(suspended, by=alice, now=late)
    scheduling.tick(late)
    (wanted,) = desired.desired_state(host.node, now=late).runs
    assert (wanted.spec.attempt, len(wanted.slots)) == (2, 4)


@pytest.mark.django_db
def test_a_script_that_never_came_to_train_is_left_alone(suspended: TrainingRun, host: cast.Host) -> None:
    TrainingRun.objects.update(engines=None)
    assert evictions.evict(NOW + dt.timedelta(days=1)) == []


def test_a_run_that_still_holds_a_slot_is_left_alone(project: Project, alice: User, host: cast.Host, suspended: TrainingRun) -> None:
    suspended.grants.update(released_at=None)
    assert evictions.evict(NOW + dt.timedelta(days=1)) == []
