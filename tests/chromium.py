"""The real browser that tests drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=20_000)  # as pages have: of a condition that comes late on a busy machine 5 s are not enough
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first draws the same, without windows


def executable() -> str:
    """The browser to drive: $CHROMIUM, or one on the PATH."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium: install the package `chromium-headless-shell` or `chromium`, or set CHROMIUM to its path"
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """A browser. Close it before any test that runs an event loop: while it is open, Playwright's own loop runs in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
