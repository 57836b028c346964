"""Figures that a script writes into evaluation-metrics.txt are in the journal, and so on the charts: of any script, live, each once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from training_runtime import media
from training_runtime.elastic.script_logs import logged as follower
from training_runtime.elastic.script_logs.logged import MEASURED, PLACE, ScriptMetrics
from training_runtime.journal import follow
from training_runtime.journal_writer import Writer

PLAIN = """
import os, sys, time
from emetrics import EMetrics
with EMetrics.open() as metrics:
    for step in range(1, 4):
        metrics.record(EMetrics.TRAIN_GROUP, step, {"loss": 1.0 / step, "note": "words"})
    while os.path.exists(os.environ["RESULT_DIR"] + "/stay"):
        time.sleep(0.005)
    metrics.record("validation", 0, {"f1": 0.5})
    print("not a record", file=metrics._file, flush=True)
    print('{"grouplabel": "train", "etimes": [], "meta": 7}', file=metrics._file, flush=True)
    metrics.record(EMetrics.TRAIN_GROUP, 4, {"loss": float("nan")})
sys.exit(int(sys.argv[1]))
"""


def logged(run) -> list[tuple]:
    return [(e.group, e.step, *e.metrics) for e in run.events("logged")]


def test_a_plain_script_is_followed_while_it_runs_and_to_its_end(start, tmp_path):
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    run = start(PLAIN, "0")
    run.until(lambda: len(run.events("logged")) == 3, what="three figures while the script runs")
    assert run.events("finished") == []
    (run.result_dir / "stay").unlink()
    assert run.wait() == 0, run.tail()
    assert logged(run) == [("train", 1, "loss"), ("train", 2, "loss"), ("train", 3, "loss"), ("test", 3, "f1"), ("train", 4, "loss")]
    (finished,) = run.events("finished")
    assert (finished.outcome, finished.step) == ("completed", 4)
    assert finished.metrics["test f1"] == 0.5


def test_a_script_that_fails_has_all_that_it_logged(start):
    run = start(PLAIN, "3")
    assert run.wait() == 3
    assert len(run.events("logged")) == 5
    assert run.events("finished")[-1].outcome == "failed"


def test_a_driver_after_a_crash_goes_on_in_the_file(start, tmp_path):
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    run = start(PLAIN, "0")
    place = run.result_dir / "checkpoint" / PLACE
    run.until(lambda: len(run.events("logged")) == 3 and place.exists(), what="three figures, and the place where they end")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    (run.result_dir / "stay").unlink()
    run.again()
    assert run.wait() == 0, run.tail()
    assert len(run.events("logged")) == 3 + 5, "what the second attempt wrote, and nothing of the first again"


OWN = """
from emetrics import EMetrics
class Driver:
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        with EMetrics.open() as file:
            file.record(EMetrics.TEST_GROUP, iteration, {"loss": metrics["loss"]})
            file.record(EMetrics.TRAIN_GROUP, iteration, {"loss": metrics["loss"], "twice": 2 * metrics["loss"]})
"""


def test_of_a_script_that_trains_what_the_engine_does_not_measure_itself(start):
    run = start(OWN + SMALL.replace("optimizer).train", "optimizer, driver_logger=Driver()).train"), "--epochs", "1")
    run.members(0)
    assert run.wait() == 0, run.tail()
    steps = len(run.events("train"))
    assert {(e.group, *e.metrics) for e in run.events("logged")} == {("train", "twice")}
    assert len(run.events("logged")) == steps
    assert run.events("finished")[-1].step == steps


TENSORBOARD = """
import os, sys, time
from pathlib import Path
data, result = Path(sys.argv[1]).read_bytes(), Path(os.environ["RESULT_DIR"])
folder = result / "runs" / str(os.getpid())
folder.mkdir(parents=True)
with open(folder / "events.out.tfevents.1", "ab", buffering=0) as file:
    file.write(data[:-7])
    while (result / "stay").exists():
        time.sleep(0.005)
    file.write(data[-7:])
"""


@pytest.fixture
def events(tmp_path):
    """A file as TensorBoard's own writer makes it."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "events")) as writer:
        for step in range(1, 4):
            writer.add_scalar("Loss", 1.0 / step, step)
        writer.add_scalar("Accuracy/val", 0.5, 3)
    (file,) = (tmp_path / "events").iterdir()
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    return file


def test_a_script_that_writes_for_tensorboard_has_charts_while_it_runs(start, events):
    run = start(TENSORBOARD, str(events))
    run.until(lambda: len(run.events("logged")) == 3, what="three figures while the script runs")
    (run.result_dir / "stay").unlink()
    assert run.wait() == 0, run.tail()
    assert logged(run) == [("train", 1, "Loss"), ("train", 2, "Loss"), ("train", 3, "Loss"), ("test", 3, "Accuracy/val")]
    (finished,) = run.events("finished")
    assert (finished.step, finished.metrics["test Accuracy/val"]) == (3, 0.5)


