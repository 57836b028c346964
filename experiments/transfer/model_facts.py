"""What an archive says of registered models, as the fields of rows: checked as who registers one would be. Stores nothing. Raises
TransferRefused."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, Never

from experiments.files import modelnames
from experiments.files.registrable import MOST_FILES
from experiments.models.registry import NOTE_LIMIT, PATH_LIMIT
from experiments.services import checks
from experiments.services.registry import MOST_ALIASES
from experiments.transfer import values
from experiments.transfer.format import Model, ModelVersion, TransferRefused

MOST_VERSIONS = 10_000
MOST_LINEAGE = 1 << 20  # characters
MOST_SENTENCES, SENTENCE_LIMIT = 20, 1000
SECTIONS = ("run", "code", "data", "environment", "arguments", "variables", "exact", "digest", "metrics")


def check(found: Model, *, now: dt.datetime) -> None:
    of_model(found, now=now)
    for version in found.versions:
        of_version(found, version, now=now)


def of_model(found: Model, *, now: dt.datetime) -> dict[str, Any]:
    who, numbers = f"The model {found.name[:80]}", {version.number for version in found.versions}
    values.time_of(found.at, who, now)
    if len(numbers) < len(found.versions) or len(numbers) > MOST_VERSIONS or not all(1 <= each <= found.last_number for each in numbers):
        raise TransferRefused(f"{who} has a version twice, or one with a number that it cannot have: export the project again.")
    if not set(found.aliases.values()) <= numbers or len(found.aliases) > MOST_ALIASES:
        raise TransferRefused(f"{who} has an alias of a version that the archive has not, or too many: export the project again.")
    with values.of(who):
        for refusal in (modelnames.refused_name(found.name), *map(modelnames.refused_alias, found.aliases)):
            if refusal:
                checks.refuse("name", refusal)
        return {
            "name": checks.name(found.name),
            "note": checks.text(found.note, field="note", limit=NOTE_LIMIT),
            "tags": _tags(found.tags),
            "last_number": checks.whole(found.last_number, field="number", least=0, most=values.INT32),
        }


def of_version(model: Model, found: ModelVersion, *, now: dt.datetime) -> dict[str, Any]:
    """Without its run, its code and its files."""
    who = f"Version {found.number} of the model {model.name[:80]}"
    values.time_of(found.at, who, now)
    if len(found.files) > 2 * MOST_FILES or any(len(file.path) > PATH_LIMIT for file in found.files):
        raise TransferRefused(f"{who} has {len(found.files)} files, or one with a longer name than is taken: export the project again.")
    with values.of(who):
        return {
            "number": found.number,
            "path": checks.text(found.path, field="path", limit=PATH_LIMIT),
            "lineage": _lineage(found.lineage),
            "left_out": [words[:SENTENCE_LIMIT] for words in found.left_out[:MOST_SENTENCES]],
            "note": checks.text(found.note, field="note", limit=NOTE_LIMIT),
            "tags": _tags(found.tags),
            "size_bytes": sum(file.size_bytes for file in found.files),
        }


def _tags(tags: dict[str, str]) -> dict[str, str]:
    if refusal := modelnames.refused_tags(tags):
        checks.refuse("tags", refusal)
    return tags


def _lineage(said: str) -> dict[str, Any]:
    """The sections that a version has, each an object, with the few values in it that pages and clients reckon with as these are."""
    found = values.json_object(said, most=MOST_LINEAGE)
    if found is None:
        _refuse()
    kept: dict[str, Any] = {name: found[name] for name in SECTIONS if isinstance(found.get(name), dict)}
    for section, name, kind in (("run", "steps", int), ("code", "command", str)):
        if not isinstance(kept.get(section, {}).get(name, kind()), kind):
            _refuse()
    figures = kept.get("metrics", {}).items()
    kept["metrics"] = {name: value for name, value in figures if value is None or (type(value) in (int, float) and math.isfinite(value))}
    return {**kept, "seed": found["seed"] if type(found.get("seed")) is int else None}


def _refuse() -> Never:
    checks.refuse("lineage", "How it came about is not of the form that it should be.")
