"""What a death costs. `python -m benchmarks.recovery [--quick]`.

One of 2 and one of 4 workers is killed with -9 until 50 kills are done: the time from the kill to the next finished step (by the clock of
the journal), the steps lost or doubled, and, by the sample ledger, the samples that were not used exactly once an epoch. Then a worker is
stopped (SIGSTOP) with a deadline of 1 s for hangs. Last, the driver is killed: its workers write down their state, and another one, which
runs the script anew, goes on. The step is about 10 ms. No setting is tuned for the kills.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.pause import SCRIPT
from tests.engine.harness import Run, Warm, until_gone
from training_runtime.elastic.ledger import replay

HANG_S = 1.0


def strike(run: Run, slot: int, number: int) -> float:
    """Send a signal to the worker on `slot`; seconds until the survivors finished a step. Waits until all are back."""
    workers, count = len(run.holding), len(run.events("generation"))
    run.kill(slot, number)
    struck = time.time()
    run.until(lambda: len(run.events("generation")) > count, what="the survivors' generation")
    first = run.events("generation")[count].step
    run.until_step(first)
    again = next(line.t for line in run.lines() if line.event.kind == "train" and line.event.step == first)
    run.until_workers(workers)
    return again - struck


def kills(warm: Warm, workers: int, count: int) -> tuple[list[float], int, int]:
    """Seconds of each recovery, steps lost or doubled, samples not used exactly once."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, "700", env={"EDT_LEDGER": "1"})
        try:
            run.members(*range(workers))
            run.until_step(10)
            times: list[float] = []
            while len(times) < count:
                if len(times) % 15 == 14:  # a run gives up a slot after 20 deaths there: take others
                    first = 4 * (1 + len(times) // 15)
                    run.members(*range(first, first + workers))
                    run.until(lambda first=first: run.holding == tuple(range(first, first + workers)), what="other slots")
                    run.until_workers(workers)
                times.append(strike(run, run.holding[len(times) % workers], signal.SIGKILL))
            run.stop()
            assert run.wait() == 0, run.tail()
            steps = [event.step for event in run.events("train")]
            wrong = len(set(range(1, steps[-1] + 1)) ^ set(steps)) + len(steps) - len(set(steps))
            return times, wrong, len(replay(run.result_dir).problems)
        finally:
            run.close()


def hangs(warm: Warm, count: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, "700", env={"EDT_HANG_TIMEOUT": str(HANG_S)})
        try:
            run.members(0, 1, 2)
            run.until_step(10)
            return [strike(run, run.holding[i % 3], signal.SIGSTOP) for i in range(count)]
        finally:
            run.close()


def drivers(warm: Warm, count: int) -> tuple[list[float], int]:
    """Seconds from a driver's kill until the next finished step, and steps lost or doubled."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, "700")
        try:
            times: list[float] = []
            for _ in range(count):
                run.members(0, 1)
                run.until_step(run.step() + 20)
                known, struck = len(run.events("resumed")), time.time()
                os.kill(run.pid, signal.SIGKILL)
                run.wait()
                until_gone(run.pid)
                run.again()
                run.members(0, 1)
                run.until(lambda known=known: len(run.events("resumed")) > known, what="it goes on")
                first = run.events("resumed")[-1].step + 1
                run.until_step(first)
                times.append(next(line.t for line in run.lines() if line.event.kind == "train" and line.event.step == first) - struck)
            run.stop()
            assert run.wait() == 0, run.tail()
            steps = [event.step for event in run.events("train")]
            return times, len(set(range(1, steps[-1] + 1)) ^ set(steps)) + len(steps) - len(set(steps))
        finally:
            run.close()


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    warm, rows = Warm(), []
    every: list[float] = []
    lost = samples = 0
    try:
        for workers in (2, 4):
            times, steps_wrong, samples_wrong = kills(warm, workers, 4 if quick else 25)
            every += times
            lost, samples = lost + steps_wrong, samples + samples_wrong
            rows.append((f"kill -9, 1 of {workers}", len(times), median(times), max(times), steps_wrong, samples_wrong))
        stopped = hangs(warm, 2 if quick else 5)
        rows.append((f"SIGSTOP, 1 of 3, deadline {HANG_S:g} s", len(stopped), median(stopped), max(stopped), 0, 0))
        driverless, steps_wrong = drivers(warm, 2 if quick else 10)
        lost += steps_wrong
        rows.append(("kill -9 of the driver", len(driverless), median(driverless), max(driverless), steps_wrong, 0))
    finally:
        warm.close()
    every.sort()
    columns = ("what", "times", "p50 s", "max s", "steps lost or doubled", "samples wrong")
    report.table("Recovery", columns, rows)
    p99 = every[min(len(every) - 1, int(0.99 * len(every)))]
    figures = {"kill_p50_s": round(median(every), 3), "kill_p99_s": round(p99, 3), "hang_s": round(max(stopped), 3)}
    figures["driver_p50_s"] = round(median(driverless), 3)
    report.finish("recovery", {**figures, "steps_lost": lost, "samples_wrong": samples})


if __name__ == "__main__":
    main(sys.argv[1:])
