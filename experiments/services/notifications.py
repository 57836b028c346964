"""Verbs on notifications: mark them read, choose which ones, and webhooks."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.core import signing
from django.core.validators import EmailValidator
from django.db import transaction

from experiments.django_validation import as_domain_error
from experiments.live import notify
from experiments.models import Delivery, Notification, NotificationKind, Project, User, Webhook
from experiments.notifications import rules, webhook_client
from experiments.notifications.webhook_client import AddressRefused, RequestFailed
from experiments.services import checks

MOST_WEBHOOKS = 10
MOST_CONFIRMATIONS = 3  # e-mails to addresses that are not confirmed, of one person in an hour
TOKEN_S = 3 * 24 * 3600


def mark_read(person: User, *, now: dt.datetime, notification: Notification | None = None) -> None:
    """One notification, or all."""
    found = Notification.objects.filter(person=person, read_at=None)
    if found.filter(**({"pk": notification.pk} if notification is not None else {})).update(read_at=now):
        notify.changed(f"user-{person.pk}", "notifications")


def choose_notifications(
    person: User, *, ways: Mapping[str, Sequence[str]], email: str, confirm_at: Callable[[str], str], now: dt.datetime
) -> User:
    """Which kinds the person is told of in the page and by e-mail, and where to. Field: email.

    An address that is not confirmed is sent one e-mail, with the address of the page that `confirm_at` says for a token, and nothing else.
    """
    address = email.strip()
    if address:
        with as_domain_error(field="email"):
            EmailValidator("This is not an e-mail address.")(address)
    chosen = {kind: [way for way in ways.get(kind, ()) if way in (rules.IN_PAGE, rules.BY_MAIL)] for kind in rules.kinds_for(person)}
    if not address and any(rules.BY_MAIL in each for each in chosen.values()):
        checks.refuse("email", "Give the address that e-mails shall go to.")
    with transaction.atomic():
        person.notification_choices, person.email = person.notification_choices | chosen, address
        person.save(update_fields=["notification_choices", "email"])
        if address and address != person.confirmed_email and settings.EDT_EMAIL:
            _ask_to_confirm(person, confirm_at(email_token(person, address)), now)
    return person


def email_token(person: User, address: str) -> str:
    return signing.dumps([person.pk, address], salt="confirm-email")


def email_of(token: str, person: User) -> str:
    """The address that the person confirms by this token; empty where it is not theirs, or too old."""
    try:
        number, address = signing.loads(token, salt="confirm-email", max_age=TOKEN_S)
    except (signing.BadSignature, ValueError):
        return ""
    return str(address) if number == person.pk else ""


def confirm_email(person: User, address: str) -> bool:
    """From now on e-mails go there. Not where the person has named another address meanwhile."""
    return bool(User.objects.filter(pk=person.pk, email=address).update(confirmed_email=address))


def _ask_to_confirm(person: User, link: str, now: dt.datetime) -> None:
    """Nothing in it but the username is anybody's choice: who types a stranger's address sends them no words of their own."""
    asked = Delivery.objects.filter(person=person, body__event="confirm", created_at__gt=now - dt.timedelta(hours=1))
    if asked.count() >= MOST_CONFIRMATIONS:
        checks.refuse("email", "Several e-mails to confirm an address were sent within the last hour: wait a while.")
    text = (
        f"{person.username} of EDT Studio wants to be told of training runs at this address. If that is you, open this page:\n\n{link}\n\n"
        "If not, do nothing: no more e-mails come."
    )
    body = {"event": "confirm", "text": text, "subject": "Confirm this address", "to": person.email}
    Delivery.objects.create(person=person, body=body, created_at=now, next_at=now)
    notify.nudge_deliveries()


def add_webhook(*, by: User, url: str, kinds: Sequence[str], project: Project | None = None) -> Webhook:
    """For the person's own events, or for all of a project's. Fields: url, kinds."""
    mine = Webhook.objects.filter(project=project) if project is not None else Webhook.objects.filter(person=by)
    if mine.count() >= MOST_WEBHOOKS:
        checks.refuse("url", f"There are {MOST_WEBHOOKS} webhooks already: delete one first.")
    chosen = [kind for kind in NotificationKind.values if kind in kinds]
    if not chosen:
        checks.refuse("kinds", "Choose at least one.")
    try:
        webhook_client.look_up(url.strip(), allow=settings.EDT_WEBHOOK_ALLOW)
    except (AddressRefused, RequestFailed) as refusal:
        checks.refuse("url", str(refusal))
    owner = {"project": project} if project is not None else {"person": by}
    hook = Webhook.objects.create(url=url.strip(), kinds=chosen, secret=secrets.token_hex(24), created_by=by, **owner)
    checks.audit(by, "adds webhook %s", hook.pk)
    return hook


def delete_webhook(webhook: Webhook, *, by: User) -> None:
    checks.audit(by, "deletes webhook %s", webhook.pk)
    webhook.delete()


def switch_off_webhooks(maker: User, *, because: str, project: Project | None = None) -> None:
    """All that the person has made, of their own or of a project; or of one project. An admin of it who sends one a test takes it over."""
    made = Webhook.objects.filter(created_by=maker, active=True)
    made = made.filter(project=project) if project is not None else made
    projects = set(made.exclude(project=None).values_list("project", flat=True))
    made.update(active=False, last_outcome=f"Switched off: {because}"[:200])
    for pk in sorted(projects):
        notify.changed(f"project-{pk}", "webhooks")


def try_webhook(webhook: Webhook, *, by: User, now: dt.datetime) -> Delivery:
    """Send it a word, and switch it on again if it was off. One of a project is then that of whoever did."""
    Webhook.objects.filter(pk=webhook.pk).update(active=True, failures=0, created_by=by)
    text = f"{by.username} has sent this to see whether it arrives."
    body = {"event": "test", "at": now.astimezone(dt.UTC).isoformat(timespec="seconds"), "text": text}
    delivery = Delivery.objects.create(webhook=webhook, body=body, created_at=now, next_at=now)
    notify.nudge_deliveries()
    return delivery
