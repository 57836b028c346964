"""Verbs on code that comes from a git repository: a training definition, a version, and the newest commit of the same branch."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from experiments.definitions import gitcode
from experiments.definitions.gitcode import Access, Fetched, GitRefused, Source
from experiments.models import DefinitionVersion, Project, TrainingDefinition, User
from experiments.services import checks
from experiments.services.definitions import Origin, add_version, create_definition


def create_definition_from_git(
    project: Project, *, by: User, git_address: str, git_ref: str = "", git_folder: str = "", git_credential: str = "", **said: Any
) -> DefinitionVersion:
    """`create_definition` with the code of a repository. Fields as there, and git_address, git_ref, git_folder, git_credential."""
    with _fetched(git_address, git_ref, git_folder, git_credential, sealed="") as (source, got):
        version = create_definition(project, by=by, upload=got.file, file_name=source.name, origin=_origin(source, got), **said)
    _save_access(version.definition, got)
    return version


def add_version_from_git(
    definition: TrainingDefinition,
    *,
    by: User,
    git_address: str,
    git_ref: str = "",
    git_folder: str = "",
    git_credential: str = "",
    **said: Any,
) -> DefinitionVersion:
    """`add_version` with the code of a repository; a deploy key or token that was given for it before need not be given again."""
    with _fetched(git_address, git_ref, git_folder, git_credential, sealed=definition.git_access) as (source, got):
        version = add_version(definition, by=by, upload=got.file, file_name=source.name, origin=_origin(source, got), **said)
    _save_access(definition, got)
    return version


def fetch_again(definition: TrainingDefinition, *, by: User, idempotency_key: uuid.UUID | None = None) -> DefinitionVersion | None:
    """The next version, with the newest commit of what the newest version was fetched from; None where that is the one it has."""
    newest = definition.newest()
    if not newest.git_address:
        checks.refuse("git_address", "The code of the newest version was uploaded: make a new version with the address of a repository.")
    with _fetched(newest.git_address, newest.git_ref, newest.git_folder, "", sealed=definition.git_access) as (source, got):
        if got.commit == newest.git_commit:
            return None
        same = {name: getattr(newest, name) for name in ("framework", "command", "device", "distributed", "max_slots", "network")}
        same["packages"] = newest.packages_choice
        version = add_version(
            definition, by=by, upload=got.file, file_name=source.name, origin=_origin(source, got), idempotency_key=idempotency_key, **same
        )
    _save_access(definition, got)
    return version


@contextlib.contextmanager
def _fetched(address: str, ref: str, folder: str, credential: str, *, sealed: str) -> Iterator[tuple[Source, Fetched]]:
    with contextlib.ExitStack() as stack:
        try:
            source = gitcode.checked(address, ref, folder)
            given = Access.from_input(credential, address=source.address) if credential.strip() else None
            access = given or Access.unsealed(sealed, address=source.address)
            got = stack.enter_context(gitcode.fetched(source, access))
        except GitRefused as refused:
            checks.refuse(refused.field, str(refused))
        yield source, got


def _origin(source: Source, got: Fetched) -> Origin:
    return Origin(source.address, source.ref, source.folder, got.commit)


def _save_access(definition: TrainingDefinition, got: Fetched) -> None:
    """What opened the repository, for the next time; of another repository nothing stays."""
    definition.git_access = got.access.sealed() if got.access.key or got.access.token else ""
    definition.save(update_fields=["git_access"])
