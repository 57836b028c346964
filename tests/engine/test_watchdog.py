"""Who is slow and at work is left alone: heartbeats in everything that may take long, and deadlines that follow the work."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.engine.scripts import SMALL
from training_runtime import journal, journal_writer
from training_runtime.elastic.comm.segment import BEAT, COMMITTED, GenerationRecord, Layout, Segment
from training_runtime.elastic.driver.hang_detector import HangDetector
from training_runtime.elastic.driver.hang_rules import BarrierWatchdog, Sign, excused_s
from training_runtime.elastic.driver.reclaim import GracePeriod, Holder
from training_runtime.elastic.driver.recorder import Recorder
from training_runtime.elastic.driver.supervision import Supervision
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.worker import heartbeat
from training_runtime.protocol import SlotRef

SLOW_METRIC = """
import time
def slow(outputs, targets):
    time.sleep(0.02)
    return 0.0
"""
SLOW_STATE = """
import os, time
from training_runtime.elastic.state import transfer
for _name in ("write_all", "read_all"):
    def _slow(*args, _inner=getattr(transfer, _name)):
        time.sleep(0.1)
        _inner(*args)
    setattr(transfer, _name, _slow)
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


STUCK = """
import os, time
class Stuck:
    def on_epoch_begin(self, epoch):
        while os.path.exists(os.environ["RESULT_DIR"] + "/stuck") and "worker-2" in os.environ["LOG_DIR"]:
            time.sleep(0.01)
"""


def test_a_slot_that_a_callback_keeps_is_free_after_the_grace_and_the_others_go_on(start):
    code = STUCK + SMALL.replace("optimizer).train", "optimizer, user_callbacks=[Stuck()]).train")
    run = start(code, "--epochs", "100000", env={"EDT_RELEASE_GRACE_S": "0.5"})
    run.members(0, 1, 2)
    run.until_workers(3)
    (run.result_dir / "stuck").touch()
    run.until(lambda: is_stuck(run), what="no step any more")
    run.members(0, 1)
    run.until(lambda: run.holding == (0, 1), what="the slot is free")
    run.until_workers(2)
    assert [w.message for w in run.events("warning")] == [
        "slot 2 was asked back and not free within 0.5 s: its worker was ended (EDT_RELEASE_GRACE_S sets the time)"
    ]
    assert not run.events("resumed")
    run.stop()
    assert run.wait() == 0, run.tail()


def is_stuck(run) -> bool:
    """Whether the members are at the end of an epoch and stay there for a while."""
    before = run.step()
    return before % 21 == 0 and all(not run.pump(0.1) and run.step() == before for _ in range(5))


def test_a_newcomer_that_is_stuck_in_its_start_does_not_keep_out_the_others(start):
    code = STUCK.replace("on_epoch_begin(self, epoch)", "on_train_begin(self)")
    run = start(code + SMALL.replace("optimizer).train", "optimizer, user_callbacks=[Stuck()]).train"), "--epochs", "100000")
    run.members(0)
    run.until_step(3)
    (run.result_dir / "stuck").touch()
    run.members(0, 1, 2)
    run.until_workers(2)
    (run.result_dir / "stuck").unlink()
    run.until_workers(3)
    run.stop()
    assert run.wait() == 0, run.tail()


def holder(worker_id: int, *, gives: bool = False, beat: int = 0) -> Holder:
    return Holder(worker_id, worker_id, gives, beat)


def looks(until: float, since: float = 0.0) -> list[float]:
    """As often as the driver looks, at least."""
    return [since + half / 2 for half in range(int(2 * (until - since)))]


def test_a_slot_is_asked_back_for_so_long_and_longer_where_nobody_else_has_the_state():
    grace_period = GracePeriod(30.0)
    both = (holder(0), holder(1))
    assert next(now for now in looks(40) if grace_period.overdue(now, both, (0,))) == 30.5
    grace_period = GracePeriod(30.0)
    assert next(now for now in looks(130) if grace_period.overdue(now, both, ())) == 120.5


