"""One run on several machines, each a node host with a process of the run: the same bits, whoever comes, goes or dies."""

from __future__ import annotations

import os
import signal
import socket

import psutil
import pytest

from tests.engine.harness import HERE, Run, until_gone
from tests.engine.scripts import HELD, LONG, LOOP, SMALL
from tests.engine.test_loop import same
from tests.engine.test_streams_trained import SCRIPTS
from training_runtime.elastic.multinode import rendezvous
from training_runtime.elastic.multinode.remote_agent import AGAIN
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.errors import ProtocolError


@pytest.mark.usefixtures("either_way")
def test_a_run_that_goes_over_three_machines_and_leaves_home_equals_a_fixed_one(together, fixed):
    one = fixed(*LONG)
    run, near, far = together((0, 1), (10,), (20,))
    run.members()  # nobody is left at the head node
    run.until_workers(2)
    far.members()
    run.until_workers(1)
    run.members(1, 2)
    near.members()
    run.until_workers(2)
    assert run.wait() == 0, run.tail()
    assert (near.wait(), far.wait()) == (0, 0)
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


# A bridge that passes on no report any more, and a remote agent that is slow to write down what it finds unread.
MUTE = (
    """
import os, time
from training_runtime.elastic.multinode import connection as _connection
from training_runtime.elastic.state import emergency_checkpoint as _emergency
_results, _report, _add = os.environ["RESULT_DIR"], _connection.Connection._report, _emergency.add
def _mute(self):
    self._read.set() if os.path.exists(_results + "/mute") else _report(self)
def _late(*found):
    while not os.path.exists(_results + "/go"):
        time.sleep(0.005)
    return _add(*found)
_connection.Connection._report, _emergency.add = _mute, _late
"""
    + HELD
)


SELDOM = ("--checkpoint", "30")  # with each checkpoint goes what was reported lately


def until_all_that_passes_on_has_died(run: Run, *, muted_from: int) -> None:
    """Of a run without a worker at the head node, at the beginning of its 13th epoch; its bridge is mute from an epoch on. The run stays
    before its seventh epoch until its driver has been asked for that worker's slot: the epochs until it stays again may be over sooner than
    it is asked."""
    *begins, last = [run.result_dir / f"stay-{epoch}" for epoch in (6, muted_from, 12)]
    run.until_step(48)
    run.members()
    begins[0].unlink()
    run.until_workers(1)
    run.until_step(8 * muted_from)
    run.until(lambda: len(run.events("test")) == muted_from, what="the validation before that")
    (run.result_dir / "mute").touch()
    begins[1].unlink()
    run.until_step(96)
    assert len(run.events("test")) == muted_from
    for pid in psutil.Process(run.pid).children():  # its bridge and its fork server
        pid.kill()
    last.unlink()


@pytest.mark.parametrize("muted_from", [8, 11])
def test_a_validation_elsewhere_is_in_the_journal_although_all_that_passes_it_on_has_died(together, fixed, muted_from):
    run, other = together((0,), (10,), script=MUTE, more=SELDOM, stays=(6, muted_from, 12))
    until_all_that_passes_on_has_died(run, muted_from=muted_from)
    run.members(0)
    assert run.wait() == 0, run.tail()
    (run.result_dir / "go").touch()
    other.wait()
    one = fixed(*LONG, *SELDOM)
    assert run.test_lines() == one.test_lines()
    assert run.train_lines() == one.train_lines()
    assert run.weights() == one.weights()


@pytest.mark.usefixtures("either_way")
def test_a_worker_that_dies_on_either_machine_costs_a_step_and_not_a_bit(together, fixed):
    one = fixed(*LONG)
    run, other = together((0, 1), (10, 11))
    for machine, slot in ((other, 10), (run, 1), (other, 11)):
        machine.until(lambda machine=machine, slot=slot: slot in machine.workers, what=f"a worker on slot {slot}")
        machine.kill(slot)
        died = f"the worker on slot {slot} died"  # who replaces it may be there before the others have made a step
        run.until(lambda died=died: died in [made.reason for made in run.events("generation")], what=died)
        run.until_workers(4)
    assert run.wait() == 0, run.tail()
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert all(g.redone <= 1 for g in run.events("generation"))
    assert not run.events("resumed")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("either_way", "at_head_node"), [("segment", False), ("collective", True)], indirect=["either_way"])
def test_a_machine_that_goes_down_is_done_without(together, fixed, at_head_node):
    """`at_head_node`: it has workers beside those at the head node; else all of them."""
    one = fixed(*LONG)
    run, other = together((0, 1), (10, 11))
    if not at_head_node:
        run.members()
        run.until_workers(2)
    os.killpg(other.pid, signal.SIGKILL)  # all of its processes at once
    if not at_head_node:
        run.members(0)
    assert run.wait() == 0, run.tail()
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert len(run.events("resumed")) == (not at_head_node), run.events("generation")


