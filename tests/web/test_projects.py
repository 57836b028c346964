"""The pages of projects and of people: making, renaming, members, the profile."""

from __future__ import annotations

import uuid

import pytest
from django.test import Client
from django.urls import reverse

from experiments.models import Membership, Project, User
from tests import cast
from tests.web.conftest import As


def new_project(client: Client, **changes: str) -> object:
    return client.post(reverse("new_project"), {"idempotency_key": str(uuid.uuid4()), "name": "Digits", "description": "", **changes})


def test_it_makes_a_project_and_goes_there(alice: User, as_: As) -> None:
    answer = new_project(as_(alice), name="Digits", description="which net")
    made = Project.objects.get()
    assert answer.url == reverse("project", args=[made.pk])
    assert b"which net" in as_(alice).get(answer.url).content


def test_the_same_form_sent_twice_makes_one_project(alice: User, as_: As) -> None:
    idempotency_key = str(uuid.uuid4())
    addresses = {new_project(as_(alice), idempotency_key=idempotency_key).url for _ in range(2)}
    assert len(addresses) == 1
    assert Project.objects.count() == 1


@pytest.mark.parametrize(("name", "said"), [("", "required"), ("x" * 300, "at most 120"), ("   ", "required")])
def test_it_says_what_is_wrong_with_a_name_beside_the_field_and_keeps_the_rest(name: str, said: str, alice: User, as_: As) -> None:
    page = new_project(as_(alice), name=name, description="kept as typed").content.decode()
    assert said in page
    assert 'aria-invalid="true"' in page
    assert 'aria-describedby="id_name_error"' in page
    assert 'id="id_name_error"' in page
    assert "kept as typed" in page
    assert not Project.objects.exists()


def test_it_shows_a_name_that_is_script_as_text(alice: User, as_: As) -> None:
    new_project(as_(alice), name="<script>alert(1)</script>", description="<img src=x onerror=alert(1)>")
    made = Project.objects.get()
    for address in ("projects", "profile"):
        assert b"<script>alert" not in as_(alice).get(reverse(address)).content
    for name in ("project", "assets", "jobs", "members", "project_settings"):
        page = as_(alice).get(reverse(name, args=[made.pk])).content
        assert b"&lt;script&gt;alert(1)" in page
        assert b"<script>alert" not in page
        assert b"<img src=x" not in page


def test_the_list_shows_only_ones_own_projects_and_finds_by_name(project: Project, alice: User, charlie: User, as_: As) -> None:
    cast.person("erin")
    assert b"Digits" in as_(alice).get(reverse("projects")).content
    assert b"Digits" not in as_(charlie).get(reverse("projects")).content
    assert b"Digits" in as_(alice).get(reverse("projects"), {"q": "digi", "part": "list"}).content
    assert b"No project matches" in as_(alice).get(reverse("projects"), {"q": "nothing like it"}).content


def test_an_admin_adds_changes_and_removes_a_member(project: Project, alice: User, charlie: User, as_: As) -> None:
    client = as_(alice)
    client.post(reverse("members", args=[project.pk]), {"username": "charlie", "role": "viewer"})
    assert Membership.objects.get(project=project, user=charlie).role == "viewer"
    client.post(reverse("member_role", args=[project.pk, "charlie"]), {"role": "editor"})
    assert Membership.objects.get(project=project, user=charlie).role == "editor"
    client.post(reverse("member_remove", args=[project.pk, "charlie"]))
    assert not Membership.objects.filter(project=project, user=charlie).exists()


def test_adding_nobody_is_said_beside_the_field(project: Project, alice: User, as_: As) -> None:
    page = as_(alice).post(reverse("members", args=[project.pk]), {"username": "nobody", "role": "viewer"}).content.decode()
    assert 'id="id_username_error"' in page
    assert 'value="nobody"' in page


def test_the_last_admin_cannot_be_removed_and_is_told_so(project: Project, alice: User, as_: As) -> None:
    as_(alice).post(reverse("member_remove", args=[project.pk, "alice"]))
    assert Membership.objects.filter(project=project, user=alice, role="admin").exists()
    client = as_(alice)
    client.post(reverse("member_role", args=[project.pk, "alice"]), {"role": "viewer"})
    assert "note-error" in client.get(reverse("members", args=[project.pk])).content.decode()


