"""What is due between EDT_HOME and the object store, in turns of bounded length: what was deleted goes there too, what is missing here
comes back, what waits is copied, what no list names any more is removed. One turn at a time; one that is cut off anywhere is gone on with.

A store that is away costs nothing but time: what waits is found again by the rows of the database.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from django.conf import settings

from experiments.files.store import bringing, copies, copying, manifest, things
from experiments.files.store.copying import BeingWritten, NoFiles, NotDone, Over
from experiments.files.store.manifest import Damaged, Manifest
from experiments.files.store.objects import ObjectStore, StoreAway
from experiments.files.store.things import Thing
from experiments.models import Installation, StoreCopy, TrainingRun
from experiments.ops import clock

log = logging.getLogger(__name__)
TURN_S = 20.0
MARKER = "store.json"
FORMAT = 1
STRANGE = (
    "The object store belongs to another studio, or to this one before it was restored: nothing is written there. Where no other studio "
    "uses it, run .venv/bin/python manage.py store adopt."
)


T = TypeVar("T")


@dataclass(frozen=True)
class Marker:
    """What a store says of itself. `studio`: of the one that may write there."""

    store: str
    studio: str


def turn(*, seconds: float = TURN_S) -> bool:
    """Do what is due, for about so long; whether there is more to do now."""
    if not copies.is_on():
        return False
    with alone() as allowed:
        if not allowed:
            return False
        end = time.monotonic() + seconds
        try:
            more = _work(opened(), lambda: time.monotonic() >= end)
        except StoreAway as error:
            say_away(error)
            return False
        say_reached()
        return more


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Held by whoever writes to the store; whether that is so now."""
    folder = settings.EDT_HOME / "store"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def opened(*, to_write: bool = True) -> ObjectStore:
    """The store of EDT_STORE, begun where nothing is there yet. Raises StoreAway, also for one that another studio writes to."""
    store = ObjectStore(settings.EDT_STORE)
    found = marker(store)
    if found is None:
        if not to_write:
            raise StoreAway("There is no store of a studio at EDT_STORE.")
        found = _mark(store, str(uuid.uuid4()))
    elif to_write and found.studio != _ours():
        raise StoreAway(STRANGE)
    copies.of_store(found.store)
    return store


def adopt() -> None:
    """From now on this studio writes to the store, and no other. What is there is looked at anew."""
    store = ObjectStore(settings.EDT_STORE)
    found = marker(store)
    _mark(store, found.store if found is not None else str(uuid.uuid4()))
    copies.look_again()


def marker(store: ObjectStore) -> Marker | None:
    try:
        raw = json.loads(store.get(MARKER))
        if raw["format"] != FORMAT:
            raise StoreAway("The object store was begun by a newer version of the studio.")
        return Marker(str(raw["store"]), str(raw["studio"]))
    except KeyError:
        return None
    except (ValueError, TypeError):
        raise StoreAway(f"{MARKER} in the object store is not what a studio has written.") from None


def _mark(store: ObjectStore, key: str) -> Marker:
    store.put(MARKER, json.dumps({"format": FORMAT, "store": key, "studio": _ours()}).encode())
    return Marker(key, _ours())


def _ours() -> str:
    """A name of this database and home together; not their key, which whoever reads the store need not know."""
    return manifest.digest(Installation.objects.get(pk=1).key.bytes)


def _work(store: ObjectStore, over: Over) -> bool:
    """Whether there is more to do."""
    now = clock.now()
    jobs: Iterable[Callable[[], bool]] = (
        lambda: _each(copies.due_to_remove(), lambda row: _remove(store, row), over),
        lambda: _each(_to_bring(now), lambda thing: _bring(store, thing, over), over),
        lambda: _each(things.waiting(now), lambda thing: copy(store, thing, over=over), over),
        lambda: _each(copies.to_tidy(now), lambda row: _tidy(store, row), over),
    )
    return any(job() for job in jobs)  # the first that is not done in time ends the turn


def _each(some: Iterable[T], act: Callable[[T], None], over: Over) -> bool:
    """Act on each of them; whether the time was over before the last."""
    for one in some:
        try:
            act(one)
        except NotDone:
            return True
        if over():
            return True
    return False


