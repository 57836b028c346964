"""What becomes of a torchrun script's workers at each change, decided without any of them."""

from __future__ import annotations

import dataclasses

import pytest

from training_runtime.elastic.torchrun.decide import GATHER_S, End, Facts, Finish, Kill, Start, Suspend, Wait, decide

UP = Facts(granted=(4, 7), granted_at=10.0, reason="granted", group=(4, 7), max_restarts=2)


def said(facts: Facts, *, now: float = 100.0, **changes):
    return decide(dataclasses.replace(facts, **changes), now=now, grace_s=5.0, grow_after_s=30.0)


def test_nothing_starts_before_a_slot_is_granted_and_one_worker_a_slot_starts_then():
    assert said(UP, granted=(), group=()) == Wait()
    assert said(UP, group=()) == Start((4, 7), "granted", 0)


def test_a_fixed_run_starts_with_all_its_slots_or_not_at_all():
    assert said(UP, group=(), size=3) == Wait()
    assert said(UP, granted=(4, 7, 9), group=(), size=3) == Start((4, 7, 9), "granted", 0)


def test_a_new_slot_starts_all_anew_but_not_before_others_may_have_come_too():
    assert said(UP, granted=(4, 7, 9), now=10.1) == Wait(10.0 + GATHER_S)
    assert said(UP, granted=(4, 7, 9), now=10.0 + GATHER_S) == End("slots", "granted")


@pytest.mark.parametrize(("changes", "waits_s"), [((), 0.0), ((50.0,), 30.0), ((50.0, 60.0), 60.0), ((1.0,) * 12, 1800.0)])
def test_where_slots_come_and_go_workers_run_longer_before_they_are_ended_to_grow(changes, waits_s):
    grown = dataclasses.replace(UP, granted=(4, 7, 9), granted_at=80.0, began_at=70.0, changes=changes)
    due = max(81.0, 70.0 + waits_s)
    assert said(grown, now=80.5) == Wait(due)
    assert said(grown, now=due) == End("slots", "granted")
    assert said(grown, now=80.5, granted=(4,)) == End("slots", "granted"), "what is asked back is given back at once"


def test_changes_of_an_hour_ago_count_no_more():
    grown = dataclasses.replace(UP, granted=(4, 7, 9), granted_at=5000.0, began_at=5000.0, changes=(50.0,) * 20)
    assert said(grown, now=5001.0) == End("slots", "granted")


def test_the_same_slots_in_another_order_change_nothing():
    assert said(UP, granted=(7, 4)) == Wait()


@pytest.mark.parametrize("granted", [(4,), (4, 9), (4, 9, 11), ()])
def test_a_slot_that_is_asked_back_is_given_back_at_once(granted):
    assert said(UP, granted=granted, now=10.0) == End("slots", "granted")


def test_a_fixed_run_that_is_displaced_ends_as_a_whole_and_waits():
    fixed = dataclasses.replace(UP, size=2)
    assert said(fixed, granted=(4,)) == End("slots", "granted")
    gone = dataclasses.replace(fixed, granted=(4,), ending="slots", ended={0: -15, 1: -15})
    assert said(gone) == Suspend("granted")
    assert said(gone, granted=(4, 8)) == Start((4, 8), "granted", 0)


def test_workers_get_a_grace_and_then_are_killed_once():
    ending = dataclasses.replace(UP, ending="slots", ending_at=50.0)
    assert said(ending, now=52.0) == Wait(55.0)
    assert said(ending, now=55.0) == Kill()
    assert said(ending, now=56.0, killed=True) == Wait()


def test_nothing_follows_before_the_last_worker_is_gone():
    ending = dataclasses.replace(UP, granted=(4,), ending="slots", ending_at=50.0)
    assert said(ending, now=52.0, ended={1: -15}) == Wait(55.0)
    assert said(ending, now=52.0, ended={0: 0, 1: -15}) == Start((4,), "granted", 0)


def test_a_worker_that_fails_ends_the_others_and_all_start_again():
    failed = dataclasses.replace(UP, ended={1: -9}, failed={1: "worker 1 was killed"})
    assert said(failed) == End("failure", "worker 1 was killed")
    gone = dataclasses.replace(failed, ending="failure", ended={0: -15, 1: -9})
    assert said(gone) == Start((4, 7), "worker 1 was killed; restart 1 of 2", 1)
    assert said(gone, restarts=1) == Start((4, 7), "worker 1 was killed; restart 2 of 2", 2)
    assert said(gone, restarts=2) == Finish("failed")


def test_a_change_of_slots_counts_as_no_failure():
    assert said(UP, granted=(4, 7, 9), ending="slots", ended={0: 1, 1: -15}, restarts=2) == Start((4, 7, 9), "granted", 2)


def test_the_first_failure_is_named():
    assert said(UP, ended={0: 1, 1: 1}, failed={1: "the cause", 0: "what followed"}, max_restarts=0) == Finish("failed")
    assert said(UP, ended={0: 1}, failed={0: "the cause"}) == End("failure", "the cause")


def test_it_is_completed_when_all_have_come_to_their_end():
    assert said(UP, ended={0: 0}) == Wait()
    assert said(UP, ended={0: 0, 1: 0}) == Finish("completed")


def test_a_run_whose_first_workers_have_finished_is_not_started_anew_for_more_slots():
    assert said(UP, granted=(4, 7, 9), ended={0: 0}) == Wait()
    assert said(UP, granted=(7,), ended={0: 0}) == Wait(), "the slot that is asked back has no worker any more"
    assert said(UP, granted=(4,), ended={0: 0}) == End("slots", "granted")


def test_a_stop_ends_the_workers_first():
    assert said(UP, stop=True) == End("stop", "granted")
    assert said(UP, stop=True, ending="stop", ending_at=100.0, ended={0: 0}) == Wait(105.0)
    assert said(UP, stop=True, ending="stop", ended={0: 0, 1: -15}) == Finish("stopped")
    assert said(UP, stop=True, group=()) == Finish("stopped")
