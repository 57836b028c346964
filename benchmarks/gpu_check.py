"""What only GPUs can show, in one command: `python -m benchmarks.gpu_check [--quick] [--cpu]`, or `make gpu-check`.

For 1, 2 and 4 workers, on one GPU and as far as there are GPUs for them on one each: the same ResNet-50 with the same four engines, its
gradients by shared memory and, on one each, by a process group (NCCL). The weights have to be the same bits in all of them, also where a
worker was killed; beside that steps a second, and the longest pause around the death. Where there is no GPU it says so and measures
nothing; --cpu takes processor slots and a toy model instead, which shows that the check works.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks import report
from benchmarks.gpu import MODELS, START
from tests.engine.harness import Run, Warm

ENGINES, KILL_AT = 4, 20
TRAINED = """
from fabric_model import FabricModel
def data():
    return torch.utils.data.TensorDataset(x, y), None
optimizer = make_optimizer(model.parameters())
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(int(sys.argv[3]), batch, engines, checkpoint_freq=0)
"""
NO_GPU = "no GPU here that torch can use, so nothing was checked: --cpu shows that the check works, with a toy model on processor slots"
WAYS = ("segment", "collective")


def placings(gpus: int) -> Iterator[tuple[int, int, str]]:
    """Workers, the GPUs that they are on, and how their gradients meet."""
    for workers in (1, 2, 4):
        yield workers, 1, "segment"
        if 1 < workers <= gpus:
            yield from ((workers, workers, way) for way in WAYS)


def trained(warm: Warm, size: str, kind: str, workers: int, gpus: int, way: str, epochs: int, *, kill: bool) -> tuple[str, float, float]:
    """The hash of the final weights and optimizer state; steps a second after the first ten; the longest time between two steps in ms."""
    with tempfile.TemporaryDirectory() as folder:
        script, arguments = START + MODELS["resnet50"] + TRAINED, (size, str(ENGINES), str(epochs))
        run = Run(warm, Path(folder), script, *arguments, device=kind, gpus=gpus, env={"EDT_REDUCE": way})
        try:
            run.members(*range(workers))
            if kill:
                run.until_step(KILL_AT)
                run.kill(workers - 1)
            if run.wait(3600) != 0:
                raise RuntimeError(run.tail())
            times = [line.t for line in run.lines() if line.event.kind == "train"][10:]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            return run.weights(), len(gaps) / sum(gaps), 1000 * max(gaps)
        finally:
            run.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--cpu", action="store_true", help="processor slots and a toy model")
    told = parser.parse_args()
    if not told.cpu and not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        report.finish("gpu_check", {})
        return 0
    size, kind, most = ("toy", "cpu", 4) if told.cpu else ("full", "gpu", torch.cuda.device_count())
    epochs, rows, hashes, warm = 20 if told.quick else 60, [], set(), Warm()
    try:
        for workers, gpus, way in placings(most):
            weights, rate, _ = trained(warm, size, kind, workers, gpus, way, epochs, kill=False)
            hashes.add(weights)
            pause_ms: float | str = "-"
            if workers > 1:
                weights, _, pause_ms = trained(warm, size, kind, workers, gpus, way, epochs, kill=True)
                hashes.add(weights)
            rows.append((workers, gpus, way, weights[:12], rate, pause_ms))
    finally:
        warm.close()
    columns = ("workers", "GPUs", "gradients by", "weights", "steps/s", "longest pause with a death, ms")
    report.table(f"Exactness and speed on {torch.cuda.get_device_name(0) if kind == 'gpu' else 'processor slots'}", columns, rows)
    print("the same weights in all of them" if len(hashes) == 1 else f"NOT EXACT: {len(hashes)} different results")
    report.finish(
        "gpu_check", {"different_results": len(hashes), **{f"steps_s_{row[2]}_{row[0]}_on_{row[1]}": round(row[4], 2) for row in rows}}
    )
    return len(hashes) != 1


if __name__ == "__main__":
    sys.exit(main())
