"""Verbs on data assets: upload in pieces or in one form, as a data set of its own or as the next version of one; rename, delete.

The numbers of versions are given under the lock of the project's row: whoever adds, renames or deletes one takes it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from experiments.errors import DomainError
from experiments.files import datastore, tombstones
from experiments.files.datastore import ContentRefused, DataRefused, Part, StoredFolder
from experiments.live import notify
from experiments.models import DataAsset, DataSeries, DataUpload, Experiment, Project, User
from experiments.models.data import NOTE_LIMIT
from experiments.services import checks, triggers

MOST_LOOSE_FILES = 10_000
MOST_UNFINISHED = 20  # uploads of a person in a project
Sent = tuple[str, int, BinaryIO]  # path, size in bytes, what to read


class SameFiles(DomainError):
    """What was sent is what the newest version of its data set is."""


def begin_upload(
    project: Project,
    *,
    by: User,
    name: str = "",
    description: str = "",
    parts: Sequence[Part],
    next_of: DataAsset | None = None,
    note: str = "",
) -> DataUpload:
    """Announce files that will arrive in pieces. `next_of`: any version of the data set whose next version they become; it has a name and a
    description already. `note`: what is new. Fields: name, description, note, upload."""
    errors: list[DomainError] = []
    said = checks.each(errors, lambda: _checked_fields(name, description, next_of, note))
    checks.each(errors, lambda: _check(parts))
    checks.each(errors, lambda: checks.room(project, by=by, field="upload", more_bytes=sum(part.size_bytes for part in parts)))
    if not _has_room_for_another(project, by):
        errors.append(DomainError({"upload": [f"You have {MOST_UNFINISHED} unfinished uploads here: finish or remove one first."]}))
    checks.collected(errors)
    announced = [[part.path, part.size_bytes] for part in parts]
    return DataUpload.objects.create(project=project, parts=announced, created_by=by, **said or {})


def _has_room_for_another(project: Project, by: User) -> bool:
    """The oldest that only a form would name again makes room, since nobody sees it anywhere else."""
    mine = list(DataUpload.objects.filter(project=project, created_by=by).order_by("created_at", "pk"))
    if len(mine) < MOST_UNFINISHED:
        return True
    oldest = next((each for each in mine if datastore.came_whole(each.key, [Part(*part) for part in each.parts])), None)
    if oldest is not None:
        drop_upload(oldest)
    return oldest is not None


def receive(upload: DataUpload, *, number: int, offset: int, body: BinaryIO) -> int:
    """Take in a piece of one of its files; the size of that file after it. Raises datastore.WrongOffset for a piece out of turn."""
    try:
        return datastore.append(upload.key, number, body, offset=offset, most_bytes=upload.parts[number][1])
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))


def finish_upload(upload: DataUpload, *, by: User, hashes: Sequence[str | None]) -> DataAsset:
    """Check what has arrived and make a data asset of it. Field: upload. Doing it again gives the same asset. An upload of what the newest
    version is already, or of what cannot be taken, is given up."""
    if (before := DataAsset.objects.filter(key=upload.key).first()) is not None:
        return before
    parts = [Part(path, size) for path, size in upload.parts]
    try:
        kept = datastore.store_upload(upload.key, parts, hashes)
    except ContentRefused as refusal:
        drop_upload(upload)
        checks.refuse("upload", str(refusal))
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))
    try:
        return _store(upload, by, kept)
    except SameFiles:
        drop_upload(upload)
        raise


def add_data(project: Project, *, by: User, files: Sequence[Sent], **said: Any) -> DataAsset:
    """A data asset of whole files. `said` and fields: as of `begin_upload`."""
    upload = keep_files(project, by=by, files=files, **said)
    try:
        return finish_upload(upload, by=by, hashes=[None] * len(files))
    except DomainError:
        drop_upload(upload)
        raise


def keep_files(project: Project, *, by: User, files: Sequence[Sent], **said: Any) -> DataUpload:
    """Whole files as an upload that has arrived and that a form can name later. `said` and fields: as of `begin_upload`."""
    parts = [Part(path, size) for path, size, _ in files]
    upload = begin_upload(project, by=by, parts=parts, **said)
    try:
        for number, (_, _, body) in enumerate(files):
            body.seek(0)
            receive(upload, number=number, offset=0, body=body)
    except DomainError:
        drop_upload(upload)
        raise
    return upload


def finish_kept(
    upload: DataUpload, *, by: User, name: str = "", description: str = "", next_of: DataAsset | None = None, note: str = ""
) -> DataAsset:
    """A data asset of files that `keep_files` kept, under another name or note. Fields as of `begin_upload`; what is wrong with the files
    themselves gives them up."""
    said = _checked_fields(name, description, next_of, note)
    for field, value in said.items():
        setattr(upload, field, value)
    upload.save(update_fields=list(said))
    try:
        return finish_upload(upload, by=by, hashes=[None] * len(upload.parts))
    except DomainError:
        drop_upload(upload)
        raise


def check_note(note: str) -> str:
    """One line. Field: note."""
    return checks.text(" ".join(note.split()), field="note", limit=NOTE_LIMIT)


def drop_upload(upload: DataUpload) -> None:
    """Give up an upload and delete what has arrived of it, unless that is done."""
    if upload.pk is None:
        return
    with transaction.atomic():
        tombstones.of_uploads([upload.key], by=upload.created_by, now=timezone.now())
        upload.delete()
        notify.changed(f"project-{upload.project_id}", "data")


def update_asset(asset: DataAsset, *, by: User, name: str, description: str) -> DataAsset:
    """Of all versions of its data set. Fields: name, description. The files never change."""
    said = {"name": checks.name(name), "description": checks.text(description)}
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=asset.project_id)
        DataAsset.objects.filter(series=asset.series_id).update(**said)
        DataUpload.objects.filter(series=asset.series_id).update(**said)
        checks.audit(by, "updated data asset %s", asset.pk)
        notify.changed(f"project-{asset.project_id}", "data")
    asset.name, asset.description = said["name"], said["description"]
    return asset


def delete_asset(asset: DataAsset, *, by: User) -> None:
    """One version, with its files. Refused while an experiment reads it."""
    _delete(asset, by=by, only=asset.pk)


def delete_versions(asset: DataAsset, *, by: User) -> None:
    """All versions of its data set, with their files: all or none. Refused while an experiment reads one of them."""
    _delete(asset, by=by)


def _delete(asset: DataAsset, *, by: User, only: int | None = None) -> None:
    try:
        with transaction.atomic():
            Project.objects.select_for_update().get(pk=asset.project_id)
            found = DataAsset.objects.filter(series=asset.series_id, **({} if only is None else {"pk": only}))
            tombstones.of_assets([each.key for each in found], by=by, now=timezone.now())
            for each in found:
                checks.audit(by, "deletes data asset %s (%s)", each.pk, each)
                each.delete()
            if not DataAsset.objects.filter(series=asset.series_id).exists():
                DataSeries.objects.filter(pk=asset.series_id).delete()
            notify.changed(f"project-{asset.project_id}", "data")
    except ProtectedError as error:
        used = next(each for each in error.protected_objects if isinstance(each, Experiment))
        what = "it" if only is not None or used.data_asset is None else f"v{used.data_asset.version}"
        raise DomainError(f"The experiment {used} reads {what}: delete the experiment first.") from None


def _checked_fields(name: str, description: str, next_of: DataAsset | None, note: str) -> dict[str, Any]:
    """Of an upload's row."""
    errors: list[DomainError] = []
    told = (name, description) if next_of is None else (next_of.name, next_of.description)
    said = {
        "name": checks.each(errors, lambda: checks.name(told[0])),
        "description": checks.each(errors, lambda: checks.text(told[1])),
        "note": checks.each(errors, lambda: check_note(note)),
        "series_id": next_of.series_id if next_of is not None else None,
    }
    checks.collected(errors)
    return said


