"""A machine that shares the studio's folders, as the studio's own does: its link as a process, the studio's pages as a server, and a host
that really listens on its socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from experiments import tasks
from experiments.cluster import fleet, joining, own_machine, scheduling
from experiments.files import runfiles
from experiments.models import ClusterRules, Metric, Node, Project, RunState, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.conftest import SentMessages
from tests.web.test_request_limits import Server
from training_runtime import protocol
from training_runtime.host import client
from training_runtime.node.fetching import UNUSED_S
from training_runtime.protocol import Apply, Observation, RunObservation, Subscribe, decode, encode
from webapp import asgi
from webapp.studio import own_machine as webapp_own_machine
from webapp.studio import prepare
from webapp.studio.checks import Refusal

pytestmark = pytest.mark.django_db(transaction=True)
REPOSITORY = Path(__file__).resolve().parents[2]


def until(condition: Callable[[], object], *, deadline_s: float = 15.0, words: Callable[[], str] = str) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen in time\n{words()}"
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


class Link:
    """`edt-node join` of the studio's own machine, without a host of its own."""

    def __init__(self, home: Path, studio: str, *, shares: Path | None = None) -> None:
        self.output = home / "link.out"
        self.home = home / "node"
        command = [sys.executable, "-m", "training_runtime.node", "join", studio, "--token", "-", "--no-host", "--address", "none"]
        command += ["--home", str(self.home), "--shares", str(shares or home), "--data-root", str(home / "data"), "--slots", "4"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=output, stderr=output)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{own_machine.token('', now=timezone.now())}\n".encode())
        self.process.stdin.close()

    def close(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture
def studio(short_home: Path, settings: object) -> Iterator[Server]:
    installation.bind()
    settings.EDT_NODE_LEASE_S = 1.0  # type: ignore[attr-defined]  # a machine is told every third of it
    with Server(app=asgi.application) as server:
        yield server


@pytest.fixture
def link(studio: Server, short_home: Path, host: ListeningHost, said: SentMessages) -> Iterator[Link]:
    started = Link(short_home, f"http://127.0.0.1:{studio.port}")
    try:
        is_heard_of = Node.objects.filter(name="local", last_seen_at__isnull=False).exists
        until(lambda: host.subscribers and is_heard_of(), words=started.output.read_text)
        yield started
    finally:
        status = started.close()
    assert status == 0, started.output.read_text()


@pytest.fixture
def run(host: ListeningHost, said: SentMessages, project: Project, alice: User) -> TrainingRun:
    cast.node()
    made = cast.run(project, by=alice)
    scheduling.tick(timezone.now())
    return made


def ingests(said: SentMessages) -> list[int]:
    return [int(str(args[0])) for name, args, _ in said.tasks if name.endswith("ingest_run")]


def is_told_of(host: ListeningHost, run: TrainingRun) -> protocol.RunSpec:
    until(lambda: host.applied and [wish for wish in host.applied[-1].runs if wish.spec.run == run.pk])
    return next(wish.spec for wish in host.applied[-1].runs if wish.spec.run == run.pk)


def test_joining_registers_the_node_and_its_runs_begin_in_the_studios_own_folders(
    link: Link, host: ListeningHost, short_home: Path, project: Project, alice: User
) -> None:
    assert Node.objects.get(name="local").slots.count() == 4
    run = cast.run(project, by=alice)
    tasks.schedule()
    spec = is_told_of(host, run)
    assert Path(spec.result_dir) == runfiles.folder(run)
    assert Path(spec.result_dir).is_dir()
    assert Path(spec.code_dir).is_relative_to(short_home / "code")
    assert Path(spec.code_dir).is_dir()
    assert [path for room in ("code", "assets", "runs", "terms") for path in (link.home / room).iterdir()] == [], "nothing is copied"


def test_nothing_of_the_studio_is_put_away_or_deleted_by_the_link(
    link: Link, host: ListeningHost, short_home: Path, run: TrainingRun
) -> None:
    old = time.time() - 2 * UNUSED_S
    for path in ("code/unneeded", "assets/unneeded", "runs/ab-77", "runs/.trash/1-ab-76"):
        (short_home / path).mkdir(parents=True)
        os.utime(short_home / path, (old, old))
    is_told_of(host, run)
    cast.write_journal(run, cast.started(), cast.step(1), cast.finished())
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), journal_bytes=300, exit_code=0))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.COMPLETED)
    host.runs.clear()
    told = len(host.applied)
    until(lambda: len(host.applied) > told + 2)
    assert (runfiles.folder(run) / "journal.jsonl").is_file()
    for path in ("code/unneeded", "assets/unneeded", "runs/ab-77", "runs/.trash/1-ab-76"):
        assert (short_home / path).is_dir(), path


