"""A run over two machines, against DistributedDataParallel over TCP. `python -m benchmarks.machines [--quick] [--link 1gbit] [MODEL ...]`.

Here both machines are this one, and what goes between them goes through the loopback device on both sides: so it is the cost of passing
on that is measured, not a network. With --link they are network namespaces with a cable of that rate between them (as root). Ours has one
worker on each machine, its segments kept equal by bridges; the peer has two Gloo workers. The pause is the longest time between two steps,
less the median step, when the worker of the other machine comes and goes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks._network import LOOPBACK, Machine, linked
from benchmarks.models import MODELS, fabric_script
from benchmarks.peers import ddp
from tests.engine.harness import RemoteAgent, Run, Warm

AROUND = 20  # steps to each side of a change among which the longest gap is looked for


def ours(machines: Sequence[Machine], warm: Sequence[Warm], name: str, seconds: float) -> tuple[float, list[float], list[float]]:
    """Steps a second with a worker on each machine; the pauses in ms at growing to that and at shrinking from it."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"EDT_ADDRESS": machines[0].address}
        run = Run(warm[0], Path(folder), fabric_script(name), "100000", "2", max_slots=2, env=env)
        other = RemoteAgent(run, "other", warm=warm[1])
        try:
            run.members(0)
            run.until_step(AROUND)
            grown, shrunk = [], []
            for _ in range(3):
                other.members(1)
                grown.append(_until_settled(run, 2))
                run.until_step(run.step() + AROUND)
                other.members()
                shrunk.append(_until_settled(run, 1))
            other.members(1)
            _until_settled(run, 2)
            t0 = run.lines()[-1].t
            run.until(lambda: run.lines()[-1].t - t0 > seconds, what="time is up")
            times = [line.t for line in run.lines() if line.event.kind == "train" and line.t >= t0]
            return (len(times) - 1) / (times[-1] - times[0]), grown, shrunk
        finally:
            run.close()
            other.close()


def _until_settled(run: Run, workers: int) -> float:
    """Wait for AROUND steps of so many workers; the pause before the first of them, in ms."""
    before = run.step()
    run.until_workers(workers)
    first = next(e.step for e in run.events("train") if e.step > before and e.workers == workers)
    run.until_step(first + AROUND)
    times = {line.event.step: line.t for line in run.lines() if line.event.kind == "train"}
    around = range(max(2, first - AROUND), first + AROUND)
    gaps = [times[step] - times[step - 1] for step in around]
    return 1000 * (max(gaps) - median(gaps))


def measure(machines: Sequence[Machine], names: Sequence[str], *, rounds: int, seconds: float) -> list[tuple]:
    """A row for each model."""
    warm, rows = [Warm(machine.within) for machine in machines], []
    try:
        for name in names:
            pairs = [(ours(machines, warm, name, seconds), ddp.rate_between(machines, name, seconds)) for _ in range(rounds)]
            ratio = median(mine[0] / theirs for mine, theirs in pairs)
            grown, shrunk = ([pause for mine, _ in pairs for pause in mine[i]] for i in (1, 2))
            rows.append((name, max(m[0] for m, _ in pairs), max(t for _, t in pairs), ratio, median(grown), max(grown), median(shrunk)))
            print(rows[-1], file=sys.stderr)
    finally:
        for each in warm:
            each.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--link", help="the rate of a cable between them, as tc(8) writes it")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=f"of {', '.join(MODELS)}")
    told = parser.parse_args()
    rounds, seconds = (1, 2.0) if told.quick else (3, 5.0)
    with linked(told.link) if told.link else nullcontext(LOOPBACK) as machines:
        rows = measure(machines, told.models, rounds=rounds, seconds=seconds)
    report.table("Two machines", ("model", "ours 1/s", "DDP 1/s", "ratio", "grow ms", "worst", "shrink ms"), rows)
    figures = {"two_machines_ratio_min": round(min(row[3] for row in rows), 3), "grow_ms_max": round(max(row[4] for row in rows), 1)}
    report.finish(
        "machines", figures, {row[0]: {"ours": round(row[1], 2), "ddp": round(row[2], 2), "ratio": round(row[3], 3)} for row in rows}
    )


if __name__ == "__main__":
    main()
