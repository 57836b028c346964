"""What probes are told: that the process lives, and whether pages can be served."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.utils import OperationalError
from django.test import Client


def test_who_lives_says_so_without_a_database(client: Client) -> None:
    """No mark for the database: touching it fails this test."""
    answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"alive\n")


@pytest.mark.django_db
def test_who_can_serve_pages_is_ready(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (200, b"ready\n")
    assert "no-store" in answer["Cache-Control"]
    assert not answer.cookies


@pytest.mark.django_db
def test_without_its_database_it_is_not_ready_and_says_what_is_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(connection, "cursor", away)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"the database does not answer\n")


@pytest.mark.django_db
def test_without_its_broker_it_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_key: str) -> None:
        raise ConnectionError

    monkeypatch.setattr(cache, "get", away)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"the broker does not answer\n")
