"""Verbs on notifications: mark them read, choose which ones, and webhooks."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from experiments import notices, notify, outward
from experiments.models import Delivery, Notice, NoticeKind, Project, User, Webhook
from experiments.outward import OutwardFailed, OutwardRefused
from experiments.services import checks

MOST_WEBHOOKS = 10


def mark_read(person: User, *, now: dt.datetime, notice: Notice | None = None) -> None:
    """One notice, or all."""
    found = Notice.objects.filter(person=person, read_at=None)
    if found.filter(**({"pk": notice.pk} if notice is not None else {})).update(read_at=now):
        notify.changed(f"user-{person.pk}", "notices")


def choose_notices(person: User, *, ways: Mapping[str, Sequence[str]], email: str) -> User:
    """Which kinds the person is told of in the page and by e-mail, and where to. Field: email."""
    address = email.strip()
    if address:
        try:
            validate_email(address)
        except ValidationError:
            checks.refuse("email", "This is not an e-mail address.")
    chosen = {kind: [way for way in ways.get(kind, ()) if way in (notices.IN_PAGE, notices.BY_MAIL)] for kind in NoticeKind.values}
    if not address and any(notices.BY_MAIL in each for each in chosen.values()):
        checks.refuse("email", "Give the address that e-mails shall go to.")
    person.notice_choices, person.email = chosen, address
    person.save(update_fields=["notice_choices", "email"])
    return person


def add_webhook(*, by: User, url: str, kinds: Sequence[str], project: Project | None = None) -> Webhook:
    """For the person's own events, or for all of a project's. Fields: url, kinds."""
    mine = Webhook.objects.filter(project=project) if project is not None else Webhook.objects.filter(person=by)
    if mine.count() >= MOST_WEBHOOKS:
        checks.refuse("url", f"There are {MOST_WEBHOOKS} webhooks already: delete one first.")
    chosen = [kind for kind in NoticeKind.values if kind in kinds]
    if not chosen:
        checks.refuse("kinds", "Choose at least one.")
    try:
        outward.look_up(url.strip(), allow=settings.EDT_WEBHOOK_ALLOW)
    except (OutwardRefused, OutwardFailed) as refusal:
        checks.refuse("url", str(refusal))
    owner = {"project": project} if project is not None else {"person": by}
    hook = Webhook.objects.create(url=url.strip(), kinds=chosen, secret=secrets.token_hex(24), created_by=by, **owner)
    checks.audit(by, "adds webhook %s", hook.pk)
    return hook


def delete_webhook(webhook: Webhook, *, by: User) -> None:
    checks.audit(by, "deletes webhook %s", webhook.pk)
    webhook.delete()


def try_webhook(webhook: Webhook, *, by: User, now: dt.datetime) -> Delivery:
    """Send it a word, and switch it on again if it was off. One of a project is then that of whoever did."""
    Webhook.objects.filter(pk=webhook.pk).update(active=True, failures=0, created_by=by)
    text = f"{by.username} has sent this to see whether it arrives."
    body = {"event": "test", "at": now.astimezone(dt.UTC).isoformat(timespec="seconds"), "text": text}
    delivery = Delivery.objects.create(webhook=webhook, body=body, created_at=now, next_at=now)
    notify.nudge_deliveries()
    return delivery
