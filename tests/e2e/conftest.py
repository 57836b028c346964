"""Browsers and a whole studio for the end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests import chromium
from tests.e2e.shared import Shared
from tests.e2e.studio import Studio


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium.started() as browser:
        yield browser


@pytest.fixture(scope="package")
def shared() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def studio(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Studio]:
    """One of the test's own; where it is marked `shared_studio`, one that other tests have had runs in."""
    if request.node.get_closest_marker("shared_studio"):
        with shared.for_a_test() as studio:
            yield studio
        return
    shared.close()
    studio = Studio()
    try:
        studio.start()
        yield studio
    finally:
        studio.close()


@pytest.fixture
def person(browser: Browser, studio: Studio) -> Iterator[Callable[..., Page]]:
    """`person("alice")`: a browser of her own, logged in, that fails the test on any script error or policy violation.

    `staff`: an administrator of the cluster.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def log_in(name: str, *, staff: bool = False, width: int = 1280, height: int = 900, theme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a deadline: a busy machine is no finding
        page.on("pageerror", lambda error: complaints.append(f"{name}: {error.stack or error}"[:600]))
        page.on("console", lambda message: complaints.append(f"{name}: {message.text}") if message.type == "error" else None)
        page.goto(f"{studio.url}/login/")
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password").fill(studio.account(name, staff=staff))
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/projects/")
        return page

    yield log_in
    for context in contexts:
        context.close()
    assert not complaints, complaints


@pytest.fixture
def pictures() -> Path | None:
    """Where pictures for the documentation go: the folder named by EDT_PICTURES, or nowhere."""
    folder = os.environ.get("EDT_PICTURES")
    return Path(folder) if folder else None
