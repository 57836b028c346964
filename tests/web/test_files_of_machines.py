"""What a machine that has joined can read and write in the studio: what its own runs need, and their folders for as long as they stay."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from experiments.cluster import joining
from experiments.files import runfiles
from experiments.models import Grant, Node, Project, RunState, Slot, TrainingRun, User
from tests import cast
from training_runtime.node.messages import FILES, GUEST, Hello, Welcome

pytestmark = pytest.mark.django_db
OTHER_KINDS = ("db.sqlite3", "secrets", "tmp", "bundles", "data")


class Machine:
    """`beta`, with its token, as its link speaks."""

    def __init__(self, secret: str, welcome: Welcome) -> None:
        self.headers = {"authorization": f"Bearer {secret}", "x-edt-incarnation": str(welcome.incarnation)}
        self.client = Client(headers=self.headers)

    def tree(self, room: str, name: str) -> Any:
        answer = self.client.get(f"{FILES}/trees/{room}/{name}")
        return [each["path"] for each in answer.json()["files"]] if answer.status_code == 200 else answer.status_code

    def read(self, room: str, name: str, path: str, **headers: str) -> Any:
        answer = self.client.get(f"{FILES}/trees/{room}/{name}/{path}", headers=headers)
        return b"".join(answer) if answer.status_code in (200, 206) else answer.status_code

    def put(self, run: TrainingRun, path: str, body: bytes, **query: object) -> HttpResponse:
        query = {"term": joining.term_of(run), "offset": 0, **query}
        words = "&".join(f"{name}={value}" for name, value in query.items()).replace("+", "%2B")
        return self.client.put(f"{FILES}/runs/{run.folder}/{path}?{words}", body, content_type="application/octet-stream")


def machine(dora: User, name: str = "beta") -> Machine:
    token, secret = joining.make(name, slots=2, by=dora, now=timezone.now())
    welcome = joining.begin(token.pk, Hello("id", "boot"), address="10.0.0.7", now=timezone.now())
    assert isinstance(welcome, Welcome)
    return Machine(secret, welcome)


@pytest.fixture
def beta(dora: User, home: Path) -> Machine:
    return machine(dora)


def run_on(name: str, project: Project, *, by: User) -> TrainingRun:
    made = cast.run(project, by=by, now=timezone.now())
    made.head_node, made.moved_at, made.state = Node.objects.get(name=name), timezone.now(), RunState.RUNNING
    made.save()
    runfiles.make(made)
    return made


@pytest.fixture
def run(beta: Machine, project: Project, alice: User) -> TrainingRun:
    return run_on("beta", project, by=alice)


def test_a_machine_reads_the_code_of_its_runs_and_of_no_other(beta: Machine, run: TrainingRun, project: Project, alice: User):
    sha256 = run.version.bundle.sha256
    assert "main.py" in beta.tree("code", sha256)
    text = beta.read("code", sha256, "main.py")
    assert beta.read("code", sha256, "main.py", range="bytes=3-") == text[3:]
    other = cast.definition(project, by=alice, name="another", files={"main.py": "print(2)", "other.py": "print(3)"})
    assert beta.tree("code", other.bundle.sha256) == 404
    assert beta.read("code", other.bundle.sha256, "other.py") == 404


def test_a_machine_reads_no_folder_of_a_run_that_is_elsewhere(beta: Machine, run: TrainingRun, project: Project, alice: User, dora: User):
    (runfiles.folder(run) / "journal.jsonl").write_text("{}\n")
    assert beta.tree("runs", run.folder) == ["journal.jsonl"]
    gamma = machine(dora, "gamma")
    assert gamma.tree("runs", run.folder) == 404
    assert gamma.read("runs", run.folder, "journal.jsonl") == 404
    assert gamma.put(run, "journal.jsonl", b"x").status_code == 410
    later = run_on("gamma", project, by=alice)
    TrainingRun.objects.filter(pk=later.pk).update(continues=run.pk)
    (runfiles.folder(run) / "checkpoint").mkdir()
    (runfiles.folder(run) / "checkpoint" / "engine.pt").write_bytes(b"state")
    assert gamma.tree("runs", run.folder) == ["checkpoint/engine.pt"], "to begin with it, and nothing else"
    assert gamma.read("runs", run.folder, "checkpoint/engine.pt") == b"state"
    assert gamma.read("runs", run.folder, "journal.jsonl") == 404


@pytest.mark.parametrize("room", OTHER_KINDS)
def test_there_is_no_other_room(beta: Machine, run: TrainingRun, room: str):
    assert beta.tree(room, run.folder) == 404


def test_a_log_grows_piece_by_piece_and_a_piece_out_of_turn_is_told_where_it_stands(beta: Machine, run: TrainingRun):
    assert beta.put(run, "journal.jsonl", b'{"a": 1}\n').json() == {"size": 9}
    late = beta.put(run, "journal.jsonl", b"x", offset=20)
    assert (late.status_code, late.json()) == (409, {"size": 9})
    assert beta.put(run, "journal.jsonl", b'{"b": 2}\n', offset=9).json() == {"size": 18}
    assert beta.put(run, "journal.jsonl", b'{"b": 2}\n', offset=9).json() == {"size": 18}, "sent again it is there once"
    assert (runfiles.folder(run) / "journal.jsonl").read_bytes() == b'{"a": 1}\n{"b": 2}\n'


def test_a_file_is_in_its_place_when_its_last_piece_has_come(beta: Machine, run: TrainingRun):
    target = runfiles.folder(run) / "checkpoint" / "engine.pt"
    facts = {"size": 6, "mtime_ns": 1_790_000_000_123_456_789}
    beta.put(run, "checkpoint/engine.pt", b"abc", **facts)
    assert not target.exists()
    assert beta.put(run, "checkpoint/engine.pt", b"abc", **facts).json() == {"size": 3}, "it goes on from there"
    beta.put(run, "checkpoint/engine.pt", b"def", offset=3, **facts)
    assert target.read_bytes() == b"abcdef"
    assert target.stat().st_mtime_ns == facts["mtime_ns"]
    assert [each.path for each in runfiles.walk(run, limit=10).files] == ["checkpoint/engine.pt"]


def test_a_file_that_is_written_anew_before_all_of_it_has_come_leaves_nothing_of_the_one_before(beta: Machine, run: TrainingRun):
    tmp = runfiles.folder(run) / "tmp"
    beta.put(run, "other.pth", b"some", size=9, mtime_ns=1)
    for moment in range(1, 4):
        assert beta.put(run, "last.pth", b"abc", size=6, mtime_ns=moment).json() == {"size": 3}
    assert beta.put(run, "last.pth", b"def", size=6, mtime_ns=3, offset=3).json() == {"size": 6}
    assert (runfiles.folder(run) / "last.pth").read_bytes() == b"abcdef"
    assert [path.read_bytes() for path in tmp.iterdir()] == [b"some"], "of the other file, which goes on"
    assert beta.put(run, "other.pth", b"rest!", size=9, mtime_ns=1, offset=4).json() == {"size": 9}


def test_what_is_sent_of_an_earlier_stay_or_by_an_earlier_link_is_refused(beta: Machine, run: TrainingRun, dora: User):
    stay = joining.term_of(run)
    TrainingRun.objects.filter(pk=run.pk).update(moved_at=run.moved_at + dt.timedelta(seconds=1))  # type: ignore[operator]
    assert beta.put(run, "journal.jsonl", b"x", term=stay).status_code == 410
    again = machine(dora)
    run.refresh_from_db()
    assert beta.put(run, "journal.jsonl", b"x").status_code == 401, "its token was made anew"
    assert again.put(run, "journal.jsonl", b"x").status_code == 200
    again.client.defaults["HTTP_X_EDT_INCARNATION"] = "1"
    old = Client(headers={**again.headers, "x-edt-incarnation": "0"})
    assert old.get(f"{FILES}/trees/runs/{run.folder}").status_code == 403


def test_a_run_that_has_ended_is_written_no_more(beta: Machine, run: TrainingRun):
    TrainingRun.objects.filter(pk=run.pk).update(state=RunState.COMPLETED)
    assert beta.put(run, "journal.jsonl", b"x").status_code == 410


@pytest.mark.parametrize("path", ["../other/x", "a/../../x", "a//b", "checkpoint/.secret", "a\nb", "x" * 300, "/".join(["d"] * 40)])
def test_no_path_leads_out_of_the_folder_or_to_what_is_the_engines(beta: Machine, run: TrainingRun, path: str):
    before = sorted(Path(runfiles.folder(run).parent).rglob("*"))
    assert beta.put(run, path.replace("\n", "%0A"), b"x", size=1).status_code in (400, 404, 410)
    assert sorted(Path(runfiles.folder(run).parent).rglob("*")) == before


def test_a_link_that_user_code_has_left_leads_nowhere(beta: Machine, run: TrainingRun, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    folder = runfiles.folder(run)
    (folder / "linked").symlink_to(outside)
    (folder / "journal.jsonl").symlink_to(outside / "kept.txt")
    (folder / "tmp").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    assert beta.put(run, "linked/x", b"x").status_code == 400
    assert beta.put(run, "journal.jsonl", b"x").status_code == 400
    assert beta.put(run, "model.pt", b"x", size=1).status_code == 400
    assert beta.put(run, "pipe", b"x").status_code == 400
    assert {each.name: each.read_text() for each in outside.iterdir()} == {"kept.txt": "kept"}
    assert beta.client.delete(f"{FILES}/runs/{run.folder}/journal.jsonl?term={joining.term_of(run).replace('+', '%2B')}").status_code == 200
    assert (outside / "kept.txt").read_text() == "kept", "of a link the link is removed"


def test_without_its_token_nothing_is_told(run: TrainingRun, alice: User):
    for client in (Client(), Client(headers={"authorization": "Bearer edtn_guess"})):
        assert client.get(f"{FILES}/trees/runs/{run.folder}").status_code == 401
        assert client.put(f"{FILES}/runs/{run.folder}/x?term=1", b"x").status_code == 401
    person = Client()
    person.force_login(alice)
    assert person.get(f"{FILES}/trees/runs/{run.folder}").status_code == 401, "it is an address of machines"


@pytest.fixture
def guest(beta: Machine, run: TrainingRun, dora: User) -> Machine:
    """`gamma`, where a run of beta's has a slot."""
    made = machine(dora, "gamma")
    slot = Slot.objects.create(node=Node.objects.get(name="gamma"), device="cpu", index=0)
    Grant.objects.create(run=run, slot=slot, granted_at=timezone.now(), reason="test")
    return made