def test_a_driver_after_a_crash_goes_on_in_event_files_too(start, events):
    run = start(TENSORBOARD, str(events))
    place = run.result_dir / "checkpoint" / PLACE
    run.until(lambda: len(run.events("logged")) == 3 and place.exists(), what="three figures, and the place where they end")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    (run.result_dir / "stay").unlink()
    run.again()
    assert run.wait() == 0, run.tail()
    assert len(run.events("logged")) == 3 + 4, "what the second attempt wrote, and nothing of the first again"
    assert {name for _, _, *names in logged(run) for name in names} == {"Loss", "Accuracy/val"}, "a new folder has the plain names"


OUR_OWN = """
import edt, torch
edt.log(loss=0.5, step=10)
edt.log({"loss": torch.tensor(0.25)})
edt.log({"f1": 1}, group="validation")
edt.log(loss="no number")
"""


def test_two_lines_of_our_own_give_any_script_charts(start):
    run = start(OUR_OWN)
    assert run.wait() == 1
    assert logged(run) == [("train", 10, "loss"), ("train", 11, "loss"), ("test", 1, "f1")]
    assert "could not convert string to float" in run.events("error")[0].message


PRINTS = """
import json, os, sys, time
from tqdm import tqdm
bar = tqdm(range(10), desc="Epoch", mininterval=0)
for step in bar:
    bar.write(str({"loss": 1.0 / (step + 1), "epoch": step / 10}), file=sys.stdout)
    while step == 4 and os.path.exists(os.environ["RESULT_DIR"] + "/stay"):
        time.sleep(0.005)
"""


def test_a_script_that_only_prints_has_curves_and_says_how_far_it_is(start, tmp_path):
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    run = start(PRINTS)
    run.until(lambda: run.events("progress") and len(run.events("logged")) == 5, what="what it has printed until now")
    assert (run.events("progress")[-1].label, run.events("progress")[-1].total) == ("Epoch", 10)
    (run.result_dir / "stay").unlink()
    assert run.wait() == 0, run.tail()
    assert [(e.group, e.step, e.metrics["loss"]) for e in run.events("logged")] == [("train", i, 1 / i) for i in range(1, 11)]
    assert run.events("progress")[-1].done == 10


LOOKS = """
import os, sys, time
import torch
from torch.utils.tensorboard import SummaryWriter
result = os.environ["RESULT_DIR"]
torch.manual_seed(1)
with SummaryWriter(result + "/runs/first") as writer:
    for step in (1, 2):
        writer.add_image("digit", torch.rand(1, 8, 8), step)
        writer.add_text("note", f"<b>step {step}</b>", step)
        writer.add_histogram("weights", torch.randn(100), step)
    writer.flush()
    while os.path.exists(result + "/stay"):
        time.sleep(0.005)
    writer.add_hparams({"lr": 0.1, "depth": 4}, {"hparam/accuracy": 0.75}, run_name=".")
    writer.add_image("digit", torch.rand(1, 8, 8), 3)
"""


def test_pictures_texts_and_histograms_are_listed_while_the_script_runs_and_hyperparameters_noted(start, tmp_path):
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    run = start(LOOKS)
    listed = run.result_dir / media.FILE_NAME
    run.until(lambda: run.events("media") and run.events("media")[-1].tags == 3, what="what it has written until now, while it runs")
    assert run.events("finished") == []
    (run.result_dir / "stay").unlink()
    assert run.wait() == 0, run.tail()
    found = {(tag.kind, tag.name): tag.entries for tag in media.parse(listed.read_bytes())}
    assert {key: [each.step for each in entries] for key, entries in found.items()} == {
        ("image", "digit"): [1, 2, 3],
        ("text", "note"): [1, 2],
        ("histogram", "weights"): [1, 2],
    }
    entry = found["image", "digit"][-1]
    ((at, _),) = entry.pieces
    assert (run.result_dir / entry.file).read_bytes()[at : at + 8] == b"\x89PNG\r\n\x1a\n"
    assert {name: value for each in run.events("noted") for name, value in each.parameters.items()} == {"lr": "0.1", "depth": "4"}
    assert logged(run)[-1] == ("train", 0, "hparam/accuracy")


def test_what_a_run_that_the_engine_measures_printed_is_no_figure_for_the_next_driver_either(tmp_path):
    """It reads before the script has come to train() again."""
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    writer = Writer(tmp_path / "journal.jsonl", run=7)
    ScriptMetrics(tmp_path, tmp_path, writer).leave_out(["loss"])
    log.write_text("epoch 1 loss 0.5 accuracy 0.9\n")
    assert not ScriptMetrics(tmp_path, tmp_path, writer).write_to_journal(all_of_it=True)
    (tmp_path / "checkpoint" / MEASURED).unlink()
    assert ScriptMetrics(tmp_path, tmp_path, writer).write_to_journal(all_of_it=True)


