"""Somebody logs in at an OpenID provider that is the test's: the provider as a fixture, and what her browser does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments.accounts import oidc
from tests.oidc import CLIENT, SECRET, Provider, provider


@pytest.fixture
def erins(db: None, home: Any, settings: Any) -> Iterator[Provider]:
    """A provider at which Erin has a log-in; whom it knows gets an account."""
    with provider() as made:
        settings.EDT_OIDC_ISSUER, settings.EDT_OIDC_CLIENT_ID, settings.EDT_OIDC_CLIENT_SECRET = made.address, CLIENT, SECRET
        settings.EDT_OIDC_NAME, settings.EDT_OIDC_ALLOW = "Example SSO", ["*"]
        oidc._made.cache_clear()
        yield made


def log_in(at: Provider, client: Client | None = None, to: str = "") -> Any:
    """The page at which it ends."""
    client = client or Client()
    began = client.get(reverse("oidc_login"), {"next": to} if to else {})
    assert began.status_code == 302
    return client.get(f"{reverse('oidc_callback')}?{at.log_in(began.url)}", follow=True)


def person(answer: Any) -> str:
    return answer.context["user"].username
