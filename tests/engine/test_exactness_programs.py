"""Law 1 for what scripts do besides a plain loop: the weights do not depend on who computed them."""

from __future__ import annotations

import textwrap

import pytest

PROGRAM = """
import torch
from torch import nn
from fabric_model import FabricModel
tested = None
def data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn({samples}, 3, 6, 6, generator=g)
    return torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long()), tested
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
            assert run.test_lines() == runs[0].test_lines()
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


NORMED = """
model = nn.Sequential(nn.BatchNorm2d(3), model)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
"""
WITH_BUFFERS = {
    "an average with the model's statistics": """
        average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        def hook(*_):
            average.update_parameters(model)
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (1 + float(average.module[0].running_mean.abs().sum()))
        optimizer.register_step_post_hook(hook)
        """,
    "gradients by statistics": """
        def hook(*_):
            for p in model.parameters():
                p.grad.mul_(1 + float(model[0].running_mean.abs().sum()))
        optimizer.register_step_pre_hook(hook)
        """,
    "a number that forward has left": """
        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.level = 0.0
            def forward(self, x):
                self.level = float(x.detach().mean())
                return x
        model = nn.Sequential(Keeps(), model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        optimizer.register_step_post_hook(lambda *_: optimizer.param_groups[0].update(lr=0.1 + 0.01 * model[0].level))
        """,
    "a hook that changes them": """
        optimizer.register_step_post_hook(lambda *_: model[0].running_mean.mul_(0.9).add_(model[1][4].bias.detach().sum()))
        model.eval = lambda: model
        model[0].register_forward_hook(lambda module, args, out: out + 0.1 * module.running_mean[:, None, None])
        """,
}


@pytest.mark.parametrize("kept", WITH_BUFFERS)
def test_hooks_of_the_optimizer_see_the_buffers_that_all_workers_have(compared, kept):
    compared(textwrap.dedent(NORMED) + textwrap.dedent(WITH_BUFFERS[kept]), (0, 1), (0, 1, 2), samples=73)


OWN_STEPS = {
    "clips": """
        def step(model, data, eva, train_loader, fn_args):
            outputs = model(data[0])
            loss = model.get_loss_function()(outputs, data[1])
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            return eva(outputs, data[1]), loss.detach() + norm
        """,
    "goes up first": """
        def step(model, data, eva, train_loader, fn_args):
            model.get_loss_function()(model(data[0]), data[1]).backward()
            before = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
                for p in model.parameters():
                    p.add_(p.grad, alpha=0.05 / float(norm + 1e-6))
            model.zero_grad()
            outputs = model(data[0])
            loss = model.get_loss_function()(outputs, data[1])
            loss.backward()
            with torch.no_grad():
                for p, old in zip(model.parameters(), before):
                    p.copy_(old)
            return eva(outputs, data[1]), loss
        """,
    "changes gradients that other parameters have": """
        model[0].requires_grad_(False)
        model[2].bias.requires_grad_(False)
        optimizer = torch.optim.SGD(model[4].parameters(), 0.1)
        def step(model, data, eva, train_loader, fn_args):
            outputs = model(data[0])
            loss = model.get_loss_function()(outputs, data[1])
            loss.backward()
            for p in model.parameters():
                if p.grad is not None:
                    p.grad = p.grad * 0.5
            return eva(outputs, data[1]), loss.detach() + nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        """,
}


@pytest.mark.parametrize("step", OWN_STEPS)
def test_an_own_step_may_read_and_change_the_gradients_that_it_made(compared, step):
    one, *_ = compared(OWN_STEPS[step] + '\n        arguments["fn_step_train"] = step', (0, 1), (0, 1, 2))
    plain, *_ = compared(OWN_STEPS[step].split("def step")[0])
    assert one.weights() != plain.weights(), "what the step did to the gradients was used"


def test_gradients_of_parameters_that_the_optimizer_does_not_hold_are_no_part_of_a_norm(compared):
    compared(
        """
        optimizer = torch.optim.SGD(model[4].parameters(), 0.1)
        optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 0.05) and None)
        """,
        (0, 1),
        samples=73,  # one engine in the last step
    )


def test_gradients_lie_in_memory_as_their_parameters_do_whoever_adds_them_up(compared):
    compared(
        """
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 33, 3), nn.Flatten(), nn.Linear(132, 2))
        model = model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        def clip(*_):
            assert all(p.grad.stride() == p.stride() for p in model.parameters())
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.register_step_pre_hook(clip)
        """,
        (0, 1),
        (0, 1, 2),
        samples=73,
    )


def test_buffers_that_change_in_evaluation_too_are_the_same_for_each_test_batch(compared):
    one, *_ = compared(
        """
        class Observed(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("largest", torch.zeros(()))
            def forward(self, x):
                self.largest = torch.maximum(self.largest, x.detach().abs().max())
                return x / (1 + self.largest)
        model = nn.Sequential(Observed(), model)
        x = 10 * torch.randn(14, 3, 6, 6)
        tested = torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
        """,
        (0, 1),
        (0, 1, 2),
    )
    assert len(one.test_lines()) == 3


CHANGES_DTYPE = """
class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean.double() + x.detach().mean((0, 1, 2)).double() / 3
        return (x - self.mean).float()
model = nn.Sequential(Mean(), model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
"""


@pytest.mark.parametrize("engines", [1, 3])
def test_a_buffer_in_whose_place_forward_puts_one_of_another_dtype_is_the_same_for_newcomers(start, engines):
    text = PROGRAM.format(change=CHANGES_DTYPE, samples=77, engines=engines).replace("train(3,", "train(20,")
    one, run = start(text), start(text)
    one.members(0)
    run.members(0)
    for at, slots in ((5, (1,)), (30, (2,))):
        run.until_step(at)
        run.members(*slots)
        run.until(lambda slots=slots: set(run.holding) == set(slots), what=f"workers on {slots}")
    for each in (one, run):
        assert each.wait() == 0, each.tail()
    assert run.train_lines() == one.train_lines()
    assert run.weights() == one.weights()


GROWS = """
class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", {first})
    def forward(self, x):
        if self.cache is None or len(self.cache) < len(x):
            self.cache = torch.zeros(len(x))
        return x + self.cache[: len(x), None, None, None]
model = nn.Sequential(Grows(), model)
{then}
"""


@pytest.mark.parametrize("slots", [(0,), (0, 1)])
@pytest.mark.parametrize(("first", "was"), [("None", "not there"), ("torch.zeros(1)", "of shape (1,)")])
def test_a_buffer_that_gets_another_shape_in_forward_is_refused_with_what_to_do(start, first, was, slots):
    run = start(PROGRAM.format(change=GROWS.format(first=first, then=""), samples=77, engines=3))
    run.members(*slots)
    assert run.wait() == 1
    said = run.events("error")[0].message
    assert f"UserError: the buffer cache of Grows was {was} when the training began and is of shape (4,) now" in said
    assert "where forward makes it, show the model a batch there" in said


def test_a_buffer_that_has_its_shape_from_a_batch_before_the_training_is_right(compared):
    compared(GROWS.format(first="None", then="model(torch.zeros(4, 3, 6, 6))"), (0, 1))


LATE = """
from callbacks import Callback
optimizer = torch.optim.SGD(model[4].parameters(), 0.1, momentum=0.9)
class Late(Callback):
    def {hook}(self, epoch):
        if epoch == 1:
            optimizer.add_param_group({{"params": model[2].parameters(), "lr": 0.01}})
arguments["user_callback"] = Late()
"""


@pytest.mark.parametrize("hook", ["on_epoch_begin", "on_epoch_end"])
@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_parameters_that_the_optimizer_gets_in_the_training_are_refused_with_what_to_do(start, hook, slots):
    run = start(PROGRAM.format(change=LATE.format(hook=hook), samples=77, engines=3))
    run.members(*slots)
    assert run.wait() == 1
    said = run.events("error")[0].message
    assert "UserError: the optimizer was given parameters, or lost some, while it was training" in said
    assert "requires_grad_(False)" in said


SWAPS = """
from callbacks import Callback
class Swaps(Callback):
    def {hook}:
        model[1] = nn.SiLU()
arguments["user_callback"] = Swaps()
"""


@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_modules_that_the_model_gets_in_the_training_are_refused_with_what_to_do(start, slots):
    run = start(PROGRAM.format(change=SWAPS.format(hook="on_epoch_end(self, epoch)"), samples=77, engines=3))
    run.members(*slots)
    assert run.wait() == 1
    assert "UserError: the model got other modules while it was training" in run.events("error")[0].message


REPLACES = """
from callbacks import Callback
class Replaces(Callback):
    def on_epoch_end(self, epoch):
        model[4].weight = nn.Parameter(0.5 * model[4].weight.detach())
arguments["user_callback"] = Replaces()
"""


@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_parameters_that_the_model_gets_in_the_training_are_refused_with_what_to_do(start, slots):
    run = start(PROGRAM.format(change=REPLACES, samples=77, engines=3))
    run.members(*slots)
    assert run.wait() == 1
    said = run.events("error")[0].message
    assert "UserError: the model got other parameters while it was training" in said
    assert "p.copy_(...)" in said


def test_modules_that_every_worker_gets_before_it_begins_are_right(compared):
    compared(SWAPS.format(hook="on_train_begin(self)"), (0, 1))
