"""Scripts write figures beside a bar before and after it moves, and all of a test at one step: a curve has one value at each, the one that
the script means."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from tqdm import tqdm

from training_runtime.elastic.script_logs.event_folders import Figure
from training_runtime.elastic.script_logs.held_figures import HOLD_S, QUIET_S
from training_runtime.elastic.script_logs.printed_figures import OVER_S, PrintedFigures
from training_runtime.progress import Progress

STEPS = 6
Look = Callable[[], None]
Script = Callable[[io.TextIOBase, Look], None]


def moved_then_said(log: io.TextIOBase, computes: Look) -> None:
    with tqdm(total=STEPS, file=log, mininterval=0) as bar:
        for step in range(1, STEPS + 1):
            computes()
            bar.update()
            bar.set_description(f"average reward={step: 4.2f} (init= 1.00)")


def said_then_moved(log: io.TextIOBase, computes: Look) -> None:
    with tqdm(range(STEPS), file=log, mininterval=0) as bar:
        for step in bar:
            computes()
            bar.set_postfix(loss=f"{step + 1:.2f}")


def watched(root: Path, script: Script, *, step_s: float) -> list[Figure]:
    """What is read of the script that takes `step_s` for a step, looked at each second and at its end."""
    path = root / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    found: list[Figure] = []
    now, follower = [0.0], PrintedFigures(root, {})
    with path.open("w") as log:

        def compute() -> None:
            log.flush()
            for _ in range(max(1, round(step_s))):
                now[0] += min(step_s, 1.0)
                if follower.due(now[0]):
                    found.extend(follower.read(now=now[0], all_of_it=False))

        script(log, compute)
    return [*found, *follower.read(now=now[0] + 1, all_of_it=True)]


@pytest.mark.parametrize("step_s", [0.01, 0.3, 60.0])
def test_what_is_said_when_a_bar_has_moved_is_of_the_step_that_it_moved_to(tmp_path: Path, step_s: float) -> None:
    found = watched(tmp_path, moved_then_said, step_s=step_s)
    rewards = [(each.step, each.value) for each in found if each.name == "average reward"]
    assert rewards == [(step, float(step)) for step in range(1, STEPS + 1)]


@pytest.mark.parametrize("step_s", [0.01, 60.0])
def test_what_is_said_before_a_bar_moves_has_each_value_once_and_the_last_one_last(tmp_path: Path, step_s: float) -> None:
    found = [(each.step, each.value) for each in watched(tmp_path, said_then_moved, step_s=step_s)]
    steps = [step for step, _ in found]
    assert steps == sorted({*steps})
    assert [value for _, value in found][-1] == STEPS
    assert {value for _, value in found} == set(range(1, STEPS + 1))
    assert all(abs(value - step) <= 1 for step, value in found)


def screen(steps: int, label: str) -> bytes:
    """What tqdm leaves on a screen where each epoch has a bar of its own."""
    drawn = io.StringIO()
    for epoch in (1, 2):
        with tqdm(range(steps), file=drawn, mininterval=0, desc=label.format(epoch)) as bar:
            for step in bar:
                bar.set_postfix(loss=f"{1 / ((epoch - 1) * steps + step + 1):.3f}", v_num=0)
    return drawn.getvalue().encode()


@pytest.mark.parametrize("label", ["", "Epoch {}"])
def test_figures_beside_a_bar_are_figures(tmp_path: Path, label: str):
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(screen(5, label))
    found = PrintedFigures(tmp_path, {}).read(now=0.0, all_of_it=True)
    latest = {each.step: each.value for each in found}
    assert {each.name for each in found} == {"loss"}
    assert [*latest] == [*range(11)]
    assert (latest[4], latest[10]) == (0.2, 0.1)


def test_of_a_validations_bar_the_value_at_its_end_counts_however_long_it_takes(tmp_path: Path) -> None:
    def script(log: io.TextIOBase, computes: Look) -> None:
        for epoch in (1, 2):
            for said, batches in (("train", 4), ("val", 3)):
                with tqdm(range(batches), file=log, mininterval=0, desc=f"Epoch {epoch} {said}") as bar:
                    for batch in bar:
                        computes()
                        bar.set_postfix({f"{said}_loss": f"{10 * epoch + batch:.2f}"})

    found = watched(tmp_path, script, step_s=2 * HOLD_S)
    assert [(each.step, each.value) for each in found if each.name == "val_loss"] == [(4, 12.0), (8, 22.0)]
    trained = [each.step for each in found if each.name == "train_loss"]
    assert trained == sorted({*trained})


@pytest.mark.parametrize(("label", "steps"), [("Validation", [0, 1, 2]), ("Epoch {} validation", [1, 2, 3])])
@pytest.mark.parametrize("batches", [1, 3])
def test_validations_are_counted_where_nothing_is_printed_of_the_training(
    tmp_path: Path, label: str, steps: list[int], batches: int
) -> None:
    def script(log: io.TextIOBase, computes: Look) -> None:
        for epoch in (1, 2, 3):
            with tqdm(range(batches), file=log, mininterval=0, desc=label.format(epoch)) as bar:
                for batch in bar:
                    computes()
                    bar.set_postfix(val_loss=f"{10 * epoch + batch:.2f}")

    found = watched(tmp_path, script, step_s=2 * HOLD_S)
    assert [(each.group, each.step, each.value) for each in found] == [
        ("test", step, 10.0 * epoch + batches - 1) for epoch, step in enumerate(steps, 1)
    ]


def test_of_a_validations_bar_that_is_done_nothing_is_kept_back(tmp_path: Path) -> None:
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("epoch 1 loss 0.5\n\rval_loss=0.75:  50%|#####     | 1/2 [01:00<01:00, 60.0s/it]")
    follower = PrintedFigures(tmp_path, {})

    def read(now: float) -> list[tuple[str, float]]:
        return [(each.name, each.value) for each in follower.read(now=now, all_of_it=False)]

    assert read(0.0) == [("loss", 0.5)]
    assert read(10 * HOLD_S) == [], "of a half"
    with path.open("a") as log:
        log.write(
            "\rval_loss=0.75: 100%|##########| 2/2 [02:00<00:00, 60.0s/it]\rval_loss=0.25: 100%|##########| 2/2 [02:00<00:00, 60.0s/it]"
        )
    assert read(20 * HOLD_S) == []
    assert read(21 * HOLD_S) == [("val_loss", 0.25)]


def test_a_bar_is_shown_at_once_although_nothing_has_been_drawn_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("\rloss=0.75:  10%|#         | 1/10 [01:00<09:00, 60.0s/it]")
    follower = PrintedFigures(tmp_path, {})
    assert follower.read(now=0.0, all_of_it=False) == []
    assert [(each.name, each.step, each.value) for each in follower.read(now=HOLD_S, all_of_it=False)] == [("loss", 1, 0.75)]
    assert follower.read(now=2 * HOLD_S, all_of_it=True) == []


def test_of_all_that_a_test_prints_the_last_counts(tmp_path: Path) -> None:
    """As PyTorch's example of ImageNet does it."""
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    follower = PrintedFigures(tmp_path, {})

    def read(now: float, *lines: str) -> list[tuple[str, str, int, float]]:
        with path.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)
        return [(each.group, each.name, each.step, each.value) for each in follower.read(now=now, all_of_it=False)]

    trained = "Epoch: [{}][20/20]\tLoss 6.0 (6.5)\tAcc@1   1.00 (  0.75)"
    assert read(0.0, trained.format(0)) == [("train", "Loss", 20, 6.0), ("train", "Acc@1", 20, 1.0)]
    assert read(1.0, "Test: [ 0/10]\tLoss 5.0 (5.5)\tAcc@1   2.00 (  1.50)") == []
    assert read(9.0, "Test: [ 5/10]\tLoss 4.0 (4.5)\tAcc@1   4.00 (  3.50)") == []
    tested = [("test", "Loss", 20, 4.5), ("test", "Acc@1", 20, 1.75), ("test", "Acc@5", 20, 4.5)]
    assert read(12.0, " *   Acc@1 1.750 Acc@5 4.500") == []
    assert read(20.0, trained.format(1)) == [*tested, ("train", "Loss", 40, 6.0), ("train", "Acc@1", 40, 1.0)]
    assert read(21.0, "Test: [ 0/10]\tLoss 5.0 (5.5)") == []
    assert read(22.0 + QUIET_S) == [("test", "Loss", 40, 5.5)], "nobody waits for ever"


