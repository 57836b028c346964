"""Ways in which scripts train: each gives the same bits whoever computes it."""

from __future__ import annotations

import shutil

import pytest

WAYS = """
import sys, torch
from torch import nn
from fabric_model import FabricModel
way = sys.argv[1]
torch.manual_seed(5)
g = torch.Generator().manual_seed(1)
x = torch.randn(134, 8, generator=g)
y = x[:, 0].gt(0).long() + x[:, 1].gt(0).long()
def data():
    return torch.utils.data.TensorDataset(x, y), torch.utils.data.TensorDataset(x[:30], y[:30])
width = 300 if way == "large" else 16
model = nn.Sequential(nn.Linear(8, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width), nn.Linear(width, 3))
more = {}
optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
if way == "scheduler":
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=500)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
if way == "clipped":
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(model.parameters(), 0.01))
if way == "own step":
    def step(model, data, eva, train_loader, fn_args):
        optimizer, loss_function = model.get_optimizer(), model.get_loss_function()
        inputs, labels = data
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(inputs)
            loss = loss_function(outputs, labels)
        loss.backward(retain_graph=True)
        (0.1 * outputs.float().square().mean()).backward()  # a second backward pass of the same batch
        return eva(outputs, labels), loss
    more["fn_step_train"] = step
FabricModel(model, data, nn.functional.cross_entropy, optimizer, **more).train(20, 4, 5)
"""


@pytest.mark.parametrize("way", ["scheduler", "clipped", "large", "own step"])
def test_a_way_to_train_gives_the_same_bits_on_any_schedule(start, way):
    one = start(WAYS, way, max_slots=5)
    one.members(0)
    run = start(WAYS, way, max_slots=5)
    run.members(0, 1)
    for at, slots in ((9, (0, 1, 2)), (20, (2, 3, 4)), (30, (4,))):
        run.until_step(at)
        run.members(*slots)
        run.until_workers(len(slots))
    assert run.wait() == 0, run.tail()
    assert one.wait() == 0, one.tail()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()


COMPILED = """
import os, sys, time, torch
from pathlib import Path
from torch import nn
from fabric_model import FabricModel
from callbacks import Callback
from training_runtime.elastic.worker.main import Worker
results, await_first = Path(os.environ["RESULT_DIR"]), Worker._await_first
def ready(self):
    (results / f"ready-{os.getpid()}").touch()
    return await_first(self)
Worker._await_first = ready
class Gate(Callback):
    def on_epoch_begin(self, epoch):
        while epoch == 2 and len(list(results.glob("ready-*"))) < int(sys.argv[2]):
            time.sleep(0.01)
torch.manual_seed(5)
small = sys.argv[1] == "inductor"  # it takes seconds for every shape
x = torch.randn(64 if small else 61, 8)
tested = None if small else torch.utils.data.TensorDataset(x[:6], x[:6, 0].gt(0).long())
def data():
    return torch.utils.data.TensorDataset(x, x[:, 0].gt(0).long()), tested
model = nn.Sequential(nn.Linear(8, 16), *([nn.GELU()] if small else [nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.1)]), nn.Linear(16, 2))
model = torch.compile(model, backend=sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callback=Gate()).train(5, 4, 4)
"""
BACKEND = "inductor" if shutil.which("g++") or shutil.which("clang++") else "aot_eager"  # the other one needs a C++ compiler


def test_a_compiled_model_gives_the_same_bits_and_newcomers_compile_before_they_join(start, tmp_path):
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    one = start(COMPILED, BACKEND, "1", env=env)
    one.members(0)
    one.until(lambda: one.step() > 0, timeout_s=120)  # what it has compiled is in the cache for the others
    run = start(COMPILED, BACKEND, "3", env=env)
    run.members(0)
    run.until_step(1)
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    assert one.wait() == 0, one.tail()
    assert [len(g.members) for g in run.events("generation")] == [1, 3]
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
