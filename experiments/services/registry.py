"""Verbs on registered models: a version of what a run has written, its aliases, notes and tags; and their deletion.

The files of a version are copies of its own (`modelstore`): whatever becomes of the run, they stay.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction

from experiments.errors import DomainError
from experiments.files import modelnames, modelstore, registrable, runfiles, tombstones, weights
from experiments.files.modelstore import Draft
from experiments.files.registrable import Chosen
from experiments.live import notify
from experiments.models import ModelAlias, ModelEvent, ModelFile, ModelVersion, Project, RegisteredModel, TrainingRun, User
from experiments.models.registry import NOTE_LIMIT, PATH_LIMIT
from experiments.services import checks

MOST_LISTED = 20_000  # of a run's files
MOST_ALIASES = 50  # of a model
NO_ONNX = (
    "No ONNX beside it: making one takes the model's code, which only a run executes. FabricModel(..., save_to_onnx=True) writes one at "
    "the end of training, and whatever NAME.onnx a script writes beside NAME.pth goes along."
)
NO_SAFETENSORS = "No safetensors of {}: {}."
LEFT_IN = "The safetensors of {} hold its tensors alone, and not {}, which are none."
POINTED_TO = "{} points to it: let it point to another version, or remove it, then delete."


@dataclass
class _Content:
    """What a version is to hold: drafts by what the version calls them, which of them the studio has made, and what could not be."""

    drafts: dict[str, Draft] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.drafts.values())


def create_model(project: Project, *, by: User, name: str, note: str = "", now: dt.datetime) -> RegisteredModel:
    """A model without a version. Fields: name, note."""
    clean, words = _name(name), checks.text(note, field="note", limit=NOTE_LIMIT)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        _check_free(project, clean)
        model = RegisteredModel.objects.create(project=project, name=clean, note=words, created_by=by, created_at=now)
        _tell(model, by, f"{by.username} made the model.", now)
    return model


def register_version(
    run: TrainingRun,
    *,
    by: User,
    name: str,
    path: str,
    lineage: Mapping[str, Any],
    note: str = "",
    tags: Mapping[str, str] | None = None,
    aliases: Collection[str] = (),
    idempotency_key: uuid.UUID | None = None,
    now: dt.datetime,
) -> ModelVersion:
    """The next version of the model of this name in the run's project, which is made where there is none: a copy of `path` of the run, a
    file or a folder. `lineage`: what is known of how it came about. Fields: name, path, note, tags, aliases. The same request makes one."""
    mine = ModelVersion.objects.filter(created_by=by).select_related("model")
    if (before := checks.same_request(mine, idempotency_key)) is not None:
        return before
    errors: list[DomainError] = []
    clean = checks.each(errors, lambda: _name(name))
    words = checks.each(errors, lambda: checks.text(note, field="note", limit=NOTE_LIMIT))
    labels = checks.each(errors, lambda: _tags(tags or {}))
    names = checks.each(errors, lambda: [_alias(each, field="aliases") for each in dict.fromkeys(aliases)])
    chosen = checks.each(errors, lambda: _chosen(run, path))
    checks.collected(errors)
    assert clean is not None
    assert chosen is not None
    facts = {"run": run.pk, "path": path, "lineage": dict(lineage), "note": words, "tags": labels, "idempotency_key": idempotency_key}
    facts["code"] = None if run.outside else run.version.bundle
    with contextlib.ExitStack() as cleanup:
        content = _content(run, chosen, by=by, cleanup=cleanup)
        try:
            return _store(run.experiment.project, content, by=by, name=clean, aliases=names or [], facts=facts, now=now)
        except IntegrityError:  # the same form at the same moment: the other was faster
            if (before := checks.same_request(mine, idempotency_key)) is None:
                raise
            return before


def update_model(model: RegisteredModel, *, by: User, name: str, note: str, tags: Mapping[str, str], now: dt.datetime) -> RegisteredModel:
    """Fields: name, note, tags."""
    clean, words, labels = _name(name), checks.text(note, field="note", limit=NOTE_LIMIT), _tags(tags)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=model.project_id)
        if clean != model.name:
            _check_free(model.project, clean)
            _tell(model, by, f"{by.username} renamed the model from {model.name} to {clean}.", now)
        model.name, model.note, model.tags = clean, words, labels
        model.save(update_fields=["name", "note", "tags"])
        checks.audit(by, "updates model %s", model.pk)
        notify.changed(f"project-{model.project_id}", "models")
    return model


def update_version(version: ModelVersion, *, by: User, note: str, tags: Mapping[str, str]) -> ModelVersion:
    """Fields: note, tags. Its files never change."""
    version.note, version.tags = checks.text(note, field="note", limit=NOTE_LIMIT), _tags(tags)
    version.save(update_fields=["note", "tags"])
    checks.audit(by, "updates version %s of model %s", version.number, version.model_id)
    notify.changed(f"project-{version.model.project_id}", "models")
    return version


def set_alias(version: ModelVersion, *, by: User, alias: str, now: dt.datetime) -> ModelAlias:
    """Let the alias point to the version, wherever it pointed before. Field: alias."""
    clean = _alias(alias)
    with transaction.atomic():
        model = _locked(version.model)
        return _point(model, version, clean, by, now)


def drop_alias(model: RegisteredModel, *, by: User, alias: str, now: dt.datetime) -> None:
    """Harmless where there is none."""
    with transaction.atomic():
        model = _locked(model)
        if model.aliases.filter(name=alias).delete()[0]:
            _tell(model, by, f"{by.username} removed the alias {alias}.", now)


def delete_version(version: ModelVersion, *, by: User, now: dt.datetime) -> None:
    """With its files, but for those that another version has too. Refused while an alias points to it."""
    with modelstore.files_stay(), transaction.atomic():
        model = _locked(version.model)
        if (alias := version.aliases.first()) is not None:
            raise DomainError(POINTED_TO.format(alias.name))
        hashes = set(version.files.values_list("sha256", flat=True))
        checks.audit(by, "deletes version %s of model %s (%s)", version.number, model.pk, model.name)
        _tell(model, by, f"{by.username} deleted version {version.number}.", now)
        ModelVersion.objects.filter(pk=version.pk).delete()
        trash_unreferenced(hashes, by=by, now=now)


def delete_model(model: RegisteredModel, *, by: User, now: dt.datetime) -> None:
    """With all its versions. Refused while an alias points to one."""
    with modelstore.files_stay(), transaction.atomic():
        model = _locked(model)
        if (alias := model.aliases.first()) is not None:
            raise DomainError(POINTED_TO.format(f"The alias {alias.name}").replace("points to it", "points to a version of it"))
        hashes = set(ModelFile.objects.filter(version__model=model).values_list("sha256", flat=True))
        checks.audit(by, "deletes model %s (%s) with %d versions", model.pk, model.name, model.versions.count())
        notify.changed(f"project-{model.project_id}", "models")
        RegisteredModel.objects.filter(pk=model.pk).delete()
        trash_unreferenced(hashes, by=by, now=now)


def trash_unreferenced(hashes: Collection[str], *, by: User, now: dt.datetime) -> None:
    """Of files whose versions have just been deleted, in the same transaction and under `modelstore.files_stay`: those that no version has
    any more are removed later."""
    left = set(ModelFile.objects.filter(sha256__in=hashes).values_list("sha256", flat=True))
    tombstones.of_model_files(sorted(set(hashes) - left), by=by, now=now)


def _chosen(run: TrainingRun, path: str) -> list[Chosen]:
    if not path or len(path) > PATH_LIMIT:
        checks.refuse("path", "Choose what of the run is registered: a file or a folder of its results.")
    walked = runfiles.walk(run, limit=MOST_LISTED)
    found = registrable.chosen([each.path for each in walked.files], path.strip("/"))
    if not found:
        checks.refuse("path", f"The run has no file or folder {path[:200]}: choose one of its results.")
    if len(found) > registrable.MOST_FILES:
        checks.refuse(
            "path", f"{path[:200]} has {len(found):,} files, at most {registrable.MOST_FILES:,} are registered: choose less of it."
        )
    return found


def _content(run: TrainingRun, chosen: list[Chosen], *, by: User, cleanup: contextlib.ExitStack) -> _Content:
    """Copies of the files, and safetensors of those that torch wrote. Raises DomainError for path."""
    content = _Content()
    try:
        opened = [(each, cleanup.enter_context(os.fdopen(runfiles.open_regular(run, each.path), "rb"))) for each in chosen]
        needed = sum(os.fstat(file.fileno()).st_size for _, file in opened)
        checks.room(run.experiment.project, by=by, field="path", more_bytes=needed)
        modelstore.check_room(needed)
        for each, file in opened:
            content.drafts[each.name] = modelstore.copied(file, name=each.name, cleanup=cleanup)
        for name, made in registrable.to_convert(list(content.drafts)):
            _convert(content, name, made, cleanup)
    except FileNotFoundError:
        checks.refuse("path", "A file of it is not there any more: choose again.")
    except modelstore.ModelRefused as refused:
        checks.refuse("path", str(refused))
    if not any(name.endswith(".onnx") for name in content.drafts):
        content.left_out.append(NO_ONNX)
    return content


def _convert(content: _Content, name: str, made: str, cleanup: contextlib.ExitStack) -> None:
    """A file of the version as safetensors beside it, or why not."""
    modelstore.check_room(content.drafts[name].size_bytes)
    with modelstore.drafted(cleanup) as (at, into), open(content.drafts[name].at, "rb") as source, modelstore.in_words():
        try:
            left = weights.as_safetensors(source, into)
        except weights.NotConverted as why:
            content.left_out.append(NO_SAFETENSORS.format(name, why))
            return
        content.drafts[made] = modelstore.made(at, into)
    content.made.add(made)
    if left:
        content.left_out.append(LEFT_IN.format(name, ", ".join(left)))


def _store(
    project: Project, content: _Content, *, by: User, name: str, aliases: Collection[str], facts: dict[str, Any], now: dt.datetime
) -> ModelVersion:
    """The rows and the files, both or none."""
    with modelstore.files_stay():
        new = [draft.sha256 for draft in content.drafts.values() if modelstore.store_file(draft)]
        try:
            with transaction.atomic():
                Project.objects.select_for_update().get(pk=project.pk)  # a name is one model, and numbers are given one after the other
                fresh = {"created_by": by, "created_at": now}
                model, _ = RegisteredModel.objects.get_or_create(project=project, name=name, defaults=fresh)
                number = model.last_number + 1
                RegisteredModel.objects.filter(pk=model.pk).update(last_number=number)
                version = ModelVersion.objects.create(
                    model=model, number=number, size_bytes=content.size_bytes, left_out=content.left_out, **fresh, **facts
                )
                ModelFile.objects.bulk_create(
                    ModelFile(version=version, path=path, sha256=draft.sha256, size_bytes=draft.size_bytes, made=path in content.made)
                    for path, draft in content.drafts.items()
                )
                checks.audit(by, "registers version %s of model %s (%s)", number, model.pk, model.name)
                _tell(model, by, f"{by.username} registered version {number}, of run {version.run}.", now)
                for alias in aliases:
                    _point(model, version, alias, by, now)
                notify.changed(f"run-{version.run}", "models")
        except BaseException:
            for sha256 in new:
                modelstore.remove(sha256)
            raise
    return version


def _point(model: RegisteredModel, version: ModelVersion, alias: str, by: User, now: dt.datetime) -> ModelAlias:
    found = model.aliases.select_related("version").filter(name=alias).first()
    if found is None:
        if model.aliases.count() >= MOST_ALIASES:
            checks.refuse("alias", f"The model has {MOST_ALIASES} aliases: remove one first.")
        _tell(model, by, f"{by.username} let {alias} point to version {version.number}.", now)
        return ModelAlias.objects.create(model=model, name=alias, version=version)
    if found.version_id != version.pk:
        _tell(model, by, f"{by.username} moved {alias} from version {found.version.number} to {version.number}.", now)
        found.version = version
        found.save(update_fields=["version"])
    return found


def _locked(model: RegisteredModel) -> RegisteredModel:
    """Versions and aliases of a model change one after the other."""
    return RegisteredModel.objects.select_for_update(of=("self",)).select_related("project").get(pk=model.pk)


def _tell(model: RegisteredModel, by: User, what: str, now: dt.datetime) -> None:
    ModelEvent.objects.create(model=model, at=now, by=by, what=what[:500])
    notify.changed(f"project-{model.project_id}", "models")


def _check_free(project: Project, name: str) -> None:
    if project.registered_models.filter(name=name).exists():
        checks.refuse("name", f"The project has a model called {name} already: choose another name.")


def _name(name: str) -> str:
    clean = checks.name(name)
    if refusal := modelnames.refused_name(clean):
        checks.refuse("name", refusal)
    return clean


def _alias(alias: str, *, field: str = "alias") -> str:
    clean = alias.strip()
    if refusal := modelnames.refused_alias(clean):
        checks.refuse(field, refusal)
    return clean


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    clean = {name.strip(): value.strip() for name, value in tags.items()}
    if refusal := modelnames.refused_tags(clean):
        checks.refuse("tags", refusal)
    return clean
