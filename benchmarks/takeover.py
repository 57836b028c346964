"""How long nothing is planned when a control side is gone: `python -m benchmarks.takeover [--quick]`.

Two control workers on PostgreSQL, as tests/platform/test_standby.py has them. The one with the clock is killed with -9: seconds until the
other has it, and until the next plan that nobody asked for. Then somebody takes the lock of every plan and is stopped (SIGSTOP): seconds
until plans go on, which is when the database gives him up.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from statistics import median

from benchmarks import report
from tests.platform.control_sides import HANGS_WITH_THE_LOCK, SIDES, ControlSides, running

LIMIT_S = 120.0


def until(condition: Callable[[], object], *, since: float) -> float:
    """Seconds from `since` (monotonic) to the first look at which it holds."""
    while not condition():
        if time.monotonic() > since + LIMIT_S:
            raise TimeoutError(f"it did not happen within {LIMIT_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - since


def kill(sides: ControlSides) -> tuple[float, float]:
    """Until the other has the clock, and until the next plan; both sides are there again afterwards."""
    first = sides.holder()
    other = SIDES[1 - SIDES.index(first)]
    log = sides.home / "log" / f"{first}.log"
    ready = log.read_text().count(" ready.")
    sides.kill(first)
    struck, before = time.monotonic(), sides.ticks()
    taken = until(lambda: sides.holder() == other, since=struck)
    planned = until(lambda: sides.ticks() > before, since=struck)
    sides.start_side(first)
    until(lambda: log.read_text().count(" ready.") > ready, since=time.monotonic())
    return taken, planned


def hang(sides: ControlSides) -> float:
    sides.start("hangs", HANGS_WITH_THE_LOCK)
    waits = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%clusterrules%FOR UPDATE%'"
    process = sides.processes["hangs"]
    until(lambda: sides.rows(waits) and _is_stopped(process.pid), since=time.monotonic())
    struck, before = time.monotonic(), sides.ticks()
    seconds = until(lambda: sides.ticks() > before, since=struck)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return seconds


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def main(arguments: list[str]) -> None:
    is_quick = report.asked_quick(__doc__, arguments)
    kills = 3 if is_quick else 10
    with running() as sides:
        sides.plan_go_on("with both")
        found = [kill(sides) for _ in range(kills)]
        hung = [hang(sides) for _ in range(1 if is_quick else 3)]
    taken, planned = zip(*found, strict=True)
    rows = [
        ("kill -9, the other has the clock", kills, median(taken), max(taken)),
        ("kill -9, the next plan unasked", kills, median(planned), max(planned)),
        ("hangs with the planner's lock, the next plan", len(hung), median(hung), max(hung)),
    ]
    report.table("A control side is gone", ("what", "times", "p50 s", "max s"), rows)
    report.finish(
        "takeover",
        {"taken_s": round(median(taken), 2), "planned_s": round(median(planned), 2), "hung_s": round(median(hung), 1)},
    )


if __name__ == "__main__":
    main(sys.argv[1:])
