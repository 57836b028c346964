"""What an archive says, as the fields of rows: each text, number, time and choice checked as a form's would be. Stores nothing. Raises
TransferRefused with whose fault it is and what to do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from experiments.metrics import journal_rows
from experiments.models import DefinitionVersion, RunState
from experiments.models.definitions import MAX_SLOTS_LIMIT, is_fixed
from experiments.models.runs import RUN_NAME_LIMIT
from experiments.runs import states
from experiments.services import checkpoints, checks, comments, saved_views
from experiments.services.data import check_note
from experiments.services.experiments import MAX_DEFINITIONS
from experiments.services.runs import MOST_TAGS, TAG_LIMIT
from experiments.transfer import search_facts
from experiments.transfer.experiment_format import View
from experiments.transfer.format import Comment, Data, Definition, Experiment, Manifest, Run, TransferRefused, Version, moment
from experiments.transfer.reading import MOST_HISTORY
from experiments.transfer.values import (
    INT32,
    check_environment,
    check_variables,
    checked_command,
    checked_folder,
    number_fields,
    of,
    origin_fields,
    time_of,
)

SOURCES = 3  # of a run's variables: its project, its definition, its experiment
NAME_LIMIT = 150  # of a person's
MOST_DATA_VERSIONS = 1_000_000  # so that there are numbers left for those to come
V = DefinitionVersion


@dataclass(frozen=True)
class Known:
    """What the archive's lists refer to, by number, and the time now."""

    versions: Mapping[tuple[int, int], Version]
    experiments: frozenset[int]
    now: dt.datetime


def known(found: Manifest, *, now: dt.datetime) -> Known:
    versions = {(definition.number, version.number): version for definition in found.definitions for version in definition.versions}
    return Known(versions, frozenset(each.number for each in found.experiments), now)


def check(found: Manifest, *, now: dt.datetime) -> None:
    """All that stands in the manifest."""
    with of("The project"):
        checks.name(found.name)
        checks.text(found.description)
    check_variables("The project", found.variables)
    there, data = known(found, now=now), {each.number for each in found.data}
    for definition in found.definitions:
        of_definition(definition, now=now)
        for version in definition.versions:
            of_version(definition, version, now=now)
    for experiment in found.experiments:
        of_experiment(experiment, now=now)
        if experiment.data is not None and experiment.data not in data:
            raise TransferRefused(f"The experiment {experiment.name[:80]} reads data that the archive has not: export the project again.")
        for part in experiment.parts:
            if (part.definition, part.version) not in there.versions:
                raise TransferRefused(
                    f"The experiment {experiment.name[:80]} runs code that the archive has not: export the project again."
                )
    of_views(found, now=now)
    search_facts.check(found, now=now)


def of_views(found: Manifest, *, now: dt.datetime) -> list[dict[str, Any]]:
    """Without their experiments."""
    if len(found.views) > saved_views.MOST_VIEWS or len({each.name for each in found.views}) < len(found.views):
        raise TransferRefused(
            f"The project has {len(found.views)} views, at most {saved_views.MOST_VIEWS} are possible, or two of one name: export it again."
        )
    there = {each.number for each in found.experiments}
    if any(each.experiment is not None and each.experiment not in there for each in found.views):
        raise TransferRefused("The project has a view of an experiment that the archive has not: export it again.")
    return [_view(each, now) for each in found.views]


def _view(found: View, now: dt.datetime) -> dict[str, Any]:
    who = f"The view {found.name[:80]}"
    saved_at = time_of(found.at, who, now)
    with of(who):
        return {
            "name": checks.name(found.name, limit=saved_views.NAME_LIMIT),
            "query": saved_views.checked(found.query),
            "saved_at": saved_at,
        }


def of_definition(found: Definition, *, now: dt.datetime) -> dict[str, Any]:
    who = f"The training definition {found.name[:80]}"
    if not found.versions:
        raise TransferRefused(f"{who} has no version: export the project again.")
    check_variables(who, found.variables)
    time_of(found.at, who, now)
    with of(who):
        return {"name": checks.name(found.name), "description": checks.text(found.description)}


def of_version(definition: Definition, found: Version, *, now: dt.datetime) -> dict[str, Any]:
    """Without its code, its packages and what its code requires."""
    who = f"The training definition {definition.name[:80]}, version {found.number}"
    time_of(found.at, who, now)
    with of(who):
        return {
            "number": checks.whole(found.number, field="number", least=1, most=INT32),
            "file_name": checks.name(found.file_name, field="file_name", limit=255),
            "framework": checks.choice(found.framework, V.Framework, field="framework"),
            "command": checked_command(found.command),
            "device": checks.choice(found.device, V.Device, field="device"),
            "distributed": checks.choice(found.distributed, V.Distributed, field="distributed"),
            "max_slots": checks.whole(found.max_slots, field="max_slots", least=1, most=MAX_SLOTS_LIMIT),
            "network": checks.choice(found.network, V.Network, field="network"),
            **origin_fields(found),
        }


def last_version(found: Data) -> int:
    """Of its data set, as far as this version of it says."""
    with of(f"The data {found.name[:80]}"):
        return max(found.version, checks.whole(found.last_version, field="version", least=0, most=MOST_DATA_VERSIONS))


class DataSets:
    """What the versions of a data set have in common and what they have not, over all that an archive lists."""

    def __init__(self) -> None:
        self._called: dict[int, tuple[str, str]] = {}
        self.number_fields: set[tuple[int, int]] = set()

    def check(self, found: Data) -> None:
        if found.series is None:
            return
        called = (found.name, found.description)
        if self._called.setdefault(found.series, called) != called:
            raise TransferRefused(
                f"The versions of the data {found.name[:80]} have several names or descriptions: export the project again."
            )
        if (found.series, found.version) in self.number_fields:
            raise TransferRefused(f"The data {found.name[:80]} has several versions {found.version}: export the project again.")
        self.number_fields.add((found.series, found.version))