@pytest.fixture
def beside_a_file(tmp_path):
    """(folder, writer) of a script that prints a loss and has an event file without a figure."""
    from torch.utils.tensorboard import SummaryWriter

    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1 loss 0.5\n")
    with SummaryWriter(str(tmp_path / "runs")) as writer:
        writer.add_text("settings", "lr 0.1")
        yield tmp_path, writer


def told(folder, **options):
    """The figures that a driver tells which looks once, after all drivers before it."""
    metrics = ScriptMetrics(folder, folder, Writer(folder / "journal.jsonl", run=7))
    metrics.write_to_journal(**options)
    metrics.keep_place()
    return metrics.latest


def test_event_files_without_a_figure_leave_the_curves_to_what_is_printed(beside_a_file):
    folder, _ = beside_a_file
    assert told(folder) == {}, "the file may have figures yet"
    assert told(folder, all_of_it=True) == {"train loss": 0.5}, "and what was held back is not lost with a driver"
    assert told(folder, all_of_it=True) == {}


def test_event_files_without_a_figure_are_not_waited_for_for_ever(beside_a_file, monkeypatch):
    folder, _ = beside_a_file
    monkeypatch.setattr(follower, "FILES_WAIT_S", 0.0)
    assert told(folder) == {"train loss": 0.5}


def test_event_files_are_waited_for_once(beside_a_file, monkeypatch):
    """And what comes behind that is shown as it comes."""
    folder, _ = beside_a_file
    metrics = ScriptMetrics(folder, folder, Writer(folder / "journal.jsonl", run=7))
    now = [1000.0]
    monkeypatch.setattr(follower.time, "monotonic", lambda: now[0])

    def latest(after_s: float, line: str = "") -> dict[str, float]:
        with (folder / "log/driver/console.log").open("a") as log:
            log.write(line)
        now[0] += after_s
        metrics.write_to_journal()
        return metrics.latest

    assert latest(0) == {}
    assert latest(follower.FILES_WAIT_S) == {"train loss": 0.5}
    assert latest(2, "epoch 2 loss 0.25\n") == {"train loss": 0.25}
    assert latest(2, "epoch 2 val loss 0.75\n") == {"train loss": 0.25}, "of tests there may be a file yet"
    assert latest(2, "epoch 3 loss 0.125\n") == {"train loss": 0.125}
    assert latest(follower.FILES_WAIT_S) == {"train loss": 0.125, "test val loss": 0.75}


def test_the_first_measure_in_an_event_file_ends_what_is_told_of_printed_lines(beside_a_file):
    folder, writer = beside_a_file
    assert told(folder) == {}
    writer.add_scalar("Loss/train", 0.25, 3)
    writer.flush()
    assert told(folder, all_of_it=True) == {"train Loss/train": 0.25}
    with (folder / "log/driver/console.log").open("a") as log:
        log.write("epoch 2 loss 0.125\n")
    assert told(folder, all_of_it=True) == {}, "a driver after this one knows that the file has figures"


@pytest.mark.parametrize("tag", ["Loss/val", "image_to_text_R@1", "lr"])
def test_a_file_of_tests_or_settings_alone_leaves_the_training_to_what_is_printed(beside_a_file, tag):
    """open_clip writes what its evaluations come to into `results.jsonl`, and prints its training."""
    folder, writer = beside_a_file
    group = "test" if "val" in tag else "train"
    writer.add_scalar(tag, 0.25, 3)
    writer.flush()
    assert told(folder) == {f"{group} {tag}": 0.25}, "it may have more yet"
    assert told(folder, all_of_it=True) == {"train loss": 0.5}
    with (folder / "log/driver/console.log").open("a") as log:
        log.write("epoch 2 loss 0.125\nepoch 2 val loss 0.75\n")
    tested = {} if group == "test" else {"test val loss": 0.75}
    assert told(folder, all_of_it=True) == {"train loss": 0.125} | tested


def test_a_curve_is_what_a_client_sends_or_what_a_file_has_and_never_points_of_both(tmp_path):
    """Ultralytics counts epochs from 0 for MLflow, and from 1 in its table."""
    journal, table = tmp_path / "journal.jsonl", tmp_path / "train" / "results.csv"
    table.parent.mkdir()
    table.write_text("epoch,val/loss\n")
    for epoch in range(3):
        writer = Writer(journal, run=7)
        driver = ScriptMetrics(tmp_path, tmp_path, writer)  # one after the other
        if epoch < 2:
            driver.figures("test", epoch, {"val/loss": 0.5 - epoch / 8}, t=1.0)
        with table.open("a") as lines:
            lines.write(f"{epoch + 1},{0.5 - epoch / 8}\n")
        driver.write_to_journal(all_of_it=True)
        writer.flush()
        driver.keep_place()
    points = [(each.event.step, *each.event.metrics.items()) for each in follow(journal)]
    assert points == [
        (0, ("val/loss", 0.5)),
        (1, ("train/val/loss", 0.5)),
        (1, ("val/loss", 0.375)),
        (2, ("train/val/loss", 0.375)),
        (3, ("train/val/loss", 0.25)),
    ]
