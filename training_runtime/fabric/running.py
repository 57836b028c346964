"""A training in the process that runs the script: in the studio on the slots that its run is granted, for a driver on another machine, or
on the slots of this one. The same for FabricModel and for loops (see `native`).
"""

from __future__ import annotations

import math
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from training_runtime import journal, journal_writer
from training_runtime.elastic.comm import half_precision
from training_runtime.elastic.comm.segment import check_order
from training_runtime.elastic.driver import main as driver
from training_runtime.elastic.driver.coordinator import Coordinator
from training_runtime.elastic.driver.recorder import Recorder
from training_runtime.elastic.job import COLLECTIVE, SEGMENT, Job, RespawnSpec, TrainConfig
from training_runtime.elastic.multinode import remote_nodes
from training_runtime.elastic.multinode.remote_agent import RemoteAgent
from training_runtime.elastic.processes import hidden_gpus, script
from training_runtime.elastic.processes.becoming import at_the_end
from training_runtime.elastic.processes.process_handles import see_children_end
from training_runtime.elastic.state import checkpoint, model_files, optimizers
from training_runtime.errors import ExportFailed, UserError
from training_runtime.fabric import laptop
from training_runtime.fabric.console import Console
from training_runtime.fabric.laptop import JOIN
from training_runtime.fabric.onnx_export import Export
from training_runtime.protocol import SlotRef

SECOND_TRAIN = (
    "train() can be called once in a run: its steps are numbered, charted and resumed as one training. Add up the epochs, change "
    "hyper-parameters in a user_callback, or make the second training an experiment of its own"
)
ONE_FOLDER = f"{SECOND_TRAIN}; or let go of RESULT_DIR, then each train() gets a folder of its own"
# What the original's driver says, which people and programs look for in its log.
BEGINS = ("Using {} backend.", "--------START TRAINING--------")
NARROW_SUMS = (
    "this training goes on from a state of an earlier release, so gradients of half precision are added as there, in their own dtype and "
    "not in float32: its bits stay what they were. A new run has the finer sums"
)
ENDS = "--------END TRAINING: completed epoch {} in time {:.3f} --------"
NOT_TAKEN = (
    "what the script holds beside the model (the optimizer, averages of the weights, what callbacks keep) is behind train() what it was "
    "before: {}"
)
NOT_EXPORTED = "the final model was not exported in ONNX format: {}. The .pth files are there all the same"

MOST_TIMEOUT_S = 1_000_000  # poll(2) takes milliseconds in 31 bits

_trained_in: set[Path] = set()  # by this process, without the studio
_calls = 0  # trainings that have begun in this process


def claim(folder: Path) -> Path:
    """Of a training on this machine. Each gets a folder of its own, as long as nobody has chosen one."""
    if folder in _trained_in:
        raise UserError(ONE_FOLDER)
    _trained_in.add(folder)
    return folder


def most_slots(session: driver.Session | None) -> tuple[int, tuple[SlotRef, ...]]:
    """How many a training may have, and those of this machine where it is on its own."""
    if session is not None:
        return session.spec.max_slots, ()
    slots = laptop.local_slots()
    return len(slots), slots


def train_config(engines: int, most: int, session: driver.Session | None) -> TrainConfig:
    """How the engine is to train: in the studio as the run's spec says, without it as the environment does (EDT_SEED, RESULT_DIR). `most`:
    the most slots of a machine. Raises UserError where EDT_REDUCE is unknown, or several workers cannot train on this processor."""
    seed = session.seed if session else int(os.environ.get("EDT_SEED") or driver.DEFAULT_SEED)
    result_dir = Path(session.spec.result_dir) if session else laptop.results()
    machines = remote_nodes.MACHINES if remote_nodes.address() else 1
    check_order(platform.machine(), most * machines)
    return TrainConfig(
        engines,
        seed,
        result_dir,
        max_workers=2 * max(engines, most) + 4,
        in_studio=session is not None,
        machines=machines,
        reduce=_reduce(),
        wide_sums=checkpoint.has_wide_sums(result_dir),
    )


def _reduce() -> str:
    """EDT_REDUCE. Raises UserError where it is something else."""
    found = os.environ.get("EDT_REDUCE") or SEGMENT
    if found not in (SEGMENT, COLLECTIVE):
        raise UserError(f"EDT_REDUCE must be {SEGMENT} or {COLLECTIVE}, not {found[:40]}")
    return found


