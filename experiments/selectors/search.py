"""Finding things by name, among what a person may open."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.models import Q

from experiments import access
from experiments.models import DataAsset, Experiment, Node, Project, TrainingDefinition, TrainingRun, User
from experiments.selectors.data import newest

MOST_OF_A_KIND = 20


@dataclass(frozen=True)
class SearchResults:
    """What matches, by kind, newest first, at most MOST_OF_A_KIND each."""

    projects: list[Project]
    definitions: list[TrainingDefinition]
    experiments: list[Experiment]
    data: list[DataAsset]
    runs: list[TrainingRun]
    nodes: list[Node]

    def count(self) -> int:
        found = (self.projects, self.definitions, self.experiments, self.data, self.runs, self.nodes)
        return sum(len(each) for each in found)


def search(user: User, query: str) -> SearchResults:
    """Names, descriptions, commands, tags and notes that contain the words; a number, "#7" or "run 7" also finds the run with that id.

    Nothing for no words.
    """
    words = query.strip()
    if not words:
        return SearchResults([], [], [], [], [], [])
    mine = access.projects_for(user)
    inside = {"project__in": mine.values("pk")}
    named = Q(name__icontains=words) | Q(description__icontains=words)
    tagged = Q(tags__icontains=words) | Q(tags__icontains=json.dumps(words)[1:-1])  # one database keeps JSON escaped, the other does not
    runs = Q(name__icontains=words) | Q(command__icontains=words) | Q(note__icontains=words) | tagged
    number = words.lower().removeprefix("run").strip().removeprefix("#")  # as pages call it: "run 7"
    if number.isascii() and number.isdigit() and len(number) < 19:
        runs |= Q(pk=int(number))
    of_runs = TrainingRun.objects.filter(runs, experiment__project__in=mine.values("pk")).select_related(
        "experiment__project", "submitted_by"
    )
    return SearchResults(
        projects=list(mine.filter(named)[:MOST_OF_A_KIND]),
        definitions=list(TrainingDefinition.objects.filter(named, **inside).select_related("project")[:MOST_OF_A_KIND]),
        experiments=list(Experiment.objects.filter(named, **inside).select_related("project")[:MOST_OF_A_KIND]),
        data=list(newest(DataAsset.objects.filter(named, **inside)).select_related("project")[:MOST_OF_A_KIND]),
        runs=list(of_runs[:MOST_OF_A_KIND]),
        nodes=list(Node.objects.filter(removed_at=None, name__icontains=words)[:MOST_OF_A_KIND]),
    )
