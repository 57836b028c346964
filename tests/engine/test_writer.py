"""States are written while the training goes on: what may be done meanwhile, and who writes when the one that did has died or left."""

from __future__ import annotations

import os
import signal
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.harness import Run, until_gone
from tests.engine.scripts import SMALL
from tests.engine.test_emergency_checkpoint import finish, same
from training_runtime.elastic.job import Job, TrainConfig
from training_runtime.elastic.state import model_files, snapshot
from training_runtime.elastic.state.snapshot import Order, Snapshot
from training_runtime.elastic.training_components import TrainingComponents

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all
LONGER = ("--epochs", "4", "--samples", "1840")  # some hundred steps an epoch: time to be told before the next state is due
# Who writes the model of an epoch says so, and waits until it is let go; it does what a slow disk lets it do: give up when it is told to.
HELD = (
    """
import os, time
from training_runtime.elastic.state import model_files as _files
from training_runtime.elastic.worker import heartbeat as _heartbeat
_results, _save = os.environ["RESULT_DIR"], _files.save
def _held(result_dir, relative, held):
    if relative == "model/train/model_epoch_2.pth":
        open(f"{_results}/writes-{os.getpid()}", "w").close()
        while not os.path.exists(_results + "/go"):
            time.sleep(0.005)
            _heartbeat.beat()
    return _save(result_dir, relative, held)
_files.save = _held
"""
    + SMALL
)


def writers(run: Run) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in run.result_dir.glob("writes-*")}


def held(start, *slots: int, arguments: tuple[str, ...] = LONG) -> Run:
    """A run that writes the model of its second epoch, and cannot."""
    run = start(HELD, *arguments)
    run.members(*slots)
    run.until(lambda: writers(run), what="the model of the second epoch is being written")
    return run


def go(run: Run) -> None:
    (run.result_dir / "go").touch()


def all_models(run: Run) -> dict[str, object]:
    folder = run.result_dir / "model" / "train"
    return {path.name: torch.load(path, weights_only=True) for path in sorted(folder.glob("*.pth"))}


def assert_equal(mine, theirs, at: str = "") -> None:
    assert type(mine) is type(theirs), at
    if isinstance(mine, torch.Tensor):
        assert mine.dtype == theirs.dtype, at
        assert mine.stride() == theirs.stride(), at
        assert torch.equal(mine, theirs), at
    elif isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), at
        for key in mine:
            assert_equal(mine[key], theirs[key], f"{at}.{key}")
    elif isinstance(mine, (list, tuple)):
        assert len(mine) == len(theirs), at
        for i, pair in enumerate(zip(mine, theirs, strict=True)):
            assert_equal(*pair, f"{at}.{i}")
    else:
        assert mine == theirs, at


def test_training_goes_on_while_a_state_is_written(start, fixed):
    run = held(start, 0, 1)
    run.until_step(20)  # the second epoch has ended with step 16
    assert [e.epoch for e in run.events("checkpoint")] == [1, 1]
    go(run)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONG))
    assert_equal(all_models(run), all_models(fixed(*LONG)))


def test_the_next_state_waits_for_the_one_that_is_being_written(start):
    run = held(start, 0, 1)
    run.until_step(24)  # the end of the third epoch
    run.until(lambda: run.events("test")[-1].epoch == 3, what="it is validated")
    go(run)
    assert run.wait() == 0, run.tail()
    kinds = [(line.event.kind, line.event.epoch) for line in run.lines() if line.event.kind in ("checkpoint", "train")]
    assert kinds.index(("checkpoint", 2)) < kinds.index(("train", 4))
    epochs = [e.epoch for e in run.events("checkpoint") if e.role == "model"]
    assert epochs == [*range(1, 13), 12], "each once, in their order, then the final one"


def test_the_next_first_member_writes_what_a_dead_one_has_not(start, fixed):
    run = held(start, 0, 1, 2)
    run.until_step(18)
    [writer] = writers(run)
    os.kill(writer, signal.SIGKILL)
    run.until(lambda: len(writers(run)) > 1, what="another one writes it")
    go(run)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONG))
    assert_equal(all_models(run), all_models(fixed(*LONG)))
    assert not run.events("resumed"), "nothing was read back"


def test_a_first_member_that_is_to_leave_does_not_wait_for_the_disk(start, fixed):
    run = held(start, 0, 1)
    [writer] = writers(run)
    stays = next(slot for slot, pid in run.workers.items() if pid != writer)
    run.members(stays)
    run.until(lambda: run.holding == (stays,), what="its slot is free")
    run.until(lambda: len(writers(run)) > 1, what="the other one writes it")
    assert [e.epoch for e in run.events("checkpoint")] == [1, 1]
    go(run)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONG))
    assert_equal(all_models(run), all_models(fixed(*LONG)))


