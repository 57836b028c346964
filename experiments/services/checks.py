"""Checks that several services share. Each returns the clean value or raises DomainError for its field."""

from __future__ import annotations

import logging
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Never, TypeVar

from django.db.models import Choices, Count, Model, QuerySet

from experiments.errors import DomainError
from experiments.files import datastore, diskuse
from experiments.models import ClusterRules, DataAsset, DefinitionVersion, Project, Slot, User
from experiments.models.projects import ARCHIVED
from training_runtime import variables as runtime_variables

NAME_LIMIT = 120
DESCRIPTION_LIMIT = 4000
COMMAND_LIMIT = 2000
FOLDER_LIMIT = 500
MOST_VARIABLES, MOST_VARIABLES_CHARACTERS = 100, 32_000
M = TypeVar("M", bound=Model)
T = TypeVar("T")


log = logging.getLogger("experiments.audit")


def audit(by: User, what: str, *subject: object) -> None:
    """A line of the log for who did what: for verbs that leave no history row of their own."""
    log.info("%s " + what, by.username, *subject)


def refuse(field: str, message: str) -> Never:
    raise DomainError({field: [message]})


def name(value: str, *, field: str = "name", limit: int = NAME_LIMIT) -> str:
    clean = " ".join(value.split())
    if not clean:
        refuse(field, "Give a name.")
    if len(clean) > limit:
        refuse(field, f"The name has {len(clean)} characters: use at most {limit}.")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        refuse(field, "The name has a control character in it: type it anew.")
    return clean


def hold_project(pk: int) -> None:
    """Locked until the transaction ends, for what begins a run: it is neither deleted nor archived meanwhile (see services.projects)."""
    if Project.objects.select_for_update().get(pk=pk).archived_at is not None:
        raise DomainError(ARCHIVED)


def on_one_machine(slots: int, *, device: str, field: str = "max_slots") -> None:
    """A run that needs all of its slots on one machine would wait for ever for more than any has. Without machines nobody can tell."""
    there = Slot.objects.filter(retired=False, node__removed_at=None)
    if device in Slot.Device.values:
        there = there.filter(device=device)
    sizes = there.values("node__name", "device").annotate(count=Count("id")).order_by("-count", "node__name")
    if (largest := sizes.first()) is not None and slots > largest["count"]:
        most = f"{largest['count']} {largest['device'].upper()} slot{'s' * (largest['count'] != 1)}"
        refuse(field, f"It runs on one machine, and the largest, {largest['node__name']}, has {most}: choose at most {largest['count']}.")


def network(version: DefinitionVersion, *, project: int, field: str = "versions") -> None:
    """Where it asks for the network its runs get it, or do not begin."""
    if version.network == DefinitionVersion.Network.OUTWARD and not ClusterRules.current().may_use_network(project):
        refuse(
            field,
            f"{version.definition.name} asks for the network, which is closed to runs of this project: ask an administrator to open it on "
            "the page Sharing, or save a version that does without.",
        )


def room(project: Project, *, by: User, field: str | None = None, more_bytes: int = 0) -> None:
    """Whether the project, and the person, may take that much more of the disk; of a run nobody knows how much it will take. `field`: None
    for a refusal of the whole."""
    _fits(f"The project {project.name} takes", diskuse.of_project(project.pk), field=field, more_bytes=more_bytes)
    room_of(by, field=field, more_bytes=more_bytes)


def room_of(person: User, *, field: str | None = None, more_bytes: int = 0) -> None:
    """The same of the person alone, where there is no project yet."""
    _fits("What you have made takes", diskuse.of_person(person.pk), field=field, more_bytes=more_bytes)


def _fits(what: str, use: diskuse.DiskUse, *, field: str | None, more_bytes: int) -> None:
    if use.may is None or use.bytes + more_bytes < use.may:
        return
    taken, may = diskuse.spelled(use.bytes), diskuse.spelled(use.may)
    wants = f", and this would be {diskuse.spelled(more_bytes)} more" if more_bytes else ""
    words = (
        f"{what} {taken} of the {may} of disk that it may take{wants}: delete runs or data that nobody needs, or ask an administrator for "
        "more on the page Scheduling policy."
    )
    raise DomainError({field: [words]} if field else words)


def text(value: str, *, field: str = "description", limit: int = DESCRIPTION_LIMIT) -> str:
    clean = value.strip()
    if len(clean) > limit:
        refuse(field, f"The {field.replace('_', ' ')} has {len(clean)} characters: use at most {limit}.")
    if any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\r\n\t" for c in clean):
        refuse(field, f"The {field.replace('_', ' ')} has a control character in it: type it anew.")
    return clean


def choice(value: str, choices: type[Choices], *, field: str) -> str:
    if value not in choices.values:
        refuse(field, f"Choose one of: {', '.join(str(label) for label in choices.labels)}.")
    return value


def whole(value: object, *, field: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(field, f"Give a whole number from {least} to {most}.")
    if not least <= value <= most:
        refuse(field, f"{value} is not possible: give a whole number from {least} to {most}.")
    return value


def variables(given: Mapping[str, str], *, field: str = "environment") -> dict[str, str]:
    """Environment variables that a run may be given."""
    if len(given) > MOST_VARIABLES:
        refuse(field, f"{len(given)} environment variables are too many: give at most {MOST_VARIABLES}.")
    if sum(len(key) + len(said) for key, said in given.items()) > MOST_VARIABLES_CHARACTERS:
        refuse(field, f"The environment variables are too long: at most {MOST_VARIABLES_CHARACTERS} characters in all are taken.")
    for key, said in given.items():
        if refusal := runtime_variables.refusal(key, said):
            refuse(field, refusal)
    return dict(given)


def data_folder(value: str, *, asset: DataAsset | None = None, field: str = "source_folder") -> str:
    """The folder relative to the data asset or to the shared data root, "" for that itself. It exists, and no link leads out of it."""
    root = datastore.root(asset).resolve()
    where = f"in {asset.name}" if asset is not None else f"below {root}"
    given = value.strip()
    if not given:
        return ""
    if len(given) > FOLDER_LIMIT or "\0" in given:
        refuse(field, f"Give a path of at most {FOLDER_LIMIT} characters.")
    try:
        found = (root / given).resolve()
    except (OSError, RuntimeError):  # a circle of links
        refuse(field, f"{given} cannot be read: give a folder {where}.")
    if not found.is_relative_to(root):
        refuse(field, f"{given} is outside the data: give a folder {where}.")
    if not found.is_dir():
        refuse(field, f"There is no folder {given} {where}: put the data there first, or correct the path.")
    relative = found.relative_to(root).as_posix()
    return "" if relative == "." else relative


def same_request(found: QuerySet[M], idempotency_key: uuid.UUID | None) -> M | None:
    """What the same form made before, if it was sent before."""
    return found.filter(idempotency_key=idempotency_key).first() if idempotency_key is not None else None


def each(errors: list[DomainError], check: Callable[[], T]) -> T | None:
    """The clean value, or None with the error put by, so that a form shows all its errors at once (see `collected`)."""
    try:
        return check()
    except DomainError as error:
        errors.append(error)
        return None


def collected(errors: Iterable[DomainError]) -> None:
    """Raise all of them as one, so that a form shows every field that is wrong; the same sentence once."""
    merged: dict[str, list[str]] = {}
    for error in errors:
        if not error.fields:
            raise error
        for field, messages in error.fields.items():
            known = merged.setdefault(field, [])
            known += [message for message in messages if message not in known]
    if merged:
        raise DomainError(merged)
