"""The sum of all workers' gradients in the fixed tree, against DistributedDataParallel's: `python -m benchmarks.collective [--quick]`.

Processes that do nothing else sum tensors of some sizes by turns: in the order of the tree (`training_runtime.elastic.comm`), and
by `all_reduce` in buckets of the same size, as DistributedDataParallel does, both over Gloo and the loopback device. Each pair is one
after the other, which of the two is first changes from pair to pair; the ratio of a pair is all_reduce's time by ours, so above 1 the
tree is faster. Processor seconds are those of all processes. No backward pass hides anything here.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks import report

ROOT = Path(__file__).resolve().parents[1]
SIZES_MB, WORKERS = (4, 40, 160), (2, 4)
DEADLINE_S = 600


def measure(workers: int, sizes_mb: Sequence[int], pairs: int, seconds: float, way: str) -> dict[str, list[list[float]]]:
    """For each size, of each pair: the tree's seconds, all_reduce's, and the processor seconds of both over all processes."""
    with tempfile.TemporaryDirectory() as folder:
        told = json.dumps(
            {"workers": workers, "sizes_mb": sizes_mb, "pairs": pairs, "seconds": seconds, "way": way, "store": f"{folder}/store"}
        )
        command = [sys.executable, "-m", "benchmarks.collective", "--member", told]
        members = [subprocess.Popen([*command, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for rank in range(workers)]
        try:
            said = [json.loads(member.communicate(timeout=DEADLINE_S)[0].splitlines()[-1]) for member in members]
        finally:
            for member in members:
                member.kill()
    found: dict[str, list[list[float]]] = {}
    for size, rows in said[0].items():
        found[size] = [[*row[:2], *(sum(each[size][i][k] for each in said) for k in (2, 3))] for i, row in enumerate(rows)]
    return found


def member(told: dict, rank: int) -> None:
    import torch
    from torch import distributed

    from training_runtime.elastic.comm import bucket_exchange, process_groups

    torch.set_num_threads(1)
    workers, cpu = told["workers"], torch.device("cpu")
    store = distributed.FileStore(told["store"], workers)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", store=distributed.PrefixStore("theirs", store), rank=rank, world_size=workers)
    group = process_groups.form(store, generation=1, rank=rank, workers=workers, device=cpu, host="127.0.0.1")
    way = {"messages": bucket_exchange.Messages, "collectives": bucket_exchange.Collectives}[told["way"]]
    exchange = bucket_exchange.BucketExchange(bucket_exchange.Link(group, rank, workers), way)
    found: dict[str, list[list[float]]] = {}
    for size_mb in told["sizes_mb"]:
        ours, theirs = _ours(exchange, workers, rank, size_mb), _theirs(size_mb)
        pairs = max(8, round(min(told["pairs"], told["seconds"] / (size_mb * workers / 1000))))
        for i in range(-2, pairs):
            row = {}
            for name, run in (("ours", ours), ("theirs", theirs)) if i % 2 else (("theirs", theirs), ("ours", ours)):
                distributed.barrier()
                used, began = time.process_time(), time.monotonic()
                run()
                row[name] = time.monotonic() - began, time.process_time() - used
            if i >= 0:
                found.setdefault(str(size_mb), []).append([row["ours"][0], row["theirs"][0], row["ours"][1], row["theirs"][1]])
    distributed.barrier()
    exchange.abort()
    distributed.destroy_process_group()
    print(json.dumps(found), flush=True)


def _buckets(size_mb: int) -> list[slice]:
    """Of a tensor of floats, as large as those of training."""
    from training_runtime.elastic.comm import buckets

    each = buckets.BUCKET_BYTES // 4
    size = size_mb * (1 << 20) // 4
    return [slice(start, min(start + each, size)) for start in range(0, size, each)]


def _ours(exchange: object, workers: int, rank: int, size_mb: int) -> Callable[[], None]:
    import torch

    from training_runtime.elastic.comm.bucket_exchange import Sent

    part, total = torch.ones(size_mb * (1 << 20) // 4), torch.empty(size_mb * (1 << 20) // 4)
    end = time.monotonic() + DEADLINE_S

    def look() -> None:
        if time.monotonic() > end or exchange.error is not None:
            raise RuntimeError(f"nothing comes: {exchange.error}")

    def run() -> None:
        for number, piece in enumerate(_buckets(size_mb)):
            exchange.send(Sent(number, {rank: part[piece]}, part.dtype, total[piece], workers))
        exchange.wait(look)
        assert total[0] == total[-1] == workers

    return run


def _theirs(size_mb: int) -> Callable[[], None]:
    import torch
    from torch import distributed

    total = torch.ones(size_mb * (1 << 20) // 4)

    def run() -> None:
        works = [distributed.all_reduce(total[piece], async_op=True) for piece in _buckets(size_mb)]
        for work in works:
            work.wait(dt.timedelta(seconds=DEADLINE_S))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer pairs")
    parser.add_argument("--way", choices=("messages", "collectives"), default="messages", help="how buckets travel")
    parser.add_argument("--member", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.member:
        return member(json.loads(told.member[0]), int(told.member[1]))
    rows, figures = [], dict[str, object]()
    for workers in WORKERS:
        for size, found in measure(workers, SIZES_MB, 200, 4.0 if told.quick else 20.0, told.way).items():
            ratios = [theirs / ours for ours, theirs, *_ in found]
            low, _, high = quantiles(ratios, n=4)
            ours, theirs, ours_cpu, theirs_cpu = (median(column) for column in zip(*found, strict=True))
            rows.append(
                (
                    f"{size} MB",
                    workers,
                    len(found),
                    1000 * ours,
                    1000 * theirs,
                    median(ratios),
                    f"{low:.2f}-{high:.2f}",
                    ours_cpu,
                    theirs_cpu,
                )
            )
            figures[f"ratio_{size}mb_{workers}"] = round(median(ratios), 3)
    columns = ("size", "processes", "pairs", "ours ms", "all_reduce ms", "ratio", "quartiles", "ours CPU s", "all_reduce CPU s")
    report.table(f"Gradients summed in the tree ({told.way}) against all_reduce, over Gloo", columns, rows)
    report.finish("collective", figures)
    return None


if __name__ == "__main__":
    main()
