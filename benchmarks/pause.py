"""How long training stands still when members change, ours and the peers'. `python -m benchmarks.pause [--quick]`.

The longest gap between two finished steps at a change (its first three), minus the median step of the new members: at grow 1 -> 2 -> 4 and
at shrink 4 -> 2 -> 1, for models with 0.1, 10 and 137 MB of state (parameters and momentum), and the time from the request until the slot
is proven free. One thread a worker. The peers change once each way where ours change ten times: a change of theirs takes seconds. With
--quick torchft and torchrun only go 1 -> 2 -> 1, and only with the smallest model.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.models import WIDE
from benchmarks.peers.elastic import MOST_WORKERS, Start, Stuck, peers
from benchmarks.peers.steps import finished, pause_s
from tests.engine.harness import Run, Warm

# hidden width -> megabytes of parameters and SGD momentum
SIZES = {"tiny": (64, 0.1), "10mb": (1050, 10.0), "137mb": (4100, 137.0)}
SCRIPT = (
    WIDE
    + """
from fabric_model import FabricModel
def data():
    return torch.utils.data.TensorDataset(x, y), None
FabricModel(model, data, loss_function, optimizer).train(10**6, batch, 4, checkpoint_freq=0)
"""
)


@dataclass(frozen=True)
class Pauses:
    """Milliseconds of each change, and the seconds from each request for fewer until the others' slots were free."""

    grow: list[float] = field(default_factory=list)
    shrink: list[float] = field(default_factory=list)
    freed_s: list[float] = field(default_factory=list)

    def row(self) -> tuple[object, ...]:
        known = (self.grow, median), (self.grow, max), (self.shrink, median), (self.shrink, max)
        cells = [rounded(of, of_which) for of_which, of in known]
        return (len(self.grow) + len(self.shrink), *cells, rounded(median, [1000 * freed for freed in self.freed_s]))

    def figures(self, name: str) -> dict[str, float | None]:
        _, grow, grow_max, shrink, shrink_max, _ = self.row()
        return {f"grow_ms_{name}": grow, f"shrink_ms_{name}": shrink, f"grow_ms_{name}_max": grow_max, f"shrink_ms_{name}_max": shrink_max}


def rounded(of: Callable[[list[float]], float], values: list[float]) -> float | None:
    """None where there was nothing to measure."""
    return round(of(values), 1) if values else None


def change(run: Run, slots: tuple[int, ...], settle: int) -> tuple[float, float]:
    """Grant `slots`; the pause in ms, and the seconds until all other slots were proven free."""
    before, count = run.step(), len(run.events("generation"))
    asked = time.monotonic()
    run.members(*slots)
    run.until(lambda: run.holding == tuple(sorted(slots)), what="the slots")
    freed_s = time.monotonic() - asked
    run.until(lambda: len(run.events("generation")) > count, what="a generation")
    first = run.events("generation")[-1].step
    run.until_step(first + settle)
    times = [(line.event.step, line.t) for line in run.lines() if line.event.kind == "train" and line.event.step > before - settle]
    gaps = {step: t - last for (_, last), (step, t) in itertools.pairwise(times)}
    usual = median(gap for step, gap in gaps.items() if step > first + 2)  # of the new members: with fewer of them a step takes longer
    return 1000 * (max(gaps[step] for step in range(first, first + 3)) - usual), freed_s


def ours(warm: Warm, width: int, rounds: int, settle: int) -> Pauses:
    found = Pauses()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, str(width))
        try:
            run.members(0)
            run.until_step(settle + 5)
            for _ in range(rounds):
                found.grow.extend(change(run, slots, settle)[0] for slots in ((0, 1), (0, 1, 2, 3)))
                for slots in ((0, 1), (0,)):
                    pause_ms, freed_s = change(run, slots, settle)
                    found.shrink.append(pause_ms)
                    found.freed_s.append(freed_s)
        finally:
            run.close()
    return found


def theirs(start: Start, width: int, sizes: tuple[int, ...], settle: int) -> Pauses:
    """The same of a peer that goes through `sizes`. What was measured until it got stuck counts."""
    found = Pauses()
    with start(width) as peer:
        try:
            peer.members(sizes[0])
            peer.until_settled(sizes[0], settle, since=0)
            for before, workers in itertools.pairwise(sizes):
                known = len(peer.lines)
                freed_s = peer.members(workers)
                peer.until_settled(workers, settle, since=known)
                pause_ms = 1000 * pause_s(finished(peer.lines[max(0, known - MOST_WORKERS) :]), workers=workers)
                (found.grow if workers > before else found.shrink).append(pause_ms)
                if workers < before:
                    found.freed_s.append(freed_s)
        except Stuck as reason:
            print(f"stuck: {reason}", file=sys.stderr)
    return found


def main(arguments: list[str]) -> None:
    quick = report.asked_quick(__doc__, arguments)
    here, missing = peers(quick=quick)
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float | None] = {}
    measured: dict[str, dict[str, float | None]] = {name: {} for name in here}
    warm = Warm()
    try:
        for name, (width, megabytes) in SIZES.items():
            rounds, settle = (1, 6) if quick else ((10, 20) if width < 4000 else (5, 8))
            mine = ours(warm, width, rounds, settle)
            rows.append(("ours", f"{megabytes:g} MB", *mine.row()))
            figures |= mine.figures(name)
            for peer, start in here.items() if name == "tiny" or not quick else ():
                pauses = theirs(start, width, (1, 2, 1) if quick else (1, 2, 4, 2, 1), settle)
                rows.append((peer, f"{megabytes:g} MB", *pauses.row()))
                measured[peer] |= pauses.figures(name)
    finally:
        warm.close()
    columns = ("who", "state", "changes", "grow p50 ms", "grow max ms", "shrink p50 ms", "shrink max ms", "slot free p50 ms")
    report.table("Pause at a change of members", columns, rows)
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    report.finish("pause", figures, {**measured, **missing})


if __name__ == "__main__":
    main(sys.argv[1:])
