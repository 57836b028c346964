"""A loop of the script's own says that it is not exact where its body changes what not every worker knows."""

from __future__ import annotations

import pytest

from tests.engine.test_verdict import finished, verdict

LOOP = """
import random
import torch
from torch import nn
import edt
torch.manual_seed(5)
x = torch.randn(90, 8, generator=torch.Generator().manual_seed(1))
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
class Samples(torch.utils.data.Dataset):
    level = 0
    def __len__(self):
        return len(x)
    def __getitem__(self, i):
        return x[i] + self.level, int(x[i, 0] > 0)
samples, state = Samples(), {{}}
{top}
def train():
    {first}
    for {step} in {steps}:
        {begin}
        for inputs, targets in step:
            found = nn.functional.cross_entropy(model(inputs), targets)
            step.backward(found)
            {inside}
        step.update()
        {behind}
train()
"""
STEPS = "edt.elastic(model, optimizer, samples, batch_size=16, parts=4, epochs=2, state=state)"


def said(start, **lines: str) -> tuple[str, ...]:
    plain = {"top": "", "step": "step", "steps": STEPS, **dict.fromkeys(("first", "begin", "inside", "behind"), "pass")}
    return verdict(finished(start, LOOP.format(**plain | lines))).reasons


UNNAMED = {
    "a number": ({"first": "count = 0", "behind": "count += 1"}, "count"),
    "a list": ({"first": "losses = []", "behind": "losses.append(step.mean_loss)"}, "losses"),
    "an attribute": ({"first": "me = Samples(); me.seen = 0", "behind": "me.seen += 1"}, "me.seen"),
    "a global name of a function": ({"top": "n = 0\ndef count():\n    global n\n    n += 1", "behind": "count()"}, "count: n"),
    "a model in an object": (
        {"first": "me = Samples(); me.ema = nn.Linear(1, 1)", "behind": "nn.init.constant_(me.ema.bias, step.mean_loss)"},
        "me.ema.bias",
    ),
    "a generator": ({"first": "mine = torch.Generator()", "behind": "torch.rand(1, generator=mine)"}, "mine"),
}


@pytest.mark.parametrize("kept", UNNAMED)
def test_what_the_body_keeps_and_state_does_not_name_is_found_out(start, kept):
    lines, name = UNNAMED[kept]
    assert [each.partition(",")[0] for each in said(start, **lines)] == [f"the loop over the steps changes {name}"]


INSIDE = {
    "in state": ({"first": "state['run'] = run = {'loss': 0.0}", "inside": "run['loss'] += found.item()"}, "run"),
    "a tensor": ({"first": "state['run'] = run = torch.zeros(2)", "inside": "run += found.detach()"}, "run"),
    "buffers of another model": ({"first": "state['k'] = k = nn.BatchNorm1d(8)", "inside": "k(inputs)"}, "k.running_mean"),
    "a generator": ({"first": "state['g'] = g = torch.Generator()", "inside": "torch.rand(1, generator=g)"}, "g"),
}


@pytest.mark.parametrize("kept", INSIDE)
def test_what_the_loop_over_the_batches_changes_is_found_out(start, kept):
    lines, name = INSIDE[kept]
    assert said(start, **lines)[0].startswith(f"the loop over a step's batches changes {name}, ")


def test_a_figure_of_the_last_batch_that_is_read_behind_it_is_found_out(start):
    (reason,) = said(start, behind="edt.log(last=found.item())")
    assert reason.startswith("found is read behind the loop over a step's batches")


def test_a_count_by_enumerate_is_found_out_if_it_is_used(start):
    counted = {"step": "i, step", "steps": f"enumerate({STEPS})"}
    (reason,) = said(start, **counted, behind="edt.log(i=i)")
    assert reason.startswith("i is counted by each worker from the step on with which it began")
    assert said(start, **counted) == ()


def test_a_dataset_that_the_body_changes_is_found_out(start):
    (reason,) = said(start, begin="samples.level = step.number")
    assert reason.startswith("the body of the loop changes the training dataset.level, by which samples are loaded")


def test_a_dataset_of_a_loop_that_keeps_the_noise_of_a_samples_first_use_is_found_out(start):
    top = "kept = {}\nSamples.__getitem__ = lambda self, i: (kept.setdefault(i, x[i] + torch.randn(8)), int(x[i, 0] > 0))"
    (reason,) = said(start, top=top)
    assert reason.startswith("samples that had been loaded before were not what they are when they are loaded for the first time")


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"first": "state['best'] = best = {'loss': 9.0}", "behind": "best['loss'] = min(best['loss'], step.mean_loss)"},
        {"behind": "value = step.mean_loss; edt.log(value=value)"},
        {"first": "import time; began = time.monotonic()", "behind": "print(time.monotonic() - began); began = time.monotonic()"},
        {"behind": "found = step.mean_loss; edt.log(found=found)"},
        {"begin": "scale = random.random()", "behind": "print(scale)"},
        {"top": "class Named:\n    def __init__(self):\n        self.inputs = self.step = 1\nmade = Named()", "behind": "print(made.step)"},
        {
            "top": "class Drawing:\n    def __init__(self):\n        self.rng = random.Random(1)\nstate['it'] = it = Drawing()",
            "behind": "it.rng.random()",
        },
        {"top": "average = torch.optim.swa_utils.AveragedModel(model)", "behind": "average.update_parameters(model)"},
    ],
    ids=["plain", "state", "of a step", "a clock", "assigned behind", "drawn", "attributes", "a generator in state", "an average"],
)
def test_what_every_worker_knows_is_not_held_against_a_loop(start, lines):
    assert said(start, **lines) == ()
