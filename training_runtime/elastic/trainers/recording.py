"""What a trainer logs, kept for the run's curves with the step that it belongs to, which is not among what the trainer prints. A script
with several trainings, one behind the other, has curves that go on from each to the next."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from training_runtime.elastic.script_logs.trainer_records import PATH, TIME

TRAINING = "training"  # its number; a word, so it is none of the figures
_TRAINING = re.compile(rb'"training": "(\d{1,9})/(\d{1,18})"')
MOST_UNWRITTEN = 1000  # lines
SPEEDS = ("_runtime", "_per_second")  # ends of names of what is another thing each time


class Recorder:
    """Of the run with this RESULT_DIR, in its first worker. What a full disk does not take is written with what comes later, and the script
    hears nothing of it."""

    def __init__(self, results: Path) -> None:
        self._path = results / PATH
        self._last: dict[int, int] | None = None  # the last step of each training that has begun, here or in a process before
        self._number = self._before = 0
        self._told: dict[str, tuple[int, float]] = {}  # the last of each figure: its step and value
        self._unwritten = deque[str](maxlen=MOST_UNWRITTEN)

    def begin(self, number: int | None) -> None:
        """A training begins: by its number in the run where it goes on, else the next of this process."""
        last = self._known()
        self._number = self._number + 1 if number is None else number
        self._before = sum(step for each, step in last.items() if each < self._number)
        self._told.clear()
        self._write("")

    def record(self, step: int, logged: Mapping[str, Any]) -> None:
        """What was logged at a step of the training that has begun last, or before the first one. What has been logged at that step before,
        as by an evaluation behind the last one, is told one step later if it is something else."""
        if step < self._known().get(self._number, 0):
            self._told.clear()  # it was begun again
        self._known()[self._number] = step
        lines: dict[int, dict[str, float]] = {}
        for name, each in logged.items():
            if (value := _number(each)) is None:
                continue
            last, before = self._told.get(str(name), (-1, 0.0))
            if last < step or not (value == before or str(name).endswith(SPEEDS)):
                at = max(step, last + 1)
                self._told[str(name)] = at, value
                lines.setdefault(at, {})[str(name)] = value
        for at, values in lines.items():
            said = {**values, "step": self._before + at, TIME: time.time(), TRAINING: f"{self._number}/{step}"}
            self._write(json.dumps(said))

    def _known(self) -> dict[int, int]:
        if self._last is None:
            self._last = _read(self._path)
        return self._last

    def _write(self, line: str) -> None:
        """On a line of its own, also behind one that was left without an end."""
        self._unwritten.append(line)
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            with open(self._path, "a") as file:
                file.write("".join(f"\n{each}\n" for each in self._unwritten))
            self._unwritten.clear()


def _number(value: Any) -> float | None:
    """Of a Python or numpy number, or a tensor of one; None of what is another thing, as words are."""
    if isinstance(value, bool | str | bytes):
        return None
    with suppress(Exception):
        return float(value)
    return None


def _read(path: Path) -> dict[int, int]:
    """Of each training its last step. Of a run of a month these are a million lines, so none of them is understood whole."""
    found: dict[int, int] = {}
    with suppress(OSError), open(path, "rb") as lines:
        for line in lines:
            if said := _TRAINING.search(line):
                found[int(said[1])] = int(said[2])
    return found
