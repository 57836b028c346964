"""Files that a form names by number, because they have arrived before it was sent: the zip of a training definition that came in pieces
(`uploads`), and what came with a form that was refused for something else, so that nobody has to choose it again.

They are the person's own, in the project; whoever names another's names nothing. Those that no form takes go as any unfinished upload
does, after a week.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404

from experiments import access, services
from experiments.errors import DomainError
from experiments.files import datastore
from experiments.forms.definitions import FILE_AGAIN
from experiments.models import DataUpload, Project, User
from experiments.services.code import keep_code


def find(user: User, project: Project, pk: int | None, *, for_code: bool = True) -> DataUpload | None:
    """The files of that number that the person has sent in full to the project."""
    try:
        upload = access.data_upload(user, pk or 0)
    except (Http404, PermissionDenied):
        return None
    wanted = upload.for_code == for_code and upload.project.pk == project.pk
    size_bytes = upload.size_bytes()
    if not wanted or (for_code and not size_bytes):  # an empty file is data, and no code
        return None
    return upload if sum(datastore.received(upload.key, len(upload.parts))) == size_bytes else None


@contextlib.contextmanager
def consumed(user: User, project: Project, pk: int) -> Iterator[tuple[BinaryIO, str]]:
    """(what to read, file name) of that zip, which is given up when it has been taken, or refused for what is in it."""
    upload = find(user, project, pk)
    if upload is None:  # the form is sent again, and the service finds what the first one made; or nothing, and says that this is empty
        yield io.BytesIO(), "The upload"
        return
    try:
        with datastore.opened(upload.key, 0) as file:
            yield file, upload.parts[0][0]
    except DomainError as error:
        if "upload" in error.fields:
            services.drop_upload(upload)
        raise
    services.drop_upload(upload)


def number_of(form: forms.BaseForm) -> int | None:
    """The number that the form names, also where something else in it is wrong."""
    raw = str(form["kept"].value() or "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 18 else None


def keep_code_of(form: forms.BaseForm, user: User, project: Project, *, refused: bool = False) -> DataUpload | None:
    """Of a form that was refused (it has errors, or what it is a part of was `refused`): the code that it names, or that came with it and
    is kept from now on, unless the code is what is wrong with it."""

    def store_code(sent: list[Any]) -> DataUpload:
        return keep_code(project, by=user, file_name=_base(sent[-1].name), size_bytes=sent[-1].size, file=sent[-1])

    return _upload_of(form, user, project, store_code, for_code=True, refused=refused)


def keep_data_of(form: forms.BaseForm, user: User, project: Project, *, name: str) -> DataUpload | None:
    """The same of a form that adds data, or a version of it. `name`: that is typed so far."""

    def store_data(sent: list[Any]) -> DataUpload:
        called = name.strip()[:120] or _base(sent[0].name)[:120]
        return services.keep_files(project, by=user, name=called, files=[(_base(each.name), each.size, each) for each in sent])

    return _upload_of(form, user, project, store_data, for_code=False)


def spent(form: forms.BaseForm, user: User, project: Project, *, for_code: bool = True) -> None:
    """Give up what the form named where it has chosen another file since."""
    if (before := find(user, project, number_of(form), for_code=for_code)) is not None:
        services.drop_upload(before)


def _upload_of(
    form: forms.BaseForm, user: User, project: Project, keep: Callable[[list[Any]], DataUpload], *, for_code: bool, refused: bool = False
) -> DataUpload | None:
    sent = form.files.getlist(form.add_prefix("upload")) if form.is_bound and form.files else []
    if not sent or not (form.errors or refused):
        return find(user, project, number_of(form), for_code=for_code)
    spent(form, user, project, for_code=for_code)
    upload = None
    if "upload" not in form.errors:
        try:
            upload = keep(sent)
        except DomainError:  # no room, or too many of them
            form.add_error("upload", FILE_AGAIN)
    answered = form.data.copy()  # type: ignore[attr-defined]
    answered[form.add_prefix("kept")] = str(upload.pk) if upload else ""
    form.data = answered
    return upload


def _base(name: str | None) -> str:
    return (name or "").replace("\\", "/").rsplit("/", 1)[-1] or "file"
