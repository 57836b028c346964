"""What an address asks of a table of runs: all of its state, so that whoever opens the address sees the same table. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

MOST_COLUMNS = 100
MOST_PAGES = 10**6
TEXT_LIMIT = 2200  # of what is longer the filter's own limit says why


@dataclass(frozen=True)
class TableQuery:
    """`columns`: keys in their order; none: the usual ones. `pinned`: those that stay at the left. `sort`: a column's key, `group`: of one
    that runs are put together by."""

    filter: str = ""
    sort: str = ""
    descending: bool = False
    columns: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    group: str = ""
    page: int = 1

    def query(self, **changes: Any) -> str:
        """Of the address, without "?"; other than now, it begins at the first page."""
        wanted = replace(self, **{"page": 1, **changes})
        pairs = [("filter", wanted.filter), ("sort", f"-{wanted.sort}" if wanted.sort and wanted.descending else wanted.sort)]
        pairs += [("columns", key) for key in wanted.columns] + [("pin", key) for key in wanted.pinned]
        pairs += [("group", wanted.group), ("page", str(wanted.page) if wanted.page > 1 else "")]
        return urlencode([pair for pair in pairs if pair[1]])


def read(query: QueryDict) -> TableQuery:
    """Whatever stands there: what cannot be is left out."""
    sort, page = _text(query, "sort"), query.get("page", "1")
    return TableQuery(
        filter=_text(query, "filter").strip(),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        columns=_keys(query, "columns"),
        pinned=_keys(query, "pin"),
        group=_text(query, "group"),
        page=max(1, min(MOST_PAGES, int(page))) if page.isascii() and page.isdigit() and len(page) < 18 else 1,
    )


def _text(query: QueryDict, name: str) -> str:
    return str(query.get(name, ""))[:TEXT_LIMIT]


def _keys(query: QueryDict, name: str) -> tuple[str, ...]:
    found = (str(key)[:TEXT_LIMIT] for key in query.getlist(name) if key)
    return tuple(dict.fromkeys(found))[:MOST_COLUMNS]
