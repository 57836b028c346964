"""Browsers without a browser: a logged-in client for each of the cast, and a studio with a past."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from experiments.models import User
from tests import cast, chromium
from tests.conftest import SentMessages
from tests.web import seed, seeded
from tests.web.browsing import browser, servers, site, visit

As = Callable[[User], Client]
__all__ = ["browser", "servers", "site", "visit"]  # the fixtures of the tests in a browser


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Here, not as the next test begins: that may be of another folder, which knows of no browser."""
    if "browser" not in getattr(nextitem, "fixturenames", ()):
        chromium.close_shared()


def pytest_sessionfinish() -> None:
    chromium.close_shared()


@pytest.fixture
def as_() -> As:
    """`as_(alice)`: a client that is logged in as her."""

    def client(user: User) -> Client:
        made = Client()
        made.force_login(user)
        return made

    return client


@pytest.fixture
def studio(db: None, home: Any, said: SentMessages) -> seed.Seeded:
    """Two projects with runs in every state; nothing is sent outward."""
    made = seeded.studio(home)
    said.clear()
    return made


@pytest.fixture
def stranger(studio: seed.Seeded) -> User:
    """Charlie, who is in no project."""
    return User.objects.get(username="charlie")


def code(files: dict[str, str | bytes] | None = None, name: str = "code.zip") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, cast.zipped(files).getvalue(), content_type="application/zip")


def definition_form(**changes: Any) -> dict[str, Any]:
    """What the New training definition form sends."""
    sent = {
        "idempotency_key": str(uuid.uuid4()),
        "name": "lenet",
        "description": "two convolutions",
        "upload": code(),
        "framework": "pytorch",
        "command": "main.py --epochs 3",
        "device": "any",
        "distributed": "elastic",
        "max_slots": "4",
        **changes,
    }
    return {key: value for key, value in sent.items() if value is not None}
