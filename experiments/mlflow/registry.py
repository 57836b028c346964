"""MLflow's model registry as its client knows it: registered models, versions, aliases and tags, and the files of `models:/NAME@ALIAS`.

To MLflow a name is one model; here it is one of each project. A name is looked for in all projects of who asks, and a model that has no
version yet is made with its first one, in the project of the run that this is of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from experiments import access, services
from experiments.errors import DomainError
from experiments.mlflow import described, outside
from experiments.models import ModelVersion, RegisteredModel, User
from experiments.selectors import registry
from experiments.views.registry import file_of
from training_runtime.tracking import answers
from training_runtime.tracking.answers import ARTIFACTS, Refused, refuse

ROOT = "mlflow-artifacts:/models"
MOST = 1000
SEVERAL = "{} of your projects have a model called {}: MLflow's client cannot say which is meant. edt download model takes --project."
NO_SOURCE = (
    "The model is to be of a run's artifacts here, as in runs:/7/models/net: register other files on the run's page or by edt register."
)
_NO_PROMPTS = re.compile(r"(?:\s*AND)?\s*tags?\.`mlflow\.prompt\.is_prompt`\s*!=\s*'true'", re.I)  # what the client adds: there are none
_FILTER = re.compile(r"\s*(name|run_id)\s*=\s*'([^']*)'\s*", re.I)
RequestBody = Mapping[str, Any]


def create(user: User, said: RequestBody) -> dict[str, Any]:
    """Nothing is made before there is a version."""
    name = answers.text(said, "name")
    if registry.models_for(user).filter(name=name).exists():
        raise Refused("RESOURCE_ALREADY_EXISTS", f"There is a model called {name[:100]!r} already.")
    return {"registered_model": {"name": name, "description": answers.text(said, "description", default=""), "tags": [], "aliases": []}}


def get(user: User, said: RequestBody) -> dict[str, Any]:
    return {"registered_model": _model_response(_model(user, said))}


def search(user: User, said: RequestBody) -> dict[str, Any]:
    found, (kind, value) = registry.models_for(user), _condition(said)
    if kind == "run_id":
        refuse("Models are searched by name = '...' alone, or not at all.")
    return {"registered_models": [_model_response(each) for each in (found.filter(name=value) if kind else found)[:MOST]]}


def latest(user: User, said: RequestBody) -> dict[str, Any]:
    """There are no stages: the newest."""
    newest = registry.versions_of(_model(user, said)).first()
    return {"model_versions": [_version(newest)] if newest is not None else []}


def create_version(user: User, said: RequestBody) -> dict[str, Any]:
    run = access.run(user, outside.number(said.get("run_id")), need="write")
    source, root = answers.text(said, "source"), f"{described.ROOT}/{run.pk}/"
    if not source.startswith(root):
        refuse(NO_SOURCE)
    facts: dict[str, Any] = {
        "name": answers.text(said, "name"),
        "path": f"{ARTIFACTS}/{source.removeprefix(root).strip('/')}",
        "tags": _tags(said),
    }
    note, lineage = answers.text(said, "description", default=""), registry.lineage(run)
    made = _checked(lambda: services.register_version(run, by=user, note=note, lineage=lineage, now=timezone.now(), **facts))
    return {"model_version": _version(made)}


def version(user: User, said: RequestBody) -> dict[str, Any]:
    return {"model_version": _version(_of(user, said, "version"))}


def version_by_alias(user: User, said: RequestBody) -> dict[str, Any]:
    return {"model_version": _version(_of(user, said, "alias"))}


def search_versions(user: User, said: RequestBody) -> dict[str, Any]:
    kind, value = _condition(said)
    found = ModelVersion.objects.filter(model__project__in=access.projects_for(user).values("pk"))
    if kind:
        found = found.filter(model__name=value) if kind == "name" else found.filter(run=outside.number(value))
    related = found.select_related("model", "created_by").prefetch_related("aliases")
    return {"model_versions": [_version(each) for each in related.order_by("-pk")[:MOST]]}


def download_address(user: User, said: RequestBody) -> dict[str, Any]:
    found = _of(user, said, "version")
    return {"artifact_uri": f"{ROOT}/{found.model_id}/{found.number}"}


def set_alias(user: User, said: RequestBody) -> dict[str, Any]:
    found, alias = _of(user, said, "version", need="write"), answers.text(said, "alias")
    _checked(lambda: services.set_alias(found, by=user, alias=alias, now=timezone.now()))
    return {}


def drop_alias(user: User, said: RequestBody) -> dict[str, Any]:
    model = _model(user, said, need="write")
    services.drop_alias(model, by=user, alias=answers.text(said, "alias"), now=timezone.now())
    return {}


def set_version_tag(user: User, said: RequestBody) -> dict[str, Any]:
    found = _of(user, said, "version", need="write")
    tags = {**found.tags, answers.name(said): answers.value(said)}
    _checked(lambda: services.update_version(found, by=user, note=found.note, tags=tags))
    return {}


def files(user: User, path: str) -> list[dict[str, Any]]:
    """What is in a folder of a version; `path`: below models/, ID/NUMBER/FOLDER."""
    found, below = _parse_artifact_path(user, path)
    top, entries = f"{below}/" if below else "", dict[str, int | None]()
    for each in found.files.all():
        if each.path.startswith(top):
            name, _, rest = each.path.removeprefix(top).partition("/")
            entries[name] = None if rest else each.size_bytes
    return [{"path": name, "is_dir": size is None, "file_size": size or 0} for name, size in sorted(entries.items())]


def file(request: HttpRequest, user: User, path: str) -> HttpResponseBase:
    found, below = _parse_artifact_path(user, path)
    return file_of(request, found, below)


def _parse_artifact_path(user: User, path: str) -> tuple[ModelVersion, str]:
    number, _, rest = path.strip("/").partition("/")
    which, _, below = rest.partition("/")
    return registry.version_of(access.registered_model(user, outside.number(number)), which), below


def _model(user: User, said: RequestBody, *, need: access.Need = "read") -> RegisteredModel:
    name = answers.text(said, "name")
    found = list(registry.models_for(user).filter(name=name)[:2])
    if len(found) > 1:
        refuse(SEVERAL.format("Several", repr(name[:100])))
    if not found:
        raise Http404(f"You have no registered model called {name[:100]!r}.")
    access.registered_model(user, found[0].pk, need=need)
    return found[0]


def _of(user: User, said: RequestBody, key: str, *, need: access.Need = "read") -> ModelVersion:
    return registry.version_of(_model(user, said, need=need), answers.text(said, key))


def _condition(said: RequestBody) -> tuple[str, str]:
    wanted = _NO_PROMPTS.sub("", answers.text(said, "filter", default=""))
    if not wanted.strip():
        return "", ""
    match = _FILTER.fullmatch(wanted)
    if match is None:
        refuse(f"The filter {wanted[:100]!r} is not understood: use name = 'digits' or run_id = '7'.")
    return match[1].lower(), match[2]


def _model_response(model: RegisteredModel) -> dict[str, Any]:
    newest = registry.versions_of(model).first()
    return {
        "name": model.name,
        "creation_timestamp": int(1000 * model.created_at.timestamp()),
        "last_updated_timestamp": int(1000 * (newest.created_at if newest else model.created_at).timestamp()),
        "description": model.note,
        "latest_versions": [_version(newest)] if newest else [],
        "tags": [{"key": key, "value": value} for key, value in model.tags.items()],
        "aliases": [{"alias": each.name, "version": str(each.version.number)} for each in model.aliases.select_related("version")],
    }


def _version(row: ModelVersion) -> dict[str, Any]:
    at = int(1000 * row.created_at.timestamp())
    return {
        "name": row.model.name,
        "version": str(row.number),
        "creation_timestamp": at,
        "last_updated_timestamp": at,
        "user_id": row.created_by.username,
        "current_stage": "None",
        "description": row.note,
        "source": f"{ROOT}/{row.model_id}/{row.number}",
        "run_id": str(row.run) if row.run is not None else "",
        "status": "READY",
        "tags": [{"key": key, "value": value} for key, value in row.tags.items()],
        "aliases": [each.name for each in row.aliases.all()],
    }


def _tags(said: RequestBody) -> dict[str, str]:
    return {answers.name(each): answers.value(each) for each in answers.records(said, "tags")}


def _checked(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except DomainError as error:
        refuse(str(error))


GETS = {
    "registered-models/get": get,
    "registered-models/search": search,
    "registered-models/alias": version_by_alias,
    "registered-models/get-latest-versions": latest,
    "model-versions/get": version,
    "model-versions/search": search_versions,
    "model-versions/get-download-uri": download_address,
}
POSTS = {
    "registered-models/create": create,
    "registered-models/alias": set_alias,
    "registered-models/get-latest-versions": latest,
    "model-versions/create": create_version,
    "model-versions/set-tag": set_version_tag,
}
DELETES = {"registered-models/alias": drop_alias}
