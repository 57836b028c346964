"""Runs whose script starts over when it has lost its slots (torchrun's, single processes): what their machine is told, how many slots they
get, and what is known of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from experiments import selectors, services
from experiments.cluster import desired, scheduling
from experiments.errors import DomainError
from experiments.metrics import ingest
from experiments.models import ClusterRules, GenerationRecord, Node, Project, RunState, TrainingRun, User
from experiments.runs import states
from experiments.selectors import nodes
from tests import cast
from training_runtime.journal import Generation, Logged, Member, Resumed, Suspended
from training_runtime.protocol import RunSpec

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(now=NOW)


@pytest.fixture
def host(node: Node) -> cast.Host:
    return cast.Host(node)


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def settle(*hosts: cast.Host, since: dt.datetime = NOW, rounds: int = 5) -> dt.datetime:
    """The time after it."""
    for second in range(rounds):
        now = since + second * SECOND
        scheduling.tick(now)
        for host in hosts:
            host.apply(now)
    return since + rounds * SECOND


def spec_of(run: TrainingRun, node: Node) -> RunSpec:
    return next(each.spec for each in desired.desired_state(node, now=NOW).runs if each.spec.run == run.pk)


def refused(do: Callable[[], Any]) -> dict[str, list[str]]:
    with pytest.raises(DomainError) as error:
        do()
    return error.value.fields


@pytest.mark.parametrize(
    ("distributed", "command", "told"),
    [
        ("elastic", "main.py", (True, "", 3)),
        ("single", "main.py", (False, "", 3)),
        ("torchrun_elastic", "main.py --epochs 2", (True, "elastic", 3)),
        ("torchrun", "torchrun --nproc-per-node 2 --max-restarts 7 main.py --epochs 2", (True, "fixed", 7)),
    ],
)
def test_its_machine_is_told_how_to_run_it(
    distributed: str, command: str, told: tuple[bool, str, int], project: Project, alice: User, node: Node
) -> None:
    version = cast.definition(project, by=alice, command=command, distributed=distributed)
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice, now=NOW)[0]
    scheduling.tick(NOW)
    spec = spec_of(run, node)
    assert (spec.elastic, spec.torchrun, spec.max_restarts) == told
    assert spec.argv[0] == "main.py"
    assert "--nproc-per-node" not in spec.argv


FIXED = pytest.mark.parametrize("kind", ["torchrun", "single"])


@FIXED
def test_a_fixed_run_has_all_its_slots_or_none(kind: str, project: Project, alice: User, bob: User, host: cast.Host) -> None:
    elastic = cast.run(project, by=alice, name="elastic", max_slots=4, now=NOW)
    now = settle(host)
    assert len(cast.slots_of(elastic)) == 4
    fixed = cast.run(project, by=bob, name="fixed", max_slots=2, distributed=kind, now=now)
    assert (fixed.min_slots, fixed.max_slots) == (2, 2)
    now = settle(host, since=now)
    assert (len(cast.slots_of(fixed)), len(cast.slots_of(elastic))) == (2, 2)
    third = cast.run(project, by=alice, name="large", max_slots=3, distributed=kind, now=now)
    now = settle(host, since=now)
    assert len(cast.slots_of(fixed)) == 2
    assert len(cast.slots_of(third)) in (0, 3)


@FIXED
def test_a_fixed_run_is_displaced_as_a_whole(kind: str, project: Project, alice: User, bob: User, host: cast.Host) -> None:
    rules = ClusterRules.current()
    rules.policy, rules.priority_ceiling = "priority", 10_000
    rules.save()
    fixed = cast.run(project, by=alice, name="fixed", max_slots=3, distributed=kind, now=NOW)
    now = settle(host)
    assert len(cast.slots_of(fixed)) == 3
    assert states.tell_at_work(NOW + states.QUIET) == 0, "its script has not started"
    urgent = cast.run(project, by=bob, name="urgent", max_slots=2, now=now)
    services.set_priority(urgent, by=bob, priority=9000)
    now = settle(host, since=now)
    assert (len(cast.slots_of(urgent)), cast.slots_of(fixed)) == (2, set())
    assert fresh(fixed).state == RunState.SUSPENDED
    services.stop_run(urgent, by=bob, now=now)
    host.apply(now, exits={urgent.pk: 0})
    settle(host, since=now + SECOND)
    assert len(cast.slots_of(fixed)) == 3
    assert fresh(fixed).state == RunState.STARTING


@FIXED
def test_a_fixed_run_keeps_the_number_it_started_with(kind: str, project: Project, alice: User, host: cast.Host) -> None:
    run = cast.run(project, by=alice, max_slots=2, distributed=kind, now=NOW)
    assert set(refused(lambda: services.set_slots(run, by=alice, min_slots=1, max_slots=2))) == {"min_slots"}
    assert services.set_slots(run, by=alice, min_slots=3, max_slots=3).max_slots == 3
    settle(host)
    assert set(refused(lambda: services.set_slots(run, by=alice, min_slots=2, max_slots=2))) == {"max_slots"}
    assert len(cast.slots_of(run)) == 3


@FIXED
def test_it_is_on_one_machine_where_others_are_spread(kind: str, project: Project, alice: User) -> None:
    rules = ClusterRules.current()
    rules.several_machines = True
    rules.save()
    fixed = cast.run(project, by=alice, max_slots=6, distributed=kind, now=NOW)
    hosts = [cast.Host(cast.node(name, now=NOW, address="10.0.0.1")) for name in ("alpha", "beta")]
    settle(*hosts)
    assert cast.slots_of(fixed) == set()
    assert fresh(fixed).state == RunState.QUEUED
    assert fixed.plan_reason == "waits: needs 6 slots at once on one machine, and none has so many free; first in the queue"
    services.stop_run(fixed, by=alice, now=NOW)
    elastic = cast.run(project, by=alice, max_slots=6, distributed="torchrun_elastic", now=NOW)
    settle(*hosts, since=NOW + 9 * SECOND)
    machines = set(elastic.grants.filter(released_at=None).values_list("slot__node__name", flat=True))
    assert (len(cast.slots_of(elastic)), len(machines)) == (4, 1)
    assert "its script runs on the slots of one machine" in fresh(elastic).plan_reason


@pytest.mark.parametrize("distributed", ["torchrun", "torchrun_elastic", "single"])
def test_it_begins_again_on_another_machine_when_its_own_is_drained(distributed: str, project: Project, alice: User, dora: User) -> None:
    hosts = [cast.Host(cast.node(name, now=NOW)) for name in ("alpha", "beta")]
    run = cast.run(project, by=alice, max_slots=3, distributed=distributed, now=NOW)
    now = settle(*hosts)
    home = fresh(run).head_node
    assert home is not None
    services.set_node_draining(home, by=dora, draining=True)
    settle(*hosts, since=now, rounds=9)
    assert fresh(run).head_node not in (None, home)
    assert (len(cast.slots_of(run)), run.attempt) == (3, 2)


def test_it_runs_from_its_first_workers_on_and_its_restarts_are_kept(project: Project, alice: User, host: cast.Host) -> None:
    run = cast.run(project, by=alice, distributed="torchrun_elastic", now=NOW)
    settle(host)
    assert fresh(run).state == RunState.STARTING
    two = (Member(0, 1, 10), Member(1, 2, 11))
    why = "the worker 1 (slot 2) was killed by SIGKILL; restart 1 of 3"
    cast.write_journal(run, Generation(1, 0, 0, two, 0, "granted", 0.0, 0), Generation(2, 40, 0, two, 2, why, 2500.0, 0), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=NOW + 9 * SECOND)
    assert fresh(run).state == RunState.RUNNING
    assert (run.workers, run.engines) == (2, None)
    feed = [item.text for item in selectors.feed(run=run)]
    assert f"alice's run first try: 2 → 2 workers at step 40: {why}; 2.5 s until its workers were started again." in feed
    assert nodes.median_pause_ms() is None, "a restart is no change of members that go on"
    assert list(GenerationRecord.objects.filter(run=run).values_list("generation", "reason", "pause_ms")) == [
        (1, "granted", 0.0),
        (2, why, 2500.0),
    ]


def test_a_single_process_runs_from_its_first_line_since_it_had_its_slots(project: Project, alice: User, host: cast.Host) -> None:
    run = cast.run(project, by=alice, max_slots=2, distributed="single", now=NOW)
    settle(host)
    began = run.transitions.get(new=RunState.STARTING).at
    assert states.tell_at_work(NOW + 2 * states.QUIET) == 0, "its driver says when it begins"
    cast.write_journal(run, Generation(1, 0, 0, (Member(0, 1, 10),), 0, "granted", 0.0, 0), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=NOW + 9 * SECOND)
    assert fresh(run).state == RunState.RUNNING
    assert (run.started_at, run.state_reason, run.workers) == (began, "Its script runs.", 1)
    assert not [item for item in selectors.feed(run=run) if "workers" in item.text], "it has one process, whatever becomes of it"


def test_a_single_process_that_trains_keeps_its_slots_for_the_rest_of_its_script(project: Project, alice: User, host: cast.Host) -> None:
    run = cast.run(project, by=alice, max_slots=2, distributed="single", now=NOW)
    now = settle(host)
    TrainingRun.objects.filter(pk=run.pk).update(outcome="trained")
    settle(host, since=now)
    assert len(cast.slots_of(run)) == 2


def test_it_is_suspended_and_runs_again(project: Project, alice: User, host: cast.Host) -> None:
    run = cast.run(project, by=alice, distributed="torchrun_elastic", now=NOW)
    now = settle(host)
    one = (Member(0, 1, 10),)
    cast.write_journal(run, Generation(1, 0, 0, one, 0, "granted", 0.0, 0), Logged("train", 7, {"loss": 1.0}), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=now)
    services.pause_run(run, by=alice, now=now)
    now = settle(host, since=now)
    cast.write_journal(run, Suspended(7, 0, "Paused by alice."), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=now)
    assert fresh(run).state == RunState.SUSPENDED
    services.resume_run(run, by=alice, now=now)
    now = settle(host, since=now)
    cast.write_journal(run, Resumed(7, 0, "granted"), Generation(2, 7, 0, one, 1, "granted", 0.0, 0), t=NOW.timestamp())
    ingest.catch_up(run.pk, now=now)
    assert fresh(run).state == RunState.RUNNING


def test_an_experiments_command_must_fit_how_the_script_is_run(project: Project, alice: User) -> None:
    plain, torchrun = (cast.definition(project, by=alice, name=kind, distributed=kind) for kind in ("elastic", "torchrun"))

    def made(version: Any) -> Any:
        return services.create_experiment(
            project, by=alice, name="x", versions=[version], global_command="torchrun --nproc-per-node 4 main.py --epochs 9"
        )

    assert "choose" in refused(lambda: made(plain))["global_command"][0]
    assert made(torchrun).global_command.startswith("torchrun")
