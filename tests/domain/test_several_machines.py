"""One run over several machines: slots elsewhere than at home, and what happens to them when machines come, go and fail."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest

from experiments import services
from experiments.cluster import accounting, desired, fleet, machine_pools, scheduling, utilization
from experiments.cluster.scheduling import ClusterWish
from experiments.models import ClusterRules, Grant, Node, Project, RemoteAgent, RunState, RunTransition, Slot, TrainingRun, User
from experiments.selectors import latest_utilization
from tests import cast
from tests.domain.test_machines import NOW, SECOND, SILENT, fresh, settle, trains
from training_runtime.protocol import Observation, RunObservation, SlotSeen, WantedRun

pytestmark = pytest.mark.django_db
Hosts = tuple[cast.Host, cast.Host]


def host(name: str, *, slots: int = 4, address: str = "10.0.0.1") -> cast.Host:
    return cast.Host(cast.node(name, slots=slots, now=NOW, address=address))


def allow(yes: bool = True) -> None:
    rules = ClusterRules.current()
    rules.several_machines = yes
    rules.save()


@pytest.fixture
def hosts(db: None) -> Hosts:
    """alpha and beta, with four slots each, under the rule."""
    allow()
    return host("alpha"), host("beta")


@pytest.fixture
def big(project: Project, alice: User, hosts: Hosts) -> TrainingRun:
    """A run of hers that could use six slots, with four at home on alpha and two on beta."""
    run = trains(cast.run(project, by=alice, name="big", max_slots=6, now=NOW))
    TrainingRun.objects.filter(pk=run.pk).update(engines=12)  # useful on 1, 2, 3, 4 and 6
    settle(*hosts, since=NOW)
    assert (fresh(run).head_node, counts(run)) == (hosts[0].node, {"alpha": 4, "beta": 2})
    return run


def counts(run: TrainingRun) -> dict[str, int]:
    """Its slots on each machine."""
    found: dict[str, int] = {}
    for name in Grant.objects.filter(run=run, released_at=None).values_list("slot__node__name", flat=True):
        found[name] = found.get(name, 0) + 1
    return found


def wish(on: cast.Host, run: TrainingRun, now: dt.datetime = NOW + 9 * SECOND) -> WantedRun | None:
    return next((each for each in desired.desired_state(on.node, now=now).runs if each.spec.run == run.pk), None)


def test_without_the_rule_a_run_has_one_machine_whatever_addresses_there_are(project: Project, alice: User) -> None:
    both = host("alpha"), host("beta")
    run = trains(cast.run(project, by=alice, max_slots=8, now=NOW))
    settle(*both, since=NOW)
    assert counts(run) == {"alpha": 4}


def test_each_machine_is_told_its_own_slots_of_the_run(big: TrainingRun, hosts: Hosts) -> None:
    home, guest = (wish(each, big) for each in hosts)
    assert home is not None
    assert guest is not None
    assert (home.spec.remote, len(home.slots), {slot.node for slot in home.slots}) == (False, 4, {"alpha"})
    assert (guest.spec.remote, len(guest.slots), {slot.node for slot in guest.slots}) == (True, 2, {"beta"})
    assert guest.spec.meeting is not None, "where it finds the driver"
    assert dataclasses.replace(guest.spec, remote=False, meeting=None) == home.spec
    assert fresh(big).plan_reason == "holds 6 of 8 slots, 4 on alpha and 2 on beta: its maximum"


def test_a_script_that_has_not_come_to_train_has_one_machine(project: Project, alice: User, hosts: Hosts) -> None:
    run = cast.run(project, by=alice, max_slots=8, now=NOW)
    now = settle(*hosts, since=NOW)
    assert counts(run) == {"alpha": 4}
    assert "once its script has come to train()" in fresh(run).plan_reason
    trains(run)
    TrainingRun.objects.filter(pk=run.pk).update(engines=8)
    settle(*hosts, since=now)
    assert counts(run) == {"alpha": 4, "beta": 4}


def test_a_run_that_needs_more_at_once_than_a_machine_has_gets_its_head_node_first(project: Project, alice: User, hosts: Hosts) -> None:
    run = cast.run(project, by=alice, max_slots=6, now=NOW)
    services.set_slots(run, by=alice, min_slots=6, max_slots=6)
    now = settle(*hosts, since=NOW)
    assert counts(run) == {"alpha": 4}
    TrainingRun.objects.filter(pk=run.pk).update(engines=6)
    settle(*hosts, since=now)
    assert counts(run) == {"alpha": 4, "beta": 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"address": ""}, "beta has no address"),
        ({"torch_version": "2.12.0"}, "beta has torch 2.12.0, and alpha 2.13.0."),
        ({"processor": "Xeon (6/85, avx2)"}, "beta has the processor Xeon (6/85, avx2), and alpha Xeon (6/207, avx2)."),
    ],
)
def test_a_machine_that_does_not_fit_shares_no_run_and_the_page_says_why(
    project: Project, alice: User, hosts: Hosts, change: dict[str, str], reason: str
) -> None:
    Node.objects.filter(name="beta").update(**change)
    run = trains(cast.run(project, by=alice, max_slots=8, now=NOW))
    scheduling.tick(NOW)
    assert counts(run) == {"alpha": 4}
    assert reason in " ".join(machine_pools.obstacles(Node.objects.all()))


def test_a_guest_that_is_drained_gives_its_slots_back_and_the_run_goes_on(big: TrainingRun, hosts: Hosts, dora: User) -> None:
    alpha, beta = hosts
    now = NOW + 9 * SECOND
    services.set_node_draining(beta.node, by=dora, draining=True)
    scheduling.tick(now)
    leaving = wish(beta, big)
    assert leaving is not None
    assert (leaving.spec.remote, leaving.slots) == (True, ()), "its remote agent is kept until it is proven gone"
    beta.apply(now, keeps={big.pk: cast.slots_of(big)})
    scheduling.tick(now)
    assert counts(big) == {"alpha": 4, "beta": 2}
    settle(alpha, beta, since=now + SECOND)
    assert counts(big) == {"alpha": 4}
    assert wish(beta, big) is None
    assert not RunTransition.objects.filter(run=big, new=RunState.SUSPENDED).exists()


def test_a_head_node_that_is_drained_migrates_the_run_and_it_begins_elsewhere(big: TrainingRun, hosts: Hosts, dora: User) -> None:
    alpha, beta = hosts
    now = NOW + 9 * SECOND
    services.set_node_draining(alpha.node, by=dora, draining=True)
    scheduling.tick(now)
    guest = wish(beta, big)
    assert guest is not None
    assert guest.slots == (), "it is suspended as a whole: its driver is on alpha"
    now = settle(alpha, beta, since=now + SECOND)
    assert (fresh(big).head_node, counts(big)) == (beta.node, {"beta": 4})
    there = wish(beta, big)
    assert there is not None
    assert (there.spec.remote, there.spec.attempt) == (False, 2)
    assert wish(alpha, big) is None


def test_a_run_that_holds_nothing_at_the_head_node_keeps_its_driver_there(big: TrainingRun, hosts: Hosts, dora: User) -> None:
    now = NOW + 9 * SECOND
    for slot in Slot.objects.filter(node=hosts[0].node):
        services.set_slot_draining(slot, by=dora, draining=True)
    settle(*hosts, since=now)
    assert (fresh(big).head_node, counts(big)) == (hosts[0].node, {"beta": 4})
    home = wish(hosts[0], big)
    assert home is not None
    assert (home.spec.remote, home.slots) == (False, ())


def test_a_guest_that_falls_silent_keeps_its_slots_and_the_run_goes_on_at_the_head_node(big: TrainingRun, hosts: Hosts, bob: User) -> None:
    alpha, beta = hosts
    later = NOW + 9 * SECOND + SILENT
    alpha.apply(later)
    settle(alpha, since=later)
    assert counts(big) == {"alpha": 4, "beta": 2}
    assert fresh(big).plan_reason.endswith("; 2 more on beta, which is offline")
    bobs = trains(cast.run(big.experiment.project, by=bob, name="bobs", now=later))
    now = settle(alpha, since=later + 6 * SECOND)
    assert counts(big) == {"alpha": 2, "beta": 2}, "what is heard of is shared as ever"
    assert counts(bobs) == {"alpha": 2}
    settle(alpha, beta, since=now)
    assert Grant.objects.filter(released_at=None).count() == 8


def test_a_head_node_that_falls_silent_changes_nothing_anywhere(big: TrainingRun, hosts: Hosts, bob: User) -> None:
    alpha, beta = hosts
    later = NOW + 9 * SECOND + SILENT
    beta.apply(later)
    bobs = trains(cast.run(big.experiment.project, by=bob, name="bobs", max_slots=8, now=later))
    settle(beta, since=later)
    assert counts(big) == {"alpha": 4, "beta": 2}
    assert counts(bobs) == {"beta": 2}
    assert fresh(big).head_node == alpha.node


@pytest.mark.parametrize("code", [0, 1, 75, -9])
def test_the_end_of_a_remote_agent_is_no_end_of_the_run(big: TrainingRun, hosts: Hosts, code: int) -> None:
    hosts[1].apply(NOW + 9 * SECOND, exits={big.pk: code})
    run = fresh(big)
    assert (run.state, run.exit_code, run.attempt) == (RunState.STARTING, None, 1)


def test_a_machine_where_the_run_cannot_work_is_left_and_its_history_says_so(big: TrainingRun, hosts: Hosts) -> None:
    alpha, beta = hosts
    beta.agents[big.pk] = RunObservation(
        big.pk, 1, "exited", (), exit_code=1, detail="the remote agent ended with code 1", remote=True, abandoned=True
    )
    now = settle(alpha, beta, since=NOW + 9 * SECOND)
    assert counts(big) == {"alpha": 4}
    assert fresh(big).plan_reason.endswith("it cannot work on beta")
    (said,) = RunTransition.objects.filter(run=big, reason__contains="cannot work")
    assert said.reason == "It cannot work on beta: the remote agent ended with code 1. It goes on without that machine."
    TrainingRun.objects.filter(pk=big.pk).update(attempt=2)
    beta.agents.clear()
    settle(alpha, beta, since=now)
    assert counts(big) == {"alpha": 4, "beta": 2}, "with the next attempt it is tried again"


def test_slots_elsewhere_are_free_when_they_are_proven_so_and_not_when_the_run_has_ended(big: TrainingRun, hosts: Hosts, bob: User) -> None:
    alpha, beta = hosts
    now = NOW + 9 * SECOND
    alpha.apply(now, exits={big.pk: 0})
    assert fresh(big).state == RunState.COMPLETED
    assert counts(big) == {"beta": 2}
    bobs = trains(cast.run(big.experiment.project, by=bob, name="bobs", max_slots=8, now=now))
    scheduling.tick(now)
    busy = Observation(beta.revision, cast.facts("beta", address="10.0.0.1"), (holding(big, beta),))
    fleet.record(busy, now=now)
    assert counts(big) == {"beta": 2}
    assert wish(beta, big) is None
    settle(alpha, beta, since=now + SECOND)
    assert counts(big) == {}
    TrainingRun.objects.filter(pk=bobs.pk).update(engines=8)
    settle(alpha, beta, since=now + 9 * SECOND)
    assert counts(bobs) == {"alpha": 4, "beta": 4}


def holding(run: TrainingRun, on: cast.Host, **more: object) -> RunObservation:
    slots = tuple(sorted(Grant.objects.filter(run=run, released_at=None, slot__node=on.node).values_list("slot", flat=True)))
    return RunObservation(run.pk, 1, "running", slots, **{"remote": True, **more})  # type: ignore[arg-type]


def test_a_run_that_is_stopped_gives_back_what_it_has_everywhere(big: TrainingRun, hosts: Hosts, alice: User) -> None:
    alpha, beta = hosts
    now = NOW + 9 * SECOND
    services.stop_run(fresh(big), by=alice, now=now)
    scheduling.tick(now)
    guest = wish(beta, big)
    assert guest is not None
    assert (guest.stop, guest.slots) == (False, ()), "its driver is told to stop, and tells its remote agents"
    beta.apply(now)
    alpha.apply(now, exits={big.pk: 0})
    settle(alpha, beta, since=now + SECOND)
    assert (fresh(big).state, counts(big)) == (RunState.STOPPED, {})


def test_when_the_rule_is_taken_back_runs_come_together_at_the_head_node(big: TrainingRun, hosts: Hosts) -> None:
    allow(False)
    settle(*hosts, since=NOW + 9 * SECOND)
    assert (fresh(big).head_node, counts(big)) == (hosts[0].node, {"alpha": 4})


def test_a_run_at_work_stays_on_its_machine_when_the_rule_is_made_and_the_preview_says_so(project: Project, alice: User) -> None:
    """Its driver listens to no other machine: it began without the rule."""
    both = host("alpha"), host("beta")
    run = trains(cast.run(project, by=alice, name="big", max_slots=8, now=NOW))
    TrainingRun.objects.filter(pk=run.pk).update(engines=8)
    now = settle(*both, since=NOW)
    assert scheduling.preview(now=now, cluster=ClusterWish(several_machines=True)).sentences == ()
    assert scheduling.preview(now=now, cluster=ClusterWish(several_machines=False)).sentences == ()
    assert counts(run) == {"alpha": 4}


def seen_slots(run: TrainingRun, on: cast.Host, *, busy_s: float, counted_s: float, remote: bool) -> Observation:
    """Each of its slots there is half at work, and takes 100 bytes."""
    held = holding(run, on).holding
    slots = tuple(SlotSeen(slot, 1.0, busy_s / len(held), counted_s / len(held), 100) for slot in held)
    told = holding(run, on, remote=remote, busy_s=busy_s, counted_s=counted_s, slots=slots)
    return Observation(on.revision, cast.facts(on.node.name, address=on.node.address), (told,))


def counts_from_nothing(run: TrainingRun) -> None:
    """The hosts of this cast cannot tell how far slots are at work; from here on they can."""
    TrainingRun.objects.filter(pk=run.pk).update(busy_s=None, busy_counted_s=0.0)
    RemoteAgent.objects.all().delete()


def test_the_work_of_all_machines_counts_once(big: TrainingRun, hosts: Hosts) -> None:
    alpha, beta = hosts
    counts_from_nothing(big)
    began = NOW + 10 * SECOND
    for number in range(1, 4):
        now = began + 10 * number * SECOND
        fleet.record(seen_slots(big, beta, busy_s=10.0 * number, counted_s=20.0 * number, remote=True), now=now - SECOND)
        fleet.record(seen_slots(big, alpha, busy_s=20.0 * number, counted_s=40.0 * number, remote=False), now=now)
    assert fresh(big).busy_s == pytest.approx(90.0)
    assert accounting.busy_seconds(fresh(big), held_s=1000.0) == pytest.approx(90.0)
    remote = RemoteAgent.objects.get(run=big)
    assert (remote.node, remote.all_busy_s, remote.all_counted_s, remote.memory_bytes) == (beta.node, 30.0, 60.0, 200)
    last = big.utilization_samples.last()
    assert last is not None
    assert (last.busy_s, last.counted_s, last.memory_bytes, len(last.slots)) == (90.0, 180.0, 600, 6)
    seen = latest_utilization.of_run(big, now=now)
    assert (len(seen.slots), seen.share, seen.memory, seen.unknown) == (6, pytest.approx(0.5), 600, 0)


def test_a_remote_agent_that_begins_anew_counts_on(big: TrainingRun, hosts: Hosts) -> None:
    beta = hosts[1]
    counts_from_nothing(big)
    now = NOW + 10 * SECOND
    fleet.record(seen_slots(big, beta, busy_s=10.0, counted_s=20.0, remote=True), now=now)
    fleet.record(Observation(beta.revision, cast.facts("beta", address="10.0.0.1"), ()), now=now)  # it was stopped and forgotten
    fleet.record(seen_slots(big, beta, busy_s=4.0, counted_s=8.0, remote=True), now=now + 10 * SECOND)
    assert (fresh(big).busy_s, RemoteAgent.objects.get(run=big).all_counted_s) == (14.0, 28.0)


def test_what_a_silent_guests_slots_do_is_not_shown_as_now(big: TrainingRun, hosts: Hosts) -> None:
    alpha, beta = hosts
    now = NOW + 10 * SECOND
    fleet.record(seen_slots(big, beta, busy_s=10.0, counted_s=20.0, remote=True), now=now)
    later = now + 20 * SECOND
    fleet.record(seen_slots(big, alpha, busy_s=20.0, counted_s=40.0, remote=False), now=later)
    seen = latest_utilization.of_run(big, now=later)
    assert {each.grant.slot.node.name: each.use.why for each in seen.slots} == {"alpha": "", "beta": latest_utilization.NO_NEWS}
    assert utilization.entries(big.latest_utilization)[0].t == later.timestamp()
