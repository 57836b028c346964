"""What a script prints is read as people read it: its progress bars, and lines of figures."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from training_runtime.elastic.script_logs import scalar_tables
from training_runtime.elastic.script_logs.event_folders import EventFolders
from training_runtime.elastic.script_logs.printed import Bar, Bars, PrintedMetrics, bar, figures
from training_runtime.elastic.script_logs.printed_figures import PrintedFigures
from training_runtime.protocol import UNCHANGED_CODE_NS
from training_runtime.tracking.answers import group_of


def drawn(steps: int, **options: object) -> list[str]:
    """What tqdm draws, piece by piece."""
    screen = io.StringIO()
    for _ in tqdm(range(steps), file=screen, mininterval=0, **options):
        pass
    return [piece for piece in re.split("[\r\n]", screen.getvalue()) if piece]


@pytest.mark.parametrize("options", [{}, {"desc": "Epoch 3"}, {"ascii": True}, {"unit_scale": True, "unit": "sample"}, {"ncols": 100}])
def test_bars_as_tqdm_draws_them_are_read(options):
    steps = 2000 if "unit_scale" in options else 20
    bars = [bar(piece) for piece in drawn(steps, **options)]
    assert None not in bars
    assert (bars[0].done, bars[0].left_s) == (0, None)
    assert (bars[-1].done, bars[-1].total, bars[-1].left_s) == (steps, steps, 0.0)
    assert {each.label for each in bars} == {options.get("desc", "")}


@pytest.mark.parametrize(
    ("text", "is_read_as"),
    [
        ("Epoch 3:  45%|####5     | 45/100 [00:02<00:03, 18.2it/s, v_num=0, loss=0.3]", Bar("Epoch 3", 45, 100, 2, 3)),
        (" 10%|█         | 1/10 [1:00:01<9:00:09, 3601.0s/it]", Bar("", 1, 10, 3601, 32409)),
        ("Downloading:  50%|█████     | 1.5M/3.0M [00:01<00:01, 1.5MB/s]", Bar("Downloading", 1.5e6, 3e6, 1, 1)),
        ("100 images [00:10, 10.0it/s]", None),
        ("I am 50% sure | 1/2", None),
        (" 45%|####5     | 45/0 [00:02<00:03, 18.2it/s]", None),
        (" 45%|####5     | 4.5.5/100 [00:02<00:03, 18.2it/s]", None),
    ],
)
def test_what_is_a_bar_and_what_is_none(text, is_read_as):
    assert bar(text) == is_read_as


@pytest.mark.parametrize(
    ("label", "title"),
    [
        ("Epoch 3/10:", "Epoch 3/10"),
        ("Epoch 3: loss=0.31, lr=0.1:", "Epoch 3"),
        ("Training, loss 0.31:", "Training"),
        ("average reward=-5.2096 (init=-6.8080), lr policy:  0.0000:", ""),
        ("Loading 5 files:", "Loading 5 files"),
    ],
)
def test_a_bar_is_called_by_what_is_no_figure_in_its_label(label: str, title: str):
    found = bar(f"{label}  40%|####      | 4/10 [00:01<00:02, 3.9it/s]")
    assert found is not None
    assert found.label == title


def test_long_text_without_a_bar_is_passed_over_quickly():
    """A thousand such lines would take minutes with the pattern alone."""
    for _ in range(1000):
        assert bar("a 1" * 20_000) is None
    assert bar("a 1" * 20_000 + ": 50%|##| 1/2 [00:01<00:01]") is not None


@pytest.mark.parametrize(
    ("text", "are_read_as"),
    [
        ('{"step": 10, "loss": 0.5, "note": "words", "ok": true}', PrintedMetrics(10, {"loss": 0.5})),
        (
            "{'loss': 0.25, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}",
            PrintedMetrics(None, {"loss": 0.25, "grad_norm": 1.5, "learning_rate": 5e-05}),
        ),
        ("{'loss': '0.25', 'epoch': '1'}", PrintedMetrics(None, {"loss": 0.25})),
        ("\x1b[A{'eval_loss': '0.25', 'epoch': '1'}", PrintedMetrics(None, {"eval_loss": 0.25})),  # between two bars of Transformers
        ('{"step": 1e999, "loss": 1}', None),
        ('{"loss": 0.5}', None),
        ('{"step": 10}', None),
        ('loss {"step": 10, "loss": 1}', None),
        ('{"step": 1, "loss": __import__("os")}', None),
        ("{" * 4000 + "}", None),
        ("{}", None),
    ],
)
def test_which_lines_are_figures(text, are_read_as):
    assert figures(text) == are_read_as


@given(st.text(max_size=300))
def test_whatever_is_printed_nothing_is_raised(text):
    bar(text), figures(text), figures("{" + text + "}")
    scalar_tables.read("metrics.csv", b"step,loss\n", text.encode(errors="replace"), 10)
    scalar_tables.read("metrics.jsonl", b"", text.encode(errors="replace"), 10)


def test_of_two_bars_the_one_that_was_begun_first_says_how_far_all_is():
    bars = Bars()
    assert bars.add(Bar("Epochs", 1, 10, 60, 540), 100.0) is not None
    assert bars.add(Bar("", 3, 50, 2, 30), 102.0) is None
    assert bars.add(Bar("Epochs", 2, 10, 120, 480), 160.0) is not None
    assert bars.add(Bar("Download", 3, 5, 10, 6), 170.0) is None
    assert bars.add(Bar("Test", 3, 5, 2, 6), 160.0 + 30 + 180 + 1) is not None, "the first is not drawn any more"


def test_a_bar_that_is_done_leaves_the_word_to_the_next():
    bars = Bars()
    assert bars.add(Bar("Loading", 5, 5, 60, 0), 100.0) is not None
    assert bars.add(Bar("Train", 1, 50, 2, 98), 102.0) is not None


def test_the_console_of_several_processes_is_followed_and_the_first_that_prints_figures_counts(tmp_path: Path):
    logs = {name: tmp_path / "log" / name / "console.log" for name in ("driver", "worker-3", "worker-4")}
    for path in logs.values():
        path.parent.mkdir(parents=True)
        path.write_bytes(b"hello\n")
    follower = PrintedFigures(tmp_path, {})
    assert follower.read(now=0.0, all_of_it=False) == []
    for name in ("worker-4", "worker-3"):
        with logs[name].open("ab") as log:
            log.write(b"{'loss': 0.5, 'epoch': 0.1}\n\r 50%|#####     | 5/10 [00:05<00:05,  1.0it/s]\r")
            log.write(b"{'loss': 0.25, 'eval_loss': 1, 'epoch': 0.2}\n{'lo")
    found = follower.read(now=1.0, all_of_it=False)
    assert [(each.group, each.name, each.step, each.value) for each in found] == [
        ("train", "loss", 1, 0.5),
        ("train", "loss", 1, 0.25),
        ("test", "eval_loss", 1, 1.0),
    ]
    told = follower.progress(now=1.0, all_of_it=False)
    assert (told.done, told.total, told.left_s) == (5, 10, 5)
    assert follower.progress(now=1.5, all_of_it=True) is None, "it has been told"
    after = PrintedFigures(tmp_path, json.loads(json.dumps(follower.offsets)))
    with logs["worker-3"].open("ab") as log:
        log.write(b"ss': 0.125, 'step': 7}\n")
    assert [(each.step, each.value) for each in after.read(now=2.0, all_of_it=True)] == [(7, 0.125)]


def test_evaluations_without_a_step_belong_to_where_the_training_is(tmp_path: Path):
    """As Transformers' Trainer prints them: the figures of a training at every so many steps, those of a test after each epoch."""
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    lines = [{"eval_loss": 3.0, "epoch": 0}]
    for epoch in (1, 2):
        lines += [{"loss": 1 / epoch, "grad_norm": 1.0, "epoch": epoch - left} for left in (0.75, 0.5, 0.25, 0.0)]
        lines += [
            {"eval_loss": 2.0 / epoch, "eval_runtime": 0.1, "epoch": epoch},
            {"eval_loss": 2.5 / epoch, "eval_runtime": 0.1, "epoch": epoch},
        ]
    log.write_text("".join(f"{line}\n" for line in [*lines, {"train_runtime": 3.0, "epoch": 2}]))
    found = PrintedFigures(tmp_path, {}).read(now=0.0, all_of_it=True)
    assert [each.step for each in found if each.name == "loss"] == list(range(1, 9))
    assert [(each.step, each.value) for each in found if each.name == "eval_loss"] == [(1, 3.0), (4, 2.0), (5, 2.5), (8, 1.0), (9, 1.25)]


