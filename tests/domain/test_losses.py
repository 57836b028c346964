"""A machine that is gone for good, one that comes back after that, and two machines with one name."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from experiments import services
from experiments.cluster import desired, fleet, scheduling, snapshot
from experiments.errors import DomainError
from experiments.metrics import ingest
from experiments.models import ClusterChange, ClusterRules, Node, Project, RunState, TrainingRun, User
from tests import cast
from training_runtime.protocol import Observation, RunObservation

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
LATER = NOW + 3600 * SECOND


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    """At work on the machine "gone", which is not heard of any more an hour later; "here" is."""
    host = cast.Host(cast.node("gone", now=NOW))
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    cast.write_journal(made, cast.started(), cast.step(1))
    ingest.catch_up(made.pk, now=NOW)
    cast.node("here", now=LATER)
    made.refresh_from_db()
    assert made.state == RunState.RUNNING
    return made


def gone() -> Node:
    return Node.objects.get(name="gone")


def lose(by: User, *, typed: str = "gone", now: dt.datetime = LATER) -> tuple[int, int]:
    return services.declare_node_lost(gone(), by=by, confirm_name=typed, reason="the board burnt", now=now)


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def test_without_a_verb_silence_changes_nothing(run: TrainingRun) -> None:
    scheduling.tick(LATER)
    assert len(cast.slots_of(run)) == 4
    assert fresh(run).head_node == gone()


def test_its_runs_go_on_elsewhere_and_its_slots_are_free(run: TrainingRun, dora: User) -> None:
    assert lose(dora) == (1, 0)
    assert (fresh(run).state, run.head_node, run.attempt) == (RunState.SUSPENDED, None, 2)
    assert run.state_reason == "gone was declared lost by dora. It goes on elsewhere from its last checkpoint."
    scheduling.tick(LATER)
    here = Node.objects.get(name="here")
    assert (fresh(run).state, run.head_node) == (RunState.STARTING, here)
    assert cast.slots_of(run) == set(cast.slot_ids(here))
    (wanted,) = desired.desired_state(here, now=LATER).runs
    assert wanted.spec.attempt == 2
    change = ClusterChange.objects.latest("pk")
    assert (change.text, change.reason) == ("dora declared node gone lost", "the board burnt")


def test_a_run_that_was_being_stopped_is_stopped(run: TrainingRun, alice: User, dora: User) -> None:
    services.stop_run(run, by=alice, reason="enough", now=NOW)
    assert fresh(run).state == RunState.STOPPING
    assert lose(dora) == (0, 1)
    assert (fresh(run).state, run.state_reason) == (RunState.STOPPED, "Stopped by alice: enough")
    assert cast.slots_of(run) == set()
    services.delete_run(run, by=alice)


def test_a_run_whose_journal_says_that_it_ended_has_ended(run: TrainingRun, dora: User) -> None:
    cast.write_journal(run, cast.finished())
    assert lose(dora) == (0, 1)
    assert fresh(run).state == RunState.COMPLETED


def test_guests_keep_their_head_node_and_lose_the_slots_there(project: Project, alice: User, dora: User) -> None:
    rules = ClusterRules.current()
    rules.several_machines = True
    rules.save()
    nodes = {name: cast.node(name, now=NOW, address=name) for name in ("gone", "here")}
    run = cast.run(project, by=alice, max_slots=8, now=NOW)
    TrainingRun.objects.filter(pk=run.pk).update(engines=8, head_node=nodes["here"])
    cast.is_met(TrainingRun.objects.get(pk=run.pk), on=nodes["here"])
    scheduling.tick(NOW)
    assert len(cast.slots_of(run)) == 8
    fleet.register(cast.facts("here", address="here"), now=LATER)
    assert lose(dora) == (0, 0)
    scheduling.tick(LATER)
    assert (fresh(run).head_node, cast.slots_of(run)) == (nodes["here"], set(cast.slot_ids(nodes["here"])))


def test_one_that_is_heard_of_is_not_lost_and_a_name_must_be_typed(run: TrainingRun, dora: User) -> None:
    with pytest.raises(DomainError, match="type the node's name"):
        lose(dora, typed="here")
    with pytest.raises(DomainError, match="gone is heard of"):
        lose(dora, now=NOW + SECOND)
    assert fresh(run).attempt == 1
    assert len(cast.slots_of(run)) == 4


def test_one_that_comes_back_is_told_first_and_what_it_says_of_the_past_is_ignored(run: TrainingRun, dora: User) -> None:
    before = Observation(
        revision=gone().revision,
        node=cast.facts("gone"),
        runs=(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1),),
    )
    lose(dora)
    fleet.record(before, now=LATER)
    assert fresh(run).is_live()
    assert not snapshot.is_silent(gone(), LATER), "it may be used again"
    apply = desired.desired_state(gone(), now=LATER)
    assert apply.fence > before.revision
    assert apply.runs == ()
    TrainingRun.objects.filter(pk=run.pk).update(head_node=gone())  # it is to go on there again
    fleet.record(replace(before, revision=apply.revision), now=LATER)
    assert fresh(run).is_live(), "another attempt goes on for the one that ended"


def test_a_machine_without_runs_can_be_removed_and_is_back_when_it_is_heard_of(run: TrainingRun, dora: User) -> None:
    with pytest.raises(DomainError, match="declare it lost first"):
        services.remove_node(gone(), by=dora, now=LATER)
    with pytest.raises(DomainError, match="is heard of"):
        services.remove_node(Node.objects.get(name="here"), by=dora, now=LATER)
    lose(dora)
    services.remove_node(gone(), by=dora, now=LATER)
    assert gone().removed_at == LATER
    assert not gone().slots.filter(retired=False).exists()
    fleet.register(cast.facts("gone"), now=LATER + SECOND)
    assert gone().removed_at is None
    assert gone().slots.filter(retired=False).count() == 4


def facts(identity: str) -> Observation:
    return Observation(revision=1, node=replace(cast.facts("gone"), identity=identity), runs=())


def test_a_second_machine_of_the_same_name_is_refused_and_frees_nothing(run: TrainingRun) -> None:
    fleet.record(facts("first"), now=NOW)
    assert gone().identity == "first"
    assert desired.desired_state(gone(), now=NOW).identity == "first"
    TrainingRun.objects.filter(pk=run.pk).update(paused=True)
    scheduling.tick(NOW + SECOND)
    proof = replace(facts("second"), revision=gone().revision + 1)
    for now in (NOW + 2 * SECOND, LATER):
        with pytest.raises(fleet.AnotherHost, match=r"Another machine is node gone already\. Give this one a name of its own"):
            fleet.record(proof, now=now)
        assert gone().refused_at == now
    assert len(cast.slots_of(run)) == 4, "nothing that it says frees a slot of the first"
    assert gone().last_seen_at == NOW
    fleet.record(replace(facts("first"), revision=gone().revision + 1), now=NOW + 3 * SECOND)
    assert cast.slots_of(run) == set()


def test_a_machine_that_replaces_one_without_runs_takes_its_name_when_that_is_silent(dora: User) -> None:
    cast.node("gone", now=NOW)
    fleet.record(facts("first"), now=NOW)
    with pytest.raises(fleet.AnotherHost):
        fleet.record(facts("second"), now=NOW + SECOND)
    fleet.record(facts("second"), now=LATER)
    assert gone().identity == "second"


def test_one_that_replaces_a_lost_machine_takes_its_name(run: TrainingRun, dora: User) -> None:
    fleet.record(facts("first"), now=NOW)
    lose(dora)
    fleet.record(replace(facts("second"), revision=0), now=LATER)
    assert gone().identity == "second"
    with pytest.raises(fleet.AnotherHost):
        fleet.record(facts("first"), now=LATER)
