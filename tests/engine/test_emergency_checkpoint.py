"""The driver or the fork server dies, alone or with others: nothing is lost, nothing is done twice, nothing is left running."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.faults import DRIVER_PHASES, FAULTS
from tests.engine.harness import Run, in_session, until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.state import emergency_checkpoint

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all
SCRIPT = FAULTS + SMALL


STOPS_IN_ITS_START = """
import os, signal
class Stops:
    def on_train_begin(self):
        folder = os.environ["RESULT_DIR"]
        if os.path.exists(folder + "/grow") and not os.path.exists(folder + "/once"):
            open(folder + "/once", "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
"""


def same(run: Run, one: Run) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
    lines = run.lines()
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    members = 0
    for event in (line.event for line in lines):
        members = len(event.members) if event.kind == "generation" else members
        assert event.kind != "train" or event.workers == members, f"the line of who did step {event.step} is missing"
    files = [(e.step, e.role, e.paths) for e in run.events("checkpoint")]
    assert len(files) == len(set(files))


def finish(run: Run, *slots: int, attempts: int = 2) -> None:
    """Start the driver again as the host does, as long as it is killed. `attempts` are expected in all."""
    while (code := run.wait()) == -signal.SIGKILL:
        until_gone(run.pid)
        run.again()
        run.members(*slots)
    assert code == 0, run.tail()
    assert run.spec.attempt == attempts


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def fork_server_of(run: Run) -> int:
    return parent_of(next(iter(run.workers.values())))


def test_a_killed_driver_costs_no_step(start, fixed):
    run = start(SCRIPT, *LONG, "--checkpoint", "0")
    run.members(0, 1, 2)
    run.until_step(43)
    os.kill(run.pid, signal.SIGKILL)
    finish(run, 1, 2)
    (resumed,) = run.events("resumed")
    assert resumed.step >= 43
    assert resumed.step == max(e.step for e in run.events("train") if e.workers == 3), "it went on with the very next step"
    same(run, fixed(*LONG))


@pytest.mark.parametrize("part", range(3))
def test_a_driver_killed_at_any_point_of_its_work_loses_nothing(start, fixed, part):
    phases = DRIVER_PHASES[part::3]
    faults = [{"phase": phase, "step": 10 + 7 * i if "_done" not in phase else 96} for i, phase in enumerate(phases)]
    run = start(SCRIPT, *LONG, env={"FAULTS": json.dumps(faults)})
    run.members(0, 1)
    finish(run, *((0, 2) if part else (1,)), attempts=1 + len(phases))
    same(run, fixed(*LONG))


@pytest.mark.parametrize("together", ["a worker", "the fork server", "all but one worker", "everything"])
def test_a_driver_killed_together_with_others(start, fixed, together):
    run = start(SCRIPT, *LONG)
    run.members(0, 1, 2)
    run.until_step(35)
    run.until(lambda: len(run.workers) == 3, what="three workers")
    workers, fork_server = list(run.workers.values()), fork_server_of(run)
    victims = {
        "a worker": [run.pid, workers[0]],
        "the fork server": [fork_server, run.pid],
        "all but one worker": [fork_server, run.pid, *workers[1:]],
        "everything": [fork_server, run.pid, *workers],
    }[together]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    finish(run, 0, 1)
    same(run, fixed(*LONG))


def test_members_that_changed_just_before_the_driver_died_have_their_line_too(start, fixed):
    faults = [{"phase": "driver after begun", "step": 20, "signal": "SIGSTOP"}]
    run = start(SCRIPT, *LONG, env={"FAULTS": json.dumps(faults)})
    run.members(0, 1)
    run.until_step(20)
    run.members(0, 1, 2)
    run.until((run.result_dir / "model/train/model_epoch_8.pth").exists, what="steps that nobody writes down")
    os.kill(run.pid, signal.SIGKILL)
    finish(run, 1)
    assert [len(g.members) for g in run.events("generation")] == [2, 3, 1]
    same(run, fixed(*LONG))


def test_workers_killed_while_they_write_down_their_state_lose_nothing_either(start, fixed):
    faults = [{"phase": "driver after steps", "step": 37}, {"phase": "orphaned", "step": 1, "rank": 0}]
    run = start(SCRIPT, *LONG, env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    finish(run, 0, 3)
    assert run.events("resumed")[0].step >= 37
    same(run, fixed(*LONG))


def test_a_killed_fork_server_is_started_anew_in_the_same_attempt(start, fixed):
    run = start(SCRIPT, *LONG)
    run.members(0, 1)
    run.until_step(29)
    os.kill(fork_server_of(run), signal.SIGKILL)
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    (resumed,) = run.events("resumed")
    assert resumed.step >= 29
    assert "forked from died" in resumed.reason
    same(run, fixed(*LONG))


SLOW_DISK = """
import time
from training_runtime.elastic.worker import heartbeat; from training_runtime.elastic.processes import fork_server_process
fork_server_process.EMERGENCY_S = 0.5
_write = heartbeat.Beating.write
def _slow(self, data):
    time.sleep(0.02)
    return _write(self, data)
heartbeat.Beating.write = _slow
"""


@pytest.mark.parametrize("who", ["the driver", "the fork server"])
def test_a_state_that_is_long_on_its_way_to_a_slow_disk_is_waited_for_while_bytes_are_written(start, fixed, who):
    run = start(SLOW_DISK + SCRIPT, *LONG, "--checkpoint", "0")
    run.members(0, 1)
    run.until_step(43)
    if who == "the driver":
        os.kill(run.pid, signal.SIGKILL)
        finish(run, 1, 2)
    else:
        os.kill(fork_server_of(run), signal.SIGKILL)
        assert run.wait() == 0, run.tail()
    (resumed,) = run.events("resumed")
    assert resumed.step >= 43
    same(run, fixed(*LONG))


def test_a_fork_server_that_dies_again_and_again_fails_the_run(start):
    soon = "from training_runtime.elastic.driver import coordinator\ncoordinator.DEATHS_OF_THE_FORK_SERVER = 3\n"
    run = start(soon + SCRIPT, "--epochs", "100000")
    run.members(0)
    dead = None
    for _ in range(3):
        run.until(lambda dead=dead: run.workers.get(0, dead) != dead, what="a worker")
        dead = run.workers[0]
        os.kill(fork_server_of(run), signal.SIGKILL)
    assert run.wait() == 1
    assert "died 3 times" in run.events("error")[0].message


def test_a_fork_server_that_dies_now_and_then_in_a_long_life_does_not_fail_the_run(start):
    soon_forgotten = "from training_runtime.elastic.driver import coordinator\ncoordinator.WITHIN_S = 0.2\n"
    run = start(soon_forgotten + SCRIPT, "--epochs", "100000")
    run.members(0)
    for _ in range(4):
        run.until_workers(1)
        dead, killed = run.workers[0], time.monotonic()
        os.kill(fork_server_of(run), signal.SIGKILL)
        run.until(lambda dead=dead: run.workers.get(0, dead) != dead, what="a worker")
        run.until(lambda killed=killed: time.monotonic() > killed + 0.2, what="the last death is long ago")
    run.until_workers(1)
    assert not run.events("error")
    run.stop()
    assert run.wait() == 0, run.tail()


def test_a_stopped_fork_server_is_found(start):
    run = start(SCRIPT, "--epochs", "100000", env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(0, 1)
    run.until_step(20)
    os.kill(fork_server_of(run), signal.SIGSTOP)
    run.members(0, 1, 2)
    run.until_workers(3)
    assert any("are started anew" in w.message for w in run.events("warning"))
    run.stop()
    assert run.wait() == 0, run.tail()
    assert [e.step for e in run.events("train")] == list(range(1, run.step() + 1))


def test_a_stopped_worker_does_not_keep_the_others_from_writing_down_their_state(start, fixed):
    run = start(SCRIPT, *LONG)
    run.members(0, 1, 2)
    run.until_step(35)
    run.kill(1, signal.SIGSTOP)
    os.kill(run.pid, signal.SIGKILL)
    finish(run, 0, 1)
    assert run.events("resumed")[0].step >= 35
    same(run, fixed(*LONG))


def test_a_newcomer_that_is_stopped_while_it_starts_is_found(start):
    code = STOPS_IN_ITS_START + SCRIPT.replace("optimizer).train", "optimizer, user_callbacks=[Stops()]).train")
    run = start(code, "--epochs", "100000", env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(0, 1)
    run.until_step(20)
    (run.result_dir / "grow").touch()
    run.members(0, 1, 2)
    run.until_workers(3)
    assert any("slot 2 showed no progress" in w.message for w in run.events("warning"))
    run.stop()
    assert run.wait() == 0, run.tail()


def test_a_leaver_that_is_stopped_gives_its_slot_back_all_the_same(start):
    run = start(SCRIPT, "--epochs", "100000", env={"EDT_HANG_TIMEOUT": "0.7"})
    run.members(0, 1, 2)
    run.until_step(20)
    run.kill(2, signal.SIGSTOP)
    run.members(0, 1)
    run.until(lambda: run.holding == (0, 1), what="the slot is free")
    run.stop()
    assert run.wait() == 0, run.tail()
    assert in_session(run.pid) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_lock_that_cannot_be_had_now_is_not_taken_for_one_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lockf(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.raises(OSError), emergency_checkpoint.one_at_a_time(tmp_path):
        raise AssertionError("nobody holds it")
    monkeypatch.undo()
    assert emergency_checkpoint.has_locks(tmp_path)
