"""Reads the archive of a project, and believes nothing of it. It is unpacked by a boxed child under the rules of uploaded data; here lists
are parsed, and files compared with their hashes. No row is made, and nothing of it is run or unpickled."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from django.conf import settings

from experiments.boxed import folders
from experiments.files import datastore, diskuse, runfiles, zipcheck
from experiments.files.zipcheck import BundleRefused, Limits
from experiments.models import ClusterRules
from experiments.transfer import format
from experiments.transfer.format import Data, File, Listed, Manifest, Model, Run, TransferRefused
from training_runtime import journal

UNPACKED = "unpacked"  # beside what has arrived
ADVICE = "delete what nobody needs from the project, and export it again"
AGAIN = "export the project again"
MOST_RUNS, MOST_HISTORY = 100_000, 10_000
_NAME_BYTES = 255
_STRANGE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
L = TypeVar("L", Data, Run, Model)


def most_bytes() -> int:
    """Of an archive, and of what is in it."""
    may, rules = int(settings.EDT_MAX_PROJECT_BYTES), ClusterRules.current()
    return may if rules.new_project_disk is None else min(may, rules.new_project_disk * diskuse.GB)


def unpack(number: int, draft: Path, *, name: str) -> Path:
    """The folder with what is in the file `number` of an upload. Raises TransferRefused, OSError."""
    into = draft / UNPACKED
    shutil.rmtree(into, ignore_errors=True)  # of an attempt that was killed
    into.mkdir(mode=0o755)
    limits = Limits(entries=settings.EDT_MAX_DATA_ENTRIES, unpacked_bytes=most_bytes(), advice=ADVICE)
    try:
        folders.unpack(draft / str(number), into=into, name=name, limits=limits, room=datastore.free_bytes())
    except BundleRefused as refusal:
        raise TransferRefused(str(refusal)) from None
    except folders.NoRoom as error:
        raise TransferRefused(datastore.no_room(error.needed_bytes)) from None
    return into


def manifest(top: Path) -> Manifest:
    found = format.manifest(_text(top, format.MANIFEST))
    _once("data assets", (each.number for each in found.data))
    _once("models", (each.number for each in found.models))
    _once("runs", (each.number for each in found.runs))
    _once("training definitions", (each.number for each in found.definitions))
    _once("experiments", (each.number for each in found.experiments))
    for definition in found.definitions:
        _once(f"versions of {definition.name[:80]}", (version.number for version in definition.versions))
    if len(found.runs) > MOST_RUNS:
        raise TransferRefused(f"The archive has {len(found.runs)} runs, at most {MOST_RUNS} are taken: {ADVICE}.")
    return found


def data(top: Path, listed: Listed) -> Data:
    return _list(top, listed, Data)


def run(top: Path, listed: Listed) -> Run:
    return _list(top, listed, Run)


def model(top: Path, listed: Listed) -> Model:
    return _list(top, listed, Model)


def verify(top: Path, found: Manifest, *, check: Callable[[Data | Run | Model], None], seen: Callable[[int, int], None]) -> None:
    """Every file that the archive names is there, once, as its list says; and what `check` says of each list. `seen` is told how many lists
    of how many are done. Raises TransferRefused."""
    taken, count = set[str](), len(found.data) + len(found.runs) + len(found.models)
    for done, listed in enumerate(found.data):
        seen(done, count)
        asset = data(top, listed)
        check(asset)
        _verify(top, asset, taken)
        _paths_of_data(asset)
    for done, listed in enumerate(found.runs, start=len(found.data)):
        seen(done, count)
        one = run(top, listed)
        check(one)
        _verify(top, one, taken)
        _paths_of_run(one)
    for done, listed in enumerate(found.models, start=len(found.data) + len(found.runs)):
        seen(done, count)
        registered = model(top, listed)
        check(registered)
        _verify(top, registered, taken)
        for version in registered.versions:
            _paths(f"Version {version.number} of {registered.name[:80]}", version.files)


def code(top: Path, sha256: str) -> Path:
    """A zip of code as it was kept; what is in it is checked as in every upload of code (`bundles.store_bundle`)."""
    entry = f"{format.CODE}/{sha256}.zip"
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or _digest(top, entry) != sha256:
        raise TransferRefused(f"The code {sha256[:80]!r} in the archive is not what its hash says: {AGAIN}.")
    return top / entry


def _list(top: Path, listed: Listed, kind: type[L]) -> L:
    if not re.fullmatch(r"(data|runs|models)/[0-9]{1,20}\.json", listed.list):
        raise TransferRefused(f"The archive calls a list {listed.list[:80]!r}: {AGAIN}.")
    raw = _text(top, listed.list)
    if hashlib.sha256(raw).hexdigest() != listed.sha256:
        raise TransferRefused(f"{listed.list} was changed since the export: {AGAIN}.")
    found = format.listed(kind, raw, listed.list)
    if found.number != listed.number:
        raise TransferRefused(f"{listed.list} is of another thing than the manifest says: {AGAIN}.")
    return found


def _verify(top: Path, found: Data | Run | Model, taken: set[str]) -> None:
    for file in found.files:
        if file.entry in taken or not file.entry.startswith(
            (f"{format.DATA}/", f"{format.RUNS}/", f"{format.MODELS}/", f"{format.RENAMED}/")
        ):
            raise TransferRefused(
                f"{_printable(file.entry)} is named twice in the archive, or is no file of data, of a run or of a model: {AGAIN}."
            )
        taken.add(file.entry)
        if _digest(top, file.entry, size_bytes=file.size_bytes) != file.sha256:
            raise TransferRefused(f"{_printable(file.entry)} did not arrive as it was exported: send the archive again, or {AGAIN}.")


def _paths_of_data(asset: Data) -> None:
    try:
        zipcheck.checked_paths(file.path for file in asset.files)
    except BundleRefused as refusal:
        raise TransferRefused(f"The data {asset.name[:80]} cannot be kept: {refusal}") from None


def _paths_of_run(run: Run) -> None:
    """As a script may call its files, but for what is the engine's own."""
    _paths(f"Run {run.number}", run.files)
    for file in run.files:
        if file.path.startswith("tmp/") or file.path == "tmp" or runfiles.is_engines(file.path):
            raise TransferRefused(f"Run {run.number} has a file {_printable(file.path)!r}, which no run may have: {AGAIN}.")
        if file.path == journal.FILE_NAME and file.size_bytes > settings.EDT_MAX_JOURNAL_BYTES:
            most = settings.EDT_MAX_JOURNAL_BYTES >> 20
            raise TransferRefused(
                f"The journal of run {run.number} has {file.size_bytes >> 20} MiB, at most {most} are read: delete the run and export "
                "again, or have an administrator raise EDT_MAX_JOURNAL_BYTES."
            )


