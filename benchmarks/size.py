"""What a training costs with its size: engines, workers, parameters, samples. `python -m benchmarks.size [--quick] [PART ...]`.

PART is one or more of `order`, `workers`, `parameters`; without any, all of them. One thread a worker; everything goes through the real
driver and its workers. `order`: what a worker does at the beginning of an epoch for its samples, beside the permutation that a
DistributedSampler makes. `workers`: a tiny model with 64 engines on 1 to 16 workers: start, a step's processor time beside the same work in
a plain loop, memory. `parameters`: 10 MB to 1 GB of them (with momentum up to 100 MB): start, the pauses at growing, shrinking and at a
checkpoint, the time until that is on the disk, its bytes, and memory; beside `torch.save` and fsync of the same state on the same disk.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch

from benchmarks import report
from benchmarks.models import COMMON
from benchmarks.pause import change
from benchmarks.throughput import cpu_s
from tests.engine.harness import Run, Warm, in_session

MB = 1 << 20
ENGINES = 64
# A width, and whether it has momentum. Steps of an epoch, engines, how often a checkpoint is written.
SCRIPT = (
    COMMON
    + """
import sys
width, momentum, samples, engines, freq = (int(a) for a in sys.argv[1:6])
x, y = torch.randn(samples, 64), torch.randint(0, 10, (samples,))
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9 * momentum)
"""
)
FABRIC = """
from fabric_model import FabricModel
def data():
    return torch.utils.data.TensorDataset(x, y), None
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(10**6, 8, engines, checkpoint_freq=freq)
"""
PLAIN = """
import time
def step():
    for m in range(engines):
        (nn.functional.cross_entropy(model(x[8 * m : 8 * m + 8]), y[8 * m : 8 * m + 8]) / engines).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.set_num_threads(1)
step()
began = time.process_time()
for _ in range(20):
    step()
print((time.process_time() - began) / 20)
"""


@contextmanager
def training(warm: Warm, *args: int, workers: int) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), SCRIPT + FABRIC, *map(str, args), max_slots=workers)
        try:
            yield run
        finally:
            run.close()


def memory_mb(run: Run) -> tuple[float, float]:
    """(all of the run, what its processes share counted once; what of it is in memfds: segment, states, snapshots)"""
    whole = 0.0
    for pid in in_session(run.pid):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        whole += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return whole, memfds_mb(next(iter(run.workers.values())))


def memfds_mb(pid: int) -> float:
    held: dict[int, int] = {}  # a memfd may have several descriptors
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "memfd:edt-" in str(path.readlink()):
                held[path.stat().st_ino] = path.stat().st_blocks * 512
        except OSError:  # closed in the meantime
            continue
    return sum(held.values()) / MB


def started(run: Run, workers: int, steps: int) -> float:
    """Seconds from the grant to the first step."""
    asked = time.time()
    run.members(*range(workers))
    run.until_step(1)
    first = next(line.t for line in run.lines() if line.event.kind == "train")
    run.until_step(steps)
    return first - asked


def plain_cpu_s(*args: int) -> float:
    import subprocess

    command = [sys.executable, "-c", SCRIPT + PLAIN, *map(str, args)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# -- the parts


def order(counts: Sequence[int]) -> list[tuple[object, ...]]:
    """Samples; ms for the order of an epoch and the indices of its first step of 64 engines; MB that stay; the same of a permutation in a
    list, as a DistributedSampler has it."""
    from training_runtime.elastic.data.sampler import RunPlan

    rows: list[tuple[object, ...]] = []
    for samples in counts:
        shape = RunPlan(samples, 0, 8, ENGINES, 1, 0)
        began, before = time.process_time(), resident_mb()
        found = shape.order(0)
        indices = [found[shape.span(0, m)] for m in range(ENGINES)]
        ours_ms, ours_mb = 1000 * (time.process_time() - began), resident_mb() - before
        del found, indices
        began, before = time.process_time(), resident_mb()
        listed = torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()
        theirs_ms, theirs_mb = 1000 * (time.process_time() - began), resident_mb() - before
        del listed
        rows.append((samples, round(ours_ms, 1), round(ours_mb), round(theirs_ms, 1), round(theirs_mb)))
        print(rows[-1], file=sys.stderr)
    return rows


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def of_workers(warm: Warm, counts: Sequence[int], steps: int) -> list[tuple[object, ...]]:
    """Workers; seconds to the first step; ms of processor time that all of them use for a step; the same beside a plain loop; MB in all
    and in memfds."""
    args = (1024, 1, 8 * ENGINES * 8, ENGINES, 0)  # 4.5 MB of gradients
    plain = plain_cpu_s(*args)
    rows: list[tuple[object, ...]] = []
    for workers in counts:
        with training(warm, *args, workers=workers) as run:
            start_s = started(run, workers, 5)
            used, at = cpu_s(run), run.step()
            run.until_step(at + steps)
            used = (cpu_s(run) - used) / (run.step() - at)
            whole, shared = memory_mb(run)
        rows.append((workers, round(start_s, 2), round(1000 * used, 1), round(used / plain, 2), round(whole), round(shared, 1)))
        print(rows[-1], file=sys.stderr)
    return rows


def of_parameters(warm: Warm, megabytes: int, rounds: int) -> tuple[object, ...]:
    """MB of parameters; seconds to the first step and of a step; ms of pause at growing 1 -> 2 and shrinking; seconds that training stands
    still at a checkpoint, until it is on the disk, MB written; seconds of torch.save; MB of the run in all and in memfds."""
    width, momentum = int((megabytes * MB / 4) ** 0.5), int(megabytes <= 100)
    with training(warm, width, momentum, 8 * 2 * 4096, 2, 0, workers=2) as run:
        start_s = started(run, 1, 6)
        grown, shrunk = [], []
        for _ in range(rounds):
            grown.append(change(run, (0, 1), 4)[0])
            whole, shared = memory_mb(run)
            shrunk.append(change(run, (0,), 4)[0])
    step_s, still_s, durable_s, written = checkpoints(warm, width, momentum, rounds)
    saved_s = torch_save_s(width, momentum)
    row = (megabytes, start_s, step_s, median(grown), median(shrunk), still_s, durable_s, written, saved_s, whole, shared)
    print(row, file=sys.stderr)
    return tuple(round(cell, 2) for cell in row)


def checkpoints(warm: Warm, width: int, momentum: int, rounds: int) -> tuple[float, float, float, float]:
    """(seconds of a step, that training stands still for a checkpoint, until it is on the disk; MB) with epochs of six steps."""
    with training(warm, width, momentum, 8 * 2 * 6, 2, 1, workers=1) as run:
        run.members(0)
        run.until(lambda: len(written(run, "engine")) > rounds, timeout_s=600, what="checkpoints")
        times = [(line.event.step, line.t) for line in run.lines() if line.event.kind == "train"]
        gaps = {step: t - before for (_, before), (step, t) in itertools.pairwise(times)}
        usual = median(gap for step, gap in gaps.items() if step % 6 != 1)
        still = median(gap - usual for step, gap in gaps.items() if step % 6 == 1)
        ended = dict(times)
        durable = median(line.t - ended[line.event.step] for line in written(run, "engine"))
        size = written(run, "engine")[0].event.size_bytes + written(run, "model")[0].event.size_bytes
        return usual, still, durable, size / MB


def written(run: Run, role: str) -> list:
    return [line for line in run.lines() if line.event.kind == "checkpoint" and line.event.role == role]


def torch_save_s(width: int, momentum: int) -> float:
    """Of the same model, and its optimizer's state, with fsync, to where the runs write."""
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Linear(width, width), torch.nn.Linear(width, 10))
    state = {"model": model.state_dict(), "momentum": [torch.zeros_like(p) for p in model.parameters() if momentum]}
    with tempfile.NamedTemporaryFile() as file:
        began = time.monotonic()
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
        return time.monotonic() - began


