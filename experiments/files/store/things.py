"""The things whose files the store has: code, files of models, data assets and folders of runs; where each lies in EDT_HOME, and which of
them wait to be copied, in the order of their worth. Reads, and changes nothing.

Worth most is what is small and cannot be made again: code and models. Then what runs that live would lose, then data, which somebody has
uploaded from somewhere, then the results of runs that have ended.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db.models import DateTimeField, F, OuterRef, Q, QuerySet, Subquery

from experiments.files import stores
from experiments.files.store import copies
from experiments.models import Bundle, DataAsset, ModelFile, Project, RunState, RunTransition, StoreCopy, Tombstone, TrainingRun
from experiments.models.runs import ENDED, LIVE

Kind = Tombstone.Kind
ROOMS = {Kind.BUNDLE: "bundles", Kind.MODEL: "models", Kind.ASSET: "assets", Kind.RUN: "runs"}
CONTENT = "content"  # what the one file of a thing that is a file is called in the store
WORDS = {Kind.BUNDLE: "code", Kind.MODEL: "files of models", Kind.ASSET: "data assets", Kind.RUN: "runs"}
SETTLED = dt.timedelta(minutes=1)  # after its end a run's last lines may still come from other machines
_HEX = re.compile(r"[0-9a-f]{32}")
AGAIN_AFTER = dt.timedelta(minutes=10)  # of what could not be copied


@dataclass(frozen=True)
class Thing:
    """`since`: when it began to wait. `is_live`: of a run that may be writing now. `run`: its number."""

    kind: str
    key: str
    since: dt.datetime | None = None
    is_live: bool = False
    run: int | None = None

    @property
    def is_file(self) -> bool:
        return self.kind in (Kind.BUNDLE, Kind.MODEL)

    @property
    def local_path(self) -> Path:
        """Where it lies here."""
        home: Path = settings.EDT_HOME
        name = stores.named(self.key)
        return home / ROOMS[Kind(self.kind)] / (f"{name}.zip" if self.kind == Kind.BUNDLE else name)

    @property
    def folder(self) -> str:
        """What it is called in the store."""
        return f"{ROOMS[Kind(self.kind)]}/{stores.named(self.key)}"


def named(kind: str, key: str) -> Thing | None:
    """The thing that the database calls so; None where it has none."""
    if kind == Kind.RUN:
        row = TrainingRun.objects.filter(folder=key).values_list("pk", "state").first()
        return Thing(kind, key, is_live=row[1] in LIVE, run=row[0]) if row is not None else None
    if kind == Kind.ASSET:
        is_there = bool(_HEX.fullmatch(key)) and DataAsset.objects.filter(key=uuid.UUID(key)).exists()
    elif kind == Kind.BUNDLE:
        is_there = Bundle.objects.filter(sha256=key).exists()
    else:
        is_there = ModelFile.objects.filter(sha256=key).exists()
    return Thing(kind, key) if is_there else None


def has_none(thing: Thing) -> bool:
    """A run that was stopped, say, before it began: it never had files."""
    run = TrainingRun.objects.filter(folder=thing.key).first() if thing.kind == Kind.RUN else None
    return run is not None and not copies.has_begun(run)


def every() -> Iterator[Thing]:
    """All that the database has, and has files of; of runs those that have begun."""
    for sha256 in Bundle.objects.values_list("sha256", flat=True).iterator():
        yield Thing(Kind.BUNDLE, sha256)
    for sha256 in ModelFile.objects.order_by().values_list("sha256", flat=True).distinct().iterator():
        yield Thing(Kind.MODEL, sha256)
    for key in DataAsset.objects.values_list("key", flat=True).iterator():
        yield Thing(Kind.ASSET, key.hex)
    begun = TrainingRun.objects.filter(Q(started_at__isnull=False) | Q(ended_at__isnull=False) | Q(attempt__gt=1))
    for number, folder, state in begun.values_list("pk", "folder", "state").order_by("-pk").iterator():
        yield Thing(Kind.RUN, folder, is_live=state in LIVE, run=number)


def copied() -> Iterator[Thing]:
    """What the store has, as far as the rows say."""
    for kind, key in StoreCopy.objects.filter(copied_at__isnull=False, remove_at=None).values_list("kind", "key"):
        if (thing := named(kind, key)) is not None:
            yield thing


def waiting(now: dt.datetime, *, most: int = 1000) -> Iterator[Thing]:
    """What is to be copied, without what has just failed; of each kind at most so many."""
    late = StoreCopy.objects.filter(tried_at__gt=now - AGAIN_AFTER).exclude(error="")
    failed = set(late.values_list("kind", "key"))
    for queue in (_bundles(), _models(), _live_runs(now), _assets(), _ended_runs(now)):
        for number, thing in enumerate(queue):
            if number >= most:
                break
            if (thing.kind, thing.key) not in failed:
                yield thing


def counts(now: dt.datetime) -> dict[str, tuple[int, dt.datetime | None]]:
    """How many of each kind wait, those that failed too, and since when the first does."""
    found: dict[str, tuple[int, dt.datetime | None]] = {}
    for kind, queues in {
        Kind.BUNDLE: [_bundles()],
        Kind.MODEL: [_models()],
        Kind.ASSET: [_assets()],
        Kind.RUN: [_live_runs(now), _ended_runs(now)],
    }.items():
        since = [thing.since for queue in queues for thing in queue]
        known = [each for each in since if each is not None]
        found[kind] = (len(since), min(known) if known else None)
    return found


def _done(kind: str) -> QuerySet[StoreCopy, str]:
    return StoreCopy.objects.filter(kind=kind, copied_at__isnull=False, again=False).values_list("key", flat=True)


def _bundles() -> Iterator[Thing]:
    rows = Bundle.objects.exclude(sha256__in=_done(Kind.BUNDLE)).order_by("created_at")
    return (Thing(Kind.BUNDLE, sha256, at) for sha256, at in rows.values_list("sha256", "created_at"))


def _models() -> Iterator[Thing]:
    rows = ModelFile.objects.exclude(sha256__in=_done(Kind.MODEL)).order_by("sha256").values_list("sha256", "version__created_at")
    return iter([Thing(Kind.MODEL, sha256, at) for sha256, at in dict(rows).items()])


def _assets() -> Iterator[Thing]:
    done = set(_done(Kind.ASSET))
    rows = DataAsset.objects.filter(project__state=Project.State.HERE).order_by("pk").values_list("key", "created_at")
    return (Thing(Kind.ASSET, key.hex, at) for key, at in rows if key.hex not in done)


def _with_copies() -> QuerySet[TrainingRun]:
    row = StoreCopy.objects.filter(kind=Kind.RUN, key=OuterRef("folder"))
    return TrainingRun.objects.annotate(
        copy=Subquery(row.values("copied_at")[:1], output_field=DateTimeField()),
        stale=Subquery(row.values("again")[:1]),
    )


def _ended_runs(now: dt.datetime) -> Iterator[Thing]:
    ended = _with_copies().filter(state__in=ENDED, ended_at__lt=now - SETTLED, experiment__project__state=Project.State.HERE)
    rows = ended.filter(Q(copy=None) | Q(copy__lt=F("ended_at")) | Q(stale=True)).order_by("ended_at")
    return (Thing(Kind.RUN, folder, at, run=pk) for pk, folder, at in rows.values_list("pk", "folder", "ended_at"))


def _live_runs(now: dt.datetime) -> Iterator[Thing]:
    """Suspended ones once each time, others that train every EDT_STORE_MINUTES."""
    last = RunTransition.objects.filter(run=OuterRef("pk")).order_by("-at", "-id").values("at")[:1]
    begun = _with_copies().filter(started_at__isnull=False).annotate(became=Subquery(last, output_field=DateTimeField()))
    before = now - dt.timedelta(minutes=settings.EDT_STORE_MINUTES)
    suspended = Q(state=RunState.SUSPENDED) & (Q(copy=None) | Q(copy__lt=F("became")))
    trains = Q(state=RunState.RUNNING) & (Q(copy__lt=before) | Q(copy=None, started_at__lt=before))
    rows = begun.filter(suspended | trains).order_by("started_at").values_list("pk", "folder", "state", "became", "started_at", "copy")
    for pk, folder, state, became, started, copy in rows:
        copied: dt.datetime | None = copy or started
        since = became if state == RunState.SUSPENDED or copied is None else copied + dt.timedelta(minutes=settings.EDT_STORE_MINUTES)
        yield Thing(Kind.RUN, folder, since, is_live=True, run=pk)
