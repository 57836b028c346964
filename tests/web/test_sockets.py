"""The page's socket: who may connect, what they may hear, and that a page which missed something gets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.test import Client
from django.utils import timezone

from experiments import access, services
from experiments.accounts import passwords
from experiments.files import runfiles
from experiments.live import consumers, notify
from experiments.logs import following
from experiments.metrics import ingest
from experiments.models import BrowserSession, Membership, TrainingRun, User
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


@pytest.mark.parametrize(
    ("username", "origin"),
    [
        ("", "http://localhost"),
        ("alice", "https://elsewhere.example"),
        ("alice", "http://localhost:6006"),  # another program of this machine, which the browser sends the same cookie
        ("alice", "https://localhost"),
        ("alice", ""),
    ],
)
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
    await BrowserSession.objects.all().adelete()
    await tell_points(run, after=0, seq=1, value=1.0)
    assert await page.receive_output(timeout=10) == {"type": "websocket.close", "code": consumers.LOGGED_OUT}


async def test_who_is_removed_hears_nothing_more_at_once_and_the_others_go_on(run: TrainingRun, home: Any) -> None:
    """Long before RECHECK_S: what is said right after the removal does not reach the page, its log neither."""
    page, other = await connected("bob"), await connected("victor")
    topic = f"run-{run.pk}"
    for each in (page, other):
        await subscribed(each, topic, "cluster")
    path = runfiles.folder(run) / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("for who may read it\n")
    await subscribe(page, f"log-{run.pk}-driver@0")
    assert (await heard(page))["text"] == "for who may read it\n"
    alice = await User.objects.aget(username="alice")
    project = await sync_to_async(access.project)(alice, run.experiment.project_id, need="admin")
    await sync_to_async(services.remove_member)(project, by=alice, username="bob")
    assert await heard(page) == {"type": "refused", "topic": topic}
    path.write_text("for members only\n")
    await sync_to_async(notify.changed)(topic, "state")
    await tell_points(run, after=0, seq=1, value=1.0)
    assert {(await heard(other))["type"] for _ in range(2)} == {"changed", "points"}
    assert await page.receive_nothing(timeout=3 * following.LOOK_S)
    await sync_to_async(notify.changed)("cluster", "jobs")
    assert (await heard(page))["topic"] == "cluster", "what is everybody's goes on"
    await page.disconnect()
    await other.disconnect()


@pytest.mark.parametrize("way", ["profile", "command"])
async def test_a_new_password_ends_the_sockets_of_other_logins(way: str, run: TrainingRun) -> None:
    stolen = await connected("alice")
    await subscribed(stolen, f"run-{run.pk}")

    def change() -> None:
        if way == "command":
            passwords.give_password("alice")
            return
        client = Client()
        client.force_login(User.objects.get(username="alice"))
        sent = {"old_password": cast.PASSWORD, "new_password1": "quite another one 7", "new_password2": "quite another one 7"}
        assert client.post("/profile/", sent).status_code == 302

    await sync_to_async(change)()
    assert await stolen.receive_output(timeout=10) == {"type": "websocket.close", "code": consumers.LOGGED_OUT}


async def test_a_login_with_an_old_password_hears_nothing_even_if_nobody_says_so(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    page = await connected("alice")
    await subscribed(page, f"run-{run.pk}")
    alice = await User.objects.aget(username="alice")
    alice.set_password("quite another one 7")
    await alice.asave()
    await sync_to_async(notify.changed)(f"run-{run.pk}", "state")
    assert await page.receive_output(timeout=10) == {"type": "websocket.close", "code": consumers.LOGGED_OUT}


async def test_a_person_has_so_many_sockets_and_topics_and_others_have_theirs(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MOST_SOCKETS", 2)
    monkeypatch.setattr(consumers, "MOST_TOPICS_OF_PERSON", 3)
    first, second = await connected("victor"), await connected("victor")
    third = await sync_to_async(socket)("victor")
    assert await third.connect() == (False, consumers.TOO_MANY)
    await subscribed(first, f"run-{run.pk}", "cluster")
    await subscribe(second, f"run-{run.pk}", "cluster")
    assert await heard(second) == {"type": "refused", "topic": "cluster"}
    assert (await heard(second))["topics"] == [f"run-{run.pk}"]
    await (await connected("alice")).disconnect()
    await first.disconnect()
    await subscribed(second, "cluster")
    again = await connected("victor")
    for each in (second, again):
        await each.disconnect()


async def test_a_log_is_read_once_however_many_pages_follow_it(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    path = runfiles.folder(run) / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    read: list[tuple[int, bytes]] = []
    really = runfiles.read

    def noted(run: TrainingRun, name: str, **how: Any) -> tuple[bytes, int]:
        data, size = really(run, name, **how)
        if data:
            read.append((how["begin"], data))
        return data, size

    monkeypatch.setattr(runfiles, "read", noted)
    pages = [await connected("victor") for _ in range(8)]
    for page in pages:
        await subscribe(page, f"log-{run.pk}-driver@0")
    path.write_text("first\n")
    assert [(await heard(page))["text"] for page in pages] == ["first\n"] * 8
    for page in pages[:6]:  # closed: they cost nothing more
        await page.disconnect()
    with path.open("a") as log:
        log.write("second\n")
    assert [(await heard(page))["text"] for page in pages[6:]] == ["second\n"] * 2
    assert sorted(set(read)) == [(0, b"first\n"), (6, b"second\n")]
    assert len(read) <= 4, "a page that was still being sent the first may come late, and no more"
    for page in pages[6:]:
        await page.disconnect()


async def test_a_page_that_follows_a_log_hears_that_it_was_cut_and_what_comes_from_there_on(run: TrainingRun) -> None:
    path = runfiles.folder(run) / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("first\nsecond\nthird\n")
    page = await connected("victor")
    await subscribe(page, f"log-{run.pk}-driver@0")
    assert (await heard(page))["end"] == 19
    path.write_text("first\n")
    cut = await heard(page)
    assert (cut["text"], cut["begin"], cut["end"], cut["size"]) == ("", 6, 6, 6)
    with path.open("a") as log:
        log.write("fourth\n")
    more = await heard(page)
    assert (more["text"], more["begin"], more["end"]) == ("fourth\n", 6, 13)
    await page.disconnect()


async def test_a_page_that_takes_nothing_holds_up_no_other(run: TrainingRun) -> None:
    path = runfiles.folder(run) / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("first\n")
    said: list[Any] = []
    stuck, heard_it, tails = asyncio.Event(), asyncio.Event(), following.Tails()

    async def never(message: Any) -> None:
        await stuck.wait()

    async def take(message: Any) -> None:
        said.append(message["text"])
        heard_it.set()

    async def still() -> bool:
        return True

    slow, quick = following.Follower({"driver": 0}, never, still), following.Follower({"driver": 0}, take, still)
    for each in (slow, quick):
        tails.follow(run.pk, each)
    for text in ("first\n", "second\n"):
        await asyncio.wait_for(heard_it.wait(), 10)
        heard_it.clear()
        assert said[-1] == text
        with path.open("a") as log:
            log.write("second\n")
    for each in (slow, quick):
        tails.leave(run.pk, each)


async def test_pages_that_ask_at_once_whether_they_may_still_hear_are_answered_together(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [await connected("bob") for _ in range(6)]
    for page in pages:
        await subscribed(page, f"run-{run.pk}")
    asked: list[set[str]] = []
    check = access.topics
    monkeypatch.setattr(access, "topics", lambda user, names: [asked.append(names), check(user, names)][1])
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    await tell_points(run, after=0, seq=1, value=1.0)
    assert {(await heard(page))["seq"] for page in pages} == {1}
    assert 1 <= len(asked) <= 3, "a visit to the database for the first, and one for those that came meanwhile"
    for page in pages:
        await page.disconnect()


async def test_a_page_of_many_runs_asks_for_all_of_them_together(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    check = access.topics
    monkeypatch.setattr(access, "topics", lambda user, names: [asked.append(names), check(user, names)][1])
    runs = await sync_to_async(lambda: [cast.run(run.experiment.project, by=run.submitted_by) for _ in range(8)])()
    page = await connected("victor")
    await subscribed(page, *(f"run-{each.pk}" for each in runs), "cluster")
    assert len(asked) <= 2, "a visit to the database for the first, and one for those that came meanwhile"
    await tell_points(runs[-1], after=0, seq=1, value=1.0)
    assert (await heard(page))["topic"] == f"run-{runs[-1].pk}"
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