def test_what_another_test_comes_to_at_a_step_is_not_hidden(tmp_path: Path) -> None:
    """Several trainings of an epoch each: a curve takes one, and people are told that there is more."""
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"epoch 1 loss 0.{fold}\nepoch 1 val_acc 0.{fold}\n" for fold in (1, 2)))
    found = PrintedFigures(tmp_path, {}).read(now=0.0, all_of_it=True)
    assert [(each.name, each.step, each.value) for each in found if each.group == "test"] == [("val_acc", 1, 0.1), ("val_acc", 1, 0.2)]
    bar = "\rval_acc={}: 100%|##########| {}/2 [00:02<00:00, 1.0it/s]"
    path.write_text("".join(bar.format(value, count) for value, count in [(0.1, 1), (0.2, 2), (0.3, 1), (0.4, 2)]))
    found = PrintedFigures(tmp_path, {}).read(now=0.0, all_of_it=True)
    assert [each.value for each in found] == [0.2, 0.4]


def test_beside_a_bar_of_epochs_a_validation_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("\r 10%|#         | 1/10 [1:00:00<9:00:00, 3600s/it, loss=0.5, val_loss=0.75]")
    follower = PrintedFigures(tmp_path, {})
    assert follower.read(now=0.0, all_of_it=False) == []
    found = follower.read(now=HOLD_S, all_of_it=False)
    assert [(each.group, each.step, each.value) for each in found] == [("train", 1, 0.5), ("test", 1, 0.75)]


def test_a_bar_that_is_done_is_forgotten_when_figures_come_long_after_it(tmp_path: Path) -> None:
    path = tmp_path / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("\rPreprocessing: 100%|##########| 10/10 [00:10<00:00, 1.0s/it]")
    follower = PrintedFigures(tmp_path, {})

    def told(now: float, figures_at: float) -> Progress | None:
        follower.read(now=now, all_of_it=False)
        return follower.progress(now=now, all_of_it=False, figures_at=figures_at)

    assert told(10.0, 5.0) == Progress(10, 10, 0.0, "Preprocessing")
    assert told(20.0, 5.0) is None, "nothing else has been drawn"
    assert told(100.0, 10.0 + OVER_S - 1) is None, "figures of its own"
    assert told(100.0, 10.0 + OVER_S) == Progress(0, 0, None, "")
    assert told(200.0, 200.0) is None, "once"
    with path.open("a") as log:
        log.write("\rTrain:  10%|#         | 1/10 [00:10<01:30, 10.0s/it]\n")
    assert told(210.0, 210.0) == Progress(1, 10, 90.0, "Train")
    assert told(300.0, 300.0) is None, "it is not done"
