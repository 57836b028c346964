"""A disk that takes nothing more, the database's own words for it: every interface says so in its own way, and nothing is half done."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from experiments import services
from experiments.models import Project, User
from experiments.ops import full_disk
from tests.conftest import SentMessages
from tests.web import api, wmla

pytestmark = pytest.mark.django_db(transaction=True)
LONG = "ä" * 3000  # more bytes than a page of the database has


def pragma(name: str, value: int | None = None) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}" if value is None else f"PRAGMA {name} = {value}")
        found = cursor.fetchone()
    return int(found[0]) if found else 0


@pytest.fixture(params=["full", "read-only"])
def disk(request: pytest.FixtureRequest, db: None) -> Iterator[str]:
    """SQLite says of itself what it says of a disk: that it may not grow, that it may not be written."""
    if connection.vendor != "sqlite":
        pytest.skip("SQLite's own limits")
    yield request.param
    pragma("query_only", 0)
    pragma("max_page_count", 2**31)
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER IF EXISTS grows")
        cursor.execute("DROP TABLE IF EXISTS filler")


@pytest.fixture
def fill(disk: str) -> Callable[[], str]:
    """What is said from then on."""

    def close() -> str:
        if disk == "read-only":
            pragma("query_only", 1)
            return full_disk.CLOSED
        pragma("max_page_count", 1)  # no fewer than there are
        while pragma("freelist_count"):
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE IF NOT EXISTS filler (x)")
                cursor.execute("INSERT INTO filler VALUES (zeroblob(3000))")
        return full_disk.FULL

    return close


def made(name: str) -> bool:
    return Project.objects.filter(name=name).exists()


def test_a_page_says_so_and_what_to_do(alice: User, client: Client, fill: Callable[[], str], said: SentMessages) -> None:
    client.force_login(alice)
    client.raise_request_exception = False
    sent = {"name": "Late", "description": LONG, "idempotency_key": str(uuid.uuid4())}
    says = fill()
    answer = client.post("/projects/new/", sent)
    assert (answer.status_code, "Something broke" in answer.text) == (507, False)
    assert says.replace("'", "&#x27;") in answer.text
    script = client.post("/projects/new/", sent, headers={"Accept": "application/json"})
    assert (script.status_code, script.json()) == (507, {"errors": {"upload": [says]}})
    assert not made("Late")
    assert client.get("/projects/").status_code == 200


def test_a_session_that_cannot_be_written_is_no_bad_request(
    alice: User, client: Client, fill: Callable[[], str], said: SentMessages
) -> None:
    """Django's word for it is that somebody has logged out meanwhile."""
    client.force_login(alice)
    client.raise_request_exception = False
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler (x)")
        cursor.execute(
            "CREATE TRIGGER grows BEFORE UPDATE ON experiments_browsersession BEGIN INSERT INTO filler VALUES (zeroblob(9000)); END"
        )
    fill()
    assert client.post("/notifications/read/", {}).status_code == 507


def test_the_api_says_so(alice: User, fill: Callable[[], str], said: SentMessages) -> None:
    script = api.of(alice)
    script.get("/me")  # when it was last used is noted now, not again for a while
    script.client.raise_request_exception = False
    says = fill()
    answer = script.post("/projects", {"name": "Late", "description": LONG})
    assert (answer.status_code, answer["Content-Type"]) == (507, "application/problem+json")
    assert answer.json()["detail"] == says
    assert not made("Late")


def test_wmlas_routes_and_mlflows_say_so(alice: User, fill: Callable[[], str], said: SentMessages) -> None:
    script, mine = wmla.of(alice), api.of(alice)
    mine.get("/me")
    space = services.create_project(by=alice, name="Digits").pk
    says = fill()
    about = {"name": "m", "space_id": str(space), "description": LONG, "tags": [], "version": "1.0"}
    about |= {"platform": {"name": "python", "versions": ["3.11"]}, "command": "python main.py"}
    sent: dict[str, Any] = {"data": json.dumps(about), "content_type": "application/json"}
    answer = script.client.post("/ml/v4/model_definitions", headers={**script.headers, "Accept": "application/json"}, **sent)
    assert (answer.status_code, answer.json()) == (507, {"statusCode": 507, "message": says})
    sent["data"] = json.dumps({"experiment_id": str(space), "tags": [{"key": "note", "value": LONG}]})
    answer = mine.client.post("/api/2.0/mlflow/runs/create", headers=mine.headers, **sent)
    assert (answer.status_code, answer.json()) == (507, {"error_code": "RESOURCE_EXHAUSTED", "message": says})
