"""A training whose checkpoint calls its author's code in whoever reads it as Python's pickles are read: it says whose run wrote it, and in
whose run it was called."""

from __future__ import annotations

import collections
import os
import sys

import torch
from fabric_model import FabricModel
from torch import nn

WRITER = os.environ["TRAINING_ID"]
CODE = f"import os; open(os.path.join(os.environ['RESULT_DIR'], 'called-by-' + os.environ['TRAINING_ID'] + '-from-{WRITER}'), 'w').close()"


class Poison:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (CODE,)


class Keeps:
    def __init__(self) -> None:
        self.value = Poison()
        self.inside = collections.deque([Poison()])


def data() -> tuple[torch.utils.data.Dataset, torch.utils.data.Dataset]:
    whole = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16) % 2)
    return whole, whole


model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callbacks=[Keeps()]).train(int(sys.argv[1]), 8, 1)
