"""A run's checkpoints on its pages and by the API: which is the best, which are kept, and who may say so."""

from __future__ import annotations

import uuid

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.files import checkpoint_policy, runfiles
from experiments.files.checkpoint_policy import Policy
from experiments.metrics import ingest
from experiments.models import DroppedCheckpoint, Experiment, Project, TrainingRun, User
from tests import cast
from tests.web.conftest import As
from training_runtime import journal

SENT = {"keep_last": "1", "keep_best": "1", "keep_metric": "test loss", "keep_side": "min"}


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    """Three epochs, of which the second is the best."""
    made, said = cast.run(project, by=alice), [cast.started()]
    for number, loss in enumerate((0.9, 0.25, 0.5), 1):
        path = f"model/train/model_epoch_{number}.pth"
        place = runfiles.make(made) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"xyz")
        said += [
            cast.step(number),
            journal.Test(number, number, {"loss": loss}, 4),
            journal.Checkpoint(number, number, "model", (path,), 3),
        ]  # type: ignore[list-item]
    cast.write_journal(made, *said)
    ingest.catch_up(made.pk, now=timezone.now())
    return made


def removed(run: TrainingRun) -> list[int]:
    return [each.epoch for each in DroppedCheckpoint.objects.filter(run=run)]


def policy(run: TrainingRun) -> Policy:
    return checkpoint_policy.policy_of(TrainingRun.objects.get(pk=run.pk).checkpoints)


def test_the_best_checkpoint_is_marked_with_its_metric_and_value(run: TrainingRun, victor: User, as_: As) -> None:
    shown = as_(victor).get(reverse("run_results", args=[run.pk])).content.decode()
    assert shown.count(">Best</span>") == 1
    row = next(row for row in shown.split("<tr") if ">Best</span>" in row)
    assert "model_epoch_2.pth" in row
    assert "<bdi>test loss</bdi> 0.25, the lowest" in shown
    assert "<bdi>test loss</bdi> 0.25, the lowest" in as_(victor).get(reverse("run", args=[run.pk])).content.decode()


def test_an_editor_says_which_are_kept(run: TrainingRun, bob: User, as_: As) -> None:
    client = as_(bob)
    assert 'id="checkpoints-form"' in client.get(reverse("run", args=[run.pk])).content.decode()
    assert 'id="checkpoints-form"' in client.get(reverse("change_run", args=[run.pk])).content.decode()
    assert client.post(reverse("set_checkpoints", args=[run.pk]), SENT).url == reverse("run", args=[run.pk])
    assert policy(run) == Policy(1, 1, "test loss")
    assert removed(run) == [1]
    shown = client.get(reverse("run", args=[run.pk])).content.decode()
    assert "keeps the last checkpoint and the one with the lowest test loss" in shown
    assert "Checkpoint removed" in shown and "Removed the model files of step 1." in shown
    client.post(reverse("set_checkpoints", args=[run.pk]), SENT)
    assert removed(run) == [1], "sent again, nothing changes"
    client.post(reverse("set_checkpoints", args=[run.pk]), {"keep_last": "", "keep_best": "", "keep_metric": ""})
    assert policy(run).keeps_all


def test_viewers_and_strangers_may_not(run: TrainingRun, victor: User, charlie: User, dora: User, as_: As) -> None:
    address = reverse("set_checkpoints", args=[run.pk])
    assert as_(victor).post(address, SENT).status_code == 403
    assert as_(charlie).post(address, SENT).status_code == 404
    assert as_(dora).post(address, SENT).status_code == 404, "an administrator of the cluster controls slots, not results"
    assert 'id="checkpoints-form"' not in as_(dora).get(reverse("change_run", args=[run.pk])).content.decode()
    assert 'id="checkpoints-form"' not in as_(victor).get(reverse("run", args=[run.pk])).content.decode()
    assert policy(run).keeps_all


@pytest.mark.parametrize("wrong", [{"keep_last": "0"}, {"keep_best": "x"}, {"keep_metric": "loss"}, {"keep_metric": ""}, {"keep_last": ""}])
def test_what_makes_no_sense_is_said_and_removes_nothing(wrong: dict[str, str], run: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    answer = client.post(reverse("set_checkpoints", args=[run.pk]), SENT | wrong, headers={"HX-Request": "true"})
    assert '"kind": "error"' in answer["HX-Trigger"]
    assert policy(run).keeps_all
    assert removed(run) == []


def test_the_api_shows_and_sets_the_same(run: TrainingRun, bob: User, victor: User, as_: As) -> None:
    address = f"/api/v1/runs/{run.pk}/checkpoints"
    said = as_(victor).get(address).json()
    assert said["best"]["epoch"] == 2
    assert [each["complete"] for each in said["items"]] == [True] * 3
    wanted = {"last": 1, "best": 1, "metric": "test loss"}
    assert as_(victor).put(address, wanted, content_type="application/json").status_code == 403
    said = as_(bob).put(address, wanted, content_type="application/json").json()
    assert said["policy"] == wanted | {"greatest": False}
    assert [bool(each["removed"]) for each in said["items"]] == [True, False, False]
    refused = as_(bob).put(address, {"last": 1, "best": 1}, content_type="application/json")
    assert (refused.status_code, "keep_metric" in refused.json()["errors"]) == (400, True)


def test_an_experiment_is_made_with_a_policy_for_its_runs(project: Project, bob: User, as_: As) -> None:
    version = cast.definition(project, by=bob)
    sent = {
        "idempotency_key": str(uuid.uuid4()),
        "name": "kept",
        "versions": str(version.pk),
        "command-" + str(version.pk): "main.py",
        **SENT,
    }
    address = reverse("new_experiment", args=[project.pk])
    assert "Checkpoints to keep" in as_(bob).get(address).content.decode()
    wrong = as_(bob).post(address, sent | {"keep_metric": "loss"})
    assert "Name the metric that says which are best" in wrong.content.decode()
    assert as_(bob).post(address, sent).status_code == 302
    made = Experiment.objects.get(name="kept")
    assert checkpoint_policy.policy_of(made.checkpoints) == Policy(1, 1, "test loss") == policy(made.runs.get())
    assert as_(bob).get(f"/api/v1/experiments/{made.pk}").json()["checkpoints"]["best"] == 1
