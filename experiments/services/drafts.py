"""Verbs on model definitions of the WML interface: one is named first and gets its code afterwards; until then it is a draft."""

from __future__ import annotations

from typing import BinaryIO

from experiments.models import DefinitionVersion, ModelDraft, Project, User
from experiments.services import checks
from experiments.services.definitions import add_version, create_definition


def create_draft(project: Project, *, by: User, name: str, description: str, command: str) -> ModelDraft:
    """Fields: name, description, command."""
    return ModelDraft.objects.create(
        project=project,
        name=checks.name(name),
        description=checks.text(description),
        command=checks.text(command, field="command", limit=checks.COMMAND_LIMIT),
        created_by=by,
    )


def put_code(draft: ModelDraft, *, by: User, upload: BinaryIO) -> DefinitionVersion:
    """Make a training definition of it, with this code; code that comes again is the next version of the same. Fields: as of
    `create_definition`."""
    file_name = f"{draft.name}.zip"
    if draft.version is None:
        draft.version = create_definition(
            draft.project,
            by=by,
            name=draft.name,
            description=draft.description,
            upload=upload,
            file_name=file_name,
            command=draft.command,
            network=DefinitionVersion.Network.OUTWARD,
        )
    else:
        definition = draft.version.definition
        draft.version = add_version(
            definition, by=by, upload=upload, file_name=file_name, command=draft.command, network=definition.newest().network
        )
    draft.save(update_fields=["version"])
    return draft.version


def delete_draft(draft: ModelDraft) -> None:
    """What experiments use stays as a training definition of the project."""
    draft.delete()
