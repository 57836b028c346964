"""From the order to the first finished step on a warm node, against torchrun starting the same model; torchrun's script in the studio as
well, when it is started and when its slots change. `python -m benchmarks.start [--quick]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.models import CONV, fabric_script
from tests.engine.harness import Run, Warm

TORCHRUN = (
    CONV
    + """
import os, time
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
loss_function(model(x[:batch]), y[:batch]).backward()
optimizer.step()
os.write(1, f"first step {time.time()}\\n".encode())  # in one piece: the workers share the pipe
while "STAYS" in os.environ:
    time.sleep(0.01)
torch.distributed.destroy_process_group()
"""
)


def ours(warm: Warm, workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        run = Run(warm, Path(folder), fabric_script("conv"), "100000", str(workers), max_slots=workers)
        try:
            run.members(*range(workers))
            run.until_step(1)
            return next(line.t for line in run.lines() if line.event.kind == "train") - began
        finally:
            run.close()


def as_torchrun(warm: Warm, workers: int) -> tuple[float, float]:
    """The same script in the studio: from the order to the first step of all, and to the first step after one slot was taken away."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        run = Run(warm, Path(folder), TORCHRUN, max_slots=workers, torchrun="elastic", env={"STAYS": "1"})

        def steps() -> list[float]:
            logs = [path.read_text().splitlines() for path in run.result_dir.glob("log/worker-*/console.log")]
            return sorted(float(line.split()[-1]) for lines in logs for line in lines if line.startswith("first step"))

        try:
            run.members(*range(workers))
            run.until(lambda: len(steps()) == workers, what="the first step")
            changed = time.time()
            run.members(*range(workers - 1))
            run.until(lambda: len(steps()) == 2 * workers - 1, what="the first step with a slot less")
            return steps()[workers - 1] - began, steps()[-1] - changed
        finally:
            run.close()


def torchrun(workers: int) -> float | None:
    """None where it failed, which it now and then does."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "main.py"
        script.write_text(TORCHRUN)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", str(script)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        began = time.time()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-600:], file=sys.stderr)
            return None
        return max(float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("first step")) - began


def main(arguments: list[str]) -> None:
    rounds = 2 if report.asked_quick(__doc__, arguments) else 9
    warm = Warm()
    try:
        ours(warm, 2)  # the warm process itself may still be starting
        mine = [ours(warm, 2) for _ in range(rounds)]
        started, changed = zip(*(as_torchrun(warm, 2) for _ in range(rounds)), strict=True)
    finally:
        warm.close()
    tries = [torchrun(2) for _ in range(max(2, rounds // 3))]
    peer = [seconds for seconds in tries if seconds is not None]
    rows = [("ours, warm node", len(mine), median(mine), max(mine))]
    rows.append(("torchrun's script in the studio", len(started), median(started), max(started)))
    rows.append(("... after a slot was taken away", len(changed), median(changed), max(changed)))
    if peer:
        rows.append(("torchrun", len(peer), median(peer), max(peer)))
    report.table("Start to first step, 2 workers", ("what", "times", "p50 s", "max s"), rows)
    report.finish(
        "start",
        {"first_step_s": round(median(mine), 3), "as_torchrun_s": round(median(started), 3), "change_s": round(median(changed), 3)},
        {"torchrun_s": round(median(peer), 3) if peer else None, "torchrun_failed": len(tries) - len(peer)},
    )


if __name__ == "__main__":
    main(sys.argv[1:])
