"""How long other people's writes wait while a very large project is deleted and imported: `python -m benchmarks.large_projects [--quick]`.

On an SQLite file with the studio's own settings, as it is by default (DATABASE_URL measures another database): a second process writes a
small row all the time, as any click does, and says how long each took. `deleted_s` is what who deletes waits for.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks import report

if TYPE_CHECKING:
    from experiments.models import Project, User

RUNS, QUICK_RUNS = 2_000, 500
PAUSE_S = 0.005  # between two writes


def main() -> None:
    quick = report.asked_quick(__doc__, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as home:
        os.environ |= {"EDT_HOME": home, "DJANGO_SETTINGS_MODULE": "webapp.settings_test", "EDT_LOG_LEVEL": "ERROR"}
        figures = measure(QUICK_RUNS if quick else RUNS)
    report.table("large projects", ["", "figure"], [[name, value] for name, value in figures.items()])
    report.finish("large_projects", {name: round(value, 3) for name, value in figures.items()})


def measure(runs: int) -> dict[str, float]:
    import django

    django.setup()
    from django.core.management import call_command
    from django.utils import timezone

    from experiments import services
    from experiments.files import pruning
    from experiments.models import TrainingRun, User
    from experiments.ops import installation
    from experiments.services import deletion
    from experiments.transfer import exporting

    call_command("migrate", verbosity=0)
    installation.bind()
    alice = User.objects.create_user("alice")
    project = seeded(alice, runs)
    other = services.create_project(by=alice, name="Other")
    archive = b"".join(exporting.export(project, now=timezone.now(), studio="benchmark"))
    figures: dict[str, float] = {"runs": runs}

    def delete() -> float:
        began = time.perf_counter()
        services.delete_project(project, by=alice)
        took = time.perf_counter() - began
        while deletion.go_on(timezone.now()) or pruning.clear(timezone.now()):
            pass
        return took

    for name, work in (("imported", lambda: _imported(archive, alice)), ("deleted", delete)):
        took, waits = beside(work, other.pk)
        longest = sorted(waits)
        p99 = longest[int(0.99 * len(longest))]
        figures |= {f"{name}_s": took, f"{name}_wait_max_s": longest[-1], f"{name}_wait_p99_s": p99, f"{name}_writes": len(waits)}
    assert TrainingRun.objects.count() == runs, "those of the import"
    return figures


def seeded(alice: User, runs: int) -> Project:
    """Completed runs with histories and arguments, and no files."""
    from django.utils import timezone

    from experiments import services
    from experiments.models import JournalCursor, RunState, RunTransition, TrainingRun
    from experiments.runs import run_values
    from tests import cast

    project, now = services.create_project(by=alice, name="Large"), timezone.now()
    experiment = cast.experiment(project, by=alice, versions=[cast.definition(project, by=alice)], name="Rates")
    shared = {"experiment": experiment, "version": experiment.versions.get(), "submitted_by": alice, "submitted_at": now, "ended_at": now}
    for first in range(0, runs, 500):
        rows = [
            TrainingRun(name=f"rate {number}", command=f"main.py --lr {number} --seed 1", state=RunState.COMPLETED, **shared)
            for number in range(first, first + 500)
        ]
        made = TrainingRun.objects.bulk_create(rows)
        JournalCursor.objects.bulk_create(JournalCursor(run=run) for run in made)
        steps = [("", "queued"), ("queued", "starting"), ("starting", "running"), ("running", "completed")]
        RunTransition.objects.bulk_create(RunTransition(run=run, at=now, old=old, new=new, reason="") for run in made for old, new in steps)
        run_values.begin(made)
    return project


def _imported(archive: bytes, alice: User) -> float:
    from django.utils import timezone

    from experiments.models import ProjectImport
    from experiments.services import imports
    from experiments.transfer import importing

    began = time.perf_counter()
    order = imports.begin_import(by=alice, file_name="project.zip", size_bytes=len(archive), name="")
    for offset in range(0, len(archive), 8 << 20):
        imports.receive_archive(order, offset=offset, body=io.BytesIO(archive[offset : offset + (8 << 20)]))
    imports.finish_archive(order)
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert order.state == ProjectImport.State.DONE, order.says
    return time.perf_counter() - began


def beside(work: Callable[[], float], project: int) -> tuple[float, list[float]]:
    """What the work says, and the seconds of each write of another process meanwhile."""
    spawned = multiprocessing.get_context("spawn")
    here, there = spawned.Pipe()
    writer = spawned.Process(target=_write, args=(there, project))
    writer.start()
    there.close()  # so that its end is seen here
    here.recv()
    try:
        took = work()
    finally:
        here.send("enough")
        waits: list[float] = here.recv()
        writer.join()
    return took, waits


def _write(parent: Connection, project: int) -> None:
    import django

    django.setup()
    from django.db import OperationalError, transaction

    from experiments.models import Project

    waits: list[float] = []
    parent.send("ready")
    while not parent.poll():
        began = time.perf_counter()
        try:
            with transaction.atomic():
                Project.objects.filter(pk=project).update(description=str(len(waits)))
        except OperationalError:  # after 20 s: the click has failed
            pass
        waits.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    parent.send(waits)


if __name__ == "__main__":
    sys.exit(main())
