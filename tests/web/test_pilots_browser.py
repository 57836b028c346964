"""A pool of pilots in a real browser: what another policy would do is said while it is typed, and nothing is asked of Slurm for that."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

from tests.web.browsing import Site, Visit, go, violations


def test_an_administrator_sees_what_another_policy_would_do(visit: Visit, site: Site) -> None:
    page = visit(username="dora")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    go(page, site, "pool of pilots")
    expect(page.locator("#held")).to_contain_text("PENDING (Resources)")
    page.get_by_label("At most").fill("0")
    expect(page.locator("#preview")).to_contain_text("gpu-1 is given back: at most 0 are to be held.")
    page.get_by_label("At most").fill("3")
    page.get_by_label("At least").fill("3")
    expect(page.locator("#preview")).to_contain_text("Asks for 2 more: at least 3 are held.")
    page.get_by_label("Options of sbatch").fill("--uid=0")
    expect(page.locator("#preview")).to_contain_text("--uid cannot be chosen here")
    assert not violations(page)
    assert not [url for url in sent if "csrfmiddlewaretoken" in url]
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".error")).to_contain_text("--uid cannot be chosen here")
    page.get_by_label("Options of sbatch").fill("--partition=cpu")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The pool gpu is changed.")).to_be_visible()
    go(page, site, "pilots")
    expect(page.locator("#pools")).to_contain_text("shared")
    page.get_by_text("What Slurm lends").click()
    expect(page.locator("#offers-slurm")).not_to_contain_text("Asking Slurm")
    page.get_by_text("What Ray lends").click()
    expect(page.locator("#offers-ray")).to_contain_text("EDT_RAY_ADDRESS")
    assert not violations(page)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_pools_of_ray_speak_of_ray(width: int, theme: str, visit: Visit, site: Site) -> None:
    page = visit(username="dora", width=width, theme=theme)
    for name in ("pool of pilots of Ray", "pilots"):
        go(page, site, name)
        if to := os.environ.get("SHOTS"):
            page.screenshot(path=f"{to}/{name.replace(' ', '-')}-{width}-{theme}.png", full_page=True)
    go(page, site, "pool of pilots of Ray")
    expect(page.locator("#held")).to_contain_text("edt-node: not found")
    expect(page.locator("#pool-form")).to_contain_text("Options of ray job submit")
    expect(page.locator("main")).not_to_contain_text("Slurm")
    expect(page.locator("main")).not_to_contain_text("sbatch")
    page.get_by_label("Options of ray job submit").fill("--working-dir=/etc")
    expect(page.locator("#preview")).to_contain_text("'--working-dir' cannot be chosen here")