def copy(store: ObjectStore, thing: Thing, *, over: Over) -> None:
    """Raises StoreAway, NotDone. What else goes wrong is kept with the thing, for who looks."""
    now = clock.now()
    try:
        made = copying.copy_up(store, thing, now=now, over=over)
    except StoreAway:
        raise
    except NoFiles as error:
        _take_in(store, thing, error, now)
    except TrainingRun.DoesNotExist:
        return  # deleted meanwhile
    except (BeingWritten, OSError) as error:
        failed(thing, f"not copied: {error}", now=now)
    else:
        copies.copied(thing.kind, thing.key, at=now, size_bytes=made.size_bytes, tidy_at=_tidy_at(made))


def bring(store: ObjectStore, thing: Thing, *, over: Over) -> bool:
    """Whether it is here now, as far as it ever had files. Raises StoreAway, NotDone."""
    now = clock.now()
    try:
        found = bringing.bring_back(store, thing, over=over)
    except StoreAway:
        raise
    except KeyError:
        if things.has_none(thing):
            copies.copied(thing.kind, thing.key, at=now, size_bytes=0, tidy_at=None)
            return True
        log.error("The files of %s %s are missing, and the object store has not got them.", thing.kind, thing.key)
        copies.absent(thing.kind, thing.key)
        return False
    except TrainingRun.DoesNotExist:
        bringing.forget(thing)
        return False
    except (Damaged, OSError) as error:
        failed(thing, f"not brought back: {error}", now=now)
        return False
    copies.came(thing.kind, thing.key)
    if found is not None:
        _note(thing, found)
        log.info("Brought %s %s back from the object store: %d files.", thing.kind, thing.key, len(found.files))
    return True


def _bring(store: ObjectStore, thing: Thing, over: Over) -> None:
    bring(store, thing, over=over)


def failed(thing: Thing, words: str, *, now: dt.datetime) -> None:
    log.error("Object store: %s %s: %s", thing.kind, thing.key, words)
    copies.failed(thing.kind, thing.key, words, now=now)


def _take_in(store: ObjectStore, thing: Thing, error: NoFiles, now: dt.datetime) -> None:
    """It is missing here: then what the store has stays, and is known."""
    try:
        _note(thing, copying.manifest_of(store, thing))
    except KeyError:
        if things.has_none(thing):
            copies.copied(thing.kind, thing.key, at=now, size_bytes=0, tidy_at=None)
        else:
            failed(thing, f"not copied: {error}", now=now)
    except Damaged as damage:
        failed(thing, f"not copied: {error} And {damage}", now=now)


def _note(thing: Thing, found: Manifest) -> None:
    at = dt.datetime.fromtimestamp(found.read_at, dt.UTC)
    copies.copied(thing.kind, thing.key, at=at, size_bytes=found.size_bytes, tidy_at=_tidy_at(found))


def _to_bring(now: dt.datetime) -> Iterator[Thing]:
    for row in copies.asked_back():
        thing = things.named(row.kind, row.key)
        if thing is None:
            copies.unwanted(row.kind, row.key)
        elif not (row.error and row.tried_at and row.tried_at > now - things.AGAIN_AFTER):
            yield thing


def _remove(store: ObjectStore, row: StoreCopy) -> None:
    """What was deleted here and whose trash was emptied; not what is known again under the same name."""
    if things.named(row.kind, row.key) is not None:
        copies.stays(row.kind, row.key)
        return
    thing = Thing(row.kind, row.key)
    copying.remove_all(store, thing)
    bringing.forget(thing)
    copies.forget(row.kind, row.key)
    log.info("Removed the deleted %s %s from the object store.", row.kind, row.key)


def _tidy(store: ObjectStore, row: StoreCopy) -> None:
    kept = dt.timedelta(days=settings.EDT_TRASH_DAYS)
    try:
        left = copying.tidy_up(store, Thing(row.kind, row.key), kept=kept, now=clock.now())
        copies.tidied(row.kind, row.key, tidy_at=_tidy_at(left))
    except (KeyError, Damaged) as error:
        log.error("Object store: the list of files of %s %s cannot be read: %s", row.kind, row.key, error)
        copies.changed(row.kind, row.key)
        copies.tidied(row.kind, row.key, tidy_at=None)


def _tidy_at(found: Manifest) -> dt.datetime | None:
    if not found.retired:
        return None
    return dt.datetime.fromtimestamp(min(found.retired.values()), dt.UTC) + dt.timedelta(days=settings.EDT_TRASH_DAYS)


def say_away(error: StoreAway) -> None:
    if copies.away(str(error), now=clock.now()):
        log.error("The object store cannot be used; what waits for it is copied when it can be: %s", error)


def say_reached() -> None:
    if copies.reached(clock.now()):
        log.info("The object store can be used again.")
