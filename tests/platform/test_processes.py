"""The studio's own processes, as it keeps them."""

from __future__ import annotations

import fcntl
import io
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.disk import small_disk
from training_runtime.host.processes import boot_id, look
from training_runtime.log_rotation import rotate
from training_runtime.version_skew import ProtocolVersion
from webapp.studio import log, own_machine
from webapp.studio.checks import Refusal
from webapp.studio.processes import Child, Program, written_down


def test_a_process_that_cannot_be_written_down_is_ended(tmp_path: Path) -> None:
    """On a full disk its note would be empty, and the next studio would start another beside it."""
    (tmp_path / "log").mkdir()
    with small_disk(tmp_path / "run", 1 << 20) as disk:
        program = Program("host", (sys.executable, "-c", "import signal; signal.pause()"), {}, tmp_path, tied=False)
        child = Child(program, tmp_path)
        before = psutil.Process().children()
        disk.fill()
        try:
            with pytest.raises(OSError, match="No space left"):
                child.start()
            assert not child.alive()
            assert psutil.Process().children() == before
            disk.make_room()
            child.start()
            assert Child(program, tmp_path).take_over(), "a later studio finds it"
        finally:
            if child.popen is not None:
                child.kill()
                child.popen.wait()


def test_one_that_ends_with_the_studio_starts_on_a_full_disk_too_and_the_studio_goes_on_saying_what_it_does(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", 1 << 20) as disk:
        (disk.folder / "log").mkdir()
        (disk.folder / "run").mkdir()
        (disk.folder / "log" / "studio.log").write_bytes(b"x" * 100)
        child = Child(Program("web", (sys.executable, "-c", "import signal; signal.pause()"), {}, tmp_path), disk.folder)
        out = io.StringIO()
        disk.fill()
        (disk.folder / "log" / "web.log").touch()
        try:
            child.start()
            assert child.alive()
            log.Terminal(disk.folder, (), out=out).say("web has ended unexpectedly")
            assert "web has ended unexpectedly" in out.getvalue()
            assert not rotate(disk.folder / "log" / "studio.log", limit_bytes=10)
            assert (disk.folder / "log" / "studio.log").stat().st_size >= 100
        finally:
            child.kill()
            if child.popen is not None:
                child.popen.wait()


def test_one_that_cannot_be_told_what_it_needs_is_not_started(tmp_path: Path) -> None:
    """A link without a token, while the database is away, would wait for it until somebody looks whether it hangs."""
    for name in ("log", "run"):
        (tmp_path / name).mkdir()

    def is_away() -> bytes:
        raise Refusal("The database cannot be used.")

    before = psutil.Process().children()
    child = Child(Program("link", (sys.executable, "-c", "input()"), {}, tmp_path, standard_input=is_away), tmp_path)
    try:
        with pytest.raises(Refusal):
            child.start()
        assert psutil.Process().children() == before
        assert not child.alive()
    finally:
        if child.popen is not None:
            child.kill()
            child.popen.wait()


@pytest.mark.parametrize(
    ("left", "taken_over"),
    [
        (ProtocolVersion(7, 6), True),
        (ProtocolVersion(6, 5), True),
        (ProtocolVersion(8, 7), True),
        (ProtocolVersion(5, 4), False),
        (ProtocolVersion(9, 8), False),
        (None, False),
    ],
    ids=str,
)
def test_what_a_studio_has_left_is_taken_over_by_one_a_version_apart_and_ended_by_one_further_off(
    tmp_path: Path, left: ProtocolVersion | None, taken_over: bool
) -> None:
    for name in ("log", "run"):
        (tmp_path / name).mkdir()
    argv = (sys.executable, "-c", "import signal; signal.pause()")
    before, after = (
        Child(Program("host", argv, {}, tmp_path, tied=False, version=each), tmp_path) for each in (left, ProtocolVersion(7, 6))
    )
    before.start()
    try:
        assert after.take_over() is taken_over
        assert before.alive() is taken_over
    finally:
        before.kill()
        if before.popen is not None:
            before.popen.wait()


def test_one_from_before_versions_were_compared_is_taken_over_by_the_same_version_alone(tmp_path: Path) -> None:
    for name in ("log", "run"):
        (tmp_path / name).mkdir()
    argv = (sys.executable, "-c", "import signal; signal.pause()")
    for ours, taken_over in ((ProtocolVersion(2, 2), True), (ProtocolVersion(3, 2), False)):
        child = Child(Program("host", argv, {}, tmp_path, tied=False, version=ours), tmp_path)
        child.start()
        assert child.process is not None
        assert child.popen is not None
        child.note.write_text(f"{child.process.pid} {child.process.start_ticks} 2\n")
        try:
            assert Child(child.program, tmp_path).take_over() is taken_over
        finally:
            child.popen.kill()
            child.popen.wait()


def test_a_note_from_before_the_machine_was_started_again_names_nobody(tmp_path: Path) -> None:
    """Its number, and the ticks of its start, may be another's by now."""
    me = look(os.getpid())
    assert me is not None
    note = tmp_path / "host.pid"
    note.write_text(f"{me.pid} {me.start_ticks} 3 2\n{boot_id()}\n")
    assert written_down(note) == me
    note.write_text(f"{me.pid} {me.start_ticks} 3 2\n0b6f8f1e-0000-4000-8000-000000000000\n")
    assert written_down(note) is None
    note.write_text(f"{me.pid} {me.start_ticks} 3 2\n")
    assert written_down(note) == me, "an earlier release wrote no boot"


def test_what_an_earlier_release_has_left_running_with_other_folders_keeps_the_studio_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / own_machine.FOLDER / "host" / "local"
    folder.mkdir(parents=True)
    own_machine.refuse_host_of_before(tmp_path)
    me = look(os.getpid())
    assert me is not None
    saved = {"runs": [{"run": 7, "pid": me.pid, "start_ticks": me.start_ticks}]}
    (folder / "state.json").write_text(json.dumps(saved))
    with pytest.raises(Refusal, match=rf"Run 7 \(process {me.pid}\) was started"):
        own_machine.refuse_host_of_before(tmp_path)
    saved["runs"][0]["start_ticks"] += 1  # its number is another's by now
    (folder / "state.json").write_text(json.dumps(saved))
    own_machine.refuse_host_of_before(tmp_path)
    with open(folder / "host.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{me.pid}\n")
        lock.flush()
        with pytest.raises(Refusal, match=rf"The node host of this machine \(process {me.pid}\) was started"):
            own_machine.refuse_host_of_before(tmp_path)
