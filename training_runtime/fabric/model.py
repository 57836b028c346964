"""FabricModel: what a user's script builds and trains. In the studio it trains on the slots the run is granted, without it on those of this
machine.

Takes the parameters of every release of the original; unknown ones only warn. The training itself is `training_runtime.elastic`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training_runtime.elastic.driver import main as driver
from training_runtime.elastic.job import Job, TrainConfig, schedulers_of
from training_runtime.elastic.processes import fork_server_spawned
from training_runtime.elastic.state import script_globals
from training_runtime.elastic.state.registered import early_end
from training_runtime.errors import UserError
from training_runtime.fabric import download, frameworks, laptop, running
from training_runtime.fabric.arguments import as_list, check_whole, engines_of, in_other_words, is_logger, warn_of_unknown, with_aliases
from training_runtime.fabric.notebook import kernel
from training_runtime.fabric.notebook.training import Training
from training_runtime.fabric.sharding import shard


class FabricModel:
    """A model with all that is needed to train it elastically.

    model: torch.nn.Module. datasets_function: () -> (train, test), map-style datasets. loss_function: (outputs, targets) -> scalar.
    optimizer: a torch.optim instance over the model's parameters. metrics: functions (outputs, targets) -> number, a mean over the batch;
    without it the accuracy of a classification is found by itself. worker_logger_callback, driver_logger_callback: see
    callbacks.LoggerCallback. fn_batch_collate: list of samples -> (inputs, targets).

    Or a Keras model, with loss, optimizer and metrics as its `compile` takes them: names, functions (y_true, y_pred), objects of Keras.
    keras_custom_objects: what its own `custom_objects` are.
    """

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
        self.when_stopped: Callable[[Job], None] = lambda _: None  # called when train() was stopped at a step and nothing trains any more

    def train(
        self,
        epoch_number: int = 0,
        batch_size: int = 0,
        engines_number: int | None = None,
        num_dataloader_threads: int = 4,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        shard_optimizer: bool = False,
        shard_parameters: bool = False,
        **others: Any,
    ) -> Training | None:
        """Train for `epoch_number` epochs with global batches of engines x `batch_size`, on as many slots as the run is granted.

        engines: `engines_number`, or `effective_batch_size` / `batch_size`, the larger of both where both are given, else the most slots
        the run may have. Frequencies are in epochs, 0 is never. `shard_optimizer`: each worker of a machine steps some of the parameters
        and all share the optimizer's state; `shard_parameters`: the parameters, too; the same bits. Afterwards the model holds the final
        weights. Raises UserError for arguments that cannot work and TrainingFailed where the training ended with an error. `others`:
        `hardware_spec`, `worker_num` and `worker_device_num` say the engines in other words; see `arguments`. In a notebook the studio
        trains, or a process of its own (see `notebook`), and what is returned says how it went; elsewhere None.
        """
        epoch_number, engines_number = in_other_words(epoch_number, engines_number, others)
        check_whole({"epoch_number": epoch_number, "batch_size": batch_size}, least=1)
        others_whole = {"num_dataloader_threads": num_dataloader_threads, "validation_freq": validation_freq}
        check_whole({**others_whole, "checkpoint_freq": checkpoint_freq}, least=0)
        session, part = driver.current(), fork_server_spawned.current()
        if part is not None and not part.is_turn():
            return None
        if session is None and part is None and kernel.running():
            engines = engines_of(batch_size, engines_number, effective_batch_size, most=0) or None
            sizes = {"engines_number": engines, "epoch_number": epoch_number, "batch_size": batch_size}
            sharding = {"shard_optimizer": shard_optimizer, "shard_parameters": shard_parameters}
            asked = {name: value for name, value in sharding.items() if value}  # a studio that is older does not know them
            return self._train_from_notebook({**sizes, **others_whole, "checkpoint_freq": checkpoint_freq, **asked})
        most, slots = running.most_slots(session) if part is None else (0, ())
        config = (
            part.config
            if part
            else running.train_config(engines_of(batch_size, engines_number, effective_batch_size, most=most), most, session)
        )
        job = self._job(config, epoch_number, batch_size)
        job.validation_freq, job.checkpoint_freq, job.loader_threads = validation_freq, checkpoint_freq, num_dataloader_threads
        shard(job, optimizer=shard_optimizer, parameters=shard_parameters)
        if part is not None:
            part.work(job)
        self._results = job.result_dir
        running.Training(job, session, slots, self.driver_logger_callback, self.backend, self.when_stopped).run()
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
        return running.claim(laptop.results())

    def _job(self, config: TrainConfig, epochs: int, batch_size: int) -> Job:
        assert self.datasets_function is not None
        components = frameworks.training_components(self, self.backend, seed=config.seed, batch_size=batch_size)
        return Job(
            components=components,
            datasets=self.datasets_function,
            epochs=epochs,
            batch_size=batch_size,
            config=config,
            collate=self.fn_batch_collate or components.collate,
            train_function=self.fn_step_train,
            test_function=self.fn_test,
            worker_logger=self.worker_logger_callback,
            user_callbacks=self.user_callbacks,
            schedulers=schedulers_of(components.optimizer),
            save_to_onnx=self.save_to_onnx,
            registered=script_globals.of(components.model, components.optimizer, self.user_callbacks) | {"ended": early_end()},
        )

    def download(self, out_dir: str | os.PathLike[str] | None = None) -> str:
        """What the last train() has made (the folder `model`) as a zip in `out_dir`, or else in the folder for temporary files. Its path.
        UserError where nothing was trained."""
        if (
            part := fork_server_spawned.current()
        ) is not None:  # a worker that runs the script to come to a later train(): the driver has done it
            return str(download.path_of(part.config.result_dir, out_dir))
        if self.training is not None:
            return str(self.training.download(out_dir))
        if self._results is None:
            raise UserError("download: nothing was trained yet, call train() first")
        path = download.save(self._results, out_dir)
        print(f"Save model:  {path}", flush=True)
        return str(path)
