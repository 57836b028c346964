"""Verbs on the imports of projects: announce an archive, send it in pieces, have it taken in, give it up. The work itself is a task's
(`transfer.importing`)."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import BinaryIO

from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.files import datastore, tombstones
from experiments.files.datastore import DataRefused
from experiments.live import notify
from experiments.models import Project, ProjectImport, User
from experiments.services import checks
from experiments.transfer import reading

MOST_UNFINISHED = 5  # of a person
State = ProjectImport.State
BUSY = "It is being taken in: wait until that has ended."


def tell_of_export(project: Project, *, by: User) -> None:
    """To the log: who took what away is asked later."""
    checks.audit(by, "exports project %s (%s)", project.pk, project.name)


def begin_import(
    *, by: User, file_name: str, size_bytes: int, name: str = "", idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None
) -> ProjectImport:
    """Announce the archive of a project. `name`: of the project; empty: as in the archive. Fields: name, upload."""
    mine = ProjectImport.objects.filter(created_by=by)
    if (before := checks.same_request(mine, idempotency_key)) is not None:
        return before
    clean = checks.name(name) if name.strip() else ""
    called = checks.name(file_name.replace("\\", "/").rsplit("/", 1)[-1], field="upload", limit=255)
    _check_size(called, size_bytes)
    checks.room_of(by, field="upload", more_bytes=size_bytes)
    if mine.exclude(state__in=(State.DONE, State.REFUSED)).count() >= MOST_UNFINISHED:
        checks.refuse("upload", f"You have {MOST_UNFINISHED} unfinished imports: wait for one, or remove one first.")
    facts = {"file_name": called, "size_bytes": size_bytes, "name": clean, "idempotency_key": idempotency_key}
    try:
        with transaction.atomic():
            return ProjectImport.objects.create(created_by=by, created_at=now or timezone.now(), **facts)
    except IntegrityError:  # the same form at the same moment: the other was faster
        if (before := checks.same_request(mine, idempotency_key)) is None:
            raise
        return before


def receive_archive(order: ProjectImport, *, offset: int, body: BinaryIO) -> int:
    """Take in a piece; the size after it. Raises datastore.WrongOffset for a piece out of turn. Field: upload."""
    if order.state != State.ARRIVING:
        checks.refuse("upload", f"{order.file_name} has arrived in full already.")
    try:
        return datastore.append(order.key, 0, body, offset=offset, most_bytes=order.size_bytes)
    except DataRefused as refusal:
        checks.refuse("upload", str(refusal))


def finish_archive(order: ProjectImport) -> ProjectImport:
    """Have it taken in, if all has arrived: whether it is as it was sent is seen then, by the hashes in it. Doing it again changes nothing.
    Field: upload."""
    if order.state != State.ARRIVING:
        return order
    (arrived,) = datastore.received(order.key, 1)
    if arrived != order.size_bytes:
        checks.refuse(
            "upload", f"{order.file_name} has not arrived in full ({arrived} of {order.size_bytes} bytes): go on with the upload."
        )
    with transaction.atomic():
        if ProjectImport.objects.filter(pk=order.pk, state=State.ARRIVING).update(state=State.WAITING):
            order.state = State.WAITING
            checks.audit(order.created_by, "sends the archive of a project, import %s (%s)", order.pk, order.file_name)
            notify.changed(f"user-{order.created_by_id}", "imports")
            notify.nudge_imports()
    return order


def import_whole(
    *, by: User, file_name: str, size_bytes: int, body: BinaryIO, idempotency_key: uuid.UUID | None, now: dt.datetime
) -> ProjectImport:
    """All of it at once, as a form without script sends it. Field: upload."""
    order = begin_import(by=by, file_name=file_name, size_bytes=size_bytes, idempotency_key=idempotency_key, now=now)
    if order.state == State.ARRIVING and datastore.received(order.key, 1) == [0]:
        receive_archive(order, offset=0, body=body)
    return finish_archive(order)


def drop_import(order: ProjectImport, *, now: dt.datetime) -> None:
    """Give up an archive that is not taken in yet, with what has arrived; or forget what is said of one that is over. A project that came
    of it stays."""
    with transaction.atomic():
        found = ProjectImport.objects.select_for_update().filter(pk=order.pk).first()
        if found is None:
            return
        if found.state in (State.CHECKING, State.READING):
            checks.refuse("upload", BUSY)
        if not found.is_over():
            tombstones.of_uploads([found.key], by=found.created_by, now=now)
        found.delete()
        notify.changed(f"user-{found.created_by_id}", "imports")


def _check_size(name: str, size_bytes: int) -> None:
    if not size_bytes:
        checks.refuse("upload", f"{name} is empty: choose the archive of a project.")
    most = reading.most_bytes()
    if size_bytes > most:
        checks.refuse("upload", f"{name} has {size_bytes >> 20} MiB: choose the archive of a project, of at most {most >> 20} MiB.")
    if size_bytes > datastore.free_bytes():
        checks.refuse("upload", datastore.no_room(size_bytes))
