"""Runs on a real node host: started, told of slots, stopped, restarted; what holds a slot, and when it is free."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest, is_root, until
from training_runtime.host import processes


def pids_of(host: HostUnderTest, run: int) -> list[int]:
    return [int(pid) for pid in (host.result(run) / "pids").read_text().split()]


def is_gone(pid: int) -> bool:
    process = processes.look(pid)
    return process is None or process.state in "ZX"


def test_a_wanted_run_is_started_and_told_its_slots(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1, 2, reason="two slots were free")
    host.apply()
    seen = host.until_holding(7, 1, 2)
    assert (seen.state, seen.attempt, seen.detail) == ("running", 1, "two slots were free")
    assert "members [1, 2]: two slots were free" in (host.result(7) / "journal.jsonl").read_text()


def test_a_run_without_slots_is_started_so_that_its_script_is_ready_when_one_comes(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"))
    host.apply()
    assert host.until_run(7, lambda run: run.state == "running").holding == ()
    host.want(host.spec(7, "obey"), 3)
    host.apply()
    host.until_holding(7, 3)


def test_applying_the_same_twice_changes_nothing(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    before, journal = host.pid(7), (host.result(7) / "journal.jsonl").read_bytes()
    host.apply()
    host.apply()
    assert host.pid(7) == before
    assert (host.result(7) / "journal.jsonl").read_bytes() == journal


def test_a_slot_moves_from_one_run_to_another_only_once_its_process_is_gone(host: HostUnderTest) -> None:
    first, second = host.spec(1, "obey"), host.spec(2, "obey")
    host.want(first, 1, 2, 3, 4)
    host.want(second)
    host.apply()
    host.until_holding(1, 1, 2, 3, 4)
    host.want(first, 1, 2, reason="bob's run started")
    host.apply()
    host.until_holding(1, 1, 2)
    host.want(second, 3, 4)
    host.apply()
    host.until_holding(2, 3, 4)
    assert host.run(1).holding == (1, 2)


def test_a_slot_stays_held_while_its_worker_lives_whatever_the_driver_says(host: HostUnderTest) -> None:
    spec = host.spec(7, "keep_slots")
    host.want(spec, 1)
    host.apply()
    host.until_holding(7, 1)
    host.want(spec)
    host.apply()
    until((host.result(7) / "pids").exists)
    until(
        lambda: host.saved()["runs"][0]["told"] == [{"revision": host.revision, "slots": []}],
        what="the driver has said that it holds nothing",
    )
    assert host.run(7).holding == (1,)
    os.kill(pids_of(host, 7)[0], 9)
    host.until_run(7, lambda run: run.holding == ())


def test_a_slot_that_was_sent_is_held_until_the_driver_has_taken_in_its_return(host: HostUnderTest) -> None:
    spec = host.spec(7, "slow")
    host.want(spec, 1)
    host.apply()
    host.until_run(7, lambda run: run.state == "running" and run.holding == (1,))
    host.want(spec)
    host.apply()
    journal = host.result(7) / "journal.jsonl"
    until(journal.exists)
    before = journal.stat().st_size
    seen = host.until_run(7, lambda run: run.journal_bytes > before + 200)  # it has spoken several times since, but has not read that far
    assert seen.holding == (1,)
    (host.result(7) / "go").touch()
    host.until_run(7, lambda run: run.holding == ())


def test_a_stopped_run_ends_by_its_own_driver(host: HostUnderTest) -> None:
    spec = host.spec(7, "obey")
    host.want(spec, 1)
    host.apply()
    host.until_holding(7, 1)
    host.want(spec, 1, reason="alice stopped it", stop=True)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.holding) == (0, ())
    assert '"outcome":"stopped"' in (host.result(7) / "journal.jsonl").read_text()


def test_a_run_that_is_no_longer_listed_is_stopped_and_forgotten(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    host.wanted.clear()
    host.apply()
    until(lambda: host.look().runs == ())
    assert [p.pid for p in host.processes() if p.pid != host.process.pid and p.parent != host.process.pid] == []


def test_a_run_that_ignores_every_request_is_killed_with_all_its_processes(host: HostUnderTest) -> None:
    spec = host.spec(7, "stubborn")
    host.want(spec, 1)
    host.apply()
    host.until_holding(7, 1)
    others = pids_of(host, 7)
    assert len(others) == 2
    assert not any(is_gone(pid) for pid in others)
    host.want(spec, 1, stop=True)
    begin = time.monotonic()
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.holding) == (-9, ())
    assert time.monotonic() - begin >= 0.5, "the grace period is given"
    assert all(is_gone(pid) for pid in others)


def test_the_processes_that_a_driver_leaves_behind_are_killed_when_it_dies(host: HostUnderTest) -> None:
    host.want(host.spec(7, "crash", "1,2,3,4"), 1)
    host.apply()
    host.until_run(7, lambda run: run.state == "exited")
    assert all(is_gone(pid) for pid in pids_of(host, 7))


def test_a_driver_killed_by_a_signal_is_restarted_with_the_next_attempt(host: HostUnderTest) -> None:
    host.want(host.spec(7, "crash", "1,2"), 1)
    host.apply()
    seen = host.until_holding(7, 1)
    assert (seen.attempt, seen.state) == (3, "running")
    assert "restart 2 of 3" in host.log()


def test_a_driver_that_is_stopped_by_a_signal_is_found_and_restarted(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    stopped = host.pid(7)
    os.kill(stopped, signal.SIGSTOP)
    assert host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1,)).state == "running"
    assert is_gone(stopped)
    assert "the driver was stopped for 0.5 s" in host.log()


def test_restarts_end_after_the_set_number(host: HostUnderTest) -> None:
    host.want(host.spec(7, "crash", "1,2,3,4,5,6"), 1)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.attempt, seen.exit_code, seen.detail) == (4, -9, "the driver was killed by SIGKILL")


def test_an_ended_run_is_started_again_when_a_later_attempt_is_asked_for(host: HostUnderTest) -> None:
    spec = host.spec(7, "stop_without_a_word")
    host.want(spec, 1)
    host.apply()
    host.until_run(7, lambda run: run.state == "exited")
    host.want(dataclasses.replace(spec, argv=("obey",), attempt=2), 1)
    host.apply()
    assert host.until_holding(7, 1).attempt == 2


def test_a_script_error_fails_the_run_at_once_with_its_traceback_in_the_console(host: HostUnderTest) -> None:
    host.want(host.spec(7, "stop_without_a_word"), 1)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.attempt) == (1, 1)
    assert "ValueError: the script is wrong" in host.console(7)


def test_a_run_that_is_stopped_before_it_started_is_reported_as_ended(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), stop=True)
    assert host.apply().runs[0].detail == "stopped before it was started here"
    assert host.run(7).state == "exited"


@pytest.mark.parametrize("field", ["code_dir", "result_dir", "data_dir"])
def test_a_missing_folder_fails_the_run_with_a_clear_message(host: HostUnderTest, field: str) -> None:
    host.want(dataclasses.replace(host.spec(7, "obey"), **{field: "/no/such/folder"}))
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert seen.exit_code == 1
    assert seen.detail.endswith("folder /no/such/folder is not there")


def test_a_folder_that_cannot_be_made_fails_the_run_with_a_clear_message(host: HostUnderTest) -> None:
    spec = host.spec(7, "obey")
    Path(spec.result_dir, "log").write_text("a file where a folder should be")
    host.want(spec)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert seen.exit_code == 1
    assert "could not be boxed in or set up" in seen.detail


def test_a_driver_that_talks_nonsense_is_cut_off_and_harms_nobody(host: HostUnderTest) -> None:
    mine = processes.look(os.getpid())
    host.want(host.spec(7, "nonsense", str(mine.pid), str(mine.start_ticks)), 1)
    host.want(host.spec(8, "obey"), 2)
    host.apply()
    host.until_holding(8, 2)
    host.until_holding(7, 1)
    assert "not of its run" in host.log()
    assert "not JSON" in host.log()
    assert "longer than" in host.log()
    assert "is no slot" in host.log()


def test_what_a_newer_driver_says_is_left_out_with_one_line_and_the_rest_counts(host: HostUnderTest) -> None:
    host.want(host.spec(7, "newer"), 1)
    host.apply()
    host.until_holding(7, 1)
    assert host.log().count("a message of the driver of run 7 is left out") == 1


@pytest.mark.skipif(not is_root, reason="without a mount namespace of its own a run has no shorter place for its temporary files")
def test_a_script_can_make_sockets_in_its_temporary_folder_however_long_the_path_of_home(
    tmp_path: Path, make_host: Callable[[Path], HostUnderTest]
) -> None:
    host = make_host(tmp_path / ("a" * 90) / ("b" * 90))
    host.start()
    host.want(host.spec(7, "script", "main.py", code={"main.py": MAKES_A_SOCKET}))
    host.apply()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 0, host.console(7)


MAKES_A_SOCKET = """
from multiprocessing.connection import Listener
Listener(family="AF_UNIX").close()
"""
