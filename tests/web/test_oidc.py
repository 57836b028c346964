"""Logging in by an OpenID provider: who gets in, to which account, and what nobody on the way can talk the studio into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from joserfc.jwk import RSAKey

from experiments import services
from experiments.accounts import oidc
from experiments.models import ClusterChange, Identity, User
from tests import cast
from tests.oidc import CLIENT, SECRET, Provider, provider
from tests.web.conftest import As

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def erins(db: None, home: Any, settings: Any) -> Iterator[Provider]:
    """A provider at which Erin has a log-in; whom it knows gets an account."""
    with provider() as made:
        settings.EDT_OIDC_ISSUER, settings.EDT_OIDC_CLIENT_ID, settings.EDT_OIDC_CLIENT_SECRET = made.address, CLIENT, SECRET
        settings.EDT_OIDC_NAME, settings.EDT_OIDC_ALLOW = "Example SSO", ["*"]
        oidc._made.cache_clear()
        yield made


def log_in(at: Provider, client: Client | None = None, to: str = "") -> Any:
    """The page at which it ends."""
    client = client or Client()
    began = client.get(reverse("oidc_login"), {"next": to} if to else {})
    assert began.status_code == 302
    return client.get(f"{reverse('oidc_callback')}?{at.log_in(began.url)}", follow=True)


def person(answer: Any) -> str:
    return answer.context["user"].username


def test_who_logs_in_for_the_first_time_has_an_account_and_is_the_same_the_next_time(erins: Provider) -> None:
    erins.said |= {"email": "erin@example.org", "email_verified": True}
    assert "Log in\n    with Example SSO" in Client().get(reverse("login")).content.decode()
    answer = log_in(erins, to="/cluster/?x=1")
    assert (person(answer), answer.request["PATH_INFO"], answer.request["QUERY_STRING"]) == ("erin", "/cluster/", "x=1")
    erin = User.objects.get(username="erin")
    assert (erin.email, erin.confirmed_email, erin.is_staff, erin.has_usable_password()) == (
        "erin@example.org",
        "erin@example.org",
        False,
        False,
    )
    assert "Example SSO for the first time" in ClusterChange.objects.get(actor=erin).text
    erins.said["preferred_username"] = "erin.moss"
    assert person(log_in(erins)) == "erin", "the subject says who it is; names change"
    assert Identity.objects.get(person=erin).name == "erin.moss"


def test_a_browser_that_is_logged_in_goes_where_it_wanted_to(erins: Provider, alice: User, as_: As) -> None:
    assert as_(alice).get(reverse("oidc_login"), {"next": "/cluster/"}).url == "/cluster/"


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "cluster"])
def test_nobody_is_sent_elsewhere_afterwards(to: str, erins: Provider) -> None:
    assert log_in(erins, to=to).request["PATH_INFO"] == reverse("projects")


def test_whom_no_rule_lets_in_gets_no_account(erins: Provider, settings: Any) -> None:
    settings.EDT_OIDC_ALLOW = ["ml"]
    page = log_in(erins).content.decode()
    assert "Example SSO knows you as erin, and you have no account here by that" in page
    assert not User.objects.exists()
    erins.said["groups"] = ["ml"]
    assert person(log_in(erins)) == "erin"
    del erins.said["groups"]
    assert "let you in no more" in log_in(erins).content.decode()


def test_a_name_that_is_taken_is_nobodys_proof(erins: Provider, alice: User) -> None:
    erins.said = {"sub": "1", "preferred_username": "ALICE"}
    answer = log_in(erins)
    assert "There is an account alice here already. If it is yours, log in with its password" in answer.content.decode()
    assert person(answer) == ""
    assert not Identity.objects.exists()


def test_who_says_no_name_is_told_what_is_missing(erins: Provider) -> None:
    erins.said = {"sub": "1"}
    assert "EDT_OIDC_USERNAME_CLAIM" in log_in(erins).content.decode()


def test_names_and_groups_may_come_from_elsewhere_than_the_id_token(erins: Provider, settings: Any) -> None:
    settings.EDT_OIDC_ALLOW, settings.EDT_OIDC_USERNAME_CLAIM, settings.EDT_OIDC_GROUPS_CLAIM = ["ml"], "nick", "roles"
    erins.said, erins.userinfo = {"sub": "1"}, {"sub": "1", "nick": "erin", "roles": ["ml"]}
    assert person(log_in(erins)) == "erin"
    erins.said, erins.userinfo = {"sub": "2"}, {"sub": "1", "nick": "frank", "roles": ["ml"]}
    assert "no account here" in log_in(erins).content.decode(), "it is about somebody else"
    erins.said, erins.userinfo = {"sub": "3", "nick": "grace", "roles": ["ml"]}, "eyJhbGciOi"
    assert person(log_in(erins)) == "grace", "a signed answer is left aside"


def test_a_closed_account_stays_closed(erins: Provider, dora: User) -> None:
    client = Client()
    log_in(erins, client)
    services.close_account(User.objects.get(username="erin"), by=dora)
    assert client.get(reverse("projects")).status_code == 302
    assert "This account is closed." in log_in(erins).content.decode()
    services.open_account(User.objects.get(username="erin"), by=dora)
    assert person(log_in(erins)) == "erin"


def test_an_account_with_a_password_is_linked_by_who_has_that(erins: Provider, alice: User, as_: As, settings: Any) -> None:
    settings.EDT_OIDC_ALLOW = []
    client = as_(alice)
    assert "It is wrong." in client.post(reverse("link_identity"), {"password": "guess"}, follow=True).content.decode()
    page = client.post(reverse("link_identity"), {"password": cast.PASSWORD})
    address = page.context["address"]
    assert page["Refresh"] == f"0; url={address}"
    assert "Your account is linked" in client.get(f"{reverse('oidc_callback')}?{erins.log_in(address)}", follow=True).content.decode()
    assert person(log_in(erins)) == "alice", "by the link, which no rule is asked about"
    profile = client.get(reverse("profile")).content.decode()
    assert "<bdi>erin</bdi>" in profile
    assert "Link to Example SSO" not in profile
    client.post(reverse("unlink_identity"), {"issuer": erins.address})
    assert "no account here" in log_in(erins).content.decode()


def test_a_link_that_somebody_else_began_is_not_finished_here(erins: Provider, alice: User, bob: User, as_: As) -> None:
    """Charlie makes Bob's browser open the answer to his own log-in; or the browser is Bob's by now."""
    hers = as_(alice)
    address = hers.post(reverse("link_identity"), {"password": cast.PASSWORD}).context["address"]
    answer = f"{reverse('oidc_callback')}?{erins.log_in(address)}"
    assert "begun in another browser" in as_(bob).get(answer, follow=True).content.decode()
    session = hers.session
    assert session.get("_auth_user_id") == str(alice.pk)
    session["_auth_user_id"], session["_auth_user_hash"] = str(bob.pk), bob.get_session_auth_hash()
    session.save()
    assert "begun in another browser" in hers.get(answer, follow=True).content.decode()
    assert not Identity.objects.exists()


def test_one_identity_is_one_persons_and_one_person_has_one(erins: Provider, alice: User, as_: As) -> None:
    log_in(erins)
    client = as_(alice)

    def link() -> str:
        address = client.post(reverse("link_identity"), {"password": cast.PASSWORD}).context["address"]
        return client.get(f"{reverse('oidc_callback')}?{erins.log_in(address)}", follow=True).content.decode()

    assert "is linked to the account erin already" in link()
    erins.said["sub"] = "2"
    assert "Your account is linked" in link()
    assert "Your account is linked" in link()
    erins.said["sub"] = "3"
    assert "unlink that first" in link()


def test_who_has_no_password_keeps_the_way_in(erins: Provider, dora: User, as_: As) -> None:
    client = Client()
    log_in(erins, client)
    profile = client.get(reverse("profile")).content.decode()
    assert "This account has none." in profile
    assert "Unlink</button>" not in profile
    sent = {"issuer": erins.address}
    assert "the only way to your account" in client.post(reverse("unlink_identity"), sent, follow=True).content.decode()
    erin = User.objects.get(username="erin")
    admin = as_(dora)
    page = admin.get(reverse("person", args=[erin.pk])).content.decode()
    assert "Example SSO" in page
    assert "as <bdi>erin</bdi>" in page
    assert client.post(reverse("person_unlink", args=[erin.pk]), sent).status_code == 403
    page = admin.post(reverse("person_unlink", args=[erin.pk]), sent, follow=True).content.decode()
    assert "nothing: give a password" in page
    assert "unlinked the account of erin" in ClusterChange.objects.latest("pk").text
    assert client.get(reverse("profile")).status_code == 302, "whoever it was is logged out"
    assert "is not linked to that" in admin.post(reverse("person_unlink", args=[erin.pk]), sent, follow=True).content.decode()


LIES: dict[str, dict[str, Any]] = {
    "another issuer": {"changes": {"iss": "https://evil.example"}},
    "no issuer": {"changes": {"iss": None}},
    "for another client": {"changes": {"aud": "another"}},
    "for another client, though ours asked": {"changes": {"aud": ["another"], "azp": CLIENT}},
    "for nobody": {"changes": {"aud": None}},
    "asked by another client": {"changes": {"aud": [CLIENT, "another"], "azp": "another"}},
    "of another log-in": {"changes": {"nonce": "of another"}},
    "of no log-in": {"changes": {"nonce": None}},
    "long over": {"changes": {"exp": int(time.time()) - 3600}},
    "never over": {"changes": {"exp": None}},
    "of tomorrow": {"changes": {"nbf": int(time.time()) + 86400}},
    "of another access token": {"changes": {"at_hash": "AAAA"}},
    "nobody": {"changes": {"sub": None}},
    "a number": {"changes": {"sub": 4711}},
    "unsigned": {"algorithm": "none"},
    "signed with the public key": {"algorithm": "HS256"},
    "signed by somebody else": {"sign_with": RSAKey.generate_key(2048, {"kid": "x"})},
    "no ID token": {"id_token": False},
    "an error of its own": {"status": 500},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_said_by_the_provider_to_us_now_logs_nobody_in(lie: str, erins: Provider, caplog: Any) -> None:
    for name, value in LIES[lie].items():
        setattr(erins, name, value)
    answer = log_in(erins)
    assert "The answer of Example SSO cannot be used" in answer.content.decode()
    assert person(answer) == ""
    assert not User.objects.exists()
    assert "a log-in by Example SSO failed" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_key_that_is_new_is_fetched(erins: Provider) -> None:
    log_in(erins)
    erins.key = RSAKey.generate_key(2048, {"kid": "next"})
    assert person(log_in(erins)) == "erin"


def test_an_answer_is_good_once_and_in_the_browser_that_asked(erins: Provider) -> None:
    mine = Client()
    answer = f"{reverse('oidc_callback')}?{erins.log_in(mine.get(reverse('oidc_login')).url)}"
    assert "begun in another browser" in Client().get(answer, follow=True).content.decode(), "a log-in is not slipped to anybody"
    assert person(mine.get(answer, follow=True)) == "erin"
    mine.post(reverse("logout"))
    assert "begun in another browser" in mine.get(answer, follow=True).content.decode()


def test_a_log_in_that_took_too_long_is_begun_anew(erins: Provider, alice: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    client = as_(alice)  # whose session lasts
    address = client.post(reverse("link_identity"), {"password": cast.PASSWORD}).context["address"]
    answer = f"{reverse('oidc_callback')}?{erins.log_in(address)}"
    late = time.time() + oidc.BEGAN_S + 1
    monkeypatch.setattr("experiments.accounts.oidc.time.time", lambda: late)
    assert "more than an hour ago" in client.get(answer, follow=True).content.decode()


def test_the_session_is_another_one_after_the_log_in_and_lasts_as_any(erins: Provider, settings: Any) -> None:
    client = Client()
    client.get(reverse("oidc_login"))
    before = client.cookies[settings.SESSION_COOKIE_NAME]
    assert (before["max-age"], key := before.value) == (oidc.BEGAN_S, before.value)
    log_in(erins, client)
    after = client.cookies[settings.SESSION_COOKIE_NAME]
    assert after["max-age"] == settings.SESSION_COOKIE_AGE
    assert after.value != key
    begun = [name for name in client.session.keys() if name.startswith("_state_")]  # noqa: SIM118  (a session cannot be walked through)
    assert len(begun) == 1, "what was finished is gone; the other one may still be"


def test_what_the_provider_refuses_is_said_where_it_was_asked_and_nowhere_else(erins: Provider) -> None:
    client = Client()
    began = erins.log_in(client.get(reverse("oidc_login")).url)
    state = began.partition("&")[2]
    refusal = f"{reverse('oidc_callback')}?error=access_denied&error_description=Call%20me&"
    assert "Example SSO did not log you in: Call me" in client.get(f"{refusal}{state}", follow=True).content.decode()
    page = Client().get(f"{refusal}state=guessed", follow=True).content.decode()
    assert "begun in another browser" in page
    assert "Call me" not in page


@pytest.mark.parametrize(
    ("metadata", "log"),
    [
        ({"issuer": "https://id.example.org"}, "the provider there says that it is 'https://id.example.org'"),
        ({"id_token_signing_alg_values_supported": ["none", "HS256"]}, "RS256 is what every provider can"),
        ({"authorization_endpoint": None}, "does not say its authorization_endpoint"),
    ],
)
def test_a_provider_that_is_not_what_the_setting_says_is_not_asked(metadata: Any, log: str, erins: Provider, caplog: Any) -> None:
    erins.metadata = metadata
    answer = Client().get(reverse("oidc_login"), follow=True)
    assert "an administrator finds the reason in the log" in answer.content.decode()
    assert log in caplog.text
    erins.metadata = {}
    assert person(log_in(erins)) == "erin", "it is asked anew the next time"


def test_an_issuer_may_end_with_a_slash(erins: Provider) -> None:
    """As Auth0's do."""
    erins.metadata, erins.changes = {"issuer": f"{erins.address}/"}, {"iss": f"{erins.address}/"}
    assert person(log_in(erins)) == "erin"
    erins.changes = {}
    assert "cannot be used" in log_in(erins).content.decode()


