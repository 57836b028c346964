"""train() and attach() of a notebook, from what they are given to a model with the weights: pack, have it trained, show it, take the
result.

The cell waits in the kernel's main thread, in pieces that an interrupt ends; the kernel's own threads answer its clients meanwhile.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from edt_client import credentials
from edt_client.errors import ClientError
from edt_client.studio import Client
from training_runtime.elastic.driver.outcome import TrainingFailed
from training_runtime.elastic.job import schedulers_of
from training_runtime.errors import UserError
from training_runtime.fabric import frameworks
from training_runtime.fabric.notebook import packing, remote
from training_runtime.fabric.notebook.cell import Cell
from training_runtime.fabric.notebook.local import Local
from training_runtime.fabric.notebook.remote import Remote
from training_runtime.fabric.notebook.seen import Seen, ordered
from training_runtime.fabric.notebook.training import Training

# What FabricModel is made of: parameters that are kept under their names, beside user_callback.
MADE: tuple[str, ...] = ("model", "datasets_function", "loss_function", "optimizer", "metrics", "save_to_onnx", "fn_batch_collate")
MADE += ("worker_logger_callback", "driver_logger_callback", "fn_step_train", "fn_test", "keras_custom_objects")
TAKEN = "The model has the weights of step {}."
ENDED_AT_ONCE = "Ended at once: the model is as it was before."
LEFT_ALONE = "This cell looks no longer: the run was asked to stop, and the model is as it was before."
NOT_PLAIN = (
    "the model's state holds more than tensors and plain values, and a notebook reads nothing else, since it could run code here: {}. "
    "download() saves it as it is"
)
T = TypeVar("T")
UNCHANGED = "It left no weights: the model is as it was before."


class Trainer(Protocol):
    """One of the two ways: `remote.Remote`, `local.Local`."""

    title: str
    link: str
    place: str

    def wait(self) -> None:
        """For a moment. KeyboardInterrupt where the cell is interrupted."""

    def look(self) -> Seen:
        """How it is now. UserError where that cannot be known any more."""

    def stop(self) -> str:
        """Ask it to stop; a line for the cell."""

    def end(self) -> None:
        """Nothing of it runs on this machine when this returns."""

    def weights(self, scratch: Path, *, stopped: bool) -> Path | None:
        """The file of the weights, which may be in `scratch`."""

    def log_tail(self) -> str:
        """The last lines of its log, for an error; "" where the cell has them, or they cannot be had."""


def train(fabric: Any, called: Mapping[str, Any], results: Callable[[], Path]) -> Training:
    """Train what the FabricModel `fabric` was made of, in the studio or, where none is named, here with `results`. TrainingFailed,
    UserError; KeyboardInterrupt after an interrupted one has stopped."""
    made = {**{name: getattr(fabric, name) for name in MADE}, "user_callback": fabric.user_callbacks}
    call = packing.Call(made, called, called["engines_number"], tuple(schedulers_of(fabric.optimizer)))
    studio = _call(lambda: credentials.named(os.environ))
    with tempfile.TemporaryDirectory(prefix="edt-notebook-") as scratch:
        code = Path(scratch)
        if studio is None:
            packing.write(call, code, python_path=tuple(each or str(Path.cwd()) for each in sys.path))
            trainer: Trainer = Local(code, results())
        else:
            packing.write(call, code, most_bytes=packing.MOST_BYTES)
            trainer = _call(lambda: remote.submit(studio, code, engines=call.engines))
            (code / packing.PAYLOAD).unlink()  # it has arrived, and a kernel that is killed would leave it behind
        try:
            return _lead(fabric, trainer, code, may_stop=True)
        finally:
            trainer.end()


def attach(fabric: Any, run: str) -> Training:
    """Follow a run of the studio. An interrupt leaves it alone."""
    studio = _call(lambda: credentials.named(os.environ))
    if studio is None:
        raise UserError(f"attach: no studio is named: run edt login, or set {credentials.STUDIO} and {credentials.TOKEN}")
    client = _call(lambda: Client(studio))
    job = _call(lambda: client.job(run))
    with tempfile.TemporaryDirectory(prefix="edt-notebook-") as scratch:
        return _lead(fabric, Remote(client, str(job["id"]), str(job["url"])), Path(scratch), may_stop=False)


def _lead(fabric: Any, trainer: Trainer, scratch: Path, *, may_stop: bool) -> Training:
    """Until it has ended and the model has the weights. Sets `fabric.training`, also before it raises."""
    cell = Cell(trainer.title, link=trainer.link, place=trainer.place)
    interrupted = False
    try:
        seen = _follow(trainer, cell)
    except KeyboardInterrupt:
        if not may_stop:
            cell.note("Interrupted: this cell looks no longer, the run goes on.")
            raise
        interrupted, seen = True, _stop(trainer, cell)
    fabric.training = _training_of(trainer, seen)
    if seen.state == "failed":
        log = trainer.log_tail()
        raise TrainingFailed(f"{trainer.title} failed: {seen.reason}{f'. {trainer.link}' if trainer.link else ''}\n{log}".rstrip())
    cell.note(said := _take_weights(fabric, trainer, seen, scratch))
    if interrupted:
        raise KeyboardInterrupt
    if seen.state == "stopped":
        raise TrainingFailed(f"{trainer.title} was stopped: {seen.reason.rstrip('.')}. {said}")
    training: Training = fabric.training
    return training


def _follow(trainer: Trainer, cell: Cell) -> Seen:
    while True:
        seen = trainer.look()
        cell.show(seen)
        if seen.ended:
            return seen
        trainer.wait()


def _stop(trainer: Trainer, cell: Cell) -> Seen:
    """Ask it to stop, and wait for that. A second interrupt ends the waiting."""
    try:
        cell.note(trainer.stop())
        return _follow(trainer, cell)
    except KeyboardInterrupt:
        trainer.end()
        cell.note(LEFT_ALONE if trainer.link else ENDED_AT_ONCE)
        raise


def _take_weights(fabric: Any, trainer: Trainer, seen: Seen, scratch: Path) -> str:
    """Into the model as it is: its own parameters, on their device and in their type. What to tell of that."""
    path = _call(lambda: trainer.weights(scratch, stopped=seen.state == "stopped"))
    if path is None:
        return UNCHANGED
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise UserError(NOT_PLAIN.format(error)) from error
    try:
        frameworks.training_components(fabric, fabric.backend, seed=0, batch_size=1).model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"the weights of {trainer.title.lower()} are not those of this model: {error}") from error
    return TAKEN.format(seen.step)


def _training_of(trainer: Trainer, seen: Seen) -> Training:
    history = {f"{curve.group} {curve.name}": list(zip(curve.steps, curve.values, strict=True)) for curve in ordered(seen)}
    done = Training(seen.state, seen.step, seen.epoch, history, url=trainer.link, folder=trainer.place)
    if not isinstance(trainer, Remote):
        return done
    return dataclasses.replace(done, run=trainer.name, fetch=partial(_fetch, trainer.name, trainer.link))


def _fetch(run: str, url: str, path: Path) -> None:
    """The results of a run of the studio, as a zip at `path`."""
    studio = _call(lambda: credentials.named(os.environ))
    if studio is None:
        raise UserError(f"download: no studio is named any more; the results are on {url}")
    _call(lambda: Remote(Client(studio), run, url).save(path))


def _call(do: Callable[[], T]) -> T:
    """What it returns; the client's errors as those that a script's author knows."""
    try:
        return do()
    except ClientError as error:
        raise UserError(str(error)) from None
