"""What stands in the archive of a project: a zip with `manifest.json`, a list of each data asset and of each run, and their files.

The manifest has the hash of each list, a list the hash of each file: so one file vouches for all. `number` is what a thing was called where
it comes from. Times are ISO 8601 with a time zone. Knows no database; whatever is parsed here was written by anybody.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from experiments.files import zipcheck
from experiments.files.checkpoint_policy import Policy
from experiments.transfer.experiment_format import Search, View
from training_runtime.errors import ProtocolError
from training_runtime.records import build

FORMAT = "edt-studio project"
VERSION = 1
MANIFEST = "manifest.json"
# Top folders; the last has files that no zip can call by their paths.
CODE, DATA, RUNS, MODELS, RENAMED = "code", "data", "runs", "models", "renamed"
MOST_LIST_BYTES = 64 << 20  # of the manifest, and of a list
MAX_DEPTH = zipcheck.MAX_PATH_BYTES // 2 + 1  # folders of a path
T = TypeVar("T")


class TransferRefused(Exception):
    """The archive is no project. The message says what is wrong with it and what to do."""


@dataclass(frozen=True)
class Variable:
    name: str
    value: str


@dataclass(frozen=True)
class Version:
    """`code`: the SHA-256 of its zip, which is `code/SHA256.zip`. `requirements` and `locks` (by what they were resolved on) are for
    people: a studio reads the requirements from the code again. `named`: the environment that was offered there."""

    number: int
    code: str
    file_name: str
    framework: str
    command: str
    device: str
    distributed: str
    max_slots: int
    packages: Literal["own", "studio", "named"]
    network: str
    by: str
    at: str
    requirements: str = ""
    locks: dict[str, str] = dataclasses.field(default_factory=dict)
    named: str = ""
    git_address: str = ""
    git_ref: str = ""
    git_folder: str = ""
    git_commit: str = ""


@dataclass(frozen=True)
class Definition:
    """`secrets`: names of variables whose values stay where they are."""

    number: int
    name: str
    description: str
    by: str
    at: str
    versions: tuple[Version, ...]
    variables: tuple[Variable, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A version of a definition that an experiment runs."""

    definition: int
    version: int
    command: str


@dataclass(frozen=True)
class Experiment:
    """`data`: the number of a data asset."""

    number: int
    name: str
    description: str
    by: str
    at: str
    data: int | None
    source_folder: str
    global_command: str
    environment: dict[str, str]
    parts: tuple[Part, ...]
    checkpoints: Policy = dataclasses.field(default_factory=Policy)


@dataclass(frozen=True)
class Listed:
    """A list beside the manifest, of a run or of a data asset."""

    number: int
    list: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`left_out`: what did not travel, a sentence each."""

    format: str
    version: int
    studio: str
    exported_at: str
    name: str
    description: str
    variables: tuple[Variable, ...]
    secrets: tuple[str, ...]
    definitions: tuple[Definition, ...]
    experiments: tuple[Experiment, ...]
    data: tuple[Listed, ...]
    runs: tuple[Listed, ...]
    left_out: tuple[str, ...]
    models: tuple[Listed, ...] = ()
    views: tuple[View, ...] = ()
    searches: tuple[Search, ...] = ()


@dataclass(frozen=True)
class File:
    """`entry`: what the archive calls it; `path`: what it is called in its run or its data; `modified`: Unix seconds."""

    entry: str
    path: str
    size_bytes: int
    sha256: str
    modified: float


@dataclass(frozen=True)
class Data:
    """`series`: of the same number are the versions of one data set, which have its name and description; None: it is one of its own, as
    all were in archives of before there were versions. `last_version`: the highest number that the data set has given."""

    number: int
    name: str
    description: str
    by: str
    at: str
    files: tuple[File, ...]
    series: int | None = None
    version: int = 1
    last_version: int = 1
    note: str = ""


@dataclass(frozen=True)
class Change:
    """A row of a run's history. `by`: who asked, or empty."""

    at: str
    old: str
    new: str
    reason: str
    by: str


@dataclass(frozen=True)
class Comment:
    """`by`: a username, or empty where the account was deleted."""

    by: str
    at: str
    edited_at: str | None
    text: str


