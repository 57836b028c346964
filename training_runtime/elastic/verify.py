"""Whether this script computes the same from the same: looked at before the training, and while it goes on.

Before: a child of the first worker loads the first batch twice and computes the first engine twice, another one in between, as a worker
that has several goes from one to the next; it loads the first batch once more as that of another epoch, which a child of its own does that
has loaded nothing before. It looks at what computing changes of what callbacks and hooks go by. A child, because all that the script's
functions do besides computing (counting their calls, say) ends with it. It runs while nothing else does, so files that the dataset holds
open are nobody else's meanwhile. Not for compiled models, for which it would take minutes, for GPUs, where the child would need a context
of its own, and for large states, unless EDT_VERIFY=1; EDT_VERIFY=0 leaves it out everywhere.

Later: operations of which torch says that they add in any order, generators of the script's own that were drawn from, and what callbacks
change of that by which batches are loaded.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import select
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from training_runtime.elastic.data import streams
from training_runtime.elastic.data.loading import Task, load_task
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.job import Job
from training_runtime.elastic.keras import kind
from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.state import capture, digest
from training_runtime.elastic.state.generators import Watched
from training_runtime.elastic.state.used_values import UsedValues
from training_runtime.elastic.worker.buffers import Numbers
from training_runtime.elastic.worker.compute import Compute, is_compiled

LIMIT_S = 10.0  # for which the training waits for the child
LARGE_BYTES = 1 << 30
LOADED_TWICE = "the same samples, loaded twice, were not the same"
CACHED = (
    "samples that had been loaded before were not what they are when they are loaded for the first time: what a dataset keeps of random "
    "numbers or of its first use is known to the process alone that loaded it. Keep what is not random (a decoded picture), and draw anew"
)
COMPUTED_TWICE = "the same batch, computed twice, gave different gradients"
KEEPS = (
    "a batch gave other gradients after another one had been computed: what the script keeps from batch to batch must be a buffer or a "
    "number of a module from the start, else it is known to the worker alone that computed the batch"
)
WRITES = (
    "computing a batch changed parameters, which is known to the worker alone that computed it: make what forward writes a buffer, and "
    "change parameters in a hook of the optimizer (nn.Embedding(max_norm=...) changes them in forward)"
)
MEASURED = (
    "the metric {} gave another value for the same batch after another one had been measured: what it keeps from batch to batch is known "
    "to the worker alone that measured it. Have it give the value of its batch; the mean over all of them is made here"
)
TELLS = (
    "computing a batch changes {}, which callbacks or hooks use: each worker knows what its own batches made of it. Keep it as a buffer or "
    "a number of a module of the model or of the loss, which are the first batch's everywhere, or have the callback compute it"
)
RELOADS = (
    "a callback changes {}, by which samples are loaded: batches that were loaded ahead and workers that join later do not know. Have it "
    "change a number of the model instead, and make in forward what depends on it"
)
ANY_KERNELS = "EDT_DETERMINISTIC=0 lets the GPU use kernels that add in any order"
_SAID = re.compile(r"(\S+) does not have a deterministic implementation|operation is not deterministic because it uses (\w+)")


class Exactness:
    """What a worker has seen of it. `tell` is called with reasons why not, and whether the first engine was computed twice."""

    def __init__(self, job: Job, tell: Callable[[list[str], bool], None]) -> None:
        self._job, self._watched, self._tell = job, Watched(parts_of(job)), tell
        self._drawn: list[str] = []

    def begin(self, found: list[str] | None, *, on_device: bool) -> None:
        """`found`: what `look_twice` has; None: it was not asked, or could not tell."""
        watch_warnings(lambda reason: self._tell([reason], False))
        any_kernels = on_device and os.environ.get("EDT_DETERMINISTIC") == "0"
        self._tell([*(found or ()), *([ANY_KERNELS] if any_kernels else ())], found is not None and self._job.begin is None)

    def tell(self, reasons: list[str]) -> None:
        """What others have seen."""
        self._tell(reasons, False)

    def look(self) -> None:
        """Now and then."""
        drawn = self._watched.drawn()
        if drawn != self._drawn:
            self._drawn = drawn
            self._tell(reason_of(drawn), False)

    @contextmanager
    def callbacks(self) -> Iterator[None]:
        """Around the script's callbacks between epochs."""
        if not self._job.user_callbacks:
            yield
            return
        values = UsedValues(loaded_by(self._job), known=self._job.live.modules(), caches=False)
        yield
        if changed := values.changed():
            self._tell([RELOADS.format(joined(changed))], False)


