"""How fast journals get into the database, and how long a long curve takes to come back: `python -m benchmarks.ingest [--quick]`.

One process, the real way: lines from the file, parsed and checked, rows and cursor in one transaction for each batch, on an SQLite file
with the studio's own settings (DATABASE_URL measures another database). `live_ms` is the usual case: a few steps at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STEPS, QUICK_STEPS = 250_000, 50_000  # of two points each
LIVE_BATCHES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps instead of {STEPS}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as home:
        os.environ |= {"EDT_HOME": home, "DJANGO_SETTINGS_MODULE": "webapp.settings_test", "EDT_LOG_LEVEL": "ERROR"}
        figures = measure(steps=QUICK_STEPS if given.quick else STEPS)
    for name, value in figures.items():
        print(f"{name:<28}{value:>14,.1f}")
    print(json.dumps({"benchmark": "ingest", "figures": {name: round(value, 3) for name, value in figures.items()}, "peers": {}}))


def measure(*, steps: int) -> dict[str, float]:
    """Points per second for a long journal, milliseconds for a few new lines, and for the curves of the run page."""
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    run, journal_file = _run(steps)
    figures = {"points": 2.0 * steps, "points_per_s": 2 * steps / _timed(_catch_up(run))}
    figures["live_ms"] = _live(run, journal_file, steps) * 1000
    from experiments import selectors
    from experiments.models import TrainingRun

    row = TrainingRun.objects.get(pk=run)
    figures["curves_s"] = min(_timed(lambda: selectors.series(row, max_points=1000)) for _ in range(3))
    figures["curves_by_time_s"] = min(_timed(lambda: selectors.series(row, max_points=1000, x="time")) for _ in range(3))
    return figures


def _run(steps: int) -> tuple[int, Path]:
    """A run in a fresh project, and its journal of `steps` steps."""
    from experiments import services
    from experiments.files import runfiles
    from experiments.models import User
    from tests import cast
    from training_runtime import journal, journal_writer

    alice = User.objects.create_user("alice")
    run = cast.run(services.create_project(by=alice, name="benchmark"), by=alice)
    path = runfiles.make(run) / journal.FILE_NAME
    writer = journal_writer.Writer(path, run.pk)
    writer.write(cast.started(epochs=1, steps=steps))
    for step in range(1, steps + 1):
        writer.write(_step(step), t=1.79e9 + step / 100)
        if step % 10_000 == 0:
            writer.flush()
    writer.close()
    return run.pk, path


def _step(step: int) -> object:
    from training_runtime.journal import Train

    metrics = {"loss": 2.5 / step**0.5, "accuracy": 1 - 1 / (step + 1)}
    return Train(step=step, epoch=1 + step // 1000, metrics=metrics, samples=64, workers=4, step_s=0.01)


def _catch_up(run: int) -> Callable[[], object]:
    from django.utils import timezone

    from experiments.metrics import ingest

    return lambda: ingest.catch_up(run, now=timezone.now())


def _live(run: int, journal_file: Path, steps: int) -> float:
    """Seconds for five new steps, median: what a run that is being watched costs."""
    from training_runtime import journal_writer

    writer = journal_writer.Writer(journal_file, run)
    taken = []
    for batch in range(LIVE_BATCHES):
        for step in range(5):
            writer.write(_step(steps + 1 + batch * 5 + step))
        writer.flush()
        taken.append(_timed(_catch_up(run)))
    writer.close()
    return statistics.median(taken)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
