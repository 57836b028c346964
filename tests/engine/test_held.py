"""What a script has learnt in a loss, in hooks, in generators and in an optimizer of its own, on each way to another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine import test_state
from tests.engine.test_inherited_state import inherited
from tests.engine.test_state import digests, job_of, moved, read, stepped, written
from training_runtime.elastic.job import Job

own = test_state.own  # a fixture


class Own(torch.optim.Optimizer):
    """One of the script's own around another one, with whose state it works; it keeps more than that."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.calls, self.slow = inner, 0, [p.detach().clone() for p in inner.param_groups[0]["params"]]
        self.param_groups, self.state = inner.param_groups, inner.state

    def step(self, closure: Any = None) -> None:
        self.calls += 1
        self.inner.step()
        for slow, p in zip(self.slow, self.param_groups[0]["params"], strict=True):
            slow.lerp_(p.detach(), 0.5)


def counting(job: Job) -> Callable[[], tuple[Any, ...]]:
    """A hook that closes over a list, a number and a dictionary."""
    count, calls, best = [0], 0, {"norm": torch.zeros(())}

    def after(*_: Any) -> None:
        nonlocal calls
        calls += 1
        count[0] += 2
        best["norm"] += 3

    job.optimizer.register_step_post_hook(after)
    return lambda: (count, calls, best)


class Tempered:
    """A loss that is no module."""

    def __init__(self) -> None:
        self.tau, self.seen, self.rule = 1.0, torch.zeros(2), lambda: 1

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs / self.tau, targets)


def through_memory(source: Job, target: Job) -> None:
    moved(source, target)


def through_a_checkpoint(source: Job, target: Job) -> None:
    written(source)
    assert read(target)


def through_anothers_checkpoint(source: Job, target: Job) -> None:
    target.config = dataclasses.replace(target.config, result_dir=source.result_dir / "mine")
    (target.result_dir / "checkpoint").mkdir(parents=True)
    inherited(source, target)
    assert read(target)


@pytest.fixture(params=[through_memory, through_a_checkpoint, through_anothers_checkpoint])
def way(request: pytest.FixtureRequest) -> Callable[[Job, Job], None]:
    return request.param


def test_a_generator_that_a_callback_keeps_goes_on_from_where_it_was(tmp_path, own, way):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    for job in (source, target):
        job.user_callbacks[0].rng = torch.Generator().manual_seed(3)
    source.user_callbacks[0].others = [torch.Generator().manual_seed(4)]  # of which the other one has none
    made, other = source.user_callbacks[0].rng, source.user_callbacks[0].others[0]
    before = target.user_callbacks[0].rng
    torch.rand(7, generator=made), torch.rand(5, generator=other)
    way(source, target)
    got = target.user_callbacks[0]
    assert got.rng is before
    assert torch.equal(torch.rand(9, generator=got.rng), torch.rand(9, generator=made))
    assert torch.equal(torch.randn(9, generator=got.others[0]), torch.randn(9, generator=other))


def test_what_a_loss_that_is_no_module_has_learnt_is_kept(tmp_path, own, way):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    for job in (source, target):
        job.components = dataclasses.replace(job.components, loss=Tempered())
        job.user_callbacks[0].loss = job.loss
    source.loss.tau, source.loss.seen[1] = 2.5, 4.0
    before, rule = target.loss, target.loss.rule
    way(source, target)
    assert target.loss is before is target.user_callbacks[0].loss
    assert (target.loss.tau, target.loss.seen.tolist()) == (2.5, [0.0, 4.0])
    assert target.loss.rule is rule


def test_what_a_hook_closes_over_is_kept(tmp_path, own, way):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    counting(source)
    of_target = counting(target)
    for _ in range(3):
        stepped(source)
    way(source, target)
    assert of_target() == ([6], 3, {"norm": torch.tensor(9.0)})
    stepped(target)
    assert of_target() == ([8], 4, {"norm": torch.tensor(12.0)})


def test_what_an_optimizer_keeps_beside_its_state_is_kept(tmp_path, own, way):
    source, target = (job_of(tmp_path, own.Callback(), seed=seed) for seed in (1, 2))
    for job in (source, target):
        job.components = dataclasses.replace(job.components, optimizer=Own(torch.optim.SGD(job.model.parameters(), 0.1, momentum=0.9)))
        torch.optim.lr_scheduler.StepLR(job.optimizer, 1)  # which puts itself around `step`
    for _ in range(2):
        stepped(source)
    way(source, target)
    found = target.optimizer
    assert found.calls == 2
    assert all(torch.equal(a, b) for a, b in zip(found.slow, source.optimizer.slow, strict=True))
    assert found.state is found.inner.state
    assert found.param_groups is found.inner.param_groups
    assert [len(found.state[p]) for p in target.model.parameters()] == [1] * 6
    for job in (source, target):
        job.optimizer.zero_grad()
        torch.manual_seed(4)
        stepped(job)
    assert digests(target) == digests(source)


def test_entries_of_the_optimizers_state_stay_in_their_order(tmp_path, own, way):
    source, target = (job_of(tmp_path, own.Callback()) for _ in range(2))
    source.model.requires_grad_(False)[3].requires_grad_(True)  # the last layer learns first
    stepped(source)
    source.model.requires_grad_(True)
    stepped(source)
    way(source, target)
    found = [list(job.optimizer.state_dict()["state"]) for job in (source, target)]
    assert found[0] == found[1] == [4, 5, 0, 1, 2, 3]
