"""What is said outward: after the commit, in the agreed shapes, and never at the writer's cost."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.core.cache import cache
from django.db import transaction

from experiments import services, tasks
from experiments.cluster import scheduling
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import Node, Project, Role, RunState, TrainingRun, User
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User, node: Node) -> TrainingRun:
    return cast.run(project, by=alice, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_nothing_is_said_before_the_commit_nor_after_a_rollback(said: SentMessages, run: TrainingRun) -> None:
    said.clear()
    with transaction.atomic():
        notify.changed("cluster", "jobs")
        notify.nudge_schedule()
        assert (said.messages, said.tasks) == ([], [])
    assert (said.messages, said.tasks) == (
        [("cluster", {"type": "changed", "topic": "cluster", "what": ["jobs"]})],
        [("experiments.tasks.schedule", (), "control")],
    )
    said.clear()
    with pytest.raises(RuntimeError), transaction.atomic():
        notify.changed("cluster", "jobs")
        notify.nudge_node("local")
        raise RuntimeError
    assert (said.messages, said.tasks) == ([], [])


@pytest.mark.django_db(transaction=True)
def test_a_change_of_state_is_told_to_every_page_that_shows_it(said: SentMessages, run: TrainingRun) -> None:
    said.clear()
    states.transition(run, RunState.STOPPED, reason="asked", now=NOW)
    topics = {topic for topic, _ in said.messages}
    pages = {f"run-{run.pk}", f"experiment-{run.experiment_id}", f"project-{run.experiment.project_id}", "cluster"}
    assert topics == pages | {f"user-{run.submitted_by_id}"}, "the pages that show it, and the bell of whose run it is"
    (end,) = said.about(f"run-{run.pk}", "completed")
    assert end == {"type": "completed", "topic": f"run-{run.pk}", "run": run.pk, "state": "stopped", "metrics": {}}


@pytest.mark.django_db(transaction=True)
def test_who_is_nudged_by_what(said: SentMessages, run: TrainingRun, node: Node, alice: User) -> None:
    said.clear()
    scheduling.tick(node.last_seen_at or NOW)
    assert said.about("stream-local", "apply")
    said.clear()
    services.stop_run(run, by=alice)
    assert said.task_names() == ["schedule"]
    assert said.about("stream-local", "apply")
    said.clear()
    cast.Host(node).apply(NOW, exits={run.pk: 0})
    assert "schedule" in said.task_names()
    assert said.about("stream-local", "apply")


async def test_a_message_arrives_as_it_was_sent() -> None:
    layer: Any = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(notify.group("run-7"), channel)
    await sync_to_async(notify.changed)("run-7", "state")
    received = await layer.receive(channel)
    assert received == {"type": "push", "message": {"type": "changed", "topic": "run-7", "what": ["state"]}}


@pytest.mark.parametrize("topic", ["cluster", "run-7", "project-12345678901234567", "node-Ä /x", "x" * 300])
def test_every_topic_makes_a_name_that_the_layer_takes(topic: str) -> None:
    layer: Any = get_channel_layer()
    assert layer.require_valid_group_name(notify.group(topic))


@pytest.mark.django_db(transaction=True)
def test_without_broker_and_layer_the_work_goes_on_quickly_and_it_is_logged_once(
    alice: User, tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker of the test settings does not run; the layer is pointed at a server that does not either."""
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": "experiments.live.page_layer.PageLayer", "CONFIG": {"host": f"unix://{tmp_path}/none.sock", "prefix": "edt"}}
    }
    monkeypatch.setattr(notify, "_failed_at", {})
    cache.clear()
    caplog.set_level(logging.INFO, logger="experiments.live.notify")
    cast.node(now=NOW)
    project = services.create_project(by=alice, name="Digits")
    begin = time.monotonic()
    for number in range(5):
        cast.run(project, by=alice, name=f"run {number}", now=NOW)
        notify.nudge_schedule()
    scheduling.tick(NOW)
    assert time.monotonic() - begin < 10
    assert TrainingRun.objects.filter(state=RunState.STARTING).count() == 4
    assert sorted(record.args[0] for record in caplog.records if record.args) == ["broker", "layer"]  # type: ignore[index]


