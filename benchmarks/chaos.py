"""Everything breaks while four jobs train: `python -m benchmarks.chaos --minutes N [--postgres] [--seed S]`.

A whole studio in a folder of its own (as root on a small disk of its own). Two people keep four jobs on four slots: when one is done the
next is sent. Meanwhile every component is killed or stopped for a while, at random and in pairs, workers and the studio's own process
included; the database is locked (SQLite) or ended and crashed (PostgreSQL); the disk is filled to the last byte. Then peace, until all
jobs have ended, and the tally: `differences`, jobs whose weights, optimizer state or metrics are not those of the same script run without
the studio on one slot; `lost` and `doubled`, steps whose metric the database lacks or the journal has twice; `open_grants`;
`processes_left` after Ctrl-C; `runs_failed`, jobs that did not complete. The same seed breaks the same things in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import _victims
from benchmarks.chaos_jobs import EPOCHS, JOBS, OPTIMIZERS, Jobs, Outcome, employ, outcome, patiently, reference
from benchmarks.report import finish, table
from tests.domain import postgres
from tests.e2e.studio import Studio, wait_until
from training_runtime import journal

PAUSE_S = (0.5, 4.0)  # between two blows
STOPPED_S, LOCKED_S, FULL_S, ABSENT_S = (0.2, 20.0), (1.0, 20.0), (1.0, 15.0), (0.5, 15.0)
ENDED_WITHIN_S = 600.0
STARTS_WITHIN_S = 90.0
Mend = Callable[[], None]


class Chaos:
    """Breaks things, and mends what would not mend itself in a real machine room: a full disk, a stopped process, a dead server."""

    def __init__(self, studio: Studio, server: postgres.Server | None, rng: random.Random, *, disk: bool) -> None:
        self._studio, self._server, self._rng = studio, server, rng
        self._healing = _victims.Healing()
        self._blows: list[Callable[[], Mend | None]] = [self._hit] * 12 + [self._database] + [self._disk] * disk
        self.count: Counter[str] = Counter()

    def blow(self) -> None:
        """One thing breaks, or two at once."""
        for _ in range(self._rng.choice((1, 1, 1, 2))):
            self._rng.choice(self._blows)()

    def peace(self) -> None:
        self._healing.at_once()
        self._revive()

    def _hit(self) -> None:
        assert self._studio.process is not None
        kinds = _victims.processes_by_kind(self._studio.home, self._studio.processes(), self._studio.process.pid)
        kind = self._rng.choice([each for each in _victims.KINDS if each in kinds])
        victims = [self._rng.choice(kinds[kind])]
        number = self._rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        self._note(f"{kind} {number.name}")
        _victims.strike(victims, number)
        if number == signal.SIGSTOP:
            self._healing.after(self._rng.uniform(*STOPPED_S), functools.partial(_victims.strike, victims, signal.SIGCONT))
        elif kind == "studio":
            self._healing.after(self._rng.uniform(*ABSENT_S), self._revive)

    def _revive(self) -> None:
        """A person starts the studio again, and once more where it says that it cannot (its database may be locked just then)."""
        assert self._studio.process is not None
        end = time.monotonic() + STARTS_WITHIN_S
        while self._studio.process.poll() is not None:
            try:
                self._studio.start()
            except AssertionError:
                if time.monotonic() > end:
                    raise
                self._note("studio could not start")
                time.sleep(1)

    def _database(self) -> None:
        if self._server is None:
            self._note("database locked")
            self._healing.after(self._rng.uniform(*LOCKED_S), _victims.lock(self._studio.home / "db.sqlite3"))
            return
        how = self._rng.choice((signal.SIGINT, signal.SIGQUIT))
        self._note(f"database {how.name}")
        self._server.end(how)
        self._healing.after(self._rng.uniform(*ABSENT_S), self._server.start)

    def _disk(self) -> None:
        self._note("disk full")
        self._healing.after(self._rng.uniform(*FULL_S), _victims.fill(self._studio.home))

    def _note(self, what: str) -> None:
        self.count[what] += 1
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


def folders(home: Path) -> dict[int, Path]:
    """Results folders by run, from what their journals say themselves."""
    first = {path.parent: next(iter(journal.follow(path)), None) for path in (home / "runs").glob(f"*/{journal.FILE_NAME}")}
    return {line.run: folder for folder, line in first.items() if line is not None}


def stored(run: int) -> dict[tuple[str, str], dict[int, float | None]]:
    """What the database has of a run."""
    from experiments.models import Metric

    points: dict[tuple[str, str], dict[int, float | None]] = {}
    for group, name, step, value in Metric.objects.filter(series__run=run).values_list("series__group", "series__name", "step", "value"):
        points.setdefault((group, name), {})[step] = value
    return points


def tally(studio: Studio, jobs: Jobs, expected: dict[str, Outcome]) -> Counter[str]:
    from experiments.models import Grant

    count: Counter[str] = Counter(dict.fromkeys(("differences", "lost", "doubled", "open_grants", "runs_failed"), 0))
    places = folders(studio.home)
    for run, state in jobs.states().items():
        if state != "completed":
            count["runs_failed"] += 1
            print(f"run {run}: {state}: {_reason(run)}")
            continue
        wanted, found, kept = expected[jobs.sent[run]], outcome(places[run]), stored(run)
        missing = [(name, step) for name, points in wanted.metrics.items() for step in points if step not in kept.get(name, {})]
        count["lost"] += len(missing)
        count["doubled"] += found.doubled
        if found.weights != wanted.weights or found.metrics != wanted.metrics or kept != wanted.metrics:
            count["differences"] += 1
            print(f"run {run} ({jobs.sent[run]}) differs from the same without the studio: {found.doubled} steps doubled")
            same = f"weights {found.weights == wanted.weights}, journal {found.metrics == wanted.metrics}"
            print(f"  {same}, missing in the database: {missing[:20]}")
            print(f"  {_describe_reading(run)}")
    count["open_grants"] = Grant.objects.filter(released_at__isnull=True).count()
    return count


def _describe_reading(run: int) -> str:
    """What the database says of how it was read, and the rare events of the run."""
    from experiments.models import JournalCursor, RunEvent

    cursor = JournalCursor.objects.get(run=run)
    events = [f"{event.at:%H:%M:%S} {event.kind} {event.message[:80]}" for event in RunEvent.objects.filter(run=run)]
    return f"rejected {cursor.rejected}, left out {cursor.left_out}; " + "; ".join(events[-40:])


def _reason(run: int) -> str:
    from experiments.models import TrainingRun

    found = TrainingRun.objects.get(pk=run)
    return f"{found.error_message} {found.error_traceback[-2000:]}"


def play(studio: Studio, chaos: Chaos, jobs: Jobs, rng: random.Random, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(patiently(jobs.live)) < JOBS:
            jobs.send(deadline_s=300)
        time.sleep(rng.uniform(*PAUSE_S))
        chaos.blow()
    chaos.peace()
    wait_until(lambda: not patiently(jobs.live), lambda: f"all jobs have ended\n{studio.tail()}", deadline_s=ENDED_WITHIN_S, every_s=0.5)
    wait_until(lambda: patiently(lambda: _all_taken_in(studio)), "all that was written is in the database", deadline_s=60, every_s=0.5)


def _all_taken_in(studio: Studio) -> bool:
    from experiments.models import JournalCursor

    read = dict(JournalCursor.objects.values_list("run_id", "offset"))
    return all((place / journal.FILE_NAME).stat().st_size <= read.get(run, 0) for run, place in folders(studio.home).items())


@contextlib.contextmanager
def staged(*, use_postgres: bool) -> Iterator[tuple[Studio, postgres.Server | None, bool]]:
    """A running studio, its database server if it has one, and whether its disk may be filled."""
    studio = Studio(first=use_postgres)  # a prepared home belongs to the database in it
    with contextlib.ExitStack() as leaving:
        server = leaving.enter_context(postgres.server()) if use_postgres else None
        disk = leaving.enter_context(_victims.disk_of_its_own(studio.home))
        os.environ.update(EDT_HOME=str(studio.home), DJANGO_SETTINGS_MODULE="webapp.settings")
        if server is not None:
            os.environ["DATABASE_URL"] = server.url
        leaving.callback(studio.close)
        studio.start()
        import django

        django.setup()
        from experiments.models import ClusterRules, Slot

        ClusterRules.objects.update_or_create(pk=1, defaults={"people_trust_each_other": True})  # it is played in weak boxes too
        wait_until(lambda: Slot.objects.count() == JOBS, lambda: f"the node has said what it has\n{studio.tail()}")
        yield studio, server, disk


def left_of(studio: Studio) -> list[psutil.Process]:
    """Its processes once it has stopped. Those that this process started itself are not among them: it uploads code as a studio does, and
    what looks at that for it knows the studio's home."""
    return [process for process in studio.processes() if process not in psutil.Process().children(recursive=True)]


