"""A script that speaks WMLA's REST interface: what it sends, as the clients of both generations send it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.test import Client

from experiments.models import User
from tests import cast

DL = "/platform/rest/deeplearning/v1"
SC = "/platform/rest/conductor/v1"


def basic(name: str, password: str = cast.PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@dataclass
class Script:
    """Calls with headers of its own; it neither follows a redirect nor keeps a cookie, and a form's token is checked."""

    headers: dict[str, str] = field(default_factory=dict)
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def call(self, method: str, path: str, data: Any = None, **headers: str) -> Any:
        said = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return getattr(self.client, method)(path, **({} if data is None else {"data": data}), headers=said)

    def get(self, path: str, **headers: str) -> Any:
        return self.call("get", path, **headers)

    def json(self, path: str) -> Any:
        answer = self.get(path, Accept="application/json")
        assert answer.status_code == 200, (path, answer.status_code, answer.content)
        return answer.json()


def body(answer: Any) -> bytes:
    """Of an answer that may be sent in pieces, as under ASGI."""
    return b"".join(async_to_sync(_pieces)(answer)) if answer.streaming else bytes(answer.content)


async def _pieces(answer: Any) -> list[bytes]:
    return [piece async for piece in answer.streaming_content]


def of(user: User) -> Script:
    """Their script of the second generation: logged on, with a token."""
    answer = Script(basic(user.username)).get("/auth/v1/logon")
    assert answer.status_code == 200, answer.content
    return Script({"X-Auth-Token": answer.json()["accessToken"]})
