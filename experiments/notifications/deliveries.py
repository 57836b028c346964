"""Sends what `rules` wrote down: e-mails and signed webhooks, with retries. Runs in Celery, never in a request.

A delivery is claimed before it is sent, by a compare-and-swap on its number of attempts, for longer than an attempt can take: two workers
never send the same one at the same time. One that was sent but not noted (the worker died in between) is sent again; its id lets the
receiver tell.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Callable
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F, QuerySet
from django.utils import timezone

from experiments.live import notify
from experiments.models import Delivery, Webhook
from experiments.notifications import webhook_client
from experiments.notifications.webhook_client import AddressRefused, RequestFailed

log = logging.getLogger(__name__)
WAITS_S = (30, 120, 600, 3600, 21_600)  # after the first, second ... attempt
CLAIM = dt.timedelta(minutes=2)
MOST_FAILURES = 10  # given up one after the other: the webhook is switched off
AT_ONCE = 20
LONGEST_BATCH = dt.timedelta(seconds=60)
_mailing, _posting = threading.Lock(), threading.Lock()  # slow receivers hold one thread of the worker each, not all


def send_due(clock: Callable[[], dt.datetime] = timezone.now) -> int:
    """How many were sent or given up. E-mails first, which no slow webhook holds up.

    What another thread of this process is at is left to it: slow servers keep two threads of it at most, and what comes as they end is
    sent by beat's next.

    `clock`: each delivery is claimed, signed and noted by the time at which its turn comes.
    """
    mails = Delivery.objects.filter(done_at=None, webhook=None)
    posts = Delivery.objects.filter(done_at=None).exclude(webhook=None)
    return _one_by_one(_mailing, mails, clock, by="person") + _one_by_one(_posting, posts, clock, by="webhook__created_by")


def _one_by_one(lock: threading.Lock, waiting: QuerySet[Delivery], clock: Callable[[], dt.datetime], *, by: str) -> int:
    """Those that are due, the oldest of each person in turn: nobody's many, or slow ones, keep the others' waiting for long."""
    if not lock.acquire(blocking=False):
        return 0
    try:
        began, ended, tried = clock(), 0, 0
        due = waiting.filter(next_at__lte=began).select_related("webhook", "person").order_by("next_at", "id")
        while tried < AT_ONCE:
            turn = [due.filter(**{by: who}).first() for who in list(due.order_by().values_list(by, flat=True).distinct()[:AT_ONCE])]
            for delivery in turn:
                if delivery is not None and clock() - began < LONGEST_BATCH:
                    ended, tried = ended + _attempt(delivery, clock), tried + 1
            if not turn or clock() - began >= LONGEST_BATCH:
                break
        return ended
    finally:
        lock.release()


def signature(secret: str, body: bytes, *, at: int) -> str:
    """The header X-EDT-Signature: HMAC-SHA256 over the time (Unix seconds), a point, and the body."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _attempt(delivery: Delivery, clock: Callable[[], dt.datetime]) -> bool:
    """Whether it is done with: sent, or given up."""
    now = clock()
    claimed = Delivery.objects.filter(pk=delivery.pk, done_at=None, attempts=delivery.attempts)
    if delivery.attempts > len(WAITS_S):  # its attempts ended with the process that made them
        if claimed.exists():
            _end(delivery, f"It was tried {delivery.attempts} times, and each time the studio ended meanwhile.", now, well=False)
        return True
    if not claimed.update(attempts=F("attempts") + 1, next_at=now + CLAIM):
        return False
    delivery.attempts += 1
    try:
        outcome = _post(delivery, delivery.webhook, now) if delivery.webhook is not None else _mail(delivery)
    except AddressRefused as refusal:
        _end(delivery, str(refusal), clock(), well=False)
    except (RequestFailed, OSError) as error:  # SMTP's errors are OSErrors
        return _try_again(delivery, str(error), clock())
    except Exception:  # a loop's edge: whatever is wrong with this one, the others are sent, and it is not tried for ever
        log.exception("Delivery %s cannot be sent.", delivery.pk)
        return _try_again(delivery, "It cannot be sent: the studio's log says why.", clock())
    else:
        _end(delivery, outcome, clock(), well=True)
    return True


def _try_again(delivery: Delivery, outcome: str, now: dt.datetime) -> bool:
    """Later; or it is given up, after as many attempts as there are waits."""
    if delivery.attempts > len(WAITS_S):
        _end(delivery, outcome, now, well=False)
        return True
    wait = dt.timedelta(seconds=WAITS_S[delivery.attempts - 1])
    Delivery.objects.filter(pk=delivery.pk).update(next_at=now + wait, outcome=outcome[:200])
    _note(delivery.webhook, outcome, now)
    return False


def _post(delivery: Delivery, webhook: Webhook, now: dt.datetime) -> str:
    body = json.dumps({"id": delivery.pk, **delivery.body}, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "EDT-Studio",
        "X-EDT-Event": str(delivery.body.get("event", "")),
        "X-EDT-Delivery": str(delivery.pk),
        "X-EDT-Signature": signature(webhook.secret, body, at=int(now.timestamp())),
    }
    return f"Answered {webhook_client.post(webhook.url, body, headers, allow=settings.EDT_WEBHOOK_ALLOW)}."


def _mail(delivery: Delivery) -> str:
    assert delivery.person is not None
    said = delivery.body
    run = said.get("run")
    text = f"{said['text']}\n\n{run['address']}\n" if run else f"{said['text']}\n"
    subject = f"[EDT Studio] {str(said.get('subject') or said['text']).splitlines()[0][:120]}"
    # One that is sent again, because nobody knows whether it arrived, has the same id: mail programs show it once.
    at = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    number = f"<delivery-{delivery.pk}.{int(delivery.created_at.timestamp())}@{at}>"
    headers = {"Message-ID": number, "Auto-Submitted": "auto-generated"}
    EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [said.get("to") or delivery.person.email], headers=headers).send()
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
