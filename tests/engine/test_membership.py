"""Who is in the next generation: pure decisions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.driver.membership import JOIN_WAIT_S, Decision, Facts, Publish, WorkerFacts, decide


def facts(*workers: WorkerFacts, wanted=(0, 1), members=(), begun=True, engines=4, barred=(), now=0.0):
    return Facts(engines, tuple(wanted), "asked", 3, tuple(members), begun, workers, frozenset(barred), now)


def worker(worker_id: int, state: str, *, slot: int | None = None, dead: bool = False) -> WorkerFacts:
    return WorkerFacts(worker_id, worker_id if slot is None else slot, state, dead)  # type: ignore[arg-type]


def test_granted_slots_get_a_worker_each():
    assert decide(facts()) == Decision(start=(0, 1))


def test_nobody_begins_before_all_that_were_started_are_ready():
    assert decide(facts(worker(0, "ready"), worker(1, "starting"))) == Decision()
    assert decide(facts(worker(0, "ready"), worker(1, "ready"))).publish == Publish((0, 1), (), False, "asked")


def test_no_more_workers_than_engines():
    assert decide(facts(wanted=range(9), engines=2)).start == (0, 1)


def test_members_train_on_while_a_newcomer_starts():
    assert decide(facts(worker(0, "member"), members=(0,))) == Decision(start=(1,))
    assert decide(facts(worker(0, "member"), worker(1, "starting"), members=(0,))) == Decision()
    assert decide(facts(worker(0, "member"), worker(1, "ready"), members=(0,))).publish == Publish((0, 1), (), False, "asked")


def test_one_that_is_slow_to_start_does_not_keep_out_those_who_are_ready():
    slow, quick, quicker = worker(3, "starting"), WorkerFacts(1, 1, "ready", ready_at=20.0), WorkerFacts(2, 2, "ready", ready_at=19.0)
    for members in ((0,), ()):
        workers = (*(worker(worker_id, "member") for worker_id in members), quick, quicker, slow)
        wanted = (*members, 1, 2, 3)
        assert decide(facts(*workers, wanted=wanted, members=members, now=19.0 + 0.9 * JOIN_WAIT_S)).publish is None
        publish = decide(facts(*workers, wanted=wanted, members=members, now=19.1 + JOIN_WAIT_S)).publish
        assert publish == Publish((*members, 1, 2), (), False, "asked")


def test_a_slot_that_was_taken_away_is_given_back_without_waiting_for_newcomers():
    now = facts(worker(0, "member"), worker(1, "member"), worker(2, "starting"), wanted=(0, 2), members=(0, 1))
    assert decide(now).publish == Publish((0,), (), False, "asked")


def test_when_nobody_stays_the_old_members_hand_over_to_the_new():
    before = facts(worker(0, "member"), wanted=(1,), members=(0,))
    assert decide(before) == Decision(start=(1,))
    ready = facts(worker(0, "member"), worker(1, "ready"), wanted=(1,), members=(0,))
    assert decide(ready).publish == Publish((1,), (0,), False, "asked")


def test_no_slots_suspend_the_run():
    now = facts(worker(0, "member"), worker(1, "member"), wanted=(), members=(0, 1))
    assert decide(now).publish == Publish((), (0, 1), False, "asked")


def test_a_worker_that_never_became_a_member_is_simply_ended():
    assert decide(facts(worker(0, "member"), worker(1, "starting"), wanted=(0,), members=(0,))) == Decision(discard=(1,))


def test_a_generation_on_its_way_is_left_alone():
    assert decide(facts(worker(0, "member"), worker(1, "member"), wanted=(0,), members=(0, 1), begun=False)).publish is None


def test_a_death_is_answered_at_once_even_on_the_way():
    now = facts(worker(0, "member"), worker(1, "member", dead=True), worker(2, "leaving"), members=(0, 1), begun=False)
    assert decide(now) == Decision(publish=Publish((0, 2), (), True, "the worker on slot 1 died"))


def test_a_leaver_that_dies_before_the_change_is_a_death():
    now = facts(worker(0, "member"), worker(1, "leaving", dead=True), wanted=(0,), members=(0,), begun=False)
    assert decide(now).publish == Publish((0,), (), True, "the worker on slot 1 died")


def test_no_survivor_means_the_state_is_lost():
    assert decide(facts(worker(0, "member", dead=True), members=(0,))) == Decision(lost=True)


def test_a_slot_is_not_used_again_before_its_process_is_gone():
    assert decide(facts(worker(0, "member"), worker(9, "left", slot=1), members=(0,))) == Decision()


def test_a_barred_slot_is_left_out():
    assert decide(facts(barred=(0,))).start == (1,)


@st.composite
def situations(draw):
    count = draw(st.integers(0, 7))
    begun = draw(st.booleans())
    workers, members = [], []
    for worker_id, slot in enumerate(draw(st.permutations(range(8)))[:count]):
        state = draw(st.sampled_from(["starting", "ready", "member", "leaving", "left"]))
        workers.append(WorkerFacts(worker_id, slot, state, draw(st.booleans()) and state in ("member", "leaving")))
        if state == "member":
            members.append(worker_id)
    wanted = tuple(draw(st.lists(st.integers(0, 7), max_size=6)))
    return Facts(draw(st.integers(1, 5)), wanted, "asked", 3, tuple(members), begun, tuple(workers))


@given(situations())
def test_invariants_of_every_decision(now):
    decision = decide(now)
    by_id = {w.worker_id: w for w in now.workers}
    occupied = {w.slot for w in now.workers if not w.dead}
    assert not occupied & set(decision.start)
    assert len(set(decision.start)) == len(decision.start)
    assert all(by_id[worker_id].state in ("starting", "ready") for worker_id in decision.discard)
    if decision.publish is not None:
        publish = decision.publish
        chosen = [by_id[worker_id] for worker_id in publish.members]
        assert all(not w.dead and w.state != "left" for w in chosen)
        assert len({w.slot for w in chosen}) == len(chosen)
        assert not set(publish.members) & set(decision.discard)
        assert publish.abort or now.begun
        holders = {w.worker_id for w in now.workers if w.state == "member" and not w.dead}
        if holders:  # the state always has a way into the next generation, or to the disk
            assert holders & set(publish.members + publish.visitors)
        if not publish.abort:
            assert len(publish.members) <= now.engines
            assert {w.slot for w in chosen} <= set(now.wanted)
    assert decide(now) == decision
