"""Reads for the pages of environments: what is built where, how large, who uses it."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import access
from experiments.models import DefinitionVersion, Environment, EnvironmentBuild, NamedVersion, TrainingRun, User
from experiments.models.runs import LIVE

MOST_ROWS = 200


@dataclass(frozen=True)
class Row:
    """An environment with its builds; `live`: how many live runs need it, `definitions`: how many training definitions ask for it."""

    environment: Environment
    builds: list[EnvironmentBuild]
    live: int
    definitions: int
    named: NamedVersion | None

    @property
    def size_bytes(self) -> int:
        return max((build.size_bytes for build in self.builds), default=0)


def rows(*, limit: int = MOST_ROWS) -> list[Row]:
    """All of them, the newest first."""
    found = list(Environment.objects.prefetch_related("builds__node").defer("lock")[:limit])
    return [row(each) for each in found]


def row(environment: Environment) -> Row:
    """What its page and the list show of an environment."""
    key = environment.requirements_key
    live = TrainingRun.objects.filter(version__requirements_key=key, state__in=LIVE).count()
    definitions = DefinitionVersion.objects.filter(requirements_key=key).values("definition").distinct().count()
    named = NamedVersion.objects.select_related("environment").filter(requirements_key=key).first()
    return Row(environment, list(environment.builds.select_related("node")), live, definitions, named)


def of_version(version: DefinitionVersion) -> list[Environment]:
    """What its requirements came to, on each base that there is."""
    return list(Environment.objects.filter(requirements_key=version.requirements_key)) if version.requirements_key else []


def of_run(run: TrainingRun) -> Environment | None:
    """The environment that the run has, or waits for; None where it needs none or nothing has been asked for yet."""
    found = of_version(run.version)
    base = run.head_node.base if run.head_node is not None else ""
    return next((each for each in found if each.base_key == base), found[0] if found else None)


def definitions(user: User, environment: Environment) -> list[DefinitionVersion]:
    """The newest version that asks for it of each training definition that the person may see."""
    mine = DefinitionVersion.objects.filter(
        requirements_key=environment.requirements_key, definition__project__in=access.projects_for(user).values("pk")
    )
    newest: dict[int, DefinitionVersion] = {}
    for version in mine.select_related("definition").order_by("number")[:MOST_ROWS]:
        newest[version.definition_id] = version
    return list(newest.values())