def test_a_provider_that_cannot_be_reached_leaves_the_password(alice: User, settings: Any) -> None:
    settings.EDT_OIDC_ISSUER, settings.EDT_OIDC_CLIENT_ID = "http://127.0.0.1:9", CLIENT
    client = Client()
    answer = client.get(reverse("oidc_login"), {"next": "/cluster/"}, follow=True)
    assert "cannot be reached at this moment" in answer.content.decode()
    sent = {"username": "alice", "password": cast.PASSWORD, "next": "/cluster/"}
    assert client.post(reverse("login"), sent).url == "/cluster/"


@pytest.mark.parametrize(
    ("secret", "offered", "where"),
    [(SECRET, None, "authorization"), (SECRET, ["client_secret_post"], "client_secret"), ("", None, "client_id")],
)
def test_the_studio_says_who_it_is_as_the_provider_wants_it(secret: str, offered: Any, where: str, erins: Provider, settings: Any) -> None:
    settings.EDT_OIDC_CLIENT_SECRET = secret
    erins.metadata = {"token_endpoint_auth_methods_supported": offered} if offered else {}
    assert person(log_in(erins)) == "erin"
    (asked,) = erins.asked
    assert asked[where]
    assert ("client_secret" in asked, bool(asked["authorization"])) == (where == "client_secret", where == "authorization")


