"""How long work waits that is asked for again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from experiments.ops.pace import LONGEST_S, SHORT_S, Pace


def test_the_longer_a_turn_took_the_longer_the_next_one_waits() -> None:
    pace = Pace(share=0.25)
    assert pace.wait_s(100.0) == 0.0
    pace.took(100.0, 100.1)
    assert round(pace.wait_s(100.1), 6) == 0.3
    assert round(pace.wait_s(100.3), 6) == 0.1
    assert pace.wait_s(105.0) == 0.0


def test_a_short_turn_may_be_followed_at_once_and_nobody_waits_for_ever() -> None:
    pace = Pace(share=0.25)
    pace.took(100.0, 100.0 + SHORT_S / 2)
    assert pace.wait_s(100.0 + SHORT_S / 2) == 0.0
    pace.took(100.0, 160.0)
    assert pace.wait_s(160.0) == LONGEST_S


@given(st.lists(st.floats(SHORT_S * 2, 0.3), min_size=5, max_size=30))
def test_turns_without_end_take_their_share_of_the_time(turns: list[float]) -> None:
    pace, now, spent = Pace(share=0.3), 0.0, 0.0
    for lasts in turns:
        now += pace.wait_s(now)
        pace.took(now, now + lasts)
        now, spent = now + lasts, spent + lasts
    assert spent <= 0.3 * (now + pace.wait_s(now)) * 1.001