@dataclass(frozen=True)
class Run:
    """`lines_of`: what the lines of its journal call it. `continues`, `reproduces`: numbers of others, which need not travel. `parameters`,
    `tagged`: what its script has logged of itself by name. `missing`: what is not among the files, a sentence each."""

    number: int
    lines_of: int
    name: str
    experiment: int
    definition: int
    version: int
    outside: bool
    by: str
    submitted_at: str
    started_at: str | None
    ended_at: str
    state: Literal["completed", "failed", "stopped"]
    state_reason: str
    command: str
    data_folder: str
    environment: dict[str, str]
    position: int
    continues: int | None
    tags: tuple[str, ...]
    note: str
    priority: int
    min_slots: int
    max_slots: int
    stop_reason: str
    attempt: int
    exit_code: int | None
    error_message: str
    error_traceback: str
    parameters: dict[str, str]
    tagged: dict[str, str]
    history: tuple[Change, ...]
    files: tuple[File, ...]
    missing: tuple[str, ...] = ()
    reproduces: int | None = None
    checkpoints: Policy = dataclasses.field(default_factory=Policy)
    comments: tuple[Comment, ...] = ()


@dataclass(frozen=True)
class ModelVersion:
    """`run`: the number of one, which need not travel; `code`: as a version's of a definition, or empty; `lineage`: JSON; `made`: paths of
    files that the studio has made."""

    number: int
    run: int | None
    path: str
    code: str
    lineage: str
    left_out: tuple[str, ...]
    note: str
    tags: dict[str, str]
    by: str
    at: str
    files: tuple[File, ...]
    made: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """`last_number`: the highest that a version has had; `aliases`: numbers of versions by alias."""

    number: int
    name: str
    note: str
    tags: dict[str, str]
    last_number: int
    by: str
    at: str
    aliases: dict[str, int]
    versions: tuple[ModelVersion, ...]

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(file for version in self.versions for file in version.files)


def written(thing: Manifest | Data | Run | Model) -> bytes:
    return json.dumps(dataclasses.asdict(thing), indent=1, ensure_ascii=False).encode(errors="replace") + b"\n"


def manifest(raw: bytes) -> Manifest:
    """Raises TransferRefused, first of all for a format that this studio does not know."""
    said = _json(raw, MANIFEST)
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise TransferRefused("This is not the archive of a project: export one on a project's page, or by edt export.")
    if said.get("version") != VERSION:
        raise TransferRefused(
            f"The archive has format {str(said.get('version'))[:20]}, and this studio reads format {VERSION}: update this studio, or "
            "export the project by one of its version."
        )
    return _built(Manifest, said, MANIFEST)


def listed(kind: type[T], raw: bytes, name: str) -> T:
    return _built(kind, _json(raw, name), name)


def moment(said: str, what: str) -> dt.datetime:
    """Raises TransferRefused for what is no time with a time zone."""
    try:
        found = dt.datetime.fromisoformat(said)
        if found.tzinfo is not None:
            return found.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        pass
    raise TransferRefused(
        f"{what}: {said[:40]!r} is no time with a time zone, such as 2026-11-24T12:00:00+00:00. Export the project again."
    )


def _json(raw: bytes, name: str) -> Any:
    try:
        said = json.loads(raw.decode())
        broken = any("\0" in text or not _encodes(text) for text in _texts(said))
    except (ValueError, RecursionError):
        raise TransferRefused(f"{name} of the archive is no JSON: export the project again.") from None
    if broken:
        raise TransferRefused(f"{name} of the archive holds characters that no text has: export the project again.")
    return said


def _built(kind: type[T], said: Any, name: str) -> T:
    try:
        return build(kind, said, lenient=True)
    except (ProtocolError, RecursionError) as error:
        raise TransferRefused(
            f"{name} of the archive is not of the form that it should be ({str(error)[:200]}): export the project again."
        ) from None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(said: Any) -> Iterator[str]:
    if isinstance(said, str):
        yield said
    elif isinstance(said, dict):
        for name, value in said.items():
            yield name
            yield from _texts(value)
    elif isinstance(said, list):
        for each in said:
            yield from _texts(each)
