"""Search over all that the caller may open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Schema

from experiments.api.auth import person
from experiments.api.schemas import page_of
from experiments.models import DataAsset, Experiment, TrainingDefinition
from experiments.selectors import search as looking

router = Router(tags=["search"])


class Hit(Schema):
    """`kind`: project, definition, experiment, data, run or node; `id`: its number, of a node null; `url`: its page."""

    kind: str
    id: int | None
    name: str
    project: int | None
    url: str


class Hits(Schema):
    """Newest first of each kind, at most 20 each."""

    items: list[Hit]


@router.get("/search", response=Hits)
def search(request: HttpRequest, q: Annotated[str, Query(max_length=120)]) -> Hits:
    """What has the words in its name, description, command, tags or note; a number finds the run that has it."""
    found = looking.search(person(request), q.replace("\0", ""))
    inside: dict[str, Sequence[TrainingDefinition | Experiment | DataAsset]]
    inside = {"definition": found.definitions, "experiment": found.experiments, "data": found.data}
    hits = [
        Hit(kind="project", id=each.pk, name=each.name, project=each.pk, url=page_of(request, "project", each.pk))
        for each in found.projects
    ]
    for kind, rows in inside.items():
        hits += [Hit(kind=kind, id=each.pk, name=each.name, project=each.project_id, url=page_of(request, kind, each.pk)) for each in rows]
    hits += [
        Hit(kind="run", id=each.pk, name=each.name, project=each.experiment.project_id, url=page_of(request, "run", each.pk))
        for each in found.runs
    ]
    hits += [Hit(kind="node", id=None, name=each.name, project=None, url=page_of(request, "node", each.name)) for each in found.nodes]
    return Hits(items=hits)
