"""Pages with very many of everything, with names that are markup or read from the right, and with losses that are no numbers."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from experiments.models import TrainingRun
from tests.web import seed, strange
from tests.web.browsing import Site, Visit
from tests.web.conftest import As
from tests.web.seed import Seeded

MOST_BYTES = 100_000


@pytest.mark.parametrize("name", [seed.LONG, seed.RIGHT_TO_LEFT, "<script>alert(1)</script>", "\u202e\u2066'\"&"])
def test_a_name_is_shown_as_text_that_keeps_to_itself(name: str, studio: Seeded, as_: As) -> None:
    TrainingRun.objects.filter(pk=studio.running.pk).update(name=name)
    client = as_(studio.alice)
    pages = [reverse("cluster"), reverse("compare", args=[studio.experiment.pk]), reverse("change_run", args=[studio.running.pk])]
    pages += [reverse(page, args=[studio.running.pk]) for page in ("run", "run_overview", "run_logs", "run_results")]
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace("'", "&#x27;")
    for page in pages:
        text = client.get(page).content.decode()
        assert f"<bdi>{escaped}</bdi>" in text, page
        assert "<script>alert" not in text, page
    assert name in [bar["name"] for lane in client.get(reverse("lanes")).json()["lanes"] for bar in lane["bars"]]


def test_five_hundred_runs_are_pages_of_a_list(studio: Seeded, as_: As) -> None:
    strange.many_runs(studio.experiment, now=timezone.now())
    client = as_(studio.alice)
    for address in (reverse("cluster"), reverse("compare", args=[studio.experiment.pk])):
        assert len(client.get(address).content) < MOST_BYTES, address
    page = client.get(reverse("cluster"), {"offset": "480", "part": "jobs"}).content.decode()
    assert "481–506 of 506" in page


def test_a_hundred_slots_are_lanes_and_rows(studio: Seeded, as_: As) -> None:
    strange.many_slots(studio, now=timezone.now())
    client = as_(studio.alice)
    answer = client.get(reverse("lanes"), {"window": "10m"}).json()
    assert len(answer["lanes"]) == 4 + strange.SLOTS
    assert sum(len(lane["bars"]) for lane in answer["lanes"]) == 6 + 2 * strange.SLOTS
    assert "0 of 100" in client.get(reverse("cluster"), {"part": "nodes"}).content.decode()


def test_the_use_of_a_hundred_slots_is_a_band_and_the_lines_that_are_asked_for(studio: Seeded, as_: As) -> None:
    strange.much_use(studio.completed, strange.many_slots(studio, now=timezone.now()))
    client, address = as_(studio.alice), reverse("run_use", args=[studio.completed.pk])
    whole = client.get(address)
    assert len(whole.content) < 20_000
    answer = whole.json()
    assert (len(answer["slots"]), answer["lines"]) == (4 + strange.SLOTS, {})
    assert {label.split(" on ")[1] for _, label in answer["slots"]} == {"big", "local"}, "of several machines"
    chosen = [slot for slot, label in answer["slots"] if label in ("GPU 0 on big", "GPU 3 share 13 on big")]
    lines = client.get(address, {"slots": ",".join(map(str, chosen))}).json()["lines"]
    for _, _, _, largest, least, greatest, smallest in answer["points"][1:]:
        assert 0 <= least < 0.3 < 0.8 < greatest <= 1
        assert smallest + 99 * 10**7 == largest
    inside = zip(answer["points"], *(lines[str(slot)] for slot in chosen), strict=True)
    assert all(point[4] <= line[0] <= point[5] for point, *several in inside for line in several)
    table = client.get(reverse("run", args=[studio.completed.pk]), {"table": "use"}).content
    assert len(table) < MOST_BYTES


def test_losses_that_are_no_numbers_are_gaps_and_said(studio: Seeded, as_: As) -> None:
    run = strange.many_metrics(studio, now=timezone.now())
    raw = as_(studio.alice).get(reverse("run_series", args=[run.pk])).content.decode()
    curves = json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["curves"]
    assert len(curves) == strange.METRICS
    assert curves[0]["values"].count(None) == strange.STEPS // 2
    page = as_(studio.alice).get(reverse("run", args=[run.pk])).content.decode()
    assert page.count('<figure class="chart" ') == strange.METRICS
    assert "metric 02 &lt;b&gt;" in page
    assert "not finite" in page
    table = as_(studio.alice).get(reverse("experiment", args=[run.experiment_id])).content.decode()
    assert 'class="number">not finite</td>' in table
    assert f'title="Train {strange.LONG_METRIC}"' in table, "it is cut, and said where it is pointed at"


def test_very_much_of_everything_is_drawn_without_an_error(visit: Visit, site: Site) -> None:
    site.tell("strange")
    for width in (1280, 360):
        page = visit(width=width)
        page.goto(site.pages["url"] + "/cluster/?name=fifty")
        if width > 700:
            expect(page.locator("#lanes .lane")).to_have_count(4 + strange.SLOTS)
            drawn = page.locator("#lanes svg.lanes").bounding_box()
            assert drawn
            assert drawn["height"] < 900
            ends = page.locator(".lane-label").evaluate_all("all => all.map(each => Number(each.getAttribute('y')))")
            assert min(after - before for before, after in itertools.pairwise(ends)) >= 14, "no name lies over another"
        expect(page.locator("#nodes")).to_contain_text("0 of 100")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        the_use_of_a_hundred_slots_is_legible(page, site.pages["url"] + site.pages["completed run"])
        page.go_back()
        page.locator("#jobs").get_by_role("link", name="fifty metrics", exact=True).click()
        page.locator(".uplot").first.wait_for()
        assert page.locator(".uplot").count() < 20, "what is far below is not drawn yet"
        expect(page.locator('[data-chart="loss"] figcaption')).to_contain_text("train")
        page.get_by_placeholder("Metric").fill("metric 49")
        page.locator('[data-chart="metric 49 <b>"]').scroll_into_view_if_needed()
        expect(page.locator('[data-chart="metric 49 <b>"] .uplot')).to_be_visible()
        expect(page.locator('[data-chart="loss"]')).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        long_names_of_metrics_leave_room_for_the_values(page)
    values = "[null, 1, null, 2, 3, null, undefined, 4, undefined, null, 5]"
    points = f"(await import('/static/js/chart.js')).alone({{ data: [[], {values}] }}, 1, false)"
    assert page.evaluate(f"async () => {points}") == [1, 7, 10], "between gaps, and at the end"


def long_names_of_metrics_leave_room_for_the_values(page: Page) -> None:
    """In the tables of the run's experiment, and where its runs are compared."""
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link").last.click()
    box = page.locator(f"td[data-label='Train {strange.LONG_METRIC}']").first.bounding_box()
    assert box
    assert box["x"] + box["width"] <= 360 or (page.viewport_size or {})["width"] > 360, "stacked, there is no way to the right"
    for address in ("", "compare/"):
        page.goto(page.url.split("compare")[0] + address)
        expect(page.get_by_role("link", name="Overview")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address


def the_use_of_a_hundred_slots_is_legible(page: Page, address: str) -> None:
    page.goto(address)
    legend = page.locator("#use-slots")
    legend.scroll_into_view_if_needed()
    expect(page.locator('[data-chart=":busy"] .uplot')).to_be_visible()
    expect(page.locator('[data-chart=":busy"] figcaption')).to_contain_text(re.compile(r"\d+ % · slots \d+ to \d+ %"))
    expect(legend.get_by_role("button")).to_have_count(0)  # folded away
    height = (legend.bounding_box() or {"height": 999})["height"]
    assert height < 90
    legend.get_by_text("Single slots").click()
    for label in ("GPU 0 on big", "GPU 3 share 13 on big"):
        legend.get_by_role("button", name=label, exact=True).click()
        expect(legend.get_by_role("button", name=label, exact=True)).to_have_attribute("aria-pressed", "true")
        expect(legend.get_by_role("button", name=label, exact=True)).to_contain_text("%")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    expect(page).to_have_url(re.compile(r"slots=\d+%2C\d+"))
