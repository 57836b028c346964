"""One thing up: what is not in the store yet goes there, the list of its files last. An attempt that breaks off, or whose time is over, is
gone on with: what it has sent is there, and a draft here says which files that was, so that they are not read again.

Folders of runs are written by user code, also meanwhile. Of one that trains its checkpoint is read first and its journal last: a checkpoint
is never there without the journal's lines before it, so a run can go on from what is there exactly. What else is being written is left as
it was the last time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from django.conf import settings

from experiments.files import runfiles
from experiments.files.store import manifest as manifests
from experiments.files.store.manifest import Damaged, Manifest, Part, Stored
from experiments.files.store.objects import ObjectStore
from experiments.files.store.things import CONTENT, Kind, Thing
from experiments.models import TrainingRun
from training_runtime.journal import FILE_NAME as JOURNAL

MANIFEST = "manifest"
MOST_FILES = 500_000
Over = Callable[[], bool]


class NotDone(Exception):
    """The time is over; the next turn goes on."""


class NoFiles(Exception):
    """The thing's files are not here."""


class BeingWritten(Exception):
    """A file of something that should be at rest changes while it is read."""


def manifest_of(store: ObjectStore, thing: Thing) -> Manifest:
    """Raises KeyError where the store has not got it, Damaged, StoreAway."""
    return manifests.decode(store.get(f"{thing.folder}/{MANIFEST}"), kind=thing.kind, key=thing.key)


def copy_up(store: ObjectStore, thing: Thing, *, now: dt.datetime, over: Over) -> Manifest:
    """What is in the store after it. Raises StoreAway, NotDone, NoFiles, BeingWritten, OSError."""
    if not thing.local_path.exists():
        raise NoFiles(f"The files of {thing.kind} {thing.key} are not in EDT_HOME.")
    before = _before(store, thing)
    there = set(store.sizes(thing.folder)) - {MANIFEST}
    known = {file.path: file for file in (*(before.files if before else ()), *_draft(thing)) if all(p.object in there for p in file.parts)}
    sending = _Sending(store, thing, there, known, over)
    try:
        files = sending.all()
    except BaseException:
        _save_draft(thing, sending.done, now)
        raise
    named = {part.object for file in files for part in file.parts}
    retired = manifests.retired(before, named, there=there, now=now.timestamp())
    made = Manifest(thing.kind, thing.key, now.timestamp(), tuple(files), retired)
    store.put(f"{thing.folder}/{MANIFEST}", manifests.encode(made))
    _draft_of(thing).unlink(missing_ok=True)
    return made


def tidy_up(store: ObjectStore, thing: Thing, *, kept: dt.timedelta, now: dt.datetime) -> Manifest:
    """Remove objects that the thing's list has not named for so long; the list after it. Raises KeyError, Damaged, StoreAway."""
    found = manifest_of(store, thing)
    gone = [name for name in manifests.due(found, kept_s=kept.total_seconds(), now=now.timestamp()) if name not in found.objects]
    for name in gone:
        store.remove(f"{thing.folder}/{name}")
    rest = {name: since for name, since in found.retired.items() if name not in gone}
    left = Manifest(found.kind, found.key, found.read_at, found.files, rest)
    store.put(f"{thing.folder}/{MANIFEST}", manifests.encode(left))
    return left


def remove_all(store: ObjectStore, thing: Thing) -> None:
    """The list first: nothing that is half there is ever taken for whole."""
    store.remove(f"{thing.folder}/{MANIFEST}")
    for name in store.sizes(thing.folder):
        store.remove(f"{thing.folder}/{name}")
    store.tidy(thing.folder)
    _draft_of(thing).unlink(missing_ok=True)


