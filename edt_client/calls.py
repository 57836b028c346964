"""Calls of the API without a connection: what is asked, and what is made of the answer. Both clients, the one that waits and the one that
awaits, send these."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from edt_client.errors import NoAnswer, Refused

ROOT = "/api/v1"
AGAIN = (429, 502, 503, 504)  # later it may be another answer
MOST_BYTES = 256 << 20  # of an answer that is read as a whole
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """`json`: the body; `fields` and `file`: of a form instead; `content`: the body as it is. `again`: it may be sent twice."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    fields: Mapping[str, str] | None = None
    file: tuple[str, bytes] | None = None
    content: bytes | None = None
    key: str = ""

    @property
    def again(self) -> bool:
        return self.method in ("GET", "PUT", "DELETE", "PATCH") or bool(self.key)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    wait_s: float = 0.0

    def json(self) -> Any:
        """Its JSON; None where it has none."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise NoAnswer("What answers at the studio's address is no studio: check the address.") from None


# What is to be done, call by call: yields each call, is sent its answer, returns what came of it.
Operation = Generator[Call, Answer, T]


def checked(answer: Answer, *, url: str) -> Answer:
    """Raises Refused with what the studio says, or NoAnswer where it may say something else later."""
    if answer.status < 300:
        return answer
    if answer.status < 400:
        raise Refused(f"{url} sends its callers on to another address: name that one instead.", answer.status)
    try:
        said = str(json.loads(answer.body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = f"{url} answers {answer.status}: is a studio there, of this version?"
    if answer.status in AGAIN:
        raise NoAnswer(said)
    if answer.status == 401:
        said = f"{said} Run edt login {url}, or set EDT_TOKEN."
    raise Refused(said, answer.status)


def part(name: object) -> str:
    """As a piece of an address."""
    return quote(str(name), safe="")


def path_part(path: str) -> str:
    return quote(path, safe="/")
