"""Who hangs and who does not, with the clock passed in; the messages are real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.ops import pulse
from training_runtime import watchdog as speaker
from webapp.studio.watchdog import LONGEST_START_S, SILENT_S, Watchdog


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Too long a path for a socket's address."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    return folder / "notify.sock"


def test_who_speaks_up_does_not_hang_until_it_is_silent_for_long(deep: Path) -> None:
    listener, pid = Watchdog(deep), os.getpid()
    listener.listen(998.0)
    assert speaker.ping({"NOTIFY_SOCKET": str(deep)})
    listener.listen(1000.0)
    for second in range(1, int(SILENT_S) + 1):
        listener.listen(1000.0 + second)
        assert not listener.hangs(pid, started_at=0.0, now=1000.0 + second)
    listener.listen(1001.0 + SILENT_S)
    assert listener.hangs(pid, started_at=0.0, now=1001.0 + SILENT_S)
    listener.close()
    assert not deep.exists()


def test_another_process_cannot_speak_for_it(deep: Path) -> None:
    listener = Watchdog(deep)
    listener.listen(1000.0)
    call = "from training_runtime import watchdog; import os; print(watchdog.ping(), os.getpid())"
    said = subprocess.run([sys.executable, "-c", call], env={"NOTIFY_SOCKET": str(deep)}, capture_output=True, text=True, check=True)
    listener.listen(1001.0)
    assert said.stdout.split()[0] == "True"
    assert set(listener.heard_at) == {int(said.stdout.split()[1])}
    listener.close()


def test_who_has_not_spoken_yet_gets_the_time_to_start(deep: Path) -> None:
    listener = Watchdog(deep)
    for second in range(0, int(LONGEST_START_S) + 1, 4):
        listener.listen(1000.0 + second)
        assert not listener.hangs(1, started_at=1000.0, now=1000.0 + second)
    listener.listen(1001.0 + LONGEST_START_S)
    assert listener.hangs(1, started_at=1000.0, now=1001.0 + LONGEST_START_S)
    listener.close()


def test_a_machine_that_slept_counts_for_nobodys_silence(deep: Path) -> None:
    listener = Watchdog(deep)
    listener.listen(1000.0)
    listener.note_alive(7, 1000.0)
    listener.listen(4600.0)
    assert not listener.hangs(7, started_at=0.0, now=4600.0)
    for second in range(1, int(SILENT_S) + 2):
        listener.listen(4600.0 + second)
    assert listener.hangs(7, started_at=0.0, now=4601.0 + SILENT_S)
    listener.close()


def test_nobody_is_told_where_nobody_asked(tmp_path: Path) -> None:
    assert not speaker.ping({})
    assert not speaker.ping({"NOTIFY_SOCKET": str(tmp_path / "none.sock")})


def test_a_worker_is_well_while_its_loops_turn_and_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "_turned_at", {})
    assert pulse.is_well(1000.0)
    monkeypatch.setattr(pulse, "_turned_at", {"messages": 1000.0})
    assert pulse.is_well(1000.0 + pulse.LIMIT_S - 1)
    assert not pulse.is_well(1000.0 + pulse.LIMIT_S)
