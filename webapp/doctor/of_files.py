"""Whether the files are there that the database names; and, where it is asked, whether they can be read and are what they were."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from experiments.files import pruning
from experiments.files.store import copies, things
from webapp.doctor.findings import Finding, warning

NAMED = 5
PIECE_BYTES = 1 << 20


def check(now: dt.datetime, *, read: bool) -> Iterator[Finding]:
    missing: dict[str, list[str]] = defaultdict(list)
    for thing in things.every():
        if not thing.local_path.exists():
            if not things.has_none(thing):
                missing[thing.kind].append(_name(thing))
        elif read and (problem := _problem(thing)):
            yield Finding(f"{thing.local_path} {problem}. {_advice()}")
    for kind, names in missing.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield Finding(f"{things.WORDS[things.Kind(kind)].capitalize()} without files: {', '.join(names[:NAMED])}{more}. {_advice()}")
    if strays := len(pruning.orphans(now)):
        yield warning(f"{strays} things in EDT_HOME belong to nothing in the database; they are kept: manage.py prune --dry-run")


def _advice() -> str:
    return "Bring them back: manage.py store fetch" if copies.is_on() else "Put them back from a backup (docs/operations.md)."


def _name(thing: things.Thing) -> str:
    return f"run {thing.run} ({thing.key})" if thing.run is not None else thing.key


def _problem(thing: things.Thing) -> str:
    """What is wrong with the content; empty where nothing is. A run's files are its script's, and say nothing of how they should be."""
    try:
        if thing.is_file:
            with open(thing.local_path, "rb") as file:
                return "" if hashlib.file_digest(file, "sha256").hexdigest() == thing.key else "is not what was stored there"
        if thing.kind == things.Kind.ASSET:
            for path in thing.local_path.rglob("*"):
                _read(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def _read(path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        with open(path, "rb") as file:
            while file.read(PIECE_BYTES):
                pass
