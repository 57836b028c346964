"""A run that continues from the checkpoint of another one: who may, from what, and that the node host is told."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.cluster import desired, scheduling
from experiments.errors import DomainError
from experiments.files import runfiles
from experiments.models import RunState, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As


@pytest.fixture
def ended(project: Any, alice: User, said: SentMessages) -> TrainingRun:
    """A stopped run that has left a checkpoint."""
    run = cast.run(project, by=alice, max_slots=2)
    TrainingRun.objects.filter(pk=run.pk).update(state=RunState.STOPPED, ended_at=timezone.now())
    folder = runfiles.make(run) / "checkpoint"
    folder.mkdir()
    (folder / "engine.pt").write_bytes(b"state")
    return TrainingRun.objects.select_related("version__bundle", "experiment").get(pk=run.pk)


def test_the_node_host_is_told_where_the_run_begins(ended: TrainingRun, alice: User) -> None:
    run = services.continue_run(ended, by=alice, command="python main.py --epochs 9")
    assert (run.state, run.command, run.max_slots, run.continues) == ("queued", "python main.py --epochs 9", 2, ended.pk)
    assert run.version == ended.version
    node = cast.node(slots=2)
    scheduling.tick(timezone.now())
    spec = desired.desired_state(node, now=timezone.now()).runs[0].spec
    assert (spec.run, spec.continue_from) == (run.pk, str(runfiles.folder(ended)))
    assert runfiles.folder(run).parent == runfiles.folder(ended).parent


def test_the_same_form_sent_twice_makes_one_run(ended: TrainingRun, alice: User) -> None:
    request = uuid.uuid4()
    made = {services.continue_run(ended, by=alice, idempotency_key=request).pk for _ in range(2)}
    assert len(made) == 1


def test_a_live_run_and_one_without_a_checkpoint_are_not_continued(ended: TrainingRun, project: Any, alice: User) -> None:
    with pytest.raises(DomainError, match="has not ended"):
        services.continue_run(cast.run(project, by=alice, name="live"), by=alice)
    with pytest.raises(DomainError):
        services.continue_run(ended, by=alice, command="nothing.py")
    checkpoint = runfiles.folder(ended) / "checkpoint" / "engine.pt"
    checkpoint.unlink()
    checkpoint.symlink_to("/etc/passwd")
    with pytest.raises(DomainError, match="no checkpoint"):
        services.continue_run(ended, by=alice)


def test_what_another_run_waits_for_is_not_deleted(ended: TrainingRun, alice: User) -> None:
    run = services.continue_run(ended, by=alice)
    with pytest.raises(DomainError, match="has not begun"):
        services.delete_run(ended, by=alice)
    services.stop_run(run, by=alice)
    services.delete_run(ended, by=alice)
    assert not TrainingRun.objects.filter(pk=ended.pk).exists()


def test_the_results_page_offers_it_to_those_who_may(ended: TrainingRun, alice: User, as_: As) -> None:
    results, address = reverse("run_results", args=[ended.pk]), reverse("continue_run", args=[ended.pk])
    assert address in as_(alice).get(results).content.decode()
    assert address not in as_(User.objects.get(username="victor")).get(results).content.decode()
    sent = {"command": "python main.py --epochs 3", "idempotency_key": str(uuid.uuid4())}
    answer = as_(alice).post(address, sent)
    made = TrainingRun.objects.get(continues=ended.pk)
    assert answer.url == reverse("run", args=[made.pk])
    assert f"run {ended.pk}</a>, from its last checkpoint" in as_(alice).get(reverse("run_overview", args=[made.pk])).content.decode()
    refused = as_(alice).post(address, {**sent, "command": "nothing.py", "idempotency_key": str(uuid.uuid4())}, follow=True)
    assert "note-error" in refused.content.decode()
