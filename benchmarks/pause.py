"""How long training stands still when members change. `python -m benchmarks.pause [--quick]`.

The longest gap between two finished steps at a change (its first three), minus the median step of the new members: at grow 1 -> 2 -> 4 and
at shrink 4 -> 2 -> 1, for models with 0.1, 10 and 137 MB of state (parameters and momentum), and the time from the request until the slot
is proven free. One thread a worker.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import report
from tests.engine.harness import Run, Warm

# hidden width -> megabytes of parameters and SGD momentum
SIZES = {"tiny": (64, 0.1), "10mb": (1050, 10.0), "137mb": (4100, 137.0)}
SCRIPT = """
import sys
import torch
from torch import nn
from fabric_model import FabricModel
torch.manual_seed(0)
width = int(sys.argv[1])
x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
def data():
    return torch.utils.data.TensorDataset(x, y), None
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(10**6, 8, 4, checkpoint_freq=0)
"""


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


def measure(warm: Warm, width: int, rounds: int, settle: int) -> tuple[list[float], list[float], list[float]]:
    grow, shrink, freed = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, str(width))
        try:
            run.members(0)
            run.until_step(settle + 5)
            for _ in range(rounds):
                grow += [change(run, slots, settle)[0] for slots in ((0, 1), (0, 1, 2, 3))]
                for slots in ((0, 1), (0,)):
                    pause_ms, freed_s = change(run, slots, settle)
                    shrink.append(pause_ms)
                    freed.append(freed_s)
        finally:
            run.close()
    return grow, shrink, freed


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    warm, rows, figures = Warm(), [], {}
    try:
        for name, (width, megabytes) in SIZES.items():
            rounds, settle = (1, 6) if quick else ((10, 20) if width < 4000 else (5, 8))
            grow, shrink, freed = measure(warm, width, rounds, settle)
            rows.append((f"{megabytes:g} MB", 2 * rounds, median(grow), max(grow), median(shrink), max(shrink), 1000 * median(freed)))
            if name != "10mb":
                figures |= {f"grow_ms_{name}": round(median(grow), 1), f"shrink_ms_{name}": round(median(shrink), 1)}
                figures |= {f"grow_ms_{name}_max": round(max(grow), 1), f"shrink_ms_{name}_max": round(max(shrink), 1)}
    finally:
        warm.close()
    columns = ("state", "changes", "grow p50 ms", "grow max ms", "shrink p50 ms", "shrink max ms", "slot free p50 ms")
    report.table("Pause at a change of members", columns, rows)
    report.finish("pause", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
