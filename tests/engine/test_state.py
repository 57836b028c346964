"""A state as it is written and read: live references, what is put aside."""

from __future__ import annotations

import collections
import dataclasses
import enum
import gc
import importlib
import io
import os
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from training_runtime.elastic.job import Job, TrainConfig, schedulers_of
from training_runtime.elastic.state import capture, checkpoint, digest, transfer
from training_runtime.elastic.state.window import Window
from training_runtime.elastic.training_components import TrainingComponents
from training_runtime.errors import UserError

OWN = """
import collections, dataclasses, enum, threading
from torch import nn
@dataclasses.dataclass
class Best:
    loss: float
    steps: list
class Mode(enum.Enum):
    WARM = 1
    COLD = 2
Point = collections.namedtuple("Point", "x y")
class Callback:
    pass
def double(x):
    return 2 * x
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the script's own."""
    (tmp_path / "own_of_script.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("own_of_script")
    sys.modules.pop("own_of_script", None)


def job_of(folder: Path, callback: object, *, lr: Any = 0.1, seed: int = 1) -> Job:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    config = TrainConfig(engines=1, seed=0, result_dir=folder, max_workers=1, in_studio=False)
    return Job(TrainingComponents(model, nn.functional.cross_entropy, optimizer), lambda: None, 3, 4, config, user_callbacks=[callback])


def stepped(job: Job) -> Job:
    job.model(torch.randn(2, 3, 3, 3)).sum().backward()
    job.optimizer.step()
    return job


def moved(source: Job, target: Job, *, parts: int = 1) -> None:
    """As workers do it: the one who takes over has made room before."""
    fd = os.memfd_create("state")
    tree = capture.capture(source.live)
    landing = transfer.Landing(fd, transfer.packed_bytes(tree))
    for part in range(parts):
        transfer.pack(fd, tree, part, parts)
    capture.restore(transfer.index_of(fd), landing, target.live)
    os.close(fd)


def test_the_index_of_an_older_checkpoint_is_read():
    leaf = transfer.Placed(torch.float32, (2, 3), 64)
    data = pickle.dumps({"parameters": [leaf]}, protocol=2).replace(b"\nPlaced\n", b"\n_Placed\n")
    assert b"_Placed" in data
    assert transfer._Index(io.BytesIO(data)).load() == {"parameters": [leaf]}


@pytest.mark.parametrize("ready", ["nothing", "a part", "all"])
@pytest.mark.parametrize("whose", ["giver", "taker"])
def test_a_state_is_the_same_however_much_of_its_memory_is_mapped(tmp_path, own, ready, whose):
    source, target = stepped(job_of(tmp_path, own.Callback())), job_of(tmp_path, own.Callback(), seed=2)
    tree = capture.capture(source.live)
    size = transfer.packed_bytes(tree)
    fd = os.memfd_create("state")
    windows = {"giver": Window(fd), "taker": Window(fd)}
    windows[whose].make(size)
    windows[whose].ready = {"nothing": 0, "a part": size // 3 // 64 * 64 + 8, "all": size}[ready]
    transfer.pack(windows["giver"], tree, 0, 1)
    assert transfer.size_of(fd) == size
    capture.restore(transfer.index_of(fd), transfer.Landing(windows["taker"], 0), target.live)
    assert digests(target) == digests(source)
    os.close(fd)


def test_members_map_what_a_newcomer_has_made_room_for_and_not_before(tmp_path):
    fd = os.memfd_create("state")
    member, newcomer = Window(fd), Window(fd)
    member.some(1 << 20, 10.0)
    assert member.ready == 0
    newcomer.make(1 << 20)
    assert newcomer.ready == 1 << 20
    member.some(1 << 20, 10.0)
    assert member.ready == 1 << 20
    member.forget()
    assert member.ready == 0
    os.close(fd)


def digests(job: Job) -> dict[str, int]:
    return digest.sections(capture.contents(job.live), numbers=[], held=capture.learnt(job.live))


@pytest.mark.parametrize("parts", [1, 3])
def test_what_was_packed_is_what_comes_out(tmp_path, own, parts):
    callback, other = own.Callback(), own.Callback()
    callback.kept = torch.randn(100)
    source, target = stepped(job_of(tmp_path, callback)), job_of(tmp_path, other, seed=2)
    moved(source, target, parts=parts)
    assert digests(target) == digests(source)
    averages = [[job.optimizer.state[p]["exp_avg"] for p in job.model.parameters()] for job in (source, target)]
    assert [t.stride() for t in averages[1]] == [t.stride() for t in averages[0]]
    assert averages[1][0].is_contiguous(memory_format=torch.channels_last)


def test_references_to_the_model_are_references_to_the_readers_own(tmp_path, own):
    source, target = (stepped(job_of(tmp_path, own.Callback(), seed=seed)) for seed in (1, 2))
    (callback,) = source.user_callbacks
    callback.groups, callback.layers, callback.all = source.optimizer.param_groups, [source.model[0]], list(source.model.parameters())
    callback.forward, callback.buffer, callback.best = source.model.forward, source.model[1].running_mean, own.Best(0.5, [1])
    callback.again = callback.best
    moved(source, target)
    (got,) = target.user_callbacks
    assert got.groups is target.optimizer.param_groups
    assert got.layers[0] is target.model[0]
    assert all(a is b for a, b in zip(got.all, target.model.parameters(), strict=True))
    assert got.forward.__self__ is target.model
    assert got.buffer is target.model[1].running_mean
    assert got.best is got.again is not callback.best
    assert got.best == callback.best


def test_an_object_that_somebody_else_refers_to_stays_that_object(tmp_path, own):
    source, target = (job_of(tmp_path, own.Callback(), seed=seed) for seed in (1, 2))
    for job in (source, target):
        job.user_callbacks[0].best, job.user_callbacks[0].average = own.Best(1.0, []), nn.Linear(2, 2)
    source.user_callbacks[0].best.steps.append(7)
    before = target.user_callbacks[0].best, target.user_callbacks[0].average
    moved(source, target)
    assert (target.user_callbacks[0].best, target.user_callbacks[0].average) == before
    assert before[0].steps == [7]
    assert torch.equal(before[1].weight, source.user_callbacks[0].average.weight)


def test_random_generators_stand_where_they_stood(tmp_path, own):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    for job in (source, target):
        job.user_callbacks[0].kept, job.user_callbacks[0].rng = torch.randn(1000), torch.Generator().manual_seed(7)
    source.user_callbacks[0].more = torch.Generator().manual_seed(8)
    (callback,) = source.user_callbacks
    for rng in (callback.rng, callback.more):
        torch.rand(3, generator=rng)
    moved(source, target)
    (got,) = target.user_callbacks
    assert torch.equal(torch.rand(9, generator=got.rng), torch.rand(9, generator=callback.rng))
    assert torch.equal(torch.rand(9, generator=got.more), torch.rand(9, generator=callback.more))


def test_what_cannot_be_pickled_stays_each_process_own(tmp_path, own):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    with open(os.devnull) as file:
        source.user_callbacks[0].file, source.user_callbacks[0].count = file, 3
        source.user_callbacks[0].rule = lambda: 1
        moved(source, target)
    assert vars(target.user_callbacks[0]) == {"count": 3}


def test_a_named_tuple_of_tensors_is_gone_through():
    pair = collections.namedtuple("pair", "a b")
    assert transfer.replace(pair(torch.ones(1), 2), float) == pair(1.0, 2)


# -- on the disk


def written(job: Job, position: int = 5) -> Path:
    checkpoint.save_engine(job, job.shape(8, 0), position)
    return checkpoint.engine_path(job.result_dir)


def read(job: Job, position: int = 5) -> bool:
    return checkpoint.load_engine(job, job.shape(8, 0), position, pytest.fail)


def test_numbers_and_arrays_of_numpy_and_everything_plain_are_read_back(tmp_path, own):
    source, target = job_of(tmp_path, own.Callback(), lr=np.float64(0.25)), job_of(tmp_path, own.Callback())
    values = {
        "scalar": np.float32(0.5),
        "array": np.arange(6.0).reshape(2, 3),
        "deque": collections.deque([1, 2], 5),
        "default": collections.defaultdict(list, {"a": [1]}),
        "set": {1, 2},
        "mode": own.Mode.COLD,
        "point": own.Point(1, torch.ones(2)),
        "best": own.Best(0.5, [np.float64(1.0)]),
        "dtype": torch.bfloat16,
    }
    vars(source.user_callbacks[0]).update(values)
    written(stepped(source))
    assert read(target)
    assert target.optimizer.param_groups[0]["lr"] == 0.25
    got = vars(target.user_callbacks[0])
    assert got.keys() == values.keys()
    assert np.array_equal(got.pop("array"), values.pop("array"))
    assert torch.equal(got.pop("point").y, values.pop("point").y)
    assert got == values


def test_the_state_before_is_kept_until_the_next_one_is_written(tmp_path, own):
    job = job_of(tmp_path, own.Callback())
    for position in (5, 6, 7):
        written(job, position)
    assert checkpoint.find(job, job.shape(8, 0)).newest == checkpoint.CheckpointFile(checkpoint.engine_path(tmp_path), 7, False)
    assert read(job, 7)
    assert read(job, 6)
    assert not read(job, 5)


@pytest.mark.parametrize("at", [0, 8, 500, 0.5, -40, -300])
def test_a_changed_byte_anywhere_is_found(tmp_path, own, at):
    job = stepped(job_of(tmp_path, own.Callback()))
    written(job, 4)
    path = written(job, 5)
    raw = bytearray(path.read_bytes())
    raw[int(at * len(raw)) if isinstance(at, float) else at] ^= 1
    path.write_bytes(raw)
    told: list[str] = []
    if checkpoint.peek(job, job.shape(8, 0)) == 5:  # so much does not show without a look at everything
        assert not checkpoint.load_engine(job, job.shape(8, 0), 5, told.append)
        assert told[0].startswith("checkpoint/engine.pt has changed since it was written")
    assert checkpoint.peek(job, job.shape(8, 0)) == 4
    assert read(job, 4)


def test_a_damaged_state_does_not_take_the_place_of_the_one_before_it(tmp_path, own):
    job = job_of(tmp_path, own.Callback())
    written(job, 4)
    path = written(job, 5)
    path.write_bytes(path.read_bytes()[:100])
    written(job, 6)
    assert read(job, 6)
    assert read(job, 4)


def test_a_state_that_could_not_be_written_leaves_the_last_one(tmp_path, own, monkeypatch):
    job = job_of(tmp_path, own.Callback())
    written(job, 4)
    monkeypatch.setattr(transfer, "write_all", lambda *_: None)  # a disk that loses what it is given
    with pytest.raises((checkpoint.Damaged, ValueError)):
        written(job, 5)
    monkeypatch.undo()
    assert read(job, 4)


def test_a_state_of_another_job_is_refused_with_what_to_do(tmp_path, own):
    job = job_of(tmp_path, own.Callback())
    written(job)
    with pytest.raises(UserError, match="was made with samples 8, not 9: start a new run instead"):
        checkpoint.find(job, job.shape(9, 0))


# -- schedulers


def test_schedulers_come_in_the_same_order_whatever_the_collector_has_seen():
    made = []
    for collected in (False, True):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)
        rising = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch + 1)
        if collected:
            gc.collect()
        falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
        steps = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        made.append([[rising, falling, steps].index(scheduler) for scheduler in schedulers_of(optimizer)])
    assert made[0] == made[1]
    assert sorted(made[0]) == [0, 1, 2]


assert dataclasses and enum  # what OWN is made of
