"""Steps a second at a fixed number of workers, against DistributedDataParallel and a plain loop.

`python -m benchmarks.throughput [--quick] [--sharded optimizer|parameters] [MODEL ...]`.

Same model, data, batch a worker and one thread a worker on both sides; V = W. Ours reads the loss and the accuracy of every engine and
journals every step, the peers read nothing. The processor ratio compares the processor seconds that a step costs, peer to ours: other work
disturbs it less. Many short rounds alternate between the two, so that other work on the machine hits both alike; the ratio is their
median, its quartiles beside.

With `--sharded optimizer` or `--sharded parameters` the peer is ours too: `shard_optimizer=True` or `shard_parameters=True` against each
worker having all for itself, in speed and in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks import report
from benchmarks.models import LARGER, MODELS, fabric_script
from benchmarks.peers import ddp
from tests.engine.harness import Run, Warm, in_session


def ours(warm: Warm, name: str, workers: int, seconds: float, *more: str) -> tuple[float, float, float, float]:
    """Steps a second; private memory a worker in MB; processor seconds of all workers a step; and the memory of the whole run (driver and
    fork server included) in MB, what its processes share counted once."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), fabric_script(name), "100000", str(workers), *more, max_slots=workers)
        try:
            run.members(*range(workers))
            run.until_step(10)
            first = run.events("train")[9]
            t0 = next(line.t for line in run.lines() if line.event is first)
            used, at = cpu_s(run), run.step()
            run.until(lambda: run.lines()[-1].t - t0 > seconds, what="time is up")
            used, at = cpu_s(run) - used, run.step() - at
            memory = max(private_mb(pid) for pid in run.workers.values())
            whole = sum(ddp.shared_out_mb(pid) for pid in in_session(run.pid))
            steps = [line for line in run.lines() if line.event.kind == "train" and line.t >= t0]
            return (len(steps) - 1) / (steps[-1].t - steps[0].t), memory, used / at, whole
        finally:
            run.close()


def cpu_s(run: Run) -> float:
    """Processor time that the workers have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in run.workers.values()]
    return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")


def private_mb(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return (int(fields["Private_Dirty"].split()[0]) + int(fields["Private_Clean"].split()[0])) / 1024


def sharded(names: list[str], argument: str, rounds: int, seconds: float) -> None:
    """The optimizer's step shared out over 2 and 4 workers, against the same run without that."""
    rows = []
    with contextlib.closing(Warm()) as warm:
        for name in names:
            for workers in (2, 4):
                pairs = [(ours(warm, name, workers, seconds, argument), ours(warm, name, workers, seconds)) for _ in range(rounds)]
                speed, processor = (median(a[i] / b[i] for a, b in pairs) for i in (0, 2))
                memory = [median(pair[side][i] for pair in pairs) for i in (1, 3) for side in (0, 1)]
                rows.append((name, workers, speed, 1 / processor, *memory))
                print(rows[-1], file=sys.stderr)
    columns = ("model", "workers", "ratio", "processor ratio", "private MB/worker", "without", "MB", "without")
    report.table(f"Throughput with {argument}=True", columns, rows)
    figures = {"sharded_ratio_min": round(min(r[2] for r in rows), 3), "sharded_memory_ratio_max": round(max(r[6] / r[7] for r in rows), 3)}
    names_of = ("ratio", "processor_ratio", "private_mb", "whole_private_mb", "mb", "whole_mb")
    report.finish(argument, figures, {f"{r[0]} {r[1]}": dict(zip(names_of, (round(x, 3) for x in r[2:]), strict=True)) for r in rows})


def quartiles(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (*ratios, 0.0, *ratios)
    return f"{low:.3f}-{high:.3f}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__.splitlines()[0])
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=f"of {', '.join(MODELS)}, with --sharded also {' and '.join(LARGER)}; all if none is named",
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--sharded", choices=("optimizer", "parameters"), help="this shared by the workers, against each having its own")
    told = parser.parse_args(arguments)
    known = [*MODELS, *(LARGER if told.sharded else ())]
    if unknown := set(told.models) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: no model of {', '.join(known)}")
    rounds, seconds = (1, 2.0) if told.quick else (12, 2.0)
    if told.sharded:
        sharded(told.models or [*MODELS, *LARGER], f"shard_{told.sharded}", 1 if told.quick else 6, seconds)
    else:
        against_peers(told.models or list(MODELS), rounds, seconds)


def against_peers(names: list[str], rounds: int, seconds: float) -> None:
    warm = Warm()
    rows, ratios, against_loop = [], [], []
    try:
        for name in names:
            for workers in (0, 2, 4):
                pairs = [(ours(warm, name, max(1, workers), seconds), ddp.rate(name, workers, seconds)) for _ in range(rounds)]
                each = [mine[0] / theirs[0] for mine, theirs in pairs]
                ratio = median(each)
                cpu_ratio = median(theirs[1] / mine[2] for mine, theirs in pairs)
                (ratios if workers else against_loop).append(ratio)
                best = [max(mine[0] for mine, _ in pairs), max(theirs[0] for _, theirs in pairs)]
                peer = f"DDP, {workers} workers" if workers else "plain loop"
                memory = [
                    median(mine[1] for mine, _ in pairs),
                    median(mine[3] for mine, _ in pairs),
                    median(theirs[2] for _, theirs in pairs),
                ]
                rows.append((name, max(1, workers), peer, *best, ratio, quartiles(each), cpu_ratio, *memory))
                print(rows[-1], file=sys.stderr)
    finally:
        warm.close()
    columns = ("model", "workers", "against", "ours 1/s", "peer 1/s", "ratio", "quartiles", "CPU ratio", "private MB", "MB", "peer MB")
    report.table("Throughput", columns, rows)
    figures = {"ddp_ratio_min": round(min(ratios), 3), "loop_ratio_min": round(min(against_loop), 3)}
    figures["memory_ratio_max"] = round(max(r[9] / r[10] for r in rows), 3)
    report.finish(
        "throughput",
        figures,
        {
            f"{r[0]} {r[2]}": {"ours": round(r[3], 2), "peer": round(r[4], 2), "ratio": round(r[5], 3), "quartiles": r[6]}
            | {"processor_ratio": round(r[7], 3), "private_mb": round(r[8]), "mb": round(r[9]), "peer_mb": round(r[10])}
            for r in rows
        },
    )


if __name__ == "__main__":
    main(sys.argv[1:])
