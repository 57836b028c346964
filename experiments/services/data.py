"""Verbs on data assets: upload in pieces or in one form, rename, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from experiments import datastore, notify, tombstones
from experiments.datastore import DataRefused, Kept, Part
from experiments.models import DataAsset, DataUpload, Project, User
from experiments.services import checks, triggers

MOST_LOOSE_FILES = 10_000
MOST_UNFINISHED = 20  # uploads of a person in a project


def begin_upload(project: Project, *, by: User, name: str, description: str = "", parts: Sequence[Part]) -> DataUpload:
    """Announce files that will arrive in pieces. Fields: name, description, upload."""
    errors: list[ValidationError] = []
    clean_name = checks.each(errors, lambda: checks.name(name))
    clean_text = checks.each(errors, lambda: checks.text(description))
    checks.each(errors, lambda: _check(parts))
    checks.each(errors, lambda: checks.room(project, by=by, field="upload", more_bytes=sum(part.size_bytes for part in parts)))
    if DataUpload.objects.filter(project=project, created_by=by).count() >= MOST_UNFINISHED:
        errors.append(ValidationError({"upload": [f"You have {MOST_UNFINISHED} unfinished uploads here: finish or remove one first."]}))
    checks.collected(errors)
    assert clean_name is not None
    assert clean_text is not None
    announced = [[part.path, part.size_bytes] for part in parts]
    return DataUpload.objects.create(project=project, name=clean_name, description=clean_text, parts=announced, created_by=by)


def receive(upload: DataUpload, *, number: int, offset: int, body: BinaryIO) -> int:
    """Take in a piece of one of its files; the size of that file after it. Raises datastore.WrongOffset for a piece out of turn."""
    try:
        return datastore.append(upload.key, number, body, offset=offset, most_bytes=upload.parts[number][1])
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))


def finish_upload(upload: DataUpload, *, by: User, hashes: Sequence[str | None]) -> DataAsset:
    """Check what has arrived and make a data asset of it. Field: upload. Doing it again gives the same asset."""
    if (before := DataAsset.objects.filter(key=upload.key).first()) is not None:
        return before
    parts = [Part(path, size) for path, size in upload.parts]
    try:
        kept = datastore.keep(upload.key, parts, hashes)
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))
    return _store(upload, by, kept)


def add_data(project: Project, *, by: User, name: str, description: str = "", files: Sequence[tuple[str, int, BinaryIO]]) -> DataAsset:
    """A data asset of whole files: (path, size in bytes, what to read). Fields: name, description, upload."""
    upload = keep_files(project, by=by, name=name, description=description, files=files)
    try:
        return finish_upload(upload, by=by, hashes=[None] * len(files))
    except ValidationError:
        drop_upload(upload)
        raise


def keep_files(project: Project, *, by: User, name: str, description: str = "", files: Sequence[tuple[str, int, BinaryIO]]) -> DataUpload:
    """Whole files as an upload that has arrived and that a form can name later. Fields: name, description, upload."""
    parts = [Part(path, size) for path, size, _ in files]
    upload = begin_upload(project, by=by, name=name, description=description, parts=parts)
    try:
        for number, (_, _, body) in enumerate(files):
            body.seek(0)
            receive(upload, number=number, offset=0, body=body)
    except ValidationError:
        drop_upload(upload)
        raise
    return upload


def finish_kept(upload: DataUpload, *, by: User, name: str, description: str) -> DataAsset:
    """A data asset of files that `keep_files` kept, under another name. Fields: name, description, upload; what is wrong with the files
    themselves gives them up."""
    errors: list[ValidationError] = []
    clean_name = checks.each(errors, lambda: checks.name(name))
    clean_text = checks.each(errors, lambda: checks.text(description))
    checks.collected(errors)
    assert clean_name is not None
    assert clean_text is not None
    upload.name, upload.description = clean_name, clean_text
    upload.save(update_fields=["name", "description"])
    try:
        return finish_upload(upload, by=by, hashes=[None] * len(upload.parts))
    except ValidationError:
        drop_upload(upload)
        raise


def drop_upload(upload: DataUpload) -> None:
    """Give up an upload and delete what has arrived of it."""
    with transaction.atomic():
        tombstones.of_uploads([upload.key], by=upload.created_by, now=timezone.now())
        upload.delete()
        notify.changed(f"project-{upload.project_id}", "data")


def update_asset(asset: DataAsset, *, by: User, name: str, description: str) -> DataAsset:
    """Fields: name, description. The files never change."""
    asset.name, asset.description = checks.name(name), checks.text(description)
    asset.save(update_fields=["name", "description"])
    checks.audit(by, "updated data asset %s", asset.pk)
    notify.changed(f"project-{asset.project_id}", "data")
    return asset


def delete_asset(asset: DataAsset, *, by: User) -> None:
    """With its files. Refused while an experiment reads it."""
    try:
        with transaction.atomic():
            tombstones.of_assets([asset.key], by=by, now=timezone.now())
            checks.audit(by, "deletes data asset %s (%s)", asset.pk, asset.name)
            asset.delete()
            notify.changed(f"project-{asset.project_id}", "data")
    except ProtectedError as error:
        used = next(iter(error.protected_objects))
        raise ValidationError(f"The experiment {used} reads it: delete the experiment first.") from None


def _check(parts: Sequence[Part]) -> None:
    if len(parts) > MOST_LOOSE_FILES:
        checks.refuse("upload", f"{len(parts)} files are too many to send one by one, at most {MOST_LOOSE_FILES}: pack them into a .zip.")
    try:
        datastore.check(parts)
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))


def _store(upload: DataUpload, by: User, kept: Kept) -> DataAsset:
    facts = {
        "upload": upload.pk,
        "project": upload.project,
        "name": upload.name,
        "description": upload.description,
        "files": kept.files,
        "size_bytes": kept.size_bytes,
        "sha256": kept.sha256,
        "created_by": by,
    }
    with transaction.atomic():
        asset, made = DataAsset.objects.get_or_create(key=upload.key, defaults=facts)
        if DataUpload.objects.filter(pk=upload.pk).delete()[0]:
            tombstones.of_uploads([upload.key], by=by, now=timezone.now())
        if made:
            checks.audit(by, "adds data asset %s (%s) to project %s", asset.pk, asset.name, upload.project_id)
            notify.changed(f"project-{upload.project_id}", "data")
            triggers.data_arrived(asset, now=timezone.now())
    return asset