def test_a_run_that_is_suspended_writes_everything_first(start, fixed):
    run = held(start, 0, 1, arguments=LONGER)
    run.members()
    run.until(lambda: run.settled == run.revision, what="it was told")
    assert not run.events("suspended")
    go(run)
    run.until(lambda: run.holding == () and run.events("suspended"), what="suspended")
    assert [(e.epoch, e.role) for e in run.events("checkpoint")][2:4] == [(2, "model"), (2, "engine")]
    run.members(0)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*LONGER))


def test_when_all_die_over_it_the_run_goes_on_from_the_state_before(start, fixed):
    run = held(start, 0, 1)
    run.until_step(18)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    go(run)
    run.again()
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == 8
    assert run.train_lines() == fixed(*LONG).train_lines()
    assert run.weights() == fixed(*LONG).weights()
    assert_equal(all_models(run), all_models(fixed(*LONG)))


def test_when_the_last_worker_dies_over_it_its_epoch_is_done_again(start, fixed):
    """The memory with the state of step 16 is still there; but nobody who would go on from it."""
    run = held(start, 0)
    run.until_step(18)
    run.kill(0)
    go(run)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step == 8
    assert run.weights() == fixed(*LONG).weights()
    assert_equal(all_models(run), all_models(fixed(*LONG)))


def test_what_is_being_written_when_the_driver_dies_is_written_and_journaled(start, fixed):
    run = held(start, 0, 1)
    run.until_step(18)
    os.kill(run.pid, signal.SIGKILL)
    go(run)
    finish(run, 0, 1)
    same(run, fixed(*LONG))
    assert_equal(all_models(run), all_models(fixed(*LONG)))
    assert ("model", 2) in [(e.role, e.epoch) for e in run.events("checkpoint")]


class Odd(nn.Module):
    """All kinds of tensors, one of them under two names, and a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.twin = self.conv
        self.norm = nn.BatchNorm2d(4)
        self.brain = nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("nothing", torch.empty(0, 3))
        self.register_buffer("part", torch.arange(10.0)[2:5])
        self.register_buffer("waves", torch.randn(2, dtype=torch.complex64))

    def get_extra_state(self) -> dict[str, object]:
        return {"seen": torch.arange(5), "rate": np.float64(0.5), "name": "odd"}

    def set_extra_state(self, state: object) -> None: ...


@pytest.fixture
def job(tmp_path: Path) -> Job:
    torch.manual_seed(1)
    model = Odd().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), np.float64(0.01))  # type: ignore[arg-type]
    model.norm(model.conv(torch.randn(2, 3, 5, 5))).sum().backward()
    optimizer.step()
    config = TrainConfig(engines=1, seed=0, result_dir=tmp_path, max_workers=1, in_studio=False)
    return Job(TrainingComponents(model, nn.functional.cross_entropy, optimizer), lambda: None, 3, 4, config)


def test_files_of_a_snapshot_hold_what_the_state_dicts_held_when_it_was_taken(job: Job):
    fd = os.memfd_create("snapshot")
    contents = model_files.contents(job, "model")
    expected = {
        path: model_files.without_numpy(snapshot.transfer.replace(content, model_files.on_cpu)) for path, content in contents.items()
    }
    snapshot.take_snapshot(fd, job.live, Order(7, 6, 1, {}), contents)
    with torch.no_grad():
        for t in (*job.model.parameters(), *job.model.buffers()):
            t.zero_()
    found = Snapshot(fd)
    assert (found.order.position, found.order.step, found.order.epoch) == (7, 6, 1)
    for path, content in found.order.files:
        model_files.save(job.result_dir, path, found.content(content))
        read = torch.load(job.result_dir / path, weights_only=False)
        assert_equal(OrderedDict(read), OrderedDict(expected[path]))
    os.close(fd)


def test_a_snapshot_has_each_tensor_once(job: Job):
    fd = os.memfd_create("snapshot")
    state = snapshot.transfer.packed_bytes(snapshot.capture.capture(job.live))
    snapshot.take_snapshot(fd, job.live, Order(7, 6, 1, {}), model_files.contents(job, "model"))
    found = Snapshot(fd)
    assert len(found.state) == state
    assert os.fstat(fd).st_size < state + 20_000, "the files' tensors are the state's own"
    os.close(fd)