def test_a_studio_without_a_provider_has_no_such_pages(alice: User, as_: As) -> None:
    client = as_(alice)
    assert client.get(reverse("oidc_login")).status_code == client.get(reverse("oidc_callback")).status_code == 404
    assert client.post(reverse("link_identity"), {"password": cast.PASSWORD}).status_code == 404
    assert "sign-on" not in client.get(reverse("profile")).content.decode()
    assert "Log in\n    with" not in Client().get(reverse("login")).content.decode()


def test_the_settings_of_the_documents_are_all_that_it_takes(tmp_path: Path) -> None:
    said = (REPOSITORY / "docs/operations.md").read_text().partition("## Single sign-on")[2].split("```")[1]
    environment = dict(line.split("=", 1) for line in said.strip().splitlines())
    words = "import json; from django.conf import settings as s; from experiments.accounts import oidc;"
    words += "print(json.dumps([oidc.is_on(), s.EDT_OIDC_ISSUER, s.EDT_OIDC_NAME, s.EDT_OIDC_ALLOW, s.SESSION_COOKIE_AGE]))"
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", words],
        env=os.environ | environment | {"EDT_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.settings"},
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    wanted = [True, "https://id.example.org/realms/team", "Example ID", ["ml-team", "@example.org"], 14 * 24 * 3600]
    assert json.loads(done.stdout) == wanted
