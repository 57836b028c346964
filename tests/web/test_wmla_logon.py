"""Logging on as WMLA's clients do: names and passwords, tokens in either header, and how long they hold."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from experiments import services
from experiments.accounts import logins
from experiments.models import ApiToken, EndedToken, LoginFailure, User
from experiments.wmla import callers, tokens
from tests import cast
from tests.web import wmla
from tests.web.wmla import DL, SC, Script, basic


@pytest.fixture(autouse=True)
def nobody_is_remembered() -> None:
    callers._right.clear()


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def test_a_name_and_a_password_give_a_token_that_both_headers_take(alice: User) -> None:
    answer = Script(basic("alice")).get("/auth/v1/logon", Accept="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    token = answer.json()["accessToken"]
    assert Script({"X-Auth-Token": token}).json(f"{DL}/conf")["MSD_ENABLED"] is True
    assert Script({"Authorization": f"Bearer {token}"}).json(f"{DL}/conf/")["USERNAME"] == "alice"


def test_the_token_says_what_clients_read_of_it_and_lasts_eight_hours_and_more(alice: User) -> None:
    said = claims(wmla.of(alice).headers["X-Auth-Token"])
    assert (said["username"], said["sub"], said["role"]) == ("alice", "alice", "User")
    assert said["exp"] - said["iat"] >= 8 * 3600
    now = dt.datetime.fromtimestamp(said["iat"], dt.UTC)
    token = tokens.issue(alice, now=now)
    assert tokens.owner(token, now=now + dt.timedelta(hours=8)) == alice
    assert tokens.owner(token, now=now + tokens.LIFE) is None


@pytest.mark.parametrize("path", [f"{SC}/auth/logon", f"{SC}/auth/logon/", f"{DL}/conf", f"{DL}/status/", "/v1/preauth/validateAuth"])
def test_the_first_generation_sends_the_password_with_every_call(alice: User, path: str) -> None:
    assert Script(basic("alice")).get(path).status_code == 200
    assert Script(basic("alice", "wrong")).get(path).status_code == 401


def test_cloud_paks_clients_send_the_password_as_json(alice: User) -> None:
    body = {"username": "alice", "password": cast.PASSWORD}
    answer = Client().post("/icp4d-api/v1/authorize", body, content_type="application/json")
    assert tokens.owner(answer.json()["token"], now=timezone.now()) == alice
    assert Client().post("/icp4d-api/v1/authorize", {**body, "password": "wrong"}, content_type="application/json").status_code == 401
    for broken in ("[", "[]", "[" * 5000, '{"username": 1}', ""):
        assert Client().post("/icp4d-api/v1/authorize", broken, content_type="application/json").status_code == 401, broken[:20]


def test_a_new_password_ends_every_token(alice: User) -> None:
    script = wmla.of(alice)
    assert script.get(f"{DL}/conf").status_code == 200
    alice.set_password("another long secret")
    alice.save()
    answer = script.get(f"{DL}/conf", Accept="application/json")
    assert (answer.status_code, answer.json()["message"]) == (401, callers.OVER)
    assert Script(basic("alice")).get(f"{DL}/conf").status_code == 401, "the old password was remembered"


def test_a_closed_account_has_no_token(alice: User) -> None:
    script = wmla.of(alice)
    User.objects.update(is_active=False)
    assert script.get(f"{DL}/conf").status_code == 401
    assert Script(basic("alice")).get("/auth/v1/logon").status_code == 401


def test_a_token_that_is_logged_off_is_over_and_others_are_not(alice: User) -> None:
    one, other = wmla.of(alice), wmla.of(alice)
    assert one.call("post", "/auth/v1/logoff").status_code == 200
    assert one.get(f"{DL}/conf").status_code == 401
    assert other.get(f"{DL}/conf").status_code == 200
    tokens.end(other.headers["X-Auth-Token"], now=timezone.now() + 2 * tokens.LIFE)
    assert EndedToken.objects.count() == 1, "one that is over anyway need not be remembered"


def test_a_token_of_somebody_elses_making_is_none(alice: User, bob: User) -> None:
    token = wmla.of(bob).headers["X-Auth-Token"]
    head, _, signature = token.split(".")
    forged = base64.urlsafe_b64encode(json.dumps({**claims(token), "uid": str(alice.pk)}).encode()).decode().rstrip("=")
    nested = base64.urlsafe_b64encode(b"[" * 2900).decode()
    for bad in (f"{head}.{forged}.{signature}", f"{head}.{forged}.", "a.b.c", "...", "", "x" * 9000, f"a.{nested}.c", f"{token}x", "é.é.é"):
        assert tokens.owner(bad, now=timezone.now()) is None, bad[:40]
        assert Script({"X-Auth-Token": bad}).get(f"{DL}/conf").status_code == 401


def test_passwords_are_guessed_at_no_faster_than_at_the_log_in_page(alice: User) -> None:
    for _ in range(logins.MOST_TRIES):
        assert Script(basic("alice", "wrong")).get("/auth/v1/logon").status_code == 401
    answer = Script(basic("alice")).get(f"{DL}/conf")
    assert (answer.status_code, answer["Content-Type"]) == (429, "text/plain; charset=utf-8")
    assert answer.content.decode().startswith("Error 429: Too many wrong passwords")
    assert LoginFailure.objects.count() == logins.MOST_TRIES


def test_a_password_that_was_right_is_not_checked_again_for_a_while(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    whole = callers.authenticate
    monkeypatch.setattr(callers, "authenticate", lambda **said: checked.append(said["username"]) or whole(**said))
    now = timezone.now()
    for later_s in (0, 60, 299):
        assert callers.by_password("alice", cast.PASSWORD, address="", now=now + dt.timedelta(seconds=later_s)) == alice
    assert checked == ["alice"]
    callers.by_password("alice", cast.PASSWORD, address="", now=now + callers.REMEMBERED)
    assert checked == ["alice", "alice"]


def api_token(person: User, scope: str = "write") -> tuple[ApiToken, str]:
    return services.create_token(by=person, name="script", scope=scope, days=None, now=timezone.now())


@pytest.mark.parametrize("way", ["basic", "json"])
def test_who_has_no_password_logs_on_with_an_api_token_in_its_place(way: str, alice: User, bob: User) -> None:
    alice.set_unusable_password()
    alice.save()
    secret = api_token(alice)[1]

    def log_on(name: str, password: str) -> Any:
        if way == "basic":
            return Script(basic(name, password)).get("/auth/v1/logon")
        return Client().post("/icp4d-api/v1/authorize", {"username": name, "password": password}, content_type="application/json")

    answer = log_on("alice", secret)
    assert Script({"X-Auth-Token": answer.json()["accessToken"]}).json(f"{DL}/conf")["USERNAME"] == "alice"
    assert log_on("bob", secret).status_code == 401
    assert log_on("alice", secret[:-1] + "~").status_code == 401
    assert log_on("alice", api_token(alice, "read")[1]).status_code == 403
    assert not LoginFailure.objects.exists(), "nobody guesses 256 bits"


def test_the_token_of_a_log_on_by_an_api_token_may_what_that_may_and_ends_with_it(dora: User, alice: User) -> None:
    made, secret = api_token(dora)
    token = Script(basic("dora", secret)).get("/auth/v1/logon").json()["accessToken"]
    user = tokens.owner(token, now=timezone.now())
    assert user == dora
    assert dora.administers
    assert not user.administers
    forged = tokens.issue(alice, now=timezone.now()).split(".")
    said = claims(".".join(forged)) | {"api_token": made.pk}
    forged[1] = tokens._encoded(said)
    assert tokens.owner(".".join(forged), now=timezone.now()) is None
    services.end_token(made, by=dora)
    assert tokens.owner(token, now=timezone.now()) is None
    assert Script({"X-Auth-Token": token}).get(f"{DL}/conf").status_code == 401


def test_a_cookie_is_no_password_here(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    answer = client.get(f"{DL}/conf")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer"), "a browser that is asked for a password keeps it and sends it from then on"


@pytest.mark.parametrize(
    "said", ["Basic", "Basic !", "Basic YWxpY2U=", "Basic " + base64.b64encode(b"\xff:\0").decode(), "Digest x", "Bearer"]
)
def test_a_header_that_says_nothing_is_refused_with_a_sentence(alice: User, said: str) -> None:
    answer = Script({"Authorization": said}).get(f"{DL}/conf")
    assert answer.status_code == 401
    assert answer.content.decode().startswith("Error 401: ")
