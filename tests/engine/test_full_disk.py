"""A disk that is full, or a machine that loses its power: the training waits, or goes on from what was written; it never fails for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.disk import small_disk
from tests.engine.harness import Run, until_gone
from tests.engine.scripts import SMALL
from training_runtime import journal, journal_writer
from training_runtime.elastic.driver.journal_position import PLACE
from training_runtime.elastic.driver.recorder import Recorder

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all
ONE_LONG = ("--epochs", "1", "--samples", "1500")  # 94 steps: more lines than the last page of a journal has room for
HALTS = ("the journal cannot be written now", "The state of the training cannot be written now")
LOW = {"EDT_DISK_LOW_BYTES": str(4 << 20)}


def same(run: Run, one: Run) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()


def waits(run: Run) -> None:
    run.until(lambda: any(line in run.log.read_text() for line in HALTS), what="the driver or a worker says that it waits")


def test_training_waits_for_room_and_goes_on_to_the_same_weights(start, fixed, tmp_path: Path) -> None:
    with small_disk(tmp_path / "0" / "result", 24 << 20) as disk:
        run = start(SMALL, *ONE_LONG)
        run.members(0, 1)
        run.until_step(10)
        disk.fill()
        waits(run)
        disk.make_room()
        assert run.wait() == 0, run.tail()
        assert any("The storage took nothing for" in event.message for event in run.events("warning"))
        same(run, fixed(*ONE_LONG))


def test_a_run_is_suspended_when_there_is_room_for_its_state(start, fixed, tmp_path: Path) -> None:
    with small_disk(tmp_path / "0" / "result", 24 << 20) as disk:
        run = start(SMALL, *LONG, env={"EDT_RELEASE_GRACE_S": "0.5"})
        run.members(0, 1)
        run.until_step(10)
        kept = run.result_dir / "checkpoint" / "engine.pt"
        run.until(kept.exists, what="the state of the first epoch's end, which is written while the training goes on")
        disk.fill()
        waits(run)
        good = kept.read_bytes()
        run.members()
        run.until(lambda: "The state of the training cannot be written now" in run.log.read_text())
        over = time.monotonic() + 3.5  # more than they are given to leave
        run.until(lambda: time.monotonic() > over)
        assert run.holding == (0, 1), "its workers hold what cannot be written"
        assert (run.result_dir / "checkpoint" / "engine.pt").read_bytes() == good, "the state that there is stays whole"
        disk.make_room()
        run.until(lambda: run.holding == () and run.events("suspended"))
        run.members(1)
        assert run.wait() == 0, run.tail()
        same(run, fixed(*LONG))


WRITES_A_LOT = """
import os
def much():
    with open(os.environ["RESULT_DIR"] + "/much", "wb") as file:
        file.write(b"0" * (8 << 20))
"""


def test_a_script_that_finds_no_room_is_to_be_started_again(start, tmp_path: Path) -> None:
    with small_disk(tmp_path / "0" / "result", 6 << 20) as disk:
        run = start(WRITES_A_LOT + "much()\n", env=LOW)
        assert run.wait() == 75, run.tail()
        assert [line.event.kind for line in run.lines()][-1:] != ["finished"]
        assert not run.events("error")
        disk.folder.joinpath("much").unlink()
        subprocess_room(disk.folder)
        run.again()
        assert run.wait() == 0, run.tail()


def subprocess_room(folder: Path) -> None:
    assert os.system(f"mount -o remount,size=64m {folder}") == 0


def test_a_worker_that_finds_no_room_does_not_fail_the_run(start, fixed, tmp_path: Path) -> None:
    script = WRITES_A_LOT + SMALL.replace("        x = self.x[i]", "        i == 7 and much()\n        x = self.x[i]")
    with small_disk(tmp_path / "0" / "result", 6 << 20) as disk:
        run = start(script, *LONG, env=LOW)
        run.members(0, 1)
        assert run.wait() == 75, run.tail()
        assert not run.events("error")
        until_gone(run.pid)
        disk.folder.joinpath("much").unlink()
        subprocess_room(disk.folder)
        run.again()
        run.members(0, 1)
        assert run.wait() == 0, run.tail()
        same(run, fixed(*LONG))


def test_the_same_error_with_room_on_the_disk_fails_the_run(start) -> None:
    run = start("import errno\nraise OSError(errno.ENOSPC, 'No space left on device')\n", env=LOW)
    assert run.wait() == 1, run.tail()
    assert "No space left" in run.events("error")[0].message


def test_a_script_that_ends_with_the_same_status_has_failed(start) -> None:
    run = start("raise SystemExit(75)\n")
    assert run.wait() == 1, run.tail()
    assert run.events("error")[0].message == "the script ended with status 75"


def test_a_checkpoint_is_written_within_a_long_epoch(start, fixed) -> None:
    """Everything dies at once, as with the machine, in the midst of one."""
    run = start(SMALL, *LONG, env={"EDT_CHECKPOINT_MINUTES": "0.0001"})
    run.members(0, 1)
    run.until(lambda: any(event.role == "engine" and event.step > 4 and event.step % 8 for event in run.events("checkpoint")))
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    run.again()
    run.members(1, 2, 3)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step >= 5
    same(run, fixed(*LONG))


def test_no_checkpoint_is_written_within_an_epoch_where_that_is_not_wanted(start) -> None:
    run = start(SMALL, *LONG, env={"EDT_CHECKPOINT_MINUTES": "0"})
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert {event.step % 8 for event in run.events("checkpoint")} == {0}


LOGS_FSYNC = """
import os
_fsync = os.fsync
def fsync(fd):
    name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
    with open(os.environ["RESULT_DIR"] + f"/fsync-{os.getpid()}", "a") as log:
        log.write(name + "\\n")
    _fsync(fd)
os.fsync = fsync
"""


def test_the_journal_is_on_the_disk_before_the_state_that_it_leads_to(start) -> None:
    run = start(LOGS_FSYNC + SMALL, "--samples", "115")
    run.members(0)
    assert run.wait() == 0, run.tail()
    [names] = [text.split() for path in run.result_dir.glob("fsync-*") if "engine.pt" in (text := path.read_text())]
    states = [place for place, name in enumerate(names) if name.startswith(".engine.pt")]
    assert len(states) == 3
    assert all(names[place - 1] == journal.FILE_NAME for place in states), names


class Quiet:
    """Nobody looks."""

    def begin(self, steps: int) -> None: ...
    def trained(self, *_: object) -> None: ...
    def say(self, line: str) -> None: ...


def test_a_driver_that_begins_anew_reads_no_more_than_what_came_after_the_checkpoint(start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(SMALL, *LONG)
    run.members(0)
    assert run.wait() == 0, run.tail()
    path = run.result_dir / journal.FILE_NAME

    def read_back() -> tuple[dict[str, object], int]:
        parsed: list[bytes] = []
        parse = journal.parse
        with monkeypatch.context() as patch:
            for module in (journal, journal_writer):
                patch.setattr(module, "parse", lambda raw: parsed.append(raw) or parse(raw))
            made = Recorder(journal_writer.Writer(path, 7), None, logger=None, grown=lambda _: None, screen=Quiet())  # type: ignore[arg-type]
        kept = ("last_step", "last_generation", "trained_step", "_last_test", "metrics")
        return {**{name: getattr(made, name) for name in kept}, **vars(made._means)}, len(parsed)

    short, lines = read_back()
    assert lines < 10
    (run.result_dir / "checkpoint" / PLACE).unlink()
    whole, all_lines = read_back()
    assert all_lines > 100
    assert short == whole
