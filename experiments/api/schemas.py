"""What several calls have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Schema
from pydantic import ConfigDict, model_validator

BINARY = {
    "responses": {
        200: {"description": "The file.", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}},
        206: {"description": "The part of it that was asked for."},
        416: {"description": "There is no such part."},
    }
}


class Body(Schema):
    """What is sent: a name that is not described is a mistake, and not passed over."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def of_characters(cls, sent: Any) -> Any:
        """JSON can spell what is no text: half a character, and the one that ends texts in a database."""
        for text in _texts(sent):
            if "\0" in text or not is_text(text):
                raise ValueError("A text holds something that is no character: \\u0000, or half of one.")
        return sent


def is_text(said: str) -> bool:
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(sent: Any) -> Iterator[str]:
    """All that stand in what was sent, names included."""
    if isinstance(sent, str):
        yield sent
    elif isinstance(sent, Mapping):
        for name, value in sent.items():
            yield from _texts(name)
            yield from _texts(value)
    elif isinstance(sent, (list, tuple)):
        for each in sent:
            yield from _texts(each)


class Reason(Body):
    reason: str = ""


class ActionResult(Schema):
    """What was done, in a sentence."""

    detail: str


def page_of(request: HttpRequest, name: str, *arguments: object) -> str:
    """The address of the page that shows it."""
    return request.build_absolute_uri(reverse(name, args=arguments))
