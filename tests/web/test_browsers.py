"""Where somebody is logged in: with which browser, from where and since when; and one of them logged out."""

from __future__ import annotations

import datetime as dt
from importlib import import_module
from typing import Any

from django.apps import apps
from django.contrib.sessions.backends.db import SessionStore as Before
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments.accounts import passwords, sessions
from experiments.models import BrowserSession, User
from tests import cast
from tests.web.conftest import As
from tests.web.seed import Seeded

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/18.0 Mobile/15E148 Safari/604.1"
)


def logged_in(person: User, agent: str = FIREFOX, address: str = "192.0.2.7") -> Client:
    browser = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    assert browser.post(reverse("login"), {"username": person.username, "password": cast.PASSWORD}).status_code == 302
    return browser


def found(person: User) -> list[sessions.LoggedInBrowser]:
    return sessions.browsers(person, now=timezone.now())


def test_the_profile_says_which_browsers_are_logged_in_and_logs_one_out(studio: Seeded) -> None:
    here, phone, bob = logged_in(studio.alice), logged_in(studio.alice, PHONE, "198.51.100.4"), logged_in(studio.bob)
    page = here.get(reverse("profile")).content.decode()
    assert all(words in page for words in ("Firefox on Linux", "192.0.2.7", "Mobile Safari on iOS", "198.51.100.4"))
    assert page.count("this one") == 1
    assert here.session.session_key not in page, "whoever has it is logged in"
    (other,) = (each for each in found(studio.alice) if "iOS" in each.words)
    key = phone.session.session_key
    said = here.post(reverse("log_out_browser", args=[other.name]), follow=True).content.decode()
    assert "That browser is logged out." in said
    assert phone.get(reverse("profile")).status_code == 302
    assert not passwords.logged_in([key]), "nor does a page that is open hear more"
    assert here.get(reverse("profile")).status_code == 200
    again = here.post(reverse("log_out_browser", args=[other.name]), follow=True).content.decode()
    assert "logged out already" in again
    (of_bob,) = found(studio.bob)
    here.post(reverse("log_out_browser", args=[of_bob.name]))
    assert bob.get(reverse("profile")).status_code == 200, "one's own alone"


def test_logins_that_have_ended_are_not_listed(studio: Seeded) -> None:
    here, there = logged_in(studio.alice), logged_in(studio.alice)
    there.post(reverse("logout"))
    assert len(found(studio.alice)) == 1
    third = logged_in(studio.alice)
    here.post(reverse("log_out_elsewhere"))
    studio.alice.refresh_from_db()
    assert [each.is_this for each in sessions.browsers(studio.alice, this=here.session.session_key, now=timezone.now())] == [True]
    assert third.get(reverse("profile")).status_code == 302


def test_an_administrator_sees_where_somebody_is_logged_in(studio: Seeded, as_: As) -> None:
    logged_in(studio.alice)
    page = as_(studio.dora).get(reverse("person", args=[studio.alice.pk])).content.decode()
    assert "Firefox on Linux" in page
    assert reverse("log_out_browser", args=[found(studio.alice)[0].name]) not in page


def test_it_is_said_when_one_was_used_last_and_written_now_and_then(studio: Seeded, monkeypatch: Any) -> None:
    here = logged_in(studio.alice)
    long_ago = timezone.now() - dt.timedelta(hours=1)
    BrowserSession.objects.update(seen_at=long_ago)
    here.get(reverse("projects"))
    (seen,) = found(studio.alice)
    assert seen.seen_at > long_ago
    here.get(reverse("projects"))
    assert found(studio.alice)[0].seen_at == seen.seen_at, "one write in ten minutes"

    def refuse(*_: object, **__: object) -> None:
        raise DatabaseError("database or disk is full")

    BrowserSession.objects.update(seen_at=long_ago)
    monkeypatch.setattr(type(BrowserSession.objects.all()), "update", refuse)
    assert here.get(reverse("projects")).status_code == 200


def test_who_was_logged_in_stays_so_through_the_upgrade(studio: Seeded) -> None:
    here = logged_in(studio.alice)
    row = BrowserSession.objects.get()
    BrowserSession.objects.all().delete()
    Session.objects.create(session_key=row.session_key, session_data=row.session_data, expire_date=row.expire_date)
    Session.objects.create(session_key="x" * 32, session_data=Before().encode({"_auth_user_id": "999"}), expire_date=row.expire_date)
    Session.objects.create(session_key="y" * 32, session_data="nonsense", expire_date=row.expire_date)
    import_module("experiments.migrations.0090_browser_sessions").take_over(apps, None)
    assert not Session.objects.exists()
    assert sorted(BrowserSession.objects.values_list("person", flat=True), key=str) == [studio.alice.pk, None, None]
    assert here.get(reverse("profile")).status_code == 200
    assert len(found(studio.alice)) == 1


def test_a_browser_that_says_nothing_of_itself_has_words_too() -> None:
    said = [sessions.browser_words(agent) for agent in ("", "curl/8.1", "\u202e<script>" * 20)]
    assert said[0] == "Unknown browser"
    assert said[1] == "curl"
    assert len(said[2]) <= 40