@pytest.mark.django_db(transaction=True)
def test_what_is_said_together_is_merged_and_what_was_rolled_back_is_not_said(said: SentMessages, alice: User) -> None:
    with notify.together():
        with transaction.atomic():
            notify.changed("cluster", "jobs")
            notify.nudge_node("local")
            with pytest.raises(RuntimeError), transaction.atomic():
                notify.changed("run-7", "state")
                raise RuntimeError
        with transaction.atomic():
            notify.changed("run-8", "state")
            notify.changed("cluster", "feed", "jobs")
            notify.nudge_node("local")
        assert (said.messages, said.tasks) == ([], [])
    changes = [(topic, message["what"]) for topic, message in said.messages if message["type"] == "changed"]
    assert changes == [("cluster", ["jobs", "feed"]), ("run-8", ["state"])]
    assert said.about("stream-local") == [{"type": "apply"}]


@pytest.mark.django_db(transaction=True)
def test_what_was_committed_is_said_although_something_went_wrong_afterwards(said: SentMessages, alice: User) -> None:
    with pytest.raises(RuntimeError), notify.together():
        notify.changed("cluster", "jobs")
        raise RuntimeError
    assert [topic for topic, _ in said.messages] == ["cluster"]
    notify.changed("cluster", "feed")
    assert len(said.messages) == 2, "and nothing is kept back from then on"


@pytest.mark.django_db(transaction=True)
def test_a_task_that_waits_is_not_asked_for_again_until_it_begins(said: SentMessages, run: TrainingRun, alice: User) -> None:
    """Fifty runs announce their journals ten times a second; the scheduler is nudged by everybody."""
    said.clear()
    for _ in range(5):
        notify.nudge_ingest(run.pk)
        notify.nudge_ingest(run.pk + 1)
        notify.nudge_schedule()
    assert said.tasks == [
        ("experiments.tasks.ingest_run", (run.pk,), "ingest"),
        ("experiments.tasks.ingest_run", (run.pk + 1,), "ingest"),
        ("experiments.tasks.schedule", (), "control"),
    ]
    tasks.ingest_run(run.pk)
    tasks.schedule()
    said.tasks.clear()
    for _ in range(2):
        notify.nudge_ingest(run.pk)
        notify.nudge_ingest(run.pk + 1)
        notify.nudge_schedule()
    assert said.task_names() == ["ingest_run", "schedule"], "those that have begun may be asked for again, the other one still waits"


@pytest.mark.django_db(transaction=True)
def test_what_is_asked_for_while_a_task_is_at_work_is_done_after_it(
    said: SentMessages, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have looked already."""
    monkeypatch.setattr(scheduling, "tick", lambda now: notify.nudge_schedule())
    said.clear()
    notify.nudge_schedule()
    tasks.schedule()
    assert said.task_names()[:2] == ["schedule", "schedule"]


def test_a_server_that_does_not_answer_is_asked_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and says nothing, as one behind a route that drops everything: twenty messages do not wait one by one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = {"host": f"redis://127.0.0.1:{silent.getsockname()[1]}/0", "prefix": "edt"}
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": "experiments.live.page_layer.PageLayer", "CONFIG": address}}
        monkeypatch.setattr(notify, "_failed_at", {})
        monkeypatch.setattr(notify, "PAUSE_S", 3600.0)
        for number in range(20):
            notify.changed(f"run-{number}", "state")
        silent.setblocking(False)
        asked = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
        assert 1 <= asked <= 2, "once, and once more on a fresh connection"


@pytest.mark.django_db(transaction=True)
def test_points_are_told_with_their_journal_lines(said: SentMessages, run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1, loss=0.5))
    said.clear()
    ingest.catch_up(run.pk, now=NOW)
    (message,) = said.about(f"run-{run.pk}", "points")
    assert set(message) == {"type", "topic", "after", "seq", "points", "progress"}
    assert (message["after"], message["seq"]) == (0, 2)
    group, name, step, t, value, workers, epoch = message["points"][0]
    assert (group, name, step, value, workers, epoch) == ("train", "loss", 1, 0.5, 4, 1)
    assert t > 1e9


@pytest.mark.django_db(transaction=True)
def test_members_are_told_of_members(said: SentMessages, project: Project, alice: User, charlie: User) -> None:
    said.clear()
    services.add_member(project, by=alice, username="charlie", role=Role.VIEWER)
    assert said.about(f"project-{project.pk}") == [{"type": "changed", "topic": f"project-{project.pk}", "what": ["members"]}]
