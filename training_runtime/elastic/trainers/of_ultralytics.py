"""Ultralytics' trainers (`YOLO(...).train()`): a training goes on behind the last epoch that it has saved, by their own `resume`, and one
that has ended is not done again.

They save after each epoch and nothing between, so an epoch that was begun is done again. Their file is written over in place: until the
next one is whole the one before lies in the run's results. Trainers that start processes for several GPUs are left alone.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from training_runtime.elastic.state import durable
from training_runtime.elastic.trainers import continuing
from training_runtime.elastic.trainers.continuing import say
from training_runtime.elastic.trainers.reporting import ProgressReports
from training_runtime.elastic.trainers.trainings import Saved, Training

CHANGED = ("check_resume", "train", "save_model", "final_eval", "_do_train", "_setup_train")
KEPT = "checkpoint/ultralytics-{}/last.pt"  # in RESULT_DIR: while the trainer's own is written


@dataclass
class _Followed:
    """A training of this process. last: what it goes on from; kept: where its checkpoint lies while the next is written."""

    training: Training
    last: Saved | None
    kept: Path
    reports: ProgressReports = field(default_factory=continuing.reports)

    @property
    def is_trained(self) -> bool:
        return self.last is not None and bool(self.last.places["is_trained"])

    def is_saved_by(self, trainer: Any) -> bool:
        """Whether what is in the trainer's place is this training's, and whole."""
        last = self.training.last()
        return last is not None and Path(last.path) == trainer.last.absolute()

    def note(self, trainer: Any, path: Path, *, epochs: int, is_trained: bool) -> None:
        self.training.note(path, path, step=epochs, places={"folder": str(trainer.save_dir), "is_trained": is_trained})

    def put_aside(self, trainer: Any) -> bool:
        """Before the next one is written."""
        with suppress(OSError):  # of another file system, say
            if self.is_saved_by(trainer):
                self.kept.parent.mkdir(parents=True, exist_ok=True)
                trainer.last.replace(self.kept)
                self.note(trainer, self.kept, epochs=trainer.epoch, is_trained=False)
                return True
        return False

    def put_back(self, trainer: Any) -> None:
        """The next one could not be written."""
        with suppress(OSError):
            self.kept.replace(trainer.last)
            self.note(trainer, trainer.last, epochs=trainer.epoch, is_trained=False)

    def drop_kept(self) -> None:
        with suppress(OSError):
            self.kept.unlink(missing_ok=True)


_running: WeakKeyDictionary[Any, _Followed] = WeakKeyDictionary()  # by their trainers


def change(module: ModuleType) -> None:
    """`ultralytics.engine.trainer`, once it is imported. One that has not these is of a release that is not known, and left alone."""
    trainer = getattr(module, "BaseTrainer", None)
    if trainer is None or not all(callable(getattr(trainer, name, None)) for name in CHANGED):
        return
    trainer.__init__ = _begun(trainer.__init__)
    trainer.check_resume = _placed(trainer.check_resume)
    trainer.train = _continued(trainer.train)
    trainer.save_model = _saved(trainer.save_model)
    trainer.final_eval = _ended(trainer.final_eval)


def _begun(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @wraps(init)
    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        call = signature.bind(self, *args, **kwargs)
        said = call.arguments.get("overrides")
        if said is None:
            said = call.arguments["overrides"] = {}
        followed = _follow(goes_on=bool(said.get("resume")))
        if followed is None or followed.last is None:
            init(*call.args, **call.kwargs)
        else:
            _go_on(init, call, said, followed, followed.last)
        if followed is not None and not getattr(self, "ddp", False):
            _running[self] = followed

    return begun


def _follow(*, goes_on: bool) -> _Followed | None:
    """Not of torchrun's workers: their devices are not those that the run gives them."""
    training = continuing.begin(1, goes_on=goes_on) if "RANK" not in os.environ else None
    if training is None:
        return None
    last = training.last()
    if last is not None and not last.places.keys() >= {"folder", "is_trained"}:
        last = None  # of a training of another library, at the place of which this script goes on by itself
    return _Followed(training, last, Path(os.environ["RESULT_DIR"], KEPT.format(training.number)))


