"""The loops that throughput is measured against, each in processes of its own: a plain loop (0 workers) and DistributedDataParallel over
Gloo.

`python -m benchmarks.peers.ddp MODEL WORKERS SECONDS`; with a RANK and a STORE, in which all find each other, that worker alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._network import Machine
from benchmarks.models import MODELS

ROOT = Path(__file__).resolve().parents[2]


def rate(name: str, workers: int, seconds: float) -> tuple[float, float, float]:
    """Steps a second of DistributedDataParallel over Gloo (of a plain loop where `workers` is 0), one thread a worker; the processor
    seconds of all workers a step; and the memory of all of them in MB, what they share counted once."""
    command = [sys.executable, "-m", "benchmarks.peers.ddp", name, str(workers), str(seconds)]
    return _read(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout, max(1, workers))


def rate_between(machines: Sequence[Machine], name: str, seconds: float) -> float:
    """Steps a second of DistributedDataParallel over Gloo with one worker on each machine."""
    with tempfile.TemporaryDirectory() as folder:
        words = name, str(len(machines)), str(seconds)
        workers = [
            subprocess.Popen(
                [*machine.within, sys.executable, "-m", "benchmarks.peers.ddp", *words, str(rank), f"{folder}/store"],
                cwd=ROOT,
                env={**os.environ, "GLOO_SOCKET_IFNAME": machine.interface},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, machine in enumerate(machines)
        ]
        said = [worker.communicate()[0] for worker in workers]
    return _read(said[0], len(machines))[0]


def _read(said: str, workers: int) -> tuple[float, float, float]:
    """What the first of so many workers has measured, for all of them."""
    words = said.split()
    return float(words[-3]), float(words[-2]) * workers, float(words[-1]) * workers


def shared_out_mb(pid: int | str) -> float:
    """Memory of a process, with its part of what it shares with others (PSS). 0 where it has ended."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    except OSError:
        return 0.0
    return int(fields["Pss"].split()[0]) / 1024


def _loop(parts: dict[str, Any], model: Any, rank: int, workers: int, seconds: float) -> tuple[float, float]:
    """As plain as a loop can be; no loss is read, nothing is logged."""
    import torch

    x, y, batch = parts["x"], parts["y"], parts["batch"]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    per_epoch = len(x) // (batch * workers)
    done, began, end, used = 0, 0.0, 0.0, 0.0
    go = torch.ones(1)
    while go.item():
        if done == 10:
            began, used = time.monotonic(), time.process_time()
        start = (done % per_epoch * workers + rank) * batch
        index = order[start : start + batch]
        loss = parts["loss_function"](model(x[index]), y[index])
        loss.backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()
        done += 1
        if done > 10 and done % 10 == 0:
            end = time.monotonic()
            go.fill_(float(end - began < seconds))
            if workers > 1:
                torch.distributed.broadcast(go, 0)
    return (done - 10) / (end - began), (time.process_time() - used) / (done - 10)


def _process(rank: int, workers: int, name: str, seconds: float, port_file: str) -> None:
    import torch

    torch.set_num_threads(1)
    parts: dict[str, Any] = {}
    exec(MODELS[name], parts)
    model = parts["model"]
    if port_file:
        torch.distributed.init_process_group("gloo", init_method=f"file://{port_file}", rank=rank, world_size=workers)
        model = torch.nn.parallel.DistributedDataParallel(model)
    result = _loop(parts, model, rank, workers, seconds)
    memory = shared_out_mb("self")  # of rank 0, while the others are still there
    if port_file:
        torch.distributed.barrier()
    if rank == 0:
        print(*result, memory, flush=True)


def main(name: str, workers: int, seconds: float) -> None:
    if workers == 0:
        return _process(0, 1, name, seconds, "")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (workers, name, seconds, f"{folder}/store"), nprocs=workers)
    return None


if __name__ == "__main__":
    if sys.argv[4:]:
        _process(int(sys.argv[4]), int(sys.argv[2]), sys.argv[1], float(sys.argv[3]), sys.argv[5])
    else:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
