"""A replica under torchft: `python -m benchmarks.peers.torchft_worker WIDTH FOLDER LIGHTHOUSE REPLICA REPLICAS TIMEOUT_S`.

The loop of torchft's own example (its DistributedDataParallel, optimizer wrapper and sampler, state from a living replica), with two
things that a careful user adds: the position in the data follows the step that was agreed on, so that a step that did not come off is
done again with the same batch; and on SIGTERM it leaves between two steps.
"""

from __future__ import annotations

import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.models import WIDE
from benchmarks.peers.steps import Journal


def manager(parts: dict[str, Any], lighthouse: str, replica: int, timeout_s: float) -> Any:
    """A replica group of one process. `timeout_s` is the process group's; the manager's own are left as they are."""
    from torch.distributed import TCPStore
    from torchft import Manager, ProcessGroupGloo

    model, optimizer = parts["model"], parts["optimizer"]

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    parts["store"] = store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=timeout_s)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica_{replica}",
        hostname="127.0.0.1",
    )


def train(parts: dict[str, Any], agreed: Any, folder: Path, replica: int, replicas: int) -> None:
    from torchft import DistributedDataParallel, DistributedSampler, Optimizer

    x, y, batch = parts["x"], parts["y"], parts["batch"]
    model, optimizer = DistributedDataParallel(agreed, parts["model"]), Optimizer(agreed, parts["optimizer"])
    sampler = DistributedSampler(parts["x"], replica_rank=replica, num_replica_groups=replicas, group_rank=0, num_replicas=1)
    order, epoch_of_order = list(sampler), 0
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    journal = Journal(folder)
    while not leaving:
        optimizer.zero_grad()
        epoch, at = divmod(agreed.current_step(), len(order) // batch)
        if epoch != epoch_of_order:
            sampler.set_epoch(epoch)
            order, epoch_of_order = list(sampler), epoch
        index = order[at * batch : (at + 1) * batch]
        parts["loss_function"](model(x[index]), y[index]).backward()
        before = agreed.current_step()
        optimizer.step()
        if agreed.current_step() > before:
            journal.write(
                number=agreed.current_step(),
                generation=agreed._quorum_id,  # it has no public name
                workers=agreed.num_participants(),
                samples=agreed.batches_committed() * batch,
                rank=replica,
            )


def main(folder: Path, lighthouse: str, replica: int, replicas: int, timeout_s: float) -> None:
    import torch

    torch.set_num_threads(1)
    parts: dict[str, Any] = {}
    exec(WIDE, parts)
    agreed = manager(parts, lighthouse, replica, timeout_s)
    train(parts, agreed, folder, replica, replicas)
    agreed.shutdown(wait=False)


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
