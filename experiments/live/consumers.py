"""One WebSocket per page: push only. It says {"subscribe": [topics]} and is sent what happens there (shapes: docs/architecture.md). A topic
"log-7-driver@1234" asks for that log from that byte on.

Access is checked when a topic is subscribed, again before anything is sent if that is more than RECHECK_S seconds ago, and at once where
somebody's access has changed (`notify.access_changed`): a person who was removed from the project, logged out, was shut out or has a new
password hears nothing more. Nothing that a browser sends is written anywhere.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path

from experiments import access
from experiments.accounts import passwords
from experiments.live import notify
from experiments.logs import following

RECHECK_S = 2.0
MOST_TOPICS = 200
MOST_LOGS, MOST_LOG_RUNS = 66, 4  # followed on one connection: a run with 32 workers has 33
MOST_SOCKETS = 50  # of one person, in one web process: a page has one
MOST_TOPICS_OF_PERSON = 1000  # on all of their sockets
LONGEST_TOPIC = 128
MOST_REQUESTS = 1000  # subscriptions asked for on one connection
LONGEST_MESSAGE = 16 * 1024
LOGGED_OUT, TOO_MUCH, TOO_MANY = 4401, 4408, 4429

# Not in the one thread that all requests share: after a restart every page asks at once.
in_threads = functools.partial(database_sync_to_async, thread_sensitive=False)


@dataclass(frozen=True)
class Question:
    """May this login still hear of the topic?"""

    login: passwords.Login
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


@in_threads
def _answers(questions: Iterable[Question]) -> dict[Question, str]:
    asked = list(questions)
    people = passwords.logged_in(each.login for each in asked)
    valid = {each for each in asked if each.login in people and people[each.login].pk == each.user}
    same = {each: (each.user, people[each.login].permit) for each in valid}  # asked once, however many logins ask it
    topics: dict[object, set[str]] = defaultdict(set)
    for each in valid:
        topics[same[each]].add(each.topic)
    allowed = {who: access.topics(people[each.login], topics[who]) for who, each in {same[one]: one for one in valid}.items()}
    return {each: "logged out" if each not in valid else "yes" if each.topic in allowed[same[each]] else "refused" for each in asked}


class Shared:
    """State shared by the sockets of one event loop."""

    def __init__(self) -> None:
        self.rechecks = Rechecks()
        self.tails = following.Tails()
        self.sockets: Counter[int] = Counter()  # by person
        self.topics: Counter[int] = Counter()


_shared: dict[asyncio.AbstractEventLoop, Shared] = {}


def _of_this_loop() -> Shared:
    loop = asyncio.get_running_loop()
    if loop not in _shared:
        for closed in [each for each in _shared if each.is_closed()]:
            del _shared[closed]
        _shared[loop] = Shared()
    return _shared[loop]


class PageSocket(AsyncWebsocketConsumer):
    """A page's connection. `topics`: topic -> when access to it was last checked."""

    async def connect(self) -> None:
        self.topics: dict[str, float] = {}
        self.logs: dict[int, following.Follower] = {}  # by run
        self.asked = 0
        self.counted = False
        self.shared = _of_this_loop()
        user = self.scope["user"]
        if not user.is_authenticated or not user.is_active:
            await self.close(LOGGED_OUT)
            return
        self.user_id: int = user.pk
        session = getattr(self.scope.get("session"), "session_key", None) or ""
        self.login: passwords.Login = user.permit.token if user.permit is not None else session
        if self.shared.sockets[self.user_id] >= MOST_SOCKETS:
            await self.close(TOO_MANY)
            return
        self.shared.sockets[self.user_id] += 1
        self.counted = True
        await self.channel_layer.group_add(notify.group(f"access-{self.user_id}"), self.channel_name)
        await self.accept()
        await self._say({"type": "hello"})

    async def disconnect(self, code: int) -> None:  # noqa: ARG002  (Channels names it)
        if not self.counted:
            return
        self.counted = False
        self.shared.sockets[self.user_id] -= 1
        for run, follower in self.logs.items():
            self.shared.tails.leave(run, follower)
        topics = list(self.topics)
        self.shared.topics[self.user_id] -= len(topics)
        self.topics.clear()
        for topic in [*topics, f"access-{self.user_id}"]:
            await self.channel_layer.group_discard(notify.group(topic), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002  (as above)
        wanted = _topics_in(text_data) if text_data is not None and len(text_data) <= LONGEST_MESSAGE else None
        self.asked += len(wanted or ())
        if wanted is None or self.asked > MOST_REQUESTS:
            await self.close(TOO_MUCH)
            return
        for log in filter(None, map(following.parse, wanted)):
            await self._follow(log)
        topics = [topic for topic in dict.fromkeys(wanted) if not following.parse(topic) and topic not in self.topics]
        if added := await self._subscribe(topics):  # what happened before this moment, and after the page was rendered, it has to ask for
            await self._say({"type": "subscribed", "topics": added})

    async def _subscribe(self, topics: list[str]) -> list[str]:
        """Those of them that the page hears from now on. They are asked for together: a page that compares runs has a hundred."""
        answers = {} if self._full() else dict(zip(topics, await asyncio.gather(*map(self._answer, topics)), strict=True))
        added = []
        for topic in topics:
            if self._full() or answers.get(topic) != "yes":
                await self._say({"type": "refused", "topic": topic})
                continue
            self.topics[topic] = time.monotonic()
            self.shared.topics[self.user_id] += 1
            await self.channel_layer.group_add(notify.group(topic), self.channel_name)
            added.append(topic)
        return added

    def _full(self) -> bool:
        return len(self.topics) >= MOST_TOPICS or self.shared.topics[self.user_id] >= MOST_TOPICS_OF_PERSON

    async def _follow(self, log: following.LogTopic) -> None:
        """Once for each log: a page that asks again goes on with what it is being sent."""
        tails, follower = self.shared.tails, self.logs.get(log.run)
        if follower is not None and not tails.has(log.run, follower):
            follower = None  # it was left: the page asks anew
        if follower is not None and log.name in follower.ends:
            return
        logs = sum(len(each.ends) for each in self.logs.values())
        many = logs >= MOST_LOGS or (log.run not in self.logs and len(self.logs) >= MOST_LOG_RUNS)
        run = f"run-{log.run}"
        if many or not (follower or await self._answer(run) == "yes"):
            await self._say({"type": "refused", "topic": f"log-{log.run}-{log.name}"})
            return
        if follower is not None:
            follower.ends[log.name] = log.offset
            tails.wake(log.run)
            return
        checked = [time.monotonic()]

        async def still() -> bool:
            if time.monotonic() - checked[0] <= RECHECK_S:
                return True
            checked[0] = time.monotonic()
            return await self._still(run)

        self.logs[log.run] = following.Follower({log.name: log.offset}, self._say, still)
        tails.follow(log.run, self.logs[log.run])

    async def push(self, event: dict[str, Any]) -> None:
        """Send a message of a group that this page has joined."""
        message = event["message"]
        if message.get("type") == "access":
            await self._ask_again()
            return
        topic = message.get("topic", "")
        if topic not in self.topics:
            return
        if time.monotonic() - self.topics[topic] > RECHECK_S:
            if not await self._still(topic):
                return
            self.topics[topic] = time.monotonic()
        await self._say(message)

    async def _ask_again(self) -> None:
        """Recheck access to every topic of this page."""
        topics = list({*self.topics, *(f"run-{run}" for run in self.logs)} or {"cluster"})
        answers = await asyncio.gather(*(self._answer(topic) for topic in topics))  # together: one visit to the database
        if "logged out" in answers:
            await self.close(LOGGED_OUT)
            return
        for topic, answer in zip(topics, answers, strict=True):
            if answer == "refused":
                await self._leave(topic)

    async def _still(self, topic: str) -> bool:
        """Whether the person may still read the topic. If not, leaves the topic, or closes after a log-out."""
        answer = await self._answer(topic)
        if answer == "logged out":
            await self.close(LOGGED_OUT)
        elif answer == "refused":
            await self._leave(topic)
        return answer == "yes"

    async def _leave(self, topic: str) -> None:
        """Unsubscribe the page from the topic and its logs, because access was lost."""
        if self.topics.pop(topic, None) is not None:
            self.shared.topics[self.user_id] -= 1
        run = int(topic.removeprefix("run-")) if topic.startswith("run-") else 0
        if follower := self.logs.pop(run, None):
            self.shared.tails.leave(run, follower)
        await self.channel_layer.group_discard(notify.group(topic), self.channel_name)
        await self._say({"type": "refused", "topic": topic})

    async def _answer(self, topic: str) -> str:
        return await self.shared.rechecks.answer(Question(self.login, self.user_id, topic))

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self.send(text_data=json.dumps(_plain(message), separators=(",", ":"), allow_nan=False))


def _topics_in(text: str | None) -> list[str]:
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