def test_a_machine_with_workers_of_a_run_gets_its_code_and_adds_its_part_to_its_folder(beta: Machine, guest: Machine, run: TrainingRun):
    (slot,) = Slot.objects.filter(node__name="gamma").values_list("pk", flat=True)
    assert "main.py" in guest.tree("code", run.version.bundle.sha256)
    beta.put(run, "log/worker-99999/console.log", b"of beta")
    beta.put(run, "notes.txt", b"written at home", size=15, mtime_ns=1)
    for path in ("log/agent-gamma/console.log", f"log/worker-{slot}/console.log", "log/worker-99999/console.log"):
        assert guest.put(run, path, b"of gamma", term=GUEST).status_code == 200
    assert guest.put(run, "notes.txt", b"written there", term=GUEST, size=13, mtime_ns=1).status_code == 200
    there = {each.path: (runfiles.folder(run) / each.path).read_bytes() for each in runfiles.walk(run, limit=99).files}
    assert there == {
        "log/worker-99999/console.log": b"of beta",
        "notes.txt": b"written at home",
        "log/agent-gamma/console.log": b"of gamma",
        f"log/worker-{slot}/console.log": b"of gamma",
        "agent-gamma/log/worker-99999/console.log": b"of gamma",
        "agent-gamma/notes.txt": b"written there",
    }
    listed = guest.client.get(f"{FILES}/trees/runs/{run.folder}?term={GUEST}").json()["files"]
    assert sorted(each["path"] for each in listed) == sorted(
        ["log/agent-gamma/console.log", f"log/worker-{slot}/console.log", "log/worker-99999/console.log", "notes.txt"]
    )
    assert guest.read("runs", run.folder, f"notes.txt?term={GUEST}") == b"written there"
    assert guest.tree("runs", run.folder) == 404, "the folder itself is its home's"


def test_its_last_words_are_taken_when_the_run_has_ended_and_no_later(guest: Machine, run: TrainingRun, beta: Machine):
    TrainingRun.objects.filter(pk=run.pk).update(state=RunState.COMPLETED, ended_at=timezone.now())
    assert guest.put(run, "log/agent-gamma/console.log", b"bye", term=GUEST).status_code == 200
    assert beta.put(run, "journal.jsonl", b"x").status_code == 410
    TrainingRun.objects.filter(pk=run.pk).update(ended_at=timezone.now() - dt.timedelta(hours=1))
    assert guest.put(run, "log/agent-gamma/console.log", b"x", offset=3, term=GUEST).status_code == 410


def test_a_machine_without_workers_of_a_run_adds_nothing(beta: Machine, run: TrainingRun, dora: User):
    assert machine(dora, "delta").put(run, "log/agent-delta/console.log", b"x", term=GUEST).status_code == 410
    assert beta.put(run, "notes.txt", b"x", term=GUEST).status_code == 410, "its home is no guest"
