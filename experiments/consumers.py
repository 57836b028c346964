"""One WebSocket per page: push only. It says {"subscribe": [topics]} and is sent what happens there (shapes: docs/architecture.md). A topic
"log-7-driver@1234" asks for that log from that byte on.

Access is checked when a topic is subscribed, and again, at most every RECHECK_S seconds, before data is sent: a person who was removed from
the project, logged out or was shut out hears nothing more. "changed" carries no data (the page fetches its fragments, which check for
themselves), so it goes out unchecked. Nothing that a browser sends is written anywhere.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.sessions.models import Session
from django.urls import path
from django.utils import timezone

from experiments import access, following, notify
from experiments.models import User

RECHECK_S = 2.0
MOST_TOPICS = 200
MOST_LOGS, MOST_LOG_RUNS = 66, 4  # followed on one connection: a run with 32 workers has 33; each run is looked at by a task of its own
LONGEST_TOPIC = 128
MOST_REQUESTS = 1000  # subscriptions asked for on one connection
LONGEST_MESSAGE = 16 * 1024
LOGGED_OUT, TOO_MUCH = 4401, 4408


@dataclass(frozen=True)
class Question:
    """May this login still hear of the topic?"""

    session: str
    user: int
    topic: str


class Rechecks:
    """Answers the questions of all sockets of an event loop, many with one visit to the database.

    A point goes to a hundred pages at once, and all of them ask at about the same moment: one by one, each in the thread that all share,
    their questions would hold the next points up for seconds. What is asked while the database is being asked is answered the next time.
    """

    def __init__(self) -> None:
        self._waiting: dict[Question, asyncio.Future[str]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def answer(self, question: Question) -> str:
        """ "yes", "logged out" or "refused"."""
        if question not in self._waiting:
            self._waiting[question] = asyncio.get_running_loop().create_future()
        found = self._waiting[question]
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        # A socket that closes while it waits must not take the answer away from the others that asked the same.
        return await asyncio.shield(found)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    answers = await _answers(asked)
                except Exception as error:  # the database is away: every socket that asked hears of it, and none hangs
                    for found in asked.values():
                        found.set_exception(error)
                        found.exception()  # seen, also where its socket has closed
                    continue
                for question, found in asked.items():
                    found.set_result(answers[question])
        finally:
            self._asking = None


@database_sync_to_async
def _answers(questions: Iterable[Question]) -> dict[Question, str]:
    asked = list(questions)
    keys = {each.session for each in asked}
    logins = set(Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now()).values_list("session_key", flat=True))
    people = User.objects.in_bulk({each.user for each in asked})
    pairs = {(each.user, each.topic) for each in asked if each.session in logins}
    allowed = {(user, topic) for user, topic in pairs if user in people and access.topic(people[user], topic)}
    return {
        each: "logged out" if each.session not in logins else "yes" if (each.user, each.topic) in allowed else "refused" for each in asked
    }


_rechecks: dict[asyncio.AbstractEventLoop, Rechecks] = {}


def _of_this_loop() -> Rechecks:
    loop = asyncio.get_running_loop()
    if loop not in _rechecks:
        for closed in [each for each in _rechecks if each.is_closed()]:
            del _rechecks[closed]
        _rechecks[loop] = Rechecks()
    return _rechecks[loop]


class PageSocket(AsyncWebsocketConsumer):
    """A page's connection. `topics` maps what it may hear to when that was last checked."""

    async def connect(self) -> None:
        self.topics: dict[str, float] = {}
        self.logs: dict[int, tuple[dict[str, int], asyncio.Task[None]]] = {}  # by run: where the page stands in each, and what follows
        self.asked = 0
        self.checked_person = 0.0
        user = self.scope["user"]
        if not user.is_authenticated or not user.is_active:
            await self.close(LOGGED_OUT)
            return
        self.user_id: int = user.pk
        await self.accept()
        await self._say({"type": "hello"})

    async def disconnect(self, code: int) -> None:  # noqa: ARG002  (Channels names it)
        for topic in list(self.topics):
            await self.channel_layer.group_discard(notify.group(topic), self.channel_name)
        self.topics.clear()
        for _, task in self.logs.values():
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002  (as above)
        wanted = _wanted(text_data)
        self.asked += len(wanted)
        if self.asked > MOST_REQUESTS or text_data is None or len(text_data) > LONGEST_MESSAGE:
            await self.close(TOO_MUCH)
            return
        added = []
        for topic in wanted:
            if log := following.parse(topic):
                await self._follow(log)
            elif topic not in self.topics and await self._subscribe(topic):
                added.append(topic)
        if added:  # what happened before this moment, and after the page was rendered, the page has to ask for
            await self._say({"type": "subscribed", "topics": added})

    async def _subscribe(self, topic: str) -> bool:
        if len(self.topics) >= MOST_TOPICS or not await self._may(topic):
            await self._say({"type": "refused", "topic": topic})
            return False
        self.topics[topic] = time.monotonic()
        await self.channel_layer.group_add(notify.group(topic), self.channel_name)
        return True

    async def _follow(self, log: following.LogTopic) -> None:
        """Once for each log: a page that asks again goes on with what it is being sent."""
        ends, task = self.logs.get(log.run, ({}, None))
        follows = task is not None and not task.done()
        if follows and log.name in ends:
            return
        run = f"run-{log.run}"
        many = sum(len(each) for each, _ in self.logs.values()) >= MOST_LOGS or (
            log.run not in self.logs and len(self.logs) >= MOST_LOG_RUNS
        )
        if many or not (follows or await self._may(run)):
            await self._say({"type": "refused", "topic": f"log-{log.run}-{log.name}"})
            return
        if follows:
            ends[log.name] = log.offset
            return
        checked = [time.monotonic()]

        async def still() -> bool:
            if time.monotonic() - checked[0] <= RECHECK_S:
                return True
            checked[0] = time.monotonic()
            return await self._still(run)

        ends = {log.name: log.offset}
        self.logs[log.run] = ends, asyncio.create_task(following.follow(log.run, ends, say=self._say, still=still))

    async def push(self, event: dict[str, Any]) -> None:
        """A message of a group this page is in."""
        message = event["message"]
        topic = message.get("topic", "")
        if topic not in self.topics:
            return
        if message.get("type") != "changed" and time.monotonic() - self.topics[topic] > RECHECK_S:
            if not await self._still(topic):
                return
            self.topics[topic] = time.monotonic()
        await self._say(message)

    async def _still(self, topic: str) -> bool:
        """Whether the person may still hear of the topic. Leaves it, or closes, where not."""
        key = getattr(self.scope.get("session"), "session_key", None) or ""
        answer = await _of_this_loop().answer(Question(key, self.user_id, topic))
        if answer == "logged out":
            await self.close(LOGGED_OUT)
        elif answer == "refused":
            self.topics.pop(topic, None)
            await self.channel_layer.group_discard(notify.group(topic), self.channel_name)
            await self._say({"type": "refused", "topic": topic})
        return answer == "yes"

    @database_sync_to_async
    def _may(self, topic: str) -> bool:
        user = User.objects.filter(pk=self.user_id).first()
        return user is not None and access.topic(user, topic)

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self.send(text_data=json.dumps(_plain(message), separators=(",", ":"), allow_nan=False))


def _wanted(text: str | None) -> list[str]:
    """The topics that a message asks for; nothing for anything that is not such a message."""
    try:
        said = json.loads(text or "")
    except (ValueError, RecursionError):
        return []
    topics = said.get("subscribe") if isinstance(said, dict) else None
    if not isinstance(topics, list):
        return []
    return [topic[:LONGEST_TOPIC] for topic in topics[:MOST_REQUESTS] if isinstance(topic, str)]


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: a chart leaves a gap there."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


websocket_urlpatterns = [path("ws/", PageSocket.as_asgi())]
