"""The studio's end of the stream of a machine that has joined: sends its desired state every few seconds and on changes, and records its
observations.

A machine that has not been heard of for the time of its lease is told nothing more: its lease must end no later than the studio can know
that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import connection
from django.db.utils import Error as DatabaseError
from django.urls import path

from experiments.cluster import fleet, joining, leases
from experiments.live import notify
from experiments.models import NodeToken
from experiments.ops import clock
from training_runtime.errors import ProtocolError, UnknownMessage
from training_runtime.node.messages import STREAM, Departed, Hello, JournalsGrown, Message, ObservedState, Refused, Welcome, decode, encode
from training_runtime.unknown_messages import LeftOut

log = logging.getLogger(__name__)
WANTED_SHARE = 0.3  # of a lease, after which it is renewed
HELLO_S = 30.0
RETRY_S = 1.0  # of what could not be taken in
GONE, TOO_LATE = 4401, 4408
T = TypeVar("T")
OVER = Refused("This machine has joined anew since, or its token is over.", final=True)


class Desk:
    """A thread with a database connection of its own that does one thing after the other for all machines.

    With a thread for each machine they would wait for each other's locks, and for the interpreter while they hold one: fifty of them kept
    the planner from SQLite's only lock for seconds.
    """

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def do(self, work: Callable[[dt.datetime], T]) -> T:
        """What `work` returns, which is given the studio's time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._do, work)

    def _do(self, work: Callable[[dt.datetime], T]) -> T:
        try:
            return work(clock.now())
        except DatabaseError:
            connection.close()  # it may be broken for good; the next work opens another
            raise


outgoing, incoming = Desk("nodes-out"), Desk("nodes-in")  # a lease is renewed however long it takes to take something in


