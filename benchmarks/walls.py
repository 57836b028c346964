"""What the box around user code costs, and what it keeps from a neighbour. `python -m benchmarks.walls [--quick]`, as root for all of it;
`python -m training_runtime.host.rootless python -m benchmarks.walls` as somebody else.

Two hosts of one machine, one with the strongest box that works there and one without (`EDT_SANDBOX=off`), by turns: from the order until
a script's first line, and the steps of a training on one slot. Then a training on one slot beside a run on the other that computes in
eight processes at once, by turns with and without.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.models import fabric_script
from tests.host.conftest import HostUnderTest, until
from training_runtime.host import rootless
from training_runtime.host.settings import DRIVER
from training_runtime.user_ids import mapped_ids

DEADLINE_S = 120.0
FIRST_LINE = "import os, time\nopen(os.environ['RESULT_DIR'] + '/began', 'w').write(str(time.time()))\n"
HOG = """
import os
for _ in range(7):
    if not os.fork():
        break
open(os.environ["RESULT_DIR"] + "/began", "a").write("yes")
while True:
    pass
"""
FIRST_USER = 1_400_000_000 if mapped_ids() > 2_000_000_000 else rootless.UID_BASE  # there are few where it is run without root


class Machine:
    """A host with or without a box."""

    def __init__(self, folder: Path, *, boxed: bool, uid_base: int) -> None:
        folder.mkdir(mode=0o755)
        self.host, self._count = HostUnderTest(folder, uid_base), 0
        setting = {"EDT_SLOTS": "2", "EDT_THREADS_PER_SLOT": "1", "HOME": os.environ.get("HOME", "")}
        setting |= {} if boxed else {"EDT_SANDBOX": "off"}
        self.host.start(environment=setting, preload="torch,torch.distributed,numpy", driver=DRIVER)

    def begin(self, code: str, *arguments: str, slot: int) -> int:
        self._count += 1
        self.host.want(self.host.spec(self._count, "main.py", *arguments, code={"main.py": code}), slot)
        self.host.apply()
        return self._count

    def end(self, run: int) -> None:
        spec = self.host.wanted[run].spec
        self.host.want(spec, stop=True)
        self.host.apply()
        self.host.until_run(run, lambda seen: seen.exit_code is not None, deadline_s=DEADLINE_S)
        del self.host.wanted[run]
        self.host.apply()

    def began(self, run: int) -> Path:
        path = self.host.result(run) / "began"
        until(lambda: path.exists() and path.read_text(), deadline_s=DEADLINE_S, what=f"run {run} has begun")
        return path

    def steps(self, run: int) -> list[tuple[float, float]]:
        """(when it was done, how long it took) of each step so far."""
        path = self.host.result(run) / "journal.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(float(row["t"]), float(row["step_s"])) for row in rows if row["kind"] == "train"]

    def until_steps(self, run: int, count: int) -> list[tuple[float, float]]:
        until(lambda: len(self.steps(run)) >= count, deadline_s=DEADLINE_S, what=f"{count} steps\n{self.host.console(run)}")
        return self.steps(run)

    @contextmanager
    def running(self, code: str, *arguments: str, slot: int) -> Iterator[int]:
        run = self.begin(code, *arguments, slot=slot)
        yield run
        self.end(run)


def first_line_s(machine: Machine) -> float:
    asked = time.time()
    with machine.running(FIRST_LINE, slot=1) as run:
        return float(machine.began(run).read_text()) - asked


def step_s(machine: Machine, steps: int) -> float:
    with machine.running(fabric_script("conv"), "1000", "1", slot=1) as run:
        return median(took for _, took in machine.until_steps(run, steps)[steps // 4 :])


def beside_a_hog(machine: Machine, rounds: int, seconds: float) -> tuple[float, float]:
    """Seconds of a step without and with a run on the other slot that computes all it can."""
    found: dict[bool, list[float]] = {False: [], True: []}

    def window(run: int, hog: bool) -> None:
        since = time.time()
        until(lambda: time.time() > since + seconds, deadline_s=10 * seconds)
        found[hog] += [took for at, took in machine.steps(run) if at - took > since]

    with machine.running(fabric_script("conv"), "100000", "1", slot=1) as run:
        machine.until_steps(run, 50)
        for _ in range(rounds):
            window(run, hog=False)
            with machine.running(HOG, slot=2) as hog:
                machine.began(hog)
                window(run, hog=True)
    return median(found[False]), median(found[True])


def main(arguments: list[str]) -> None:
    is_quick = report.asked_quick(__doc__, arguments)
    rounds, steps = (3, 100) if is_quick else (15, 400)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)  # the users of runs go through it
        open_, boxed = (Machine(Path(folder, name), boxed=name == "boxed", uid_base=FIRST_USER) for name in ("open", "boxed"))
        for machine in (open_, boxed):
            stack.callback(machine.host.clean_up)
        level = boxed.host.look().node.sandbox_level
        starts = [(first_line_s(open_), first_line_s(boxed)) for _ in range(rounds)]
        paces = [(step_s(open_, steps), step_s(boxed, steps)) for _ in range(max(2, rounds // 3))]
        alone, beside = beside_a_hog(boxed, max(2, rounds // 3), 3.0 if is_quick else 6.0)
    start_ms = 1000 * median(box - free for free, box in starts)
    overhead = median(box / free for free, box in paces) - 1
    rows = [
        ("order to first line, no box", "ms", 1000 * median(free for free, _ in starts)),
        ("order to first line, in the box", "ms", 1000 * median(box for _, box in starts)),
        ("step, no box", "ms", 1000 * median(free for free, _ in paces)),
        ("step, in the box", "ms", 1000 * median(box for _, box in paces)),
        ("step in the box, the other slot at rest", "ms", 1000 * alone),
        ("step in the box, a hog on the other slot", "ms", 1000 * beside),
    ]
    report.table(f"The box of this machine: {level}", ("what", "unit", "p50"), rows)
    figures = {"start_ms": round(start_ms, 1), "step_overhead": round(overhead, 4), "neighbour_slowdown": round(beside / alone - 1, 3)}
    report.finish("walls", {**figures, "level": level})


if __name__ == "__main__":
    main(sys.argv[1:])
