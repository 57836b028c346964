"""Accounts: made, closed and opened again by administrators. Nothing of others, or of a project, goes with them."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth import authenticate
from django.db import connection
from django.test import Client
from django.utils import timezone

from experiments import services
from experiments.accounts import api_tokens, custody
from experiments.errors import DomainError
from experiments.models import (
    ApiToken,
    ClusterChange,
    Delivery,
    Membership,
    Notification,
    Project,
    Role,
    RunState,
    TrainingRun,
    User,
    Webhook,
)
from experiments.notifications import rules
from tests import cast

pytestmark = pytest.mark.django_db


@pytest.fixture
def dora() -> User:
    return cast.person("dora", staff=True)


def logged_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    assert client.get("/projects/").status_code == 200
    return client


def refusal(do: object) -> str:
    with pytest.raises(DomainError) as refused:
        do()  # type: ignore[operator]
    return str(refused.value)


def test_an_account_is_made_with_a_password_that_is_good(dora: User) -> None:
    made, password = services.make_person(by=dora, username="erin")
    assert authenticate(username="erin", password=password) == made
    assert not made.is_staff
    assert ClusterChange.objects.get().text == "dora made the account erin"
    assert password not in ClusterChange.objects.get().text


@pytest.mark.parametrize(
    ("name", "said"), [("Alice", "alice already"), ("", "Give a name"), ("a b", "Enter a valid username"), ("x" * 151, "at most 150")]
)
def test_a_name_that_cannot_be_one_or_is_taken_is_refused(dora: User, alice: User, name: str, said: str) -> None:
    before = User.objects.count()
    assert said in refusal(lambda: services.make_person(by=dora, username=name))
    assert User.objects.count() == before


def test_who_was_given_a_new_password_is_logged_out_and_keeps_tokens(dora: User, alice: User) -> None:
    client = logged_in(alice)
    services.create_token(by=alice, name="script", scope="read", days=None, now=timezone.now())
    password = services.give_new_password(alice, by=dora)
    assert client.get("/projects/").status_code == 302
    assert authenticate(username="alice", password=password) == alice
    assert ApiToken.objects.filter(person=alice).count() == 1


def test_a_closed_account_lets_nobody_in_and_what_was_theirs_stays(dora: User, alice: User, bob: User) -> None:
    project = cast.shared_project(alice, editor=bob, viewer=dora)
    run = cast.run(project, by=alice)
    client, others = logged_in(alice), logged_in(bob)
    token, secret = services.create_token(by=alice, name="script", scope="write", days=None, now=timezone.now())
    _, theirs = services.create_token(by=bob, name="his", scope="write", days=None, now=timezone.now())
    hook = Webhook.objects.create(project=project, created_by=alice, url="https://example.org/hook", kinds=["run.completed"])
    his = Webhook.objects.create(person=bob, created_by=bob, url="https://example.org/bob", kinds=["run.completed"])
    services.close_account(alice, by=dora, reason="has left")
    assert client.get("/projects/").status_code == 302
    assert authenticate(username="alice", password=cast.PASSWORD) is None
    assert api_tokens.owners([token.pk], now=timezone.now()) == {}
    assert ClusterChange.objects.latest("pk").reason == "has left"
    hook.refresh_from_db()
    assert (hook.active, "alice" in hook.last_outcome) == (False, True)
    # Nothing else.
    his.refresh_from_db()
    assert his.active
    assert others.get("/projects/").status_code == 200
    assert ApiToken.objects.get().person == bob
    assert Project.objects.filter(pk=project.pk).exists()
    assert Membership.objects.filter(project=project, user=alice).exists()
    run.refresh_from_db()
    assert run.state == RunState.QUEUED, "it goes on"
    assert secret != theirs


def test_runs_of_a_closed_account_are_stopped_where_that_is_asked_for(dora: User, alice: User, bob: User) -> None:
    project = cast.shared_project(alice, editor=bob, viewer=dora)
    run, other = cast.run(project, by=alice), cast.run(project, by=bob)
    services.close_account(alice, by=dora, stop_runs=True)
    run.refresh_from_db()
    other.refresh_from_db()
    assert (run.state, other.state) == (RunState.STOPPED, RunState.QUEUED)


def test_somebody_whose_account_is_closed_is_told_nothing(dora: User, alice: User, bob: User, settings: object) -> None:
    settings.EDT_EMAIL = True
    project = cast.shared_project(alice, editor=bob, viewer=dora)
    run = cast.run(project, by=alice)
    cast.choose_notifications(alice, ways={"run.failed": ["page", "mail"]}, email="alice@example.org")
    Webhook.objects.create(person=alice, created_by=alice, url="https://example.org/alice", kinds=["run.failed"])
    services.close_account(alice, by=dora)
    Webhook.objects.update(active=True)
    before = Notification.objects.count(), Delivery.objects.count()
    run = TrainingRun.objects.get(pk=run.pk)
    run.state = RunState.FAILED
    rules.notify_state(run, reason="out of memory", now=timezone.now(), actor=None)
    assert (Notification.objects.count(), Delivery.objects.count()) == before


def test_an_account_is_opened_again_without_what_it_had_for_scripts_or_the_cluster(dora: User, alice: User) -> None:
    other = cast.person("erin", staff=True)
    services.create_token(by=other, name="script", scope="admin", days=None, now=timezone.now())
    services.close_account(other, by=dora)
    password = services.open_account(other, by=dora)
    found = authenticate(username="erin", password=password)
    assert found == other
    assert not found.is_staff
    assert not ApiToken.objects.exists()


def test_one_administrator_always_stays(dora: User, alice: User) -> None:
    assert "only administrator" in refusal(lambda: services.set_administrator(dora, by=dora, administers=False))
    assert "your own account" in refusal(lambda: services.close_account(dora, by=dora))
    services.set_administrator(alice, by=dora, administers=True)
    services.set_administrator(dora, by=dora, administers=False)
    assert list(User.objects.filter(is_staff=True)) == [alice]
    assert "no administrator of the cluster any more" in refusal(lambda: services.make_person(by=dora, username="erin"))


def test_a_closed_account_cannot_be_given_a_password_or_the_cluster(dora: User, alice: User) -> None:
    services.close_account(alice, by=dora)
    services.close_account(alice, by=dora)  # once more changes nothing
    assert ClusterChange.objects.count() == 1
    assert "open it again" in refusal(lambda: services.give_new_password(alice, by=dora))
    assert "open it again" in refusal(lambda: services.set_administrator(alice, by=dora, administers=True))


@pytest.mark.django_db(transaction=True)
def test_of_two_administrators_who_close_each_other_one_is_left() -> None:
    people = [cast.person(name, staff=True) for name in ("dora", "erin")]
    start = threading.Barrier(2)

    def closes(who: User, by: User) -> None:
        start.wait()
        try:
            services.close_account(who, by=by)
        except DomainError:
            pass
        finally:
            connection.close()

    both = [threading.Thread(target=closes, args=pair) for pair in (people, people[::-1])]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert User.objects.filter(is_staff=True, is_active=True).count() == 1


def test_projects_that_one_person_administers_alone_are_handed_over(dora: User, alice: User, bob: User) -> None:
    alone = cast.shared_project(alice, editor=bob, viewer=dora, name="Alone")
    shared = cast.shared_project(alice, editor=bob, viewer=dora, name="Shared")
    services.set_role(shared, by=alice, username="bob", role=Role.ADMIN)
    assert list(custody.only_admin_of(alice)) == [alone]
    assert "no user" in refusal(lambda: services.hand_over(alice, by=dora, username="nobody"))
    assert services.hand_over(alice, by=dora, username="bob") == [alone]
    assert Membership.objects.get(project=alone, user=bob).role == Role.ADMIN
    assert Membership.objects.get(project=alone, user=alice).role == Role.ADMIN, "nobody has lost anything"
    assert "another admin" in refusal(lambda: services.hand_over(alice, by=dora, username="bob"))
    services.close_account(bob, by=dora)
    assert set(custody.only_admin_of(alice)) == {alone, shared}, "whose account is closed administers nothing"