def onnx_timeout_s() -> float:
    """EDT_ONNX_TIMEOUT. Raises UserError where it is something else: asked before the training, not behind it."""
    said = os.environ.get("EDT_ONNX_TIMEOUT") or "600"
    try:
        found = float(said)
    except ValueError:
        found = math.nan
    if not 0 < found <= MOST_TIMEOUT_S:
        raise UserError(f"EDT_ONNX_TIMEOUT must be seconds, more than 0 and at most {MOST_TIMEOUT_S}, not {said[:40]}")
    return found


def _nothing(job: Job) -> None:
    """What a script does about a stopped training."""


@dataclass(frozen=True)
class Training:
    """`job` is trained when `run` is called. `logger`: the script's driver logger; `backend`: what people know the model's kind by;
    `when_stopped` is called when it was stopped at a step and nothing trains any more."""

    job: Job
    session: driver.Session | None
    slots: tuple[SlotRef, ...]
    logger: object | None = None
    backend: str = "pytorch"
    when_stopped: Callable[[Job], None] = _nothing

    def run(self) -> None:
        """Until it is over; then the model has the final weights. Raises UserError, TrainingFailed; SystemExit where it was stopped."""
        global _calls
        _calls += 1
        if self.job.save_to_onnx:
            onnx_timeout_s()
        with hidden_gpus.aside(), _own_children():
            if self.session.spec.remote if self.session is not None else os.environ.get(JOIN):
                self._take_part()
            elif self.session is not None:
                self._train_in_studio(self.session)
            else:
                self._train_here()

    def _train_in_studio(self, session: driver.Session) -> None:
        job = self.job
        if session.trained:
            raise UserError(SECOND_TRAIN)
        _choose_start(job)
        session.link_thread.pause()
        session.tell_of_imports()
        console = Console(job, in_studio=True)
        assert session.writer is not None
        recorder = Recorder(
            session.writer, job, logger=self.logger or console, grown=session.link.grown, screen=console, look=session.take_logged
        )
        if session.logged is not None:
            session.logged.leave_out(job.metric_names())
        _warn_of_threads(recorder, job)
        _warn_of_narrow_sums(recorder, job)
        session.trained = True
        exporting, began = None, time.monotonic()
        for line in BEGINS:
            console.say(line.format(self.backend))

        def end() -> None:
            session.step, session.metrics = recorder.last_step, recorder.metrics
            session.epoch = recorder.epoch
            session.link_thread.start()

        with at_the_end(end):
            coordinator = Coordinator(job, recorder, attempt=session.spec.attempt, link=session.link, slots=())
            session.stopped = coordinator.run() == "stopped"
            if session.stopped:
                self.when_stopped(job)
            else:
                console.say(ENDS.format(recorder.epoch, time.monotonic() - began))
                exporting = _take_final(job, recorder, coordinator.last_position)
        if session.stopped:
            raise SystemExit(0)  # Stop ends the script too: what would follow expects a finished training
        _conclude(exporting, recorder)

    def _take_part(self) -> None:
        """This machine works for a driver on another one; the process ends with the training, of which that one has the results."""
        session = self.session
        _choose_start(self.job)
        if session is not None:
            session.link_thread.pause()
            session.trained = session.stopped = True
        told = {"link": session.link, "meeting": session.spec.meeting} if session is not None else {"link": None}
        agent = RemoteAgent(self.job, slots=self.slots, **told)
        with _interruptible(agent):
            code = agent.run()
        raise SystemExit(code)

    def _train_here(self) -> None:
        """Without the studio: results under RESULT_DIR or ./edt-results, Ctrl-C stops at the next step."""
        job = self.job
        claim(job.result_dir)
        began = time.monotonic()
        _choose_start(job)
        writer = journal_writer.Writer(job.result_dir / journal.FILE_NAME, 0)
        console = Console(job, in_studio=False)
        recorder = Recorder(writer, job, logger=self.logger or console, grown=lambda _: None, screen=console)
        _warn_of_threads(recorder, job)
        _warn_of_narrow_sums(recorder, job)
        if remote_nodes.address():
            console.say(f"other machines that see this folder join with {JOIN}={job.result_dir} and the same command")
        coordinator = Coordinator(job, recorder, attempt=1, link=None, slots=self.slots)
        outcome = "failed"

        def end() -> None:
            elapsed_s = time.monotonic() - began
            writer.write(journal.Finished(outcome, recorder.last_step, recorder.epoch, recorder.metrics, elapsed_s))  # type: ignore[arg-type]
            writer.close()
            console.end()

        with at_the_end(end):
            with _interruptible(coordinator):
                outcome = coordinator.run()
            if outcome == "stopped":
                self.when_stopped(job)
            if outcome == "completed":
                _conclude(_take_final(job, recorder, coordinator.last_position), recorder)
        if outcome == "stopped":
            raise KeyboardInterrupt


