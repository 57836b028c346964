"""The signature page's reads: a lane for each slot with who held it, and a feed of what happened in plain words."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from experiments.models import Project, Slot, TrainingRun


@dataclass(frozen=True)
class Bar:
    """A run on a slot from `begin` to `end` (None: still). `leaving`: it was asked to give the slot back. Times are cut to the window."""

    run: int
    name: str
    person: str
    begin: dt.datetime
    end: dt.datetime | None
    leaving: bool
    reason: str


@dataclass(frozen=True)
class Lane:
    """A slot and its bars in the window, oldest first. `state`: "free", "held", "leaving", "draining", "silent" (its node is not heard of)."""

    slot: Slot
    state: str
    bars: list[Bar]


@dataclass(frozen=True)
class FeedItem:
    """Something that happened: when, in words, to which run. `kind`: "state", "change" (of members), "wish" (a person changed something)."""

    at: dt.datetime
    kind: str
    text: str
    run: int
    name: str


def lanes(*, begin: dt.datetime, end: dt.datetime) -> list[Lane]:
    raise NotImplementedError


def feed(*, limit: int = 50, run: TrainingRun | None = None, project: Project | None = None) -> list[FeedItem]:
    """The latest happenings, newest first: of the cluster, of a project or of one run."""
    raise NotImplementedError
