"""Files of an archive on their way from where it was unpacked to where the studio keeps such files. Places have names that follow from the
import's key: an attempt that was killed leaves nothing that the next one does not find and replace."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from experiments.files import datastore, modelstore, removal
from experiments.files.modelstore import Draft
from experiments.models import DataAsset, ModelFile
from experiments.transfer.format import File, Manifest, Model

EARLIEST, LATEST = 0.0, 4e9  # Unix seconds that every file system takes


def folder_of_run(key: uuid.UUID, number: int) -> str:
    """`TrainingRun.folder` of the run that is called so in the archive."""
    return str(uuid.uuid5(key, f"run {number}"))


def key_of_data(key: uuid.UUID, number: int) -> uuid.UUID:
    return uuid.uuid5(key, f"data {number}")


def place_run(top: Path, files: Iterable[File], *, folder: str) -> None:
    _move_files(top, files, settings.EDT_HOME / "runs" / folder)


def place_data(top: Path, files: Iterable[File], *, key: uuid.UUID) -> None:
    _move_files(top, files, datastore.root(DataAsset(key=key)))


def place_model(top: Path, found: Model) -> list[str]:
    """Under `modelstore.files_stay`: the hashes of what was not there yet."""
    drafts = {file.sha256: Draft(top / file.entry, file.sha256, file.size_bytes) for file in found.files}
    return [sha256 for sha256, draft in drafts.items() if modelstore.store_file(draft)]


def take_back_models(hashes: Iterable[str]) -> None:
    """Under `modelstore.files_stay`: what was placed, unless a version has it."""
    some = set(hashes)
    for sha256 in some - set(ModelFile.objects.filter(sha256__in=some).values_list("sha256", flat=True)):
        modelstore.remove(sha256)


def take_back(found: Manifest, *, key: uuid.UUID) -> None:
    """What was placed of an import of which nothing came, but files of models. Raises OSError for what cannot be deleted."""
    for run in found.runs:
        removal.remove(settings.EDT_HOME / "runs" / folder_of_run(key, run.number))
    for data in found.data:
        removal.remove(datastore.root(DataAsset(key=key_of_data(key, data.number))))


def _move_files(top: Path, files: Iterable[File], target: Path) -> None:
    """Whatever the process's mask says, the users that runs are boxed as must be able to read what is theirs to read."""
    removal.remove(target)
    target.mkdir(mode=0o755, parents=True)
    made = {target}
    for file in files:
        to = target / file.path
        _make(to.parent, made)
        _move(top / file.entry, to)
        to.chmod(0o644)
        modified = min(max(file.modified, EARLIEST), LATEST) if file.modified == file.modified else EARLIEST  # not a number
        os.utime(to, (modified, modified))
    for folder in made:
        folder.chmod(0o755)


def _make(folder: Path, made: set[Path]) -> None:
    if folder not in made:
        _make(folder.parent, made)
        folder.mkdir(mode=0o755)
        made.add(folder)


def _move(source: Path, target: Path) -> None:
    """By a rename; by a copy where the stores are on different disks."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)
        source.unlink()
