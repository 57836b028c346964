"""Alice's training, which has nothing to do with anybody: a few steps a second until it is stopped. MARK stands for what is hers alone."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import torch
from fabric_model import FabricModel
from torch import nn

MARK = sys.argv[1]
print("alice's log says", MARK, flush=True)  # noqa: T201
Path(os.environ["RESULT_DIR"], "hers.txt").write_text(MARK)


class Pace:
    def on_epoch_begin(self, epoch: int) -> None:
        select.select([], [], [], 0.3)


def data() -> tuple[torch.utils.data.Dataset, torch.utils.data.Dataset]:
    whole = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16) % 2)
    return whole, whole


model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callbacks=[Pace()]).train(100_000, 8, 2, checkpoint_freq=0)
