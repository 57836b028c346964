"""Machines that are held of an engine that lends them: what is asked of it, what is made of its answers, and what a restart finds again."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from experiments import services
from experiments.cluster import fleet, joining, pilot_facts, pilots, scheduling, snapshot
from experiments.cluster.providers import EngineProblem, Lease, Offer, Order, Standing
from experiments.cluster.slurm import Slurm, seconds
from experiments.errors import DomainError
from experiments.models import (
    ClusterChange,
    Environment,
    EnvironmentBuild,
    Node,
    NodeToken,
    Pilot,
    PilotPool,
    Project,
    RunState,
    TrainingRun,
    User,
)
from experiments.ops import installation
from tests import cast
from tests.domain.conftest import NOW
from training_runtime.node.messages import Hello, Welcome
from training_runtime.protocol import Observation
from training_runtime.scheduling.capacity import pause_s

pytestmark = pytest.mark.django_db
SECOND, MINUTE = dt.timedelta(seconds=1), dt.timedelta(minutes=1)


class Engine(Slurm):
    """Lends what is asked for when the test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, Lease] = {}
        self.orders: list[Order] = []
        self.released: list[tuple[str, bool, bool]] = []
        self.refusal = ""
        self.silent = False

    def offers(self) -> Sequence[Offer]:
        return ()

    def hold(self, order: Order) -> str:
        if self.refusal:
            raise EngineProblem(self.refusal)
        self.orders.append(order)
        number = str(len(self.orders))
        self.jobs[number] = Lease(number, order.name, "waiting", None, "PENDING (Resources)")
        return number

    def leases(self) -> Mapping[str, Lease]:
        if self.silent:
            raise EngineProblem("Unable to contact slurm controller")
        return dict(self.jobs)

    def ending(self, lease: str) -> str:
        return f"JobState FAILED, ExitCode 127:0 of {lease}"

    def release(self, lease: str, *, begun: bool, hurry: bool) -> None:
        self.released.append((lease, begun, hurry))

    def becomes(self, number: str, standing: Standing, left_s: float | None = None) -> None:
        self.jobs[number] = dataclasses.replace(self.jobs[number], standing=standing, left_s=left_s, words=standing.upper())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine()
    monkeypatch.setitem(pilot_facts.PROVIDERS, "slurm", engine)
    installation.bind()
    yield engine


@pytest.fixture
def pool(engine: Engine, dora: User) -> PilotPool:
    cast.node(now=NOW)
    fleet.drain_node(Node.objects.get(name="local"), draining=True)
    return services.create_pool(
        by=dora, name="gpu", studio="https://studio.example.org", options="--partition=gpu", slots=2, most=3, now=NOW
    )


@pytest.fixture
def waiting(project: Project, alice: User, pool: PilotPool) -> TrainingRun:
    return cast.run(project, by=alice, name="digits", now=NOW)


def joins(name: str, *, now: dt.datetime) -> None:
    """What `edt-node join` does there."""
    token = NodeToken.objects.get(node_name=name)
    welcome = joining.begin(token.pk, Hello(f"id-{token.digest[:8]}", "boot"), address="10.0.0.9", now=now)
    assert isinstance(welcome, Welcome)
    joining.take_in(token.pk, welcome.incarnation, Observation(revision=1, node=cast.facts(name), runs=()), token.slots, now)


def only() -> Pilot:
    return Pilot.objects.exclude(phase="ended").get()