WORKERS = ("workers", "start s", "cpu ms/step", "beside a plain loop", "MB", "MB in memfds")
ORDER = ("samples", "ours ms", "ours MB", "a list ms", "a list MB")
PARAMETERS = (
    "MB",
    "start s",
    "step s",
    "grow ms",
    "shrink ms",
    "still s",
    "durable s",
    "MB written",
    "torch.save s",
    "MB all",
    "MB in memfds",
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.size", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 4 workers, 100 MB, a million samples")
    parser.add_argument("parts", nargs="*", choices=[[], "order", "workers", "parameters"])
    given = parser.parse_args(arguments)
    parts, quick = given.parts or ["order", "workers", "parameters"], given.quick
    figures: dict[str, object] = {}
    warm = Warm()
    try:
        if "order" in parts:
            rows = order((10**5, 10**6) if quick else (10**6, 4 * 10**6, 10**7, 10**8))
            report.table("The order of an epoch", ORDER, rows)
            figures |= {f"order_ms_{row[0]}": row[1] for row in rows} | {f"order_mb_{row[0]}": row[2] for row in rows}
        if "workers" in parts:
            rows = of_workers(warm, (1, 4) if quick else (1, 2, 4, 8, 16), 10 if quick else 20)
            report.table(f"{ENGINES} engines", WORKERS, rows)
            figures |= {f"step_ratio_{row[0]}": row[3] for row in rows} | {f"memfds_mb_{row[0]}": row[5] for row in rows}
        if "parameters" in parts:
            rows = [of_parameters(warm, megabytes, 2 if quick else 3) for megabytes in ((10, 100) if quick else (10, 100, 1024))]
            report.table("Parameters", PARAMETERS, rows)
            names = ("start_s", "step_s", "grow_ms", "shrink_ms", "still_s", "durable_s", "written_mb", "torch_save_s", "mb", "memfds_mb")
            figures |= {f"{name}_{row[0]}mb": cell for row in rows for name, cell in zip(names, row[1:], strict=True)}
    finally:
        warm.close()
    load = os.getloadavg()
    print(f"\nLoad average {load[0]:.1f} and {load[1]:.1f} in the last minute and five, on {os.cpu_count()} cores")
    report.finish("size", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
