"""Makes rows of the registered models of an archive that has been checked; their files are in the store already."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from experiments.models import Bundle, ModelAlias, ModelEvent, ModelFile, ModelVersion, Project, RegisteredModel, User
from experiments.transfer import facts, model_facts
from experiments.transfer.format import Model


def codes(found: Model) -> Iterable[str]:
    """Hashes of its code."""
    return (version.code for version in found.versions if version.code)


def make(found: Model, project: Project, *, by: User, runs: Mapping[int, int], code: Mapping[str, Bundle], now: dt.datetime) -> None:
    """`runs`: numbers here by those of the archive; of one that did not travel the number is not known any more, and its name still is."""
    row = RegisteredModel.objects.create(
        project=project, created_by=by, created_at=facts.at(found.at), **model_facts.of_model(found, now=now)
    )
    made: dict[int, ModelVersion] = {}
    for version in found.versions:
        made[version.number] = ModelVersion.objects.create(
            model=row,
            run=runs.get(version.run) if version.run is not None else None,
            code=code.get(version.code),
            created_by=by,
            created_at=facts.at(version.at),
            **model_facts.of_version(found, version, now=now),
        )
        ModelFile.objects.bulk_create(
            ModelFile(
                version=made[version.number],
                path=file.path,
                sha256=file.sha256,
                size_bytes=file.size_bytes,
                made=file.path in version.made,
            )
            for file in version.files
        )
    ModelAlias.objects.bulk_create(ModelAlias(model=row, name=name, version=made[number]) for name, number in found.aliases.items())
    ModelEvent.objects.create(model=row, at=now, by=by, what=f"{by.username} imported the model, with {len(made)} of its versions.")
