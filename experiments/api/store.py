"""The object store behind the studio's files. For administrators of the cluster."""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest
from ninja import Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.files.store import things
from experiments.ops import clock
from experiments.selectors import store as selected

router = Router(tags=["nodes"])


class Waiting(Schema):
    """`waits`: how many are not copied as they are now, the first `since`; `copied`: how many are there, with `size_bytes`."""

    kind: str
    waits: int
    since: dt.datetime | None
    copied: int
    size_bytes: int


class Failed(Schema):
    """A thing of which something went wrong last, and how. `kind`: as in the store; `key`: what its files are called."""

    kind: str
    key: str
    error: str
    tried_at: dt.datetime | None


class Store(Schema):
    """`url`: empty where there is none. `words`: how it stands. `error`: of the store itself, while it cannot be used (`away_since`).
    `missing`: things that are asked back; `to_remove`: deleted ones that are still there."""

    url: str
    words: str
    error: str
    away_since: dt.datetime | None
    reached_at: dt.datetime | None
    rows: list[Waiting]
    missing: int
    to_remove: int
    failed: list[Failed]


@router.get("/store", response=Store, operation_id="object_store", summary="How the object store stands, and what waits for it")
def store(request: HttpRequest) -> Store:
    access.rules(person(request), need="admin")
    found = selected.store_status(clock.now())
    return Store(
        url=found.url,
        words=found.words,
        error=found.state.error,
        away_since=found.state.away_since,
        reached_at=found.state.reached_at,
        rows=[Waiting(kind=row.kind, waits=row.waits, since=row.since, copied=row.copied, size_bytes=row.size_bytes) for row in found.rows],
        missing=found.missing,
        to_remove=found.to_remove,
        failed=[Failed(kind=things.Kind(each.kind).label, key=each.key, error=each.error, tried_at=each.tried_at) for each in found.failed],
    )