WAITS = """
        if step.number == 17:
            import time
            while os.path.exists(os.environ["RESULT_DIR"] + "/stay"):
                time.sleep(0.005)
"""


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("either_way", "script"),
    [("segment", LOOP), ("collective", SCRIPTS["shorter than an epoch"])],
    ids=["over a set", "over a stream"],
    indirect=["either_way"],
)
def test_a_loop_in_the_script_that_goes_over_two_machines_equals_a_fixed_one(start, join, fixed, script):
    args = ("--epochs", "6")
    run = start(script.replace("        fast.zero_grad()\n", WAITS + "        fast.zero_grad()\n"), *args, env=HERE)
    (run.result_dir / "stay").touch()
    other = join(run)
    run.members(0, 1)
    other.members(10, 11)
    other.until(lambda: {10, 11} <= set(other.workers), what="workers on the other machine")
    (run.result_dir / "stay").unlink()
    run.until_workers(4)
    other.kill(10)
    run.until_workers(3)
    run.members()
    assert run.wait() == 0, run.tail()
    assert other.wait() == 0
    assert {len(g.members) for g in run.events("generation")} >= {2, 4, 3}
    same(run, fixed(*args, script=script))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("either_way", "method"), [("segment", "spawn"), ("collective", "fork")], indirect=["either_way"])
def test_a_driver_that_dies_costs_no_step_on_any_machine(together, fixed, method):
    one = fixed(*LONG)
    run, other = together((0,), (10, 11), EDT_START_METHOD=method)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    assert other.wait() == AGAIN, other.tail()
    until_gone(other.pid)
    before = run.step()
    for machine in (run, other):
        machine.again()
    run.members(0)
    other.members(10)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step >= before
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


def test_a_run_that_is_suspended_goes_on_with_the_next_step_on_another_machine(together, fixed):
    one = fixed(*LONG)
    run, other = together((0,), (10,))
    run.members()
    other.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    other.members(10, 11)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == run.events("suspended")[0].step
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()


def test_a_machine_that_hears_late_of_the_end_knows_that_it_is_over(start, join):
    run = start(HELD, *LONG, env=HERE)
    stay = run.result_dir / "stay-23"
    stay.touch()
    run.members(0)
    other = join(run)
    other.members()
    other.until(lambda: "takes part" in other.log.read_text(), what="the machine takes part")
    os.kill(other.pid, signal.SIGSTOP)
    stay.unlink()
    assert run.wait() == 0, run.tail()
    os.kill(other.pid, signal.SIGCONT)
    assert other.wait() == 0, other.tail()


def test_a_machine_whose_script_makes_another_model_is_refused_and_says_why(start, join, fixed):
    wider = HELD.replace("nn.Linear(288, 2)", "nn.Linear(288, 2), *([nn.Linear(2, 2)] if 'WIDER' in os.environ else [])")
    run = start(wider, *LONG, env=HERE)
    stay = run.result_dir / "stay-2"
    stay.touch()
    run.members(0)
    other = join(run, {"WIDER": "1"})
    other.members(10)
    assert other.wait() == 1
    assert "came to another model or dataset" in other.log.read_text()
    stay.unlink()
    assert run.wait() == 0, run.tail()
    assert run.weights() == fixed(*LONG).weights()


def test_a_machine_with_other_gpus_is_refused_and_says_why(start, join, tmp_path):
    prelude = "from pathlib import Path\nfrom training_runtime import processor\nimport os\n"
    prelude += "processor.gpus.__defaults__ = (Path(os.environ['GPUS']),)\n"
    for name, model in (("here", "NVIDIA H200"), ("there", "NVIDIA H100 80GB HBM3")):
        (tmp_path / name / "0000:3b:00.0").mkdir(parents=True)
        (tmp_path / name / "0000:3b:00.0" / "information").write_text(f"Model: \t\t {model}\nDevice Minor: \t 0\n")
    run = start(prelude + HELD, *LONG, env={**HERE, "GPUS": str(tmp_path / "here")})
    run.members(0)
    stay = run.result_dir / "stay-2"
    stay.touch()
    other = join(run, {"GPUS": str(tmp_path / "there")})
    other.members(10)
    assert other.wait() == 1
    said = other.log.read_text()
    assert "'NVIDIA H200'" in said and "'NVIDIA H100 80GB HBM3'" in said and "would not compute the same" in said


def test_who_does_not_know_the_token_is_not_let_in(start):
    run = start(SMALL, *LONG, env=HERE)
    run.members(0)
    run.until_step(1)
    found = rendezvous.read(run.result_dir)
    assert rendezvous.path_of(run.result_dir).stat().st_mode & 0o777 == 0o600
    with socket.create_connection((found.address, found.port)) as connection:
        wire = Wire(connection)
        with pytest.raises((ProtocolError, EOFError, ConnectionResetError)):
            wire.greet("no idea", listens=False)
            wire.receive_message()
    with socket.create_connection((found.address, found.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
        connection.settimeout(10)
        with pytest.raises(EOFError):
            Wire(connection).data(1 << 16)
    assert run.wait() == 0, run.tail()
    assert rendezvous.read(run.result_dir) is None


NO_LOCKS = """
import errno, fcntl, os
if os.environ.get("NO_LOCKS"):
    def lockf(*_):
        raise OSError(errno.ENOLCK, "No locks available")
    fcntl.lockf = lockf
"""


def test_a_machine_where_the_file_system_has_no_locks_is_refused_and_says_why(start, join, fixed):
    run = start(NO_LOCKS + SMALL, *LONG, env=HERE)
    other = join(run, {"NO_LOCKS": "1"})
    run.members(0)
    other.members(10)
    assert other.wait() == 1
    assert "has no locks" in other.log.read_text()
    assert run.wait() == 0, run.tail()
    assert run.weights() == fixed(*LONG).weights()
