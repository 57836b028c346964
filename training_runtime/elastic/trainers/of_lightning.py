"""Lightning's `Trainer`: `fit()` goes on from the last checkpoint that this training of the run has saved, and saves one when it is told to
end.

Lightning counts epochs, and within one the batches of a worker: of another number of workers an epoch that was begun goes on at the same
part of it. Which batches that had, and where the training writes, is ours to know (`lightning_batches`, `lightning_places`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from training_runtime.elastic.trainers import continuing, lightning_batches, lightning_places, own_results
from training_runtime.elastic.trainers.continuing import say
from training_runtime.elastic.trainers.interruption import Interruption
from training_runtime.elastic.trainers.lightning_batches import SAVED as SAVED_BATCHES
from training_runtime.elastic.trainers.lightning_batches import FollowedBatches
from training_runtime.elastic.trainers.reporting import ProgressReports
from training_runtime.elastic.trainers.trainings import Saved, Training, is_moved, moved

COMPOSED = "_HandlersCompose"
COLLECTIVE = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")  # whose workers hold a part of the model each
SAVED = "checkpoint/lightning-{}"  # in RESULT_DIR: where it was told to end


@dataclass
class _Followed:
    """A training that goes on. is_between: two batches, where Lightning itself saves nothing."""

    training: Training
    interruption: Interruption
    last: Saved | None
    batches: FollowedBatches
    is_between: bool = False
    reports: ProgressReports = field(default_factory=continuing.reports)

    def note(self, trainer: Any, path: Path) -> None:
        places = lightning_places.of(trainer) | {"is_between": self.is_between}
        self.training.note(path, path, step=trainer.global_step, samples=trainer.world_size, places=places)

    def report(self, trainer: Any) -> None:
        """Of so many steps or, where that is not said, epochs; of a data set without a length nobody knows how far it is."""
        if trainer.max_steps > 0:
            self.reports.report(trainer.global_step, trainer.max_steps, "Steps")
        elif trainer.max_epochs is not None and trainer.max_epochs > 0:
            done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
            self.reports.report(done, trainer.max_epochs * trainer.num_training_batches, "Batches")

    def stop_if_told(self, trainer: Any) -> None:
        if not self.interruption.is_due():
            return
        is_whole = not any(each.__name__ in COLLECTIVE for each in type(trainer.strategy).__mro__)
        if is_whole and not trainer.sanity_checking:
            path = Path(os.environ["RESULT_DIR"], SAVED.format(self.training.number), f"step-{trainer.global_step}.ckpt")
            try:
                trainer.save_checkpoint(str(path))  # which notes it
            except Exception as error:  # of the disk, say; what was saved before is there
                say(f"Told to end, and nothing could be saved: {type(error).__name__}: {error}")
            else:
                self.training.keep_last(path.parent)
                say(f"Told to end: saved {path} (step {trainer.global_step}), to go on from.")
        self.interruption.leave()


_running: dict[int, _Followed] = {}  # by the id of the trainer


def change(module: ModuleType) -> None:
    """`lightning.pytorch.trainer.trainer` or `pytorch_lightning.trainer.trainer`, once it is imported."""
    trainer = module.Trainer
    trainer.fit = _continued(trainer.fit, module.Callback)
    trainer.save_checkpoint = _noted(trainer.save_checkpoint)
    lightning_batches.follow(module.__name__)
    accelerators = importlib.import_module(f"{module.__name__.removesuffix('.trainer.trainer')}.accelerators")
    if auto := getattr(accelerators.CPUAccelerator, "auto_device_count", None):  # later than Lightning 1.5
        accelerators.CPUAccelerator.auto_device_count = staticmethod(_all_workers(auto))


def _all_workers(auto: Callable[[], int]) -> Callable[[], int]:
    """What "auto" means on processors, as LightningCLI says where nobody has said more: what a trainer that is told nothing takes."""

    @wraps(auto)
    def count() -> int:
        said = os.environ.get("PL_TRAINER_DEVICES", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
        return int(said) if said.isdecimal() else auto()

    return count


def _continued(fit: Callable[..., Any], callback: type) -> Callable[..., Any]:
    signature = inspect.signature(fit)

    @wraps(fit)
    def continued(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(self, *args, **kwargs)
        training = continuing.begin(self.world_size, goes_on=bool(call.arguments.get("ckpt_path")))
        if training is None or self.fast_dev_run:
            return fit(self, *args, **kwargs)
        last = training.last()
        if last is not None:
            say(f"This training goes on from {last.path} (step {last.step}).")
            if "weights_only" in signature.parameters:
                call.arguments["weights_only"] = False  # this run has written it, with what its script keeps in there
        with (
            continuing.interruption(training) as interruption,
            FollowedBatches(self, interruption) as batches,
            tempfile.TemporaryDirectory() as folder,
        ):
            batches.goes_on = last is not None
            if last is not None:
                lightning_places.go_on(self, last.places)
                call.arguments["ckpt_path"] = _fitted(self, last, Path(folder))
            followed = _Followed(training, interruption, last, batches)
            before, behind = _first(callback, followed), _last(callback, followed)
            self.callbacks[:] = [before, *self.callbacks, behind]
            _running[id(self)] = followed
            try:
                return fit(*call.args, **call.kwargs)
            finally:
                followed.reports.end()
                del _running[id(self)]
                self.callbacks[:] = [each for each in self.callbacks if each not in (before, behind)]

    return continued


def _noted(save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def noted(self: Any, filepath: Any, weights_only: Any = None, *args: Any, **kwargs: Any) -> Any:
        done = save(self, filepath, weights_only, *args, **kwargs)
        followed, path = _running.get(id(self)), Path(str(filepath))
        if followed is not None and not weights_only and path.is_file():
            followed.note(self, path)
        return done

    return noted


def _first(base: type, followed: _Followed) -> Any:
    """Before those of the script, which have not heard of the next batch then. All workers have it and save at the same step: Lightning has
    them meet there."""
    places, batches = followed.last.places if followed.last is not None else {}, followed.batches

    class First(base):  # type: ignore[misc]
        def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
            own_results.let_config_be_saved(trainer)

        def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
            batches.resumed = checkpoint.pop(SAVED_BATCHES, {})

        def on_train_start(self, *_: Any) -> None:
            batches.begin()

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            batches.resume_step()
            if places.pop("is_between", False) and "logged" in places:
                trainer.fit_loop.epoch_loop._batches_that_stepped = places["logged"]  # Lightning counts the batch before once more
            if batches.is_known:
                followed.is_between = True
                followed.stop_if_told(trainer)
                followed.is_between = False

    return First()


def _last(base: type, followed: _Followed) -> Any:
    """Behind those of the script: what belongs to a batch has been done."""
    interruption = followed.interruption

    class Last(base):  # type: ignore[misc]
        def on_train_start(self, *_: Any) -> None:
            interruption.listen(_is_lightnings)  # which has the workers meet in a handler of signals

        on_sanity_check_start = on_train_start

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            followed.report(trainer)

        def on_train_end(self, trainer: Any, *_: Any) -> None:
            followed.stop_if_told(trainer)

        def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
            followed.stop_if_told(trainer)

        def on_save_checkpoint(self, trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
            if interruption.is_told and trainer.validating:
                _begin_validation_again(checkpoint)
            if interruption.is_told and (trainer.validating or followed.is_between):
                checkpoint[SAVED_BATCHES] = followed.batches.position()

    return Last()


def _begin_validation_again(checkpoint: dict[str, Any]) -> None:
    """What its first batches came to is not in a checkpoint. Lightning goes back to a validation whose batch was begun and not done."""
    with suppress(KeyError, TypeError):
        counts = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
        counts["current"] |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}
        ready = counts["total"]["ready"]
        counts["total"] |= {"started": ready, "processed": ready - 1, "completed": ready - 1}


def _fitted(trainer: Any, saved: Saved, folder: Path) -> str:
    """The checkpoint for as many workers as there are, where the run is: itself, or a copy in `folder` in which an epoch's batches are
    counted anew, and callbacks have the paths that there are."""
    is_counted_anew = saved.samples not in (0, trainer.world_size)
    if not is_counted_anew and not is_moved(saved, os.environ):
        return saved.path
    kept = torch.load(saved.path, map_location="cpu", weights_only=False)
    with suppress(KeyError):
        kept["callbacks"] = moved(kept["callbacks"], saved, os.environ)
    if is_counted_anew:
        with suppress(KeyError, TypeError):
            counts = kept["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
            counts |= dict.fromkeys(counts, round(counts["completed"] * saved.samples / trainer.world_size))
    copy = folder / Path(saved.path).name
    torch.save(kept, copy)
    return str(copy)


def _is_lightnings(handler: Any) -> bool:
    """And none of the script's among those that it is composed of."""
    if type(handler).__name__ != COMPOSED:
        return False
    names = [getattr(each, "__module__", "") or "" for each in handler.signal_handlers]
    return all(name.partition(".")[0] in ("lightning", "pytorch_lightning") for name in names)
