"""Who is slow and at work is left alone: heartbeats in everything that may take long, and deadlines that follow the work."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.engine.scripts import SMALL
from training_runtime.elastic import heartbeat
from training_runtime.elastic.arena import BEAT, COMMITTED, Arena, Layout
from training_runtime.elastic.roster import Seated
from training_runtime.elastic.vigil import Vigil
from training_runtime.elastic.watch import Sign, Watch, excused_s
from training_runtime.protocol import SlotRef

SLOW_METRIC = """
import time
def slow(outputs, targets):
    time.sleep(0.02)
    return 0.0
"""
SLOW_STATE = """
import os, time
from training_runtime.elastic import state
for _name in ("write_all", "read_all"):
    def _slow(*args, _inner=getattr(state, _name)):
        time.sleep(0.1)
        _inner(*args)
    setattr(state, _name, _slow)
"""


def told(run) -> list[str]:
    return [w.message for w in run.events("warning") if "showed no progress" in w.message]


@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_a_validation_far_longer_than_the_deadline_is_no_hang(start, slots):
    code = SLOW_METRIC + SMALL.replace("Noisy(61, 2)", "Noisy(801, 2)").replace("optimizer).train", "optimizer, metrics=[slow]).train")
    run = start(code, "--epochs", "1", "--samples", "64", env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert len(run.events("test")) == 1
    assert not told(run)


def test_a_state_that_is_long_on_its_way_to_a_newcomer_is_no_hang(start):
    run = start(SLOW_STATE + SMALL, "--epochs", "100000", env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(0)
    run.until_step(20)
    run.members(0, 1)
    run.until_workers(2)
    assert not told(run)
    assert not run.events("resumed")
    run.stop()
    assert run.wait() == 0, run.tail()


def test_a_heartbeat_is_a_sign_and_without_one_a_member_alone_hangs():
    watch = Watch()
    for now in range(10):
        assert watch.hung(now, {0: Sign(5, 3, beat=now)}, 2) == ()
    assert watch.hung(11.5, {0: Sign(5, 3, beat=9)}, 2) == (0,)


def test_what_may_take_long_gets_longer_where_somebody_wants_long_deadlines():
    assert excused_s(0.7) == 900
    assert excused_s(600) == 9000


@pytest.fixture
def arena(tmp_path: Path):
    with open(tmp_path / "arena", "w+b") as file:
        made = Arena(file.fileno(), Layout(2, 1, 3, 1, 0, 0, ()), create=True)
        made.clear_seat(0)
        made.set(0, COMMITTED, 5)
        yield made


def member(pid: int = 1) -> Seated:
    return Seated(0, SlotRef(7, "node", 0, "cpu"), 1, "member", pid)  # of another machine: its /proc is not looked at


def look(vigil: Vigil, arena: Arena, now: float, durations=(0.1,), seated=None) -> bool:
    return bool(vigil.look(now, arena, [seated or member()], members=[0], durations=list(durations), done=False))


def hangs_after(vigil: Vigil, arena: Arena, begin: float, durations=(0.1,)) -> float:
    """Seconds without a beat until the member is found, looked at every half second."""
    arena.set(0, BEAT, arena.get(0, BEAT) + 1)
    now = begin
    while not look(vigil, arena, now, durations):
        now += 0.5
    return now - begin


def test_each_worker_that_is_ended_doubles_the_deadline_for_an_hour(arena):
    vigil = Vigil(None)
    assert hangs_after(vigil, arena, 0.0) == pytest.approx(60, abs=1)
    assert hangs_after(vigil, arena, 100.0) == pytest.approx(120, abs=1)
    quiet = 0.0
    while quiet < 3700:
        arena.set(0, BEAT, arena.get(0, BEAT) + 1)
        assert not look(vigil, arena, 300.0 + quiet)
        quiet += 0.5
    assert hangs_after(vigil, arena, 300.0 + quiet) == pytest.approx(60, abs=1)


def test_a_deadline_that_somebody_has_set_is_not_doubled(arena):
    vigil = Vigil(3.0)
    assert hangs_after(vigil, arena, 0.0) == pytest.approx(3, abs=1)
    assert hangs_after(vigil, arena, 10.0) == pytest.approx(3, abs=1)


def test_the_time_in_which_the_driver_could_not_look_does_not_count(arena):
    vigil = Vigil(None)
    assert not look(vigil, arena, 0.0)
    assert not look(vigil, arena, 0.2)
    assert not look(vigil, arena, 500.0), "the driver was stopped, or waited for a disk"


def test_a_large_piece_of_state_beats_on_its_way(arena, tmp_path):
    heartbeat.begin(arena, 0)
    with open(tmp_path / "state", "wb") as file:
        heartbeat.Beating(file).write(bytes(3 * heartbeat.PIECE_BYTES))
        assert arena.get(0, BEAT) == 3
        assert file.tell() == 3 * heartbeat.PIECE_BYTES
    assert b"".join(heartbeat.pieces(memoryview(io.BytesIO(b"small").getvalue()))) == b"small"
    assert arena.get(0, BEAT) == 4
