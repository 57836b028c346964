"""What goes outward: webhooks, signed, retried, and one slow receiver that keeps nobody waiting."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.models import Delivery, NotificationKind, Project, RunState, TrainingRun, User, Webhook
from experiments.notifications import deliveries, webhook_client
from tests.conftest import SentMessages
from tests.domain.test_notifications import end, run

__all__ = ["run"]  # a fixture

pytestmark = pytest.mark.usefixtures("said")
LOCAL = ["127.0.0.0/8"]


@dataclass
class Receiver:
    """A web server that keeps what it is sent. `answers`: statuses, one after the other, then 200."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.EDT_WEBHOOK_ALLOW = LOCAL
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            status = kept.answers.pop(0) if kept.answers else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", kept.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_address[1]}/hook?x=1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield kept
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_webhook_is_sent_a_signed_body(run: TrainingRun, alice: User, project: Project, receiver: Receiver) -> None:
    hook = services.add_webhook(by=alice, url=receiver.url, kinds=[NotificationKind.FAILED], project=project)
    end(run, RunState.STARTING)
    end(run, RunState.FAILED, reason="no data")
    now = timezone.now()
    assert deliveries.send_due(lambda: now) == 1
    ((headers, body),) = receiver.got
    said = json.loads(body)
    assert (said["event"], said["run"]["name"], said["project"]["id"]) == ("run.failed", "rates", project.pk)
    stamp, signature = (part.split("=")[1] for part in headers["X-EDT-Signature"].split(","))
    wanted = hmac.new(hook.secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(signature, wanted)
    assert (headers["X-EDT-Event"], headers["X-EDT-Delivery"]) == ("run.failed", str(said["id"]))
    hook.refresh_from_db()
    assert hook.last_outcome == "Answered 200."


def test_a_webhook_hears_of_its_own_events_only(run: TrainingRun, alice: User, bob: User, receiver: Receiver) -> None:
    services.add_webhook(by=alice, url=receiver.url, kinds=[NotificationKind.FAILED])
    services.add_webhook(by=bob, url=receiver.url, kinds=NotificationKind.values)
    end(run, RunState.COMPLETED)
    assert deliveries.send_due() == 0


def test_the_page_with_a_webhook_is_told_how_each_attempt_went(
    alice: User, project: Project, receiver: Receiver, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    mine = services.add_webhook(by=alice, url=receiver.url, kinds=NotificationKind.values)
    ours = services.add_webhook(by=alice, url=receiver.url, kinds=NotificationKind.values, project=project)
    receiver.answers = [500]
    now = timezone.now()
    for hook, topic in ((mine, f"user-{alice.pk}"), (ours, f"project-{project.pk}")):
        services.try_webhook(hook, by=alice, now=now)
        said.clear()
        with django_capture_on_commit_callbacks(execute=True):
            deliveries.send_due(lambda: now)
        assert [message["what"] for message in said.about(topic, "changed")] == [["webhooks"]]
    outcomes = Webhook.objects.order_by("pk").values_list("last_outcome", flat=True)
    assert list(outcomes) == ["127.0.0.1 answered 500.", "Answered 200."]


def test_what_fails_is_tried_again_later_and_given_up_in_the_end(run: TrainingRun, alice: User, receiver: Receiver) -> None:
    hook = services.add_webhook(by=alice, url=receiver.url, kinds=[NotificationKind.COMPLETED])
    end(run, RunState.COMPLETED)
    receiver.answers = [500, 302] + [404] * 10
    now = timezone.now()
    assert deliveries.send_due(lambda: now) == 0
    assert deliveries.send_due(lambda: now + dt.timedelta(seconds=29)) == 0
    assert len(receiver.got) == 1
    for wait in deliveries.WAITS_S:
        now += dt.timedelta(seconds=wait + 1)
        deliveries.send_due(lambda now=now: now)
    delivery = Delivery.objects.get()
    assert len(receiver.got) == delivery.attempts == len(deliveries.WAITS_S) + 1  # the redirect was not followed
    assert delivery.done_at is not None
    assert delivery.outcome == "127.0.0.1 answered 404."
    hook.refresh_from_db()
    assert (hook.failures, hook.active) == (1, True)
    Webhook.objects.filter(pk=hook.pk).update(failures=deliveries.MOST_FAILURES - 1)
    services.try_webhook(hook, by=alice, now=now)
    Webhook.objects.filter(pk=hook.pk).update(failures=deliveries.MOST_FAILURES - 1)
    receiver.answers = [404] * 10
    for wait in (0, *deliveries.WAITS_S):
        now += dt.timedelta(seconds=wait + 1)
        deliveries.send_due(lambda now=now: now)
    hook.refresh_from_db()
    assert not hook.active


def test_nobodys_many_slow_webhooks_keep_an_e_mail_or_anothers_webhook_waiting(
    run: TrainingRun, alice: User, bob: User, receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten of Alice's each take ten seconds by the clock: Bob's one is the second of all, and each is signed by its own time."""
    now, order = timezone.now(), []
    clock = [now]
    posted = webhook_client.post

    def slow(url: str, body: bytes, headers: dict[str, str], *, allow: Any) -> int:
        order.append((url[-1], int(headers["X-EDT-Signature"].split(",")[0].removeprefix("t="))))
        clock[0] += dt.timedelta(seconds=10)
        return posted(url, body, headers, allow=allow)

    monkeypatch.setattr(webhook_client, "post", slow)
    hooks = [
        services.add_webhook(by=alice, url=f"{receiver.url}&a", kinds=NotificationKind.values)
        for _ in range(services.notifications.MOST_WEBHOOKS)
    ]
    hooks.append(services.add_webhook(by=bob, url=f"{receiver.url}&b", kinds=NotificationKind.values))
    for hook in hooks:
        services.try_webhook(hook, by=hook.created_by, now=now)
    settings.EDT_EMAIL = True
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")
    Delivery.objects.create(person=User.objects.get(pk=bob.pk), body={"text": "late"}, created_at=now, next_at=now)
    assert deliveries.send_due(lambda: clock[0]) == 7
    assert len(mail.outbox) == 1
    start = int(now.timestamp())
    assert order == [(who, start + 10 * place) for place, who in enumerate("abaaaa")], "and no batch lasts for ever"


def test_a_delivery_whose_sending_breaks_is_tried_so_often_and_the_others_go_out(
    run: TrainingRun, alice: User, bob: User, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    broken, sound = (services.add_webhook(by=by, url=receiver.url, kinds=NotificationKind.values) for by in (alice, bob))
    for hook in (broken, sound):
        services.try_webhook(hook, by=hook.created_by, now=now)
    post = deliveries._post

    def breaking(delivery: Delivery, webhook: Webhook, at: dt.datetime) -> str:
        if webhook.pk == broken.pk:
            raise ValueError("nobody has thought of this")
        return post(delivery, webhook, at)

    monkeypatch.setattr(deliveries, "_post", breaking)
    for wait in (0, *deliveries.WAITS_S):
        now += dt.timedelta(seconds=wait + 1)
        deliveries.send_due(lambda at=now: at)
    assert [each.attempts for each in Delivery.objects.order_by("pk")] == [len(deliveries.WAITS_S) + 1, 1]
    assert not Delivery.objects.filter(done_at=None).exists()


def test_a_delivery_that_each_time_takes_the_studio_down_is_given_up(run: TrainingRun, alice: User, receiver: Receiver) -> None:
    hook, now = services.add_webhook(by=alice, url=receiver.url, kinds=NotificationKind.values), timezone.now()
    services.try_webhook(hook, by=alice, now=now)
    Delivery.objects.update(attempts=len(deliveries.WAITS_S) + 1)
    assert deliveries.send_due(lambda: now) == 1
    assert not receiver.got
    assert "each time the studio ended" in Delivery.objects.get().outcome


def test_a_delivery_that_somebody_else_has_claimed_is_left_alone(run: TrainingRun, alice: User, receiver: Receiver) -> None:
    services.add_webhook(by=alice, url=receiver.url, kinds=[NotificationKind.COMPLETED])
    end(run, RunState.COMPLETED)
    delivery = Delivery.objects.get()
    Delivery.objects.update(attempts=1)  # between our reading and our claim
    assert not deliveries._attempt(delivery, timezone.now)
    assert not receiver.got


def test_a_webhook_needs_events_and_an_open_address_and_there_are_not_many(alice: User, settings: Any) -> None:
    for changes in ({"kinds": []}, {"url": "http://127.0.0.1/"}, {"kinds": ["nonsense"]}):
        with pytest.raises(DomainError):
            services.add_webhook(**{"by": alice, "url": "https://1.1.1.1/", "kinds": [NotificationKind.FAILED], **changes})
    for _ in range(10):
        services.add_webhook(by=alice, url="https://1.1.1.1/", kinds=[NotificationKind.FAILED])
    with pytest.raises(DomainError, match="delete one first"):
        services.add_webhook(by=alice, url="https://1.1.1.1/", kinds=[NotificationKind.FAILED])


def test_a_projects_webhook_ends_with_its_makers_right_and_another_admin_may_take_it_over(
    project: Project, alice: User, bob: User, receiver: Receiver
) -> None:
    services.set_role(project, by=alice, username="bob", role="admin")
    for leave in (
        lambda: services.set_role(project, by=alice, username="bob", role="editor"),
        lambda: services.remove_member(project, by=alice, username="bob"),
    ):
        hook = services.add_webhook(by=bob, url=receiver.url, kinds=NotificationKind.values, project=project)
        own = services.add_webhook(by=alice, url=receiver.url, kinds=NotificationKind.values, project=project)
        leave()
        hook.refresh_from_db()
        own.refresh_from_db()
        assert (hook.active, own.active) == (False, True)
        assert "bob made it" in hook.last_outcome
        services.try_webhook(hook, by=alice, now=timezone.now())
        hook.refresh_from_db()
        assert (hook.active, hook.created_by) == (True, alice)
