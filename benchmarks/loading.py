"""What loading ahead brings: samples a second with no loader and with up to four a worker. `python -m benchmarks.loading [--quick]`.

Two datasets: one whose samples wait 1 ms, as for a disk or a network, and one that computes an augmentation for about as long. The model's
step on 16 samples takes about as long as loading them. Rounds alternate, the ratio is the median over rounds. The results of both are the
same, bit for bit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import report
from tests.engine.harness import Run, Warm

SCRIPT = """
import sys, time, torch
from torch import nn
from fabric_model import FabricModel
kind, loaders, engines = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, i):
        x = torch.randn(3, 32, 32)
        if kind == "waits":
            time.sleep(0.001)
        else:
            for _ in range(4):
                x = nn.functional.avg_pool2d(x.roll(1, -1), 3, 1, 1) + 0.1 * torch.randn(3, 32, 32)
        return x, i % 10
model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
run = FabricModel(model, lambda: (Data(), None), nn.functional.cross_entropy, optimizer)
run.train(100000, 16, engines, num_dataloader_threads=loaders, checkpoint_freq=0)
"""


def rate(warm: Warm, kind: str, loaders: int, workers: int, seconds: float) -> float:
    """Samples a second, once the loaders have been started."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT, kind, str(loaders), str(workers), max_slots=workers)
        try:
            run.members(*range(workers))
            run.until_step(120)  # all four have been started by then, where they are worth it
            begin = run.step()
            t0 = next(line.t for line in run.lines() if getattr(line.event, "step", 0) == begin and line.event.kind == "train")
            run.until(lambda: run.lines()[-1].t - t0 > seconds, what="time is up")
            last = [line for line in run.lines() if line.event.kind == "train"][-1]
            return (last.event.step - begin) * 16 * workers / (last.t - t0)
        finally:
            run.close()


def main(arguments: list[str]) -> None:
    rounds, seconds = (1, 2.0) if report.asked_quick(__doc__, arguments) else (5, 4.0)
    warm, rows, figures = Warm(), [], {}
    try:
        for kind in ("waits", "computes"):
            for workers in (1, 2):
                pairs = [(rate(warm, kind, 0, workers, seconds), rate(warm, kind, 4, workers, seconds)) for _ in range(rounds)]
                ratio = median(four / none for none, four in pairs)
                rows.append((kind, workers, median(p[0] for p in pairs), median(p[1] for p in pairs), ratio))
                figures[f"{kind}_{workers}_ratio"] = round(ratio, 3)
    finally:
        warm.close()
    report.table("Loading", ("dataset", "workers", "no loader, samples/s", "up to 4, samples/s", "ratio"), rows)
    report.finish("loading", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
