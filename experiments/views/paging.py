"""Pages of a list that may be long: the rows that one address shows of it, and the addresses of those before and after.

A page may have several such lists, each with a parameter of its own (?versions=50); what else its address says stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Generic, TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest

from experiments.views.responses import number

T = TypeVar("T")
PAGE_ROWS = 50


class Pages(Generic[T]):
    """What ?NAME= asks for of `found`: `rows`, from `first` to `last` of `total`, read when a template looks. Beyond the end it is the last
    page: rows may have been deleted since. `_pages.html` shows where one is."""

    def __init__(self, request: HttpRequest, found: QuerySet[T] | Sequence[T], *, name: str = "offset", size: int = PAGE_ROWS) -> None:  # type: ignore[type-var]
        self._request, self._found, self._name, self._size = request, found, name, size

    @cached_property
    def total(self) -> int:
        return self._found.count() if isinstance(self._found, QuerySet) else len(self._found)

    @cached_property
    def offset(self) -> int:
        """How many rows are before these."""
        last = max(0, self.total - 1) // self._size * self._size
        return number(self._request, self._name, 0, least=0, most=last)

    @cached_property
    def rows(self) -> list[T]:
        return list(self._found[self.offset : self.offset + self._size])

    @property
    def several(self) -> bool:
        return self.total > self._size

    @property
    def first(self) -> int:
        return self.offset + 1

    @property
    def last(self) -> int:
        return min(self.total, self.offset + self._size)

    @property
    def before(self) -> str:
        """The query of the page before; "" where this is the first."""
        return self._query(max(0, self.offset - self._size)) if self.offset else ""

    @property
    def after(self) -> str:
        """The query of the page after; "" where this is the last."""
        return self._query(self.last) if self.last < self.total else ""

    def _query(self, offset: int) -> str:
        said = self._request.GET.copy()
        said.pop("part", None)
        said[self._name] = str(offset)
        return said.urlencode()