class _Sending:
    """`done`: entries of files that are in the store, in part the last of them."""

    def __init__(self, store: ObjectStore, thing: Thing, there: set[str], known: dict[str, Stored], over: Over) -> None:
        self._store, self._thing, self._there, self._known, self._over = store, thing, there, known, over
        self.done: list[Stored] = []
        self._pack = bytearray()
        self._packed: list[tuple[str, os.stat_result, int, int]] = []

    def all(self) -> list[Stored]:
        for path in _paths(self._thing):
            try:
                opened = _open(self._thing, path)
            except FileNotFoundError:  # gone since it was listed
                continue
            with os.fdopen(opened, "rb", buffering=0):
                self._add(path, opened)
            if len(self._pack) >= manifests.PACK_BYTES:
                self._send_pack()
        self._send_pack()
        return self.done

    def _add(self, path: str, opened: int) -> None:
        facts = os.fstat(opened)
        known = self._known.get(path)
        same = known is not None and known.facts == (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if known is not None and same and known.there == known.size:
            self.done.append(known)
        elif facts.st_size <= manifests.SMALL_BYTES:
            data = _read(opened, facts.st_size)
            if self._is_whole(path, opened, facts, len(data)):
                self._packed.append((path, facts, len(self._pack), len(data)))
                self._pack += data
        else:
            self._send_large(path, opened, facts, list(known.parts) if known is not None and same else [])

    def _send_large(self, path: str, opened: int, facts: os.stat_result, parts: list[Part]) -> None:
        """From where an earlier turn has stopped."""
        begin = sum(part.size for part in parts)
        os.lseek(opened, begin, os.SEEK_SET)
        try:
            while begin < facts.st_size and (data := _read(opened, min(manifests.OBJECT_BYTES, facts.st_size - begin))):
                parts.append(Part(self._object(data), 0, len(data)))
                begin += len(data)
                self._pause_if_over()
        except BaseException:
            self.done.append(_stored(path, facts, facts.st_size, parts))
            raise
        if self._is_whole(path, opened, facts, begin):
            self.done.append(_stored(path, facts, begin, parts))

    def _is_whole(self, path: str, opened: int, facts: os.stat_result, count: int) -> bool:
        """Whether what was read is the file as it was at one moment; else that what the store has of it stays."""
        now = os.fstat(opened)
        if count == facts.st_size and ((now.st_size, now.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns) or _grows(path)):
            return True
        if not self._thing.is_live:
            raise BeingWritten(f"{path} is being written.")
        if (known := self._known.get(path)) is not None and known.there == known.size:
            self.done.append(known)
        return False

    def _send_pack(self) -> None:
        if not self._packed:
            return
        name = self._object(bytes(self._pack)) if self._pack else ""
        for path, facts, begin, size in self._packed:
            self.done.append(_stored(path, facts, size, [Part(name, begin, size)] if size else []))
        self._pack, self._packed = bytearray(), []
        self._pause_if_over()

    def _object(self, data: bytes) -> str:
        name = manifests.digest(data)
        if name not in self._there:
            self._store.put(f"{self._thing.folder}/{name}", data)
            self._there.add(name)
        return name

    def _pause_if_over(self) -> None:
        if self._over():
            raise NotDone


def _stored(path: str, facts: os.stat_result, size: int, parts: list[Part]) -> Stored:
    return Stored(path, size, facts.st_mtime_ns, facts.st_ctime_ns, tuple(parts))


def _read(opened: int, size: int) -> bytes:
    pieces = []
    while size and (piece := os.read(opened, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _grows(path: str) -> bool:
    """Whether the file is only ever written at its end, so that its beginning is as good as any earlier state of it."""
    name = path.rsplit("/", 1)[-1]
    return path == JOURNAL or (path.startswith("log/") and name == "console.log") or name.startswith("events.out.tfevents.")


def _paths(thing: Thing) -> Iterator[str]:
    if thing.is_file:
        return iter([CONTENT])
    if thing.kind == Kind.RUN:
        run = TrainingRun.objects.select_related("version__bundle").get(folder=thing.key)
        found = [each.path for each in runfiles.walk(run, limit=MOST_FILES).files]
        return iter(sorted(found, key=lambda path: (not path.startswith("checkpoint/"), path == JOURNAL)))
    return (
        str(Path(folder, name).relative_to(thing.local_path)) for folder, _, names in os.walk(thing.local_path) for name in sorted(names)
    )


def _open(thing: Thing, path: str) -> int:
    if thing.is_file:
        return os.open(thing.local_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return runfiles.open_below(thing.local_path, path)


def _before(store: ObjectStore, thing: Thing) -> Manifest | None:
    with contextlib.suppress(KeyError, Damaged):  # a damaged list is replaced
        return manifest_of(store, thing)
    return None


def _draft_of(thing: Thing) -> Path:
    home: Path = settings.EDT_HOME
    return home / "store" / f"{thing.folder.replace('/', '-')}.draft"


def _draft(thing: Thing) -> tuple[Stored, ...]:
    with contextlib.suppress(OSError, Damaged):
        return manifests.decode(_draft_of(thing).read_bytes(), kind=thing.kind, key=thing.key, whole=False).files
    return ()


def _save_draft(thing: Thing, done: list[Stored], now: dt.datetime) -> None:
    path = _draft_of(thing)
    with contextlib.suppress(OSError):  # a full disk: then these files are read again
        path.parent.mkdir(mode=0o700, exist_ok=True)
        beside = path.with_suffix(f".{time.monotonic_ns()}")
        beside.write_bytes(manifests.encode(Manifest(thing.kind, thing.key, now.timestamp(), tuple(done))))
        beside.replace(path)
