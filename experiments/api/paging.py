"""Lists, a page at a time: newest first, each page with a cursor of the next. What is made or deleted meanwhile moves nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

from django.db.models import Model, QuerySet
from ninja import Field, Query, Schema

from experiments.api.problems import Refused

MOST, USUAL = 200, 50
NO_CURSOR = "That is no cursor of this list: leave it out to begin anew."
M = TypeVar("M", bound=Model)
T = TypeVar("T")


class PageQuery(Schema):
    """Which page. `cursor`: `next` of the page before."""

    limit: int = Field(USUAL, ge=1, le=MOST)
    cursor: str = Field("", max_length=64)


PageParameters = Annotated[PageQuery, Query()]


class Page(Schema, Generic[T]):
    """`next`: the cursor of the next page; null: this is the last."""

    items: list[T]
    next: str | None = None


def newest(found: QuerySet[M], wanted: PageQuery, shown: Callable[[M], T]) -> Page[T]:
    """A page of the rows, newest first."""
    if wanted.cursor:
        found = found.filter(pk__lt=_parse_cursor(wanted.cursor))
    rows = list(found.order_by("-pk")[: wanted.limit + 1])
    following = _cursor(rows[wanted.limit - 1].pk) if len(rows) > wanted.limit else None
    return Page(items=[shown(row) for row in rows[: wanted.limit]], next=following)


def whole(items: list[T]) -> Page[T]:
    """A list that has one page."""
    return Page(items=items)


def _cursor(pk: int) -> str:
    return base64.urlsafe_b64encode(f"before:{pk}".encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> int:
    try:
        kind, _, number = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Refused(422, NO_CURSOR) from None
    if kind != "before" or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise Refused(422, NO_CURSOR)
    return int(number)