def _check(parts: Sequence[Part]) -> None:
    if len(parts) > MOST_LOOSE_FILES:
        checks.refuse("upload", f"{len(parts)} files are too many to send one by one, at most {MOST_LOOSE_FILES}: pack them into a .zip.")
    try:
        datastore.check(parts)
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))


def _store(upload: DataUpload, by: User, kept: StoredFolder) -> DataAsset:
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=upload.project_id)
        if (before := DataAsset.objects.filter(key=upload.key).first()) is not None:  # finished twice at once: the other was faster
            return before
        asset = _next_version(upload, by, kept)
        if DataUpload.objects.filter(pk=upload.pk).delete()[0]:
            tombstones.of_uploads([upload.key], by=by, now=timezone.now())
        checks.audit(by, "adds data asset %s (%s) to project %s", asset.pk, asset, upload.project_id)
        notify.changed(f"project-{upload.project_id}", "data")
        triggers.data_arrived(asset, now=timezone.now())
    return asset


def _next_version(upload: DataUpload, by: User, kept: StoredFolder) -> DataAsset:
    """Under the project's lock. Of a data set that was deleted meanwhile it is the first of a new one."""
    of_set = DataSeries.objects.filter(pk=upload.series_id).first() if upload.series_id is not None else None
    series = of_set or DataSeries(project=upload.project)
    newest = series.versions.order_by("-version").first() if series.pk else None
    if newest is not None and newest.sha256 == kept.sha256:
        raise SameFiles({"upload": [f"These are the files of {newest}, the newest version: there is nothing new to keep."]})
    series.last_version += 1
    series.save()
    return DataAsset.objects.create(
        key=upload.key,
        upload=upload.pk,
        project=upload.project,
        series=series,
        version=series.last_version,
        name=newest.name if newest is not None else upload.name,  # it may have been renamed since
        description=newest.description if newest is not None else upload.description,
        note=upload.note,
        files=kept.files,
        size_bytes=kept.size_bytes,
        sha256=kept.sha256,
        created_by=by,
    )
