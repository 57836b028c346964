"""Limits on requests, before Django reads them: ASGI middleware for sizes, times and numbers of bodies.

Django's handler writes a whole body to a temporary file before it looks at the host, the login or any limit. So bodies are counted here
while they arrive: small ones are taken everywhere, large ones only at the addresses that files are sent to, of people who are logged in; a
body has to keep coming, and an address has only so many requests open at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from experiments.accounts.addresses import network_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """`large(path)`: what the address takes of who is logged in; None where it takes small bodies only."""

    small_bytes: int
    large: Callable[[str], int | None]
    open_requests: int = 256  # of one network address, or of all people behind a proxy that is not named (EDT_TRUSTED_PROXIES)
    small_bodies: int = 64  # of these still arriving
    large_bodies: int = 8  # of one person
    first_s: float = 30.0  # a body is given this long, and a second more for each `slowest_bytes_s` that have come
    slowest_bytes_s: int = 16 << 10


@dataclass(frozen=True)
class Refusal:
    """An answer instead of Django's; the sentence is for people."""

    status: int
    says: str


BUSY = "Too many requests from your network address are open. Wait a moment and try again."
TWO_LENGTHS = "The request says its length in two ways (Content-Length and Transfer-Encoding). Send one of them."
SLOW = "The request came too slowly and was given up. Try again, over a better connection if there is one."
API = "/api/"
LOG_IN = "Only who is logged in may send this much. Log in and send it again."


class RequestLimits:
    """`person(scope)`: the number of who is logged in, else None."""

    def __init__(self, app: App, *, limits: Limits, person: Callable[[Scope], Awaitable[int | None]]) -> None:
        self.app, self.limits, self.person = app, limits, person
        self.open: Counter[str] = Counter()
        self.bodies: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:  # RFC 9112, 6.1: nothing after it counts
            await _answer(scope, send, Refusal(400, TWO_LENGTHS))
            return
        address = network_of((scope.get("client") or ("", 0))[0])
        if self.open[address] >= self.limits.open_requests:
            await _answer(scope, send, Refusal(503, BUSY))
            return
        with _counted(self.open, address):
            await self._bounded(scope, receive, send, address)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        headers = dict(scope["headers"])
        declared = int(headers[b"content-length"]) if headers.get(b"content-length", b"").isdigit() else None
        if not declared and b"transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        most, who, most_open = self.limits.small_bytes, address, self.limits.small_bodies
        large = self.limits.large(scope["path"])
        too_large = f"This is too large: at most {_size(large or most)} are taken here."
        if large and (declared is None or declared > most):
            person = await self.person(scope)
            if person is None:
                too_large = LOG_IN
            else:
                most, who, most_open = large, f"person {person}", self.limits.large_bodies
        if declared is not None and declared > most:
            await _answer(scope, send, Refusal(401 if too_large == LOG_IN else 413, too_large))
        elif self.bodies[who] >= most_open:
            await _answer(scope, send, Refusal(503, BUSY))
        else:
            body = _Body(receive, self.limits, most=most, too_large=Refusal(401 if too_large == LOG_IN else 413, too_large))
            with contextlib.ExitStack() as arriving:
                arriving.enter_context(_counted(self.bodies, who))
                body.arrived = arriving.close
                await self.app(scope, body.receive, send)
            if body.refusal:  # Django was told that the browser has gone, and has answered nothing
                await _answer(scope, send, body.refusal)


class _Body:
    """A body that is counted while it arrives. What is too large or too slow ends, for the application, like a browser that has gone."""

    def __init__(self, receive: Receive, limits: Limits, *, most: int, too_large: Refusal) -> None:
        self.raw, self.limits, self.most, self.too_large = receive, limits, most, too_large
        self.clock = asyncio.get_running_loop().time
        self.began, self.size, self.whole = self.clock(), 0, False
        self.refusal: Refusal | None = None
        self.arrived: Callable[[], None] = lambda: None

    async def receive(self) -> Message:
        if self.whole:
            return await self.raw()
        if self.refusal:
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout_at(self.began + self.limits.first_s + self.size / self.limits.slowest_bytes_s):
                message = await self.raw()
        except TimeoutError:
            self.refusal = Refusal(408, SLOW)
            return {"type": "http.disconnect"}
        self.size += len(message.get("body", b""))
        if self.size > self.most:
            self.refusal = self.too_large
            return {"type": "http.disconnect"}
        if not message.get("more_body", False):
            self.whole = True
            self.arrived()
        return message


@contextlib.contextmanager
def _counted(counter: Counter[str], key: str) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


async def _answer(scope: Mapping[str, Any], send: Send, refusal: Refusal) -> None:
    """As the API has its errors; for scripts of pages (Accept: application/json) as these read it; else plain text. The rest of the body is
    not waited for."""
    kind, body = "text/plain; charset=utf-8", refusal.says + "\n"
    if scope["path"].startswith(API):
        title = http.HTTPStatus(refusal.status).phrase
        said = {"type": "about:blank", "title": title, "status": refusal.status, "detail": refusal.says, "errors": {}}
        kind, body = "application/problem+json", json.dumps(said)
    elif dict(scope["headers"]).get(b"accept", b"").startswith(b"application/json"):
        kind, body = "application/json", json.dumps({"errors": {"upload": [refusal.says]}})
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body.encode())).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"connection", b"close"),
        *([(b"retry-after", b"5")] if refusal.status == 503 else []),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
