"""What XGBoost, LightGBM and CatBoost print after each round is read: which figures, and at which step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs.printed_lines import PrintedLines
from training_runtime.elastic.script_logs.printed_rounds import MOST_ROUNDS, Rounds

XGBOOST = "[0]\ttrain-mlogloss:1.24492\teval-mlogloss:1.36958\n[1]\ttrain-mlogloss:0.88268\teval-mlogloss:1.05500"
LIGHTGBM = "[2]\tvalid_0's multi_logloss: 1.42843\tvalid_0's multi_error: 0.131111"
CATBOOST = "0:\tlearn: 2.1811\ttest: 2.1900\tbest: 2.1900 (0)\ttotal: 61ms\tremaining: 1.16s\n1:\tlearn: 2.0\ttotal: 1m 2s\tremaining: 0us"
CROSS_VALIDATED = "[5]\ttrain-rmse:0.5+0.01\ttest-rmse:nan+nan\n[5]\tcv_agg's valid l2: 0.25 + 0.125"


def read(text: str) -> list[tuple[str, str, int, str]]:
    printed = PrintedLines()
    return [(each.group, each.name, each.step, str(each.value)) for line in text.splitlines() for each in printed.add(line)]


def test_each_line_is_a_step_of_its_curves() -> None:
    assert read(XGBOOST) == [
        ("train", "train-mlogloss", 0, "1.24492"),
        ("test", "eval-mlogloss", 0, "1.36958"),
        ("train", "train-mlogloss", 1, "0.88268"),
        ("test", "eval-mlogloss", 1, "1.055"),
    ]
    assert read(LIGHTGBM) == [("test", "valid_0's multi_logloss", 2, "1.42843"), ("test", "valid_0's multi_error", 2, "0.131111")]
    assert read(CATBOOST) == [("train", "learn", 0, "2.1811"), ("test", "test", 0, "2.19"), ("train", "learn", 1, "2.0")]
    assert read(CROSS_VALIDATED) == [
        ("train", "train-rmse", 5, "0.5"),
        ("test", "test-rmse", 5, "nan"),
        ("test", "cv_agg's valid l2", 5, "0.25"),
    ]


def test_rounds_of_a_second_model_go_on_behind_those_of_the_first() -> None:
    assert [step for _, name, step, _ in read(f"{XGBOOST}\n{XGBOOST}\n{XGBOOST}") if name == "eval-mlogloss"] == [0, 1, 2, 3, 4, 5]
    twice = "\n".join(f"[{at}]\tvalid_0's l2: 0.5" for at in (10, 20, 10, 20))
    assert [step for _, _, step, _ in read(twice)] == [10, 20, 30, 40], "LightGBM counts from 1"
    assert [step for *_, step, _ in read(f"{XGBOOST}\n{LIGHTGBM}")][-1] == 2, "another library's have a count of their own"


def test_what_only_begins_like_a_round_is_none() -> None:
    for text in ("[3]\tloss", "[3] loss: 0.5", "12:\t30", "[3]\tepoch: 1\tdone", "[1]\t\tloss: 0.5", "1:\ttotal: 5s"):
        assert Rounds().add(text) is None


@given(st.text(max_size=80))
def test_whatever_a_line_says_nothing_is_raised(text: str) -> None:
    for line in (text, f"[7]\t{text}", f"7:\tlearn: {text}"):
        said = Rounds().add(line)
        assert said is None or 0 <= said[0] <= MOST_ROUNDS