def _paths(who: str, found: Iterable[File]) -> None:
    """As files of a run can be called, and none above another."""
    files, above = set[str](), set[str]()
    for file in found:
        parts = file.path.split("/")
        wrong = any(part in ("", ".", "..") or len(part.encode()) > _NAME_BYTES for part in parts)
        if wrong or len(parts) > runfiles.MAX_DEPTH or _STRANGE.search(file.path):
            raise TransferRefused(f"{who} has a file {_printable(file.path)!r}, which no run may have: {AGAIN}.")
        above |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if file.path in files:
            raise TransferRefused(f"{who} has the file {_printable(file.path)} twice: {AGAIN}.")
        files.add(file.path)
    if both := files & above:
        raise TransferRefused(f"{who}: {_printable(min(both))} is both a file and a folder: {AGAIN}.")


def _once(what: str, numbers: Iterable[int]) -> None:
    seen = set[int]()
    for number in numbers:
        if number in seen or not 0 <= number < 1 << 63:
            raise TransferRefused(f"The archive has two {what} with the number {str(number)[:20]}, or none can be called so: {AGAIN}.")
        seen.add(number)


def _text(top: Path, entry: str) -> bytes:
    with _opened(top, entry) as file:
        raw = file.read(format.MOST_LIST_BYTES + 1)
    if len(raw) > format.MOST_LIST_BYTES:
        raise TransferRefused(f"{entry} of the archive has over {format.MOST_LIST_BYTES >> 20} MiB: {ADVICE}.")
    return raw


def _digest(top: Path, entry: str, *, size_bytes: int | None = None) -> str:
    with _opened(top, entry) as file:
        if size_bytes is not None and os.fstat(file.fileno()).st_size != size_bytes:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened(top: Path, entry: str) -> io.BufferedReader:
    try:
        return os.fdopen(runfiles.open_below(top, entry, most_depth=format.MAX_DEPTH), "rb")
    except FileNotFoundError:
        what = "This is not the archive of a project, or not all of it: it has" if entry == format.MANIFEST else "The archive has"
        raise TransferRefused(f"{what} no {_printable(entry)}: {AGAIN}, on its page or by edt export.") from None


def _printable(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path[:200])
