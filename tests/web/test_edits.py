"""Two people edit the same thing: what one has saved is not undone by the other, whose page is older."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from django import forms
from django.http import HttpResponse, QueryDict
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.forms.edits import EditForm
from experiments.models import ClusterRules, User
from tests.web.conftest import As
from tests.web.seed import Seeded


class Sent(HTMLParser):
    """What a browser would send of the form to `action` on a page, as nobody has touched it."""

    def __init__(self, page: HttpResponse, action: str) -> None:
        super().__init__()
        self.action, self.inside, self.values, self.area = action, False, {}, ""
        self.feed(page.content.decode().replace("\r\n", "\n"))  # as browsers do

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "form":
            self.inside = said.get("action", self.action) == self.action
        if not self.inside or not (name := said.get("name")):
            return
        if tag == "textarea":
            self.area, self.values[name] = name, ""
        elif tag == "input" and (said.get("type") not in ("checkbox", "radio") or "checked" in said):
            assert name not in self.values, f"{name} is there twice"
            self.values[name] = said.get("value") or ("on" if said.get("type") == "checkbox" else "")

    def handle_data(self, data: str) -> None:
        if self.area:
            self.values[self.area] += data.removeprefix("\n").replace("\n", "\r\n")  # as browsers do

    def handle_endtag(self, tag: str) -> None:
        self.area = "" if tag == "textarea" else self.area
        self.inside = self.inside and tag != "form"


def opened(client: Client, at: str, action: str = "") -> Callable[..., HttpResponse]:
    """A page that somebody looks at; called with what she changes, the form is sent as it was then."""
    values = Sent(client.get(at), action or at).values
    assert values
    return lambda **changed: client.post(action or at, values | changed)


def saved(answer: HttpResponse) -> None:
    assert answer.status_code == 302, answer.context["form"].errors


class Described(EditForm):
    name = forms.CharField(max_length=20)
    slots = forms.IntegerField(required=False)
    closed = forms.BooleanField(required=False)


def sent_by_somebody(stored: dict[str, object], shown: dict[str, object], sent: dict[str, object]) -> Described:
    """A form that was opened when the database held `shown`."""
    data = QueryDict(mutable=True)
    data.update({f"initial-{name}": "" if value is None else str(value) for name, value in shown.items()})
    data.update({name: str(value) for name, value in (shown | sent).items() if value is not None and value is not False})
    return Described(data, initial=stored)


@pytest.mark.parametrize(
    ("stored", "shown", "sent", "saved"),
    [
        ({"name": "a", "slots": 2}, {"name": "a", "slots": 2}, {"name": "b"}, {"name": "b", "slots": 2}),
        ({"name": "a", "slots": 4}, {"name": "a", "slots": 2}, {"name": "b"}, {"name": "b", "slots": 4}),
        ({"name": "a", "slots": None}, {"name": "a", "slots": 2}, {"name": "b"}, {"name": "b", "slots": None}),
        ({"name": "a", "slots": 4}, {"name": "a", "slots": None}, {}, {"name": "a", "slots": 4}),
        ({"name": "b", "slots": 2}, {"name": "a", "slots": 2}, {"name": "b"}, {"name": "b", "slots": 2}),
        ({"name": "a", "closed": True}, {"name": "a", "closed": False}, {"name": "b"}, {"name": "b", "closed": True}),
        ({"name": "a", "closed": False}, {"name": "a", "closed": True}, {"name": "b"}, {"name": "b", "closed": False}),
        ({"name": "a", "closed": True}, {"name": "a", "closed": True}, {"closed": False}, {"name": "a", "closed": False}),
    ],
)
def test_who_changed_a_field_last_is_found_from_what_the_page_showed(
    stored: dict[str, object], shown: dict[str, object], sent: dict[str, object], saved: dict[str, object]
) -> None:
    form = sent_by_somebody(stored, shown, sent)
    assert form.is_valid(), form.errors
    assert {name: form.cleaned_data[name] for name in saved} == saved


def test_a_field_that_both_changed_is_refused_until_somebody_has_read_the_other_value() -> None:
    form = sent_by_somebody({"name": "theirs"}, {"name": "old"}, {"name": "mine"})
    assert not form.is_valid()
    assert "“theirs”" in form.errors["name"][0]
    again = {name: form.data[name] for name in form.data} | {
        "initial-name": form["name"].as_hidden(only_initial=True).split('value="')[1][:6]
    }
    assert Described(QueryDict(mutable=True) | again, initial={"name": "theirs"}).is_valid()


def test_alice_renames_a_project_and_keeps_what_dora_wrote_of_it_meanwhile(studio: Seeded, as_: As) -> None:
    services.update_project(studio.digits, by=studio.alice, name="Digits", description="one\ntwo")
    send = opened(as_(studio.alice), reverse("project_settings", args=[studio.digits.pk]))
    services.update_project(studio.digits, by=studio.alice, name="Digits", description="three")
    saved(send(name="Numbers"))
    studio.digits.refresh_from_db()
    assert (studio.digits.name, studio.digits.description) == ("Numbers", "three")


def test_a_text_of_several_lines_that_nobody_touched_counts_as_untouched(studio: Seeded, as_: As) -> None:
    at = reverse("project_settings", args=[studio.digits.pk])
    for text in ("one\ntwo", "one\r\ntwo", "\n one\n\n"):
        services.update_project(studio.digits, by=studio.alice, name="Digits", description=text)
        send = opened(as_(studio.alice), at)
        services.update_project(studio.digits, by=studio.alice, name="Digits", description="three")
        saved(send(name="Numbers"))
        studio.digits.refresh_from_db()
        assert studio.digits.description == "three", text


def test_a_description_that_both_wrote_is_refused_with_the_other_one_and_saved_the_second_time(studio: Seeded, as_: As) -> None:
    definition = studio.version.definition
    at, action = reverse("definition", args=[definition.pk]), reverse("update_definition", args=[definition.pk])
    bob = as_(studio.bob)
    send = opened(bob, at, action)
    services.update_definition(definition, by=studio.alice, name=definition.name, description="by Alice")
    refused = send(description="by Bob")
    page = refused.content.decode()
    assert "“by Alice”" in page
    assert "by Bob" in page, "what was typed is kept"
    definition.refresh_from_db()
    assert definition.description == "by Alice"
    assert bob.post(action, Sent(refused, action).values).url == at
    definition.refresh_from_db()
    assert definition.description == "by Bob"


def test_tags_and_note_of_a_run_are_merged_field_by_field(studio: Seeded, as_: As) -> None:
    run = studio.running
    send = opened(as_(studio.bob), reverse("run_notes", args=[run.pk]))
    services.annotate_run(run, by=studio.alice, tags=["baseline"])
    saved(send(note="looks good"))
    run.refresh_from_db()
    assert (run.tags, run.note) == (["baseline"], "looks good")


def test_rules_that_another_administrator_has_changed_meanwhile_stay(studio: Seeded, as_: As) -> None:
    other = User.objects.create_user("erin", is_staff=True)
    send = opened(as_(studio.dora), reverse("sharing"))
    rules = ClusterRules.current()
    services.set_policy(
        by=other, policy="priority", person_quota={"bob": 3}, project_quota=rules.project_quota, release_grace_s=60, now=timezone.now()
    )
    services.set_weight(studio.alice, by=other, weight=3)
    saved(send(priority_ceiling="70"))
    rules = ClusterRules.current()
    assert (rules.policy, rules.person_quota, rules.release_grace_s, rules.priority_ceiling) == ("priority", {"bob": 3}, 60, 70)
    assert User.objects.get(username="alice").weight == 3
