"""Whether a run that repeats another one came out the same: by digests of its state, and where there are none by its figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.runs.reproduction import CurveComparison, RunRecord, Verdict, verdict

A, B, C = "a" * 16, "b" * 16, "c" * 16
THREE = {1: (10, A), 2: (20, B), 3: (30, C)}
THEN = RunRecord(12, "completed", 30, THREE, {"seed": "7", "code sha256": "x"})


def judged(now: RunRecord, then: RunRecord = THEN, figures: CurveComparison | None = None) -> Verdict:
    return verdict(then, now, lambda: figures or CurveComparison())


def test_a_run_that_has_just_begun_is_waited_for() -> None:
    found = judged(RunRecord(13))
    assert (found.result, found.epochs) == ("waiting", 0)


def test_while_it_runs_it_is_the_same_so_far() -> None:
    found = judged(RunRecord(13, "", 20, {1: (10, A), 2: (20, B)}))
    assert (found.result, found.epochs) == ("same so far", 2)
    assert "2 epochs is that of run 12" in found.sentence


def test_the_same_states_to_the_end_are_identical_bit_for_bit() -> None:
    found = judged(RunRecord(13, "completed", 30, dict(THREE), {"seed": "7"}))
    assert (found.result, found.epochs, found.inputs) == ("identical", 3, ())
    assert found.sentence == "Identical, bit for bit: the state after each of 3 epochs is that of run 12."


def test_a_run_that_was_stopped_says_how_far_it_was_the_same() -> None:
    found = judged(RunRecord(13, "stopped", 25, {1: (10, A), 2: (20, B)}))
    assert (found.result, found.epochs) == ("same so far", 2)
    assert found.sentence == "It was stopped after 2 epochs; as far as it came, its state is that of run 12."


def test_one_that_goes_on_longer_is_identical_as_far_as_the_other_came() -> None:
    then = RunRecord(12, "stopped", 15, {1: (10, A)})
    found = judged(RunRecord(13, "completed", 30, THREE), then)
    assert (found.result, found.epochs) == ("identical", 1)
    assert "as far as run 12 came" in found.sentence


def test_the_first_difference_is_named_by_epoch_step_curve_and_both_values() -> None:
    now = RunRecord(13, "", 30, {1: (10, A), 2: (20, C), 3: (30, C)}, {"seed": "8", "code sha256": "x"})
    found = judged(now, figures=CurveComparison(2, ("train loss", 14, 0.5, 0.25)))
    assert (found.result, found.epochs) == ("different", 1)
    assert found.inputs == (("seed", "7", "8"),)
    assert found.sentence == (
        "Not identical: the state after epoch 2 (step 20) is another one than that of run 12; after epoch 1 it was the same. "
        "The first value that differs: train loss at step 14, 0.5 then and 0.25 now. They were not given the same: seed."
    )


def test_other_lengths_of_epochs_are_a_difference() -> None:
    found = judged(RunRecord(13, "completed", 33, {1: (11, A)}))
    assert found.result == "different"
    assert "(step 11) is another one than that of run 12, whose epoch 1 ended at step 10." in found.sentence


@pytest.mark.parametrize(
    ("ended", "figures", "result", "says"),
    [
        ("completed", CurveComparison(2), "same figures", "all values of 2 curves are those of run 12"),
        ("completed", CurveComparison(1, ("test accuracy", 3, None, 0.5)), "different", "test accuracy at step 3, none then and 0.5 now"),
        ("completed", CurveComparison(0), "unknown", "neither has digests of its state, or curves"),
        ("failed", CurveComparison(2), "unknown", "it failed, run 12 completed"),
    ],
)
def test_without_digests_figures_are_compared_and_it_is_said_that_the_state_was_not(
    ended: str, figures: CurveComparison, result: str, says: str
) -> None:
    found = judged(RunRecord(13, ended, 30), RunRecord(12, "completed", 30), figures)
    assert found.result == result
    assert says in found.sentence


DIGESTS = st.dictionaries(st.integers(1, 4), st.tuples(st.integers(1, 40), st.sampled_from([A, B])), max_size=4)


@given(DIGESTS, DIGESTS, st.sampled_from(["", "completed", "stopped", "failed"]))
def test_nothing_is_called_identical_that_has_another_state(
    then: dict[int, tuple[int, str]], now: dict[int, tuple[int, str]], ended: str
) -> None:
    found = judged(RunRecord(2, ended, 1, now), RunRecord(1, "completed", 1, then))
    shared = then.keys() & now.keys()
    if found.result == "identical":
        assert then and ended and all(now[epoch] == said for epoch, said in then.items())
    if any(then[epoch] != now[epoch] for epoch in shared):
        assert found.result == "different"
    assert found.sentence.endswith(".")