def run(minutes: float, seed: int, *, epochs: int, use_postgres: bool) -> tuple[Counter[str], dict[str, Any]]:
    rng = random.Random(seed)
    with staged(use_postgres=use_postgres) as (studio, server, disk):
        aside = studio.home.with_suffix(".reference")
        aside.mkdir()
        try:
            expected = {optimizer: reference(optimizer, aside, epochs=epochs) for optimizer in OPTIMIZERS}
            jobs, chaos = employ(studio, epochs=epochs), Chaos(studio, server, rng, disk=disk)
            play(studio, chaos, jobs, rng, seconds=60 * minutes)
            count = tally(studio, jobs, expected)
            studio.stop()
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not left_of(studio), "no process is left", deadline_s=30)
            count["processes_left"] = len(left := left_of(studio))
            for process in left:
                print(f"left: {process.pid} {process.status()} {process.name()} {' '.join(process.cmdline())[:200]}\n{studio.tail()}")
        finally:
            subprocess.run(["rm", "-rf", str(aside)], check=True)
    table("What was broken", ("what", "times"), sorted(chaos.count.items()))
    return count, {
        "runs": len(jobs.sent),
        "blows": chaos.count.total(),
        "disk_filled": disk,
        "database": "postgres" if server else "sqlite",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one minute")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite: the server of the test packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of each job")
    given = parser.parse_args()
    count, what = run(given.minutes or (1 if given.quick else 10), given.seed, epochs=given.epochs, use_postgres=given.postgres)
    table("Chaos", ("figure", "value"), [*count.items(), *what.items()])
    finish("chaos", {**count, **what})


if __name__ == "__main__":
    main()
