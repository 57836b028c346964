"""Folders of other runs that a run needs, where they may be missing here."""

from __future__ import annotations

from pathlib import Path

from experiments.files import runfiles
from experiments.files.store import copies
from experiments.files.store.things import Kind


def folder_of(number: int) -> Path | None:
    """As `runfiles.folder_of`. Raises NotHere while it may come back from the object store."""
    found = runfiles.folder_of(number)
    if found is not None and not found.is_dir():
        copies.missing(Kind.RUN, found.name)
    return found
