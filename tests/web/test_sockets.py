"""The page's socket: who may connect, what they may hear, and that a page which missed something gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from experiments import access, consumers, ingest, notify
from experiments.models import Membership, TrainingRun, User
from tests import cast
from webapp.asgi import application

pytestmark = pytest.mark.django_db(transaction=True)


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


def socket(username: str, *, origin: str = "http://localhost") -> WebsocketCommunicator:
    """A browser's connection, with the session cookie of a login."""
    headers = [(b"origin", origin.encode()), (b"host", b"localhost")]
    if username:
        client = Client()
        client.force_login(User.objects.get(username=username))
        headers.append((b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()))
    return WebsocketCommunicator(application, "/ws/", headers=headers)


async def connected(username: str) -> WebsocketCommunicator:
    page = await sync_to_async(socket)(username)
    assert (await page.connect())[0]
    assert await page.receive_json_from() == {"type": "hello"}
    return page


async def subscribe(page: WebsocketCommunicator, *topics: str) -> None:
    await page.send_json_to({"subscribe": list(topics)})


async def subscribed(page: WebsocketCommunicator, *topics: str) -> None:
    await subscribe(page, *topics)
    assert await heard(page) == {"type": "subscribed", "topics": list(topics)}


async def heard(page: WebsocketCommunicator) -> Any:
    return json.loads(await page.receive_from(timeout=10), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@sync_to_async
def tell_points(run: TrainingRun, *, after: int, seq: int, value: float) -> None:
    notify.points(run, after=after, seq=seq, points=[("train", "loss", seq, 1.0, value, 2, 1)], progress={"step": seq})


@pytest.mark.parametrize(("username", "origin"), [("", "http://localhost"), ("alice", "https://elsewhere.example")])
async def test_a_socket_needs_a_login_and_our_own_page(username: str, origin: str, run: TrainingRun) -> None:
    page = await sync_to_async(socket)(username, origin=origin)
    assert (await page.connect())[0] is False


async def test_a_member_hears_points_and_a_stranger_is_refused(run: TrainingRun) -> None:
    member, stranger = await connected("victor"), await connected("charlie")
    topics = [f"run-{run.pk}", f"experiment-{run.experiment_id}", f"project-{run.experiment.project_id}"]
    await subscribe(stranger, *topics)
    assert {(await heard(stranger))["topic"] for _ in topics} == set(topics)
    await subscribe(member, *topics, "run-999999")
    assert await heard(member) == {"type": "refused", "topic": "run-999999"}
    assert await heard(member) == {"type": "subscribed", "topics": topics}
    await tell_points(run, after=4, seq=5, value=float("nan"))
    message = await heard(member)
    assert (message["type"], message["after"], message["seq"]) == ("points", 4, 5)
    assert message["points"] == [["train", "loss", 5, 1.0, None, 2, 1]]
    assert await stranger.receive_nothing()
    await member.disconnect()
    await stranger.disconnect()


async def test_who_is_removed_from_the_project_hears_nothing_more(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    page = await connected("bob")
    await subscribed(page, f"run-{run.pk}")
    await Membership.objects.filter(user__username="bob").adelete()
    await tell_points(run, after=0, seq=1, value=1.0)
    assert await heard(page) == {"type": "refused", "topic": f"run-{run.pk}"}
    await tell_points(run, after=1, seq=2, value=1.0)
    assert await page.receive_nothing()
    await page.disconnect()


async def test_who_logs_out_elsewhere_is_disconnected(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    page = await connected("alice")
    await subscribed(page, f"run-{run.pk}")
    await Session.objects.all().adelete()
    await tell_points(run, after=0, seq=1, value=1.0)
    assert await page.receive_output(timeout=10) == {"type": "websocket.close", "code": consumers.LOGGED_OUT}


async def test_pages_that_ask_at_once_whether_they_may_still_hear_are_answered_together(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [await connected("bob") for _ in range(6)]
    for page in pages:
        await subscribed(page, f"run-{run.pk}")
    asked: list[str] = []
    check = access.topic
    monkeypatch.setattr(access, "topic", lambda user, name: [asked.append(name), check(user, name)][1])
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    await tell_points(run, after=0, seq=1, value=1.0)
    assert {(await heard(page))["seq"] for page in pages} == {1}
    assert 1 <= len(asked) <= 3, "a visit to the database for the first, and one for those that came meanwhile"
    for page in pages:
        await page.disconnect()


async def test_what_a_browser_sends_is_bounded_and_never_believed(run: TrainingRun) -> None:
    page = await connected("alice")
    for odd in ("[]", "{", '{"subscribe": "run-1"}', '{"subscribe": [1, null, {}]}', '{"type": "push", "message": {}}'):
        await page.send_to(text_data=odd)
    await subscribe(page, "run-x", "project--1", "node-1", "run-" + "9" * 40)
    assert {(await heard(page))["type"] for _ in range(4)} == {"refused"}
    await page.send_to(text_data=json.dumps({"subscribe": ["x" * consumers.LONGEST_MESSAGE]}))
    assert await page.receive_output(timeout=10) == {"type": "websocket.close", "code": consumers.TOO_MUCH}


async def test_a_page_that_missed_something_gets_exactly_that(run: TrainingRun) -> None:
    """Two batches are ingested, the page hears the second only: `after` tells, and the points of the first are fetched."""
    page = await connected("alice")
    await sync_to_async(write)(run, 1, 3)
    await subscribed(page, f"run-{run.pk}")
    await sync_to_async(write)(run, 4, 5)
    message = await heard(page)
    while message["type"] != "points":
        message = await heard(page)
    known = 0
    assert message["after"] > known
    fetched = await sync_to_async(fetch)(run, known)
    assert fetched["seq"] >= message["after"]
    steps = [point[2] for point in fetched["points"]]
    assert steps == [1, 2, 3, 4, 5]
    assert {point[2] for point in message["points"]} == {4, 5}
    await page.disconnect()


def write(run: TrainingRun, first: int, last: int) -> None:
    begin = [cast.started()] if first == 1 else []
    cast.write_journal(run, *begin, *(cast.step(n) for n in range(first, last + 1)))
    ingest.catch_up(run.pk, now=timezone.now())


def fetch(run: TrainingRun, after: int) -> Any:
    client = Client()
    client.force_login(User.objects.get(username="alice"))
    return client.get(f"/runs/{run.pk}/points", {"after": after}).json()
