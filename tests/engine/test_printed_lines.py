"""Lines that scripts print for people are read as people read them: which figure, of training or test, and at which step."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs.event_folders import EventFolders
from training_runtime.elastic.script_logs.printed_figures import PrintedFigures
from training_runtime.elastic.script_logs.printed_lines import LONGEST_LINE, PrintedLines


def read(*lines: str) -> list[tuple[str, str, int, float]]:
    printed = PrintedLines()
    return [(each.group, each.name, each.step, each.value) for line in lines for each in printed.add(line)]


def test_samples_of_an_epoch_are_counted_on_from_epoch_to_epoch():
    assert read(
        "Train Epoch: 1 [0/6000 (0%)]\tLoss: 2.25",
        "Train Epoch: 1 [640/6000 (11%)]\tLoss: 1.5",
        "",
        "Test set: Average loss: 0.0481, Accuracy: 1842/2000 (92%)",
        "Train Epoch: 2 [0/6000 (0%)]\tLoss: 0.5",
        "====> Epoch: 2 Average loss: 0.25",
    ) == [
        ("train", "Loss", 0, 2.25),
        ("train", "Loss", 640, 1.5),
        ("test", "Average loss", 640, 0.0481),
        ("test", "Accuracy", 640, pytest.approx(92.1)),
        ("train", "Loss", 6000, 0.5),
        ("train", "Average loss", 12000, 0.25),
    ]


def test_what_is_said_before_the_first_of_several_figures_is_said_of_those_behind_it():
    assert read(
        *("Epoch 0/4", "----------"),
        "train Loss: 0.61 Acc: 0.70",
        "val Loss: 0.45 Acc: 0.80",
        "Epoch 1/4 train loss 0.5 acc 0.75 val loss 0.4 acc 0.85 lr 0.1",
        "Epoch 2/4 train: loss 0.5, acc 0.75; val: loss 0.4, acc 0.85",
    ) == [
        ("train", "train Loss", 0, 0.61),
        ("train", "Acc", 0, 0.7),
        ("test", "val Loss", 0, 0.45),
        ("test", "Acc", 0, 0.8),
        ("train", "train loss", 1, 0.5),
        ("train", "acc", 1, 0.75),
        ("test", "val loss", 1, 0.4),
        ("test", "acc", 1, 0.85),
        ("train", "lr", 1, 0.1),
        ("train", "loss", 2, 0.5),
        ("train", "acc", 2, 0.75),
        ("test", "loss", 2, 0.4),
        ("test", "acc", 2, 0.85),
    ]


def test_of_meters_the_last_batch_counts_in_training_and_the_mean_in_tests():
    assert read(
        "Epoch: [0][ 1/20]\tTime  0.512 ( 0.512)\tData  0.1 ( 0.1)\tLoss 6.5000e+00 (6.7000e+00)\tAcc@1   0.50 (  0.25)",
        "Epoch: [0][20/20]\tTime  0.512 ( 0.512)\tData  0.1 ( 0.1)\tLoss 6.0 (6.5)\tAcc@1   1.00 (  0.75)",
        "Test: [ 1/10]\tTime  0.1 ( 0.1)\tLoss 5.0 (5.5)\tAcc@1   2.00 (  1.50)",
        " *   Acc@1 1.750 Acc@5 4.500",
        "Epoch: [1][ 1/20]\tTime  0.5 ( 0.5)\tData  0.1 ( 0.1)\tLoss 4.0 (4.5)",
    ) == [
        ("train", "Loss", 1, 6.5),
        ("train", "Acc@1", 1, 0.5),
        ("train", "Loss", 20, 6.0),
        ("train", "Acc@1", 20, 1.0),
        ("test", "Loss", 20, 5.5),
        ("test", "Acc@1", 20, 1.5),
        ("test", "Acc@1", 20, 1.75),
        ("test", "Acc@5", 20, 4.5),
        ("train", "Loss", 21, 4.0),
    ]


def test_columns_between_bars_and_the_end_of_an_epoch():
    assert read(
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch  5.51 | loss  7.63 | ppl  2063.38",
        "-" * 89,
        "| end of epoch   1 | time: 31.45s | valid loss  5.88 | valid ppl   357.05",
        "| epoch   2 |   200/ 2983 batches | lr 20.00 | ms/batch  5.51 | loss  6.00 | ppl   403.43",
        "| End of training | test loss  5.50 | test ppl   244.69",
    ) == [
        ("train", "lr", 200, 20.0),
        ("train", "loss", 200, 7.63),
        ("train", "ppl", 200, 2063.38),
        ("test", "valid loss", 2983, 5.88),
        ("test", "valid ppl", 2983, 357.05),
        ("train", "lr", 3183, 20.0),
        ("train", "loss", 3183, 6.0),
        ("train", "ppl", 3183, 403.43),
        ("test", "test loss", 3183, 5.5),
        ("test", "test ppl", 3183, 244.69),
    ]


def test_a_heading_says_what_the_lines_below_it_are():
    assert read(
        "Epoch 1",
        "-------------------------------",
        "loss: 2.5  [   64/6000]",
        "loss: 2.0  [ 3264/6000]",
        "Test Error: ",
        " Accuracy: 50.9%, Avg loss: 2.25 ",
        "Epoch 2",
        "loss: 1.5  [   64/6000]",
    ) == [
        ("train", "loss", 64, 2.5),
        ("train", "loss", 3264, 2.0),
        ("test", "Accuracy", 3264, 50.9),
        ("test", "Avg loss", 3264, 2.25),
        ("train", "loss", 6064, 1.5),
    ]
    assert read("STEP:  0", "loss: 0.5", "test loss: 0.25", "STEP:  1", "loss: 0.125") == [
        ("train", "loss", 0, 0.5),
        ("test", "test loss", 0, 0.25),
        ("train", "loss", 1, 0.125),
    ]


def test_epochs_without_a_length_go_on_where_the_last_one_ended():
    assert read("[1,  2000] loss: 2.5", "[1, 12000] loss: 1.5", "[2,  2000] loss: 1.25") == [
        ("train", "loss", 2000, 2.5),
        ("train", "loss", 12000, 1.5),
        ("train", "loss", 14000, 1.25),
    ]


def test_epochs_without_a_length_that_begin_at_nought_do_not_fall_upon_each_other():
    lines = [f"[GPU0] Epoch {epoch} | Iter {at} | Train Loss 0.5" for epoch in (1, 2) for at in (0, 100, 200)]
    assert [step for _, _, step, _ in read(*lines)] == [0, 100, 200, 300, 400, 500]
    assert [step for _, _, step, _ in read(*[f"Epoch {epoch} | Iter 0 | Loss 0.5" for epoch in range(3)])] == [0, 1, 2]


def test_a_script_that_was_started_again_from_an_earlier_epoch_tells_of_the_same_steps_again():
    lines = [
        f"Train Epoch: {epoch} [{at}/6000 (0%)]\tLoss: 0.5" for epoch, at in [(1, 640), (2, 640), (2, 1280), (2, 640), (1, 640), (3, 640)]
    ]
    assert [step for _, _, step, _ in read(*lines)] == [640, 6640, 7280, 6640, 640, 12640]


def test_steps_that_count_on_by_themselves_are_taken_as_they_are():
    lines = "step 10 | loss 3.5 | step time 12.34ms", "Epoch 2, step 1500: loss 2.5", "Epoch 3, step 2500: train loss 2.0, val loss 2.25"
    assert [each[2] for each in read(*lines)] == [10, 1500, 2500, 2500]


def test_iterations_of_all_epochs_beside_the_length_of_one_are_taken_as_they_are():
    assert read(
        "Epoch[1] Iteration[20/25] Loss: 0.5",
        "Training Results - Epoch: 1 Avg accuracy: 0.8",
        "Epoch[2] Iteration[30/25] Loss: 0.4",
        "Epoch[2] Iteration[50/25] Loss: 0.3",
        "Validation Results - Epoch: 2 Avg accuracy: 0.9",
        "Epoch[3] Iteration[60/25] Loss: 0.2",
        "Epoch[3] Iteration[75/25] Loss: 0.1",
        "Validation Results - Epoch: 3 Avg accuracy: 0.95",
    ) == [
        ("train", "Loss", 20, 0.5),
        ("train", "Avg accuracy", 25, 0.8),
        ("train", "Loss", 30, 0.4),
        ("train", "Loss", 50, 0.3),
        ("test", "Avg accuracy", 50, 0.9),
        ("train", "Loss", 60, 0.2),
        ("train", "Loss", 75, 0.1),
        ("test", "Avg accuracy", 75, 0.95),
    ]


def test_of_lines_as_glog_and_absl_write_them_warnings_are_no_figures_and_places_in_the_code_neither():
    assert read(
        "Epoch 1 loss: 0.5",
        "[W1128 04:59:23.143473001 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
        "E1128 04:59:24.143473 140 api.py:882] failed (exitcode: 1) local_rank: 1 (pid: 3) of binary: python, error: 3",
        "I1128 04:59:25.143473 139628 train.py:33] step 40 loss: 0.25",
    ) == [("train", "loss", 1, 0.5), ("train", "loss", 40, 0.25)]


def test_an_interrupted_script_that_goes_on_in_a_later_epoch_is_as_far_as_it_says():
    assert read("Train Epoch: 3 [640/6000 (11%)]\tLoss: 1.5") == [("train", "Loss", 12640, 1.5)]


def test_a_bar_of_an_epochs_other_batches_is_one_of_a_test():
    bar = " [==>...]  Step: {}ms | Tot: 1s9ms | Loss: {} | Acc: {}% (3/64)\b\b\b {} "
    assert read(
        *("Epoch: 0", bar.format(74, 2.5, 4.5, "1/2"), bar.format(7, 2.0, 5.5, "2/2"), bar.format(9, 1.5, 6.5, "1/4")),
        *("Epoch: 1", bar.format(74, 1.25, 7.5, "1/2")),
    ) == [
        *(("train", "Loss", 1, 2.5), ("train", "Acc", 1, 4.5), ("train", "Loss", 2, 2.0), ("train", "Acc", 2, 5.5)),
        *(("test", "Loss", 2, 1.5), ("test", "Acc", 2, 6.5), ("train", "Loss", 3, 1.25), ("train", "Acc", 3, 7.5)),
    ]
    both = "Epoch 1", "3/5 loss: 0.5", "1/9 loss: 0.25"
    assert [each[0] for each in read(*both)] == ["train", "train"], "the epoch was not through"


def test_columns_under_their_names_are_read():
    assert read(
        "epoch     train_loss  valid_loss  accuracy  time    ",
        "0         2.5         2.25        0.125     00:01   ",
        "1         1.5         1.25        0.5       00:01   ",
        "1 of 3 files",
    ) == [
        *(("train", "train_loss", 0, 2.5), ("test", "valid_loss", 0, 2.25), ("test", "accuracy", 0, 0.125)),
        *(("train", "train_loss", 1, 1.5), ("test", "valid_loss", 1, 1.25), ("test", "accuracy", 1, 0.5)),
    ]
    assert read(
        "  epoch    train_loss    valid_acc     dur",
        "-------  ------------  -----------  ------",
        "      1        \x1b[36m0.5\x1b[0m       \x1b[32m0.75\x1b[0m  0.12",
    ) == [("train", "train_loss", 1, 0.5), ("test", "valid_acc", 1, 0.75)]
    assert read("step | loss", "40 | nan", "80 | 0.5")[1] == ("train", "loss", 80, 0.5)
    assert read("epoch of the war", "3 4 5 6") == read("step by step", "1 2 3") == []


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("Epoch 3 Accuracy: 92.5% (185/200)", [("train", "Accuracy", 3, 92.5)]),
        ("step 0: train loss 4.2874, val loss 4.2823", [("train", "train loss", 0, 4.2874), ("test", "val loss", 0, 4.2823)]),
        ("iter 10: loss 3.5, time 10.00ms, mfu -100.00%", [("train", "loss", 10, 3.5), ("train", "mfu", 10, -100)]),
        ("[Epoch 0/200] [Batch 10/938] [D loss: 0.75] [G loss: 0.5]", [("train", "D loss", 10, 0.75), ("train", "G loss", 10, 0.5)]),
        (
            "[0/25][3/782] Loss_D: 0.5 Loss_G: 4.25 D(x): 0.75 D(G(z)): 0.25 / 0.125",
            [("train", "Loss_D", 3, 0.5), ("train", "Loss_G", 3, 4.25), ("train", "D(x)", 3, 0.75), ("train", "D(G(z))", 3, 0.25)],
        ),
        ("Epoch [2/5], Step [100/600], Loss: 0.25", [("train", "Loss", 700, 0.25)]),
        (
            "[2026-01-01 10:00:00,123][train][INFO] - epoch 3 train_loss=0.5 val_acc=0.9",
            [("train", "train_loss", 3, 0.5), ("test", "val_acc", 3, 0.9)],
        ),
        (
            "2026-01-01 10:00:00 | INFO | epoch 001:    100 / 1102 loss=10.1, lr=1.2e-05",
            [("train", "loss", 100, 10.1), ("train", "lr", 100, 1.2e-5)],
        ),
        (
            "2026/01/01 12:00:00 - INFO - Epoch(train)  [1][  50/7330]  lr: 2.0e-03  eta: 1 day, 12:20:00  time: 0.5  loss: 1.25",
            [("train", "lr", 50, 0.002), ("train", "loss", 50, 1.25)],
        ),
        (
            "Train: 0 [   8/1251 (  0%)]  Loss:  6.9 (6.5)  Time: 0.5s, 500/s (0.5s, 500/s)  LR: 1.0e-05",
            [("train", "Loss", 8, 6.9), ("train", "LR", 8, 1e-5)],
        ),
        ("(step=0000100) Train Loss: 0.15, Train Steps/Sec: 1.20", [("train", "Train Loss", 100, 0.15)]),
        (
            "Episode 10\tLast reward: 20.00\tAverage reward: 9.80",
            [("train", "Last reward", 10, 20.0), ("train", "Average reward", 10, 9.8)],
        ),
        ("Ep: 10, reward: 20.3", [("train", "reward", 10, 20.3)]),
        (
            "(epoch: 1, iters: 100, time: 0.12, data: 0.1) G_L1: 20.1 D_real: 0.4",
            [("train", "G_L1", 100, 20.1), ("train", "D_real", 100, 0.4)],
        ),
        ("Validation Results - Epoch: 1  Avg accuracy: 0.92", [("test", "Avg accuracy", 1, 0.92)]),
        (
            "\x1b[1m1875/1875\x1b[0m \x1b[32m━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 2ms/step - accuracy: 0.88 - val_loss: 0.3",
            [("train", "accuracy", 1875, 0.88), ("test", "val_loss", 1875, 0.3)],
        ),
        ("epoch 1 loss tensor(0.5, grad_fn=<NllLossBackward0>)", [("train", "loss", 1, 0.5)]),
        ("epoch 1 'loss': np.float64(0.5)", [("train", "loss", 1, 0.5)]),
        ("Loss: 0.0009 after 381 batches", [("train", "Loss", 381, 0.0009)]),
        ("Epoch 7 (0.05s/epoch) -- Loss: 1.2 -- Val acc: 81.0%", [("train", "Loss", 7, 1.2), ("test", "Val acc", 7, 81)]),
    ],
)
def test_what_the_usual_scripts_print_is_read(line: str, figures: list[tuple[str, str, int, float]]):
    assert read(line) == figures


def test_a_number_that_is_none_is_a_figure_too():
    ((_, name, step, value),) = read("Epoch 4/10, Train Loss: nan")
    assert (name, step, value != value) == ("Train Loss", 4, True)


def test_a_sentence_about_a_result_is_a_figure():
    name = "Accuracy of the network on the 10000 test images"
    assert read("epoch 2 loss: 0.5", f"{name}: 55 %")[1:] == [("test", name, 2, 55.0)]


@pytest.mark.parametrize(
    "line",
    [
        "Namespace(batch_size=64, epochs=14, lr=1.0, loss='mse')",
        "loss: 3",
        "number of parameters: 10.65M",
        "epoch 3: loading 5 files",
        "[GPU0] Epoch 1 | Batch size: 32 | Steps: 64",
        "epoch 1 took 3.5 s, 0.5 s/step, score of loader 12:30",
        "step time 5",
        "RuntimeError: CUDA error: 5 at step 3",
        "loss of money in 2026, step by step",
        "x" * LONGEST_LINE + " epoch 1 loss 0.5",
        "",
    ],
)
def test_what_says_nothing_of_the_training_is_no_figure(line: str):
    assert read(line) == []


def test_settings_that_are_printed_before_do_not_move_the_steps():
    assert read("Total steps: 5000", "step 10 loss 3.5", "Saving best model of epoch 2", "step 20 loss 3.0") == [
        ("train", "loss", 10, 3.5),
        ("train", "loss", 20, 3.0),
    ]


@given(
    st.lists(
        st.text(max_size=100) | st.sampled_from(["epoch 3", "[1/2]", " loss: ", "step", "9" * 18, "/", "[", "(", "test "]), max_size=12
    )
)
def test_whatever_is_printed_nothing_is_raised(parts: list[str]):
    read("".join(parts), "epoch 1 " + "".join(parts), " ".join(parts))


@pytest.mark.parametrize(
    "line", ["a " * 300, "1" * 600, "loss(" * 120, "loss 1 " * 80, "epoch [" * 80, "1/" * 300, "a1. " * 150, "tensor(1(" * 60]
)
def test_long_lines_are_read_quickly(line: str):
    begun = time.thread_time()
    for _ in range(20):
        read(line, "step 1 loss 2" + line)
    assert time.thread_time() - begun < 20 * 0.05


def test_lines_for_people_count_until_there_are_records_and_those_of_one_process(tmp_path: Path):
    logs = {name: tmp_path / "log" / name / "console.log" for name in ("driver", "worker-3")}
    for name, path in logs.items():
        path.parent.mkdir(parents=True)
        path.write_text(f"epoch 1 loss {len(name)}\n")
    follower = PrintedFigures(tmp_path, {})
    assert [(each.step, each.value) for each in follower.read(now=0.0, all_of_it=True)] == [(1, len("driver"))]
    with logs["driver"].open("a") as log:
        log.write('{"step": 5, "loss": 0.5}\nepoch 2 loss 7\n')
    assert [(each.step, each.value) for each in follower.read(now=1.0, all_of_it=True)] == [(5, 0.5)]


@pytest.mark.parametrize(
    ("name", "text"), [("summary.csv", "epoch,train_loss\n3,0.5\n"), ("metrics.json", '{"iteration": 3, "train_loss": 0.5}\n')]
)
def test_tables_of_more_names_are_read(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    assert [(each.name, each.step, each.value) for each in EventFolders(tmp_path, {}).read(now=0.0, all_of_it=True).figures] == [
        ("train_loss", 3, 0.5)
    ]
