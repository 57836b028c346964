"""Which checkpoints a policy keeps: the decision alone, then with the files of a run. What it does not name stays."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.files import checkpoint_policy, pruning, retention, runfiles
from experiments.files.checkpoint_policy import Policy, Saved, decide, is_checkpoint
from experiments.metrics import ingest
from experiments.models import DroppedCheckpoint, ModelVersion, Project, RegisteredModel, Tombstone, TrainingRun, User
from experiments.ops import installation
from experiments.selectors import checkpoints
from tests import cast
from training_runtime import journal, journal_writer

VALUES = (0.9, 0.4, 0.2, 0.3, 0.5)  # of test loss after each epoch


def saved(*values: float | None) -> list[Saved]:
    return [Saved(10 * n, n, (f"model/train/model_epoch_{n}.pth",), 1, value) for n, value in enumerate(values, 1)]


def gone(found: list[Saved], policy: Policy, held: tuple[str, ...] = ()) -> list[int]:
    return [each.saved.epoch for each in decide(found, policy, held=held)]


@pytest.mark.parametrize(
    ("policy", "removed"),
    [
        (Policy(), []),
        (Policy(last=9), []),
        (Policy(last=2), [1, 2, 3]),
        (Policy(last=1, best=1, metric="test loss"), [1, 2, 4]),
        (Policy(last=1, best=2, metric="test loss"), [1, 2]),
        (Policy(last=1, best=1, metric="test loss", greatest=True), [2, 3, 4]),
    ],
)
def test_the_last_and_the_best_stay(policy: Policy, removed: list[int]) -> None:
    assert gone(saved(*VALUES), policy) == removed


def test_what_has_no_value_is_never_the_best_and_of_equal_ones_the_earlier_is() -> None:
    assert gone(saved(None, 0.2, 0.2, None, 0.9), Policy(last=1, best=1, metric="test loss")) == [1, 3, 4]
    assert gone(saved(None, None, None), Policy(last=1, best=2, metric="test loss")) == [1, 2]


def test_the_last_complete_one_stays_and_one_that_is_not_complete_is_not_touched() -> None:
    found = saved(*VALUES)
    found[4] = Saved(50, 5, found[4].paths, 1, 0.1, complete=False)
    assert gone(found, Policy(last=1)) == [1, 2, 3]
    assert gone(found, Policy(last=1, best=1, metric="test loss")) == [1, 2], "a broken one is not the best either"


def test_what_something_refers_to_stays() -> None:
    assert gone(saved(*VALUES), Policy(last=1), held=("model/train/model_epoch_2.pth",)) == [1, 3, 4]


@pytest.mark.parametrize(
    ("paths", "is_one"),
    [
        (("model/train/model_epoch_3.pth", "model/train/model_epoch_3_optimizer_state.pth"), True),
        (("model/train/model_epoch_3.keras",), True),
        (("model/train/model_epoch_final.pth",), False),
        (("model/train/model_epoch_3.pth", "model/train/model_epoch_4.pth"), False),
        (("checkpoint/engine.pt",), False),
        (("model/train/model_epoch_3.pth", "journal.jsonl"), False),
        (("model/train/../model_epoch_3.pth",), False),
        ((), False),
    ],
)
def test_only_files_of_one_epoch_are_a_checkpoint(paths: tuple[str, ...], is_one: bool) -> None:
    assert is_checkpoint(paths) is is_one
    assert not is_checkpoint(paths, epoch=9)


def put(run: TrainingRun, *paths: str) -> None:
    for name in paths:
        path = runfiles.make(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"xyz")


def epoch(number: int, loss: float) -> list[journal.Event]:
    """What the engine says at its end."""
    stem, step = f"model/train/model_epoch_{number}", 10 * number
    return [
        cast.step(step, epoch=number),
        journal.Test(step, number, {"loss": loss}, 4),
        journal.Checkpoint(step, number, "model", (f"{stem}.pth", f"{stem}_optimizer_state.pth"), 6),
        journal.Checkpoint(step, number, "engine", ("checkpoint/engine.pt",), 3),
    ]


OTHERS = ("model/train/model_epoch_final.pth", "model/train/model_epoch_1.onnx", "checkpoint/engine.pt", "model_epoch_1.pth", "notes.txt")


@pytest.fixture
def run(project: Project, alice: User, home: Path) -> TrainingRun:
    """Five epochs of a run that lives."""
    installation.bind()
    made = cast.run(project, by=alice)
    put(made, *OTHERS, *(f"model/train/model_epoch_{n}{end}.pth" for n in range(1, 6) for end in ("", "_optimizer_state")))
    cast.write_journal(made, cast.started(), *(each for n, loss in enumerate(VALUES, 1) for each in epoch(n, loss)))
    ingest.catch_up(made.pk, now=timezone.now())
    return made


def files(run: TrainingRun) -> set[str]:
    top = runfiles.folder(run)
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


def of_epochs(*numbers: int) -> set[str]:
    return {f"model/train/model_epoch_{n}{end}.pth" for n in numbers for end in ("", "_optimizer_state")}


def test_a_policy_removes_what_it_says_and_nothing_else(run: TrainingRun, alice: User) -> None:
    before, now = files(run), timezone.now()
    services.set_checkpoints(run, by=alice, policy=Policy(1, 1, "test loss"), now=now)
    pruning.clear(now)
    assert before - files(run) == of_epochs(1, 2, 4)
    trash = runfiles.folder(run).parent / pruning.TRASH
    assert {path.name for path in trash.rglob("*.pth")} == {path.rpartition("/")[2] for path in of_epochs(1, 2, 4)}, "kept for a while"
    pruning.clear(now + dt.timedelta(days=30))
    assert not list(trash.iterdir())
    assert before - files(run) == of_epochs(1, 2, 4)
    assert [each.epoch for each in DroppedCheckpoint.objects.filter(run=run)] == [1, 2, 4]
    assert not Tombstone.objects.filter(emptied_at=None).exists()


def test_the_run_says_what_was_removed_and_why(run: TrainingRun, alice: User) -> None:
    services.set_checkpoints(run, by=alice, policy=Policy(1, 1, "test loss"))
    said = [each.message for each in checkpoints.events(run, run.events.order_by("-seq"), limit=500) if each.kind == "removed"]
    assert "Removed the model files of step 40. The policy keeps the last checkpoint and the one with the lowest test loss." in said
    assert run.transitions.filter(reason__startswith="alice changed which checkpoints are kept").count() == 1


def test_what_comes_later_is_kept_and_removed_as_it_comes(run: TrainingRun, alice: User) -> None:
    services.set_checkpoints(run, by=alice, policy=Policy(last=2))
    put(run, *of_epochs(6))
    writer = journal_writer.Writer(runfiles.folder(run) / journal.FILE_NAME, run.pk)
    for each in epoch(6, 0.1):
        writer.write(each)
    writer.close()
    ingest.catch_up(run.pk, now=timezone.now())
    pruning.clear(timezone.now())
    assert files(run) >= of_epochs(5, 6) | set(OTHERS)
    assert not files(run) & of_epochs(1, 2, 3, 4)
    assert retention.apply(TrainingRun.objects.get(pk=run.pk), now=timezone.now()) == 0, "done again, it does nothing"


@pytest.mark.parametrize("named", ["model/train/model_epoch_2.pth", "model/train/model_epoch_2_optimizer_state.pth"])
def test_what_a_model_was_made_of_stays(named: str, run: TrainingRun, alice: User, project: Project) -> None:
    model = RegisteredModel.objects.create(project=project, name="digits", created_by=alice, created_at=timezone.now())
    ModelVersion.objects.create(model=model, number=1, run=run.pk, path=named, created_by=alice, created_at=timezone.now())
    services.set_checkpoints(run, by=alice, policy=Policy(last=1))
    pruning.clear(timezone.now())
    assert files(run) == of_epochs(2, 5) | set(OTHERS) | {journal.FILE_NAME}


def test_a_link_in_the_place_of_a_file_is_not_followed(run: TrainingRun, alice: User, tmp_path: Path) -> None:
    services.set_checkpoints(run, by=alice, policy=Policy(last=4))
    theirs = tmp_path / "theirs.pth"
    theirs.write_text("not ours")
    place = runfiles.folder(run) / "model/train/model_epoch_1.pth"
    place.unlink()
    place.symlink_to(theirs)
    pruning.clear(timezone.now())
    assert theirs.read_text() == "not ours"
    assert place.is_symlink()


def test_files_that_have_changed_since_are_the_scripts_own(run: TrainingRun, alice: User) -> None:
    (runfiles.folder(run) / "model/train/model_epoch_1.pth").write_bytes(b"something else")
    services.set_checkpoints(run, by=alice, policy=Policy(last=1))
    pruning.clear(timezone.now())
    assert of_epochs(1, 5) <= files(run)


def test_nothing_is_removed_of_a_run_that_has_ended_or_has_no_policy(run: TrainingRun, alice: User) -> None:
    assert not DroppedCheckpoint.objects.exists()
    services.set_checkpoints(run, by=alice, policy=Policy())
    services.stop_run(run, by=alice)
    with pytest.raises(DomainError, match="has ended"):
        services.set_checkpoints(run, by=alice, policy=Policy(last=1))
    assert not DroppedCheckpoint.objects.exists()


def test_the_best_checkpoint_is_that_of_the_policy_or_of_the_usual_metric(run: TrainingRun, alice: User) -> None:
    best = checkpoints.best(run)
    assert best is not None
    assert (best.epoch, best.metric, best.value) == (3, "test loss", 0.2)
    run = services.set_checkpoints(run, by=alice, policy=Policy(5, 1, "test loss", greatest=True))
    best = checkpoints.best(run)
    assert best is not None
    assert (best.epoch, best.value, best.greatest) == (1, 0.9, True)


@pytest.mark.parametrize("policy", [Policy(1, 1), Policy(1, 1, "loss"), Policy(0, 2, "test loss"), Policy(5000), Policy(-1)])
def test_a_policy_that_makes_no_sense_is_refused(policy: Policy, run: TrainingRun, alice: User) -> None:
    with pytest.raises(DomainError):
        services.set_checkpoints(run, by=alice, policy=policy)
    assert files(run) >= of_epochs(1, 2, 3, 4, 5)


def test_runs_begin_with_the_policy_of_their_experiment_and_keep_it(project: Project, alice: User) -> None:
    version = cast.definition(project, by=alice)
    policy = Policy(2, 1, "test accuracy", greatest=True)
    made = services.create_experiment(project, by=alice, name="kept", versions=[version], keeps=policy)
    (run,) = services.run_experiment(made, by=alice)
    (copy,) = services.run_experiment(services.duplicate_experiment(made, by=alice), by=alice)
    assert checkpoint_policy.policy_of(run.checkpoints) == policy == checkpoint_policy.policy_of(copy.checkpoints)
