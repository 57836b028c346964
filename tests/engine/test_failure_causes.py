"""Deaths that come from below: no memory left, descriptors closed under a worker. The others go on, nothing differs, nothing is left."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest

from tests.engine.faults import FAULTS
from tests.engine.harness import in_session, until_gone
from tests.engine.scripts import SMALL

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all
SCRIPT = FAULTS + SMALL
LIMIT_BYTES = 32 << 20
GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # of version 1 and of version 2
LIMITS = ("memory.limit_in_bytes", "memory.max")


@pytest.fixture(scope="module")
def memory_group():
    """A control group with little memory: the file that a process writes its pid to, to get into it. What it has already is not counted."""
    for root in GROUPS:
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="edt-test-", dir=root))
            limit = next((path for name in LIMITS if (path := folder / name).exists()), None)  # else it is a folder like any other
            if limit is not None:
                limit.write_text(str(LIMIT_BYTES))
                yield folder / "cgroup.procs"
            folder.rmdir()
            if limit is not None:
                return
    pytest.skip("this machine lets nobody limit the memory of a process group")


def same(run, one) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
    until_gone(run.pid)


def play(start, *faults, code=0, slots=(0, 1, 2), **env):
    run = start(SCRIPT, *LONG, env={"FAULTS": json.dumps(faults), **env})
    run.members(*slots)
    assert run.wait() == code, run.tail()
    return run


def warnings(run) -> list[str]:
    return [w.message for w in run.events("warning")]


def test_workers_without_memory_and_with_closed_descriptors_cost_a_step_each_at_most(start, fixed, memory_group):
    what = {20: "kernel", 35: "python", 50: "torch", 65: "close"}
    faults = [{"phase": "backward", "step": step, "rank": step // 5 % 2, "do": do} for step, do in what.items()]
    run = play(start, *faults, {"phase": "backward", "step": 80, "rank": 1, "do": "close"}, MEMORY_GROUP=str(memory_group))
    told = warnings(run)
    for words in ("the kernel says that memory ran out", "ran out of memory (MemoryError)", "can't allocate memory"):
        assert sum(words in message for message in told) == 1, (words, told)
    assert sum("lost its connections" in message for message in told) in (1, 2), "a first rank has something to say after each step"
    assert run.events("resumed") == []
    assert all(g.redone <= 1 for g in run.events("generation"))
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(5))
    same(run, fixed(*LONG))


def test_a_step_for_which_the_memory_never_suffices_ends_the_run_with_what_it_was(start, memory_group):
    fault = {"phase": "backward", "step": 5, "do": "kernel", "always": True}
    run = play(start, fault, code=1, slots=(0,), MEMORY_GROUP=str(memory_group))
    (failed,) = run.events("error")
    assert failed.message.startswith("3 times at one step a worker was killed")
    assert "memory ran out" in failed.message
    assert run.step() == 4


def test_an_error_for_lack_of_memory_that_repeats_fails_the_run_with_its_traceback(start):
    run = play(start, {"phase": "backward", "step": 5, "do": "python", "always": True}, code=1, slots=(0,))
    (failed,) = run.events("error")
    assert failed.message == "3 times at one step a worker ran out of memory (MemoryError)"
    assert "bytearray(1 << 30)" in failed.traceback or "_exhaust_python" in failed.traceback


def test_sockets_that_are_shut_down_under_everybody_cost_a_new_start_and_no_step(start, fixed):
    ways = {35: "shut down", 70: "shut down for writing"}
    run = play(start, *({"phase": "forward", "step": step, "rank": 1, "do": do} for step, do in ways.items()))
    assert sum("are started anew" in told for told in warnings(run)) == 2, warnings(run)
    first, second = run.events("resumed")
    assert first.step >= 34
    assert second.step >= 69
    assert run.spec.attempt == 1
    same(run, fixed(*LONG))


GROWS = ("--epochs", "100000")
HANDS_OVER = {"phase": "handing over", "step": 20, "rank": 0}


def grow(start, fault, **env):
    """Two workers; a third joins at step 20, and whoever hands the state over to it meets the fault. What it was told, and whether
    it is the same process that becomes a member at last."""
    run = start(SCRIPT, *GROWS, env={"FAULTS": json.dumps([fault]), "EDT_HANG_TIMEOUT": "1", **env})
    run.members(0, 1)
    run.until_step(20)
    run.members(0, 1, 2)
    run.until(lambda: 2 in run.workers, what="a newcomer")
    newcomer = run.workers[2]
    run.until_workers(3)
    told = [message for message in warnings(run) if message.startswith("PULL_FAILED: slot 2 ")]
    run.stop()
    assert run.wait() == 0, run.tail()
    steps = [e.step for e in run.events("train")]
    assert steps == list(range(1, len(steps) + 1))
    log = (run.result_dir / "log/worker-2/console.log").read_text().splitlines()
    assert [line for line in log if line.startswith("PULL_FAILED")] == told
    joined = {m.pid for g in run.events("generation") for m in g.members if m.slot == 2}
    return [message.removeprefix("PULL_FAILED: slot 2 ") for message in told], joined == {newcomer}


def test_a_newcomer_whose_sender_dies_asks_again(start):
    told, same_process = grow(start, HANDS_OVER)
    assert told == ["got no weights, a death came in between (attempt 1 of 5)"]
    assert same_process


def test_a_newcomer_whose_sender_stalls_counts_its_waits_until_somebody_else_gives_it_the_state(start):
    told, same_process = grow(start, {**HANDS_OVER, "signal": "SIGSTOP"}, EDT_PULL_WEIGHT_TIME_OUT="0.3", EDT_PULL_FAILED_LIMITS="50")
    *waits, last = told
    assert waits
    assert all(wait.startswith("got no weights within 0.3 s (attempt ") for wait in waits)
    assert last == f"got no weights, a death came in between (attempt {len(told)} of 50)"
    assert same_process


def test_a_newcomer_that_asked_too_often_is_stopped_also_when_the_others_wait_for_it_already(start):
    told, same_process = grow(start, {**HANDS_OVER, "signal": "SIGSTOP"}, EDT_PULL_WEIGHT_TIME_OUT="0.2", EDT_PULL_FAILED_LIMITS="2")
    assert told[:2] == [f"got no weights within 0.2 s (attempt {n} of 2)" for n in (1, 2)]
    assert not same_process, "another one took its place"


def test_a_killed_worker_leaves_no_zombie_of_its_loaders(start):
    run = start(SCRIPT, "--epochs", "100000")
    run.members(0, 1)
    run.until_step(20)
    run.kill(0)
    run.until_workers(2)
    run.until(lambda: not defunct(run.pid), what="all reaped")
    assert len(in_session(run.pid)) > 3
    run.stop()
    assert run.wait() == 0, run.tail()


def defunct(session: int) -> list[int]:
    """Processes of a session that have ended and were not reaped."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] == "Z":
                found.append(int(folder.name))
    return found
