"""Transformers' `Trainer` (and those made of it: Seq2SeqTrainer, those of TRL): `train()` goes on from the last checkpoint that this
training of the run has saved, and saves one when it is told to end. What it logs is kept with its step, which it does not print.

Of another number of workers a step has another number of samples. A training of so many epochs then goes on at the same part of its epoch,
with the step that this is now, also in its schedule; one of `max_steps` at the same step.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from training_runtime.elastic.trainers import continuing
from training_runtime.elastic.trainers.continuing import say
from training_runtime.elastic.trainers.interruption import Interruption
from training_runtime.elastic.trainers.reporting import ProgressReports
from training_runtime.elastic.trainers.trainings import Saved, Training, is_moved, moved

STATE = "trainer_state.json"  # written last
SCHEDULER = "scheduler.pt"
SAVED = "checkpoint/transformers-{}"  # in RESULT_DIR: where it was told to end
COLLECTIVE = ("is_deepspeed_enabled", "is_fsdp_enabled")  # whose workers hold a part of the model each


def change(module: ModuleType) -> None:
    """`transformers.trainer`, once it is imported."""
    trainer = module.Trainer
    trainer.train = _continued(trainer.train, module.TrainerCallback)
    trainer.log = _recorded(trainer.log)


def _recorded(log: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(log)
    def recorded(self: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = continuing.recorder()
        if recorder is not None and self.is_world_process_zero():
            recorder.record(self.state.global_step, logs)
        return log(self, logs, *args, **kwargs)

    return recorded


def _continued(train: Callable[..., Any], callback: type) -> Callable[..., Any]:
    @wraps(train)
    def continued(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        trial = args[0] if args else kwargs.get("trial")
        training = continuing.begin(self.args.world_size, goes_on=bool(resume_from_checkpoint)) if trial is None else None
        if (recorder := continuing.recorder()) is not None and self.is_world_process_zero():
            recorder.begin(training.number if training else None)
        if training is None:
            return train(self, resume_from_checkpoint, *args, **kwargs)
        last = training.last()
        with continuing.interruption(training) as interruption, tempfile.TemporaryDirectory() as folder:
            interruption.listen()
            watched = _Watched(self, training, interruption, is_due=last is not None and last.is_due)
            hears = _callback(callback, watched)
            if last is not None:
                say(f"This training goes on from {last.path} (step {last.step}).")
                resume_from_checkpoint = _fitted(self, last, Path(folder))
            self.add_callback(hears)
            try:
                return train(self, resume_from_checkpoint, *args, **kwargs)
            finally:
                watched.reports.end()
                self.remove_callback(hears)

    return continued


def _samples(trainer: Any) -> int:
    """Of a step, by all workers."""
    args = trainer.args
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


@dataclass
class _Watched:
    """A training that goes on. All workers save at the same step, as the trainer may have them meet there."""

    trainer: Any
    training: Training
    interruption: Interruption
    is_due: bool  # an evaluation that was left out
    reports: ProgressReports = field(default_factory=continuing.reports)

    def note(self, folder: str, *, is_due: bool = False) -> None:
        step = self.trainer.state.global_step
        path = Path(folder, f"checkpoint-{step}")
        self.training.note(path, path / STATE, step=step, samples=_samples(self.trainer), is_due=is_due)

    def stop_if_told(self, *, is_due: bool) -> None:
        if not self.interruption.is_due():
            return
        step = self.trainer.state.global_step
        if step and not any(getattr(self.trainer, each, False) for each in COLLECTIVE):
            folder = str(Path(os.environ["RESULT_DIR"], SAVED.format(self.training.number)))
            try:
                _save(self.trainer, folder)
            except Exception as error:  # of the disk, say; what was saved before is there
                say(f"Told to end, and nothing could be saved: {type(error).__name__}: {error}")
            else:
                self.note(folder, is_due=is_due)
                self.training.keep_last(Path(folder))
                say(f"Told to end: saved in {folder} (step {step}), to go on from.")
        self.interruption.leave()


def _callback(base: type, watched: _Watched) -> Any:
    class Hears(base):  # type: ignore[misc]
        def on_save(self, args: Any, *_: Any, **__: Any) -> None:
            watched.note(args.output_dir)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watched.reports.report(state.global_step, state.max_steps, "Steps")
            if watched.is_due:
                control.should_evaluate, control.should_save = True, control.should_save or args.load_best_model_at_end
                watched.is_due = False
            if not _ends_epoch(state) and not control.should_training_stop:  # else it is asked once more, behind the epoch or at the end
                watched.stop_if_told(is_due=control.should_evaluate)

        def on_epoch_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            if _ends_epoch(state):
                watched.stop_if_told(is_due=control.should_evaluate)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            watched.stop_if_told(is_due=False)

        def on_prediction_step(self, *_: Any, **__: Any) -> None:
            if watched.trainer.is_in_train:
                watched.stop_if_told(is_due=True)  # it has not come to its end

    return Hears()


def _ends_epoch(state: Any) -> bool:
    return math.isclose(state.epoch, round(state.epoch), abs_tol=1e-9)


def _save(trainer: Any, folder: str) -> None:
    """A checkpoint in a folder of ours: who looks through the trainer's own finds what the script has saved. By all workers."""
    args = trainer.args
    before = args.output_dir, args.push_to_hub
    args.output_dir, args.push_to_hub = folder, False
    try:
        trainer._save_checkpoint(trainer.model, None)
    finally:
        args.output_dir, args.push_to_hub = before


def _fitted(trainer: Any, saved: Saved, folder: Path) -> str:
    """The checkpoint for as many workers as there are, where the run is: itself, or a copy in `folder` whose steps are counted anew, with
    the paths that there are."""
    state = json.loads(Path(saved.path, STATE).read_bytes())
    step = _step_now(trainer, saved, state)
    if step == state["global_step"] and not is_moved(saved, os.environ):
        return saved.path
    copy = folder / f"checkpoint-{step}"
    copy.mkdir()
    for each in Path(saved.path).iterdir():
        if each.name not in (STATE, SCHEDULER):
            (copy / each.name).symlink_to(each.resolve())
    (copy / STATE).write_text(json.dumps(moved(state, saved, os.environ) | {"global_step": step}))
    if (scheduler := Path(saved.path, SCHEDULER)).is_file():
        kept = torch.load(scheduler, weights_only=True)
        is_counted = step != state["global_step"] and "last_epoch" in kept
        torch.save({**kept, "last_epoch": step, "_step_count": step + 1} if is_counted else kept, copy / SCHEDULER)
    return str(copy)


def _step_now(trainer: Any, saved: Saved, state: dict[str, Any]) -> int:
    """Of a training of so many epochs, by what is a step of these workers."""
    samples, before = _samples(trainer), int(state["global_step"])
    if saved.samples in (0, samples) or trainer.args.max_steps > 0:
        return before
    try:
        batches = len(trainer.get_train_dataloader())
    except TypeError:  # it has no length
        return before
    step: int = round(float(state["epoch"]) * max(math.ceil(batches / trainer.args.gradient_accumulation_steps), 1))
    say(f"A step has {samples} samples now, and had {saved.samples}: step {saved.step} of then is step {step}.")
    return step