@contextmanager
def _interruptible(training: Coordinator | RemoteAgent) -> Iterator[None]:
    """Inside, Ctrl-C stops the training at the next step boundary, or this machine's part in it."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        training.interrupt("interrupted from the keyboard")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    with at_the_end(lambda: _set_back(before)):
        yield


@contextmanager
def _own_children() -> Iterator[None]:
    """Inside, and in all workers, children are reaped by who started them: a script that has the kernel do that, or a handler of its own,
    would take their ends away."""
    before = signal.getsignal(signal.SIGCHLD)
    if before in (signal.SIG_DFL, None) or threading.current_thread() is not threading.main_thread():
        yield
        return
    see_children_end()
    with at_the_end(lambda: _set_back(before, signal.SIGCHLD)):
        yield


def _set_back(handler: object, number: int = signal.SIGINT) -> None:
    signal.signal(number, handler)  # type: ignore[arg-type]


def _take_final(job: Job, recorder: Recorder, position: int) -> Export | None:
    """The script's objects become what the training has made of them; an export of the model begins where the script wants one. While no
    thread runs."""
    if not job.shard_optimizer:  # that is asked for where memory is short
        try:
            _take_learnt(job, position)
        except Exception as error:  # it may hold anything of the script's
            recorder.write(journal.Warned(NOT_TAKEN.format(f"{type(error).__name__}: {error}")))
    if model_files.final_path(job.result_dir).exists():
        model_files.load_final(job.model, job.result_dir)
    done_before = not model_files.example_path(job.result_dir).exists() and model_files.onnx_path(job.result_dir).exists()
    if not job.save_to_onnx or done_before:
        return None
    try:
        return Export(job)
    except ExportFailed as error:
        recorder.write(journal.Warned(NOT_EXPORTED.format(error)))
        return None


def _take_learnt(job: Job, position: int) -> None:
    """All that learns, from the state that the training has left."""
    try:
        checkpoint.load_last(job, position)
    except KeyError:  # something of it holds a data set, which this process has not made so far
        job.prepare_datasets()
        checkpoint.load_last(job, position)


def _conclude(exporting: Export | None, recorder: Recorder) -> None:
    """Wait for an export and record what came of it."""
    if exporting is None:
        return
    try:
        paths, size = exporting.finish(onnx_timeout_s())
    except ExportFailed as error:
        recorder.write(journal.Warned(NOT_EXPORTED.format(error)))
        return
    recorder.write(journal.Checkpoint(recorder.last_step, recorder.epoch, "model", paths, size))


def _choose_start(job: Job) -> None:
    """Whether workers are to run the script themselves: where they must not be forked from this process and the script can be run again."""
    method = os.environ.get(script.START_METHOD) or ""
    if method not in ("", "fork", "spawn"):
        raise UserError(f"{script.START_METHOD} must be fork or spawn, not {method!r}")
    found = script.running()
    if found is not None and method != "fork":
        job.fallback = RespawnSpec(found, _calls)
        why = f"{script.START_METHOD} says so" if method == "spawn" else script.why_not_fork()
        job.respawn = RespawnSpec(found, _calls, why, job.measure()) if why else None


def _warn_of_threads(recorder: Recorder, job: Job) -> None:
    why = script.why_not_fork()
    if job.respawn is not None:
        recorder.write(journal.Warned(script.warning(job.respawn.why)))
    elif why:
        recorder.write(journal.Warned(f"the script's process should not be forked, because {why}; workers are copies of it all the same"))


def _warn_of_narrow_sums(recorder: Recorder, job: Job) -> None:
    half = any(p.dtype in half_precision.WIDER for p in optimizers.parameters(job.optimizer))
    if half and job.rounds_often and not job.config.wide_sums:
        recorder.write(journal.Warned(NARROW_SUMS))