def test_what_is_printed_between_two_looks_is_at_even_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    moments = iter([1000.0, 1001.0, 1000.5, 1003.5])
    monkeypatch.setattr("training_runtime.elastic.script_logs.printed_figures.time.time", lambda: next(moments))
    follower = PrintedFigures(tmp_path, {})
    log.write_text("".join(f"iter {step}: loss 0.5\n" for step in (1, 2, 3, 4)))
    assert [each.t for each in follower.read(now=1.0, all_of_it=False)] == [1000.25, 1000.5, 1000.75, 1001.0]
    log.write_text(log.read_text() + "iter 5: loss 0.5\niter 6: loss 0.5\n")
    assert [each.t for each in follower.read(now=2.0, all_of_it=False)] == [1000.5, 1000.5], "the clock was put back"
    log.write_text(log.read_text() + "iter 7: loss 0.5\n")
    assert [each.t for each in follower.read(now=3.0, all_of_it=False)] == [1003.5]


def read(follower: EventFolders, now: float) -> list[tuple[str, str, int, float]]:
    return [(each.group, each.name, each.step, each.value) for each in follower.read(now=now, all_of_it=True).figures]


def test_tables_are_followed_and_read_again_when_a_column_is_added(tmp_path: Path):
    table, follower = tmp_path / "logs" / "version_0" / "metrics.csv", EventFolders(tmp_path, {})
    table.parent.mkdir(parents=True)
    (tmp_path / "data.csv").write_text("step,price\n1,2\n")
    table.write_text("epoch,step,train_loss\n0,9,0.5\n0,19,")
    assert read(follower, 0.0) == [("train", "train_loss", 9, 0.5)]
    table.write_text("epoch,step,train_loss,val_loss\n0,9,0.5,\n0,19,0.25,\n0,19,,0.75\n")
    assert read(follower, 5.0)[1:] == [("train", "train_loss", 19, 0.25), ("test", "val_loss", 19, 0.75)]
    assert read(follower, 9.0) == []


