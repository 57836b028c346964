"""Parallel coordinates in a real browser: logarithmic axes, and ranges by the keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests import cast
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, violations

RATES = {"0.0001": ("cold", 0.9), "0.01": ("warm", 0.2), "1": ("hot", 0.7)}


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """Of a comparison of three runs, logged from outside, whose learning rates span four decades."""
    url, project = site.pages["url"], site.pages["project"].split("/")[2]
    token = httpx.post(
        f"{url}/api/v1/tokens", json={"name": "parallel", "scope": "write"}, auth=("alice", cast.PASSWORD), timeout=60
    ).json()["token"]
    numbers = []
    with httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        for rate, (name, loss) in RATES.items():
            run = client.post(f"/projects/{project}/outside-runs", json={"name": f"rate {rate}"}).json()["id"]
            points = [{"name": "loss", "step": step, "value": loss * step, "group": "train"} for step in (1, 2)]
            logged = {"points": points, "parameters": {"lr": rate, "start": name}}
            assert client.post(f"/runs/{run}/metrics", json=logged).status_code == 204
            assert client.post(f"/runs/{run}/end", json={"state": "completed"}).status_code == 200
            numbers.append(run)
    yield f"{url}/compare/?run={','.join(map(str, numbers))}"


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    expect(page.locator(".parallel-line")).to_have_count(len(RATES))
    return page


def log(page: Page, axis: str) -> Locator:
    return page.get_by_role("button", name=f"Log scale of {axis}", exact=True)


def end(page: Page, axis: str, which: str) -> Locator:
    return page.get_by_role("slider", name=f"{axis}, {which}", exact=True)


def heights(page: Page) -> list[float]:
    """Where the lines stand on the first axis, as parts of its height from below."""
    first = [float((line.get_attribute("d") or "").split("L")[0].split(" ")[1]) for line in page.locator(".parallel-line").all()]
    ends = [float(page.locator(".parallel-axis").first.get_attribute(name) or 0) for name in ("y1", "y2")]
    return [round((ends[1] - y) / (ends[1] - ends[0]), 2) for y in first]


def test_values_of_several_decades_are_on_a_logarithmic_scale_until_the_reader_wants_another(visit: Visit, address: str) -> None:
    page = opened(visit(), address)
    expect(log(page, "lr")).to_have_attribute("aria-pressed", "true")
    expect(log(page, "train loss")).to_have_attribute("aria-pressed", "false")
    assert heights(page) == [0, 0.5, 1]
    assert {"0.001", "0.1"} <= set(page.locator(".parallel-tick").all_text_contents()), "the decades between the ends"
    assert not log(page, "start").count(), "names have no scale"
    log(page, "lr").focus()
    page.keyboard.press("Enter")
    assert heights(page) == [0, 0.01, 1]
    expect(log(page, "lr")).to_be_focused()
    page.keyboard.press("Tab")
    expect(end(page, "lr", "to")).to_be_focused()
    log(page, "train loss").press("Space")
    page.wait_for_url(lambda url: "linear-axis=lr" in url and "log-axis=train" in url)
    page.reload()
    expect(log(page, "train loss")).to_have_attribute("aria-pressed", "true")
    assert heights(page) == [0, 0.01, 1]
    log(page, "lr").click()
    log(page, "train loss").click()
    page.wait_for_url(lambda url: "-axis" not in url)  # what is usual needs no word
    assert heights(page) == [0, 0.5, 1]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_the_arrow_keys_move_the_ends_of_a_range_and_escape_forgets_it(width: int, theme: str, visit: Visit, address: str) -> None:
    page = opened(visit(width=width, theme=theme), address)
    said, out = (
        page.get_by_role("status").filter(has_text="run").and_(page.locator("#parallel-said")),
        page.locator(".parallel-line.is-out"),
    )
    before = said.inner_text()
    top = end(page, "lr", "to")
    expect(top).to_have_attribute("aria-valuetext", "1")
    top.press("ArrowDown")
    expect(said).to_contain_text("2 of 3 runs are in range: rate 0.0001")
    expect(top).to_have_attribute("aria-valuetext", "0.01")
    expect(top).to_be_focused()
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowLeft")
    expect(said).to_contain_text("1 of 3 runs are in range")
    end(page, "lr", "from").press("End")
    expect(end(page, "lr", "from")).to_have_attribute("aria-valuenow", "0.0001")  # no further than the other one
    page.set_viewport_size({"width": width, "height": 500})
    log(page, "lr").click()
    expect(said).to_contain_text("1 of 3 runs are in range: rate 0.0001")  # of another scale it is the same range
    end(page, "start", "from").press("ArrowUp")
    expect(said).to_contain_text("1 of 3")
    end(page, "start", "from").press("ArrowUp")
    assert not violations(page, WCAG if theme == "light" else BY_LOOK)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    end(page, "lr", "to").press("End")
    expect(said).to_contain_text("1 of 3 runs")
    page.keyboard.press("Escape")
    end(page, "start", "to").press("Escape")
    expect(out).to_have_count(0)
    expect(said).to_have_text(before)
    expect(end(page, "start", "to")).to_be_focused()


def test_an_end_of_a_range_is_dragged_too(visit: Visit, address: str) -> None:
    page = opened(visit(), address)
    end(page, "lr", "to").press("ArrowDown")
    handle = end(page, "lr", "to").locator(".parallel-handle").bounding_box()
    assert handle
    page.mouse.move(handle["x"] + 9, handle["y"] + 3)
    page.mouse.down()
    page.mouse.move(handle["x"] + 9, handle["y"] + 40, steps=4)
    page.mouse.up()
    expect(page.locator("#parallel-said")).to_contain_text("1 of 3 runs are in range: rate 0.0001")
    expect(end(page, "lr", "to")).to_be_focused()
    page.mouse.move(handle["x"] + 9, handle["y"] - 40)  # which was let go
    expect(page.locator("#parallel-said")).to_contain_text("1 of 3 runs are in range")
