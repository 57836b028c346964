"""The rows of the object store: the only writer of StoreCopy and StoreState. Knows no file and no store.

Also the door for who misses a thing here: `missing` asks it back and says so, as an error for which a run waits.
"""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models import F

from experiments.live import notify
from experiments.models import JournalCursor, StoreCopy, StoreState, Tombstone, TrainingRun
from experiments.ops import clock

KINDS = (Tombstone.Kind.BUNDLE, Tombstone.Kind.MODEL, Tombstone.Kind.ASSET, Tombstone.Kind.RUN)
LONGEST = 500


class NotHere(OSError):
    """Files are missing here and are on their way from the object store. Who needs them tries again."""


def is_on() -> bool:
    return bool(settings.EDT_STORE)


def has_begun(run: TrainingRun) -> bool:
    """Whether there ever were files of it. One that is logged from outside counts as started before any of it has come."""
    return JournalCursor.objects.filter(run=run, offset__gt=0).exists() if run.outside else run.started_at is not None or run.attempt > 1


def missing(kind: str, key: str) -> None:
    """What is called so is missing in EDT_HOME. Raises NotHere while it may come back; returns where there is no store, or the store has
    not got it either."""
    if not is_on():
        return
    row = StoreCopy.objects.filter(kind=kind, key=key).first()
    if row is not None and row.absent:
        return
    if row is None or row.wanted_at is None:
        now = clock.now()
        StoreCopy.objects.update_or_create(kind=kind, key=key, defaults={"wanted_at": now})
        notify.nudge_store()
    raise NotHere(f"The files of {kind} {key} are missing here and are being brought back from the object store.")


def want(kind: str, key: str, *, now: dt.datetime) -> None:
    """Bring it back, also where the store was found not to have it before."""
    StoreCopy.objects.update_or_create(kind=kind, key=key, defaults={"wanted_at": now, "absent": False})


def came(kind: str, key: str) -> None:
    StoreCopy.objects.filter(kind=kind, key=key).update(wanted_at=None, absent=False, error="", tried_at=None)


def absent(kind: str, key: str) -> None:
    """The store has answered, and has not got it."""
    StoreCopy.objects.update_or_create(kind=kind, key=key, defaults={"wanted_at": None, "absent": True, "copied_at": None})


def copied(kind: str, key: str, *, at: dt.datetime, size_bytes: int, tidy_at: dt.datetime | None) -> None:
    """`at`: when it began to be read here."""
    done = {"copied_at": at, "size_bytes": size_bytes, "again": False, "tidy_at": tidy_at, "absent": False, "error": "", "tried_at": None}
    StoreCopy.objects.update_or_create(kind=kind, key=key, defaults=done)


def tidied(kind: str, key: str, *, tidy_at: dt.datetime | None) -> None:
    StoreCopy.objects.filter(kind=kind, key=key).update(tidy_at=tidy_at)


def failed(kind: str, key: str, words: str, *, now: dt.datetime) -> None:
    StoreCopy.objects.update_or_create(kind=kind, key=key, defaults={"tried_at": now, "error": words[:LONGEST]})


def changed(kind: str, key: str) -> None:
    """Something of it was removed here: what is there is out of date."""
    StoreCopy.objects.filter(kind=kind, key=key).update(again=True)


def forget(kind: str, key: str) -> None:
    """Nothing of it is in the store, as far as is known."""
    StoreCopy.objects.filter(kind=kind, key=key).delete()


def discard(stone: Tombstone, *, now: dt.datetime) -> None:
    """The trash of what was deleted has been emptied: it goes from the store as well, when that is there."""
    if stone.kind in KINDS and (is_on() or StoreCopy.objects.filter(kind=stone.kind, key=stone.key).exists()):
        StoreCopy.objects.update_or_create(kind=stone.kind, key=stone.key, defaults={"remove_at": now, "wanted_at": None})
        notify.nudge_store()


def stays(kind: str, key: str) -> None:
    """It is there again under the same name: code that was uploaded once more."""
    StoreCopy.objects.filter(kind=kind, key=key).update(remove_at=None)


def unwanted(kind: str, key: str) -> None:
    """It was deleted meanwhile."""
    StoreCopy.objects.filter(kind=kind, key=key).update(wanted_at=None)


def reached(now: dt.datetime) -> bool:
    """Whether it was away before."""
    was_away = StoreState.objects.filter(pk=1, away_since__isnull=False).exists()
    StoreState.objects.update_or_create(pk=1, defaults={"asked_at": now, "reached_at": now, "error": "", "away_since": None})
    notify.changed("cluster", "store")
    return was_away


def away(words: str, *, now: dt.datetime) -> bool:
    """Whether it was not before."""
    StoreState.objects.update_or_create(pk=1, defaults={"asked_at": now, "error": words[:LONGEST]})
    notify.changed("cluster", "store")
    return StoreState.objects.filter(pk=1, away_since=None).update(away_since=now) > 0


def of_store(store: str) -> None:
    """The store that there is calls itself so: of another one than before nothing is known."""
    if state().store != store:
        StoreState.objects.update_or_create(pk=1, defaults={"store": store})
        look_again()


def look_again() -> None:
    """All that is said to be copied is looked at anew, and sent where it is not there."""
    StoreCopy.objects.filter(remove_at=None).update(copied_at=None, tidy_at=None, absent=False, error="", tried_at=None)


def state() -> StoreState:
    return StoreState.objects.filter(pk=1).first() or StoreState()


def look_at(kind: str, key: str) -> None:
    """The same of one."""
    StoreCopy.objects.filter(kind=kind, key=key).update(copied_at=None, tidy_at=None)


def is_to_go(kind: str, key: str) -> bool:
    return StoreCopy.objects.filter(kind=kind, key=key, remove_at__isnull=False).exists()


def due_to_remove() -> list[StoreCopy]:
    return list(StoreCopy.objects.exclude(remove_at=None).order_by("remove_at")[:1000])


def asked_back() -> list[StoreCopy]:
    """Those that did not fail last come first."""
    return list(StoreCopy.objects.exclude(wanted_at=None).order_by(F("tried_at").asc(nulls_first=True), "wanted_at")[:1000])


def to_tidy(now: dt.datetime) -> list[StoreCopy]:
    return list(StoreCopy.objects.filter(tidy_at__lte=now, remove_at=None).order_by("tidy_at")[:100])
