"""Guessing passwords: by name, by address, through a proxy's header, and what it may not do to the person whose name is guessed at."""

from __future__ import annotations

import datetime as dt
import re
import threading
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments.accounts import logins, passwords
from experiments.models import LoginFailure, User
from tests import cast
from tests.web.conftest import As


def try_(client: Client, username: str = "alice", password: str = "wrong", address: str = "192.0.2.1", **headers: str) -> Any:
    sent = {"username": username, "password": password}
    return client.post(reverse("login"), sent, REMOTE_ADDR=address, headers=headers)


def fail(username: str, address: str, times: int, *, at: dt.datetime | None = None, browser: str = "") -> None:
    rows = [LoginFailure(username=username, address=address, browser=browser, at=at or timezone.now()) for _ in range(times)]
    LoginFailure.objects.bulk_create(rows)


def test_the_eleventh_try_is_not_looked_at_and_a_right_password_neither(alice: User) -> None:
    for _ in range(logins.MOST_TRIES):
        assert try_(Client()).status_code == 200
    answer = try_(Client(), password=cast.PASSWORD)
    assert answer.status_code == 429
    assert "Too many wrong passwords" in answer.content.decode()
    assert LoginFailure.objects.count() == logins.MOST_TRIES, "what is refused is not counted, or it would never end"
    assert try_(Client(), password=cast.PASSWORD, address="192.0.2.2").status_code == 302, "from elsewhere"


def test_a_forged_header_is_no_other_address(alice: User) -> None:
    fail("alice", "192.0.2.1", logins.MOST_TRIES)
    for place in range(5):
        assert try_(Client(), password=cast.PASSWORD, **{"X-Forwarded-For": f"10.0.0.{place}"}).status_code == 429


def test_one_address_does_not_try_one_password_on_everybody(alice: User) -> None:
    for place in range(logins.MOST_OF_ADDRESS):
        fail(f"person{place}", "192.0.2.1", 1)
    assert try_(Client(), password=cast.PASSWORD).status_code == 429
    assert try_(Client(), password=cast.PASSWORD, address="192.0.2.2").status_code == 302


def test_many_addresses_guess_at_a_name_without_keeping_its_owner_out(alice: User) -> None:
    known = Client()
    assert try_(known, password=cast.PASSWORD).status_code == 302
    known.post(reverse("logout"))
    for place in range(logins.MOST_OF_NAME):
        fail("alice", f"198.51.100.{place}", 1)
    guesser = try_(Client(), password=cast.PASSWORD, address="203.0.113.1")
    assert guesser.status_code == 429
    assert "a browser in which you have logged in before" in guesser.content.decode()
    assert try_(known, password=cast.PASSWORD).status_code == 302


def test_a_known_browser_has_tries_of_its_own_and_no_more(alice: User) -> None:
    known = Client()
    try_(known, password=cast.PASSWORD)
    known.post(reverse("logout"))
    for place in range(logins.MOST_TRIES):
        assert try_(known, address=f"198.51.100.{place}").status_code == 200
    assert try_(known, password=cast.PASSWORD, address="203.0.113.1").status_code == 429


def test_the_cookie_of_one_person_is_no_key_to_anothers_tries(alice: User, bob: User) -> None:
    client = Client()
    try_(client, username="bob", password=cast.PASSWORD)
    client.post(reverse("logout"))
    fail("alice", "198.51.100.1", logins.MOST_OF_NAME)
    assert try_(client, password=cast.PASSWORD).status_code == 429
    client.cookies[logins.COOKIE] = "forged"
    assert try_(client, password=cast.PASSWORD).status_code == 429


def test_a_refusal_ends_by_itself_and_with_a_new_password(alice: User) -> None:
    long_ago = timezone.now() - dt.timedelta(seconds=logins.WINDOW_S + 1)
    fail("alice", "192.0.2.1", logins.MOST_TRIES, at=long_ago)
    assert try_(Client(), password=cast.PASSWORD).status_code == 302
    fail("alice", "192.0.2.1", logins.MOST_TRIES)
    password = passwords.give_password("alice")
    assert try_(Client(), password=password).status_code == 302


def test_a_right_password_wipes_out_the_slips_before_it_and_old_rows_go(alice: User) -> None:
    fail("carol", "192.0.2.9", 3, at=timezone.now() - dt.timedelta(days=1))
    try_(Client())
    assert list(LoginFailure.objects.values_list("username", flat=True)) == ["alice"]
    try_(Client(), password=cast.PASSWORD)
    assert not LoginFailure.objects.exists()


def test_the_old_password_of_the_profile_is_not_guessed_at_either(alice: User, as_: As) -> None:
    client, sent = as_(alice), {"new_password1": "quite another one 7", "new_password2": "quite another one 7"}
    for _ in range(logins.MOST_TRIES):
        client.post(reverse("profile"), {**sent, "old_password": "wrong"})
    page = client.post(reverse("profile"), {**sent, "old_password": cast.PASSWORD}).content.decode()
    assert "Too many wrong passwords" in page
    alice.refresh_from_db()
    assert alice.check_password(cast.PASSWORD)


@pytest.mark.parametrize("password", ["alice12345", "12alice345", "Alicealice", "ecila-4711"])
def test_a_password_is_more_than_the_name(password: str, alice: User, as_: As) -> None:
    sent = {"old_password": cast.PASSWORD, "new_password1": password, "new_password2": password}
    assert "your username" in as_(alice).post(reverse("profile"), sent).content.decode()


def test_a_long_password_may_hold_the_name(alice: User, as_: As) -> None:
    sent = {"old_password": cast.PASSWORD, "new_password1": "alice keeps four slots", "new_password2": "alice keeps four slots"}
    assert as_(alice).post(reverse("profile"), sent).status_code == 302


def test_only_so_many_passwords_are_checked_at_a_time(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "_turns", threading.BoundedSemaphore(1))
    monkeypatch.setattr(logins, "TURN_S", 0.0)
    first, second = logins.Attempt("alice", "192.0.2.1"), logins.Attempt("alice", "192.0.2.2")
    with (
        logins.checking(first, now=timezone.now(), wrong=ValueError),
        pytest.raises(logins.HeldUp, match="try again"),
        logins.checking(second, now=timezone.now(), wrong=ValueError),
    ):
        pytest.fail("both were looked at")
    with logins.checking(second, now=timezone.now(), wrong=ValueError):
        pass


def test_after_a_wrong_password_the_keyboard_is_at_the_password_and_without_a_name_at_the_name(alice: User) -> None:
    for username, password, at in (("alice", "wrong", "password"), ("alice", "", "password"), ("", "x", "username")):
        focused = re.findall(r"<input[^>]* autofocus[^>]*>", try_(Client(), username, password).content.decode())
        assert len(focused) == 1 and f'name="{at}"' in focused[0], (username, focused)
