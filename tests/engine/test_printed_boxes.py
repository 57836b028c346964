"""Boxes of names and values, as Stable-Baselines3 prints them, are read: which figures, and at which step. So are lines of Optuna's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs.printed_lines import PrintedLines

FIRST = """
Using cpu device
---------------------------------
| rollout/           |          |
|    ep_len_mean     | 22.3     |
|    ep_rew_mean     | 2.23e+01 |
| time/              |          |
|    fps             | 1500     |
|    iterations      | 1        |
|    time_elapsed    | 0        |
|    total_timesteps | 256      |
---------------------------------
"""
SECOND = """
-----------------------------------------
| eval/                   |             |
|    mean_ep_length       | 9.4         |
| time/                   |             |
|    total_timesteps      | 512         |
| train/                  |             |
|    approx_kl            | 0.0086      |
|    clip_fraction        | -nan        |
|    n_updates            | 10          |
-----------------------------------------
"""


def read(text: str) -> list[tuple[str, str, int, str]]:
    printed = PrintedLines()
    return [(each.group, each.name, each.step, str(each.value)) for line in text.splitlines() for each in printed.add(line)]


def test_each_box_is_a_step_of_its_curves() -> None:
    assert read(FIRST + SECOND) == [
        ("train", "rollout/ep_len_mean", 256, "22.3"),
        ("train", "rollout/ep_rew_mean", 256, "22.3"),
        ("test", "eval/mean_ep_length", 512, "9.4"),
        ("train", "train/approx_kl", 512, "0.0086"),
        ("train", "train/clip_fraction", 512, "nan"),
        ("train", "train/n_updates", 512, "10.0"),
    ]


def test_boxes_that_say_no_step_and_those_that_something_else_breaks_into_are_no_figures() -> None:
    assert read("-----------------\n| lr    | 0.1   |\n| batch | 64    |\n-----------------") == []
    assert read(FIRST.replace("| time/ ", "a warning\n| time/ ")) == []


def test_lines_beside_boxes_are_read_as_before() -> None:
    assert read("Epoch 3 loss: 0.5\n" + FIRST.replace("256", "1e40"))[0] == ("train", "loss", 3, "0.5")


@given(
    st.lists(st.sampled_from(["-----", "| ", " |", "step", "loss", "1", "1e300", "1e999", "nan", "-1", "0.5", "time/", "\n"]), max_size=60)
)
def test_whatever_a_box_holds_nothing_is_raised(parts: list[str]) -> None:
    for _, _, step, _ in read("".join(parts)):
        assert 0 <= step < 2**63


TRIALS = """
[I 2026-01-02 13:47:28,651] A new study created in memory with name: no-name-81a3573f
Epoch 1: train loss 0.5
[I 2026-01-02 13:47:29,069] Trial 0 finished with value: 0.75 and parameters: {'lr': 0.0082}. Best is trial 0 with value: 0.75.
[I 2026-01-02 13:47:29,409] Trial 1 pruned.
Epoch 2: train loss 0.25
[I 2026-01-02 13:47:29,646] Trial 2 finished with value: -1.5e-05 and parameters: {'lr': 0.1}. Best is trial 0 with value: 0.75.
"""


def test_what_optunas_trials_came_to_is_a_curve_beside_those_of_their_trainings():
    printed = PrintedLines()
    assert [(each.group, each.name, each.step, each.value) for line in TRIALS.splitlines() for each in printed.add(line)] == [
        ("train", "train loss", 1, 0.5),
        ("test", "trial value", 0, 0.75),
        ("train", "train loss", 2, 0.25),
        ("test", "trial value", 2, -1.5e-05),
    ]
