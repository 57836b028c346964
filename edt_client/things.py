"""What the studio's API answers, typed. What a newer studio says beside it is left out, so that an older client goes on."""

from __future__ import annotations

import dataclasses
import datetime as dt
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edt_client.errors import NoAnswer

T = TypeVar("T")
STRANGE = "The studio's answer is not what was asked for: is it of another version?"


def read(kind: type[T], said: Any) -> T:
    """`said`, a JSON object, as one of these. Raises NoAnswer where something is missing."""
    if not isinstance(said, dict):
        raise NoAnswer(STRANGE)
    known = {each.name: each.type for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: _value(str(known[name]), value) for name, value in said.items() if name in known})
    except (TypeError, ValueError):
        raise NoAnswer(STRANGE) from None


def _value(kind: str, value: Any) -> Any:
    if kind.startswith("dt.datetime") and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    return value


@dataclass(frozen=True)
class Project:
    """`role`: yours, admin, editor or viewer; `url`: of its page."""

    id: int
    name: str
    role: str
    created_by: str
    created_at: dt.datetime
    url: str
    description: str = ""


@dataclass(frozen=True)
class TableRow:
    """A run as the table of its project shows it. `values`: by column; None where it has none, or no finite number; `steps`: where those of
    metrics were."""

    id: int
    name: str
    experiment: int
    state: str
    url: str
    values: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Import:
    """The archive of a project on its way to be one. `says`: how far it is, or why it is refused; `notes`: what to know of the project."""

    id: int
    file: str
    size: int
    received: int
    piece_bytes: int
    state: str
    says: str
    project: int | None
    notes: list[str] = field(default_factory=list)
    name: str = ""  # of the project; empty: as in the archive

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "refused")


@dataclass(frozen=True)
class Version:
    """A version of a training definition. `sha256`: of the zip of its code."""

    id: int
    definition: int
    number: int
    name: str
    sha256: str
    command: str
    distributed: str
    max_slots: int
    packages: str
    network: str
    created_by: str
    created_at: dt.datetime


@dataclass(frozen=True)
class Definition:
    id: int
    project: int
    name: str
    url: str
    newest: Any
    description: str = ""

    @property
    def version(self) -> Version:
        """Its newest version."""
        return read(Version, self.newest)


@dataclass(frozen=True)
class DataAsset:
    """A version of a data set. `files`: how many; `versions`: how many the data set has; `newest`: the id of the newest."""

    id: int
    project: int
    name: str
    files: int
    size_bytes: int
    url: str
    version: int = 1
    versions: int = 1
    newest: int | None = None
    note: str = ""
    sha256: str = ""
    created_by: str = ""
    created_at: dt.datetime | None = None


@dataclass(frozen=True)
class RunFacts:
    """A run as it was when it was asked for. Times in seconds; `metrics`: the last value of each, as "train loss"."""

    id: int
    name: str
    project: int
    experiment: int
    definition: int
    version: int
    state: str
    submitted_by: str
    submitted_at: dt.datetime
    command: str
    url: str
    state_reason: str = ""
    plan_reason: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    node: str | None = None
    priority: int = 0
    min_slots: int = 1
    max_slots: int = 1
    any_kind: bool = False
    slots: int = 0
    paused: bool = False
    workers: int = 0
    step: int = 0
    total_steps: int | None = None
    epoch: int = 0
    epochs: int | None = None
    step_rate: float | None = None
    remaining_s: float | None = None
    queue_position: int | None = None
    expected_start_s: float | None = None
    exact: bool | None = None
    exact_reasons: list[str] = field(default_factory=list)
    metrics: dict[str, float | None] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    note: str = ""
    error_message: str = ""
    error_traceback: str = ""
    exit_code: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def exit_status(self) -> int:
        """For a shell: 0 completed, 1 failed, 130 stopped; 75 where it has not ended."""
        return {"completed": 0, "failed": 1, "stopped": 130}.get(self.state, 75)


ENDED = ("completed", "failed", "stopped")


@dataclass(frozen=True)
class Series:
    """A metric of a run. `last`: None where it was no finite number."""

    group: str
    name: str
    points: int
    last_step: int
    last: float | None


@dataclass(frozen=True)
class Curve:
    """Parallel lists: steps, Unix seconds, values (None: no finite number). `sampled`: fewer points than the `total`."""

    group: str
    name: str
    steps: list[int]
    times: list[float]
    values: list[float | None]
    total: int
    sampled: bool


@dataclass(frozen=True)
class RunCurves:
    """Some curves of one of several runs; `metrics`: all that it has, as "train loss". `started`: Unix seconds of its first call of
    train()."""

    run: int
    started: float | None
    metrics: list[str]
    curves: list[Curve]


@dataclass(frozen=True)
class Slot:
    """`state`: free, held, leaving, stuck, draining, out or silent. `reserved_for`: who gets it next."""

    id: int
    label: str
    node: str
    device: str
    state: str
    run: int | None = None
    run_name: str | None = None
    person: str | None = None
    reserved_for: str | None = None


@dataclass(frozen=True)
class Node:
    name: str
    cpu_count: int
    memory_bytes: int
    silent: bool
    draining: bool
    sandbox_level: str
    slots: list[Any]
    gpus: list[Any]


@dataclass(frozen=True)
class File:
    """A file of a run. `role`: model, checkpoint, log, journal or other, by its folder; `kind`: checkpoint, model, picture, table, log or
    other, by its name too."""

    path: str
    size_bytes: int
    modified_at: dt.datetime
    role: str
    kind: str = ""


@dataclass(frozen=True)
class Log:
    name: str
    size_bytes: int


@dataclass(frozen=True)
class Reproduction:
    """Of a run that repeats `run`. `result`: waiting, same so far, identical, same figures, different or unknown; `epochs`: after so many
    the state was the same. `inputs`: what they were not given alike; `apart`: the first value of a curve that differs."""

    run: int
    result: str
    sentence: str
    epochs: int
    inputs: list[dict[str, str]]
    apart: dict[str, Any] | None


@dataclass(frozen=True)
class Tail:
    """`text`: the bytes of a log from `begin` to `end`; ask again from `end` on."""

    text: str
    begin: int
    end: int
    size_bytes: int


@dataclass(frozen=True)
class Event:
    """A message of the live stream, by its type: "changed", "points", "log", "bye", ..."""

    type: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """One fact of each of some runs, in their order; None: not there. `kind`: text, argument, metric, duration (seconds) or number."""

    name: str
    kind: str
    values: list[Any]
    differs: bool


@dataclass(frozen=True)
class Comparison:
    runs: list[RunFacts]
    facts: list[Fact]
