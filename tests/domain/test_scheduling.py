"""The shell around the planner: what it grants, asks back and says, with a host that proves slots free in its own time."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import IntegrityError, transaction

from experiments import services
from experiments.cluster import desired, scheduling
from experiments.metrics import ingest
from experiments.models import Grant, Node, Project, RunState, TrainingRun, User
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages
from training_runtime import journal

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(now=NOW)


@pytest.fixture
def host(node: Node) -> cast.Host:
    return cast.Host(node)


@pytest.fixture
def alices(project: Project, alice: User, node: Node) -> TrainingRun:
    return cast.run(project, by=alice, name="alices", now=NOW)


@pytest.fixture
def bobs(project: Project, bob: User, node: Node) -> TrainingRun:
    return cast.run(project, by=bob, name="bobs", now=NOW + SECOND)


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def test_an_alone_run_gets_every_slot_it_can_use_and_starts(alices: TrainingRun, node: Node, said: SentMessages) -> None:
    summary = scheduling.tick(NOW)
    assert cast.slots_of(alices) == set(cast.slot_ids(node))
    assert fresh(alices).state == RunState.STARTING
    assert alices.head_node == node
    assert alices.plan_reason
    assert alices.queue_position is None
    assert summary.nodes == (node.name,)


def test_a_second_tick_changes_nothing(alices: TrainingRun, bobs: TrainingRun, host: cast.Host) -> None:
    for second in range(4):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    before = list(Grant.objects.values())
    summary = scheduling.tick(NOW + 9 * SECOND)
    assert (summary.granted, summary.asked_back) == ((), ())
    assert list(Grant.objects.values()) == before


def test_two_peoples_runs_settle_at_half_each_and_the_first_grows_back(
    alices: TrainingRun, bob: User, project: Project, host: cast.Host
) -> None:
    scheduling.tick(NOW)
    host.apply(NOW)
    bobs = cast.run(project, by=bob, name="bobs", now=NOW + SECOND)
    summary = scheduling.tick(NOW + SECOND)
    assert len(summary.asked_back) == 2
    assert summary.granted == ()  # nothing is free yet
    assert fresh(bobs).head_node is not None  # but its driver starts already
    assert bobs.state == RunState.QUEUED

    leaving = {slot for _, slot in summary.asked_back}
    host.apply(NOW + 2 * SECOND, keeps={alices.pk: leaving})
    assert scheduling.tick(NOW + 2 * SECOND).granted == ()  # their processes are still there
    host.apply(NOW + 3 * SECOND)
    scheduling.tick(NOW + 3 * SECOND)
    assert cast.slots_of(bobs) == leaving
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (2, 2)
    assert fresh(bobs).state == RunState.STARTING

    host.apply(NOW + 4 * SECOND)
    host.apply(NOW + 5 * SECOND, exits={bobs.pk: 0})
    scheduling.tick(NOW + 6 * SECOND)
    assert fresh(bobs).state == RunState.COMPLETED
    assert len(cast.slots_of(alices)) == 4
    assert not Grant.objects.filter(run=bobs, released_at__isnull=True).exists()


def test_every_change_of_slots_says_why(alices: TrainingRun, bobs: TrainingRun, host: cast.Host) -> None:
    for second in range(3):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    assert all(grant.reason for grant in Grant.objects.all())
    assert all(grant.release_reason for grant in Grant.objects.exclude(release_requested_at=None))
    assert all(run.plan_reason for run in TrainingRun.objects.all())


def test_what_the_host_said_before_it_knew_of_the_request_proves_nothing(alices: TrainingRun, bobs: TrainingRun, host: cast.Host) -> None:
    """Granted and asked back between two rounds: the host may be about to start a process on a slot it does not hold yet."""
    TrainingRun.objects.filter(pk=bobs.pk).update(paused=True)
    scheduling.tick(NOW)
    old = desired.desired_state(host.node, now=NOW).revision  # on its way to the host, with four slots for Alice
    TrainingRun.objects.filter(pk=bobs.pk).update(paused=False)
    asked = scheduling.tick(NOW + SECOND).asked_back
    assert len(asked) == 2
    nothing = {alices.pk: frozenset[int]()}
    assert scheduling.close_grants(host.node, holding=nothing, revision=old, now=NOW + SECOND) == 0
    later = desired.desired_state(host.node, now=NOW + 2 * SECOND).revision
    assert scheduling.close_grants(host.node, holding=nothing, revision=later, now=NOW + 2 * SECOND) == 2


def test_a_request_is_taken_back_when_its_reason_is_gone(alices: TrainingRun, bob: User, project: Project, host: cast.Host) -> None:
    scheduling.tick(NOW)
    host.apply(NOW)
    bobs = cast.run(project, by=bob, name="bobs", now=NOW)
    leaving = {slot for _, slot in scheduling.tick(NOW + SECOND).asked_back}
    services.pause_run(bobs, by=bob)
    scheduling.tick(NOW + 2 * SECOND)
    host.apply(NOW + 2 * SECOND)
    assert leaving < cast.slots_of(alices)
    assert Grant.objects.filter(run=alices).count() == 4  # the same grants: nobody else held the slots in between


def test_a_paused_run_loses_its_slots_is_suspended_and_comes_back(alices: TrainingRun, alice: User, host: cast.Host) -> None:
    scheduling.tick(NOW)
    host.apply(NOW)
    services.pause_run(alices, by=alice)
    scheduling.tick(NOW + SECOND)
    host.apply(NOW + SECOND)
    scheduling.tick(NOW + 2 * SECOND)
    assert cast.slots_of(alices) == set()
    assert fresh(alices).state == RunState.SUSPENDED
    services.resume_run(alices, by=alice)
    scheduling.tick(NOW + 3 * SECOND)
    assert len(cast.slots_of(alices)) == 4
    assert fresh(alices).state == RunState.STARTING


def test_a_stopping_run_gives_everything_back_and_ends_as_stopped(alices: TrainingRun, alice: User, host: cast.Host) -> None:
    scheduling.tick(NOW)
    host.apply(NOW)
    services.stop_run(alices, by=alice, reason="enough")
    assert fresh(alices).state == RunState.STOPPING
    scheduling.tick(NOW + SECOND)
    assert Grant.objects.filter(run=alices, release_requested_at__isnull=True).count() == 0
    wanted = desired.desired_state(host.node, now=NOW + SECOND)
    assert [(each.stop, each.slots) for each in wanted.runs] == [(True, ())]
    host.apply(NOW + 2 * SECOND, exits={alices.pk: -15})
    assert fresh(alices).state == RunState.STOPPED
    assert "enough" in alices.state_reason
    assert cast.slots_of(alices) == set()


def test_a_run_that_is_trained_gives_its_slots_to_others_while_its_script_goes_on(
    alices: TrainingRun, bobs: TrainingRun, host: cast.Host, said: SentMessages
) -> None:
    for second in range(4):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    cast.write_journal(alices, cast.started(), cast.step(10), journal.Trained(10, 2))
    ingest.catch_up(alices.pk, now=NOW + 4 * SECOND)
    for second in range(5, 8):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    assert fresh(alices).state == RunState.RUNNING
    assert cast.slots_of(alices) == set()
    assert cast.slots_of(bobs) == set(cast.slot_ids(host.node))
    assert "Its training is done." in alices.plan_reason
    assert alices.plan_reason in {grant.release_reason for grant in Grant.objects.filter(run=alices)}
    cast.write_journal(alices, cast.finished())
    host.apply(NOW + 9 * SECOND, exits={alices.pk: 0})
    assert fresh(alices).state == RunState.COMPLETED


def test_a_silent_node_gets_nothing_new_and_keeps_what_it_has(alices: TrainingRun, host: cast.Host, bob: User, project: Project) -> None:
    services.set_slots(alices, by=bob, min_slots=1, max_slots=2)
    scheduling.tick(NOW)
    host.apply(NOW)
    bobs = cast.run(project, by=bob, name="bobs", now=NOW)
    late = NOW + dt.timedelta(seconds=scheduling.NODE_SILENT_S + 1)
    summary = scheduling.tick(late)
    assert summary.granted == ()
    assert len(cast.slots_of(alices)) == 2
    assert not Grant.objects.exclude(release_requested_at=None).exists()
    host.apply(late)
    scheduling.tick(late)
    assert len(cast.slots_of(bobs)) == 2


def test_a_draining_slot_is_emptied_and_not_given_again(alices: TrainingRun, dora: User, host: cast.Host) -> None:
    scheduling.tick(NOW)
    slot = Grant.objects.first().slot
    services.set_slot_draining(slot, by=dora, draining=True)
    scheduling.tick(NOW)
    host.apply(NOW)
    scheduling.tick(NOW)
    assert slot.pk not in cast.slots_of(alices)
    assert len(cast.slots_of(alices)) == 3


def test_runs_that_wait_have_a_place_in_the_queue(project: Project, alice: User, node: Node, host: cast.Host) -> None:
    runs = [cast.run(project, by=alice, name=f"r{i}", now=NOW + i * SECOND) for i in range(6)]
    scheduling.tick(NOW)
    host.apply(NOW)
    scheduling.tick(NOW + SECOND)
    waiting = [fresh(run) for run in runs if not cast.slots_of(run)]
    assert [run.queue_position for run in waiting] == [1, 2]
    assert all(run.state == RunState.QUEUED and run.plan_reason for run in waiting)


def test_a_gpu_run_waits_where_there_are_only_cpu_slots(project: Project, alice: User, node: Node) -> None:
    version = cast.definition(project, by=alice, device="gpu")
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice)[0]
    scheduling.tick(NOW)
    assert cast.slots_of(run) == set()
    assert "gpu" in fresh(run).plan_reason.lower()


def test_pages_are_told_who_holds_what(
    alices: TrainingRun, node: Node, said: SentMessages, django_capture_on_commit_callbacks: object
) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        scheduling.tick(NOW)
    (message,) = said.about("cluster", "slots")
    assert message["held"] == {str(slot): alices.pk for slot in cast.slot_ids(node)}
    assert message["counts"] == {str(alices.pk): 4}
    assert said.about("stream-local") == [{"type": "apply"}], "and the machine, through whoever holds its stream"


def test_a_preview_shows_the_change_and_writes_nothing(alices: TrainingRun, bobs: TrainingRun, host: cast.Host) -> None:
    for second in range(3):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    before = list(Grant.objects.values()), list(TrainingRun.objects.values())
    seen = scheduling.preview(
        now=NOW, changes={alices.pk: scheduling.RunChange(priority=9000, agreed=True)}, cluster=scheduling.ClusterWish(policy="priority")
    )
    assert {d.run.pk: (d.before, d.after) for d in seen.differences} == {alices.pk: (2, 4), bobs.pk: (2, 0)}
    assert seen.sentences
    stopped = scheduling.preview(now=NOW, changes={bobs.pk: scheduling.RunChange(stop=True)})
    assert {d.run.pk: (d.before, d.after) for d in stopped.differences} == {alices.pk: (2, 4), bobs.pk: (2, 0)}
    assert (list(Grant.objects.values()), list(TrainingRun.objects.values())) == before


def test_priority_preempts_when_the_policy_says_so(alices: TrainingRun, bobs: TrainingRun, dora: User, bob: User, host: cast.Host) -> None:
    services.set_policy(by=dora, policy="priority", priority_ceiling=9000)
    services.set_priority(bobs, by=bob, priority=9000)
    for second in range(3):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (0, 4)


def test_a_priority_above_the_ceiling_counts_once_an_administrator_agrees(
    alices: TrainingRun, bobs: TrainingRun, dora: User, alice: User, bob: User, host: cast.Host
) -> None:
    services.set_policy(by=dora, policy="priority")
    asked = services.set_priority(bobs, by=bob, priority=9000)
    assert asked.transitions.last().reason == "bob changed the priority from 5000 to 9000. It counts as 5000 until an administrator agrees."
    wish = {bobs.pk: scheduling.RunChange(priority=8000)}
    assert not scheduling.preview(now=NOW, changes=wish).differences
    assert scheduling.preview(now=NOW, changes={bobs.pk: scheduling.RunChange(priority=8000, agreed=True)}).differences
    assert scheduling.preview(now=NOW, cluster=scheduling.ClusterWish(priority_ceiling=6000)).differences
    for second in range(3):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (2, 2), "equals"
    services.set_priority(bobs, by=dora, priority=9000)
    assert bobs.transitions.last().reason == "dora agreed to the priority of 9000."
    services.set_priority(bobs, by=bob, priority=100)
    services.set_priority(bobs, by=bob, priority=8000)
    for second in range(3, 6):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    assert (len(cast.slots_of(alices)), len(cast.slots_of(bobs))) == (0, 4), "below what was agreed to"


def test_a_run_keeps_to_the_node_of_its_driver(project: Project, alice: User, node: Node) -> None:
    cast.node("second", now=NOW)
    run = cast.run(project, by=alice, max_slots=8, now=NOW)
    scheduling.tick(NOW)
    nodes = set(Grant.objects.filter(run=run).values_list("slot__node__name", flat=True))
    assert len(nodes) == 1
    assert len(cast.slots_of(run)) == 4


def test_the_database_itself_refuses_a_second_open_grant(alices: TrainingRun, bobs: TrainingRun, node: Node) -> None:
    scheduling.tick(NOW)
    taken = Grant.objects.filter(released_at=None).first().slot
    with pytest.raises(IntegrityError), transaction.atomic():
        Grant.objects.create(run=bobs, slot=taken, granted_at=NOW, reason="twice")


def test_only_legal_transitions_happen_and_each_leaves_a_row(alices: TrainingRun, alice: User) -> None:
    assert not states.transition(alices, RunState.RUNNING, reason="too early", now=NOW)
    assert states.transition(alices, RunState.STARTING, reason="granted", now=NOW)
    assert states.transition(alices, RunState.RUNNING, reason="steps", now=NOW)
    assert fresh(alices).started_at == NOW
    assert states.transition(alices, RunState.COMPLETED, reason="done", now=NOW + SECOND)
    assert fresh(alices).ended_at == NOW + SECOND
    for state in RunState:
        assert not states.transition(alices, state, reason="ended is ended", now=NOW)
    assert [(row.old, row.new) for row in alices.transitions.all()] == [
        ("", "queued"),
        ("queued", "starting"),
        ("starting", "running"),
        ("running", "completed"),
    ]


def test_of_two_who_saw_the_same_state_one_wins(alices: TrainingRun) -> None:
    first, second = TrainingRun.objects.get(pk=alices.pk), TrainingRun.objects.get(pk=alices.pk)
    assert states.transition(first, RunState.STOPPED, reason="first", now=NOW)
    assert not states.transition(second, RunState.STARTING, reason="second", now=NOW)
    assert second.state == RunState.STOPPED
    assert alices.transitions.count() == 2
