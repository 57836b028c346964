"""Notifications in the browser: the bell, the list, the choices, webhooks; and the page of shortcuts."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.core import mail
from django.urls import reverse
from django.utils import timezone

from experiments.models import Delivery, Experiment, ExperimentWatch, MetricWatch, Notification, NotificationKind, Project, User, Webhook
from experiments.notifications import deliveries
from experiments.runs import states
from tests import cast
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.text import one_line

pytestmark = pytest.mark.usefixtures("said")
HOOK = {"url": "https://1.1.1.1/hook", "kinds": [NotificationKind.FAILED]}


def fail(project: Project, by: User, name: str = "rates") -> Notification:
    run = cast.run(project, by=by, name=name)
    states.transition(run, "failed", reason="no data", now=timezone.now())
    return Notification.objects.get(run=run)


def test_each_notification_leads_to_what_it_is_about(studio: Seeded, as_: As) -> None:
    bob = User.objects.get(username="bob")
    Notification.objects.filter(person=bob).delete()
    about = {
        NotificationKind.COMPLETED: {"run": studio.completed},
        NotificationKind.MEMBER: {"project": studio.digits},
        NotificationKind.SLOT: {},
        NotificationKind.CHANGED: {},
    }
    for kind, what in about.items():
        Notification.objects.create(person=bob, kind=kind, at=timezone.now(), text=kind.label[:50], **what)
    page = one_line(as_(bob).get(reverse("notifications")).content.decode())
    leads = {
        text: (icon, to)
        for icon, to, text in re.findall(
            r'icons.svg#([a-z-]+)"/></svg> <div class="grow"><a href="([^"]+)" data-read="[^"]+"><bdi>([^<]+)', page
        )
    }
    assert list(leads.values())[::-1] == [
        ("checkmark--filled", reverse("run", args=[studio.completed.pk])),
        ("group", reverse("project", args=[studio.digits.pk])),
        ("warning--alt--filled", reverse("cluster") + "#nodes"),
        ("edit", reverse("notifications")),
    ]


def test_who_may_see_a_run_sets_thresholds_of_their_own(studio: Seeded, as_: As) -> None:
    victor, address = as_(User.objects.get(username="victor")), reverse("run", args=[studio.running.pk])
    sent = {"metric": "test accuracy", "side": "above", "threshold": "99.5"}
    assert victor.post(reverse("watch_metric", args=[studio.running.pk]), sent).url == address
    watch = MetricWatch.objects.get(person__username="victor")
    assert (watch.run, str(watch)) == (studio.running, "test accuracy above 99.5")
    shown = victor.get(address, {"part": "watches"}).content.decode()
    assert "rises above" in shown
    assert "falls below" not in shown, "that is Alice's"
    for wrong in ({"metric": "loss"}, {"threshold": "nan"}, {"threshold": ""}, {"side": "beside"}, {"metric": "train " + "x" * 300}):
        assert victor.post(reverse("watch_metric", args=[studio.running.pk]), {**sent, **wrong}).status_code == 302
    assert studio.running.watches.count() == 2
    assert as_(studio.alice).post(reverse("drop_watch", args=[watch.pk])).status_code == 404
    victor.post(reverse("drop_watch", args=[watch.pk]))
    assert not MetricWatch.objects.filter(pk=watch.pk).exists()


def test_thresholds_of_an_experiment_are_set_on_its_overview_and_removed_there(studio: Seeded, as_: As) -> None:
    victor, alice = as_(User.objects.get(username="victor")), as_(studio.alice)
    address = reverse("experiment_overview", args=[studio.experiment.pk])
    sent = {"metric": "train loss", "side": "below", "threshold": "0.25"}
    assert victor.post(reverse("watch_experiment", args=[studio.experiment.pk]), sent).url == address
    watch = ExperimentWatch.objects.get(person__username="victor")
    assert (watch.experiment, str(watch)) == (studio.experiment, "train loss below 0.25")
    listed = victor.get(address).content.decode().partition('<ul class="watches')[2].partition("</ul>")[0]
    assert "falls below 0.25" in listed
    assert "rises above" not in listed, "that is Alice's"
    for wrong in ({"metric": "loss"}, {"threshold": "inf"}, {"metric": ""}, {"side": "beside"}):
        assert victor.post(reverse("watch_experiment", args=[studio.experiment.pk]), {**sent, **wrong}).url == address
    assert studio.experiment.watches.count() == 2
    assert alice.post(reverse("drop_experiment_watch", args=[watch.pk])).status_code == 404
    assert victor.post(reverse("drop_experiment_watch", args=[watch.pk])).url == address
    assert not ExperimentWatch.objects.filter(pk=watch.pk).exists()


def test_a_new_experiment_carries_thresholds_and_edit_as_new_takes_them_along(studio: Seeded, as_: As) -> None:
    alice, address = as_(studio.alice), reverse("new_experiment", args=[studio.digits.pk])
    started = alice.get(address, {"like": studio.experiment.pk}).content.decode()
    assert '<details class="disclosure section-form" id="tell" open>' in started
    assert 'value="test accuracy"' in started
    assert 'id="tell">' in alice.get(address).content.decode(), "closed, where there is none"
    sent = {
        "idempotency_key": str(uuid.uuid4()), "name": "told", "versions": [studio.version.pk],
        "threshold-0-metric": "train loss", "threshold-0-side": "below", "threshold-0-threshold": "0.5",
        "threshold-1-metric": "", "threshold-1-side": "below", "threshold-1-threshold": "",
    }  # fmt: skip
    for wrong, said in (({"threshold-0-threshold": ""}, "Value: This field"), ({"threshold-0-metric": "loss"}, "loss: Name a curve")):
        refused = alice.post(address, {**sent, **wrong}).content.decode()
        assert said in refused
        assert 'id="tell" open>' in refused
    assert not Experiment.objects.filter(name="told").exists()
    made = Experiment.objects.get(pk=alice.post(address, sent).url.split("/")[2])
    assert [str(watch) for watch in made.watches.all()] == ["train loss below 0.5"]
    shown = alice.get(reverse("run", args=[made.runs.get().pk])).content.decode()
    assert "from its <a" in shown
    dropped = alice.post(reverse("drop_watch", args=[made.runs.get().watches.get().pk]), follow=True).content.decode()
    assert "removed from this run alone" in dropped
    assert made.watches.count() == 1


def test_the_bell_counts_what_is_unread_and_following_one_reads_it(project: Project, alice: User, as_: As) -> None:
    notification, client = fail(project, alice), as_(alice)
    same = fail(project, alice)
    assert "2 unread" in client.get(reverse("projects")).content.decode()
    listed = client.get(reverse("notifications")).content.decode()
    assert all(f"rates (run {each.run_id}) has failed: no data" in listed for each in (notification, same)), "of one name, and told apart"
    assert f'href="{reverse("run", args=[notification.run_id])}" data-read="{reverse("notification", args=[notification.pk])}"' in one_line(
        listed
    )
    assert client.get(reverse("notification", args=[notification.pk])).status_code == 405, "who only looks at an address reads nothing"
    assert "2 unread" in client.get(reverse("notifications"), {"part": "bell"}).content.decode()
    assert client.post(reverse("notification", args=[notification.pk])).status_code == 204
    assert "1 unread" in client.get(reverse("notifications"), {"part": "bell"}).content.decode()
    client.post(reverse("read_notifications"))
    assert " unread" not in client.get(reverse("notifications"), {"part": "bell"}).content.decode()


def test_a_notice_is_its_persons_alone_and_its_words_are_text(project: Project, alice: User, bob: User, as_: As) -> None:
    notification = fail(project, alice, "<script>alert(1)</script>")
    assert as_(bob).post(reverse("notification", args=[notification.pk])).status_code == 404
    assert b"<script>alert" not in as_(alice).get(reverse("notifications")).content
    assert "alert" not in as_(bob).get(reverse("notifications")).content.decode()


def test_choices_are_kept_and_e_mail_needs_an_address(alice: User, settings: Any, as_: As) -> None:
    settings.EDT_EMAIL = True
    client, address = as_(alice), reverse("notification_choices")
    offered = 2 * (len(NotificationKind) - 1)  # in the page, and a webhook's events; slots are for administrators
    assert client.get(address).content.decode().count(" checked") == offered
    assert "Give the address" in client.post(address, {NotificationKind.FAILED: ["page", "mail"], "email": ""}).content.decode()
    alice.refresh_from_db()
    assert alice.notification_choices == {}
    client.post(address, {NotificationKind.FAILED: ["page", "mail", "pigeon"], "email": "alice@example.org"})
    alice.refresh_from_db()
    assert alice.notification_choices[NotificationKind.FAILED] == ["page", "mail"]
    assert alice.notification_choices[NotificationKind.COMPLETED] == []
    assert alice.email == "alice@example.org"


def test_slots_that_look_ill_are_for_administrators_to_choose_to_hear_of(alice: User, dora: User, as_: As) -> None:
    address, kind = reverse("notification_choices"), NotificationKind.SLOT
    assert kind.value not in as_(alice).get(address).content.decode()
    assert kind.value in as_(dora).get(address).content.decode()
    as_(alice).post(address, {"email": ""})
    alice.refresh_from_db()
    assert kind not in alice.notification_choices, "should she come to be one, she is told"


def test_refused_choices_come_back_as_they_were_made_with_the_error_at_the_address(alice: User, settings: Any, as_: As) -> None:
    settings.EDT_EMAIL = True
    sent = {NotificationKind.FAILED: ["mail"], NotificationKind.MEMBER: ["page"], "email": "alice at <example>"}
    answer = as_(alice).post(reverse("notification_choices"), sent).content.decode()
    ticks = answer.partition("</table>")[0]
    assert [box.split('aria-label="')[1].split('"')[0] for box in ticks.split("<input")[1:] if " checked" in box] == [
        "A run of mine has failed: by e-mail",
        "I was added to a project, or my role has changed: in the page",
    ]
    field = answer.partition('id="email"')[2].partition("</div>")[0]
    assert 'value="alice at &lt;example&gt;"' in field
    assert 'aria-describedby="email_error"' in field
    assert "This is not an e-mail address." in field
    alice.refresh_from_db()
    assert (alice.notification_choices, alice.email) == ({}, "")


def test_a_webhook_is_added_shown_with_its_secret_tried_and_deleted(alice: User, bob: User, as_: As) -> None:
    client = as_(alice)
    assert (
        "127.0.0.1 is not on the open internet"
        in client.post(reverse("add_webhook"), {**HOOK, "url": "http://127.0.0.1/"}).content.decode()
    )
    assert not Webhook.objects.exists()
    client.post(reverse("add_webhook"), HOOK)
    hook = Webhook.objects.get(person=alice)
    assert hook.secret in client.get(reverse("notification_choices")).content.decode()
    assert as_(bob).post(reverse("delete_webhook", args=[hook.pk])).status_code == 404
    client.post(reverse("try_webhook", args=[hook.pk]))
    assert Delivery.objects.get().body["event"] == "test"
    client.post(reverse("delete_webhook", args=[hook.pk]))
    assert not Webhook.objects.exists()


def test_how_a_webhooks_test_went_comes_to_the_page_by_itself(alice: User, as_: As) -> None:
    client, address = as_(alice), reverse("notification_choices")
    client.post(reverse("add_webhook"), HOOK)
    hook = Webhook.objects.get(person=alice)

    def shown() -> str:
        return client.get(address, {"part": "hooks"}).content.decode()

    assert f'data-live="user-{alice.pk}" data-what="webhooks" hx-get="{address}?part=hooks"' in client.get(address).content.decode()
    assert "Nothing has been sent yet" in shown()
    answer = client.post(reverse("try_webhook", args=[hook.pk]), headers={"HX-Request": "true"})
    assert (answer.status_code, "A test is on its way" in answer.headers["HX-Trigger"]) == (204, True)
    assert "One is on its way" in shown()
    hook.deliveries.update(attempts=1, outcome="1.1.1.1 answered 500.")
    Webhook.objects.update(last_outcome="1.1.1.1 answered 500.", last_at=timezone.now())
    assert "Last: 1.1.1.1 answered 500." in shown()
    assert "tried again <time" in shown()
    assert "on its way" not in shown()


def test_a_projects_webhooks_are_its_admins(project: Project, alice: User, bob: User, charlie: User, as_: As) -> None:
    address = reverse("project_webhooks", args=[project.pk])
    assert [as_(person).get(address).status_code for person in (alice, bob, charlie)] == [200, 403, 404]
    assert "of mine" not in as_(alice).get(address).content.decode(), "they are everybody's runs"
    as_(alice).post(address, HOOK)
    assert "A run has failed</span>" in as_(alice).get(address).content.decode()
    hook = Webhook.objects.get(project=project)
    assert [as_(person).get(address, {"part": "hooks"}).status_code for person in (alice, bob, charlie)] == [200, 403, 404]
    assert as_(bob).post(reverse("delete_webhook", args=[hook.pk])).status_code == 403
    assert as_(charlie).post(reverse("try_webhook", args=[hook.pk])).status_code == 404
    assert as_(alice).post(reverse("delete_webhook", args=[hook.pk])).url == address


def test_many_notices_are_shown_a_page_at_a_time(studio: Seeded, as_: As) -> None:
    more = [Notification(person=studio.alice, kind=NotificationKind.COMPLETED, at=timezone.now(), text=f"old {n}") for n in range(120)]
    Notification.objects.bulk_create(more)
    client = as_(studio.alice)
    assert client.get(reverse("notifications")).content.decode().count('<li class="notification') == 50
    assert "101–122 of 122" in client.get(reverse("notifications"), {"offset": 100}).content.decode()
    assert "99+" in client.get(reverse("projects")).content.decode()


def test_single_keys_can_be_switched_off(alice: User, as_: As) -> None:
    client = as_(alice)
    assert "<body data-shortcuts" in client.get(reverse("shortcuts")).content.decode()
    client.post(reverse("shortcuts"), {})
    assert "<body data-shortcuts" not in client.get(reverse("shortcuts")).content.decode()
    client.post(reverse("shortcuts"), {"shortcuts": "on"})
    assert "<body data-shortcuts" in client.get(reverse("shortcuts")).content.decode()


def test_a_run_that_has_ended_takes_no_more_thresholds(studio: Seeded, as_: As) -> None:
    client, part = as_(studio.alice), {"part": "watch_form"}
    add = reverse("watch_metric", args=[studio.running.pk])
    assert f'action="{add}"' in client.get(reverse("run", args=[studio.running.pk]), part).content.decode()
    assert "<form" not in client.get(reverse("run", args=[studio.completed.pk]), part).content.decode()


def test_an_address_gets_nothing_but_one_message_until_its_owner_has_confirmed_it(
    project: Project, alice: User, bob: User, settings: Any, as_: As
) -> None:
    settings.EDT_EMAIL, settings.EDT_PUBLIC_URL = True, "https://studio.example.org"
    client, address = as_(alice), reverse("notification_choices")
    answer = client.post(
        address, {NotificationKind.FAILED: ["page", "mail"], "email": "stranger@example.org"}, follow=True
    ).content.decode()
    assert "Not confirmed: open the link" in answer
    fail(project, alice, "words that alice chose")
    assert deliveries.send_due() == 1
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (["stranger@example.org"], "[EDT Studio] Confirm this address")
    assert "words that alice chose" not in sent.body
    link = re.search(r"https://studio\.example\.org(/\S+)", sent.body)[1]  # type: ignore[index]
    assert as_(bob).get(link).status_code == as_(bob).post(link).status_code == 404
    assert "stranger@example.org" in client.get(link).content.decode()
    alice.refresh_from_db()
    assert alice.confirmed_email == "", "who looks at it confirms nothing"
    assert "E-mails go to" in client.post(link, follow=True).content.decode()
    alice.refresh_from_db()
    fail(project, alice)
    assert deliveries.send_due() == 1
    assert "Not confirmed" not in client.get(address).content.decode()
    client.post(address, {NotificationKind.FAILED: ["page", "mail"], "email": "other@example.org"})
    assert "is not the address below" in client.post(link, follow=True).content.decode(), "an old link confirms no new address"


def test_a_person_has_few_such_messages_sent(alice: User, settings: Any, as_: As) -> None:
    settings.EDT_EMAIL = True
    said = [as_(alice).post(reverse("notification_choices"), {"email": f"{n}@example.org"}, follow=True).content.decode() for n in range(4)]
    assert ["within the last hour" in each for each in said] == [False, False, False, True]
    assert Delivery.objects.count() == 3
    alice.refresh_from_db()
    assert alice.email == "2@example.org", "what was refused is not kept"