def test_a_pilot_is_asked_for_when_a_run_waits_and_once(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    for seconds_later in range(0, 30, 5):
        pilots.look(NOW + seconds_later * SECOND)
    (order,) = engine.orders
    assert (order.node, order.slots, order.options, order.studio) == ("gpu-1", 2, ["--partition=gpu"], "https://studio.example.org")
    assert joining.find(order.token, now=NOW + 20 * 1440 * MINUTE) == NodeToken.objects.get(node_name="gpu-1"), "it may wait for weeks"
    assert (only().phase, only().words) == ("waiting", "PENDING (Resources)")
    pool.refresh_from_db()
    assert pool.words == [
        "Slurm was asked for 1 pilot (1 waiting in its queue); at least 0, at most 3.",
        "Those on their way will do: with 1 pilot more digits would begin or grow.",
    ]


def test_what_is_on_its_way_to_another_pool_is_not_asked_for_twice(
    engine: Engine, pool: PilotPool, waiting: TrainingRun, dora: User
) -> None:
    services.create_pool(by=dora, name="more", studio="https://studio.example.org", slots=2, most=3, now=NOW)
    for seconds_later in (0, 5, 10):
        pilots.look(NOW + seconds_later * SECOND)
    assert [order.node for order in engine.orders] == ["gpu-1"]


def test_one_on_which_an_environment_is_built_is_not_idle(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.becomes("1", "running", left_s=36000)
    joins("gpu-1", now=NOW + 5 * SECOND)
    waiting.delete()
    node, made = Node.objects.get(name="gpu-1"), Environment.objects.create(requirements_key="k", created_at=NOW)
    build = EnvironmentBuild.objects.create(environment=made, node=node, state="building", asked_at=NOW)
    for minutes in range(30):
        pilots.look(NOW + 6 * SECOND + minutes * MINUTE)
    assert (only().phase, only().idle_since) == ("here", None)
    build.delete()
    pilots.look(NOW + 40 * MINUTE)
    pilots.look(NOW + 50 * MINUTE)
    assert only().phase == "leaving"


def test_it_joins_works_and_is_given_back_when_it_has_been_idle(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.becomes("1", "running", left_s=3600)
    pilots.look(NOW + 5 * SECOND)
    assert only().phase == "starting"
    joins("gpu-1", now=NOW + 8 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    assert (only().phase, only().ends_at) == ("here", NOW + 3610 * SECOND)
    scheduling.tick(NOW + 11 * SECOND)
    waiting.refresh_from_db()
    assert waiting.state == RunState.STARTING
    pilots.look(NOW + 15 * SECOND)
    assert (only().useful, only().idle_since) == (True, None)

    services.stop_run(waiting, by=waiting.submitted_by)
    scheduling.close_all(waiting, node=Node.objects.get(name="gpu-1"), now=NOW + 20 * SECOND, reason="It was stopped.")
    TrainingRun.objects.update(state=RunState.STOPPED)
    pilots.look(NOW + 20 * SECOND)
    Node.objects.update(last_seen_at=NOW + 10 * MINUTE)
    pilots.look(NOW + 10 * MINUTE)
    assert engine.released == []
    pilots.look(NOW + 10 * MINUTE + 20 * SECOND)
    assert Node.objects.get(name="gpu-1").draining
    pilots.look(NOW + 10 * MINUTE + 25 * SECOND)
    assert engine.released == [("1", True, False)]
    engine.becomes("1", "ended")
    pilots.look(NOW + 10 * MINUTE + 30 * SECOND)
    ended = Pilot.objects.get()
    assert (ended.phase, ended.leave_reason) == ("ended", "nobody has needed it for 10 min")
    assert not NodeToken.objects.exists()
    assert Node.objects.get(name="gpu-1").removed_at is not None
    pool.refresh_from_db()
    assert pool.failures == 0


def test_what_slurm_refuses_is_told_in_its_words_and_tried_again_less_and_less_often(
    engine: Engine, pool: PilotPool, waiting: TrainingRun
) -> None:
    engine.refusal = "Batch job submission failed: Invalid partition name specified"
    tried, now = [], NOW
    while now < NOW + 5 * MINUTE:
        before = Pilot.objects.count()
        pilots.look(now)
        if Pilot.objects.count() > before:
            tried.append((now - NOW).total_seconds())
        now += 5 * SECOND
    assert tried == [0, pause_s(1), pause_s(1) + pause_s(2), pause_s(1) + pause_s(2) + pause_s(3), 225]
    pool.refresh_from_db()
    assert pool.words[1].startswith("Would ask for 1 more, after 5 attempts that came to nothing, again in ")
    assert pool.words[1].endswith("Slurm refused: Batch job submission failed: Invalid partition name specified")
    assert not NodeToken.objects.exists()
    services.change_pool(pool, by=User.objects.get(username="dora"), options="--partition=cpu", now=now)
    engine.refusal = ""
    pilots.look(now)
    assert len(engine.orders) == 1, "another policy is tried at once"


def test_one_that_ends_before_it_has_joined_has_failed(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.becomes("1", "ended")
    pilots.look(NOW + 5 * SECOND)
    pool.refresh_from_db()
    assert (pool.failures, pool.problem) == (1, "Slurm says: JobState FAILED, ExitCode 127:0 of 1")
    assert len(engine.orders) == 1


def test_one_that_runs_and_does_not_join_is_ended(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.becomes("1", "running", left_s=7200)
    pilots.look(NOW + 5 * SECOND)
    pilots.look(NOW + 5 * SECOND + pilots.ARRIVES + SECOND)
    assert engine.released == [("1", True, True)]
    assert only().leave_reason == "it did not join"


def test_a_studio_that_ended_while_it_asked_finds_its_pilot_again(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    Pilot.objects.update(job="", phase="asked")  # it ended before it had written the number down
    pilots.look(NOW + 5 * SECOND)
    assert (only().job, only().phase, len(engine.orders)) == ("1", "waiting", 1)

    Pilot.objects.update(job="", phase="asked")
    engine.jobs.clear()  # and here before it had asked
    pilots.look(NOW + 10 * SECOND)
    assert only().phase == "asked"
    pilots.look(NOW + pilots.UNSURE + 10 * SECOND)
    assert Pilot.objects.get().words == "It was never asked for."


def test_one_that_the_studio_knows_nothing_of_is_ended_and_others_jobs_are_left_alone(engine: Engine, pool: PilotPool) -> None:
    name = pilots.name_of(Pilot(node_name="gpu-9", pk=999))
    engine.jobs = {"7": Lease("7", name, "running", None, ""), "8": Lease("8", "edt-0badc0de-gpu-9-999", "running", None, "")}
    engine.jobs["9"] = Lease("9", "somebody's", "running", None, "")
    pilots.look(NOW)
    assert engine.released == [("7", True, False)]


def test_while_slurm_does_not_answer_nothing_is_decided(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.silent = True
    pilots.look(NOW + 60 * MINUTE)
    pool.refresh_from_db()
    assert pool.words == ["Slurm does not answer, so nothing is decided: Unable to contact slurm controller"]
    assert only().phase == "waiting"


def test_the_runs_of_a_pilot_whose_allocation_has_ended_go_on_at_once(engine: Engine, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    engine.becomes("1", "running", left_s=3600)
    joins("gpu-1", now=NOW + 5 * SECOND)
    pilots.look(NOW + 5 * SECOND)
    scheduling.tick(NOW + 6 * SECOND)
    engine.becomes("1", "ended")
    pilots.look(NOW + 10 * SECOND)
    waiting.refresh_from_db()
    assert (waiting.state, waiting.head_node, waiting.attempt) == (RunState.SUSPENDED, None, 2)
    assert "The allocation of gpu-1 has ended. It goes on elsewhere" in waiting.state_reason
    node = Node.objects.get(name="gpu-1")
    assert snapshot.is_silent(node, NOW + 10 * SECOND), "although it was heard of a moment ago"
    pool.refresh_from_db()
    assert pool.failures == 0, "it has joined, so it did not fail"
    assert len(engine.orders) == 2


def test_with_at_most_none_all_are_emptied_and_then_the_pool_can_go(
    engine: Engine, pool: PilotPool, waiting: TrainingRun, dora: User
) -> None:
    pilots.look(NOW)
    with pytest.raises(DomainError, match="holds pilots"):
        services.delete_pool(pool, by=dora)
    services.change_pool(pool, by=dora, most=0, now=NOW)
    pilots.look(NOW + 5 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    assert engine.released == [("1", False, False)]
    engine.becomes("1", "ended")
    pilots.look(NOW + 15 * SECOND)
    services.delete_pool(pool, by=dora, now=NOW)
    assert [each.text for each in ClusterChange.objects.order_by("pk")] == [
        "dora made the pool of pilots gpu of Slurm: 0 to 3 of 2 slots each",
        "dora changed of the pool of pilots gpu pilots at most from 3 to 0",
        "dora deleted the pool of pilots gpu",
    ]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("options", "--uid=0", "--uid cannot be chosen here"),
        ("options", "--output=/etc/passwd", "--output cannot be chosen here"),
        ("options", "-p gpu", "'-p' is no option"),
        ("options", "--wrap=id", "--wrap cannot be chosen here"),
        ("options", "--gres='gpu", "No closing quotation"),
        ("studio", "studio.example.org", "as in https://studio.example.org"),
        ("studio", "https://a'b", "as in https://studio.example.org"),
        ("least", 4, "4 is not possible"),
        ("device", "tpu", "Choose cpu or gpu"),
        ("walltime_minutes", 0, "0 is not possible"),
        ("idle_minutes", float("nan"), "Give a number of minutes"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(pool: PilotPool, dora: User, field: str, value: object, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        services.change_pool(pool, by=dora, **{field: value})


def test_the_token_is_on_no_command_line_and_the_studios_environment_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`sbatch` here is a script that writes down what it gets."""
    (tmp_path / "sbatch").write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/words\nenv > {tmp_path}/env\ncat > {tmp_path}/script\necho '4711;c'\n"
    )
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DATABASE_URL", "postgres://edt:s3cret@db/edt")
    order = Order("edt-1-gpu-1-1", "gpu-1", "https://studio.example.org", "edtn_s3cret", 60, 100, 4, ["--partition=gpu"])
    assert Slurm().hold(order) == "4711"
    assert "s3cret" not in (tmp_path / "words").read_text() + (tmp_path / "env").read_text()
    assert (tmp_path / "words").read_text().splitlines()[:2] == ["--partition=gpu", "--parsable"]
    lines = (tmp_path / "script").read_text().splitlines()
    assert [line for line in lines if "s3cret" in line] == ["edtn_s3cret"], "it comes by standard input"


@pytest.mark.parametrize(
    ("text", "expected"), [("1-02:03:04", 93784.0), ("59:58", 3598.0), ("0:07", 7.0), ("UNLIMITED", None), ("INVALID", None), ("", None)]
)
def test_what_squeue_says_is_left(text: str, expected: float | None) -> None:
    assert seconds(text) == expected
