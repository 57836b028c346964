"""Authenticates WebSockets of scripts by an API token instead of a cookie. No page can make a browser send such a header, so the origin
need not be checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from channels.db import database_sync_to_async
from channels.security.websocket import WebsocketDenier
from django.utils import timezone

from experiments.accounts import api_tokens

App = Callable[..., Awaitable[None]]


class ByToken:
    """ASGI: `app` with the person whose token was sent as `scope["user"]`; `others`, where none was."""

    def __init__(self, app: App, *, others: App) -> None:
        self.app, self.others, self.denier = app, others, WebsocketDenier()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        kind, _, token = headers.get(b"authorization", "").partition(" ")
        if kind.lower() != "bearer":
            await self.others(scope, receive, send)
            return
        user = await database_sync_to_async(api_tokens.owner)(token.strip(), now=timezone.now())
        await (self.app if user is not None else self.denier)({**scope, "user": user}, receive, send)
