"""What projects and people take of the disk: runs' folders, which are counted here from time to time, data, code and models.

A run's folder was written by user code. So it is not walked here: that is done by the program that the node host measures with (`python -m
training_runtime.host.meter.disk_use`), which bears whatever it finds. A run that lives is counted every few minutes, and once more when it
has ended.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db.models import F, Q, QuerySet, Sum

from experiments.files import runfiles
from experiments.models import ClusterRules, DataAsset, DataUpload, DefinitionVersion, ModelFile, ProjectImport, TrainingRun
from experiments.models.runs import LIVE

log = logging.getLogger(__name__)
GB = 10**9  # as pages say sizes
COUNTED_AGAIN = dt.timedelta(minutes=2)  # of a run that lives
RUN_S = 10.0  # so long one is counted at most; what was found by then is a lower bound
TURN_S = 20.0
AT_ONCE = 500
_MEASURES = [sys.executable, "-m", "training_runtime.host.meter.disk_use"]


@dataclass(frozen=True)
class DiskUse:
    """Of a project, or of what one person has made in all of them, in bytes. `may`: as an administrator has set it; None: as much as there
    is."""

    runs: int = 0
    data: int = 0
    code: int = 0
    models: int = 0
    may: int | None = None

    @property
    def bytes(self) -> int:
        return self.runs + self.data + self.code + self.models

    @property
    def is_full(self) -> bool:
        return self.may is not None and self.bytes >= self.may


def spelled(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def of_projects(projects: Iterable[int]) -> dict[int, DiskUse]:
    """What each of these takes, as far as it is counted. Code is stored once, however many versions have it, and so are the files of
    models."""
    wanted, may = list(projects), ClusterRules.current().project_disk
    runs = _sums(TrainingRun.objects.filter(experiment__project__in=wanted), "experiment__project", "disk_bytes")
    data = _sums(DataAsset.objects.filter(project__in=wanted), "project", "size_bytes")
    held = DefinitionVersion.objects.filter(definition__project__in=wanted).order_by()
    code: dict[int, int] = {}
    for project, _, size in held.values_list("definition__project", "bundle", "bundle__size_bytes").distinct():
        code[project] = code.get(project, 0) + size
    models: dict[int, int] = {}
    files = ModelFile.objects.filter(version__model__project__in=wanted).order_by()
    for project, _, size in files.values_list("version__model__project", "sha256", "size_bytes").distinct():
        models[project] = models.get(project, 0) + size
    limits = {pk: may[str(pk)] * GB if str(pk) in may else None for pk in wanted}
    return {pk: DiskUse(runs.get(pk, 0), data.get(pk, 0), code.get(pk, 0), models.get(pk, 0), limits[pk]) for pk in wanted}


def of_project(project: int) -> DiskUse:
    return of_projects([project])[project]


def of_person(person: int) -> DiskUse:
    """Runs that they submitted, data and code that they brought, models that they registered, and what they have announced that is still
    to arrive."""
    may = ClusterRules.current().each_person_disk
    runs = TrainingRun.objects.filter(submitted_by=person).aggregate(taken=Sum("disk_bytes"))
    data = DataAsset.objects.filter(created_by=person).aggregate(taken=Sum("size_bytes"))["taken"] or 0
    announced = DataUpload.objects.filter(created_by=person).values_list("parts", flat=True)
    data += sum(size for parts in announced for _, size in parts)
    over = (ProjectImport.State.DONE, ProjectImport.State.REFUSED)
    data += sum(ProjectImport.objects.filter(created_by=person).exclude(state__in=over).values_list("size_bytes", flat=True))
    brought = DefinitionVersion.objects.filter(created_by=person).order_by()
    code = sum(size for _, size in brought.values_list("bundle", "bundle__size_bytes").distinct())
    files = ModelFile.objects.filter(version__created_by=person).order_by()
    models = sum(size for _, size in files.values_list("sha256", "size_bytes").distinct())
    return DiskUse(runs["taken"] or 0, data, code, models, may * GB if may is not None else None)


def _sums(found: QuerySet[TrainingRun] | QuerySet[DataAsset], by: str, what: str) -> dict[int, int]:
    rows = found.order_by().values_list(by).annotate(taken=Sum(what))
    return {project: taken or 0 for project, taken in rows}


def due(now: dt.datetime) -> QuerySet[TrainingRun]:
    """Runs that are to be counted, those first that were never, and of these the newest."""
    never = Q(disk_counted_at=None) & (Q(head_node__isnull=False) | Q(started_at__isnull=False) | Q(ended_at__isnull=False))
    lives = Q(state__in=LIVE, disk_counted_at__lt=now - COUNTED_AGAIN)
    ended_since = Q(ended_at__isnull=False, disk_counted_at__lt=F("ended_at"))
    return TrainingRun.objects.filter(never | lives | ended_since).order_by(F("disk_counted_at").asc(nulls_first=True), "-pk")


def count(now: dt.datetime) -> int:
    """A turn of counting; how many runs were."""
    begun, counted = time.monotonic(), 0
    runs = list(due(now).only("pk", "folder")[:AT_ONCE])
    if not runs:
        return 0
    with _measurer() as measurer:
        for run in runs:
            taken, files = _measure(measurer, runfiles.folder(run))
            TrainingRun.objects.filter(pk=run.pk).update(disk_bytes=taken, disk_files=files, disk_counted_at=now)
            counted += 1
            if time.monotonic() > begun + TURN_S:  # after one at least: on a machine that is slow to start a process, too, they are counted
                break
    return counted


@contextlib.contextmanager
def _measurer() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(_MEASURES, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # it has nothing to finish


def _measure(measurer: subprocess.Popen[str], folder: Path) -> tuple[int, int]:
    """Bytes, and files and folders; nothing where there is no such folder. Raises OSError when the measurer is gone."""
    assert measurer.stdin is not None
    assert measurer.stdout is not None
    nobody = {"shim": 0, "shim_ticks": 0, "driver": 0, "result_dir": str(folder)}
    order = {"folder": str(folder), "traces": nobody, "most_files": 0, "limit_s": RUN_S}
    measurer.stdin.write(json.dumps(order) + "\n")
    measurer.stdin.flush()
    answer = measurer.stdout.readline()
    if not answer:
        raise OSError("what runs take of the disk cannot be counted: who measures has ended")
    found = json.loads(answer)
    return (0, 0) if "problem" in found else (int(found["bytes"]), int(found["files"]))
