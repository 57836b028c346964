"""The pages and calls of people's accounts: administrators see who there is, let somebody in and out, and nobody else does."""

from __future__ import annotations

import re

from django.contrib.auth import authenticate
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.accounts import passwords
from experiments.models import ClusterChange, Role, User
from tests import cast
from tests.web import api, wmla
from tests.web.conftest import As
from tests.web.seed import Seeded


def address(person: User, name: str = "person") -> str:
    return reverse(name, args=[person.pk])


def password_on(page: str) -> str:
    found = re.search(r'id="password"[^>]*>([^<]+)<', page)
    assert found, page
    return found[1]


def test_an_account_is_made_and_its_password_shown_this_once(studio: Seeded, as_: As) -> None:
    dora = as_(studio.dora)
    answer = dora.post(reverse("people"), {"username": "erin"})
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    password = password_on(answer.content.decode())
    assert authenticate(username="erin", password=password) is not None
    again = dora.get(reverse("people")).content.decode()
    assert "erin" in again
    assert password not in again
    taken = dora.post(reverse("people"), {"username": "ERIN"}).content.decode()
    assert "There is an account erin already" in taken


def test_who_there_is_stands_on_a_page_and_is_found(studio: Seeded, as_: As) -> None:
    services.close_account(studio.bob, by=studio.dora)
    dora = as_(studio.dora)
    page = dora.get(reverse("people")).content.decode()
    assert page.index(">alice<") < page.index(">bob<"), "who has left stands last"
    assert "closed" in page
    assert "administrator" in page
    found = dora.get(reverse("people"), {"part": "list", "q": "ALI"}).content.decode()
    assert ">alice<" in found
    assert ">bob<" not in found
    assert "Nobody" in dora.get(reverse("people"), {"part": "list", "q": "zz"}).content.decode()


def test_an_accounts_page_says_what_depends_on_it_and_closes_it(studio: Seeded, as_: As) -> None:
    dora, alice = as_(studio.dora), as_(studio.alice)
    page = dora.get(address(studio.alice)).content.decode()
    assert "Only alice administers" in page
    assert "Stop the runs that have not ended" in page
    assert alice.get(reverse("projects")).status_code == 200
    assert dora.post(address(studio.alice, "close_person"), {"reason": "has left"}).url == address(studio.alice)
    assert alice.get(reverse("projects")).status_code == 302
    page = dora.get(address(studio.alice)).content.decode()
    assert "Nobody else administers some of these projects." in page
    dora.post(address(studio.alice, "hand_over"), {"username": "bob"})
    assert studio.digits.memberships.get(user=studio.bob).role == Role.ADMIN
    answer = dora.post(address(studio.alice, "open_person"))
    assert authenticate(username="alice", password=password_on(answer.content.decode())) == studio.alice


def test_a_lost_password_is_replaced(studio: Seeded, as_: As) -> None:
    answer = as_(studio.dora).post(address(studio.bob, "person_password"))
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert Client().post(reverse("login"), {"username": "bob", "password": password_on(answer.content.decode())}).url, (
        "it is good at the log-in page"
    )


def test_what_cannot_be_is_refused_with_what_to_do(studio: Seeded, as_: As) -> None:
    dora = as_(studio.dora)

    def said(name: str, who: User, **sent: str) -> str:
        return dora.post(address(who, name), sent, follow=True).content.decode()

    assert "only administrator" in said("person_administrator", studio.dora, administers="no")
    assert "your own account" in said("close_person", studio.dora)
    assert "There is no user" in said("hand_over", studio.alice, username="nobody")
    assert "is open" in said("open_person", studio.alice)
    services.close_account(studio.bob, by=studio.dora)
    assert "open it again" in said("person_password", studio.bob)


def test_an_administrator_may_lay_that_down_where_there_is_another(studio: Seeded, as_: As) -> None:
    dora = as_(studio.dora)
    dora.post(address(studio.alice, "person_administrator"), {"administers": "yes"})
    assert "administrator" in as_(studio.alice).get(address(studio.dora)).content.decode()
    assert dora.post(address(studio.dora, "person_administrator"), {"administers": "no"}).url == reverse("cluster")
    assert dora.get(reverse("people")).status_code == 403


def test_scripts_of_administrators_let_people_in_and_out_but_take_no_account_over(studio: Seeded) -> None:
    dora = api.of(studio.dora)
    made = dora.post("/people", {"username": "erin"}).json()
    assert authenticate(username="erin", password=made["password"]) is not None
    shown = dora.get(f"/people/{made['id']}").json()
    assert (shown["username"], shown["open"], shown["administers"], shown["only_admin_of"]) == ("erin", True, False, [])
    assert dora.post("/people", {"username": "frank", "administers": True}).status_code == 422
    assert dora.get(f"/people/{studio.alice.pk}").json()["only_admin_of"]
    assert dora.post(f"/people/{studio.alice.pk}/hand-over", {"username": "dora"}).status_code == 404
    closed = dora.post(f"/people/{made['id']}/close", {"reason": "has left"}).json()
    assert not closed["open"]
    assert [each["username"] for each in dora.get("/people?q=eri").json()["items"]] == ["erin"]
    assert api.of(studio.alice, "write").get("/people").status_code == 403


def test_one_logs_out_all_browsers_but_the_one_that_asks(studio: Seeded, as_: As) -> None:
    here, there, bob = as_(studio.alice), as_(studio.alice), as_(studio.bob)
    script, token = wmla.of(studio.alice), api.of(studio.alice)
    assert "All other browsers are logged out." in here.post(reverse("log_out_elsewhere"), follow=True).content.decode()
    assert here.get(reverse("profile")).status_code == 200
    assert there.get(reverse("profile")).status_code == 302
    assert script.get(f"{wmla.DL}/conf").status_code == 401
    assert token.get("/me").status_code == 200
    assert bob.get(reverse("profile")).status_code == 200
    here.post(reverse("log_out_elsewhere"))
    assert here.get(reverse("profile")).status_code == 200
    assert Client().post(reverse("login"), {"username": "alice", "password": cast.PASSWORD}).status_code == 302, "the password is good"


def test_an_administrator_logs_somebody_out_everywhere(studio: Seeded, as_: As) -> None:
    bob, dora, session = as_(studio.bob), as_(studio.dora), as_(studio.bob).session.session_key
    assert passwords.logged_in([session])
    page = dora.post(address(studio.bob, "log_person_out"), follow=True).content.decode()
    assert "bob is logged out everywhere." in page
    assert bob.get(reverse("profile")).status_code == 302
    assert not passwords.logged_in([session]), "nor does a page that is open hear more"
    assert "dora logged bob out everywhere" in ClusterChange.objects.latest("pk").text
    again = as_(studio.bob)
    assert api.of(studio.dora, "admin").post(f"/people/{studio.bob.pk}/log-out").json()["open"] is True
    assert again.get(reverse("profile")).status_code == 302
    assert dora.post(address(studio.dora, "log_person_out")).url == reverse("login")
    assert dora.get(reverse("profile")).status_code == 302
