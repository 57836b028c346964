"""What happens, as it happens: server-sent events of the same topics and messages as the pages' WebSocket.

Each stream drives a socket of `consumers` in this process, so what may be heard, and when it is over, is decided in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router

from experiments.api.auth import of_stream, person
from experiments.api.problems import Refused
from experiments.live.consumers import LONGEST_TOPIC, MOST_TOPICS, PageSocket

router = Router(tags=["live"])
BEAT_S = 15.0
WAITING = 1000  # messages; who takes them more slowly loses the stream and begins anew
NO_TOPIC = "Name what to hear of: ?topic=run-7&topic=cluster."
EVENTS = {
    "responses": {
        200: {
            "description": "Events until the caller goes, or may hear no more.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    }
}


@router.get("/stream", auth=of_stream, response={200: str}, openapi_extra=EVENTS)
async def stream(request: HttpRequest, topic: Annotated[list[str], Query(max_length=MOST_TOPICS)]) -> StreamingHttpResponse:
    """Server-sent events. `topic`: run-ID, experiment-ID, project-ID, cluster, node-ID, user-ID, or log-RUN-NAME@OFFSET for a log from that
    byte on. Each event is named by its type and has JSON as its data; `bye` is the last where the token has ended."""
    if not topic or any(len(each) > LONGEST_TOPIC for each in topic):
        raise Refused(422, NO_TOPIC)
    session = getattr(request, "session", None)
    asked: dict[str, Any] = {"path": "/ws/", "headers": [], "subprotocols": [], "user": person(request), "session": session}
    scope: dict[str, Any] = {"type": "websocket", **asked}
    response = StreamingHttpResponse(_events(scope, topic), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # a proxy in front passes each on at once
    return response


async def _events(scope: dict[str, Any], topics: list[str]) -> AsyncIterator[bytes]:
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue(WAITING)
    for message in ({"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps({"subscribe": topics})}):
        asked.put_nowait(message)
    socket = asyncio.create_task(PageSocket.as_asgi()(scope, asked.get, told.put))
    try:
        while not socket.done():
            line, over = _line(await _next(told))
            yield line
            if over:
                return
    finally:
        asked.put_nowait({"type": "websocket.disconnect", "code": 1000})
        with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(socket, 5)


async def _next(told: asyncio.Queue[dict[str, Any]]) -> dict[str, Any] | None:
    """The socket's next message; None where it has had nothing to say for a while."""
    try:
        return await asyncio.wait_for(told.get(), BEAT_S)
    except TimeoutError:
        return None


def _line(message: dict[str, Any] | None) -> tuple[bytes, bool]:
    """What is sent of it, and whether that is the last."""
    if message is None or message["type"] == "websocket.accept":
        return b": still here\n\n", False
    if message["type"] == "websocket.close":
        return _event("bye", json.dumps({"type": "bye", "code": message.get("code")})), True
    text = message.get("text") or "{}"
    return _event(str(json.loads(text).get("type", "message")), text), False


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()
