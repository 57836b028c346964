"""Single values of an archive, as the fields of rows take them: texts, numbers, times. Raises TransferRefused with whose fault it is."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Never

from experiments.definitions import gitcode
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.services import checks
from experiments.services.definitions import Origin
from experiments.transfer.format import Run, TransferRefused, Variable, Version, moment
from training_runtime import variables as runtime_variables

EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
CLOCKS = dt.timedelta(minutes=5)  # that those of two studios differ by
INT32, INT64 = 2**31 - 1, 2**63 - 1


def checked_command(said: str) -> str:
    """Whether it can be read as one; that its script is there is seen with the code."""
    clean = checks.text(said, field="command", limit=checks.COMMAND_LIMIT)
    try:
        if clean:
            bundles.parse_command(clean)
    except bundles.BundleRefused as refusal:
        checks.refuse("command", str(refusal))
    return clean


def origin_fields(found: Version) -> dict[str, str]:
    """Where its code was fetched from; it may be fetched again from there."""
    if not found.git_address:
        return {}
    try:
        source = gitcode.checked(found.git_address, found.git_ref, found.git_folder)
    except gitcode.GitRefused as refused:
        checks.refuse(refused.field, str(refused))
    if not re.fullmatch(r"[0-9a-f]{7,64}", found.git_commit):
        checks.refuse("git_commit", f"{found.git_commit[:80]} is no commit of git.")
    return vars(Origin(source.address, source.ref, source.folder, found.git_commit))


def number_fields(found: Run) -> dict[str, Any]:
    least = checks.whole(found.min_slots, field="min_slots", least=1, most=MAX_SLOTS_LIMIT)
    checks.whole(found.lines_of, field="lines_of", least=0, most=INT64)
    if found.exit_code is not None:
        checks.whole(found.exit_code, field="exit_code", least=-INT32, most=INT32)
    return {
        "priority": checks.whole(found.priority, field="priority", least=1, most=10_000),
        "min_slots": least,
        "max_slots": checks.whole(found.max_slots, field="max_slots", least=least, most=MAX_SLOTS_LIMIT),
        "position": checks.whole(found.position, field="position", least=0, most=INT32),
        "attempt": checks.whole(found.attempt, field="attempt", least=0, most=INT32),
        "exit_code": found.exit_code,
    }


def time_of(said: str, who: str, now: dt.datetime) -> dt.datetime:
    """A time that can have been. Raises TransferRefused."""
    found = moment(said, who)
    if not EARLIEST <= found <= now + CLOCKS:
        raise TransferRefused(
            f"{who} has the time {found:%Y-%m-%d %H:%M}, before {EARLIEST.year} or in the future: check the clocks of both studios, and "
            "export the project again."
        )
    return found


def checked_folder(said: str, field: str) -> str:
    """A name of a folder of data, which a run that begins here looks for (`checks.data_folder`)."""
    clean = checks.text(said, field=field, limit=checks.FOLDER_LIMIT)
    if clean.startswith("/") or ".." in PurePosixPath(clean).parts:
        checks.refuse(field, f"{clean} is outside the data.")
    return clean


def check_variables(who: str, found: Sequence[Variable]) -> None:
    given = {each.name: each.value for each in found}
    if len(given) != len(found):
        raise TransferRefused(f"{who} has a variable twice: export the project again.")
    check_environment(who, given, sources=1)
    for name, value in given.items():
        if refusal := runtime_variables.refusal_to_keep(name, value, secret=False):
            raise TransferRefused(f"{who}: {refusal}")


def check_environment(who: str, given: Mapping[str, str], *, sources: int) -> None:
    most, characters = sources * checks.MOST_VARIABLES, sum(len(name) + len(value) for name, value in given.items())
    if len(given) > most or characters > sources * checks.MOST_VARIABLES_CHARACTERS:
        raise TransferRefused(f"{who} has {len(given)} environment variables, or too long ones: at most {most} are possible.")
    for name, value in given.items():
        if refusal := runtime_variables.refusal(name, value):
            raise TransferRefused(f"{who}: {refusal}")


def json_object(said: str, *, most: int) -> dict[str, Any] | None:
    """Of at most so many characters, as any database can hold it; None for anything else."""

    def refuse(_: str) -> Never:
        raise ValueError

    try:
        found = json.loads(said, parse_constant=refuse) if len(said) <= most and "\\u0000" not in said else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextlib.contextmanager
def of(who: str) -> Iterator[None]:
    """What a form would show, and of what."""
    try:
        yield
    except DomainError as error:
        raise TransferRefused(f"{who} cannot be stored here. {error}") from None