def test_what_the_host_pushes_is_recorded_and_planned(link: Link, host: ListeningHost, run: TrainingRun, said: SentMessages) -> None:
    is_told_of(host, run)
    cast.write_journal(run, cast.started(), cast.step(1), cast.finished())
    said.clear()
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), journal_bytes=300, exit_code=0))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.COMPLETED)
    until(lambda: "schedule" in said.task_names())
    assert cast.slots_of(run) == set()
    assert Metric.objects.count() == 1


def test_growing_journals_are_announced_and_the_last_growth_always_is_and_nothing_is_recorded_for_it(
    link: Link, host: ListeningHost, run: TrainingRun, said: SentMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_told_of(host, run)
    recorded, announced = [], []
    record, announce = fleet.record, joining.announce_journals
    monkeypatch.setattr(fleet, "record", lambda seen, **given: (recorded.append(seen), record(seen, **given))[1])
    monkeypatch.setattr(joining, "announce_journals", lambda name, grown, now: (announced.append(grown), announce(name, grown, now))[1])
    for size in range(1, 301):
        host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=size))
    until(lambda: announced and announced[-1] == {run.pk: 300})
    assert len(announced) < 100, "not each of them"
    assert len(recorded) < 100, "but what is said in any case, for the lease"
    assert run.pk in ingests(said)
    said.clear()
    host.push(RunObservation(run=run.pk, attempt=1, state="running", holding=(), journal_bytes=301))
    until(lambda: run.pk in ingests(said))


def test_a_machine_that_names_a_run_of_another_has_nothing_read(link: Link, run: TrainingRun, said: SentMessages) -> None:
    said.clear()
    joining.announce_journals("beta", {run.pk: 300}, timezone.now())
    assert ingests(said) == []


def test_the_link_survives_the_hosts_restart(link: Link, host: ListeningHost, run: TrainingRun) -> None:
    is_told_of(host, run)
    host.stop()
    host.start()
    until(lambda: host.subscribers)
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.FAILED)


def test_what_could_not_be_taken_in_is_taken_in_later(
    link: Link, host: ListeningHost, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, failures = fleet.record, []

    def away(observation: Observation, **given: object) -> object:
        if not failures:
            failures.append(1)
            raise RuntimeError("the database is away")
        return record(observation, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet, "record", away)
    host.push(RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1))
    until(lambda: TrainingRun.objects.get(pk=run.pk).state == RunState.FAILED)
    assert failures


def test_a_run_whose_driver_is_elsewhere_has_a_folder_of_this_machines_own(
    link: Link, host: ListeningHost, run: TrainingRun, short_home: Path
) -> None:
    """The machine of its driver sends what counts into the studio's folder."""
    is_told_of(host, run)
    beta = cast.node("beta")
    ClusterRules.objects.update(several_machines=True)
    TrainingRun.objects.filter(pk=run.pk).update(head_node=beta, engines=4)
    cast.is_met(TrainingRun.objects.get(pk=run.pk), on=beta)
    until(lambda: host.applied and any(wish.spec.remote for wish in host.applied[-1].runs))
    (spec,) = [wish.spec for wish in host.applied[-1].runs if wish.spec.remote]
    assert Path(spec.result_dir) == link.home / "runs" / run.folder
    assert Path(spec.result_dir).is_dir()
    assert Path(spec.code_dir).is_relative_to(short_home / "code"), "what does not change is used where it is"


def test_who_names_the_folders_of_another_studio_is_told_so_and_takes_no_part(
    studio: Server, short_home: Path, host: ListeningHost, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir(exist_ok=True)
    (tmp_path / "installation").write_text("6f1f3a52-0000-4000-8000-000000000000\n")
    link = Link(short_home, f"http://127.0.0.1:{studio.port}", shares=tmp_path)
    try:
        assert link.process.wait(30) == 1
        assert "the home of another studio" in link.output.read_text()
        assert host.applied == []
    finally:
        link.close()


def test_the_studios_own_machine_keeps_its_token_for_as_long_as_it_is_good_and_while_the_database_is_away(
    short_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = prepare.own_token(short_home)
    path = webapp_own_machine.token_file(short_home)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (f"{token}\n", 0o600)
    assert prepare.own_token(short_home) == token

    def is_away(*_: object, **__: object) -> str:
        raise OperationalError("connection refused")

    with monkeypatch.context() as without:
        without.setattr(own_machine, "token", is_away)
        assert prepare.own_token(short_home) == token
        with pytest.raises(Refusal, match="The database cannot be used: connection refused"):
            prepare.own_token(short_home / "new")
    joining.end("local")
    assert prepare.own_token(short_home) not in ("", token), "the machine was removed, and is back"


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
