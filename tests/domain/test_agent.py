"""The node agent's listener and the tasks, with a host that really listens on its socket."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from experiments import tasks
from experiments.cluster import agent, scheduling, snapshot, version_standing
from experiments.models import Metric, Node, Project, RunState, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.conftest import SentMessages
from training_runtime import protocol
from training_runtime.host import client
from training_runtime.protocol import Apply, Observation, RunObservation, Subscribe, decode, encode

pytestmark = pytest.mark.django_db(transaction=True)


def until(condition: Callable[[], object], *, deadline_s: float = 15.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class ListeningHost:
    """Speaks the host's side of the protocol: answers Apply, pushes what the test tells it to."""

    def __init__(self, home: Path, node: str) -> None:
        self.path = client.socket_path(home, node)
        self.node = node
        self.applied: list[Apply] = []
        self.runs: dict[int, RunObservation] = {}
        self.subscribers: list[socket.socket] = []
        self.listener: socket.socket | None = None
        self.spoken = (protocol.VERSION, protocol.OLDEST)

    def start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def stop(self) -> None:
        if self.listener is not None:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
            self.listener.close()
        for each in self.subscribers:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.subscribers.clear()

    def push(self, *runs: RunObservation) -> None:
        self.runs.update({run.run: run for run in runs})
        for each in self.subscribers:
            each.sendall(encode(self.seen()))

    def seen(self) -> Observation:
        revision = self.applied[-1].revision if self.applied else 0
        version, oldest = self.spoken
        return Observation(revision, cast.facts(self.node), tuple(self.runs.values()), version=version, oldest=oldest)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            message = decode(peer.makefile("rb").readline())
            if isinstance(message, Apply):
                self.applied.append(message)
                peer.sendall(encode(self.seen()))
                peer.close()
            elif isinstance(message, Subscribe):
                peer.sendall(encode(self.seen()))
                self.subscribers.append(peer)


@pytest.fixture
def short_home(settings: object, home: Path) -> Iterator[Path]:
    """A home whose path is short enough for a socket's address."""
    folder = Path(tempfile.mkdtemp(prefix="edt-", dir="/tmp"))
    shutil.copytree(home, folder, dirs_exist_ok=True)
    settings.EDT_HOME, settings.EDT_DATA_ROOT = folder, folder / "data"  # type: ignore[attr-defined]
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def host(short_home: Path) -> Iterator[ListeningHost]:
    made = ListeningHost(short_home, "local")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def listener(short_home: Path, host: ListeningHost, said: SentMessages) -> Iterator[agent.HostListener]:
    listening = agent.HostListener(
        short_home, "local", agent.Heartbeat(short_home, "local")
    )  # which the tests start where it is about that
    listening.start()
    until(lambda: host.subscribers)
    yield listening
    listening.stop.set()
    listening.join(timeout=10)
    listening.journals.join(timeout=10)
    assert not listening.is_alive()


@pytest.fixture
def run(host: ListeningHost, said: SentMessages, project: Project, alice: User) -> TrainingRun:
    cast.node()
    made = cast.run(project, by=alice)
    scheduling.tick(timezone.now())
    return made


def ingests(said: SentMessages) -> list[int]:
    return [int(str(args[0])) for name, args, _ in said.tasks if name.endswith("ingest_run")]


def test_applying_registers_the_node_and_starts_its_runs(host: ListeningHost, said: SentMessages, project: Project, alice: User) -> None:
    tasks.apply_node("local")
    assert Node.objects.get(name="local").slots.count() == 4
    run = cast.run(project, by=alice)
    tasks.schedule()
    tasks.apply_node("local")
    assert [[wanted.spec.run for wanted in applied.runs] for applied in host.applied] == [[], [run.pk]]


def test_a_host_that_is_away_harms_nothing(
    short_home: Path, said: SentMessages, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="experiments.tasks")
    tasks.apply_node("elsewhere")
    assert Node.objects.get(name="elsewhere").last_seen_at is None
    assert "elsewhere" in caplog.text


@pytest.fixture
def heartbeat(listener: agent.HostListener) -> Iterator[agent.Heartbeat]:
    listener.heartbeat.start()
    yield listener.heartbeat
    listener.heartbeat.end()
    listener.heartbeat.join(timeout=10)
    assert not listener.heartbeat.is_alive()


def test_an_agent_applies_at_its_start_without_being_asked(heartbeat: agent.Heartbeat, host: ListeningHost) -> None:
    until(lambda: host.applied)
    until(lambda: Node.objects.filter(name="local", last_seen_at__isnull=False).exists())


def test_an_idle_node_that_was_silent_for_an_hour_is_heard_of_again_by_itself(
    short_home: Path, host: ListeningHost, run: TrainingRun
) -> None:
    Node.objects.update(last_seen_at=timezone.now() - dt.timedelta(hours=1))
    agent.Heartbeat(short_home, "local").turn()
    assert not snapshot.is_silent(Node.objects.get(name="local"), timezone.now())
    assert [wanted.spec.run for wanted in host.applied[-1].runs] == [run.pk]


