"""`edt.elastic`: exact elastic training for who writes their own training step."""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from training_runtime.elastic.data import script_sampler
from training_runtime.elastic.driver import main as driver
from training_runtime.elastic.job import Job, schedulers_of
from training_runtime.elastic.processes import becoming, fork_server_spawned
from training_runtime.elastic.processes.becoming import Becomes
from training_runtime.elastic.state.combined_optimizer import CombinedOptimizer
from training_runtime.elastic.state.registered import Registered
from training_runtime.elastic.training_components import TrainingComponents
from training_runtime.elastic.worker import loop
from training_runtime.elastic.worker.loop_step import Batch, Step
from training_runtime.errors import UserError
from training_runtime.fabric import from_loader, laptop, logging, running, trainable
from training_runtime.fabric.arguments import as_list, check_whole
from training_runtime.fabric.notebook import kernel

UNEQUAL = "elastic: a batch of {} cannot be cut into {} equal parts: choose `parts` so that it divides the batch, or another batch_size"
NOTEBOOK = (
    "elastic: a loop cannot be trained from a notebook, since its body would have to run in other processes: put it into a script, or use "
    "FabricModel"
)
_kept: list[Becomes] = []
_check_whole = partial(check_whole, of="elastic")


def elastic(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Optimizer | Sequence[Optimizer],
    dataset: Any,
    *,
    batch_size: int | None = None,
    parts: int = 8,
    epochs: int = 1,
    state: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    test_set: Any = None,
    evaluate: Callable[[Batch], Any] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    sampler: Any = None,
    samples: int | None = None,
    loader_threads: int = 4,
    checkpoint_freq: int = 1,
    validation_freq: int = 1,
) -> Iterator[Step]:
    """The steps of a training, for a loop whose body computes them on as many slots as there are:

        for step in edt.elastic(model, optimizer, dataset, batch_size=64, parts=8, epochs=10):
            for batch in step:
                step.backward(loss_fn(model(batch.x), batch.y))
            step.update()

    batch_size: samples of a whole step, cut into `parts` equal parts, each of which a worker computes at a time; the weights depend on
    both, never on the slots. `model` and `optimizer` may be several, in lists. `state`: objects by name that learn during the training
    besides them (an average of the model, a GradScaler, a dict of figures): workers that join and checkpoints have them; modules,
    optimizers and schedulers that are variables of the caller are found unasked. `metrics`: names of what the body measures
    (`step.measure`). `evaluate(batch)`: the loss of a batch of `test_set`, or a dict with "loss" and the metrics, each a mean over the
    batch; called after every `validation_freq` epochs. `collate`: a list of samples -> batch. `sampler`: the numbers of an epoch's samples,
    seeded for it; without one all are shuffled. A DataLoader as `dataset` says all this too. `samples`: those of an epoch of a stream.

    Behind the loop the objects are as the training left them. UserError: arguments that cannot work. TrainingFailed: an error ended it.
    """
    _check_whole({"parts": parts, "epochs": epochs, "samples": 1 if samples is None else samples}, least=1)
    _check_whole({"loader_threads": loader_threads, "checkpoint_freq": checkpoint_freq, "validation_freq": validation_freq}, least=0)
    data = _data(from_loader.Data(dataset, test_set, batch_size or 0, collate, sampler, loader_threads, samples or 0), parts, evaluate)
    whole, one, caller = _model(model), _optimizer(optimizer), sys._getframe(1)
    trainable.check(whole, getattr(one, "optimizers", (one,)))
    make = partial(
        Job,
        components=TrainingComponents(whole, _no_loss, one, tuple(_Named(name) for name in metrics)),
        datasets=lambda: (data.dataset, data.test_set),
        epochs=epochs,
        batch_size=data.batch_size // parts,
        collate=data.collate,
        sampler=data.sampler,
        schedulers=[found for each in getattr(one, "optimizers", (one,)) for found in schedulers_of(each)],
        validation_freq=validation_freq,
        checkpoint_freq=checkpoint_freq,
        loader_threads=data.threads,
        begin=loop.begin,
        evaluate=evaluate,
        registered={"state": Registered(state or {}), **loop.own_state(data.dataset)},
        script={**caller.f_globals, **caller.f_locals},
    )
    session, part = driver.current(), fork_server_spawned.current()
    _prepare_here(session or part)
    return _steps(make, parts, session, part)


def _steps(
    make: Callable[..., Job], parts: int, session: driver.Session | None, part: fork_server_spawned.Part | None
) -> Generator[Step, None, None]:
    """In the script's own process the whole training, and no step; in a worker the steps that it does."""
    if part is None:
        most, slots = running.most_slots(session)
        job = make(config=running.train_config(parts, most, session))
        try:
            running.Training(job, session, slots).run()
            return None
        except Becomes as worker:
            _kept.append(worker)
            context, lengths = worker.context, worker.lengths
            _guard()
    elif part.is_turn():
        job = make(config=part.config)
        context, lengths = part.enter(job)
    else:
        return None  # what an earlier training has made is in the state that this worker gets
    yield from _in_worker(loop.work(job, context, lengths))
    return None


def _prepare_here(told: object) -> None:
    """Outside of the studio, where nobody has told anything."""
    if told is not None:
        return
    if kernel.running():
        raise UserError(NOTEBOOK)
    laptop.set_defaults()


def _data(given: from_loader.Data, parts: int, evaluate: object) -> from_loader.Data:
    """Opened and checked."""
    given = from_loader.opened(given)
    _check_whole({"batch_size": given.batch_size}, least=1)
    if given.batch_size % parts:
        raise UserError(UNEQUAL.format(given.batch_size, parts))
    given = from_loader.with_numbers(given)
    if given.sampler is not None:
        script_sampler.check(given.sampler, len(given.dataset))
    if (given.test_set is None) != (evaluate is None):
        raise UserError("elastic: test_set and evaluate belong together: evaluate(batch) is called with each batch of test_set")
    return given


def _in_worker(steps: Iterator[Any]) -> Generator[Step, None, None]:
    worker = next(steps)
    logging.send_to(worker.log)
    yield from steps


def _guard() -> None:
    """This process is a worker, forked from one that runs the script: whatever ends the script here is reported, and ends the process
    before anything that the script's own process does at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches everybody; the driver decides

    def excepthook(_kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
        becoming.conclude(error)

    sys.excepthook = excepthook
    atexit.register(lambda: becoming.conclude(SystemExit()))


def _model(given: Any) -> nn.Module:
    models = as_list(given) if isinstance(given, (list, tuple)) else [given]
    for each in models:
        if not isinstance(each, nn.Module):
            raise UserError(f"elastic: model must be a torch.nn.Module, or several in a list, not {type(each).__name__}")
    return models[0] if isinstance(given, nn.Module) else nn.ModuleList(models)


def _optimizer(given: Any) -> Optimizer:
    found = as_list(given) if isinstance(given, (list, tuple)) else [given]
    for each in found:
        if not isinstance(each, Optimizer):
            raise UserError(f"elastic: optimizer must be a torch.optim instance, or several in a list, not {type(each).__name__}")
    if not found:
        raise UserError("elastic: there is no optimizer in the list")
    return found[0] if len(found) == 1 else CombinedOptimizer(found)


def _no_loss(_outputs: Any, _targets: Any) -> torch.Tensor:
    raise AssertionError("the loss is computed in the script's loop")


class _Named:
    """A metric that the body measures."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, _outputs: Any, _targets: Any) -> float:
        raise AssertionError("it is measured in the script's loop")
