"""A script without the studio: the slots of this machine, where results go, and the environment variables that scripts expect."""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch

from training_runtime.errors import UserError
from training_runtime.protocol import SlotRef

JOIN = "EDT_JOIN"  # the result folder of a training on another machine, which that one shares with this one

_ours: set[str] = set()  # values of RESULT_DIR that nobody else has set
_offered: Path | None = None  # of these the one without a training in it


def set_defaults() -> None:
    """Called where a script imports `fabric_model`: what scripts of the original read from their environment is there, as in a run. A
    results folder that stays empty goes with the process."""
    global _offered
    os.environ.setdefault("DATA_DIR", str(Path("data").resolve()))
    joined = os.environ.get(JOIN)
    if "RESULT_DIR" not in os.environ and not joined:
        _offered = _new_folder()
        atexit.register(_tidy, _offered, os.getpid())
        os.environ["RESULT_DIR"] = str(_offered)
    result = Path(os.environ.setdefault("RESULT_DIR", str(joined))).resolve()
    os.environ.setdefault("SAVED_MODEL_DIR", str(result / "model"))
    if "LOG_DIR" not in os.environ:
        _log_below(result)


def local_slots() -> tuple[SlotRef, ...]:
    """The slots of this machine: a GPU each, else EDT_SLOTS CPU slots (at most 4 by default)."""
    gpus = torch.cuda.device_count()
    said = os.environ.get("EDT_SLOTS", "").strip()
    if said and not (said.isascii() and said.isdigit() and int(said[:9]) > 0):
        raise UserError(f"EDT_SLOTS must be a number, at least 1, and not {said!r}")
    count = int(said or gpus or min(4, os.cpu_count() or 1))
    return tuple(SlotRef(i, "localhost", i % gpus if gpus else i, "gpu" if gpus else "cpu") for i in range(count))


def results() -> Path:
    """The folder of the training that this machine joins; RESULT_DIR where somebody has set it, in which a training goes on where the last
    one stopped; else a new folder."""
    if joined := os.environ.get(JOIN):
        if not Path(joined).is_dir():
            raise UserError(
                f"{JOIN}: there is no folder {joined} here; it must be the results folder of a training that was started with EDT_ADDRESS"
            )
        return Path(joined).resolve()
    given = os.environ.get("RESULT_DIR")
    if not given or given in _ours:
        return _next_folder()
    path = Path(given).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def _next_folder() -> Path:
    """The one that was offered, for the first training; then a new one each, which the variables follow."""
    global _offered
    path, _offered = _offered or _new_folder(), None
    path.mkdir(parents=True, exist_ok=True)
    if os.environ.get("LOG_DIR", "").startswith(tuple(_ours)):
        _log_below(path)
    os.environ["RESULT_DIR"], os.environ["SAVED_MODEL_DIR"] = str(path), str(path / "model")
    return path


def _new_folder() -> Path:
    for number in itertools.count(1):
        path = Path(_base(), time.strftime("%Y%m%d-%H%M%S") + f"-{number}" * (number > 1)).resolve()
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    _ours.add(str(path))
    return path


def _base() -> Path:
    """Here; or where everybody may write, when this folder is closed."""
    return Path("edt-results") if os.access(".", os.W_OK) else Path(tempfile.gettempdir(), "edt-results")


def _log_below(result: Path) -> None:
    folder = result / "log" / "driver"
    os.environ["LOG_DIR"] = str(folder)
    if not os.environ.get(JOIN):  # else it is of the training on the other machine
        folder.mkdir(parents=True, exist_ok=True)


def _tidy(result: Path, pid: int) -> None:
    """At the end of the process that made it: a folder that nothing was written to."""
    if os.getpid() == pid:
        with suppress(OSError):  # from the first that is not empty on
            for folder in (result / "log" / "driver", result / "log", result, result.parent):
                folder.rmdir()
