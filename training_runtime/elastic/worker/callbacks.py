"""The user's callbacks on a worker: logger and user callbacks. A logger that raises is reported as a warning; it never costs a step. A
user callback takes part in the training: where it raises on one worker and not on others these would go on with different states, so it
fails the run. After the last epoch nothing goes on: what saves the model there and asks for a GPU that the machine does not have, as
samples of WMLA do, is a warning too.

Without a worker logger of the script's own, a worker in the studio prints a line a second at most into its log.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from training_runtime import processor
from training_runtime.elastic.complaints import Complaints
from training_runtime.elastic.job import Job
from training_runtime.fabric.dispatch import Logger

PRINT_EVERY_S = 1.0
NO_GPU = (
    "{0} asks for a GPU, and this machine has none: {1}. What it was to save is not there; the model is in RESULT_DIR/model/train. "
    "For both kinds of machines write device='cuda' if torch.cuda.is_available() else 'cpu'"
)


class WorkerHooks:
    def __init__(self, job: Job, warn: Callable[[str], None]) -> None:
        self._job, self._warn = job, warn
        self._logger = Logger(job.worker_logger) if job.worker_logger is not None else None
        self._prints = job.worker_logger is None and job.in_studio  # elsewhere all workers share one terminal
        self._printed = 0.0
        self._complaints = Complaints()
        self._trained = self._tests = 0

    def begin(self) -> None:
        for callback in self._job.user_callbacks:
            model, optimizer = self._job.script_objects
            params = {**(getattr(callback, "params", None) or {}), "epochs": self._job.epochs, "optimizer": optimizer}
            if hasattr(callback, "set_params") and hasattr(callback, "set_model"):  # as those of Keras have it
                callback.set_params(params)
                callback.set_model(model)
            else:
                callback.params, callback.model = params, model
        self._all("on_train_begin")
        self._guard(self._logger.begin if self._logger else None)

    def end(self) -> None:
        self._all("on_train_end")
        self._guard(self._logger.end if self._logger else None)
        self._complain(self._complaints.rest())
        if self._job.in_studio:
            print(f"--------END TRAINING: completed {self._trained} iterations --------", flush=True)  # noqa: T201 - the worker's log

    def ends_epochs(self) -> bool:
        """Whether the script does something of its own when an epoch has ended: it may look for the files of that epoch."""
        hooks = (getattr(callback, "on_epoch_end", None) for callback in self._job.user_callbacks)
        return any(hook is not None and not getattr(hook, "__module__", "").startswith("training_runtime.") for hook in hooks)

    def epoch_begin(self, epoch: int) -> None:
        self._all("on_epoch_begin", epoch)

    def epoch_end(self, epoch: int, *, save_model: bool) -> None:
        last = save_model and epoch + 1 == self._job.epochs
        self._all("on_epoch_end", epoch, forgives=_lacks_gpu if last else None, save_model=save_model)

    def ask_to_stop(self) -> bool:
        """Whether one of the script's callbacks has set `stop_training`, of its own or of the model, as those of Keras do."""
        told = (*self._job.user_callbacks, self._job.script_objects[0]) if self._job.user_callbacks else ()
        return any(getattr(each, "stop_training", False) is True for each in told)

    def trained(self, vectors: Sequence[list[float]], epoch: int, workers: int) -> None:
        """After a step: the logger gets the means over this worker's own engines."""
        logger = self._logger
        self._trained += len(vectors)
        if not vectors or (logger is None and not self._due()):
            return
        means = self._job.means([sum(column) for column in zip(*vectors, strict=True)])
        if logger is not None:
            self._guard(lambda: logger.train(means, self._trained, epoch + 1, workers))
        else:
            shown = "  ".join(f"{name} {value:.4g}" for name, value in means.items())
            print(f"epoch {epoch + 1}  batches {self._trained}  {shown}", flush=True)  # noqa: T201 - this is the worker's log

    def _due(self) -> bool:
        """Whether a line may be printed again."""
        now = time.monotonic()
        if not self._prints or now - self._printed < PRINT_EVERY_S:
            return False
        self._printed = now
        return True

    def tested(self, vector: list[float], epoch: int) -> None:
        logger = self._logger
        if logger is None:
            return
        self._tests += 1
        self._guard(lambda: logger.test(self._job.means(vector), self._tests, epoch + 1))

    def _all(self, name: str, *args: Any, forgives: Callable[[Exception], bool] | None = None, **kwargs: Any) -> None:
        for callback in self._job.user_callbacks:
            hook = getattr(callback, name, None)
            if hook is None:
                continue
            try:
                with self._job.components.sync_script_objects():
                    call(hook, *args, **kwargs)
            except Exception as error:
                if forgives is None or not forgives(error):
                    raise
                self._complain(self._complaints.add(NO_GPU.format(name, error)))

    def _guard(self, action: Callable[[], None] | None) -> None:
        if action is None:
            return
        try:
            action()
        except Exception as error:
            self._complain(self._complaints.add(f"the worker's logger callback raised {type(error).__name__}: {error}"))

    def _complain(self, message: str) -> None:
        if message:
            traceback.print_exc()
            self._warn(message)


def _lacks_gpu(error: Exception) -> bool:
    """Whether torch has said that there is no GPU, and there is none."""
    return (
        isinstance(error, AssertionError | RuntimeError) and any(word in str(error) for word in ("CUDA", "NVIDIA")) and not processor.gpus()
    )


def call(hook: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call with the keyword arguments that the hook takes."""
    code = getattr(hook, "__code__", None)
    takes = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    hook(*args, **{k: v for k, v in kwargs.items() if k in takes or (code and code.co_flags & 0x08)})
