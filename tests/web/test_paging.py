"""Lists that have become long: a page shows some rows, says of how many, and all others are reached from there or found by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from experiments.models import (
    DataAsset,
    DataSeries,
    DefinitionVersion,
    Experiment,
    Membership,
    ModelVersion,
    Notification,
    Project,
    RegisteredModel,
    RunComment,
    TrainingDefinition,
    User,
)
from experiments.selectors import comments
from experiments.views import new_experiment
from tests.web import strange
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_every_address import version_of

MANY = 120


@pytest.fixture
def alice(studio: Seeded, as_: As) -> Client:
    return as_(studio.alice)


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def walked(client: Client, address: str, at: str, of: str) -> str:
    """All pages of one list of a page, one after the other by its own links."""
    seen, next_ = "", address
    for _ in range(20):
        text = text_of(client, next_)
        seen += text
        pagers = re.findall(rf'<nav class="pager" aria-label="Pages of {of}">.*?</nav>', text, re.DOTALL)
        assert len(pagers) == 1, f"{next_} does not say where in the list it is"
        links = re.findall(r'href="([^"]+)">(?:Older|Next)', pagers[0])
        if not links:
            return seen
        next_ = urlsplit(address).path + links[0].replace("&amp;", "&").removesuffix(f"#{at}" if at else "")
    raise AssertionError("the list has no end")


def experiments(studio: Seeded) -> None:
    mine = {"project": studio.digits, "created_by": studio.alice}
    Experiment.objects.bulk_create(Experiment(name=f"row {number} of many", **mine) for number in range(MANY))


def definitions(studio: Seeded) -> None:
    strange.many_definitions(studio, MANY)


def data(studio: Seeded) -> None:
    facts = {"size_bytes": 1, "files": 1, "version": 1, "created_by": studio.alice, "project": studio.digits}
    for number in range(MANY):
        series = DataSeries.objects.create(project=studio.digits, last_version=1)
        DataAsset.objects.create(name=f"row {number} of many", series=series, **facts)


def versions(studio: Seeded) -> None:
    same = {
        "bundle": studio.version.bundle,
        "created_by": studio.alice,
        "definition": studio.version.definition,
        "command": "python main.py",
    }
    DefinitionVersion.objects.bulk_create(
        DefinitionVersion(number=1000 + number, file_name=f"row {number} of many", **same) for number in range(MANY)
    )


def models(studio: Seeded) -> None:
    mine = {"project": studio.digits, "created_by": studio.alice, "created_at": timezone.now()}
    RegisteredModel.objects.bulk_create(RegisteredModel(name=f"row {number} of many", **mine) for number in range(MANY))


def model_versions(studio: Seeded) -> None:
    mine = {"model": version_of(studio).model, "created_by": studio.alice, "created_at": timezone.now(), "path": "model"}
    ModelVersion.objects.bulk_create(ModelVersion(number=10 + number, note=f"row {number} of many", **mine) for number in range(MANY))


def members(studio: Seeded) -> None:
    people = User.objects.bulk_create(User(username=f"row {number} of many", password="-") for number in range(MANY))
    Membership.objects.bulk_create(Membership(project=studio.digits, user=each, role="viewer") for each in people)


def projects(studio: Seeded) -> None:
    made = Project.objects.bulk_create(Project(name=f"row {number} of many", created_by=studio.alice) for number in range(MANY))
    Membership.objects.bulk_create(Membership(project=each, user=studio.alice, role="admin") for each in made)


def notifications(studio: Seeded) -> None:
    mine = {"person": studio.alice, "kind": "run.completed", "at": timezone.now()}
    Notification.objects.bulk_create(Notification(text=f"row {number} of many", **mine) for number in range(MANY))


@pytest.mark.parametrize(
    ("make", "page", "at", "of"),
    [
        (experiments, "assets", "experiments-title", "experiments"),
        (definitions, "assets", "definitions-title", "training definitions"),
        (data, "assets", "data-title", "data assets"),
        (versions, "definition", "versions-title", "versions"),
        (models, "models", "", "models"),
        (model_versions, "model", "versions-title", "versions"),
        (members, "members", "people-title", "members"),
        (projects, "projects", "", "projects"),
        (notifications, "notifications", "", "notifications"),
    ],
)
def test_every_row_of_a_long_list_is_on_one_of_its_pages(
    studio: Seeded, alice: Client, make: Callable[[Seeded], None], page: str, at: str, of: str
) -> None:
    make(studio)
    owners = {"assets": studio.digits.pk, "models": studio.digits.pk, "members": studio.digits.pk}
    owners |= {"definition": studio.version.definition_id, "model": version_of(studio).model_id}
    address = reverse(page, args=[owners[page]] if page in owners else [])
    first = text_of(alice, address)
    assert len(set(re.findall(r"row \d+ of many", first))) <= 50
    seen = set(re.findall(r"row \d+ of many", walked(alice, address, at, of)))
    assert seen == {f"row {number} of many" for number in range(MANY)}


def test_an_experiment_of_years_ago_is_found_by_its_name_and_by_what_is_said_of_it(studio: Seeded, alice: Client) -> None:
    Experiment.objects.create(project=studio.digits, name="The first of all", description="With Adam", created_by=studio.alice)
    experiments(studio)
    for asked in ("first of ALL", "adam"):
        found = text_of(alice, reverse("assets", args=[studio.digits.pk]) + f"?q={asked}")
        assert "The first of all" in found
        assert not re.search(r"row \d+ of many", found)
        assert f"No data asset has “{asked}” in its name or description." in found


def test_a_page_that_is_refreshed_stays_where_it_is_in_the_list_and_in_what_was_found(studio: Seeded, alice: Client) -> None:
    experiments(studio)
    text = text_of(alice, reverse("assets", args=[studio.digits.pk]) + "?q=many&experiments=50&part=body")
    assert "51–100 of 120" in text
    text = text_of(alice, reverse("assets", args=[studio.digits.pk]) + "?q=many&experiments=50")
    (refreshed,) = re.findall(r'id="body"[^>]*hx-get="([^"]+)"', text)
    assert parse_qs(refreshed.replace("&amp;", "&").lstrip("?")) == {"q": ["many"], "experiments": ["50"], "part": ["body"]}


@pytest.mark.parametrize("asked", ["100000", "119", "-5", "x", "9" * 30])
def test_a_place_that_is_not_in_the_list_shows_some_of_it(studio: Seeded, alice: Client, asked: str) -> None:
    experiments(studio)
    text = text_of(alice, reverse("assets", args=[studio.digits.pk]) + f"?q=many&experiments={asked}")
    assert re.search(r"row \d+ of many", text)


def test_a_run_of_which_very_much_was_said_shows_the_last_and_all_on_request(studio: Seeded, alice: Client) -> None:
    said = {"run_id": studio.running.pk, "author": studio.alice, "at": timezone.now()}
    RunComment.objects.bulk_create(RunComment(text=f"row {number} of many", **said) for number in range(MANY))
    address = reverse("run", args=[studio.running.pk])
    text = text_of(alice, address)
    shown = set(re.findall(r"row \d+ of many", text))
    assert shown == {f"row {number} of many" for number in range(MANY - comments.SHOWN, MANY)}
    assert "Show 20 earlier" in text
    assert len(set(re.findall(r"row \d+ of many", text_of(alice, address + "?comments=all")))) == MANY


def test_of_very_many_training_definitions_a_new_experiment_offers_the_newest_and_finds_any(studio: Seeded, alice: Client) -> None:
    definitions(studio)
    oldest = TrainingDefinition.objects.filter(project=studio.digits).order_by("created_at", "pk").first()
    assert oldest is not None
    oldest.description = "the very first"
    oldest.save()
    address = reverse("new_experiment", args=[studio.digits.pk])
    text = text_of(alice, address)
    there = TrainingDefinition.objects.filter(project=studio.digits).count()
    assert text.count("data-existing=") == new_experiment.OFFERED
    assert f"Find one of {there} by name or description" in text
    assert f"The newest {new_experiment.OFFERED} of {there}." in text
    newest = oldest.newest()
    found = text_of(alice, address + "?part=existing&q=VERY first")
    assert re.findall(r'data-existing="(\d+)"', found) == [str(newest.pk)]
    ticked = text_of(alice, address + f"?part=existing&q=nothing+like+this&ticked={newest.pk}&ticked=x")
    assert re.findall(r'data-existing="(\d+)"[^>]* checked', ticked) == [str(newest.pk)], "what was ticked before one looks for another"
    assert "No training definition has “nothing like this”" in ticked
    begun = text_of(alice, address + f"?version={newest.pk}")
    assert f'name="versions" value="{newest.pk}" checked' in begun, "an old one that another page has named is chosen"
