"""Sends what `notices` wrote down: e-mails and signed webhooks, with retries. Runs in Celery, never in a request.

A delivery is claimed before it is sent, by a compare-and-swap on its number of attempts: two workers never send the same one at the same
time. One that was sent but not noted (the worker died in between) is sent again; its id lets the receiver tell.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import threading
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F

from experiments import notify, outward
from experiments.models import Delivery, Webhook
from experiments.outward import OutwardFailed, OutwardRefused

log = logging.getLogger(__name__)
WAITS_S = (30, 120, 600, 3600, 21_600)  # after the first, second ... attempt
CLAIM = dt.timedelta(minutes=2)
MOST_FAILURES = 10  # given up one after the other: the webhook is switched off
AT_ONCE = 20
_one_at_a_time = threading.Lock()  # slow receivers hold one thread of the worker, not all


def send_due(now: dt.datetime) -> int:
    """How many were sent or given up. Does nothing while another thread of this process is at it."""
    if not _one_at_a_time.acquire(blocking=False):
        return 0
    try:
        due = Delivery.objects.filter(done_at=None, next_at__lte=now).select_related("webhook", "person")
        return sum(_attempt(delivery, now) for delivery in due.order_by("next_at", "id")[:AT_ONCE])
    finally:
        _one_at_a_time.release()


def signature(secret: str, body: bytes, *, at: int) -> str:
    """The header X-EDT-Signature: HMAC-SHA256 over the time (Unix seconds), a point, and the body."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _attempt(delivery: Delivery, now: dt.datetime) -> bool:
    claimed = Delivery.objects.filter(pk=delivery.pk, done_at=None, attempts=delivery.attempts)
    if not claimed.update(attempts=F("attempts") + 1, next_at=now + CLAIM):
        return False
    delivery.attempts += 1
    try:
        outcome = _post(delivery, delivery.webhook, now) if delivery.webhook is not None else _mail(delivery)
    except OutwardRefused as refusal:
        _end(delivery, str(refusal), now, well=False)
    except (OutwardFailed, OSError) as error:  # SMTP's errors are OSErrors
        if delivery.attempts > len(WAITS_S):
            _end(delivery, str(error), now, well=False)
            return True
        wait = dt.timedelta(seconds=WAITS_S[delivery.attempts - 1])
        Delivery.objects.filter(pk=delivery.pk).update(next_at=now + wait, outcome=str(error)[:200])
        _note(delivery.webhook, str(error), now)
        return False
    else:
        _end(delivery, outcome, now, well=True)
    return True


def _post(delivery: Delivery, webhook: Webhook, now: dt.datetime) -> str:
    body = json.dumps({"id": delivery.pk, **delivery.body}, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "EDT-Studio",
        "X-EDT-Event": str(delivery.body.get("event", "")),
        "X-EDT-Delivery": str(delivery.pk),
        "X-EDT-Signature": signature(webhook.secret, body, at=int(now.timestamp())),
    }
    return f"Answered {outward.post(webhook.url, body, headers, allow=settings.EDT_WEBHOOK_ALLOW)}."


def _mail(delivery: Delivery) -> str:
    assert delivery.person is not None
    said = delivery.body
    run = said.get("run")
    text = f"{said['text']}\n\n{run['address']}\n" if run else f"{said['text']}\n"
    subject = f"[EDT Studio] {str(said['text']).splitlines()[0][:120]}"
    # One that is sent again, because nobody knows whether it arrived, has the same id: mail programs show it once.
    at = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    number = f"<delivery-{delivery.pk}.{int(delivery.created_at.timestamp())}@{at}>"
    headers = {"Message-ID": number, "Auto-Submitted": "auto-generated"}
    EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [delivery.person.email], headers=headers).send()
    return "Sent."


def _end(delivery: Delivery, outcome: str, now: dt.datetime, *, well: bool) -> None:
    Delivery.objects.filter(pk=delivery.pk).update(done_at=now, outcome=outcome[:200])
    _note(delivery.webhook, outcome, now, well=well)
    if not well:
        log.warning("Delivery %s is given up: %s", delivery.pk, outcome)


def _note(webhook: Webhook | None, outcome: str, now: dt.datetime, *, well: bool | None = None) -> None:
    """What happened last with a webhook, also for the pages that show it; one that never works is switched off."""
    if webhook is None:
        return
    mine = Webhook.objects.filter(pk=webhook.pk)
    mine.update(last_outcome=outcome[:200], last_at=now)
    if well:
        mine.update(failures=0)
    elif well is False:
        mine.update(failures=F("failures") + 1)
        mine.filter(failures__gte=MOST_FAILURES).update(active=False)
    notify.changed(f"user-{webhook.person_id}" if webhook.project_id is None else f"project-{webhook.project_id}", "webhooks")
