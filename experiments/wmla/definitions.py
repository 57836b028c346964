"""Spaces and model definitions of the WML interface (v4): our projects and training definitions.

A model definition is named first and gets its code afterwards; until then it is a draft.
"""

from __future__ import annotations

import tempfile
import uuid
from typing import BinaryIO, cast

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from experiments import access, services
from experiments.models import ModelDraft, Project, User
from experiments.services import drafts
from experiments.views.responses import person
from experiments.wmla import answers
from experiments.wmla.answers import api
from experiments.wmla.described import stamp

CHUNK_BYTES = 1 << 20
MOST_LISTED = 200


def _space(project: Project) -> dict[str, object]:
    metadata = {"id": str(project.pk), "guid": str(project.pk), "created_at": stamp(project.created_at)}
    entity = {"name": project.name, "description": project.description, "status": {"state": "active"}}
    return {"metadata": metadata, "entity": entity}


def _spaces(request: HttpRequest) -> HttpResponse:
    found = access.projects_for(person(request))[:MOST_LISTED]
    return answers.json_response({"resources": [_space(project) for project in found], "limit": MOST_LISTED})


def _make_space(request: HttpRequest) -> HttpResponse:
    said = answers.json_body(request)
    name, about = answers.text_of(said, "name"), answers.text_of(said, "description")
    return answers.json_response(_space(services.create_project(by=person(request), name=name, description=about)), status=201)


def _one_space(request: HttpRequest, space: str) -> HttpResponse:
    return answers.json_response(_space(project_of(person(request), space)))


def project_of(user: User, said: str, *, write: bool = False) -> Project:
    """The project behind a space's id. Raises Http404."""
    if not (said.isascii() and said.isdigit() and len(said) < 19):
        raise Http404(f"There is no space {said[:40]}: name one of GET /v2/spaces as space_id.")
    return access.project(user, int(said), need="write" if write else "read")


def space_of(said: dict[str, object]) -> str:
    return str(said.get("space_id") or said.get("project_id") or "")


def _definition(draft: ModelDraft) -> dict[str, object]:
    key, at = str(draft.key), stamp(draft.created_at)
    space = str(draft.project_id)
    metadata = {"id": key, "guid": key, "name": draft.name, "created_at": at, "modified_at": at, "space_id": space}
    entity = {"name": draft.name, "description": draft.description, "command": draft.command, "space_id": space}
    return {"metadata": {**metadata, "href": f"/ml/v4/model_definitions/{key}"}, "entity": entity}


def _definitions(request: HttpRequest) -> HttpResponse:
    found = ModelDraft.objects.filter(project__in=access.projects_for(person(request)).values("pk"))[:MOST_LISTED]
    return answers.json_response({"resources": [_definition(draft) for draft in found], "limit": MOST_LISTED})


def _make_definition(request: HttpRequest) -> HttpResponse:
    said = answers.json_body(request)
    project = project_of(person(request), space_of(said), write=True)
    texts = {name: answers.text_of(said, name) for name in ("name", "description", "command")}
    draft = drafts.create_draft(project, by=person(request), **texts)
    return answers.json_response(_definition(draft), status=201)


def draft_of(user: User, said: str, *, write: bool = False) -> ModelDraft:
    """Raises Http404, also where the person is not in its project."""
    try:
        draft = ModelDraft.objects.select_related("version__definition", "version__bundle").filter(key=uuid.UUID(said)).first()
    except ValueError:
        draft = None
    if draft is None:
        raise Http404("There is no such model definition.")
    draft.project = project_of(user, str(draft.project_id), write=write)
    return draft


def _one_definition(request: HttpRequest, key: str) -> HttpResponse:
    return answers.json_response(_definition(draft_of(person(request), key)))


def _delete_definition(request: HttpRequest, key: str) -> HttpResponse:
    drafts.delete_draft(draft_of(person(request), key, write=True))
    return answers.nothing()


def _put_code(request: HttpRequest, key: str) -> HttpResponse:
    """The body is the zip. Code that comes again is the next version of the same training definition."""
    draft = draft_of(person(request), key, write=True)
    with tempfile.TemporaryFile(dir=settings.EDT_HOME / "tmp") as code:
        while chunk := request.read(CHUNK_BYTES):
            code.write(chunk)
        made = drafts.put_code(draft, by=person(request), upload=cast(BinaryIO, code))
    return answers.json_response({"attachment_id": str(made.pk), "content_format": "native", "persisted": True}, status=201)


spaces = api(GET=_spaces, POST=_make_space)
one_space = api(GET=_one_space)
all_definitions = api(GET=_definitions, POST=_make_definition)
one_definition = api(GET=_one_definition, DELETE=_delete_definition)
code = api(PUT=_put_code)
