"""Holds runs to what they may take of the disk: asks who measures (`disk_use`) when it is time, and marks a run that has to end. Part of
the host's one thread, which never looks into a folder of a run itself. What to make of what was found is decided in `disk_values`.

Who measures is a child that may hang with its file system: it is killed then, and the run measured again later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from training_runtime.errors import ProtocolError
from training_runtime.host import processes
from training_runtime.host.meter import disk_values
from training_runtime.host.meter.disk_use import MeasureRequest
from training_runtime.host.meter.disk_values import Basis, Disk, Most, Use
from training_runtime.host.node import Node
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.settings import Settings
from training_runtime.records import build

log = logging.getLogger(__name__)
LOOK_S = 0.5
MEASURE_S = 30.0  # so long it counts at most; what it has found by then is a lower bound
HANGS_S = 60.0
AGAIN_S = 10.0  # after one that did not come to an end
AT_ONCE = 2  # so that a run with a million files keeps no other waiting
_MEASURED = ("alive", "clearing")  # whoever outlives the driver may write too
_REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass
class _Known:
    """Of one attempt of a run: what was found last. `disk`: when that was begun, at `asked_at`; `took_s`: how long it took."""

    basis: Basis
    use: Use
    may: Most
    disk: Disk
    asked_at: float
    took_s: float


@dataclass(eq=False)
class _Measurer:
    """A child, and what it was asked last. `run`: None while it is idle; `disk`: as it was then."""

    process: subprocess.Popen[bytes]
    disk: Disk
    run: LiveRun | None = None
    asked_at: float = 0.0
    said: bytes = b""


def look(runs: Path) -> Disk | None:
    """At the file system that this folder is on, or will be; None where it does not answer: then nobody writes there either."""
    try:
        found = os.statvfs(runs if runs.is_dir() else runs.parent)
    except OSError:
        return None
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


class DiskWatch:
    """`due`: when to look again, None while there is nothing to be measured."""

    def __init__(self, settings: Settings, *, node: Node) -> None:
        self._limits, self._enough = settings.disk, settings.marks.enough
        self._runs, self._node = settings.home / "runs", node
        self._known: dict[LiveRun, _Known] = {}
        self._not_before: dict[LiveRun, float] = {}
        self._measurers: list[_Measurer] = []
        self.due: float | None = None

    def look_if_due(self, now: float) -> None:
        """Has those measured whose turn it is."""
        runs = [run for run in self._node.runs.values() if run.phase in _MEASURED and run.has_own_folder() and not run.over_limit]
        if not runs or not (self._limits.disk != 0 or self._limits.files or self._limits.log):
            self._forget(set())
            self.due = None
            return
        if self.due is not None and now < self.due:
            return
        self.due = now + LOOK_S
        self._forget(set(runs))
        self._end_those_that_hang(now)
        if (disk := look(self._runs)) is None:
            return
        asked = {each.run for each in self._measurers}
        for run in sorted(runs, key=self._measured_at):
            if run not in asked and self._is_due(run, disk, now) and not self._ask(run, disk, now):
                return

    def end(self) -> None:
        for each in tuple(self._measurers):
            self._close(each)

    def _measured_at(self, run: LiveRun) -> float:
        return self._known[run].asked_at if run in self._known else 0.0

    def _is_due(self, run: LiveRun, disk: Disk, now: float) -> bool:
        if now < self._not_before.get(run, 0.0):
            return False
        known = self._known.get(run)
        return known is None or disk_values.is_due(
            age_s=now - known.asked_at, took_s=known.took_s, before=known.disk, now=disk, use=known.use, may=known.may
        )

    def _forget(self, runs: set[LiveRun]) -> None:
        """All but these: they have ended, or are another attempt by now."""
        self._known = {run: known for run, known in self._known.items() if run in runs}
        self._not_before = {run: at for run, at in self._not_before.items() if run in runs}

    # --- who measures ---------------------------------------------------------------------------------------------------------------------

    def _ask(self, run: LiveRun, disk: Disk, now: float) -> bool:
        """False when all are at work."""
        idle = next((each for each in self._measurers if each.run is None), None)
        if idle is None and len(self._measurers) >= AT_ONCE:
            return False
        request = MeasureRequest(run.result_dir, run.traces(), self._limits.files, MEASURE_S, self._limits.log)
        try:
            each = idle or self._start(disk)
            each.run, each.disk, each.asked_at = run, disk, now
            assert each.process.stdin is not None
            each.process.stdin.write(json.dumps(dataclasses.asdict(request)).encode() + b"\n")
            each.process.stdin.flush()
        except OSError as error:
            self._not_before[run] = now + AGAIN_S
            log.warning("what runs take of the disk cannot be measured now: %s", error)
        return True

    def _start(self, disk: Disk) -> _Measurer:
        process = subprocess.Popen(
            [sys.executable, "-m", "training_runtime.host.meter.disk_use"],
            cwd=_REPOSITORY,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        self._node.helpers.add(process.pid)
        os.set_blocking(process.stdout.fileno(), False)
        made = _Measurer(process, disk)
        self._measurers.append(made)
        self._node.watch(process.stdout, functools.partial(self._on_output, made))
        return made

    def _on_output(self, each: _Measurer, _mask: int) -> None:
        assert each.process.stdout is not None
        try:
            piece = os.read(each.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self._failed(each, "it was killed", time.monotonic())
            return
        each.said += piece
        if not each.said.endswith(b"\n"):
            return
        said, each.said = json.loads(each.said), b""
        run, each.run = each.run, None
        if run is not None:
            self._record_measurement(each, run, said)
        self.due = time.monotonic()  # another one may be waiting

    def _record_measurement(self, each: _Measurer, run: LiveRun, said: dict[str, object]) -> None:
        took_s, disk = float(str(said.pop("took_s"))), look(self._runs)
        if "problem" in said or disk is None or run.phase not in _MEASURED:  # its folder is gone, say, which `ending.look_at` finds
            self._not_before[run] = time.monotonic() + AGAIN_S
            return
        try:
            use = build(Use, said)
        except ProtocolError as error:
            log.error("who measures said something odd: %s", error)
            return
        before = self._known.get(run)
        given = disk_values.basis(before.basis if before else None, use, disk, enough_bytes=self._enough)
        may = disk_values.most(self._limits, disk, given)
        self._known[run] = _Known(given, use, may, each.disk, each.asked_at, took_s)
        run.over_limit = disk_values.judge(use, may)
        if run.over_limit:
            log.warning("a run takes too much of the disk bytes=%d files=%d run=%d: %s", use.bytes, use.files, run.run, run.over_limit)

    def _end_those_that_hang(self, now: float) -> None:
        for each in tuple(self._measurers):
            if each.run is not None and now > each.asked_at + HANGS_S:
                self._failed(each, f"it did not answer for {HANGS_S:g} s", now)

    def _failed(self, each: _Measurer, why: str, now: float) -> None:
        log.warning("who measured what a run takes of the disk has failed: %s run=%s", why, each.run and each.run.run)
        if each.run is not None:
            self._not_before[each.run] = now + AGAIN_S
        self._close(each)

    def _close(self, each: _Measurer) -> None:
        self._measurers.remove(each)
        process = each.process
        assert process.stdin is not None
        assert process.stdout is not None
        self._node.unwatch(process.stdout)
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()
        found = processes.look(process.pid)
        if found is not None and found.parent == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        process.returncode = 0  # the host reaps all children itself