def loaded_by(job: Job) -> Mapping[str, object]:
    """By what samples are loaded, as `parts_of` has it."""
    return {"the training dataset": job.train_set, "the test dataset": job.test_set, "fn_batch_collate": job.collate}


def told_by(job: Job) -> Mapping[str, object]:
    """What may go by what computing has left, besides what is computed next: callbacks, hooks of the optimizer and schedulers."""
    hooks = (*job.optimizer._optimizer_step_pre_hooks.values(), *job.optimizer._optimizer_step_post_hooks.values())
    named = [(type(each).__name__, each) for each in (*job.user_callbacks, *job.schedulers)]
    return {**{f"{name} {i + 1}" if name in dict(named[:i]) else name: each for i, (name, each) in enumerate(named)}, "a hook": hooks}


def joined(names: list[str]) -> str:
    """For people."""
    return ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")


def parts_of(job: Job) -> Mapping[str, object]:
    """What of a script is computed with, by the names that its author gave or knows."""
    return {
        **loaded_by(job),
        "the model": job.model,
        "the loss": job.loss,
        "fn_step_train": job.train_function,
        "the optimizer's hooks": (*job.optimizer._optimizer_step_pre_hooks.values(), *job.optimizer._optimizer_step_post_hooks.values()),
    }


def reason_of(drawn: list[str]) -> list[str]:
    """In words, for people."""
    return [f"{name} is a random generator of its own, which is not seeded for each batch" for name in drawn[:5]]


def watch_warnings(tell: Callable[[str], None]) -> None:
    """Tell of each operation once of which torch warns that it is not deterministic. As long as this process lives."""
    show, told = warnings.showwarning, set[str]()

    def showwarning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        found = _SAID.search(str(message))
        if found is not None and (name := found[1] or found[2]) not in told:
            told.add(name)
            tell(f"{name} has no deterministic kernel on this device")
        show(message, *args, **kwargs)

    warnings.showwarning = showwarning
    for text in (r".*does not have a deterministic implementation", r".*is not deterministic because"):
        warnings.filterwarnings("default", message=text)  # whatever the script has them do


def is_worth_it(job: Job, *, on_device: bool) -> bool:
    """Whether the first engine is to be computed twice, or loaded where the body of a script's loop computes, which cannot be run ahead."""
    wanted = os.environ.get("EDT_VERIFY", "")
    if wanted == "0" or isinstance(job.train_set, streams.Stream) or threading.active_count() > 1 or kind.is_tensorflow_imported():
        return False
    held = [*job.live.parameters(), *job.live.buffers()]
    return wanted == "1" or not (on_device or is_compiled(job.model) or sum(t.numel() * t.element_size() for t in held) > LARGE_BYTES)


def look_twice(job: Job, shape: RunPlan, device: torch.device) -> list[str] | None:
    """What was not the same twice; None where that could not be found out. Before anything in this process has touched a device."""
    ours, theirs = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _child(job, shape, device, parent, theirs)
    os.close(theirs)
    try:
        return _answer(ours)
    finally:
        os.close(ours)
        os.kill(pid, signal.SIGKILL)  # not reaped yet
        os.waitpid(pid, 0)


def _answer(pipe: int) -> list[str] | None:
    raw = b""
    while select.select([pipe], [], [], LIMIT_S)[0] and (part := os.read(pipe, 1 << 16)):
        raw += part
    return json.loads(raw) if raw.endswith(b"]") else None


def _child(job: Job, shape: RunPlan, device: torch.device, parent: int, pipe: int) -> NoReturn:
    """What the script prints here it will print again."""
    try:
        die_with_parent(parent)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.write(pipe, json.dumps(differences(job, shape, device)).encode())
    finally:
        os._exit(0)  # what went wrong will go wrong again, where it is told