def test_a_host_that_does_not_answer_is_reported_once_and_asked_less_and_less_often(
    short_home: Path, said: SentMessages, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat = agent.Heartbeat(short_home, "elsewhere")
    heartbeat.every_s = 0.001
    caplog.set_level(logging.INFO, logger="experiments.ops.loops")
    heartbeat.start()
    turned = []

    def turned_five_times() -> bool:
        turned.append(heartbeat.turned_at)
        return len(set(turned)) > 5

    until(turned_five_times)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "does not answer" in caplog.text
    other = ListeningHost(short_home, "elsewhere")
    other.start()
    until(lambda: "works again" in caplog.text)
    heartbeat.end()
    heartbeat.join(timeout=10)
    other.stop()


def test_ages_are_measured_with_one_clock(short_home: Path, host: ListeningHost, run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is an hour off: nobody asks it. On SQLite the database's clock is this machine's, so it stands in for both."""
    right = timezone.now()
    monkeypatch.setattr(agent.clock, "now", lambda: right)
    monkeypatch.setattr(timezone, "now", lambda: right - dt.timedelta(hours=1))
    agent.Heartbeat(short_home, "local").turn()
    assert Node.objects.get(name="local").last_seen_at == right


def test_what_the_host_pushes_is_recorded_and_planned(
    listener: agent.HostListener, host: ListeningHost, run: TrainingRun, said: SentMessages
) -> None:
    tasks.apply_node("local")
    cast.write_journal(run, cast.started(), cast.step(1), cast.finished())
    said.clear()
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), journal_bytes=300, exit_code=0))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.COMPLETED)
    until(lambda: "schedule" in said.task_names())
    assert cast.slots_of(run) == set()
    assert Metric.objects.count() == 1


def test_growing_journals_are_announced_but_not_each_time_and_never_without_the_last(
    listener: agent.HostListener, host: ListeningHost, run: TrainingRun, said: SentMessages
) -> None:
    until(lambda: Node.objects.filter(name="local").exists())
    said.clear()
    for size in range(1, 301):
        host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=size))
    until(lambda: listener.journals._known.get(run.pk) == 300 and not listener.journals._waiting)
    until(lambda: ingests(said))
    assert len(ingests(said)) == 1, "once, for nobody has begun to read it"
    said.clear()
    host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=301))
    until(lambda: ingests(said))


def test_a_journal_that_only_grows_writes_nothing_to_the_database(
    listener: agent.HostListener, host: ListeningHost, run: TrainingRun, said: SentMessages
) -> None:
    host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=10))
    until(lambda: run.pk in ingests(said) and run.pk in [each[0] for each in listener._seen[4]])  # it is recorded too
    before = Node.objects.get(name="local").last_seen_at
    host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=20))
    until(lambda: listener.journals._known.get(run.pk) == 20)
    assert Node.objects.get(name="local").last_seen_at == before


def test_the_listener_survives_the_hosts_restart(
    listener: agent.HostListener, host: ListeningHost, run: TrainingRun, said: SentMessages
) -> None:
    host.stop()
    listener.heartbeat._woken.clear()
    host.start()
    until(lambda: host.subscribers)
    until(listener.heartbeat._woken.is_set)  # what the host missed is made up for at once
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.FAILED)


def test_the_ear_survives_what_it_cannot_take_in(
    listener: agent.HostListener, host: ListeningHost, run: TrainingRun, monkeypatch: pytest.MonkeyPatch, said: SentMessages
) -> None:
    record, failures = agent.fleet.record, []

    def away(observation: Observation, **given: object) -> object:
        if not failures:
            failures.append(1)
            raise RuntimeError("the database is away")
        return record(observation, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(agent.fleet, "record", away)
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.FAILED)
    assert failures


def test_only_node_queues_have_an_ear() -> None:
    assert agent.nodes_of(["control", "node.local", "celery", "node.b"]) == ["local", "b"]


def test_each_task_does_its_work(host: ListeningHost, run: TrainingRun, said: SentMessages) -> None:
    cast.write_journal(run, cast.step(1))
    tasks.ingest_run(run.pk)
    tasks.ingest_run(987_654)
    tasks.ingest_all()
    installation.bind()
    tasks.prune()
    tasks.clear()
    assert Metric.objects.count() == 1
    connection.close()


def test_a_host_too_far_apart_is_known_by_its_version_and_its_page_says_what_to_do(host: ListeningHost, run: TrainingRun) -> None:
    host.spoken = (protocol.VERSION + 2, protocol.VERSION + 1)
    with pytest.raises(client.OtherVersion, match="the studio is older"):
        agent.apply(host.path.parents[2], "local")
    node = Node.objects.get(name="local")
    assert (node.protocol_version, node.protocol_oldest) == host.spoken
    assert version_standing.of(node).state == "refused"
    assert "What runs there trains on." in version_standing.of(node).words
    host.spoken = (protocol.VERSION + 1, protocol.VERSION)
    agent.apply(host.path.parents[2], "local")
    assert version_standing.of(Node.objects.get(name="local")).state == "ahead"