def of_experiment(found: Experiment, *, now: dt.datetime) -> dict[str, Any]:
    who = f"The experiment {found.name[:80]}"
    time_of(found.at, who, now)
    if len(found.parts) > MAX_DEFINITIONS:
        raise TransferRefused(f"{who} has {len(found.parts)} training definitions, at most {MAX_DEFINITIONS} are possible.")
    check_environment(who, found.environment, sources=1)
    with of(who):
        for part in found.parts:
            checked_command(part.command)
        return {
            "name": checks.name(found.name),
            "description": checks.text(found.description),
            "source_folder": checked_folder(found.source_folder, "source_folder"),
            "global_command": checked_command(found.global_command),
            "environment": found.environment,
            "checkpoints": checkpoints.checked(found.checkpoints),
        }


def of_data(found: Data, *, now: dt.datetime) -> dict[str, Any]:
    """Without its data set (`last_version`)."""
    who, size = f"The data {found.name[:80]}", sum(file.size_bytes for file in found.files)
    time_of(found.at, who, now)
    if not found.files:
        raise TransferRefused(f"{who} has no files: export the project again.")
    if size > settings.EDT_MAX_DATA_BYTES or len(found.files) > settings.EDT_MAX_DATA_ENTRIES:
        most = f"{settings.EDT_MAX_DATA_BYTES >> 20} MiB in {settings.EDT_MAX_DATA_ENTRIES} files"
        raise TransferRefused(f"{who} has {size >> 20} MiB in {len(found.files)} files, at most {most} are taken here.")
    with of(who):
        return {
            "name": checks.name(found.name),
            "description": checks.text(found.description),
            "version": checks.whole(found.version, field="version", least=1, most=MOST_DATA_VERSIONS),
            "note": check_note(found.note),
            "files": len(found.files),
            "size_bytes": size,
        }


def of_run(found: Run, there: Known) -> dict[str, Any]:
    """Without its rows of other tables."""
    who = f"Run {found.number}"
    if (found.definition, found.version) not in there.versions or found.experiment not in there.experiments:
        raise TransferRefused(f"{who} is of an experiment or of code that the archive has not: export the project again.")
    times: dict[str, dt.datetime | None] = {name: time_of(getattr(found, name), who, there.now) for name in ("submitted_at", "ended_at")}
    times["started_at"] = None if found.started_at is None else time_of(found.started_at, who, there.now)
    check_environment(who, found.environment, sources=SOURCES)
    if len(found.history) > MOST_HISTORY:
        raise TransferRefused(
            f"{who} has a history of {len(found.history)} rows, at most {MOST_HISTORY} are taken: delete it, and export again."
        )
    of_history(found, now=there.now)
    of_comments(found, now=there.now)
    with of(who):
        numbers = number_fields(found)
    if is_fixed(there.versions[found.definition, found.version].distributed):  # else one that continues it would be planned for fewer
        numbers["min_slots"] = numbers["max_slots"]
    with of(who):
        return {**times, **_texts(found), **numbers}


def of_history(found: Run, *, now: dt.datetime) -> list[states.Past]:
    rows, who = [], f"Run {found.number}"
    for row in found.history:
        if row.new not in RunState.values or (row.old and row.old not in RunState.values):
            raise TransferRefused(f"{who} has been in a state {row.new[:40]!r}, which this studio does not know: export the project again.")
        reason = row.reason if not row.by or row.by in row.reason else f"{row.reason} ({row.by})"
        rows.append(states.Past(time_of(row.at, who, now), row.old, row.new, reason))
    return rows


def of_comments(found: Run, *, now: dt.datetime) -> list[dict[str, Any]]:
    if len(found.comments) > comments.MOST:
        raise TransferRefused(
            f"Run {found.number} has {len(found.comments)} comments, at most {comments.MOST} are taken: delete some first."
        )
    return [_comment(each, f"A comment on run {found.number}", now) for each in found.comments]


def _comment(found: Comment, who: str, now: dt.datetime) -> dict[str, Any]:
    times = {
        "at": time_of(found.at, who, now),
        "edited_at": None if found.edited_at is None else time_of(found.edited_at, who, now),
    }
    with of(who):
        author = checks.name(found.by, field="by", limit=NAME_LIMIT) if found.by else ""
        return {**times, "imported_author": author, "text": comments.checked(found.text)}


def at(said: str) -> dt.datetime:
    """A time that was checked."""
    return moment(said, "The archive")


def _texts(found: Run) -> dict[str, Any]:
    if len(found.tags) > MOST_TAGS:
        checks.refuse("tags", f"{len(found.tags)} tags are too many: a run has at most {MOST_TAGS}.")
    return {
        "name": checks.name(found.name, limit=RUN_NAME_LIMIT),
        "outside": found.outside,
        "state": found.state,
        "state_reason": found.state_reason[: states.REASON_LIMIT],
        "command": checked_command(found.command),
        "data_folder": checked_folder(found.data_folder, "data_folder"),
        "environment": found.environment,
        "tags": [checks.name(tag, field="tags", limit=TAG_LIMIT) for tag in found.tags],
        "note": checks.text(found.note, field="note"),
        "checkpoints": checkpoints.checked(found.checkpoints),
        "stop_reason": found.stop_reason[:500],
        "error_message": found.error_message[: journal_rows.TEXT_LIMIT],
        "error_traceback": found.error_traceback[: journal_rows.TRACEBACK_LIMIT],
    }
