"""What a script holds beside its model, and what of that goes to the device with the model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from training_runtime.elastic.state import beside, capture


class Average:
    """As in many a tutorial."""

    def __init__(self, model):
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.steps, self.decay = torch.zeros(()), 0.9


class Classes:
    """Counts them, on the processor: as many as the model has outputs."""

    def __init__(self):
        self.right, self.all = torch.zeros(3), torch.zeros(3)


class Distillation:
    def __init__(self):
        self.teacher = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5))


@pytest.fixture
def model():
    return nn.Linear(2, 3)


def places(model, *callbacks, **called):
    """The ids of what goes along."""
    live = capture.Live(model, torch.optim.SGD(model.parameters(), 0.1), callbacks=callbacks, called=called)
    held = live.held(live.named()).values()
    return {id(t) for t in beside.tensors_beside([(value, live.content(value)) for value in held], live.parameters())}


def test_an_average_goes_along_in_whatever_it_is_kept_and_counts_stay(model):
    average, classes = Average(model), Classes()
    kept = [p.detach().clone() for p in model.parameters()]

    def after(*_):
        for e, p in zip(kept, model.parameters(), strict=True):
            e.lerp_(p.detach(), 0.2)

    assert places(model, average, classes, hook=after) == {*map(id, average.shadow.values()), *map(id, kept)}


def test_a_second_model_goes_along_with_its_buffers(model):
    distillation, copied = Distillation(), copy.deepcopy(model)

    def after(*_):
        for e, p in zip(copied.parameters(), model.parameters(), strict=True):
            e.data.lerp_(p.detach(), 0.2)

    teacher = distillation.teacher
    assert places(model, distillation, hook=after) == {id(t) for t in (*teacher.parameters(), *teacher.buffers(), *copied.parameters())}


def test_who_has_the_model_s_own_parameters_changes_nothing(model):
    class Watches:
        def __init__(self):
            self.parameters = list(model.parameters())

    assert places(model, Watches()) <= {id(p) for p in model.parameters()}
