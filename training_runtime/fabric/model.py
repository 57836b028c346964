"""FabricModel: what a user's script builds and trains. In the studio it trains on the slots the run is granted, without it on those of this
machine.

Takes the parameters of every release of the original; unknown ones only warn. The training itself is `training_runtime.elastic`.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from training_runtime import journal
from training_runtime.elastic import checkpoint, driver, fresh, script
from training_runtime.elastic.arena import check_order
from training_runtime.elastic.coordinator import Coordinator
from training_runtime.elastic.job import Job, Rerun, Terms, schedulers_of
from training_runtime.elastic.recorder import Recorder
from training_runtime.elastic.spread import outposts
from training_runtime.elastic.spread.station import Station
from training_runtime.errors import ExportFailed, UserError
from training_runtime.fabric import download, frameworks, laptop
from training_runtime.fabric.arguments import as_list, check_whole, engines_of, in_other_words, is_logger, warn_of_unknown, with_aliases
from training_runtime.fabric.console import Console
from training_runtime.fabric.laptop import JOIN
from training_runtime.fabric.notebook import kernel
from training_runtime.fabric.onnx_export import Export
from training_runtime.protocol import SlotRef

if TYPE_CHECKING:
    from training_runtime.fabric.notebook.session import Training

SECOND_TRAIN = (
    "train() can be called once in a run: its steps are numbered, charted and resumed as one training. Add up the epochs, change "
    "hyper-parameters in a user_callback, or make the second training an experiment of its own"
)
ONE_FOLDER = f"{SECOND_TRAIN}; or let go of RESULT_DIR, then each train() gets a folder of its own"
# What the original's driver says, which people and programs look for in its log.
BEGINS = ("Using {} backend.", "--------START TRAINING--------")
ENDS = "--------END TRAINING: completed epoch {} in time {:.3f} --------"
NOT_EXPORTED = "the final model was not exported in ONNX format: {}. The .pth files are there all the same"


class FabricModel:
    """A model with all that is needed to train it elastically.

    model: torch.nn.Module. datasets_function: () -> (train, test), map-style datasets. loss_function: (outputs, targets) -> scalar.
    optimizer: a torch.optim instance over the model's parameters. metrics: functions (outputs, targets) -> number, a mean over the batch;
    without it the accuracy of a classification is found by itself. worker_logger_callback, driver_logger_callback: see
    callbacks.LoggerCallback. fn_batch_collate: list of samples -> (inputs, targets).

    Or a Keras model, with loss, optimizer and metrics as its `compile` takes them: names, functions (y_true, y_pred), objects of Keras.
    keras_custom_objects: what its own `custom_objects` are.
    """

    _trained_in: set[Path] = set()  # by this process, without the studio
    _calls = 0  # of train(), in this process

    def __init__(
        self,
        model: Any,
        datasets_function: Callable[[], Any] | None = None,
        loss_function: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        worker_logger_callback: object | None = None,
        driver_logger_callback: object | None = None,
        save_to_onnx: bool = False,
        keras_custom_objects: dict[str, Any] | None = None,
        fn_batch_collate: Callable[[list[Any]], Any] | None = None,
        **others: Any,
    ) -> None:
        given = with_aliases(others)
        if is_logger(metrics):  # the first release: driver_logger, worker_logger, user_callback, enable_onnx, fn_step_train, fn_test
            first = {"user_callbacks": driver_logger_callback, "fn_step_train": keras_custom_objects, "fn_test": fn_batch_collate}
            given = {name: value for name, value in first.items() if value is not None} | given
            metrics, driver_logger_callback, keras_custom_objects, fn_batch_collate = None, metrics, None, None
        self.model, self.metrics = model, None if metrics is None else as_list(metrics)
        self.datasets_function = datasets_function or given.pop("datasets_function", None)
        self.loss_function, self.optimizer = loss_function, optimizer
        self.worker_logger_callback = worker_logger_callback or given.pop("worker_logger_callback", None)
        self.driver_logger_callback = driver_logger_callback or given.pop("driver_logger_callback", None)
        self.save_to_onnx = bool(save_to_onnx or given.pop("save_to_onnx", False))
        self.fn_batch_collate = fn_batch_collate
        self.user_callbacks = as_list(given.pop("user_callbacks", None))
        self.fn_step_train, self.fn_test = given.pop("fn_step_train", None), given.pop("fn_test", None)
        self.keras_custom_objects = keras_custom_objects
        warn_of_unknown("FabricModel", given)
        self.backend = frameworks.backend_of(self)
        self._results: Path | None = None
        self.training: Training | None = None  # how the last one went, where this is a notebook
        self.when_stopped: Callable[[Job], None] = _nothing  # called when train() was stopped at a step and nothing trains any more

    def train(
        self,
        epoch_number: int = 0,
        batch_size: int = 0,
        engines_number: int | None = None,
        num_dataloader_threads: int = 4,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        **others: Any,
    ) -> Training | None:
        """Train for `epoch_number` epochs with global batches of engines x `batch_size`, on as many slots as the run is granted.

        engines: `engines_number`, or `effective_batch_size` / `batch_size`, the larger of both where both are given, else the most slots
        the run may have. Frequencies are in epochs, 0 is never. Afterwards the model holds the final weights. Raises UserError for
        arguments that cannot work and TrainingFailed where the training ended with an error. `others`: `hardware_spec`, `worker_num` and
        `worker_device_num` say the engines in other words; see `arguments`. In a notebook the studio trains, or a process of its own (see
        `notebook`), and what is returned says how it went; elsewhere None.
        """
        epoch_number, engines_number = in_other_words(epoch_number, engines_number, others)
        check_whole({"epoch_number": epoch_number, "batch_size": batch_size}, least=1)
        others_whole = {"num_dataloader_threads": num_dataloader_threads, "validation_freq": validation_freq}
        check_whole({**others_whole, "checkpoint_freq": checkpoint_freq}, least=0)
        session, part = driver.current(), fresh.current()
        if part is not None and not part.is_turn():
            return None
        if session is None and part is None and kernel.running():
            engines = engines_of(batch_size, engines_number, effective_batch_size, most=0) or None
            sizes = {"engines_number": engines, "epoch_number": epoch_number, "batch_size": batch_size}
            return self._train_from_notebook({**sizes, **others_whole, "checkpoint_freq": checkpoint_freq})
        slots = () if session or part else laptop.local_slots()
        most = session.spec.max_slots if session else len(slots)
        terms = part.terms if part else _terms(engines_of(batch_size, engines_number, effective_batch_size, most=most), most, session)
        job = self._job(terms, epoch_number, batch_size)
        job.validation_freq, job.checkpoint_freq, job.loader_threads = validation_freq, checkpoint_freq, num_dataloader_threads
        if part is not None:
            part.work(job)
        FabricModel._calls += 1
        self._results = job.result_dir
        if session.spec.station if session is not None else os.environ.get(JOIN):
            self._take_part(job, session, slots)
        elif session is not None:
            self._train_in_studio(job, session)
        else:
            self._train_here(job, slots)
        return None

    def attach(self, run: str) -> Training:
        """In a notebook: follow a run that an earlier train() has sent to the studio, and take its weights when it has ended."""
        from training_runtime.fabric.notebook import session

        return session.attach(self, str(run))

    def _train_from_notebook(self, called: dict[str, Any]) -> Training:
        """Another process trains; this one shows it, and the model takes the weights."""
        from training_runtime.fabric.notebook import session

        return session.train(self, called, self._local_results)

    def _local_results(self) -> Path:
        """Of a training on this machine. Each gets a folder of its own, as long as nobody has chosen one."""
        folder = laptop.results()
        if folder in self._trained_in:
            raise UserError(ONE_FOLDER)
        self._trained_in.add(folder)
        return folder

    def _job(self, terms: Terms, epochs: int, batch_size: int) -> Job:
        assert self.datasets_function is not None
        parts = frameworks.parts(self, self.backend, seed=terms.seed, batch_size=batch_size)
        return Job(
            parts=parts,
            datasets=self.datasets_function,
            epochs=epochs,
            batch_size=batch_size,
            terms=terms,
            collate=self.fn_batch_collate or parts.collate,
            train_function=self.fn_step_train,
            test_function=self.fn_test,
            worker_logger=self.worker_logger_callback,
            user_callbacks=self.user_callbacks,
            schedulers=schedulers_of(parts.optimizer),
            save_to_onnx=self.save_to_onnx,
        )

    def download(self, out_dir: str | os.PathLike[str] | None = None) -> str:
        """What the last train() has made (the folder `model`) as a zip in `out_dir`, or else in the folder for temporary files. Its path.
        UserError where nothing was trained."""
        if (part := fresh.current()) is not None:  # a worker that runs the script to come to a later train(): the driver has done it
            return str(download.path_of(part.terms.result_dir, out_dir))
        if self.training is not None:
            return str(self.training.download(out_dir))
        if self._results is None:
            raise UserError("download: nothing was trained yet, call train() first")
        path = download.save(self._results, out_dir)
        print(f"Save model:  {path}", flush=True)
        return str(path)

    def _train_in_studio(self, job: Job, session: driver.Session) -> None:
        if session.trained:
            raise UserError(SECOND_TRAIN)
        _choose_start(job, self._calls)
        session.attendant.pause()
        console = Console(job, in_studio=True)
        logger = self.driver_logger_callback or console
        assert session.writer is not None
        recorder = Recorder(session.writer, job, logger=logger, grown=session.link.grown, screen=console, look=session.take_logged)
        if session.logged is not None:
            session.logged.leave_out(job.metric_names())
        _warn_of_threads(recorder, job)
        session.trained = True
        exporting, began = None, time.monotonic()
        for line in BEGINS:
            console.say(line.format(self.backend))
        try:
            coordinator = Coordinator(job, recorder, attempt=session.spec.attempt, link=session.link, slots=())
            session.stopped = coordinator.run() == "stopped"
            if session.stopped:
                self.when_stopped(job)
            else:
                console.say(ENDS.format(recorder.epoch, time.monotonic() - began))
                exporting = _take_final(job, recorder)
        finally:
            session.step, session.metrics = recorder.last_step, recorder.metrics
            session.epoch = recorder.epoch
            session.attendant.start()
        if session.stopped:
            raise SystemExit(0)  # Stop ends the script too: what would follow expects a finished training
        _conclude(exporting, recorder)

    def _take_part(self, job: Job, session: driver.Session | None, slots: tuple[SlotRef, ...]) -> None:
        """This machine works for a driver on another one; the process ends with the training, of which that one has the results."""
        _choose_start(job, self._calls)
        if session is not None:
            session.attendant.pause()
            session.trained = session.stopped = True
        station = Station(job, link=session.link if session is not None else None, slots=slots)
        with _interruptible(station):
            code = station.run()
        raise SystemExit(code)

    def _train_here(self, job: Job, slots: tuple[SlotRef, ...]) -> None:
        """Without the studio: results under RESULT_DIR or ./edt-results, Ctrl-C stops at the next step."""
        if job.result_dir in self._trained_in:
            raise UserError(ONE_FOLDER)
        self._trained_in.add(job.result_dir)
        began = time.monotonic()
        _choose_start(job, self._calls)
        writer = journal.Writer(job.result_dir / journal.FILE_NAME, 0)
        console = Console(job, in_studio=False)
        recorder = Recorder(writer, job, logger=self.driver_logger_callback or console, grown=lambda _: None, screen=console)
        _warn_of_threads(recorder, job)
        if outposts.address():
            console.say(f"other machines that see this folder join with {JOIN}={job.result_dir} and the same command")
        coordinator = Coordinator(job, recorder, attempt=1, link=None, slots=slots)
        outcome = "failed"
        try:
            with _interruptible(coordinator):
                outcome = coordinator.run()
            if outcome == "stopped":
                self.when_stopped(job)
            if outcome == "completed":
                _conclude(_take_final(job, recorder), recorder)
        finally:
            elapsed_s = time.monotonic() - began
            writer.write(journal.Finished(outcome, recorder.last_step, recorder.epoch, recorder.metrics, elapsed_s))  # type: ignore[arg-type]
            writer.close()
            console.end()
        if outcome == "stopped":
            raise KeyboardInterrupt


@contextmanager
def _interruptible(training: Coordinator | Station) -> Iterator[None]:
    """Inside, Ctrl-C stops the training at the next step boundary, or this machine's part in it."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        training.interrupt("interrupted from the keyboard")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _take_final(job: Job, recorder: Recorder) -> Export | None:
    """The script's model takes the final weights; an export of it begins where the script wants one. While no thread runs."""
    if checkpoint.final_path(job.result_dir).exists():
        checkpoint.load_final(job.model, job.result_dir)
    done_before = not checkpoint.example_path(job.result_dir).exists() and checkpoint.onnx_path(job.result_dir).exists()
    if not job.save_to_onnx or done_before:
        return None
    try:
        return Export(job)
    except ExportFailed as error:
        recorder.write(journal.Warned(NOT_EXPORTED.format(error)))
        return None


