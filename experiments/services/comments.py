"""Verbs on comments: say something about a run, say it otherwise, take it back. Who is named in it (@bob) and may see the run is told."""

from __future__ import annotations

import datetime as dt
import re
import uuid

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.live import notify
from experiments.models import RunComment, TrainingRun, User
from experiments.models.comments import COMMENT_LIMIT
from experiments.notifications import rules
from experiments.services import checks

MOST = 1000  # of a run
MOST_NAMED = 20
_NAMED = re.compile(r"(?<![\w@.+-])@([\w.+-]{1,150})")
_CODE = re.compile(r"```.*?(```|\Z)|`[^`\n]*`", re.DOTALL)  # "@dataclass" in it names nobody


def mentioned(text: str) -> list[str]:
    """Names of people, as written after an @ outside of code; each once."""
    return list(dict.fromkeys(name.rstrip(".") for name in _NAMED.findall(_CODE.sub(" ", text))))[:MOST_NAMED]


def add_comment(
    run: TrainingRun, *, by: User, text: str, idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None
) -> RunComment:
    """Field: text. The same request makes one."""
    clean, now = checked(text), now or timezone.now()
    if (before := _sent_before(run, by, idempotency_key)) is not None:
        return before
    if run.comments.filter(deleted_at=None).count() >= MOST:
        checks.refuse("text", f"The run has {MOST} comments: write into the run's note instead.")
    try:
        with transaction.atomic():
            made = RunComment.objects.create(run=run, author=by, text=clean, at=now, idempotency_key=idempotency_key)
            _tell(run, mentioned(clean), clean, by=by, now=now)
    except IntegrityError:
        if (before := _sent_before(run, by, idempotency_key)) is None:
            raise
        return before
    return made


def change_comment(comment: RunComment, *, by: User, text: str, now: dt.datetime | None = None) -> RunComment:
    """By its author alone. Who is named in it for the first time is told. Field: text."""
    if comment.author_id != by.pk:
        raise PermissionDenied("Somebody else wrote this comment.")
    clean, now = checked(text), now or timezone.now()
    with transaction.atomic():
        fresh = [name for name in mentioned(clean) if name not in mentioned(comment.text)]
        if comment.text != clean:
            comment.text, comment.edited_at = clean, now
            comment.save(update_fields=["text", "edited_at"])
        _tell(comment.run, fresh, clean, by=by, now=now)
    return comment


def delete_comment(comment: RunComment, *, by: User, any_ones: bool = False, now: dt.datetime | None = None) -> None:
    """By its author; `any_ones`: by who administers the project."""
    if comment.author_id != by.pk and not any_ones:
        raise PermissionDenied("Only its author or an admin of this project may delete a comment.")
    with transaction.atomic():
        RunComment.objects.filter(pk=comment.pk, deleted_at=None).update(deleted_at=now or timezone.now())
        checks.audit(by, "deletes comment %s on run %s", comment.pk, comment.run_id)
        notify.changed(f"run-{comment.run_id}", "comments")


def checked(text: str) -> str:
    """What is stored of it. Field: text."""
    clean = checks.text(text, field="text", limit=COMMENT_LIMIT)
    if not clean:
        checks.refuse("text", "Write something.")
    return clean


def _sent_before(run: TrainingRun, by: User, idempotency_key: uuid.UUID | None) -> RunComment | None:
    return RunComment.objects.filter(run=run, author=by, idempotency_key=idempotency_key).first() if idempotency_key is not None else None


def _tell(run: TrainingRun, names: list[str], text: str, *, by: User, now: dt.datetime) -> None:
    people = [person for person in User.objects.filter(username__in=names, is_active=True) if person != by]
    rules.notify_mention(run, people, text=text, by=by, now=now)
    notify.changed(f"run-{run.pk}", "comments")
