"""The zip of a training definition that a form names by number, because it has arrived in pieces before the form was sent (`uploads`)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import BinaryIO

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404

from experiments import access, datastore, services
from experiments.models import DataUpload, Project, User


def find(user: User, project: Project, pk: int | None) -> DataUpload | None:
    """The zip of that number that the person has sent in full to the project."""
    try:
        upload = access.data_upload(user, pk or 0)
    except (Http404, PermissionDenied):
        return None
    wanted = upload.for_code and upload.project.pk == project.pk
    size_bytes = upload.size_bytes()
    return upload if wanted and size_bytes and sum(datastore.received(upload.key, 1)) == size_bytes else None


@contextlib.contextmanager
def taken(user: User, project: Project, pk: int) -> Iterator[tuple[BinaryIO, str]]:
    """(what to read, file name) of that zip, which is given up when it has been taken, or refused for what is in it."""
    upload = find(user, project, pk)
    if upload is None:  # the form is sent again, and the service finds what the first one made; or nothing, and says that this is empty
        yield io.BytesIO(), "The upload"
        return
    try:
        with datastore.opened(upload.key, 0) as file:
            yield file, upload.parts[0][0]
    except ValidationError as error:
        if "upload" in getattr(error, "error_dict", {}):
            services.drop_upload(upload)
        raise
    services.drop_upload(upload)
