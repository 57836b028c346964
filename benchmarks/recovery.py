"""What a death costs, us and the peers. `python -m benchmarks.recovery [--quick]`.

One of 2 and one of 4 workers is killed with -9 until 50 kills are done: the time from the kill to the next finished step (by the clock of
the journal), the steps lost or doubled, and, by the sample ledger, the samples that were not used exactly once an epoch. Then a worker is
stopped (SIGSTOP) with a deadline of 1 s for hangs. Last, the driver is killed: its workers write down their state, and another one, which
runs the script anew, goes on. The step is about 10 ms. No setting of ours is tuned for the kills.

A recovery of the peers takes seconds, so theirs are fewer: 5 kills each of 2 and of 4 workers, 2 hangs of 4; with --quick one kill of 2.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.pause import SCRIPT
from benchmarks.peers.elastic import Peer, Start, Stuck, peers
from benchmarks.peers.steps import finished, redone, samples_wrong
from tests.engine.harness import Run, Warm, until_gone
from training_runtime.elastic.worker.ledger import replay

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


def account(run: Run) -> tuple[int, int]:
    """Stop the run: steps lost or doubled by its journal, samples not used exactly once an epoch by its ledger."""
    run.stop()
    assert run.wait() == 0, run.tail()
    steps = [event.step for event in run.events("train")]
    wrong = len(set(range(1, steps[-1] + 1)) ^ set(steps)) + len(steps) - len(set(steps))
    return wrong, len(replay(run.result_dir).problems)


def kills(warm: Warm, workers: int, count: int) -> tuple[list[float], int, int]:
    """Seconds of each recovery, and the account."""
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
            return times, *account(run)
        finally:
            run.close()


def hangs(warm: Warm, count: int) -> tuple[list[float], int, int]:
    """The same for a worker that is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, "700", env={"EDT_HANG_TIMEOUT": str(HANG_S), "EDT_LEDGER": "1"})
        try:
            run.members(0, 1, 2, 3)
            run.until_step(10)
            return [strike(run, run.holding[i % 4], signal.SIGSTOP) for i in range(count)], *account(run)
        finally:
            run.close()


def drivers(warm: Warm, count: int) -> tuple[list[float], int, int]:
    """Seconds from a driver's kill until the next finished step, and the account."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, "700", env={"EDT_LEDGER": "1"})
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
            return times, *account(run)
        finally:
            run.close()


@dataclass
class FailureCauses:
    """Seconds from each signal to the next finished step, steps lost or done again, and samples that were not used exactly once."""

    kills: list[float] = field(default_factory=list)
    hangs: list[float] = field(default_factory=list)
    steps: int = 0
    samples: int = 0

    def count(self, rows: list[tuple[object, ...]], who: str, what: str, times: list[float], steps: int, samples: int) -> None:
        """Add the account of these, and a line of the table."""
        self.steps, self.samples = self.steps + steps, self.samples + samples
        rows.append((who, what, len(times), median(times) if times else None, max(times, default=None), steps, samples))

    def figures(self) -> dict[str, float | int | None]:
        killed, hung = sorted(self.kills), sorted(self.hangs)
        p99 = round(killed[min(len(killed) - 1, int(0.99 * len(killed)))], 3) if killed else None
        known = {
            "kill_p50_s": round(median(killed), 3) if killed else None,
            "kill_p99_s": p99,
            "hang_s": round(hung[-1], 3) if hung else None,
        }
        return {**known, "kills": len(killed), "hangs": len(hung), "steps_lost": self.steps, "samples_wrong": self.samples}


def peer_strikes(start: Start, workers: int, count: int, number: int) -> tuple[list[float], int, int]:
    """The same of a peer, one worker after the other. What was measured until it got stuck counts."""
    times: list[float] = []
    first = 0
    with start(700) as peer:
        try:
            peer.fixed(workers)
            peer.until_settled(workers, 30, since=0)
            first = peer.workers()[0].generation
            for i in range(count):
                times.append(peer_strike(peer, i % workers, number))
                peer.until_settled(workers, 30, since=len(peer.lines))
        except Stuck as reason:
            print(f"stuck: {reason}", file=sys.stderr)
        later = [step for step in peer.lines if step.generation > first > 0]
        together = [step for step in peer.lines if (step.generation, step.workers) == (first, workers)] + later
        steps = finished(together)
        return times, redone(steps), samples_wrong(steps, a_step=8 * workers)


def peer_strike(peer: Peer, rank: int, number: int) -> float:
    pid, known, lines = peer.workers()[rank].pid, peer.lines[-1].generation, len(peer.lines)
    struck = time.time()
    os.kill(pid, number)
    if number == signal.SIGKILL:
        peer.struck(pid)
    peer.until(lambda: any(step.generation > known for step in peer.lines[lines:]), "a step of the survivors")
    again = min(step.t for step in peer.lines[lines:] if step.generation > known)
    if number == signal.SIGSTOP:
        peer.cleared(pid)
    return again - struck


def ours(warm: Warm, rows: list[tuple[object, ...]], quick: bool) -> dict[str, float | int | None]:
    found = FailureCauses()
    for workers in (2, 4):
        times, *wrong = kills(warm, workers, 4 if quick else 25)
        found.kills += times
        found.count(rows, "ours", f"kill -9, 1 of {workers}", times, *wrong)
    found.hangs, *wrong = hangs(warm, 2 if quick else 5)
    found.count(rows, "ours", f"SIGSTOP, 1 of 4, deadline {HANG_S:g} s", found.hangs, *wrong)
    driverless, *wrong = drivers(warm, 2 if quick else 10)
    found.count(rows, "ours", "kill -9 of the driver", driverless, *wrong)
    return {**found.figures(), "driver_p50_s": round(median(driverless), 3)}


def theirs(name: str, start: Start, rows: list[tuple[object, ...]], quick: bool) -> dict[str, float | int | None]:
    found = FailureCauses()
    strikes = [(2, 1, signal.SIGKILL)] if quick else [(2, 5, signal.SIGKILL), (4, 5, signal.SIGKILL), (4, 2, signal.SIGSTOP)]
    for workers, count, number in strikes:
        times, *wrong = peer_strikes(start, workers, count, number)
        (found.kills if number == signal.SIGKILL else found.hangs).extend(times)
        found.count(rows, name, f"{'kill -9' if number == signal.SIGKILL else 'SIGSTOP'}, 1 of {workers}", times, *wrong)
    return found.figures()


def main(arguments: list[str]) -> None:
    quick = report.asked_quick(__doc__, arguments)
    rows: list[tuple[object, ...]] = []
    here, missing = peers(quick=quick)
    warm = Warm()
    try:
        figures = ours(warm, rows, quick)
    finally:
        warm.close()
    measured = {name: theirs(name, start, rows, quick) for name, start in here.items()}
    columns = ("who", "what", "times", "p50 s", "max s", "steps lost or done again", "samples wrong")
    report.table("Recovery", columns, rows)
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    report.finish("recovery", figures, {**measured, **missing})


if __name__ == "__main__":
    main(sys.argv[1:])
