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


@pytest.fixture(scope="module")
def memory_group():
    """A control group with little memory: the file that a process writes its pid to, to get into it. What it has already is not counted."""
    for root in GROUPS:
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="edt-test-", dir=root))
            for name in ("memory.limit_in_bytes", "memory.max"):
                with contextlib.suppress(OSError):
                    (folder / name).write_text(str(LIMIT_BYTES))
                    yield folder / "cgroup.procs"
                    folder.rmdir()
                    return
            folder.rmdir()
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


def test_a_worker_killed_by_the_kernel_for_lack_of_memory_costs_a_step_at_most(start, fixed, memory_group):
    run = play(start, {"phase": "backward", "step": 30, "rank": 1, "do": "kernel"}, MEMORY_GROUP=str(memory_group))
    (told,) = warnings(run)
    assert "the kernel says that memory ran out" in told
    assert all(g.redone <= 1 for g in run.events("generation"))
    assert any(e.workers == 3 and e.step > 40 for e in run.events("train")), "another worker took its place"
    same(run, fixed(*LONG))


def test_a_step_for_which_the_memory_never_suffices_ends_the_run_with_what_it_was(start, memory_group):
    fault = {"phase": "backward", "step": 30, "do": "kernel", "always": True}
    run = play(start, fault, code=1, slots=(0,), MEMORY_GROUP=str(memory_group))
    (failed,) = run.events("error")
    assert failed.message.startswith("3 times at one step a worker was killed")
    assert "memory ran out" in failed.message
    assert run.step() == 29


@pytest.mark.parametrize("what", ["python", "torch"])
def test_a_worker_that_gets_no_memory_is_a_death_and_not_an_error_of_the_script(start, fixed, what):
    run = play(start, {"phase": "backward", "step": 30, "rank": 0, "do": what}, slots=(0, 1))
    (told,) = warnings(run)
    assert "ran out of memory (" in told
    same(run, fixed(*LONG))


def test_an_error_for_lack_of_memory_that_repeats_fails_the_run_with_its_traceback(start):
    run = play(start, {"phase": "backward", "step": 30, "do": "python", "always": True}, code=1, slots=(0,))
    (failed,) = run.events("error")
    assert failed.message == "3 times at one step a worker ran out of memory (MemoryError)"
    assert "bytearray(1 << 30)" in failed.traceback or "_exhaust_python" in failed.traceback


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_whose_descriptors_are_all_closed_is_replaced(start, fixed, rank):
    run = play(start, {"phase": "forward", "step": 35, "rank": rank, "do": "close"})
    assert len(run.events("resumed")) == 0
    if rank == 0:  # it has something to say after each step
        assert "lost its connections" in warnings(run)[0]
    same(run, fixed(*LONG))


@pytest.mark.parametrize("how", ["shut down", "shut down for writing"])
def test_sockets_that_are_shut_down_under_everybody_cost_a_new_start_and_no_step(start, fixed, how):
    run = play(start, {"phase": "forward", "step": 35, "rank": 1, "do": how})
    assert sum("are started anew" in told for told in warnings(run)) == 1, warnings(run)
    (resumed,) = run.events("resumed")
    assert resumed.step >= 34
    same(run, fixed(*LONG))
    assert run.spec.attempt == 1


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
