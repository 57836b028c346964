"""Kill -9 of the host, of its warm process and of everything at once; graceful shutdown and the start after it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.conftest import NODE, REPOSITORY, HostUnderTest, until
from tests.host.test_runs import is_gone, pids_of
from training_runtime.errors import HostUnavailable
from training_runtime.host import client, processes, state
from training_runtime.host.node import Node
from training_runtime.host.runs import begin
from training_runtime.host.runs.launch import GO, Ready
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sockets import LineSocket
from training_runtime.host.state import Saved


def test_runs_live_on_when_the_host_is_killed_and_the_next_one_finds_them(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1, 2)
    host.want(host.spec(8, "obey"), 3)
    host.apply()
    host.until_holding(7, 1, 2)
    host.until_holding(8, 3)
    drivers = host.pid(7), host.pid(8)
    host.kill()
    assert not any(is_gone(pid) for pid in drivers)
    host.start()
    assert host.run(7).holding == (1, 2), "before the studio has spoken"
    host.apply()
    host.until_holding(7, 1, 2)
    assert (host.pid(7), host.pid(8)) == drivers
    assert [run.attempt for run in host.look().runs] == [1, 1]
    host.want(host.spec(7, "obey"), 2)
    host.apply()
    host.until_holding(7, 2)


def test_the_outcome_of_a_run_that_ended_while_no_host_was_there_is_read_from_its_journal(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "slow"), 1)
    host.apply()
    host.until_run(7, lambda run: run.holding == (1,))
    driver = host.pid(7)
    host.want(host.spec(7, "slow"), 1, stop=True)
    host.apply()
    host.kill()
    (host.result(7) / "go").touch()
    until(lambda: is_gone(driver))
    host.start()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.attempt) == (0, 1)


def test_a_run_that_was_killed_while_no_host_was_there_goes_on_with_the_next_attempt(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stubborn"), 1)
    host.apply()
    host.until_holding(7, 1)
    leftovers = pids_of(host, 7)
    driver = host.pid(7)
    host.kill()
    os.kill(driver, signal.SIGKILL)
    until(lambda: is_gone(driver))
    host.start()
    host.apply()
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1,))
    assert all(is_gone(pid) for pid in leftovers)


def test_a_run_found_again_is_stopped_like_any_other(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stubborn"), 1)
    host.apply()
    host.until_holding(7, 1)
    leftovers = pids_of(host, 7)
    host.kill()
    host.start()
    host.wanted.clear()
    host.apply()
    until(lambda: host.look().runs == ())
    assert all(is_gone(pid) for pid in leftovers)


def test_runs_live_on_when_the_warm_process_is_killed_and_a_new_one_forks_the_next(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    driver, warm = host.pid(7), host.warm_pid()
    os.kill(warm, signal.SIGKILL)
    host.want(host.spec(8, "obey"), 2)
    host.apply()
    host.until_holding(8, 2)
    assert host.pid(7) == driver
    assert host.warm_pid() != warm


def shim_of(host: HostUnderTest, run: int) -> int:
    return next(saved["shim"] for saved in host.saved()["runs"] if saved["run"] == run)


def test_a_run_lives_on_when_its_shim_is_killed_and_is_cleared_away_all_the_same(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stubborn"), 1)
    host.apply()
    host.until_holding(7, 1)
    os.kill(shim_of(host, 7), signal.SIGKILL)
    until(lambda: "the shim of a run was killed" in host.log())
    assert host.run(7).holding == (1,)
    host.want(host.spec(7, "stubborn"), 1, stop=True)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.holding) == (-9, ())
    assert all(is_gone(pid) for pid in pids_of(host, 7))


def test_the_exit_code_of_a_driver_without_a_shim_is_known_too(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    os.kill(shim_of(host, 7), signal.SIGKILL)
    until(lambda: "the shim of a run was killed" in host.log())
    host.want(host.spec(7, "obey"), 1, stop=True)
    host.apply()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 0


def test_a_shim_that_was_stopped_does_not_hold_a_slot_for_ever(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    os.kill(shim_of(host, 7), signal.SIGSTOP)
    host.want(host.spec(7, "obey"), 1, stop=True)
    host.apply()
    assert host.until_run(7, lambda run: run.state == "exited").holding == ()


def test_runs_of_two_studios_under_the_same_user_do_not_touch_each_other(own_host: HostUnderTest, tmp_path: Path) -> None:
    host, other = own_host, HostUnderTest(tmp_path, own_host.uid_base)
    other.home = tmp_path / "other"
    other.folder = other.home / "host" / NODE
    other.home.mkdir()
    try:
        other.start()
        for one in (host, other):
            one.want(one.spec(7, "obey"), 1)
            one.apply()
            one.until_holding(7, 1)
        host.wanted.clear()
        host.apply()
        until(lambda: host.look().runs == ())
        assert not is_gone(other.pid(7))
        assert other.run(7).holding == (1,)
    finally:
        other.clean_up()


KILLED_WHEN: dict[str, Callable[[HostUnderTest], object]] = {
    "the studio has its answer": lambda host: True,
    "the new process is known": lambda host: any(run["pid"] for run in host.saved()["runs"]),
    "the new process is let go": lambda host: any(run["phase"] == "alive" for run in host.saved()["runs"]),
    "it was told its slots": lambda host: any(run["told"] for run in host.saved()["runs"]),
}


@pytest.mark.parametrize("moment", KILLED_WHEN)
def test_a_host_killed_during_a_start_starts_nothing_twice(own_host: HostUnderTest, moment: str) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    until(lambda: KILLED_WHEN[moment](host))
    host.kill()
    host.start()
    host.apply()
    host.until_holding(7, 1)
    assert [p.pid for p in host.processes() if _comm(p.pid) == "edt-run-7" and p.session == p.pid] == [host.pid(7)]


def test_a_process_is_written_down_before_it_is_let_go(tmp_path: Path) -> None:
    node = Node(tmp_path)
    run = node.runs[7] = LiveRun(7, 1, str(tmp_path), pid=os.getpid())
    written: list[Saved | None] = []

    class Gate(LineSocket):
        def send(self, data: bytes) -> None:
            assert data == GO
            written.append(state.load(tmp_path / "state.json"))
            super().send(data)

    ours, theirs = socket.socketpair()
    with theirs:
        run.gate = Gate(ours)
        begin.open_gate(node, run, Ready())
        assert theirs.recv(100) == GO
    (saved,) = written
    assert [(entry.pid, entry.phase) for entry in saved.runs] == [(os.getpid(), "alive")]


def _comm(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def test_shutting_down_suspends_and_leaves_no_process_and_the_next_start_goes_on(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    assert host.terminate() == 0
    assert host.processes() == []
    journal = (host.result(7) / "journal.jsonl").read_text()
    assert "members []: the studio is shutting down" in journal
    assert "finished" not in journal
    host.start()
    host.apply()
    seen = host.until_holding(7, 1, 2)
    assert (seen.attempt, seen.state) == (2, "running")


def test_an_interrupted_run_is_never_reported_as_ended(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    told = client.subscribe(host.home, NODE)
    next(told)
    host.process.terminate()
    with pytest.raises(HostUnavailable):
        for observation in told:
            assert [run.state for run in observation.runs if run.state == "exited"] == []
    host.process.wait(20)
    host.start()
    seen = host.run(7)
    assert (seen.state, seen.holding, seen.exit_code) == ("starting", (), None), "before the studio has spoken"
    host.want(host.spec(7, "obey"), stop=True)
    host.apply()
    assert host.run(7).state == "exited", "nobody wants it to go on"


def test_after_a_reboot_runs_go_on_and_no_number_of_before_is_taken_for_a_process(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.want(host.spec(8, "grow"), 2)
    host.apply()
    host.until_holding(7, 1)
    host.until_run(8, lambda run: run.state == "exited")
    host.kill()
    until(host.all_killed)
    saved = host.saved() | {"boot_id": "another"}
    for run in saved["runs"]:  # numbers that now belong to somebody else
        run["pid"], run["start_ticks"] = os.getpid(), processes.look(os.getpid()).start_ticks
    (host.folder / "state.json").write_text(json.dumps(saved))
    host.start()
    host.apply()
    seen = host.until_holding(7, 1)
    assert (seen.attempt, seen.state) == (2, "running")
    assert next(run["restarts"] for run in host.saved()["runs"] if run["run"] == 7) == 0, "that was no crash"
    assert host.run(8).exit_code == 0


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="only a freezer makes a process that cannot be killed")
def test_a_process_that_cannot_be_killed_keeps_its_slot_and_is_named(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    worker = next(worker["pid"] for worker in host.saved()["runs"][0]["workers"] if worker["slot"] == 2)
    group = FREEZER / f"edt-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "tasks").write_text(str(worker))
        (group / "freezer.state").write_text("FROZEN")
        host.want(host.spec(7, "obey"), stop=True)
        host.apply()
        seen = host.until_run(7, lambda run: run.detail.startswith("stuck"))
        assert seen.detail == f"stuck: pid {worker} cannot be killed (waiting for a device or a file system)"
        assert (seen.state, seen.exit_code) == ("stopping", None)
        assert 2 in seen.holding
        (group / "freezer.state").write_text("THAWED")
        assert host.until_run(7, lambda run: run.state == "exited").holding == ()
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: (group / "tasks").read_text() == "")
        group.rmdir()


def test_shutting_down_does_not_wait_for_ever(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stubborn"), 1)
    host.want(host.spec(8, "keep_slots"), 2)
    host.apply()
    host.until_holding(7, 1)
    host.until_holding(8, 2)
    assert host.terminate() == 0
    assert host.processes() == []


def test_a_run_that_had_ended_is_not_run_again_after_a_restart(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stop_without_a_word"), 1)
    host.apply()
    host.until_run(7, lambda run: run.state == "exited")
    host.terminate()
    host.start()
    answer = host.apply()
    assert (answer.runs[0].state, answer.runs[0].exit_code, answer.runs[0].attempt) == ("exited", 1, 1)


def test_a_second_host_on_the_same_node_says_so_and_ends(own_host: HostUnderTest) -> None:
    host = own_host
    command = [sys.executable, "-m", "training_runtime.host", "--home", str(host.home), "--node", NODE]
    second = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=20, check=False)
    assert second.returncode == 1
    assert second.stderr == f"Another node host (pid {host.process.pid}) already serves node {NODE} in {host.home}.\n"
    assert host.is_up()


def test_a_state_file_that_cannot_be_read_is_set_aside(idle_host: HostUnderTest) -> None:
    idle_host.folder.mkdir(parents=True)
    (idle_host.folder / "state.json").write_text('{"runs": 3')
    idle_host.start()
    assert idle_host.look().runs == ()
    assert (idle_host.folder / "state.unreadable").exists()


def test_a_warm_process_that_cannot_import_torch_says_so_in_the_run(idle_host: HostUnderTest) -> None:
    idle_host.start(preload="no_such_module")
    idle_host.want(idle_host.spec(7, "obey"), 1)
    idle_host.apply()
    idle_host.until_holding(7, 1)
    assert "could not import everything: no_such_module" in idle_host.log()
