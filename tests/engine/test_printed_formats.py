"""Lines of repositories and tutorials that many people train with, as these print them: each is a curve with the names that stand there."""

from __future__ import annotations

import pytest

from training_runtime.elastic.script_logs.printed import beside_bar
from training_runtime.elastic.script_logs.printed_lines import PrintedLines

Point = tuple[str, str, int, float]

FORMATS: dict[str, list[tuple[str, list[Point]]]] = {
    "OpenMMLab, whose lines begin with a day and a month": [
        (
            "12/25 10:20:30 - mmengine - INFO - Epoch(train) [1][ 50/1000]  lr: 1.0000e-02  eta: 0:10:00  time: 0.2000  loss: 0.5000",
            [("train", "lr", 50, 0.01), ("train", "loss", 50, 0.5)],
        ),
        ("12/25 10:20:40 - mmengine - INFO - Epoch(val) [1][10/10]    accuracy/top1: 76.60", [("test", "accuracy/top1", 50, 76.6)]),
    ],
    "PyTorch's introduction to training": [
        ("EPOCH 1:", []),
        ("  batch 1000 loss: 1.9", [("train", "loss", 1000, 1.9)]),
        ("LOSS train 0.88 valid 0.93", [("train", "LOSS train", 1000, 0.88), ("test", "valid", 1000, 0.93)]),
    ],
    "PyTorch's tutorials on recurrent nets": [
        ("1m 47s (- 25m 8s) (5000 6%) 2.8574", [("train", "loss", 5000, 2.8574)]),
        ("3m 30s (- 22m 45s) (10000 13%) 2.2", [("train", "loss", 10000, 2.2)]),
    ],
    "PyTorch's tutorial on names": [("5000 5% (0m 29s) 2.6379 Horigome / Japanese", [("train", "loss", 5000, 2.6379)])],
    "PyTorch's example of styles": [
        (
            "Mon Jan  1 10:00:00 2024\tEpoch 1:\t[4000/83000]\tcontent: 1.200000\tstyle: 2.300000\ttotal: 3.500000",
            [("train", "content", 4000, 1.2), ("train", "style", 4000, 2.3), ("train", "total", 4000, 3.5)],
        )
    ],
    "CycleGAN": [
        (
            "(epoch: 2, iters: 100, time: 0.335, data: 0.241) D_A: 0.5 G_A: 0.3 cycle_A: 1.2",
            [("train", "D_A", 100, 0.5), ("train", "G_A", 100, 0.3), ("train", "cycle_A", 100, 1.2)],
        ),
        ("End of epoch 2 / 200 \t Time Taken: 100 sec", []),
    ],
    "flair": [
        (
            "2024-01-01 10:00:00,000 epoch 1 - iter 10/100 - loss 2.31 - time (sec): 1.20 - samples/sec: 250.10 - lr: 0.10",
            [("train", "loss", 10, 2.31), ("train", "lr", 10, 0.1)],
        ),
        (
            "2024-01-01 10:00:10,000 DEV : loss 1.5 - f1-score (micro avg)  0.6512",
            [("test", "loss", 10, 1.5), ("test", "f1-score (micro avg)", 10, 0.6512)],
        ),
    ],
    "averages with what they are over": [
        ("Ep 100 | Avg reward (100): 25.3 | eps 0.5", [("train", "Avg reward (100)", 100, 25.3)]),
        ("Episode 200 | Mean return (last 10 episodes) = -7", [("train", "Mean return (last 10 episodes)", 200, -7.0)]),
    ],
    "measures that say where they are": [
        ("Loss after epoch 4: 0.3", [("train", "Loss", 4, 0.3)]),
        ("Test accuracy at epoch 4: 0.75", [("test", "Test accuracy", 4, 0.75)]),
        ("Loss after 5 epochs: 0.2", [("train", "Loss", 5, 0.2)]),
    ],
    "folds with a short name for each set": [
        (
            "Fold 0 | Epoch 2 | train 0.41 | val 0.52 | AUC 0.88",
            [("train", "train", 2, 0.41), ("test", "val", 2, 0.52), ("test", "AUC", 2, 0.88)],
        )
    ],
    "what has an epoch and a batch, and no figures": [
        ("Epoch 1 [10/100] done in 3.5 s", []),
        ("Epoch 1 [10/100] time: 0.25 data: 0.13", []),
        ("Epoch 1: read 10/100 files, version: 1.2", []),
        ("batch (32) epoch (10) lr (0.1)", []),
    ],
    "a measure of so many": [
        ("Epoch 1 loss 0.5", [("train", "loss", 1, 0.5)]),
        ("Accuracy on test 10000 images: 55.5 %", [("test", "Accuracy on test 10000 images", 1, 55.5)]),
    ],
}


@pytest.mark.parametrize("lines", FORMATS.values(), ids=FORMATS)
def test_lines_as_they_print_them(lines: list[tuple[str, list[Point]]]) -> None:
    read = PrintedLines()
    for text, points in lines:
        assert [(each.group, each.name, each.step, each.value) for each in read.add(text)] == points, text


def test_beside_the_bar_of_a_unet() -> None:
    drawn = "Epoch 1/5:  10%|#         | 500/5000 [00:10<01:30,  2.00img/s, loss (batch)=0.5]"
    assert [(each.name, each.step, each.value) for each in PrintedLines().add(beside_bar(drawn))] == [("loss (batch)", 500, 0.5)]
