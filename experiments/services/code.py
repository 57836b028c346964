"""Zips of model code that arrive in pieces, by the same way as data (services.data), until a training definition takes them."""

from __future__ import annotations

from typing import BinaryIO

from django.conf import settings
from django.db import transaction

from experiments.files import datastore
from experiments.files.datastore import ContentRefused, Part
from experiments.models import DataUpload, Project, User
from experiments.services import checks
from experiments.services.data import begin_upload, drop_upload, keep_files


def begin_code(project: Project, *, by: User, file_name: str, size_bytes: int) -> DataUpload:
    """Announce a zip: the upload that the person has begun of a file of this name and size is gone on with. Field: upload."""
    if not size_bytes:
        checks.refuse("upload", f"{file_name} is empty: choose the file with the model code.")
    for before in DataUpload.objects.filter(project=project, created_by=by, for_code=True):
        if before.parts == [[file_name, size_bytes]]:
            return before
    if size_bytes > settings.EDT_MAX_UPLOAD_BYTES:
        most = settings.EDT_MAX_UPLOAD_BYTES >> 20
        checks.refuse("upload", f"{file_name} is larger than {most} MiB: leave data sets out and upload them as a data asset.")
    with transaction.atomic():
        upload = begin_upload(project, by=by, name=file_name[: checks.NAME_LIMIT], parts=[Part(file_name, size_bytes)])
        upload.for_code = True
        upload.save(update_fields=["for_code"])
    return upload


def keep_code(project: Project, *, by: User, file_name: str, size_bytes: int, file: BinaryIO) -> DataUpload:
    """The code that came whole with a form that was refused for something else: the form names it when it is sent again. Field: upload.
    It goes like any upload that nobody goes on with."""
    # In no transaction: as long as it takes to copy the file nobody else could write, or the database would give the transaction up.
    upload = keep_files(project, by=by, name=file_name[: checks.NAME_LIMIT], files=[(file_name, size_bytes, file)])
    upload.for_code = True
    upload.save(update_fields=["for_code"])
    return upload


def verify_code(upload: DataUpload, *, sha256: str | None) -> None:
    """Whether the zip has arrived as it was sent. Field: upload. One that has not is given up: sending it again begins anew."""
    (path, size_bytes), *_ = upload.parts
    if datastore.received(upload.key, 1) != [size_bytes]:
        checks.refuse("upload", f"{path} has not arrived in full: send it again, and only what is missing is sent.")
    try:
        datastore.verified(upload.key, [Part(path, size_bytes)], [sha256])
    except ContentRefused as refusal:
        drop_upload(upload)
        checks.refuse("upload", str(refusal))
