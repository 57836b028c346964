"""`edt nodes` against the API: what administrators do to machines and slots, and what others are told."""

from __future__ import annotations

import datetime as dt

import pytest
from django.urls import reverse
from django.utils import timezone

from edt_client.calls import Answer, Call, checked
from edt_client.cli import main
from edt_client.client import Studio
from experiments.cluster import slot_health
from experiments.models import ClusterChange, Grant, Node, Slot, TrainingRun
from tests.web import api
from tests.web.api import Script
from tests.web.conftest import As
from tests.web.seed import Seeded


class Connected(Studio):
    """A client that asks the API without a network."""

    def __init__(self, script: Script) -> None:
        super().__init__("http://localhost", script.token)
        self._script = script

    def _send(self, call: Call) -> Answer:
        query = "&".join(f"{name}={value}" for name, value in call.query.items())
        answer = self._script.send(call.method, f"{call.path}?{query}", call.json)
        return checked(Answer(answer.status_code, answer.content), url=self.url)


@pytest.fixture
def dora(studio: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Studio, "from_environment", lambda: Connected(api.of(studio.dora)))


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main.main(["nodes", *words]) == status
    heard = capsys.readouterr()
    return heard.out + heard.err


def test_a_machine_and_a_slot_are_drained_and_take_runs_again(dora: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert "local" in said(capsys)
    for words, draining in (("drain", True), ("resume", False)):
        said(capsys, words, "local")
        said(capsys, words, "local", "--slot", "gpu 3", "--reason", "a new fan")
        assert (Node.objects.get().draining, Slot.objects.get(index=3).draining) == (draining, draining)
    assert "local has no slot 'GPU 9'; it has GPU 0, GPU 1" in said(capsys, "drain", "local", "--slot", "GPU 9", status=1)
    assert "There is no such node." in said(capsys, "drain", "elsewhere", status=1)


def test_a_slot_that_looks_ill_says_so_and_is_put_back(dora: None, capsys: pytest.CaptureFixture[str]) -> None:
    slot_health.take_out(Slot.objects.get(index=3), "Workers keep dying on it.", now=timezone.now())
    assert "local GPU 3 is out of service: Workers keep dying on it." in said(capsys)
    assert said(capsys, "put-back", "local", "GPU 3") == "GPU 3 is in service.\n"
    assert Slot.objects.get(index=3).out_reason == ""


def test_a_machine_is_declared_lost_and_removed(dora: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it is not lost" in said(capsys, "lost", "local", "--confirm", "local", status=1)
    Node.objects.update(last_seen_at=timezone.now() - dt.timedelta(hours=1))
    assert "type the node's name" in said(capsys, "lost", "local", "--confirm", "no", status=1)
    assert "local is declared lost." in said(capsys, "lost", "local", "--confirm", "local")
    assert not Grant.objects.filter(released_at=None).exists()
    assert not TrainingRun.objects.filter(head_node__name="local", state="running").exists()
    assert "local is removed." in said(capsys, "remove", "local")
    assert Node.objects.get().removed_at is not None


def test_a_machine_gets_a_title_and_keeps_its_name(dora: None, studio: Seeded, as_: As, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "rename", "local", "  By the   window ") == "local has a title.\n"
    client = as_(studio.dora)
    page = client.get(reverse("node", args=["local"])).content.decode()
    assert "<h1><bdi>By the window</bdi></h1>" in page
    assert "Known as <bdi>local</bdi>" in page
    assert "By the window" in client.get(reverse("cluster"), {"part": "nodes"}).content.decode()
    assert ClusterChange.objects.latest("pk").text == "dora calls node local 'By the window'"
    assert "at most 100 letters" in said(capsys, "rename", "local", "x" * 101, status=1)
    assert "The title is saved." in client.post(reverse("node_rename", args=["local"]), {"title": ""}, follow=True).content.decode()
    assert Node.objects.get().title == ""


def test_nobody_else_changes_machines(studio: Seeded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Studio, "from_environment", lambda: Connected(api.of(studio.alice)))
    for words in (
        ("drain", "local"),
        ("put-back", "local", "GPU 3"),
        ("lost", "local", "--confirm", "local"),
        ("rename", "local", "x"),
        ("remove", "local"),
    ):
        assert "administrator" in said(capsys, *words, status=1), words
    assert not Node.objects.get().draining