def test_it_renames_and_deletes_only_with_the_name_typed(project: Project, alice: User, as_: As) -> None:
    client = as_(alice)
    client.post(reverse("project_settings", args=[project.pk]), {"name": "Letters", "description": "x"})
    project.refresh_from_db()
    assert project.name == "Letters"
    client.post(reverse("delete_project", args=[project.pk]), {"confirm_name": "Digits"})
    assert Project.objects.exists()
    assert client.post(reverse("delete_project", args=[project.pk]), {"confirm_name": "Letters"}).url == reverse("projects")
    assert not Project.objects.exists()


def test_logging_in_leads_to_where_one_wanted_to_go(project: Project, alice: User) -> None:
    client = Client()
    wanted = reverse("assets", args=[project.pk])
    assert client.get(wanted).url == f"{reverse('login')}?next={wanted}"
    wrong = client.post(reverse("login"), {"username": "alice", "password": "wrong", "next": wanted})
    assert b"The username or the password is wrong" in wrong.content
    assert client.post(reverse("login"), {"username": "alice", "password": cast.PASSWORD, "next": wanted}).url == wanted
    away = Client().post(reverse("login"), {"username": "alice", "password": cast.PASSWORD, "next": "https://elsewhere.example/"})
    assert away.url == reverse("projects")


def test_a_form_that_is_sent_after_logging_out_leads_back_to_its_page(project: Project, alice: User) -> None:
    client, form = Client(), reverse("project_settings", args=[project.pk])
    login, sent_to = reverse("login"), reverse("delete_project", args=[project.pk])
    for came_from, back in ((f"http://testserver{form}?a=1", f"{form}%3Fa%3D1"), ("https://elsewhere.example/x", "/"), ("", "/")):
        assert client.post(sent_to, {"confirm_name": "Digits"}, headers={"Referer": came_from}).url == f"{login}?next={back}"
    landed = client.post(login, {"username": "alice", "password": cast.PASSWORD, "next": form}, follow=True)
    assert landed.request["PATH_INFO"] == form
    assert "so what you sent was not done" in landed.content.decode()
    assert Project.objects.filter(pk=project.pk).exists()


def test_a_changed_password_logs_other_browsers_out(alice: User, as_: As) -> None:
    here, there = as_(alice), as_(alice)
    sent = {"old_password": cast.PASSWORD, "new_password1": "another long secret", "new_password2": "another long secret"}
    assert here.post(reverse("profile"), sent).url == reverse("profile")
    assert here.get(reverse("profile")).status_code == 200
    assert there.get(reverse("profile")).status_code == 302


def test_a_weak_password_is_refused_beside_its_field(alice: User, as_: As) -> None:
    sent = {"old_password": cast.PASSWORD, "new_password1": "short", "new_password2": "short"}
    assert "id_new_password2_error" in as_(alice).post(reverse("profile"), sent).content.decode()


def test_the_theme_is_kept_with_the_account_and_leads_nowhere_else(alice: User, as_: As) -> None:
    client = as_(alice)
    answer = client.post(reverse("theme"), {"theme": "dark", "next": "https://elsewhere.example/"})
    assert answer.url == "/"
    assert b'data-theme="dark"' in client.get(reverse("projects")).content
    client.post(reverse("theme"), {"theme": "<script>", "next": "/projects/"})
    alice.refresh_from_db()
    assert alice.theme == "dark"


def test_pages_that_are_not_there_offer_a_way_on(alice: User, as_: As) -> None:
    answer = as_(alice).get("/nowhere/")
    assert answer.status_code == 404
    assert reverse("projects") in answer.content.decode()
    assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_a_form_without_its_token_is_refused_in_words(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    answer = client.post(reverse("new_project"), {"name": "x"})
    assert answer.status_code == 403
    assert b"The form has expired" in answer.content
    assert not Project.objects.exists()
