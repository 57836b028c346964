"""Carries out what a run's checkpoint policy decides: the only writer of DroppedCheckpoint. Files go by a tombstone, to the trash first."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import uuid
from collections.abc import Iterable

from django.db import transaction

from experiments.files import checkpoint_policy, runfiles, tombstones
from experiments.files.checkpoint_policy import Policy, Saved
from experiments.files.store import copies
from experiments.live import notify
from experiments.models import DroppedCheckpoint, Metric, ModelVersion, RunEvent, Tombstone, TrainingRun

_STEP = re.compile(r"model files of step ([0-9]+)")  # of events from before they said it in their detail


def apply(run: TrainingRun, *, now: dt.datetime) -> int:
    """Remove what the run's policy does not keep; how many. Harmless when repeated, and when two do it at once."""
    policy = checkpoint_policy.policy_of(run.checkpoints)
    if policy.keeps_all:
        return 0
    with transaction.atomic():
        TrainingRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        dropped = checkpoint_policy.decide(saved(run, policy), policy, held=referred_to(run))
        rows = [
            DroppedCheckpoint(
                run=run,
                at=now,
                step=each.saved.step,
                epoch=each.saved.epoch,
                paths=list(each.saved.paths),
                size_bytes=each.saved.size_bytes,
                reason=each.reason,
            )
            for each in dropped
        ]
        DroppedCheckpoint.objects.bulk_create(rows)
        tombstones.of_checkpoints([row.key for row in rows], now=now)
        if rows:
            notify.changed(f"run-{run.pk}", "events", "files")
    return len(rows)


def saved(run: TrainingRun, policy: Policy) -> list[Saved]:
    """The checkpoints that the run has written and that no policy has removed, with the values of the policy's metric."""
    gone = set(DroppedCheckpoint.objects.filter(run=run).values_list("step", flat=True))
    found = [each for each in map(_of_event, RunEvent.objects.filter(run=run, kind="checkpoint")) if each and each.step not in gone]
    values = _values(run, policy.metric, [each.step for each in found]) if policy.metric else {}
    return [
        Saved(each.step, each.epoch, each.paths, each.size_bytes, values.get(each.step), complete=_is_there(run, each)) for each in found
    ]


def referred_to(run: TrainingRun) -> set[str]:
    """Paths of the run's files that versions of models were made of: of a folder, all that is in it. (Receipts and reproductions refer to
    digests, and a run that continues this one to `checkpoint/`: no policy touches those.)"""
    named = ModelVersion.objects.filter(run=run.pk).values_list("path", flat=True)
    every = [path for detail in run.events.filter(kind="checkpoint").values_list("detail", flat=True) for path in detail.get("paths", ())]
    return {path for path in every for asked in named if path == asked or path.startswith(f"{asked}/")}


def move(stone_key: str, trash: int) -> None:
    """Move the files of a dropped checkpoint into an open folder. What is not there any more, or is no regular file, is left out."""
    try:
        key = uuid.UUID(stone_key)
    except ValueError:  # no tombstone that this studio wrote
        return
    row = DroppedCheckpoint.objects.filter(key=key).select_related("run").first()
    if row is None or not checkpoint_policy.is_checkpoint(row.paths):
        return
    copies.changed(Tombstone.Kind.RUN, row.run.folder)
    for path in row.paths:
        folder, _, name = path.rpartition("/")
        with contextlib.suppress(FileNotFoundError):
            os.close(runfiles.open_regular(row.run, path))
            at = runfiles.open_folder(runfiles.folder(row.run), folder)
            try:
                os.rename(name, name, src_dir_fd=at, dst_dir_fd=trash)
            finally:
                os.close(at)


def _of_event(event: RunEvent) -> Saved | None:
    """None where it is no checkpoint of an epoch. A journal is written beside user code: nothing in it is believed to be what it should."""
    detail, said = event.detail, _STEP.search(event.message)
    paths = tuple(path for path in detail.get("paths", ()) if isinstance(path, str))
    epoch = detail.get("epoch")
    if detail.get("role") != "model" or said is None or not checkpoint_policy.is_checkpoint(paths, epoch=epoch):
        return None
    number = epoch if isinstance(epoch, int) else int(paths[0].split("model_epoch_")[1].split("_")[0].split(".")[0])
    return Saved(int(said[1]), number, paths, detail["size_bytes"])


def _values(run: TrainingRun, metric: str, steps: Iterable[int]) -> dict[int, float]:
    group, _, name = metric.partition(" ")
    points = Metric.objects.filter(series__run=run, series__group=group, series__name=name, step__in=list(steps), value__isnull=False)
    return {step: value for step, value in points.values_list("step", "value") if value is not None}


def _is_there(run: TrainingRun, one: Saved) -> bool:
    size = 0
    for path in one.paths:
        try:
            found = runfiles.open_regular(run, path)
        except FileNotFoundError:
            return False
        size += os.fstat(found).st_size
        os.close(found)
    return size == one.size_bytes
