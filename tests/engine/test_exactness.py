"""Law 1 with real processes: the weights do not depend on who computed them."""

from __future__ import annotations

import pytest

from tests.engine.scripts import SMALL

LONG = ("--epochs", "24", "--samples", "115")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("optimizer", ["SGD", "Adadelta", "Nesterov", "Clipped"])
def test_weights_optimizer_state_and_metrics_are_equal_for_any_number_of_workers(start, fixed, optimizer):
    one = fixed("--optimizer", optimizer, "--samples", "115")
    assert len(one.train_lines()) == 3 * 8
    for workers in (2, 3):
        other = start(SMALL, "--optimizer", optimizer, "--samples", "115")
        other.members(*range(workers))
        assert other.wait() == 0, other.tail()
        assert other.weights() == one.weights()
        assert other.train_lines() == one.train_lines()
        assert other.test_lines() == one.test_lines()


@pytest.mark.usefixtures("either_way")
def test_a_run_that_goes_4_2_3_1_4_equals_a_fixed_one(start, fixed):
    one = fixed(*LONG)
    run = start(SMALL, *LONG)
    goes_4_2_3_1_4(run)
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


def goes_4_2_3_1_4(run):
    run.members(0, 1, 2, 3)
    for at, slots in ((20, (0, 1)), (50, (0, 1, 3)), (90, (3,)), (130, (0, 1, 2, 3))):
        run.until_step(at)
        run.members(*slots)
        run.until_workers(len(slots))
    assert run.wait() == 0, run.tail()
    assert [len(g.members) for g in run.events("generation")] == [4, 2, 3, 1, 4]


# What a worker on a GPU does: it adds up in memory of its own and puts into the shared rows what is left, and loads its next batch while
# the GPU computes. Here with the processor and its memory.
OWN_ROWS = """
from training_runtime.elastic.processes.worker_context import WorkerContext
WorkerContext.on_device = property(lambda context: {which})
"""


@pytest.mark.parametrize(("optimizer", "which"), [("Adam", "True"), ("Clipped", "context.slot % 2 == 0")], ids=["all", "some"])
def test_workers_that_add_up_in_memory_of_their_own_get_the_same(start, fixed, optimizer, which):
    options = ("--optimizer", optimizer, *LONG)
    run = start(OWN_ROWS.format(which=which) + SMALL, *options)
    goes_4_2_3_1_4(run)
    assert run.weights() == fixed(*options).weights()
    assert run.train_lines() == fixed(*options).train_lines()


MIXED = """
import torch
from torch import nn
from fabric_model import FabricModel
from callbacks import Callback
torch.manual_seed(5)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.wide = nn.Linear(16, 16).double()
        self.frozen = nn.Linear(16, 16)
        self.sometimes = nn.Linear(16, 16)
        self.never = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)
        for p in self.frozen.parameters():
            p.requires_grad_(False)
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.relu(self.body(x))
        h = self.frozen(self.wide(h.double()).float())
        if float(x[0, 0]) > 0:
            h = self.sometimes(h)
        return self.head(torch.relu(h))
def data():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(130, 8, generator=g)
    return torch.utils.data.TensorDataset(x, x[:, 0].gt(0).long() + x[:, 1].gt(0).long()), None
class Schedule(Callback):
    def __init__(self):
        self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    def on_epoch_begin(self, epoch):
        if epoch:
            self.scheduler.step()
        if epoch == 6:
            model.frozen.requires_grad_(True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callback=[Schedule()]).train(20, 4, 5)
"""


@pytest.mark.parametrize("rows", ["", OWN_ROWS.format(which="True")], ids=["shared rows", "rows of their own"])
@pytest.mark.usefixtures("either_way")
def test_mixed_dtypes_frozen_and_unused_parameters_autocast_and_a_scheduler(start, rows):
    one = start(MIXED, max_slots=5)
    one.members(0)
    assert one.wait() == 0, one.tail()
    run = start(rows + MIXED, max_slots=5)
    run.members(0, 1)
    for at, slots in ((20, (0, 1, 2)), (60, (2, 4)), (90, (0, 1, 2, 3, 4))):
        run.until_step(at)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert len(run.events("generation")) >= 3
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
