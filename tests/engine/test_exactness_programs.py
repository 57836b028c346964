"""Law 1 for what scripts do besides a plain loop: the weights do not depend on who computed them."""

from __future__ import annotations

import textwrap

import pytest

PROGRAM = """
import torch
from torch import nn
from fabric_model import FabricModel
def data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn({samples}, 3, 6, 6, generator=g)
    return torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long()), None
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
arguments = {{}}
{change}
FabricModel(model, data, nn.functional.cross_entropy, optimizer, **arguments).train(3, 4, {engines})
"""


@pytest.fixture
def compared(start):
    """compared(change, slots, ...) -> runs of the same program, the first with one worker, the others on those slots."""

    def compare(change: str, *slots: tuple[int, ...], samples: int = 77, engines: int = 3):
        text = PROGRAM.format(change=textwrap.dedent(change), samples=samples, engines=engines)
        runs = []
        for each in ((0,), *slots):
            run = start(text)
            run.members(*each)
            assert run.wait() == 0, run.tail()
            runs.append(run)
        for run in runs[1:]:
            assert run.weights() == runs[0].weights()
            assert run.train_lines() == runs[0].train_lines()
        return runs

    return compare


@pytest.mark.parametrize(("hook", "changed"), [("register_step_pre_hook", "p.grad"), ("register_step_post_hook", "p.data")])
def test_noise_that_hooks_of_the_optimizer_draw_is_the_same_on_every_worker(compared, hook, changed):
    compared(
        f"""
        import random
        def noise(*_):
            for p in model.parameters():
                changed = {changed}
                changed.add_(torch.randn_like(changed), alpha=1e-3 * random.random())
        optimizer.{hook}(noise)
        """,
        (0, 1),
        (0, 1, 2),
    )
