"""Which trials of a search are not worth going on with."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.searches import falling_behind
from experiments.searches.falling_behind import LEAST_ENDED, Behind, Course, Epochs, behind

EPOCHS = [(1, 0.9), (2, 0.5), (3, 0.7), (4, 0.2)]
STEPS = [(1, 0.9), (1, 0.6), (2, 0.8), (2, 0.4), (3, 0.1)]


def course(points: list[tuple[int, float]], *, maximize: bool, has_ended: bool, by_epoch: bool | None = None) -> Course:
    """Of a curve of these: epoch and value of each point."""
    epochs = [[value for _, value in group] for _, group in itertools.groupby(points, key=lambda point: point[0])]
    best = [(max if maximize else min)(values) for values in epochs]
    curve = Epochs(best, max(map(len, epochs), default=0), [value for _, value in points])
    return falling_behind.course(curve, maximize=maximize, by_epoch=by_epoch, has_ended=has_ended)


def of_epochs(*best: float) -> Course:
    return Course(True, best)


OTHERS = [of_epochs(0.9, 0.5, 0.4), of_epochs(0.8, 0.6, 0.5), of_epochs(0.7, 0.4, 0.2), of_epochs(0.9, 0.7, 0.6)]


def test_a_course_is_the_best_so_far_after_each_epoch() -> None:
    assert course(EPOCHS, maximize=False, has_ended=True) == of_epochs(0.9, 0.5, 0.5, 0.2)
    assert course(EPOCHS, maximize=True, has_ended=True) == of_epochs(0.9, 0.9, 0.9, 0.9)
    assert course(STEPS, maximize=False, has_ended=True) == of_epochs(0.6, 0.4, 0.1)


def test_an_epoch_that_goes_on_does_not_count_where_it_has_several_points() -> None:
    assert course(STEPS, maximize=False, has_ended=False) == of_epochs(0.6, 0.4)
    assert course(EPOCHS, maximize=False, has_ended=False).best[-1] == 0.2, "one point an epoch is its end"


def test_without_epochs_each_value_counts() -> None:
    plain = [(0, value) for _, value in EPOCHS]
    assert course(plain, maximize=False, has_ended=True) == Course(False, (0.9, 0.5, 0.5, 0.2))
    assert course(STEPS[:2], maximize=False, has_ended=False, by_epoch=True) == of_epochs(), "its first epoch, as the others count"
    assert course([], maximize=False, has_ended=True).best == ()


@pytest.mark.parametrize(
    ("mine", "maximize", "found"),
    [
        (of_epochs(0.9, 0.6), False, Behind(2, 0.6, 0.55)),
        (of_epochs(0.9, 0.55), False, None),
        (of_epochs(0.9, 0.6), True, None),
        (of_epochs(0.9, 0.5), True, Behind(2, 0.5, 0.55)),
        (of_epochs(9.0), False, None),
        (of_epochs(9.0, 9.0, 9.0, 9.0), False, None),
        (of_epochs(), False, None),
        (Course(False, (9.0, 9.0)), False, None),
    ],
)
def test_who_is_worse_than_half_of_the_others_at_the_same_point_falls_behind(mine: Course, maximize: bool, found: Behind | None) -> None:
    got = behind(mine, OTHERS, maximize=maximize)
    assert (got and (got.points, got.value)) == (found and (found.points, found.value))
    assert found is None or got is None or got.median == pytest.approx(found.median)


def test_few_others_say_nothing() -> None:
    assert behind(of_epochs(9.0, 9.0), OTHERS[: LEAST_ENDED - 1], maximize=False) is None


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=6), min_size=LEAST_ENDED, max_size=12), st.booleans())
def test_never_more_than_half_of_any_trials_fall_behind_the_others(values: list[list[float]], maximize: bool) -> None:
    courses = [course([(n, value) for n, value in enumerate(each)], maximize=maximize, has_ended=True) for each in values]
    at = 3
    cut = [Course(True, each.best[:at]) for each in courses]
    assert sum(behind(each, courses, maximize=maximize) is not None for each in cut) <= len(cut) / 2
