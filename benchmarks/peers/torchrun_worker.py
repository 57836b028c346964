"""A worker under torchrun: `python -m benchmarks.peers.torchrun_worker WIDTH FOLDER TIMEOUT_S`, started by an agent.

DistributedDataParallel over Gloo with a checkpoint every ten steps, from which all workers go on when the agent starts them anew. The
position in the data is a count of samples and part of the checkpoint, so that another number of workers leaves nothing out.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.models import WIDE
from benchmarks.peers.steps import Journal

CHECKPOINT_STEPS = 10


def load(path: Path, model: Any, optimizer: Any) -> tuple[int, int]:
    """Steps and samples done."""
    import torch

    if not path.exists():
        return 0, 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"], saved["samples"]


def save(path: Path, state: dict[str, Any]) -> None:
    import torch

    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def train(parts: dict[str, Any], folder: Path) -> None:
    import torch
    from torch import distributed

    rank, workers = distributed.get_rank(), distributed.get_world_size()
    x, y, batch, optimizer = parts["x"], parts["y"], parts["batch"], parts["optimizer"]
    path, journal = folder / "checkpoint.pt", Journal(folder)
    number, samples = load(path, parts["model"], optimizer)
    model = torch.nn.parallel.DistributedDataParallel(parts["model"])
    generation = torch.tensor([time.time_ns() // 1_000_000])
    distributed.broadcast(generation, 0)
    shuffled = cache(lambda epoch: torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)))
    while True:
        epoch, at = divmod(samples + rank * batch, len(x))  # a batch lies within an epoch: its size divides the data's
        index = shuffled(epoch)[at : at + batch]
        optimizer.zero_grad()
        parts["loss_function"](model(x[index]), y[index]).backward()
        optimizer.step()
        number, samples = number + 1, samples + workers * batch
        journal.write(number=number, generation=int(generation), workers=workers, samples=samples, rank=rank)
        if rank == 0 and number % CHECKPOINT_STEPS == 0:
            state = {"model": parts["model"].state_dict(), "optimizer": optimizer.state_dict(), "step": number, "samples": samples}
            save(path, state)


def main(folder: Path, timeout_s: float) -> None:
    import torch

    torch.set_num_threads(1)
    parts: dict[str, Any] = {}
    exec(WIDE, parts)
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    train(parts, folder)


if __name__ == "__main__":
    main(Path(sys.argv[2]), float(sys.argv[3]))
