"""Global names of a script that its callbacks and hooks work with follow the training, as attributes of callbacks do."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from torch import nn

from training_runtime.elastic.state import script_globals
from training_runtime.elastic.state.script_globals import Variable

AVERAGES = """
import torch
from torch import nn
from fabric_model import FabricModel
from callbacks import Callback
torch.manual_seed(5)
x = torch.randn(134, 8, generator=torch.Generator().manual_seed(1))
def data():
    return torch.utils.data.TensorDataset(x, x[:, 0].gt(0).long()), None
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
class Average:  # as many scripts write it
    def __init__(self):
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
    def update(self):
        for name, p in model.named_parameters():
            self.shadow[name] = 0.8 * self.shadow[name] + 0.2 * p.detach()
average, steps, figures = Average(), 0, {"norms": []}
def after(*_):
    global steps
    steps += 1
    average.update()
    for group in optimizer.param_groups:
        group["lr"] = 0.05 / (1 + 0.1 * steps + len(figures["norms"]))
optimizer.register_step_post_hook(after)
class Remembers(Callback):
    def __init__(self):
        self.figures = figures
    def on_epoch_end(self, epoch):
        self.figures["norms"].append(float(model[0].weight.detach().norm()))
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.lerp_(average.shadow[name], 0.1 / (1 + figures["norms"][0]))
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callback=Remembers()).train(10, 4, 5)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_average_a_counter_and_a_dict_that_are_global_names_go_to_newcomers_and_into_checkpoints(start, method):
    one = start(AVERAGES, max_slots=5)
    one.members(0)
    run = start(AVERAGES, max_slots=5, env={"EDT_START_METHOD": method})
    run.members(0)
    for at, slots in ((9, (0, 1, 2)), (24, (1,)), (36, ()), (36, (3, 4))):
        run.until_step(at)
        run.members(*slots)
        if slots:
            run.until_workers(len(slots))
        else:
            run.until(lambda: run.events("suspended"), what="suspended")
    for each in (run, one):
        assert each.wait() == 0, each.tail()
    assert run.train_lines() == one.train_lines()
    assert run.weights() == one.weights()
    assert len(run.events("warning")) == (method == "spawn"), "which says that it is so"


SCRIPT = """
import random, threading
import torch
class Average:
    def __init__(self):
        self.shadow = torch.zeros(3)
    def update(self):
        count()
    @staticmethod
    def largest():
        return seen
class Data(torch.utils.data.Dataset):
    pass
average, calls, seen, drawn, samples, lock = Average(), 0, [], random.Random(1), Data(), threading.Lock()
large, small, text, unused = torch.zeros(1 << 20), torch.zeros(2), "text", {}
def count():
    global calls
    calls += 1
def hook(*_):
    def inside():
        return average, drawn.random(), samples, lock, large, small, text
    return inside()
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script_of_somebody.py").write_text(SCRIPT)
    sys.path.insert(0, str(tmp_path))
    yield importlib.import_module("script_of_somebody")
    sys.path.remove(str(tmp_path))
    del sys.modules["script_of_somebody"]


def found(script, hook) -> dict[str, object]:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.register_step_post_hook(hook)
    return {name.rpartition(".")[2]: value for name, value in script_globals.of(model, optimizer, ()).items()}


def test_what_functions_refer_to_is_found_with_what_they_call_but_no_data_nothing_fixed_and_nothing_larger_than_the_model(script):
    names = found(script, script.hook)
    assert set(names) == {"average", "calls", "seen", "drawn", "small"}
    assert names["average"] is script.average
    assert all(isinstance(names[name], Variable) for name in ("calls", "seen", "drawn", "small"))


def test_a_hook_that_refers_to_nothing_has_nothing_looked_after(script):
    assert found(script, lambda *_: None) == {}


def test_a_name_gets_the_value_that_it_had(script):
    calls = found(script, script.hook)["calls"]
    script.count()
    state = calls.state_dict()
    script.count()
    calls.load_state_dict(state)
    assert script.calls == 1
