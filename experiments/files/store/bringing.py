"""One thing back from the store, whole in its place or not there. Every object is compared with its name, the SHA-256 of what it was. What
an attempt that broke off has brought stays beside the place, and the next one goes on with it if the store has still the same."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections import OrderedDict
from pathlib import Path

from django.conf import settings

from experiments.files import bundles, removal, runfiles
from experiments.files.store import manifest as manifests
from experiments.files.store.copying import MANIFEST, NotDone, Over
from experiments.files.store.manifest import Damaged, Manifest, Stored
from experiments.files.store.objects import ObjectStore
from experiments.files.store.things import CONTENT, Kind, Thing
from experiments.models import TrainingRun
from training_runtime.protocol import UNCHANGED_CODE_NS

HELD = 4  # objects in memory: small files that follow each other share one
RUN_FOLDER_MODE = 0o750  # until the host gives it to the user of the run again


def bring_back(store: ObjectStore, thing: Thing, *, over: Over) -> Manifest | None:
    """What was brought; None where it was here. Raises KeyError where the store has not got it, Damaged, StoreAway, NotDone, and OSError
    where there is no room, or the code of a run that is to go on is missing."""
    if thing.local_path.exists():
        return None
    data = store.get(f"{thing.folder}/{MANIFEST}")
    found = manifests.decode(data, kind=thing.kind, key=thing.key)
    beside = thing.local_path.with_name(f".{thing.local_path.name}")
    _begin(thing, beside, manifests.digest(data))
    _check_room(found, beside)
    objects = _Objects(store, thing)
    for file in found.files:
        target = beside if thing.is_file and file.path == CONTENT else beside / file.path
        if _bring_file(objects, file, target) and over():
            raise NotDone
    _finish(thing, found, beside)
    _mark_of(thing).unlink(missing_ok=True)
    return found


class _Objects:
    """Those of a thing, checked; the last few stay in memory."""

    def __init__(self, store: ObjectStore, thing: Thing) -> None:
        self._store, self._thing = store, thing
        self._held: OrderedDict[str, bytes] = OrderedDict()

    def get(self, name: str) -> bytes:
        if name in self._held:
            self._held.move_to_end(name)
            return self._held[name]
        try:
            data = self._store.get(f"{self._thing.folder}/{name}")
        except KeyError:
            raise Damaged(f"an object of {self._thing.kind} {self._thing.key} is missing in the store: {name}") from None
        if manifests.digest(data) != name:
            raise Damaged(f"an object of {self._thing.kind} {self._thing.key} is damaged in the store: {name}")
        self._held[name] = data
        if len(self._held) > HELD:
            self._held.popitem(last=False)
        return data


def _begin(thing: Thing, beside: Path, mark: str) -> None:
    """What is beside is of this list, or nothing."""
    note = _mark_of(thing)
    note.parent.mkdir(mode=0o700, exist_ok=True)
    if not note.is_file() or note.read_text() != mark:
        removal.remove(beside)
        note.write_text(mark)
    (beside.parent if thing.is_file else beside).mkdir(parents=True, exist_ok=True)


def _mark_of(thing: Thing) -> Path:
    home: Path = settings.EDT_HOME
    return home / "store" / f"{thing.folder.replace('/', '-')}.back"


def _check_room(found: Manifest, beside: Path) -> None:
    come = sum(path.lstat().st_size for path in (beside.rglob("*") if beside.is_dir() else ()) if path.is_file())
    free = shutil.disk_usage(beside.parent).free
    if found.size_bytes - come > free:
        words = f"{found.size_bytes >> 20} MiB are to be brought back from the object store, and the disk has {free >> 20} left"
        raise OSError(errno.ENOSPC, words)


def _bring_file(objects: _Objects, file: Stored, target: Path) -> bool:
    """From where an earlier attempt has stopped; whether something had to be brought."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "r+b") as out:
        have = out.seek(0, os.SEEK_END)
        if have == file.size and target.stat().st_mtime_ns == file.mtime_ns:
            return False
        at = 0
        for part in file.parts:
            if at + part.size > have:
                out.truncate(at)
                out.seek(at)
                data = objects.get(part.object)[part.begin : part.begin + part.size]
                if len(data) != part.size:
                    raise Damaged(f"{file.path} is not whole in the store")
                out.write(data)
            at += part.size
        out.truncate(at)
        out.flush()
        os.fsync(out.fileno())
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
    return True


def _finish(thing: Thing, found: Manifest, beside: Path) -> None:
    if thing.is_file:
        with open(beside, "rb") as file:  # it is called after its content, whatever the store's list says
            if hashlib.file_digest(file, "sha256").hexdigest() != thing.key:
                removal.remove(beside)
                raise Damaged(f"{thing.kind} {thing.key} is another file in the store")
        beside.chmod(0o444 if thing.kind == Kind.MODEL else 0o600)
    elif thing.kind == Kind.ASSET:
        for path in (beside, *beside.rglob("*")):  # the users that runs are boxed as read it
            path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        run = TrainingRun.objects.select_related("version__bundle").get(folder=thing.key)
        if run.is_live():
            _add_code(run, found, beside)
        beside.chmod(RUN_FOLDER_MODE)
        runfiles.remember(run.pk)
    try:
        beside.rename(thing.local_path)
    except OSError:  # somebody made it anew meanwhile
        if not thing.local_path.exists():
            raise
        removal.remove(beside)


def _add_code(run: TrainingRun, found: Manifest, beside: Path) -> None:
    """To what its script has written in its working folder the code that it goes on with, which is stored once for all runs."""
    written = [file.path.split("/") for file in found.files if file.path.startswith(f"{runfiles.CODE}/")]
    for name in {parts[1] for parts in written if len(parts) > 2}:
        code = bundles.unpacked(run.version.bundle)
        for source in code.rglob("*"):
            target = beside / runfiles.CODE / name / source.relative_to(code)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                os.utime(target, ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))


def forget(thing: Thing) -> None:
    """What has come of a thing that is wanted no more goes."""
    with contextlib.suppress(OSError):
        removal.remove(thing.local_path.with_name(f".{thing.local_path.name}"))
    _mark_of(thing).unlink(missing_ok=True)
