"""What it costs that work on people's files is done by boxed children: `python -m benchmarks.file_work [--quick]`, as root for all of it.

One process, one caller: how long its first call takes, where the fork server has to be started for it, and the next ones: of a job that
does nothing, which is what a page pays for the box, and of usual ones; beside them the start of an interpreter. Then
the same with as many callers as a lane lets in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

from benchmarks import report

TABLE = "step,loss,accuracy\n" + "".join(f"{n},{n / 7:.5f},{n / 11:.5f}\n" for n in range(2000))


def timed(action: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of each."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        took.append(1000 * (time.perf_counter() - began))
    return took


def interpreter() -> None:
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


def a_second(action: Callable[[], object], rounds: int, *, callers: int) -> float:
    with ThreadPoolExecutor(callers) as threads:
        began = time.perf_counter()
        list(threads.map(lambda _: action(), range(rounds)))
        return rounds / (time.perf_counter() - began)


def main(arguments: list[str]) -> None:
    rounds = 100 if report.asked_quick(__doc__, arguments) else 1000
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"EDT_HOME": folder, "DJANGO_SETTINGS_MODULE": "webapp.settings_test", "EDT_LOG_LEVEL": "ERROR"}
        import django

        django.setup()
        from experiments.boxed import pool
        from experiments.definitions import codework
        from experiments.selectors import previews

        (path := Path(folder, "table.csv")).write_text(TABLE)
        code = Path(__file__).read_text()
        limits = pool.Limits(cpu_s=5, memory_bytes=512 << 20)

        def nothing() -> None:
            pool.ask("nothing", {}, limits=limits, wall_s=10)

        def preview() -> None:
            with open(path, "rb") as file:
                previews.preview(file, len(TABLE), name="table.csv")

        (first,) = timed(nothing, 1)
        rows, figures = [("the first call, with the start of the fork server", "ms", first, first)], {"first_ms": round(first, 1)}
        for name, what, action in (
            ("call", "a call that does nothing", nothing),
            ("interpreter", "a fresh interpreter that does nothing", interpreter),
            ("arguments", "the arguments of a script", lambda: codework.ask("scripts", texts={"main.py": code})),
            ("colours", "a file in colours", lambda: codework.ask("coloured", path="main.py", text=code)),
            ("changes", "what has changed in a file", lambda: codework.ask("differences", was=code, now=code + "x\n", most=1000)),
            ("table", "the preview of a table", preview),
        ):
            took = timed(action, rounds if action is not interpreter else rounds // 10)
            rows.append((what, "ms", median(took), quantiles(took, n=20)[-1]))
            figures[f"{name}_ms"] = round(median(took), 2)
        per_s = a_second(nothing, rounds, callers=pool.PAGES.size)
        rows.append((f"calls by {pool.PAGES.size} callers at once", "a second", per_s, per_s))
        report.table(f"Work on people's files: {pool.walls()}", ("what", "unit", "p50", "p95"), rows)
        report.finish("file_work", {**figures, "calls_per_s": round(per_s)})


if __name__ == "__main__":
    main(sys.argv[1:])