def test_who_gives_its_state_away_has_until_no_more_bytes_move():
    grace_period = GracePeriod(30.0)
    assert not any(grace_period.overdue(now, (holder(0), holder(1, gives=True, beat=int(now) // 20)), (0,)) for now in looks(1000))
    last = ((now, grace_period.overdue(now, (holder(0), holder(1, gives=True, beat=49)), (0,))) for now in looks(1040, since=1000))
    assert next((now, [h.worker_id for h in found]) for now, found in last if found) == (1010.5, [1])


def test_who_left_before_the_end_has_no_longer_for_it_while_the_model_is_written(segment):
    supervision = Supervision(0.0)
    writes, stays = (
        WorkerProcess(worker_id, SlotRef(worker_id, "", worker_id, "cpu"), 0, state, pid=1)
        for worker_id, state in ((0, "member"), (1, "left"))
    )

    def ended(at: float) -> list[int]:
        for worker_id in (0, 1):
            segment.set(worker_id, BEAT, int(at * 1000))
        record, facts = GenerationRecord(1, (0,), ()), {"wanted": (0,), "durations": [], "done": False, "retiring": True}
        return [worker_id for worker_id, _ in supervision.to_end(at, segment, (writes, stays), record, **facts)]

    assert [at for at in looks(31.5) if ended(at)] == [30.5, 31.0]


def test_the_beats_of_a_step_are_not_enough():
    grace_period = GracePeriod(30.0)
    assert next(now for now in looks(40) if grace_period.overdue(now, (holder(0), holder(1, beat=int(now))), (0,))) == 30.5


def test_a_driver_that_was_away_does_not_blame_its_workers_for_that():
    """It was stopped, or waited for room on a disk as they did."""
    grace_period = GracePeriod(30.0)
    both = (holder(0), holder(1))
    assert not any(grace_period.overdue(now, both, (0,)) for now in looks(20))
    assert not grace_period.overdue(300, both, (0,))
    assert next(now for now in looks(340, since=300) if grace_period.overdue(now, both, (0,))) == 310.5


def test_a_slot_that_is_granted_again_is_forgotten():
    grace_period = GracePeriod(30.0)
    grace_period.overdue(0, (holder(0), holder(1)), (0,))
    grace_period.overdue(20, (holder(0), holder(1)), (0, 1))
    assert not grace_period.overdue(40, (holder(0), holder(1)), (0,))


def test_a_heartbeat_is_a_sign_and_without_one_a_member_alone_hangs():
    watch = BarrierWatchdog()
    for now in range(10):
        assert watch.hung(now, {0: Sign(5, 3, beat=now)}, 2) == ()
    assert watch.hung(11.5, {0: Sign(5, 3, beat=9)}, 2) == (0,)


def test_what_may_take_long_gets_longer_where_somebody_wants_long_deadlines():
    assert excused_s(0.7) == 900
    assert excused_s(600) == 9000


@pytest.fixture
def segment(tmp_path: Path):
    with open(tmp_path / "segment", "w+b") as file:
        made = Segment(file.fileno(), Layout(2, 1, 3, 1, 0, 0, ()), create=True)
        made.clear_worker(0)
        made.set(0, COMMITTED, 5)
        yield made


def member(pid: int = 1) -> WorkerProcess:
    return WorkerProcess(0, SlotRef(7, "node", 0, "cpu"), 1, "member", pid)  # of another machine: its /proc is not looked at


def look(hang_detector: HangDetector, segment: Segment, now: float, durations=(0.1,), worker=None) -> bool:
    return bool(hang_detector.look(now, segment, [worker or member()], members=[0], durations=list(durations), done=False))


def hangs_after(hang_detector: HangDetector, segment: Segment, begin: float, durations=(0.1,)) -> float:
    """Seconds without a beat until the member is found, looked at every half second."""
    segment.set(0, BEAT, segment.get(0, BEAT) + 1)
    now = begin
    while not look(hang_detector, segment, now, durations):
        now += 0.5
    return now - begin


def test_each_worker_that_is_ended_doubles_the_deadline_for_an_hour(segment):
    hang_detector = HangDetector(None)
    assert hangs_after(hang_detector, segment, 0.0) == pytest.approx(60, abs=1)
    assert hangs_after(hang_detector, segment, 100.0) == pytest.approx(120, abs=1)
    quiet = 0.0
    while quiet < 3700:
        segment.set(0, BEAT, segment.get(0, BEAT) + 1)
        assert not look(hang_detector, segment, 300.0 + quiet)
        quiet += 0.5
    assert hangs_after(hang_detector, segment, 300.0 + quiet) == pytest.approx(60, abs=1)


def test_a_deadline_that_somebody_has_set_is_not_doubled(segment):
    hang_detector = HangDetector(3.0)
    assert hangs_after(hang_detector, segment, 0.0) == pytest.approx(3, abs=1)
    assert hangs_after(hang_detector, segment, 10.0) == pytest.approx(3, abs=1)


def test_the_time_in_which_the_driver_could_not_look_does_not_count(segment):
    hang_detector = HangDetector(None)
    assert not look(hang_detector, segment, 0.0)
    assert not look(hang_detector, segment, 0.2)
    assert not look(hang_detector, segment, 500.0), "the driver was stopped, or waited for a disk"


def test_a_large_piece_of_state_beats_on_its_way(segment, tmp_path):
    heartbeat.begin(segment, 0)
    with open(tmp_path / "state", "wb") as file:
        heartbeat.Beating(file).write(bytes(3 * heartbeat.PIECE_BYTES))
        assert segment.get(0, BEAT) == 3
        assert file.tell() == 3 * heartbeat.PIECE_BYTES
    assert b"".join(heartbeat.pieces(memoryview(io.BytesIO(b"small").getvalue()))) == b"small"
    assert segment.get(0, BEAT) == 4


class Silent:
    def begin(self, steps: int) -> None: ...
    def trained(self, event, means, generation) -> None: ...
    def say(self, line: str) -> None: ...


def test_the_deadline_follows_the_work_of_a_worker(tmp_path):
    job, shape = SimpleNamespace(engines=24, means=lambda columns: {}), SimpleNamespace()
    writer = journal_writer.Writer(tmp_path / "journal.jsonl", 7)
    recorder = Recorder(writer, job, logger=None, grown=lambda size: None, screen=Silent())
    members = lambda count: tuple(journal.Member(n, n, n) for n in range(count))  # noqa: E731
    recorder.generation(journal.Generation(1, 1, 1, members(24), 0, "", 0.0, 0), stood_s=0.0, work_ratio=1.0)
    recorder.steps([[1, 1, 24, 24, 0.5, 100.0, 1]], shape)
    assert recorder.durations() == [0.5]
    recorder.generation(journal.Generation(2, 2, 1, members(1), 24, "", 0.0, 0), stood_s=0.0, work_ratio=24.0)
    assert recorder.durations() == [12.0]
    recorder.generation(journal.Generation(3, 2, 1, members(24), 1, "", 0.0, 0), stood_s=0.0, work_ratio=1.0)
    assert recorder.durations() == [0.5]
    writer.close()
