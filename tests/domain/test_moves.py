"""What the database tells the planner of moves: when, at what price, to which kind of machine, and how long somebody waits."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments import services
from experiments.cluster import scheduling, snapshot
from experiments.metrics import ingest
from experiments.models import ClusterRules, Node, Project, RunState, TrainingRun, User
from tests import cast
from training_runtime.scheduling.ageing import AGEING_S
from training_runtime.scheduling.facts import RunFacts

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def hosts(home: object) -> tuple[cast.Host, cast.Host]:
    return cast.Host(cast.node("alpha", now=NOW)), cast.Host(cast.node("beta", now=NOW))


def turn(hosts: tuple[cast.Host, cast.Host], now: dt.datetime) -> None:
    """Both machines are heard of, before and after a plan."""
    for host in hosts:
        host.apply(now)
    scheduling.tick(now)
    for host in hosts:
        host.apply(now)


def facts(run: TrainingRun, now: dt.datetime) -> RunFacts:
    seen = snapshot.take_snapshot(ClusterRules.current(), now=now, lock=False)
    return next(each for each in seen.run_facts if each.id == run.pk)


def trains(run: TrainingRun, since: dt.datetime, *, attempt: int = 1) -> None:
    """Its script comes to train() at that moment."""
    cast.write_journal(run, cast.started(engines=4), cast.step(1), t=since.timestamp())
    ingest.catch_up(run.pk, now=since)


def test_a_run_knows_when_it_got_its_machine_and_what_its_script_took_to_begin(
    project: Project, alice: User, hosts: tuple[cast.Host, cast.Host]
) -> None:
    run = cast.run(project, by=alice, now=NOW)
    turn(hosts, NOW)
    trains(run, NOW + 42 * SECOND)
    found = facts(run, NOW + 43 * SECOND)
    assert found.moved_at == NOW.timestamp()
    assert found.prologue_s == pytest.approx(43, abs=1)
    trains(run, NOW + 500 * SECOND)
    assert facts(run, NOW + 501 * SECOND).prologue_s == found.prologue_s, "a driver that began again where it was has not moved"


def test_a_run_is_bound_to_the_kind_of_machine_it_trains_on(project: Project, alice: User, hosts: tuple[cast.Host, cast.Host]) -> None:
    run = cast.run(project, by=alice, now=NOW)
    turn(hosts, NOW)
    assert facts(run, NOW).kind == "", "its script has not come to train(): it may go anywhere"
    trains(run, NOW + SECOND)
    turn(hosts, NOW + 2 * SECOND)
    run.refresh_from_db()
    assert run.kind == "torch 2.13.0; Xeon (6/207, avx2)"
    own, other = (hosts[0].node, hosts[1].node) if run.head_node_id == hosts[0].node.pk else (hosts[1].node, hosts[0].node)
    Node.objects.filter(pk=other.pk).update(processor="Opteron")
    Node.objects.filter(pk=own.pk).update(draining=True)
    scheduling.tick(NOW + 3 * SECOND)
    run.refresh_from_db()
    assert "on another its results would differ; its owner can allow other kinds of machines" in run.plan_reason
    Node.objects.filter(pk=other.pk).update(processor=own.processor)
    scheduling.tick(NOW + 4 * SECOND)
    run.refresh_from_db()
    assert run.plan_reason.startswith("starts with 4 of 4 slots"), "on the other one, which is of its kind now"


def test_a_run_goes_on_on_another_kind_of_machine_once_its_owner_allows_it(
    project: Project, alice: User, hosts: tuple[cast.Host, cast.Host]
) -> None:
    run = cast.run(project, by=alice, now=NOW)
    turn(hosts, NOW)
    trains(run, NOW + SECOND)
    turn(hosts, NOW + 2 * SECOND)
    run.refresh_from_db()
    own, other = sorted((host.node for host in hosts), key=lambda node: node.pk != run.head_node_id)
    other.processor, own.draining = "Opteron", True
    other.save()
    own.save()
    turn(hosts, NOW + 3 * SECOND)
    run.refresh_from_db()
    assert (run.head_node_id, cast.slots_of(run)) == (own.pk, set())
    services.set_any_kind(run, by=alice, allowed=True, now=NOW + 4 * SECOND)
    for second in (5, 6, 7):
        turn(hosts, NOW + second * SECOND)
    run.refresh_from_db()
    assert (run.head_node_id, len(cast.slots_of(run))) == (other.pk, 4)
    trains(run, NOW + 8 * SECOND, attempt=2)
    turn(hosts, NOW + 9 * SECOND)
    run.refresh_from_db()
    assert run.kind.endswith("Opteron"), "where it has trained last"
    services.set_any_kind(run, by=alice, allowed=False, now=NOW + 10 * SECOND)
    assert facts(run, NOW + 11 * SECOND).kind == run.kind, "it is bound again, and to this one"
    said = run.transitions.filter(reason__contains="other kinds").order_by("pk").values_list("reason", flat=True)
    assert list(said) == ["alice allowed other kinds of machines.", "alice no longer allows other kinds of machines."]


def test_slots_that_a_script_could_never_use_are_not_kept_for_it(project: Project, alice: User, hosts: tuple[cast.Host, cast.Host]) -> None:
    """It does not call train(), and its machine is taken out of service."""
    script = cast.run(project, by=alice, name="script", now=NOW)
    turn(hosts, NOW)
    script.refresh_from_db()
    Node.objects.filter(pk=script.head_node_id).update(draining=True)
    other = cast.run(project, by=alice, name="other", now=NOW + SECOND)
    turn(hosts, NOW + 2 * SECOND)
    turn(hosts, NOW + 3 * SECOND)
    assert len(cast.slots_of(other)) == 4
    script.refresh_from_db()
    assert "where its script is at work: it has not come to train(), so it cannot go on elsewhere" in script.plan_reason
    assert cast.slots_of(script) == set()


def test_a_run_that_has_waited_long_has_its_turn(project: Project, alice: User, bob: User) -> None:
    """Alice holds a slot, so her large run is not the next by fair share while Bob's small ones keep coming."""
    host = cast.Host(cast.node("alpha", now=NOW))
    first = cast.run(project, by=alice, max_slots=1, now=NOW)
    small = [cast.run(project, by=bob, name=f"small {number}", max_slots=1, now=NOW + number * SECOND) for number in range(3)]
    host.apply(NOW)
    scheduling.tick(NOW)
    large = cast.run(project, by=alice, name="large", now=NOW + 10 * SECOND)
    services.set_slots(large, by=alice, min_slots=3, max_slots=3)
    begun = NOW + 11 * SECOND
    for second in (11, 12, AGEING_S + 10):
        host.apply(NOW + second * SECOND)
        scheduling.tick(NOW + second * SECOND)
    large.refresh_from_db()
    assert (large.state, large.waits_since, large.favoured_at) == (RunState.QUEUED, begun, None)
    late = begun + AGEING_S * SECOND
    for _ in range(2):
        host.apply(late)
        scheduling.tick(late)
    host.apply(late)
    scheduling.tick(late)
    large.refresh_from_db()
    assert (len(cast.slots_of(large)), large.waits_since, large.favoured_at) == (3, None, late)
    assert sum(len(cast.slots_of(run)) for run in (first, *small)) == 1
    late += 5 * SECOND
    host.apply(late)
    scheduling.tick(late)
    assert len(cast.slots_of(large)) == 3, "it keeps them for a while"
