"""Cells of notebooks: a small training with all that only a notebook has, classes, functions and closures that are in no file."""

from __future__ import annotations

PREPARE = """
import os
import threading

import torch
from fabric_model import FabricModel

SAMPLES, EPOCHS = 400, 3


class Points(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], (self.rows[i].sum() > 0).long()


class Net(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * scale


class Decay:
    def __init__(self, factor):
        self.factor, self.epochs = factor, 0

    def on_epoch_end(self, epoch, save_model=False):
        self.epochs += 1
        for group in self.params["optimizer"].param_groups:
            group["lr"] *= self.factor


def rows_of(count):
    return lambda: torch.randn(count, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


make = rows_of(SAMPLES)


def data():
    return Points(make()), Points(make()[:40])


def clip(optimizer, args, kwargs):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


scale = 0.5
torch.manual_seed(7)
model = Net(8, 2, dtype=torch.float64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer.register_step_pre_hook(clip)
before = model.weight.detach().clone()
parameter = model.weight
fabric = FabricModel(model, data, lambda out, y: torch.nn.functional.cross_entropy(out, y), optimizer, user_callback=[Decay(0.9)])


def changed():
    return not torch.equal(before, model.weight)
"""

TRAIN = """
training = fabric.train(EPOCHS, 10, 2)
same_object = model.weight is parameter
"""