def differences(job: Job, shape: RunPlan, device: torch.device) -> list[str]:
    """Load the first engine's batch twice and compute it twice, here; another one in between."""
    watched = Watched(parts_of(job))
    first, other = _tasks(job, shape)
    fresh = _fresh(job, first)
    batch = load_task(job, first, devices=device.type != "cpu")
    found = []
    if digest.of(batch) != digest.of(load_task(job, first, devices=device.type != "cpu")):
        found.append(LOADED_TWICE)
    elif fresh is not None and job.epochs > 1 and digest.of(load_task(job, _later(first))) != fresh:
        found.append(CACHED)
    if job.begin is not None:
        return found + reason_of(watched.drawn())
    capture.move(job.live, device)
    job.model.train()
    found += _computed_apart(Compute(job, shape, device), job, (first, batch), (other, load_task(job, other, devices=device.type != "cpu")))
    return found + reason_of(watched.drawn())


def _later(task: Task) -> Task:
    """The same samples in the next epoch."""
    return Task(task.purpose, (1, *task.place[1:]), task.indices)


def _fresh(job: Job, task: Task) -> int | None:
    """What these samples are in the next epoch to a process that has loaded nothing before; None where that could not be found out."""
    ours, theirs = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if not pid:
        try:
            die_with_parent(parent)
            os.write(theirs, b"%d." % digest.of(load_task(job, _later(task))))
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        raw = answer.read()
    os.waitpid(pid, 0)
    return int(raw[:-1]) if raw.endswith(b".") else None


def _tasks(job: Job, shape: RunPlan) -> tuple[Task, Task]:
    """Two batches of one size; of a data set that has no more the same one twice."""
    count = shape.sizes(0)[0]
    places = tuple(job.order(shape, 0)[range(min(2 * count, shape.samples))])
    return Task("load", (0, 0, 0), places[:count]), Task("load", (0, 0, 1), places[-count:])


def _computed_apart(compute: Compute, job: Job, first: tuple[Task, Any], other: tuple[Task, Any]) -> list[str]:
    """Why what comes of the first batch depends on what was computed before. Buffers and numbers of modules are set back as the engine sets
    them back for each batch, and nothing else."""
    modules = job.live.modules()
    kept, numbers = [b.clone() for b in job.live.buffers()], Numbers(modules)
    start, held = numbers.now(), digest.of(job.live.parameters())
    used = UsedValues(told_by(job), known=job.live.named().values())

    def computed(task: Task, batch: Any) -> _Computed:
        with torch.no_grad():
            for b, old in zip(job.live.buffers(), kept, strict=False):  # forward may make one that was not there
                b.copy_(old)
        numbers.become(start)
        return _computed(compute, job, task, copy.deepcopy(batch))

    before = computed(*first)
    changed = used.changed()
    if digest.of(job.live.parameters()) != held:
        return [WRITES]
    computed(*other)
    after = computed(*first)
    found = [TELLS.format(joined(changed))] if changed else []
    if after.gradients == before.gradients:
        names = [name for name, a, b in zip(job.metric_names()[1:], before.metrics, after.metrics, strict=False) if a != b]
        return [*found, *([MEASURED.format(joined(names))] if names else [])]
    attributes = [(vars(module), dict(vars(module))) for module in modules]
    with capture.unchanged(job.live):
        before = computed(*first)
        for mine, old in attributes:
            mine.update(old)
    return [*found, KEEPS if computed(*first).gradients == before.gradients else COMPUTED_TWICE]


@dataclass(frozen=True)
class _Computed:
    """What came of a batch: a digest of loss and gradients, and what the metrics said."""

    gradients: int
    metrics: tuple[float, ...]


def _computed(compute: Compute, job: Job, task: Task, batch: Any) -> _Computed:
    parameters = job.live.parameters()
    for p in parameters:
        p.grad = None
    figures = compute.train(task.place, batch, len(task.indices), 1.0)
    said = tuple(math.nan if math.isnan(value) else value for value in figures.vector()[3:])
    return _Computed(digest.of([float(figures.loss), [p.grad for p in parameters]]), said)