def _conclude(exporting: Export | None, recorder: Recorder) -> None:
    """Wait for an export and record what came of it."""
    if exporting is None:
        return
    try:
        paths, size = exporting.finish(float(os.environ.get("EDT_ONNX_TIMEOUT") or 600))
    except ExportFailed as error:
        recorder.write(journal.Warned(NOT_EXPORTED.format(error)))
        return
    recorder.write(journal.Checkpoint(recorder.last_step, recorder.epoch, "model", paths, size))


def _nothing(job: Job) -> None:
    """What a script does about a stopped training."""


def _terms(engines: int, most: int, session: driver.Session | None) -> Terms:
    seed = session.seed if session else int(os.environ.get("EDT_SEED") or driver.DEFAULT_SEED)
    result_dir = Path(session.spec.result_dir) if session else laptop.results()
    machines = outposts.MACHINES if outposts.address() else 1
    check_order(platform.machine(), most * machines)
    return Terms(engines, seed, result_dir, seats=2 * max(engines, most) + 4, in_studio=session is not None, machines=machines)


def _choose_start(job: Job, call: int) -> None:
    """Whether workers are to run the script themselves: where they must not be forked from this process and the script can be run again."""
    method = os.environ.get(script.START_METHOD) or ""
    if method not in ("", "fork", "spawn"):
        raise UserError(f"{script.START_METHOD} must be fork or spawn, not {method!r}")
    found = script.running()
    if found is not None and method != "fork":
        job.fallback = Rerun(found, call)
        why = f"{script.START_METHOD} says so" if method == "spawn" else script.why_not_fork()
        job.rerun = Rerun(found, call, why, job.measure()) if why else None


def _warn_of_threads(recorder: Recorder, job: Job) -> None:
    why = script.why_not_fork()
    if job.rerun is not None:
        recorder.write(journal.Warned(script.told(job.rerun.why)))
    elif why:
        recorder.write(journal.Warned(f"the script's process should not be forked, because {why}; workers are copies of it all the same"))
