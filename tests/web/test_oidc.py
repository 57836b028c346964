"""Logging in by an OpenID provider: who gets in, and to which account."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.models import ClusterChange, Identity, User
from tests import cast
from tests.oidc import Provider
from tests.web.conftest import As
from tests.web.signing_on import erins, log_in, person

__all__ = ["erins"]  # a fixture


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


def test_groups_of_the_provider_say_who_administers_from_each_log_in_on(erins: Provider, dora: User, settings: Any) -> None:
    def is_staff() -> bool:
        assert person(log_in(erins)) == "erin"
        return User.objects.get(username="erin").is_staff

    settings.EDT_OIDC_ALLOW = ["ml"]
    erins.said["groups"] = ["ml", "ops"]
    assert not is_staff(), "no group does where nobody says so"
    settings.EDT_OIDC_ADMINS = ["ops"]
    assert is_staff()
    assert "erin was made an administrator by their groups at Example SSO" in ClusterChange.objects.latest("pk").text
    erins.said["groups"] = ["ml"]
    assert not is_staff()
    settings.EDT_OIDC_ALLOW = []
    erins.said["groups"] = ["ops"]
    assert is_staff(), "who administers gets in"
    settings.EDT_OIDC_ADMINS = []
    settings.EDT_OIDC_ALLOW = ["*"]
    erins.said["groups"] = []
    assert is_staff(), "where the groups are asked no more it stays as it is"


def test_the_last_administrator_stays_one(erins: Provider, settings: Any) -> None:
    settings.EDT_OIDC_ADMINS = ["ops"]
    erins.said["groups"] = ["ops"]
    log_in(erins)
    erins.said["groups"] = []
    assert person(log_in(erins)) == "erin"
    assert User.objects.get(username="erin").is_staff


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
