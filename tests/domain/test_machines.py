"""Two machines: a run trains on one of them, and goes on on the other while it holds nothing."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments import services
from experiments.cluster import desired, scheduling
from experiments.models import Grant, Notification, NotificationKind, Project, RunState, TrainingRun, User
from experiments.runs import states
from tests import cast

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
SILENT = dt.timedelta(seconds=scheduling.NODE_SILENT_S + 1)


@pytest.fixture
def first(db: None) -> cast.Host:
    return cast.Host(cast.node("first", now=NOW))


@pytest.fixture
def second(first: cast.Host) -> cast.Host:
    return cast.Host(cast.node("second", now=NOW))


@pytest.fixture
def alices(project: Project, alice: User) -> TrainingRun:
    return trains(cast.run(project, by=alice, name="alices", now=NOW))


@pytest.fixture
def bobs(project: Project, bob: User) -> TrainingRun:
    return trains(cast.run(project, by=bob, name="bobs", now=NOW + SECOND))


def trains(run: TrainingRun) -> TrainingRun:
    """Its script has come to train(), as its journal says."""
    run.engines = 4
    run.save(update_fields=["engines"])
    return run


def node_of(run: TrainingRun) -> set[str]:
    return set(Grant.objects.filter(run=run, released_at=None).values_list("slot__node__name", flat=True))


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def settle(*hosts: cast.Host, since: dt.datetime, rounds: int = 5) -> dt.datetime:
    for number in range(rounds):
        scheduling.tick(since + number * SECOND)
        for host in hosts:
            host.apply(since + number * SECOND)
    return since + rounds * SECOND


def migrating(first: cast.Host, second: cast.Host, *, by: User) -> dt.datetime:
    """The first machine is taken out of service, and its run asked to go on on the second."""
    now = settle(first, second, since=NOW)
    services.set_node_draining(first.node, by=by, draining=True)
    scheduling.tick(now)
    first.apply(now)
    scheduling.tick(now)
    return now


def test_two_peoples_runs_have_a_machine_each_and_no_slot_lies_idle(
    alices: TrainingRun, bobs: TrainingRun, first: cast.Host, second: cast.Host
) -> None:
    settle(first, second, since=NOW)
    assert (node_of(alices), node_of(bobs)) == ({"first"}, {"second"})
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (4, 4)


def test_a_run_that_could_use_more_than_one_machine_has_one_and_says_so(
    project: Project, alice: User, first: cast.Host, second: cast.Host
) -> None:
    run = cast.run(project, by=alice, max_slots=8, now=NOW)
    settle(first, second, since=NOW)
    assert len(cast.slots_of(run)) == 4
    assert fresh(run).plan_reason == "holds 4 of 4 slots on first: all there are on first, and a run trains on one machine"
    assert scheduling.preview(now=NOW).before.grants[run.pk] == cast.slots_of(run)


def test_a_machine_that_is_taken_out_of_service_hands_its_run_over(
    alices: TrainingRun, first: cast.Host, second: cast.Host, dora: User
) -> None:
    now = settle(first, second, since=NOW)
    services.set_node_draining(first.node, by=dora, draining=True)
    scheduling.tick(now)
    first.apply(now, keeps={alices.pk: cast.slots_of(alices)})  # its workers are still finishing their step
    scheduling.tick(now)
    assert node_of(alices) == {"first"}
    assert fresh(alices).leave_revision is None, "whoever holds slots does not migrate"
    first.apply(now + SECOND)
    scheduling.tick(now + SECOND)
    assert cast.slots_of(alices) == set(), "nothing elsewhere before its process is gone"
    assert alices.pk not in {wish.spec.run for wish in desired.desired_state(second.node, now=now).runs}
    first.apply(now + 2 * SECOND)
    assert fresh(alices).head_node is None
    scheduling.tick(now + 2 * SECOND)
    assert node_of(alices) == {"second"}
    (wish,) = desired.desired_state(second.node, now=now + 3 * SECOND).runs
    assert wish.spec.attempt == 2
    assert desired.desired_state(first.node, now=now + 3 * SECOND).runs == ()
    assert fresh(alices).state == RunState.STARTING


def test_a_move_is_not_told_as_a_suspension_and_a_run_that_finds_no_place_is(
    alices: TrainingRun, first: cast.Host, second: cast.Host, dora: User
) -> None:
    suspensions = Notification.objects.filter(person=alices.submitted_by, kind=NotificationKind.SUSPENDED)
    now = migrating(first, second, by=dora)
    assert fresh(alices).state == RunState.SUSPENDED
    first.apply(now + SECOND, knows={alices.pk: -9})
    now = settle(first, second, since=now + 2 * SECOND)
    assert fresh(alices).state == RunState.STARTING
    assert states.tell_suspended(now + states.LASTS) == 0
    services.set_node_draining(second.node, by=dora, draining=True)
    now = settle(first, second, since=now)
    assert states.tell_suspended(now + states.LASTS) == 1
    assert [told.text.partition(": ")[0] for told in suspensions] == [f"alices (run {alices.pk}) is suspended"]


def test_a_host_that_ends_a_run_that_migrates_does_not_fail_it(
    alices: TrainingRun, first: cast.Host, second: cast.Host, dora: User
) -> None:
    now = migrating(first, second, by=dora)
    assert fresh(alices).leave_revision is not None
    first.apply(now + SECOND, knows={alices.pk: -9})
    assert fresh(alices).state == RunState.SUSPENDED
    assert alices.head_node == first.node, "the host still knows it"
    settle(first, second, since=now + 2 * SECOND)
    assert node_of(alices) == {"second"}


def test_a_script_that_never_came_to_train_is_not_ended_for_a_move(
    alices: TrainingRun, first: cast.Host, second: cast.Host, dora: User
) -> None:
    """It may be at work without slots, and would begin anew."""
    TrainingRun.objects.filter(pk=alices.pk).update(engines=None)
    now = migrating(first, second, by=dora)
    assert fresh(alices).leave_revision is None
    assert alices.head_node == first.node
    assert alices.pk in {wish.spec.run for wish in desired.desired_state(first.node, now=now).runs}


def test_a_run_that_is_stopped_on_its_way_is_stopped(
    alices: TrainingRun, alice: User, first: cast.Host, second: cast.Host, dora: User
) -> None:
    now = migrating(first, second, by=dora)
    services.stop_run(fresh(alices), by=alice, now=now)
    first.apply(now + SECOND, exits={alices.pk: -9})
    assert fresh(alices).state == RunState.STOPPED
    settle(first, second, since=now + 2 * SECOND)
    assert node_of(alices) == set()


def test_a_run_without_slots_does_not_wait_for_a_machine_that_is_gone(
    alices: TrainingRun, bobs: TrainingRun, alice: User, first: cast.Host, second: cast.Host
) -> None:
    now = settle(first, second, since=NOW)
    services.pause_run(alices, by=alice)
    now = settle(first, second, since=now)
    assert fresh(alices).head_node == first.node
    services.resume_run(fresh(alices), by=alice)
    later = now + SILENT
    second.apply(later)
    settle(second, since=later)
    assert node_of(alices) == {"second"}
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (2, 2)
    assert fresh(alices).attempt == 2


def test_a_run_with_slots_on_a_machine_that_is_gone_keeps_them_and_nobody_is_promised_any(
    alices: TrainingRun, bobs: TrainingRun, project: Project, alice: User, first: cast.Host, second: cast.Host
) -> None:
    now = settle(first, second, since=NOW)
    another = cast.run(project, by=alice, name="another", now=now)
    later = now + SILENT
    second.apply(later)
    settle(second, since=later)
    assert len(cast.slots_of(alices)) == 4
    assert fresh(alices).plan_reason.endswith("first is offline, so nothing changes there until it is back")
    assert node_of(another) <= {"second"}
    settle(first, second, since=later + 9 * SECOND)
    assert len(cast.slots_of(alices)) + len(cast.slots_of(another)) + len(cast.slots_of(bobs)) == 8