def test_a_table_that_is_written_anew_while_nobody_follows_it_is_read_anew(tmp_path: Path):
    """Between two attempts of a run: from there on each line has other columns."""
    table, before = tmp_path / "metrics.csv", EventFolders(tmp_path, {})
    table.write_text("step,loss\n0,0.5\n1,0.25\n")
    assert len(read(before, 0.0)) == 2
    table.write_text("lr,step,loss\n0.1,0,0.5\n0.1,1,0.25\n0.1,2,0.125\n")
    after = EventFolders(tmp_path, before.offsets, before.headers)
    assert {name: value for _, name, step, value in read(after, 0.0) if step == 2} == {"lr": 0.1, "loss": 0.125}
    table.write_text("lr,step,loss\n0.1,0,0.0625\n0.1,1,0.03125\n0.1,2,0.015625\n")
    assert {(name, step): value for _, name, step, value in read(after, 5.0)}["loss", 2] == 0.015625, "no shorter, with the same header"


def test_a_line_without_an_end_is_passed_over_once(tmp_path: Path):
    table, follower = tmp_path / "metrics.csv", EventFolders(tmp_path, {})
    table.write_text("step,loss\n0,0.5\n")
    assert read(follower, 0.0) == [("train", "loss", 0, 0.5)]
    for time in (3.0, 6.0):
        with table.open("a") as file:
            file.write("x" * 100_000)
        assert read(follower, time) == []
    with table.open("a") as file:
        file.write("\n1,0.25\n")
    assert read(follower, 9.0) == [("train", "loss", 1, 0.25)]


def test_a_table_by_epochs_and_objects_by_lines_are_read(tmp_path: Path):
    (tmp_path / "results.csv").write_text("   epoch,   train/box_loss,  metrics/mAP50(B)\n   1,   1.5,   0.25\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "loss": 1.5, "deep": {"a": 1}}\nnonsense\n[1]\n{"step": 4, "loss": 1}\n{"st')
    found = {(each.name, each.step): each.value for each in EventFolders(tmp_path, {}).read(now=0.0, all_of_it=True).figures}
    assert found == {("train/box_loss", 1): 1.5, ("metrics/mAP50(B)", 1): 0.25, ("loss", 3): 1.5, ("loss", 4): 1.0}


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("metrics/mAP50-95(B)", "test"),
        ("metrics/recallM", "test"),  # as its MLflow callback has to write it
        ("metrics/accuracy_top1", "test"),
        ("val/box_loss", "test"),
        ("train/box_loss", "train"),
        ("metrics/precision", "train"),
    ],
)
def test_what_ultralytics_validations_come_to_is_of_a_test(name: str, group: str):
    assert group_of(name) == group


def test_tables_that_were_uploaded_with_the_code_are_no_figures_of_the_run(tmp_path: Path):
    code = tmp_path / "_submitted_code" / "name"
    code.mkdir(parents=True)
    for name in ("results.csv", "history.csv"):
        (code / name).write_text("epoch,loss\n1,0.5\n")
        os.utime(code / name, ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))
    follower = EventFolders(tmp_path, {})
    assert follower.read(now=0.0, all_of_it=True).figures == []
    with (code / "history.csv").open("a") as table:
        table.write("2,0.25\n")
    assert [(each.step, each.value) for each in follower.read(now=5.0, all_of_it=True).figures] == [(1, 0.5), (2, 0.25)]
