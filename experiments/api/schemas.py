"""What several calls have in common."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse
from ninja import Schema
from pydantic import ConfigDict

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


class Reason(Body):
    reason: str = ""


class Said(Schema):
    """What was done, in a sentence."""

    detail: str


def page_of(request: HttpRequest, name: str, *arguments: object) -> str:
    """The address of the page that shows it."""
    return request.build_absolute_uri(reverse(name, args=arguments))
