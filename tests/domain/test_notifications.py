"""Who is told of what, once; by e-mail where they chose it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from experiments import access, services
from experiments.errors import DomainError
from experiments.models import Notification, NotificationKind, Project, RunState, TrainingRun, User
from experiments.notifications import deliveries
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages

pytestmark = pytest.mark.usefixtures("said")


def end(run: TrainingRun, state: str, *, reason: str = "It finished.", actor: User | None = None, now: dt.datetime | None = None) -> None:
    assert states.transition(run, state, reason=reason, now=now or timezone.now(), actor=actor)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    """Alice's, and nobody has been told of anything."""
    Notification.objects.all().delete()  # of their memberships
    return cast.run(project, by=alice, name="rates")


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ([RunState.COMPLETED], NotificationKind.COMPLETED, "rates (run {run}) has completed."),
        ([RunState.STARTING, RunState.FAILED], NotificationKind.FAILED, "rates (run {run}) has failed: because"),
    ],
)
def test_the_submitter_is_told_how_it_went(
    path: list[str], kind: str, words: str, run: TrainingRun, alice: User, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        for state in path:
            end(run, state, reason="because")
    told = Notification.objects.get()
    assert (told.person, told.kind, told.text, told.run) == (alice, kind, words.format(run=run.pk), run)
    assert said.about(f"user-{alice.pk}")


def test_a_name_of_another_direction_does_not_turn_the_sentence(run: TrainingRun) -> None:
    run.name = "תג 12"
    run.save(update_fields=["name"])
    end(run, RunState.COMPLETED)
    assert Notification.objects.get().text == f"\N{FIRST STRONG ISOLATE}תג 12\N{POP DIRECTIONAL ISOLATE} (run {run.pk}) has completed."


def suspend(run: TrainingRun, *, at: dt.datetime, reason: str = "its slots went elsewhere") -> None:
    end(run, RunState.STARTING, now=at)
    end(run, RunState.SUSPENDED, reason=reason, now=at)


def test_a_run_that_stays_suspended_is_told_of_once_and_later(run: TrainingRun, alice: User, said: SentMessages) -> None:
    now = timezone.now()
    suspend(run, at=now)
    for early in (dt.timedelta(0), states.LASTS - dt.timedelta(milliseconds=1)):
        assert states.tell_suspended(now + early) == 0
    assert not Notification.objects.exists()
    late = now + dt.timedelta(hours=1)  # however long nobody was there to look
    assert [states.tell_suspended(late), states.tell_suspended(late)] == [1, 0]
    told = Notification.objects.get()
    assert (told.person, told.kind, told.at) == (alice, NotificationKind.SUSPENDED, late)
    assert told.text == f"rates (run {run.pk}) is suspended: its slots went elsewhere"


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING, RunState.STOPPING, RunState.COMPLETED, RunState.FAILED])
def test_a_suspension_that_was_over_soon_is_not_told(state: str, run: TrainingRun) -> None:
    now = timezone.now()
    suspend(run, at=now)
    end(run, state, now=now + dt.timedelta(seconds=1))
    assert states.tell_suspended(now + dt.timedelta(days=1)) == 0
    assert not Notification.objects.filter(kind=NotificationKind.SUSPENDED).exists()


def test_each_suspension_has_its_own_while(run: TrainingRun) -> None:
    now = timezone.now()
    for second in range(0, 60, 9):
        suspend(run, at=now + dt.timedelta(seconds=second))
        assert states.tell_suspended(now + dt.timedelta(seconds=second + 8)) == 0
    assert states.tell_suspended(now + dt.timedelta(seconds=64)) == 1


def test_a_pause_is_told_as_a_change_of_somebody_elses_and_not_again_as_a_suspension(run: TrainingRun, alice: User, bob: User) -> None:
    now = timezone.now()
    for person in (alice, bob):
        services.pause_run(run, by=person, now=now)
        suspend(run, at=now)
        assert states.tell_suspended(now + states.LASTS) == 1
        services.resume_run(run, by=person, now=now)
    assert set(Notification.objects.values_list("kind", flat=True)) == {NotificationKind.CHANGED}


