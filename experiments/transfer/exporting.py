"""Writes a project as an archive (`format`), while it is sent: whatever somebody who may read the project can download anyway.

Files go in as they are, uncompressed: weights do not shrink, and an archive that is no larger unpacked is no bomb to who takes it in. A run
that has not ended is left out, and so is what is people's own: members, secrets, tokens, webhooks, triggers, thresholds,
tables of runs that they have saved for themselves.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from experiments.files import bundles, datastore, modelstore, runfiles
from experiments.files.zipstream import ZipStream, pieces
from experiments.models import DataAsset, DefinitionVersion, Project, RegisteredModel, TrainingRun
from experiments.models.runs import ENDED
from experiments.transfer import described, format, names
from training_runtime import journal

MOST_FILES = 100_000  # of a run


@dataclass
class _Export:
    """The archive so far, and what did not go in."""

    archive: ZipStream = field(default_factory=lambda: ZipStream(compressed=False))
    left_out: list[str] = field(default_factory=list)

    def text(self, name: str, content: bytes) -> Generator[bytes, None, str]:
        added = yield from self.archive.add(name, iter([content]), modified=0.0)
        return added.sha256

    def file(self, top: Path, path: str, entry: str, *, most_bytes: int | None = None) -> Generator[bytes, None, format.File | None]:
        """None where there is no such file any more."""
        try:
            opened = os.fdopen(runfiles.open_below(top, path, most_depth=format.MAX_DEPTH), "rb")
        except FileNotFoundError:
            return None
        facts = os.fstat(opened.fileno())
        size = facts.st_size if most_bytes is None else min(facts.st_size, most_bytes)
        added = yield from self.archive.add(entry, pieces(opened, size), modified=facts.st_mtime)
        return format.File(entry, path, added.size_bytes, added.sha256, facts.st_mtime)


def missing_code(project: Project) -> str:
    """Why the project cannot be exported, in a sentence; empty where it can."""
    versions = DefinitionVersion.objects.filter(definition__project=project).select_related("definition", "bundle")
    gone = next((each for each in versions if not bundles.zip_path(each.bundle.sha256).is_file()), None)
    return (
        ""
        if gone is None
        else f"The code of {gone} is not in the studio's folder bundles: ask an administrator to put it back from a backup."
    )


def export(project: Project, *, now: dt.datetime, studio: str) -> Iterator[bytes]:
    """The archive, piece by piece. `studio`: its version."""
    going = _Export()
    definitions, experiments = described.definitions(project), described.experiments(project)
    yield from _code(going, definitions, project)
    data, runs = [], []
    for asset in project.data_assets.select_related("created_by", "series").order_by("pk"):
        data.append((yield from _data(going, asset)))
    for number in list(TrainingRun.objects.filter(experiment__project=project).order_by("pk").values_list("pk", flat=True)):
        listed = yield from _run(going, number)
        if listed is not None:
            runs.append(listed)
    models = []
    for model in project.registered_models.select_related("created_by").order_by("pk"):
        models.append((yield from _model(going, model)))
    variables, secrets = described.variables(project)
    manifest = format.Manifest(
        format=format.FORMAT,
        version=format.VERSION,
        studio=studio,
        exported_at=now.isoformat(),
        name=project.name,
        description=project.description,
        variables=variables,
        secrets=secrets,
        definitions=definitions,
        experiments=experiments,
        data=tuple(data),
        runs=tuple(runs),
        models=tuple(models),
        views=described.views(project),
        searches=described.searches(project, now=now),
        left_out=tuple(going.left_out),
    )
    yield from going.text(format.MANIFEST, format.written(manifest))
    yield from going.archive.end()


def _code(going: _Export, definitions: tuple[format.Definition, ...], project: Project) -> Iterator[bytes]:
    """Of definitions, and of models whose definition may be gone."""
    of_models = (hash_ for hash_ in described.code_of_models(project) if bundles.zip_path(hash_).is_file())
    for sha256 in dict.fromkeys([*(version.code for each in definitions for version in each.versions), *of_models]):
        found = yield from going.file(bundles.zip_path(sha256).parent, f"{sha256}.zip", f"{format.CODE}/{sha256}.zip")
        if found is None:  # gone since the export began; an archive without it would be refused
            raise FileNotFoundError(bundles.zip_path(sha256))


def _data(going: _Export, asset: DataAsset) -> Generator[bytes, None, format.Listed]:
    top, called, files = datastore.root(asset), names.Entries(f"{format.DATA}/{asset.pk}"), []
    for folder, folders, inside in os.walk(top):
        folders.sort()
        for name in sorted(inside):
            path = (Path(folder) / name).relative_to(top).as_posix()
            if (found := (yield from going.file(top, path, called.entry(path)))) is not None:
                files.append(found)
    entry = f"{format.DATA}/{asset.pk}.json"
    digest = yield from going.text(entry, format.written(described.data(asset, tuple(files))))
    return format.Listed(asset.pk, entry, digest)


def _model(going: _Export, model: RegisteredModel) -> Generator[bytes, None, format.Listed]:
    store, versions = modelstore.path_of("").parent, []
    for version in model.versions.select_related("created_by", "code").prefetch_related("files").order_by("number"):
        called, files = names.Entries(f"{format.MODELS}/{model.pk}/{version.number}"), []
        for each in version.files.all():
            found = yield from going.file(store, each.sha256, called.entry(each.path))
            if found is None:
                going.left_out.append(f"{each.path} of {version}: it is not in the studio's folder models.")
            else:
                files.append(dataclasses.replace(found, path=each.path))
        versions.append(described.model_version(version, tuple(files)))
    entry = f"{format.MODELS}/{model.pk}.json"
    digest = yield from going.text(entry, format.written(described.model(model, tuple(versions))))
    return format.Listed(model.pk, entry, digest)


def _run(going: _Export, number: int) -> Generator[bytes, None, format.Listed | None]:
    related = ("version__definition", "version__bundle", "submitted_by", "cursor", "logged_facts")
    run = TrainingRun.objects.filter(pk=number).select_related(*related).first()
    if run is None:
        return None
    if run.state not in ENDED:
        going.left_out.append(f"Run {run.pk} ({run.name}) is {run.get_state_display().lower()}: only runs that have ended travel.")
        return None
    top, called, files = runfiles.folder(run), names.Entries(f"{format.RUNS}/{run.pk}"), []
    walked = runfiles.walk(run, limit=MOST_FILES)
    missing = _missing(walked)
    for each in walked.files:
        most_bytes = settings.EDT_MAX_JOURNAL_BYTES if each.path == journal.FILE_NAME else None
        found = yield from going.file(top, each.path, called.entry(each.path), most_bytes=most_bytes)
        if found is not None:
            files.append(found)
            if found.size_bytes < each.size_bytes and most_bytes is not None:
                missing.append("Its journal is longer than a studio reads, and is cut off there.")
    going.left_out += [f"Of run {run.pk} ({run.name}): {why}" for why in missing]
    entry = f"{format.RUNS}/{run.pk}.json"
    digest = yield from going.text(entry, format.written(described.run(run, tuple(files), missing=tuple(missing))))
    return format.Listed(run.pk, entry, digest)


def _missing(walked: runfiles.Walked) -> list[str]:
    found = (
        [f"Only {len(walked.files):,} of its files travel: there are more files or folders than a listing looks at."] if walked.more else []
    )
    if walked.unnameable:
        found.append(f"{walked.unnameable:,} of its files have line breaks or control characters in their names, and do not travel.")
    return found
