"""The look before a training: a child of the first worker loads the first batch twice and computes the first engine twice, another one in
between, as a worker that has several goes from one to the next; it loads the first batch once more as that of another epoch, which a child
of its own does that has loaded nothing before. Test batches likewise. It looks at what computing changes of what callbacks and hooks go by.

A child, because all that the script's functions do besides computing (counting their calls, say) ends with it. It runs while nothing else
does, so files that the dataset holds open are nobody else's meanwhile. Not for compiled models, for which it would take minutes, for GPUs,
where the child would need a context of its own, and for large states, unless EDT_VERIFY=1; EDT_VERIFY=0 leaves it out everywhere.
"""

from __future__ import annotations

import copy
import json
import os
import select
import signal
import threading
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from training_runtime.elastic.data import streams
from training_runtime.elastic.data.loading import Task, load_task
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.job import Job
from training_runtime.elastic.keras import kind
from training_runtime.elastic.processes import hidden_gpus
from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.state import capture, digest
from training_runtime.elastic.state.generators import Watched
from training_runtime.elastic.state.used_values import UsedValues
from training_runtime.elastic.verify import TELLS, joined, parts_of, reason_of, told_by
from training_runtime.elastic.worker.buffers import Numbers
from training_runtime.elastic.worker.compute import BatchMetrics, Compute, is_compiled

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
TESTED = (
    "the same test batch gave another loss after another one had been tested: what the script keeps from test batch to test batch is known "
    "to the worker alone that tested it"
)


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
    tests = job.validates(job.validation_freq - 1) and job.test_function is None and job.begin is None
    fresh, fresh_test = _fresh(job, first), _fresh(job, _test_task(shape, 0)) if tests else None
    batch = load_task(job, first, devices=device.type != "cpu")
    found = []
    if digest.of(batch) != digest.of(load_task(job, first, devices=device.type != "cpu")):
        found.append(LOADED_TWICE)
    elif fresh is not None and job.epochs > 1 and digest.of(load_task(job, _later(first))) != fresh:
        found.append(CACHED)
    if job.begin is not None:
        return found + reason_of(watched.drawn())
    hidden_gpus.reveal(device)
    capture.move(job.live, device)
    job.model.train()
    compute, last = Compute(job, shape, device), load_task(job, other, devices=device.type != "cpu")
    found += _computed_apart(compute, job, (first, batch), (other, last))
    found += _tested_apart(compute, job, shape, fresh_test) if tests and not found else []  # one reason says enough
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
        return [*found, *_measured_apart(job, before.metrics, after.metrics)]
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
    metrics: tuple[str, ...]


def _computed(compute: Compute, job: Job, task: Task, batch: Any) -> _Computed:
    parameters = job.live.parameters()
    for p in parameters:
        p.grad = None
    figures = compute.train(task.place, batch, len(task.indices), 1.0)
    return _Computed(digest.of([float(figures.loss), [p.grad for p in parameters]]), _metric_texts(figures))


def _tested_apart(compute: Compute, job: Job, shape: RunPlan, fresh: int | None) -> list[str]:
    """The same of test batches, the first and the last."""
    first, other = (_test_task(shape, j) for j in (0, shape.test_batches - 1))
    batches = {each: load_task(job, each) for each in (first, other)}
    found = [CACHED] if fresh is not None and job.epochs > 1 and digest.of(load_task(job, _later(first))) != fresh else []
    kept = [b.clone() for b in job.live.buffers()]
    job.model.eval()

    def tested(task: Task) -> BatchMetrics:
        for b, old in zip(job.live.buffers(), kept, strict=False):
            b.copy_(old)
        return compute.test(task.place, copy.deepcopy(batches[task]), len(task.indices))

    before, _, after = tested(first), tested(other), tested(first)
    if repr(float(before.loss)) != repr(float(after.loss)):
        return [*found, TESTED]
    return [*found, *_measured_apart(job, _metric_texts(before), _metric_texts(after))]


def _test_task(shape: RunPlan, batch: int) -> Task:
    return Task("test load", (0, batch, 0), tuple(shape.test_span(batch)))


def _metric_texts(figures: BatchMetrics) -> tuple[str, ...]:
    """What the metrics said, so that NaN is equal to NaN."""
    return tuple(map(repr, figures.vector()[3:]))


def _measured_apart(job: Job, before: tuple[str, ...], after: tuple[str, ...]) -> list[str]:
    names = [name for name, a, b in zip(job.metric_names()[1:], before, after, strict=False) if a != b]
    return [MEASURED.format(joined(names))] if names else []
