"""What of a run's folder is to be sent to the studio next: pure. Files as found and as they have arrived in, actions in their order out.

The journal goes first, then logs, each from where it stopped; then all else, whole, once it is not being written. So a checkpoint is never
there without the journal's lines of the steps before it: a run that goes on elsewhere from what has arrived misses none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

JOURNAL = "journal.jsonl"
LOGS = "log/"
_MODELS = re.compile(r"model/train/model_(epoch_|stopped)[^/]*")
MOST_FILES = 20_000  # of a folder that are looked at; of one with more none is taken for deleted


@dataclass(frozen=True)
class File:
    """A regular file of the folder: path, size in bytes, time of its last change in nanoseconds."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Append:
    """Send what is new at the end of a file that only grows. `begin`: how much has arrived."""

    path: str
    begin: int
    end: int


@dataclass(frozen=True)
class Replace:
    """Send the file as it is, to take the place of what has arrived under its name."""

    file: File


@dataclass(frozen=True)
class Remove:
    path: str


Action = Append | Replace | Remove


def is_guests(path: str) -> bool:
    """Whether a file on a machine where a run has workers but not its driver is for the studio: not the engine's, which goes to the
    driver's machine, where it counts."""
    return path != JOURNAL and not path.startswith("checkpoint/") and _MODELS.fullmatch(path) is None


def grows(path: str) -> bool:
    """Whether the file is only ever written at its end."""
    name = path.rsplit("/", 1)[-1]
    return path == JOURNAL or (path.startswith(LOGS) and name == "console.log") or name.startswith("events.out.tfevents.")


def decide(found: Sequence[File], arrived: Mapping[str, File], *, before: Mapping[str, File], ended: bool) -> list[Action]:
    """`before`: the files as they were when last looked at; one that has changed since is being written and waits, unless the run has
    `ended`, after which nobody writes. A file that has become shorter is sent anew."""
    actions: list[Action] = []
    for file in sorted(found, key=_rank):
        known = arrived.get(file.path)
        if known == file:
            continue
        if grows(file.path):
            begin = known.size if known is not None and known.size <= file.size else 0
            if known is None or known.size != file.size:
                actions.append(Append(file.path, begin, file.size))
        elif ended or before.get(file.path) == file:
            actions.append(Replace(file))
    if len(found) < MOST_FILES:
        there = {file.path for file in found}
        actions += [Remove(path) for path in sorted(arrived.keys() - there)]
    return actions


def _rank(file: File) -> tuple[int, str]:
    return 0 if file.path == JOURNAL else 1 if file.path.startswith(LOGS) else 2, file.path
