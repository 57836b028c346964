"""A machine without room: what its host makes of it, and real runs on a disk that is really full."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disk import SmallDisk, small_disk
from tests.host.conftest import HostUnderTest, until
from training_runtime.host.meter import free_space
from training_runtime.host.meter.free_space import FreeSpace, FreeSpaceWatch, Marks, judge, reserve, sentence

MIB = 1 << 20
MARKS = Marks(low=100 * MIB, enough=200 * MIB, reserve=50 * MIB)


def test_a_disk_is_full_until_there_is_clearly_more_room() -> None:
    seen = [(99, False), (100, False), (150, True), (199, True), (200, True)]
    assert [judge(FreeSpace(free * MIB), MARKS, full_before=before) for free, before in seen] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("free", "there", "wish"),
    [(6, True, "give"), (7, True, None), (49, True, None), (49, False, None), (249, False, None), (250, False, "take"), (1000, True, None)],
)
def test_the_reserve_is_given_up_when_room_runs_out_and_taken_when_it_leaves_enough(free: int, there: bool, wish: str | None) -> None:
    assert reserve(FreeSpace(free * MIB), MARKS, there=there) == wish
    assert reserve(FreeSpace(free * MIB), Marks(reserve=0), there=False) is None


def test_the_words_for_people_say_what_is_wrong_and_what_to_do() -> None:
    full = "The disk of node a is full: less than 16 MiB free. Runs wait there and go on by themselves when 200 MiB are."
    assert sentence(FreeSpace(12 * MIB), MARKS, full=True, node="a") == sentence(FreeSpace(13 * MIB), MARKS, full=True, node="a") == full
    assert "less than 1 MiB" in sentence(FreeSpace(10), MARKS, full=True, node="a")
    assert sentence(FreeSpace(300 * MIB), MARKS, full=False, node="a") == ""
    assert "runs is read-only" in sentence(FreeSpace(300 * MIB, "runs is read-only"), MARKS, full=False, node="a")


SETTINGS = {"EDT_DISK_LOW_BYTES": str(4 * MIB), "EDT_DISK_ENOUGH_BYTES": str(8 * MIB), "EDT_DISK_RESERVE_BYTES": str(2 * MIB)}
MakeHost = Callable[[Path], HostUnderTest]


def start_on(disk: SmallDisk, make_host: MakeHost) -> HostUnderTest:
    host = make_host(disk.folder)
    host.log_file = disk.folder.with_suffix(".log")  # as the studio has it: what the host says goes through a pipe
    (disk.folder / "runs").mkdir()
    host.start(environment=SETTINGS)
    host.want(host.spec(7, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    return host


def test_runs_are_suspended_on_a_full_disk_and_go_on_by_themselves(tmp_path: Path, make_host: MakeHost) -> None:
    with small_disk(tmp_path / "home", 24 * MIB) as disk:
        host = start_on(disk, make_host)
        driver = host.pid(7)
        disk.fill()
        host.until_run(7, lambda run: run.holding == ())
        assert "The disk of node" in host.look().storage_problem
        host.want(host.spec(8, "obey"), 3)
        host.apply()
        assert host.run(8) is None, "nothing begins there"
        assert host.process.poll() is None, "the host itself goes on"
        disk.make_room()
        host.until_holding(7, 1, 2)
        host.until_holding(8, 3)
        assert (host.look().storage_problem, host.pid(7), host.run(7).attempt) == ("", driver, 1)
        assert (host.folder / "reserve").stat().st_size == 2 * MIB
        host.clean_up()


def test_a_host_that_was_killed_on_a_full_disk_comes_back_and_finds_its_runs(tmp_path: Path, make_host: MakeHost) -> None:
    with small_disk(tmp_path / "home", 24 * MIB) as disk:
        host = start_on(disk, make_host)
        driver = host.pid(7)
        disk.fill()
        host.until_run(7, lambda run: run.holding == ())
        disk.fill()  # what the reserve has left, too
        host.kill()
        host.start(environment=SETTINGS, wait=False)
        until(lambda: "nothing can be written, waiting" in host.log(), what="it waits for room")
        disk.make_room()
        until(host.is_up, what="the host is up")
        host.apply()
        host.until_holding(7, 1, 2)
        assert (host.pid(7), host.run(7).attempt) == (driver, 1)
        host.clean_up()


def test_a_driver_that_dies_on_a_full_disk_is_started_again_when_there_is_room(tmp_path: Path, make_host: MakeHost) -> None:
    with small_disk(tmp_path / "home", 24 * MIB) as disk:
        host = start_on(disk, make_host)
        disk.fill()
        host.until_run(7, lambda run: run.holding == ())
        os.kill(host.pid(7), 9)
        host.until_run(7, lambda run: run.state == "starting" and run.exit_code is None)
        disk.make_room()
        host.until_holding(7, 1, 2)
        assert host.run(7).attempt == 2
        host.clean_up()


def test_a_run_whose_folder_is_moved_away_says_so(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    host.result(7).rename(host.home / "elsewhere")
    ended = host.until_run(7, lambda run: run.state == "exited")
    assert (ended.exit_code, ended.holding) == (1, ())
    assert f"{host.result(7)} was moved or deleted while it ran" in ended.detail


@pytest.mark.parametrize("said_by", ["the machine", "the studio"])
def test_a_driver_that_keeps_a_slot_is_made_to_give_it_back(idle_host: HostUnderTest, said_by: str) -> None:
    host = idle_host
    host.start(environment={"EDT_RELEASE_GRACE_S": "0.3"} if said_by == "the machine" else None)
    spec = dataclasses.replace(host.spec(7, "grasping"), release_grace_s=0.0 if said_by == "the machine" else 0.3)
    host.want(spec, 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    host.want(spec, 1)
    host.apply()
    until(lambda: "KillWorkers: a slot that was asked back was still in use after 1.5 s" in host.log(), what="its worker is killed")
    host.until_run(7, lambda run: 2 not in run.holding)
    assert host.run(7).exit_code is None


FAILED = "/srv/edt/host/local/state.json: No space left on device"


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (1 << 62, "The disk of node local is full"),  # always below it
        (0, f"Nothing can be written on node local: {FAILED}"),
    ],
)
def test_that_the_disk_is_full_says_more_than_what_could_not_be_written(tmp_path: Path, low: int, said: str) -> None:
    watch = FreeSpaceWatch(tmp_path, tmp_path / "reserve", Marks(low=low, enough=low, reserve=0), node="local")
    assert watch.look(0.0, unsaved=FAILED)
    assert watch.problem.startswith(said)
    assert watch.due == free_space.LOOK_S
