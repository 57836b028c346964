"""Comments on runs, as calls of the API."""

from __future__ import annotations

import uuid
from typing import Any

from edt_client.calls import Call, Operation


def comments(number: int) -> Operation[list[dict[str, Any]]]:
    """The oldest first."""
    answer = yield Call("GET", f"/runs/{number}/comments")
    return list(answer.json()["items"])


def comment(number: int, text: str) -> Operation[dict[str, Any]]:
    """Markdown; @bob tells Bob."""
    answer = yield Call("POST", f"/runs/{number}/comments", json={"text": text}, key=uuid.uuid4().hex)
    return dict(answer.json())