class NodeSocket(AsyncWebsocketConsumer):
    """The stream of one machine. `latest`: what was seen last and is not taken in yet; each is all that there is, so older ones go.
    `grown`: lengths of journals that nobody was told of yet."""

    async def connect(self) -> None:
        self.welcome: Welcome | None = None
        self.latest: ObservedState | None = None
        self.grown: dict[int, int] = {}
        self.left = False
        self.left_out = LeftOut(log)
        self.news, self.due = asyncio.Event(), asyncio.Event()
        self.heard_at = time.monotonic()
        self.tasks: list[asyncio.Task[None]] = []
        self.token = await outgoing.do(lambda now: joining.find(_sent_token(self.scope), now=now))
        await self.accept()
        if self.token is None:
            await self._refuse(Refused("The studio does not know this token, or it is over: make another one on its page.", final=True))
            return
        self.tasks.append(asyncio.create_task(self._expect_hello()))

    async def disconnect(self, code: int) -> None:  # noqa: ARG002  (Channels names it)
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self.welcome is not None:
            await self.channel_layer.group_discard(notify.group(notify.stream(self.welcome.name)), self.channel_name)
            log.info("The stream of node %s is over.", self.welcome.name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002  (as above)
        try:
            message = decode(text_data or "")
        except UnknownMessage as error:
            if self.welcome is not None:  # who has not said hello is nobody whose newer messages are let pass
                self.left_out.note(error, of=f"node {self.welcome.name}")
                return
            await self._refuse(Refused(f"This is no message of a node: {error}"))
            return
        except ProtocolError as error:
            await self._refuse(Refused(f"This is no message of a node: {error}"))
            return
        self.heard_at = time.monotonic()
        if self.welcome is None and isinstance(message, Hello) and self.token is not None:
            await self._greet(self.token, message)
        elif self.welcome is not None and isinstance(message, ObservedState):
            self.latest = message
            self.news.set()
        elif self.welcome is not None and isinstance(message, JournalsGrown):
            self.grown |= {journal.run: journal.bytes for journal in message.journals}
            self.news.set()
        elif self.welcome is not None and isinstance(message, Departed):
            self.left = True
            self.news.set()
        else:
            await self._refuse(Refused(f"A {message.type} is not expected here."))

    async def push(self, event: dict[str, Any]) -> None:
        """Something that concerns this machine has changed: send the desired state."""
        if event["message"].get("type") == "apply":
            self.due.set()
        elif not await self._is_current():
            await self._refuse(OVER)

    async def _greet(self, token: NodeToken, hello: Hello) -> None:
        address = str((self.scope.get("client") or ("",))[0])
        answer = await outgoing.do(lambda now: joining.begin(token.pk, hello, address=address, now=now))
        if isinstance(answer, Refused):
            await self._refuse(answer)
            return
        self.welcome = answer
        await self.channel_layer.group_add(notify.group(notify.stream(answer.name)), self.channel_name)
        await self._say(answer)
        self.tasks += [asyncio.create_task(self._tell()), asyncio.create_task(self._take_in())]
        log.info("Node %s has joined from %s, incarnation %d.", answer.name, address, answer.incarnation)

    async def _expect_hello(self) -> None:
        await asyncio.sleep(HELLO_S)
        if self.welcome is None:
            await self.close(TOO_LATE)

    async def _tell(self) -> None:
        """Task: what is wanted, for as long as the machine is heard of."""
        assert self.welcome is not None
        name, told = self.welcome.name, None
        while True:
            if self.due.is_set():
                told = None  # whoever nudged knows of something that may be new
            self.due.clear()
            if time.monotonic() - self.heard_at > settings.EDT_NODE_LEASE_S:
                await self._refuse(Refused("Nothing was heard of this machine: it joins anew."))
                return
            try:
                told = await outgoing.do(functools.partial(joining.state_for, name, told))
                await self._say(told.wanted)
            except (DatabaseError, ProtocolError, OSError) as error:
                log.warning("Node %s cannot be told what is wanted now: %s", name, error)
            except Exception:  # the edge of the task: a row nobody thought of
                log.exception("Node %s cannot be told what is wanted; it is tried again.", name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.due.wait(), settings.EDT_NODE_LEASE_S * WANTED_SHARE)

    async def _take_in(self) -> None:
        """Task: the latest that was seen, one at a time."""
        assert self.welcome is not None
        assert self.token is not None
        name, number = self.welcome.name, self.token.pk
        incarnation, slots = self.welcome.incarnation, self.welcome.slots
        while True:
            await self.news.wait()
            self.news.clear()
            left, (seen, self.latest), (grown, self.grown) = self.left, (self.latest, None), (self.grown, {})
            try:
                if grown:
                    await incoming.do(functools.partial(joining.announce_journals, name, grown))
                taken = seen is None or seen.observation.node.name != name  # nothing to take in
                if seen is not None and not taken:
                    taken = await incoming.do(functools.partial(joining.take_in, number, incarnation, seen.observation, slots))
                if not taken:
                    await self._refuse(OVER)
                    return
                if left:
                    await incoming.do(functools.partial(leases.departed, number, incarnation, name))
                    await self.close()
                    return
            except fleet.AnotherHost as error:
                await self._refuse(Refused(str(error)))
            except (DatabaseError, OSError) as error:
                log.warning("What node %s has seen cannot be taken in now: %s", name, error)
                await asyncio.sleep(RETRY_S)
                self.latest, self.grown = self.latest or seen, grown | self.grown  # journals and a last word are said once
                self.news.set()
            except Exception:  # as above
                log.exception("What node %s has seen could not be taken in.", name)

    async def _is_current(self) -> bool:
        if self.welcome is None or self.token is None:
            return True
        number, incarnation = self.token.pk, self.welcome.incarnation
        return await outgoing.do(lambda _: joining.is_current(number, incarnation))

    async def _say(self, message: Message) -> None:
        await self.send(text_data=encode(message))

    async def _refuse(self, refusal: Refused) -> None:
        with contextlib.suppress(Exception):  # it may have gone already
            await self._say(refusal)
            await self.close(GONE)


def _sent_token(scope: Any) -> str:
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    kind, _, token = headers.get(b"authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


websocket_urlpatterns = [path(STREAM.lstrip("/"), NodeSocket.as_asgi())]
