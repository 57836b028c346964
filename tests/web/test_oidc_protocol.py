"""What nobody on the way can talk the studio into: a provider that lies, answers that are late, sent twice or to another browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from joserfc.jwk import RSAKey

from experiments.accounts import oidc
from experiments.models import User
from tests import cast
from tests.oidc import CLIENT, SECRET, Provider
from tests.web.conftest import As
from tests.web.signing_on import erins, log_in, person

__all__ = ["erins"]  # a fixture
REPOSITORY = Path(__file__).resolve().parents[2]

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


def test_a_log_in_that_was_begun_shortens_none_with_a_password(erins: Provider, alice: User, settings: Any) -> None:
    client = Client()
    client.get(reverse("oidc_login"))
    client.post(reverse("login"), {"username": "alice", "password": cast.PASSWORD})
    assert client.cookies[settings.SESSION_COOKIE_NAME]["max-age"] == settings.SESSION_COOKIE_AGE


def test_of_many_that_one_browser_begins_the_newest_can_be_finished(erins: Provider) -> None:
    client = Client()
    began = [client.get(reverse("oidc_login")).url for _ in range(oidc.MOST_BEGUN + 3)]
    assert len([name for name in client.session.keys() if name.startswith("_state_")]) == oidc.MOST_BEGUN  # noqa: SIM118
    first, oldest = (f"{reverse('oidc_callback')}?{erins.log_in(address)}" for address in (began[0], began[3]))
    assert "begun in another browser" in client.get(first, follow=True).content.decode()
    assert person(client.get(oldest, follow=True)) == "erin"


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
