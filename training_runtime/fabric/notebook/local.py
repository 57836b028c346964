"""A training of a notebook on its own machine: in a fresh process, which has none of the kernel's threads and ends with it.

It runs the generated script as `python main.py` would run, in a session of its own, so that an interrupt of the kernel reaches it once,
from here. What it does is read from its journal, what it prints from its log.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from training_runtime import journal
from training_runtime.elastic.state import model_files
from training_runtime.fabric.notebook import packing
from training_runtime.fabric.notebook.seen import Seen

LOOK_S = 0.2
RATE_OVER_S = 5.0
CHUNK_BYTES = 64 << 10
LINE_LIMIT = 10_000


class Local:
    """A training in `folder`, its results. `code`: where the script and the payload are, until it has ended."""

    link = ""

    def __init__(self, code: Path, folder: Path) -> None:
        self.title, self.place, self.folder = "Training on this machine", str(folder), folder
        self._journal, self._log = folder / journal.FILE_NAME, folder / "log" / "driver" / "console.log"
        self._seen, self._offset, self._shown = Seen(), self._size(folder / journal.FILE_NAME), 0
        self._recent: list[tuple[float, int]] = []
        self._outcome = self._last_line = self._line = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a letter may come in two pieces
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._shown = self._size(self._log)
        own = {"RESULT_DIR": str(folder), "SAVED_MODEL_DIR": str(folder / "model"), "LOG_DIR": str(self._log.parent)}
        path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(code / packing.SCRIPT)],
                env={**os.environ, **own, "PYTHONPATH": path, packing.PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    def _size(path: Path) -> int:
        """Of what an earlier training has left there."""
        return path.stat().st_size if path.exists() else 0

    def wait(self) -> None:
        """Until its process has ended, LOOK_S at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LOOK_S)

    def look(self) -> Seen:
        """Reads what its journal and its log have since the last look, and prints the log. "failed" where it ended without a word."""
        ended = self._process.poll() is not None  # before its last lines are read
        batch = journal.read(self._journal, self._offset, final=ended)
        while batch.end_offset > self._offset:
            self._offset = batch.end_offset
            for line in batch.lines:
                self._apply_event(line)
            batch = journal.read(self._journal, self._offset, final=ended)
        self._stream()
        if ended:  # not before: much may follow the last line of the journal
            self._seen.state = self._outcome or "failed"
            if self._seen.state == "failed" and not self._seen.reason:
                self._seen.reason = self._last_line or f"its process ended with status {self._process.returncode}"
        return self._seen

    def _apply_event(self, line: journal.Line) -> None:
        event, seen = line.event, self._seen
        if isinstance(event, journal.Started):
            seen.epochs, seen.steps = event.epochs, event.epochs * event.steps_per_epoch
        elif isinstance(event, journal.Train):
            seen.state, seen.step, seen.epoch, seen.workers = "running", event.step, event.epoch, event.workers
            seen.add("train", event.step, event.metrics)
            self._recent = [each for each in self._recent if line.t - each[0] <= RATE_OVER_S] + [(line.t, event.step)]
            (t0, first), (t1, last) = self._recent[0], self._recent[-1]
            seen.rate = (last - first) / (t1 - t0) if t1 > t0 else None
        elif isinstance(event, journal.Test):
            seen.add("test", event.step, event.metrics)
        elif isinstance(event, journal.Failed):
            seen.reason = event.message
        elif isinstance(event, journal.Finished):
            self._outcome = event.outcome

    def _stream(self) -> None:
        """What it has printed since, into the cell."""
        with open(self._log, "rb") as log:
            log.seek(self._shown)
            while new := log.read(CHUNK_BYTES):
                self._shown += len(new)
                said = self._decoder.decode(new)
                self._line = f"{self._line}{said}"
                self._last_line = next((line.strip() for line in reversed(self._line.splitlines()) if line.strip()), self._last_line)
                self._line = self._line.rpartition("\n")[2][-LINE_LIMIT:]
                sys.stdout.write(said)
        sys.stdout.flush()

    def stop(self) -> str:
        """Asks it to stop at the next step; what to tell meanwhile."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        return "Interrupted: it stops after this step and keeps the weights. Interrupt again to end it at once."

    def end(self) -> None:
        """Whatever it does, it is gone when this returns; what it has started sees that and goes too."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def weights(self, scratch: Path, *, stopped: bool) -> Path | None:  # noqa: ARG002
        """The file in its results; None where it has left none. Nothing is put into `scratch`."""
        found = model_files.stopped_path(self.folder) if stopped else model_files.final_path(self.folder)
        return found if found.exists() else None

    def log_tail(self) -> str:
        """For an error: what it printed is in the cell already."""
        return ""
