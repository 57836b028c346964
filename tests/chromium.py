"""The real browser that tests drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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
    close_shared()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


_open = ExitStack()
_found: list[Browser] = []


def shared() -> Browser:
    """One for all tests of this process that come one after the other and have it."""
    if not (_found and _found[0].is_connected()):
        close_shared()
        _found.append(_open.enter_context(started()))
    return _found[0]


def close_shared() -> None:
    """Before any test that runs without it."""
    _found.clear()
    _open.close()
