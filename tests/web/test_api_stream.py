"""The API's live stream and its tokens on the WebSocket: what a script may hear, and that it ends with the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.testing import WebsocketCommunicator
from django.utils import timezone

from experiments import services
from experiments.files import runfiles
from experiments.live import notify
from experiments.models import ApiToken, Project, TrainingRun, User
from tests import cast
from webapp.asgi import application

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Celery is not part of this; the channel layer is."""
    monkeypatch.setattr(notify.app, "send_task", lambda *_, **__: None)
    yield


@pytest.fixture
def run(transactional_db: None, home: Any) -> TrainingRun:
    alice, bob, victor = (cast.person(name) for name in ("alice", "bob", "victor"))
    cast.person("charlie")
    return cast.run(cast.shared_project(alice, editor=bob, viewer=victor), by=alice)


def token_of(username: str, *, scope: str = "read", project: Project | None = None) -> str:
    by = User.objects.get(username=username)
    return services.create_token(by=by, name="stream", scope=scope, project=project, days=1, now=timezone.now())[1]


class Stream:
    """The events of an answer that does not end, one after the other."""

    def __init__(self, communicator: ApplicationCommunicator) -> None:
        self.communicator, self.rest = communicator, b""

    async def event(self) -> dict[str, Any]:
        """The next; "end" where the answer has ended."""
        while b"\n\n" not in self.rest:
            message = await self.communicator.receive_output(DEADLINE_S)
            self.rest += message.get("body", b"")
            if not message.get("more_body"):
                return {"type": "end"}
        block, _, self.rest = self.rest.partition(b"\n\n")
        lines = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
        return json.loads(lines["data"]) if lines else await self.event()


@asynccontextmanager
async def stream(token: str, *topics: str) -> AsyncIterator[tuple[int, Stream]]:
    query = "&".join(f"topic={topic}" for topic in topics).encode()
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/api/v1/stream", "query_string": query, "headers": headers}
    communicator = ApplicationCommunicator(application, {**scope, "client": ("127.0.0.1", 1), "scheme": "http"})
    await communicator.send_input({"type": "http.request", "body": b""})
    started = await communicator.receive_output(DEADLINE_S)
    try:
        yield started["status"], Stream(communicator)
    finally:
        await communicator.send_input({"type": "http.disconnect"})
        await communicator.wait(DEADLINE_S)


async def test_a_script_hears_what_its_pages_hear(run: TrainingRun) -> None:
    async with stream(await sync_to_async(token_of)("victor"), f"run-{run.pk}", "run-9999") as (status, events):
        assert status == 200
        assert (await events.event())["type"] == "hello"
        said = [await events.event(), await events.event()]
        assert {"type": "refused", "topic": "run-9999"} in said
        assert {"type": "subscribed", "topics": [f"run-{run.pk}"]} in said
        await sync_to_async(notify.changed)(f"run-{run.pk}", "state")
        assert await events.event() == {"type": "changed", "topic": f"run-{run.pk}", "what": ["state"]}


async def test_a_log_is_followed_from_the_byte_on_where_one_stands(run: TrainingRun) -> None:
    log = runfiles.folder(run) / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True)
    log.write_text("first\nsecond\n")
    async with stream(await sync_to_async(token_of)("alice"), f"log-{run.pk}-driver@6") as (_, events):
        await events.event()
        assert (await events.event())["text"] == "second\n"
        with log.open("a") as more:
            more.write("third\n")
        assert (await events.event())["text"] == "third\n"


@pytest.mark.parametrize("how", ["ended", "shut out"])
async def test_a_stream_closes_with_its_token(run: TrainingRun, how: str) -> None:
    async with stream(await sync_to_async(token_of)("bob"), f"run-{run.pk}") as (_, events):
        assert [(await events.event())["type"] for _ in range(2)] == ["hello", "subscribed"]
        await sync_to_async(_end)(how)
        assert (await events.event())["type"] == "bye"
        assert (await events.event())["type"] == "end"


def _end(how: str) -> None:
    token = ApiToken.objects.get()
    if how == "ended":
        services.end_token(token, by=token.person)
    else:
        User.objects.filter(pk=token.person.pk).update(is_active=False)
        notify.access_changed(token.person.pk)


async def test_a_token_of_a_project_hears_of_no_other(run: TrainingRun) -> None:
    def other() -> tuple[str, int]:
        alice = User.objects.get(username="alice")
        return token_of("alice", project=services.create_project(by=alice, name="Other")), run.pk

    token, pk = await sync_to_async(other)()
    async with stream(token, f"run-{pk}") as (_, events):
        await events.event()
        assert await events.event() == {"type": "refused", "topic": f"run-{pk}"}


async def test_nobody_gets_a_stream(run: TrainingRun) -> None:
    async with stream("edt_nothing", f"run-{run.pk}") as (status, _):
        assert status == 401


def _socket(token: str) -> WebsocketCommunicator:
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    return WebsocketCommunicator(application, "/ws/", headers=headers)


async def test_the_socket_takes_a_token_where_a_browser_sends_its_cookie(run: TrainingRun) -> None:
    page = _socket(await sync_to_async(token_of)("bob"))
    assert (await page.connect())[0]
    await page.receive_json_from()
    await page.send_json_to({"subscribe": [f"run-{run.pk}"]})
    assert (await page.receive_json_from())["type"] == "subscribed"
    await sync_to_async(_end)("ended")
    closed = await asyncio.wait_for(page.receive_output(), DEADLINE_S)
    assert (closed["type"], closed["code"]) == ("websocket.close", 4401)
    assert not (await _socket("edt_nothing").connect())[0]