def test_who_did_it_themselves_is_not_told_and_others_changes_are(run: TrainingRun, alice: User, bob: User) -> None:
    services.set_priority(run, by=alice, priority=4000)
    assert not Notification.objects.exists()
    services.set_priority(run, by=bob, priority=4500)
    assert Notification.objects.get().text == f"rates (run {run.pk}): bob changed the priority from 4000 to 4500."
    services.stop_run(run, by=bob, reason="wrong data")
    assert Notification.objects.get(kind=NotificationKind.STOPPED).text == f"rates (run {run.pk}) was stopped: Stopped by bob: wrong data"


def test_ones_own_stop_is_not_told_when_the_process_is_gone(run: TrainingRun, alice: User) -> None:
    end(run, RunState.STARTING)
    end(run, RunState.STOPPING, actor=alice)
    end(run, RunState.STOPPED)
    assert not Notification.objects.exists()


def test_a_run_that_loses_its_slots_again_and_again_is_told_of_once_until_it_is_read(run: TrainingRun, alice: User) -> None:
    now = timezone.now()
    for minutes in (0, 4, 8, 9):
        later = now + dt.timedelta(minutes=minutes)
        suspend(run, at=later)
        assert states.tell_suspended(later + states.LASTS) == 1
        assert Notification.objects.count() == 1 + (minutes == 9)
        if minutes == 8:
            services.mark_read(alice, now=now)


def test_new_members_are_told_and_makers_of_projects_are_not(alice: User, charlie: User) -> None:
    project = services.create_project(by=alice, name="Digits")
    services.add_member(project, by=alice, username="charlie", role="viewer")
    assert [(told.person, told.text) for told in Notification.objects.all()] == [(charlie, "alice made you viewer of Digits.")]


def test_a_role_that_somebody_has_already_is_told_once(alice: User, charlie: User) -> None:
    project = services.create_project(by=alice, name="Digits")
    for _ in range(2):
        services.add_member(project, by=alice, username="charlie", role="viewer")
    services.set_role(project, by=alice, username="charlie", role="viewer")
    assert Notification.objects.filter(person=charlie).count() == 1
    services.set_role(project, by=alice, username="charlie", role="editor")
    assert Notification.objects.filter(person=charlie).count() == 2


def test_who_has_left_the_project_hears_no_more_of_it(project: Project, alice: User, bob: User) -> None:
    run = cast.run(project, by=bob, name="rates")
    services.remove_member(project, by=alice, username="bob")
    end(run, RunState.COMPLETED)
    assert not Notification.objects.filter(run=run).exists()


def test_nothing_is_told_of_what_was_chosen_away(run: TrainingRun, alice: User) -> None:
    cast.choose_notifications(alice, ways={NotificationKind.FAILED: ["page"]}, email="")
    run.submitted_by.refresh_from_db()
    end(run, RunState.COMPLETED)
    assert not Notification.objects.exists()


def test_a_topic_of_ones_own_is_nobody_elses(alice: User, bob: User) -> None:
    assert access.topic(alice, f"user-{alice.pk}")
    assert not access.topic(bob, f"user-{alice.pk}")
    assert not access.topic(alice, f"user-{alice.pk} ")


def test_e_mail_goes_where_it_was_chosen_and_only_where_the_studio_sends_any(run: TrainingRun, alice: User, settings: Any) -> None:
    cast.choose_notifications(alice, ways={NotificationKind.COMPLETED: ["mail"]}, email="alice@example.org")
    run.submitted_by.refresh_from_db()
    settings.EDT_EMAIL, settings.EDT_PUBLIC_URL = True, "https://studio.example.org"
    end(run, RunState.COMPLETED)
    assert deliveries.send_due() == 1
    assert deliveries.send_due() == 0
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (["alice@example.org"], f"[EDT Studio] rates (run {run.pk}) has completed.")
    assert f"https://studio.example.org/runs/{run.pk}/" in sent.body
    other = cast.run(run.experiment.project, by=alice, name="again")
    settings.EDT_EMAIL = False
    end(other, RunState.COMPLETED)
    assert deliveries.send_due() == 0


def test_e_mail_needs_an_address(alice: User) -> None:
    for email in ("", "nonsense"):
        with pytest.raises(DomainError):
            cast.choose_notifications(alice, ways={NotificationKind.COMPLETED: ["mail"]}, email=email)