def _go_on(init: Callable[..., None], call: inspect.BoundArguments, said: dict[str, Any], followed: _Followed, last: Saved) -> None:
    """By their `resume`; from the start where they cannot load what was saved."""
    trainer, resume = call.args[0], said.get("resume", False)
    said["resume"] = last.path  # in place: who has called reads it afterwards
    _running[trainer] = followed
    try:
        init(*call.args, **call.kwargs)
    except FileNotFoundError as error:
        say(f"This training cannot go on from {last.path} and begins at its start: {error.__cause__ or error}")
        del _running[trainer]
        followed.last, said["resume"] = None, resume
        init(*call.args, **call.kwargs)


def _placed(check: Callable[..., None]) -> Callable[..., None]:
    @wraps(check)
    def placed(self: Any, *args: Any, **kwargs: Any) -> None:
        check(self, *args, **kwargs)
        followed = _running.get(self)
        if followed is not None and followed.last is not None:
            self.args.save_dir = followed.last.places["folder"]  # the checkpoint has the path that it had on its machine

    return placed


def _continued(train: Callable[..., None]) -> Callable[..., None]:
    @wraps(train)
    def continued(self: Any, *args: Any, **kwargs: Any) -> None:
        followed = _running.get(self)
        if followed is not None and followed.last is not None:
            last, table = followed.last, Path(self.save_dir, "results.csv")
            self.model = last.path  # whatever the caller has put there
            with suppress(OSError):
                _cut(table, last.step)
                if Path(last.path) == followed.kept:
                    shutil.copy2(followed.kept, self.last)  # in the place of one that was not written to its end
            if followed.is_trained:
                say(f"This training has ended, after {last.step} epochs: nothing is trained, and its best model validated once more.")
                _leave_out_training(self, last)
            else:
                say(f"This training goes on from {last.path}, behind its epoch {last.step}.")
        train(self, *args, **kwargs)

    return continued


def _cut(table: Path, epochs: int) -> None:
    """Rows of later epochs, which are done again."""
    lines = table.read_bytes().splitlines(keepends=True)
    header, rows = lines[:1], lines[1:]
    kept = [row for row in rows if not (epoch := row.partition(b",")[0].strip()).isdigit() or int(epoch) <= epochs]
    if len(kept) < len(rows):
        durable.write(table, lambda file: file.write(b"".join([*header, *kept])))


def _leave_out_training(trainer: Any, last: Saved) -> None:
    def evaluate(*args: Any) -> None:
        trainer._setup_train(*args)
        trainer.final_eval()

    trainer.resume, trainer.epoch, trainer._do_train = False, last.step - 1, evaluate


def _saved(save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def saved(self: Any, *args: Any, **kwargs: Any) -> Any:
        followed = _running.get(self)
        if followed is None:
            return save(self, *args, **kwargs)
        is_aside = followed.put_aside(self)
        try:
            done = save(self, *args, **kwargs)
        except BaseException:
            if is_aside:
                followed.put_back(self)
            raise
        epochs = self.epoch + 1
        followed.reports.report(epochs, self.epochs, "Epochs")
        followed.note(self, self.last, epochs=epochs, is_trained=epochs >= self.epochs or bool(getattr(self, "stop", False)))
        followed.drop_kept()
        return done

    return saved


def _ended(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """It takes from the checkpoint what is for going on."""

    @wraps(evaluate)
    def ended(self: Any, *args: Any, **kwargs: Any) -> Any:
        followed = _running.get(self)
        if followed is not None:
            followed.reports.end()
        if followed is None or not followed.is_saved_by(self):
            return evaluate(self, *args, **kwargs)
        epochs = self.epoch + 1
        with suppress(OSError):
            followed.kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.last, followed.kept)
            followed.note(self, followed.kept, epochs=epochs, is_trained=True)
        done = evaluate(self, *args, **kwargs)
        followed.note(self, self.last, epochs=epochs, is_trained=True)
        followed.drop_kept()
        return done

    return ended
