"""What is the same for all trainers: whether there is a run to go on with, its trainings, and what is told of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from training_runtime.elastic.trainers import identity
from training_runtime.elastic.trainers.interruption import Interruption
from training_runtime.elastic.trainers.recording import Recorder
from training_runtime.elastic.trainers.reporting import ProgressReports
from training_runtime.elastic.trainers.trainings import Training, Trainings

SWITCH = "EDT_CONTINUE_TRAINERS"  # "0" in the environment of a run: its script sees to that itself

_trainings: Trainings | None = None
_recorder: Recorder | None = None
_workers = 1
_is_stopped: Callable[[], bool] = bool


def begin_run(is_stopped: Callable[[], bool] = bool) -> None:
    """In the process that runs the script of a run, before its first line."""
    global _trainings, _recorder, _workers, _is_stopped
    _is_stopped = is_stopped
    _workers = int(os.environ.get("WORLD_SIZE") or 1)
    _trainings = Trainings(os.environ) if os.environ.get(SWITCH) != "0" else None
    _recorder = Recorder(Path(os.environ["RESULT_DIR"]))


def is_on() -> bool:
    """Whether trainings of this process go on by themselves."""
    return _trainings is not None


def begin(workers: int, *, goes_on: bool = False) -> Training | None:
    """The script begins a training by so many workers. `goes_on`: it names a checkpoint of its own. None outside of a run, and where these
    are others than those of the run: of processes that a library starts itself only the first would go on."""
    if _trainings is None or workers != _workers:
        return None
    return _trainings.begin(identity.of_caller(sys._getframe(1)), goes_on=goes_on)


def recorder() -> Recorder | None:
    """For what a trainer logs; None outside of a run."""
    return _recorder


def interruption(training: Training) -> Interruption:
    return Interruption(os.environ, training.number, _is_stopped)


def reports() -> ProgressReports:
    """For how far a training of this run is."""
    return ProgressReports(os.environ)


def say(sentence: str) -> None:
    """In the log, once."""
    if os.environ.get("RANK", "0") == "0":
        print(f"[studio] {sentence}", file=sys.stderr, flush=True)  # noqa: T201 - for whoever reads the log
