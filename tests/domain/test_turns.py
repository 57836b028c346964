"""Whose turn it is to have a file worked on: a table of who waits, and that nobody is kept out by one person."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as some

from experiments.boxed.turns import NOBODY, Turns, next_turn

ALICE, BOB, CHARLIE = 1, 2, 3


@pytest.mark.parametrize(
    ("waiting", "working", "begins"),
    [
        ([], {}, None),
        ([ALICE], {}, 0),
        ([ALICE], {ALICE: 2}, 0),
        ([ALICE], {ALICE: 3}, None),  # the last place is for others
        ([ALICE, BOB], {ALICE: 3}, 1),
        ([ALICE, ALICE, BOB], {ALICE: 1}, 2),  # who has fewer at work is next
        ([ALICE, BOB], {CHARLIE: 2}, 0),  # and among equals who came first
        ([BOB], {ALICE: 3, CHARLIE: 1}, None),
        ([NOBODY], {NOBODY: 3}, 0),  # the studio's own work has no limit of its own
    ],
)
def test_who_is_next(waiting: list[int], working: dict[int, int], begins: int | None) -> None:
    assert next_turn(waiting, working, size=4) == begins


@given(some.lists(some.integers(0, 5), max_size=12), some.integers(1, 5))
def test_places_are_filled_and_no_person_has_all_of_several(waiting: list[int], size: int) -> None:
    left, working = list(waiting), dict[int, int]()
    while (place := next_turn(left, working, size=size)) is not None:
        who = left.pop(place)
        working[who] = working.get(who, 0) + 1
    assert sum(working.values()) <= size
    assert all(count <= max(1, size - 1) for who, count in working.items() if who != NOBODY)
    free = size - sum(working.values())
    assert not free or all(working.get(who, 0) >= size - 1 for who in left)


def test_a_lane_with_one_place_serves_everybody_in_turn() -> None:
    turns = Turns(1)
    assert turns.begin(ALICE, patience_s=0)
    assert not turns.begin(BOB, patience_s=0)
    turns.end(ALICE)
    assert turns.begin(BOB, patience_s=0)


def test_who_has_filled_a_lane_waits_behind_who_came_later() -> None:
    turns, begun = Turns(3), list[int]()
    held = [turns.begin(ALICE, patience_s=0) for _ in range(2)] + [turns.begin(CHARLIE, patience_s=0)]
    assert held == [True] * 3

    def wait(who: int) -> None:
        assert turns.begin(who, patience_s=30)
        begun.append(who)
        turns.end(who)

    with ThreadPoolExecutor(4) as threads:
        later = [threads.submit(wait, who) for who in (ALICE, ALICE, ALICE)]
        _until(lambda: len(turns._waiting) == 3)
        later.append(threads.submit(wait, BOB))
        _until(lambda: len(turns._waiting) == 4)
        turns.end(CHARLIE)
        for each in later[3:]:
            each.result(30)
        assert begun == [BOB]
        turns.end(ALICE)
        for each in later:
            each.result(30)
    assert begun == [BOB, ALICE, ALICE, ALICE]


def _until(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(3000):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("not within 30 s")


def test_who_gave_up_takes_no_turn() -> None:
    turns = Turns(2)
    assert turns.begin(ALICE, patience_s=0)
    assert not turns.begin(ALICE, patience_s=0.01)
    assert turns.begin(BOB, patience_s=0)
    turns.end(BOB)
    turns.end(ALICE)
    assert turns.begin(ALICE, patience_s=0)
