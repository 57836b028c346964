"""The object store for administrators: whether it answers, what waits to be copied there and since when, and what went wrong."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from django.conf import settings
from django.db.models import Count, Sum

from experiments.files.diskuse import spelled
from experiments.files.store import copies, things
from experiments.models import StoreCopy, StoreState

MOST_FAILED = 50


@dataclass(frozen=True)
class Waiting:
    """`kind`: in words. `waits`: how many are not copied as they are now; `since`: the first of them. `copied`: how many are there."""

    kind: str
    waits: int
    since: dt.datetime | None
    copied: int
    size_bytes: int

    @property
    def size(self) -> str:
        return spelled(self.size_bytes)


@dataclass(frozen=True)
class Store:
    """`url`: as it was given, which holds no secret; empty: there is none. `missing`: how many things are asked back. `failed`: of what
    something went wrong last."""

    url: str
    state: StoreState
    rows: list[Waiting] = field(default_factory=list)
    missing: int = 0
    to_remove: int = 0
    failed: list[StoreCopy] = field(default_factory=list)

    @property
    def waits(self) -> int:
        return sum(row.waits for row in self.rows)

    @property
    def words(self) -> str:
        """How it stands, in a sentence."""
        if not self.url:
            return "There is no object store: all files are in EDT_HOME alone."
        if self.state.away_since is not None:
            return "It cannot be used now. What waits to be copied is copied when it can be."
        if self.state.reached_at is None:
            return "It was not asked yet."
        return f"{self.waits} things wait to be copied." if self.waits else "All is copied."


def store_status(now: dt.datetime) -> Store:
    if not copies.is_on():
        return Store("", StoreState())
    there = StoreCopy.objects.filter(copied_at__isnull=False).values("kind").annotate(n=Count("pk"), size=Sum("size_bytes")).order_by()
    copied = {row["kind"]: (row["n"], row["size"] or 0) for row in there}
    counted = things.counts(now)
    rows = [Waiting(words, *counted[kind], *copied.get(kind, (0, 0))) for kind, words in things.WORDS.items()]
    failed = StoreCopy.objects.exclude(error="").order_by("-tried_at")[:MOST_FAILED]
    return Store(
        settings.EDT_STORE,
        copies.state(),
        rows,
        StoreCopy.objects.filter(wanted_at__isnull=False).count(),
        StoreCopy.objects.filter(remove_at__isnull=False).count(),
        list(failed),
    )
