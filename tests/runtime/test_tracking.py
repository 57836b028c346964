"""What MLflow's client asks for and how it is answered: pure, without a client."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training_runtime import journal
from training_runtime.noted import Noted
from training_runtime.tracking import answers
from training_runtime.tracking.answers import Point, Refused, Run
from training_runtime.tracking.tracker import MOST_IN_LINE, Tracker

FACE = "\N{GRINNING FACE}"  # twelve bytes of JSON


class Recorded:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def figures(self, group: answers.Group, step: int, metrics: dict[str, float], *, t: float) -> None:
        self.events.append(journal.Logged(group, step, metrics))

    def note(self, noted: Noted) -> None:
        self.events.append(noted)


def tracker() -> tuple[Tracker, Recorded]:
    recorded = Recorded()
    return Tracker(Run("7", "net", "0", "alice", "file:///r/artifacts"), recorded, (), lambda: 1000), recorded


def test_a_logger_that_begins_its_own_run_means_the_one_it_is_in_and_the_next_one_is_beside_it() -> None:
    made, recorded = tracker()
    first = made.answer("POST", "runs/create", {"experiment_id": "0", "run_name": "lightning"})
    second = made.answer("POST", "runs/create", {"experiment_id": "0", "run_name": "../sweep 2"})
    third = made.answer("POST", "runs/create", {"experiment_id": "0", "run_name": "../sweep 2"})
    assert [each["run"]["info"]["run_id"] for each in (first, second, third)] == ["7", "7-1", "7-2"]
    assert second["run"]["info"]["artifact_uri"] == "file:///r/artifacts/sweep%202"
    for key in ("7-1", "7-2"):
        made.answer("POST", "runs/log-metric", {"run_id": key, "key": "loss", "value": "NaN", "timestamp": "5", "step": "3"})
    assert [list(event.metrics) for event in recorded.events] == [["sweep 2/loss"], ["sweep 2-2/loss"]]


def test_calls_without_a_step_are_counted_and_what_a_model_repeats_is_not_drawn_again() -> None:
    made, recorded = tracker()
    for at_ms in (5, 6):
        made.answer("POST", "runs/log-metric", {"run_id": "7", "key": "loss", "value": 0.5, "timestamp": at_ms, "step": 0})
    again = {"key": "loss", "value": 0.5, "timestamp": 6, "step": 0, "model_id": "m-7-1"}
    made.answer("POST", "runs/log-batch", {"run_id": "7", "metrics": [again]})
    assert [event.step for event in recorded.events] == [0, 1]
    (last,) = made.answer("GET", "runs/get", {"run_id": "7"})["run"]["data"]["metrics"]
    assert last == {"key": "loss", "value": 0.5, "timestamp": 6, "step": 1}


def test_every_line_fits_into_the_journal() -> None:
    made, recorded = tracker()
    metrics = [{"key": f"{FACE * 240}{number}", "value": 1, "timestamp": 1, "step": 1} for number in range(1000)]
    parameters = [{"key": f"{FACE * 240}{number}", "value": FACE * 7000} for number in range(100)]
    made.answer("POST", "runs/log-batch", {"run_id": "7", "metrics": metrics, "params": parameters})
    assert max(len(journal.format_line(7, 1, 1.0, event)) for event in recorded.events) <= journal.MAX_LINE_BYTES
    assert sum(len(event.metrics) for event in recorded.events if isinstance(event, journal.Logged)) == 1000 > MOST_IN_LINE


@pytest.mark.parametrize(
    "said",
    [
        {"run_id": "7", "metrics": [{"key": "loss", "value": "high", "timestamp": 1}]},
        {"run_id": "7", "metrics": [{"key": "loss", "value": 1, "timestamp": 1, "step": 2**70}]},
        {"run_id": "7", "metrics": [{"key": "new\nline", "value": 1, "timestamp": 1}]},
        {"run_id": "7", "metrics": {"loss": 1}},
        {"run_id": "7", "params": [{"key": "x" * 251, "value": "1"}]},
        {"run_id": "7", "params": [{"key": str(number), "value": "1"} for number in range(1001)]},
        {"run_id": "7", "metrics": [{"key": str(number), "value": 1, "timestamp": 1} for number in range(2001)]},
        {"run_id": "7", "tags": [{"key": "good", "value": {}}]},
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(said: dict[str, Any]) -> None:
    made, recorded = tracker()
    with pytest.raises(Refused) as refused:
        made.answer("POST", "runs/log-batch", said)
    assert refused.value.code == "INVALID_PARAMETER_VALUE"
    assert str(refused.value).endswith(".")
    assert recorded.events == []


def test_runs_are_found_and_ordered() -> None:
    runs = [Run(str(n), f"net-{n}", "1", "alice", "", metrics={"val loss": Point(n / 10, 0, 1)}) for n in range(1, 5)]
    runs[3].parameters["lr"] = "0.1"
    runs[2].metrics = {"val loss": Point(math.nan, 0, 1)}

    def keys(wanted: str, by: list[str]) -> list[str]:
        return [run.key for run in answers.ordered(answers.matching(runs, wanted), by)]

    assert keys("metrics.`val loss` >= 0.2", ["metrics.`val loss` DESC"]) == ["4", "2"]
    assert keys("", ["metrics.`val loss` ASC"]) == ["1", "2", "4", "3"]
    assert keys("params.lr = '0.1' and attributes.status = 'RUNNING'", []) == ["4"]
    assert keys("attributes.run_name LIKE 'net-%' AND tags.mlflow.user != 'bob'", ["params.lr"]) == ["4", "1", "2", "3"]
    for wrong in (
        "loss < 1",
        "metrics.`val loss` < high",
        "metrics.loss < 1 OR metrics.loss > 2",
        "params.lr < 3",
        "attributes.colour = 'red'",
    ):
        with pytest.raises(Refused):
            answers.matching(runs, wrong)
