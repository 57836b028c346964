"""One run over several machines that have joined: who shares with whom, and how its remote agents hear where its driver is."""

from __future__ import annotations

import dataclasses

import pytest

from experiments import services
from experiments.cluster import fleet, joining, leases, machine_pools, meetings
from experiments.models import ClusterRules, DriverMeeting, Node, Project, TrainingRun, User
from tests import cast
from tests.domain.test_machines import NOW, SECOND, fresh, settle, trains
from tests.domain.test_several_machines import allow, counts, host, wish
from training_runtime.meeting import Meeting
from training_runtime.node.messages import GUEST
from training_runtime.protocol import Observation, RunObservation

pytestmark = pytest.mark.django_db
MET = Meeting("10.0.0.1", 40123, "secret of the run")


def joined(name: str) -> cast.Host:
    made = dataclasses.replace(host(name), is_met=False)
    Node.objects.filter(pk=made.node.pk).update(joined=True)
    made.node.refresh_from_db()
    return made


def says(home: cast.Host, run: TrainingRun, meeting: Meeting | None) -> None:
    """The run's home has seen where its driver is met."""
    held = tuple(sorted(cast.slots_of(run)))
    seen = RunObservation(run.pk, 1, "running", held, meeting=meeting)
    fleet.record(Observation(0, cast.facts(home.node.name, address="10.0.0.1"), (seen,)), now=NOW + 5 * SECOND)


@pytest.fixture
def hosts(db: None) -> tuple[cast.Host, cast.Host]:
    allow()
    return joined("alpha"), joined("beta")


@pytest.fixture
def wide(project: Project, alice: User, hosts: tuple[cast.Host, cast.Host]) -> TrainingRun:
    """A run that could use six slots, and has come to train() on alpha."""
    run = trains(cast.run(project, by=alice, name="wide", max_slots=6, now=NOW))
    TrainingRun.objects.filter(pk=run.pk).update(engines=12)
    settle(*hosts, since=NOW)
    assert fresh(run).head_node == hosts[0].node
    return fresh(run)


def test_it_has_one_machine_until_it_is_known_where_its_driver_is_met(wide: TrainingRun, hosts: tuple[cast.Host, cast.Host]) -> None:
    assert counts(wide) == {"alpha": 4}
    says(hosts[0], wide, MET)
    settle(*hosts, since=NOW + 6 * SECOND)
    assert counts(wide) == {"alpha": 4, "beta": 2}
    guest, home = wish(hosts[1], wide, NOW + 30 * SECOND), wish(hosts[0], wide, NOW + 30 * SECOND)
    assert guest is not None
    assert home is not None
    assert (guest.spec.remote, guest.spec.meeting) == (True, MET)
    assert (home.spec.remote, home.spec.meeting) == (False, None)
    told = joining.state_for("beta", None, NOW + 31 * SECOND).wanted
    assert told.several
    assert [folder.term for folder in told.folders] == [GUEST]


def test_where_it_is_met_lies_sealed_and_counts_only_as_long_as_its_driver_is_there(
    wide: TrainingRun, hosts: tuple[cast.Host, cast.Host]
) -> None:
    says(hosts[0], wide, MET)
    assert MET.token not in DriverMeeting.objects.get().sealed
    assert meetings.meeting_of(wide) == MET
    later = dataclasses.replace(MET, port=40124)
    says(hosts[0], wide, later)
    says(hosts[0], wide, None)
    assert meetings.meeting_of(wide) == later, "a driver that begins again will say it"
    says(hosts[1], wide, MET)
    assert meetings.meeting_of(wide) == later, "another machine says nothing of it"
    TrainingRun.objects.filter(pk=wide.pk).update(head_node=hosts[1].node)
    assert meetings.meeting_of(fresh(wide)) is None
    assert meetings.met() == frozenset()


def test_without_the_rule_nobody_is_met(wide: TrainingRun, hosts: tuple[cast.Host, cast.Host], dora: User) -> None:
    says(hosts[0], wide, MET)
    services.set_policy(by=dora, policy=ClusterRules.current().policy, several_machines=False)
    assert meetings.meeting_of(wide) is None
    assert not joining.state_for("alpha", None, NOW + 9 * SECOND).wanted.several


def test_the_studios_own_machine_shares_runs_with_the_others_and_each_is_told_how_to_get_an_address(
    hosts: tuple[cast.Host, cast.Host],
) -> None:
    host("local")
    nodes = list(Node.objects.all())
    assert {node.name for node in nodes if node.pk in machine_pools.pools(nodes)} == {"alpha", "beta", "local"}
    assert machine_pools.obstacles(nodes) == []
    Node.objects.exclude(name="alpha").update(address="")
    assert machine_pools.obstacles(Node.objects.all())[1:] == [
        "beta has no address under which others reach it: join it with --address.",
        "local has no address under which others reach it: set EDT_NODE_ADDRESS for the studio.",
    ]


def test_a_guest_whose_lease_is_over_costs_the_run_its_slots_there_and_nothing_else(
    wide: TrainingRun, hosts: tuple[cast.Host, cast.Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    says(hosts[0], wide, MET)
    settle(*hosts, since=NOW + 6 * SECOND)
    assert counts(wide) == {"alpha": 4, "beta": 2}
    before, later = fresh(wide), NOW + 600 * SECOND
    Node.objects.filter(name="alpha").update(last_seen_at=later)
    monkeypatch.setattr(leases, "_watching", [leases.Watch(0.0, later, 1e6)])
    assert leases.end_overdue(later, monotonic=1e6) == ["beta"]
    assert counts(wide) == {"alpha": 4}
    after = fresh(wide)
    assert (after.head_node, after.attempt, after.state) == (before.head_node, before.attempt, before.state)
