"""The menu of actions in the head of every run, experiment and definition: what is in it for whom, by keys, and without script."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Route, expect

from experiments.models import User
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, violations
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_curves_browser import first_of


def entries(page: str) -> list[str]:
    """The words of the menu."""
    menu = page.split('class="menu actions-menu"')[1].split("</details>")[0].split("menu-panel")[1]
    return re.findall(r"</svg>\s*([^<]+?)\s*</(?:a|button)>", menu)


def test_each_head_has_one_menu_with_what_one_may_do(studio: Seeded, as_: As) -> None:
    alice, victor = as_(studio.alice), as_(User.objects.get(username="victor"))

    def seen(address: str, *args: Any) -> tuple[list[str], list[str]]:
        pages = [client.get(reverse(address, args=args)).content.decode() for client in (alice, victor)]
        assert {page.count('class="menu actions-menu"') for page in pages} == {1}
        return entries(pages[0]), entries(pages[1])

    for tab in ("run", "run_overview", "run_logs", "run_results", "run_media"):
        live, looked_at = seen(tab, studio.running.pk)
        assert live == ["Run with changes", "Compare", "Tags and note", "Register as a model", "New version of its code"]
        assert looked_at == ["Compare"]
    ended, looked_at = seen("run", studio.failed.pk)
    assert ended[:4] == ["Compare", "Tags and note", "Register as a model", "Receipt and reproduce"]
    assert ended[4:] == ["Download results", "New version of its code", "Delete"]
    assert looked_at == ["Compare", "Receipt", "Download results"]
    for tab in ("experiment", "compare", "experiment_overview"):
        of_experiment, looked_at = seen(tab, studio.experiment.pk)
        assert of_experiment == ["Duplicate and edit", "Duplicate without running", "Compare", "Download as CSV", "Triggers", "Delete"]
        assert looked_at == ["Compare", "Download as CSV"]
    of_definition, looked_at = seen("definition", studio.version.definition_id)
    assert of_definition == ["New version", "Browse code", "Download code", "Variables", "Rename", "Delete"]
    assert looked_at == ["Browse code", "Download code", "Variables"]


def test_data_has_a_menu_for_those_who_may_change_it(studio: Seeded, as_: As) -> None:
    address = reverse("data", args=[studio.data.pk])
    assert entries(as_(studio.alice).get(address).content.decode()) == ["Add a version", "Rename", "Delete"]
    victor = as_(User.objects.get(username="victor")).get(address).content.decode()
    assert "actions-menu" not in victor
    assert 'id="rename"' not in victor


def test_a_run_that_has_ended_offers_to_run_it_with_changes(studio: Seeded, as_: As) -> None:
    address = f'href="{reverse("run_with_changes", args=[studio.failed.pk])}"'
    assert address in as_(studio.alice).get(reverse("run", args=[studio.failed.pk]), {"part": "head"}).content.decode()
    assert address not in as_(User.objects.get(username="victor")).get(reverse("run", args=[studio.failed.pk])).content.decode()


def test_a_definition_offers_a_new_experiment_with_its_newest_version(studio: Seeded, as_: As) -> None:
    client = as_(studio.alice)
    address = f"{reverse('new_experiment', args=[studio.digits.pk])}?version={studio.version.pk}"
    assert address in client.get(reverse("definition", args=[studio.version.definition_id])).content.decode()
    table = client.get(address).content.decode().split('id="associated"')[1].split("</tbody>")[0]
    assert f'<tr data-version="{studio.version.pk}">' in table
    for odd in ("0", "x", "9" * 30):
        assert client.get(reverse("new_experiment", args=[studio.digits.pk]), {"version": odd}).status_code == 200


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_it_is_opened_and_closed_by_keys_and_read_by_everybody(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(width=width, theme=theme)
    for name in ("failed run", "experiment", "definition", "data"):
        page.goto(site.pages["url"] + site.pages[name])
        summary = page.locator(".actions-menu summary")
        summary.focus()
        page.keyboard.press("Enter")
        panel = page.locator(".actions-menu .menu-panel")
        expect(panel).to_be_visible()
        box = panel.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
        page.keyboard.press("Tab")
        expect(panel.locator("a, button").first).to_be_focused()
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(summary).to_be_focused()
        page.keyboard.press("Enter")
        expect(panel).to_be_visible()
        assert not violations(page, WCAG if theme == "light" else BY_LOOK)


def test_it_stays_open_though_its_head_was_being_fetched_anew(visit: Visit, site: Site) -> None:
    page, held = visit(), list[Route]()
    page.route("**/*part=head", lambda route: held.append(route))
    page.goto(site.pages["url"] + site.pages["run"])
    expect(page.locator("#live")).to_have_text("Live")
    head = first_of(held, page)
    page.locator(".actions-menu summary").click()
    with page.expect_response("**/*part=head"):
        head.continue_()
    page.locator(".actions-menu").get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()


@pytest.mark.parametrize(("name", "to"), [("definition", "LeNet, renamed"), ("data", "Digits, renamed")])
def test_rename_closes_it_and_asks_for_the_name(name: str, to: str, visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages[name])
    page.locator(".actions-menu summary").click()
    page.get_by_role("link", name="Rename").click()
    expect(page.locator(".actions-menu .menu-panel")).to_be_hidden()
    dialog = page.get_by_role("dialog", name="Rename")
    field = dialog.get_by_label("Name")
    expect(field).to_be_focused()
    assert not violations(page)
    before = field.input_value()
    field.fill(to)
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{to} v1" if name == "data" else to)
    page.goto(site.pages["url"] + site.pages[name])  # other tests know it by its name
    page.locator(".actions-menu summary").click()
    page.get_by_role("link", name="Rename").click()
    field.fill(before)
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{before} v1" if name == "data" else before)


@pytest.mark.parametrize("name", ["definition", "data"])
def test_without_script_rename_shows_its_form(name: str, visit: Visit, site: Site) -> None:
    page = visit(script=False)
    page.goto(site.pages["url"] + site.pages[name])
    page.locator(".actions-menu summary").click()
    page.get_by_role("link", name="Rename").click()
    expect(page.locator("#rename").get_by_label("Name")).to_be_visible()
    expect(page.locator("#rename").get_by_role("button")).to_have_text(["Save"])


def test_without_script_it_opens_too(visit: Visit, site: Site) -> None:
    page = visit(script=False)
    page.goto(site.pages["url"] + site.pages["failed run"])
    page.locator(".actions-menu summary").click()
    page.locator(".actions-menu").get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
