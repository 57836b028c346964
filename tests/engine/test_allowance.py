"""What is looked at while a training goes on takes a small share of its time."""

from __future__ import annotations

from training_runtime.elastic.state.allowance import AT_FIRST_S, SHARE, Allowance


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_look_is_allowed_whatever_it_takes_and_the_next_when_it_is_a_small_share() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    assert allowance.is_left()
    with allowance.spending():
        clock.now += 3.0
    assert not allowance.is_left()
    clock.now += (3.0 - AT_FIRST_S) / SHARE - 4.0
    assert not allowance.is_left()
    clock.now += 2.0
    assert allowance.is_left()


def test_looks_that_take_next_to_nothing_are_always_allowed() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    for _ in range(1000):
        clock.now += 1.0
        assert allowance.is_left()
        with allowance.spending():
            clock.now += 0.01
