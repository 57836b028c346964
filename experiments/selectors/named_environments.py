"""Reads for the pages of environments that administrators offer by name."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import access
from experiments.models import DefinitionVersion, Environment, EnvironmentBuild, NamedEnvironment, NamedVersion, User

MOST_VERSIONS = 50


@dataclass(frozen=True)
class Row:
    """One that is offered, its newest version, and where that is built; `definitions`: how many have any version of it."""

    environment: NamedEnvironment
    version: NamedVersion
    builds: list[EnvironmentBuild]
    definitions: int

    @property
    def size_bytes(self) -> int:
        return max((build.size_bytes for build in self.builds), default=0)


@dataclass(frozen=True)
class VersionRow:
    """A version, what it came to on each base, and the definitions that have it: those that the person may see, and how many in all."""

    version: NamedVersion
    resolved: list[Environment]
    mine: list[DefinitionVersion]
    definitions: int


def rows() -> list[Row]:
    """All of them by name, the retired ones last."""
    found = [row(each) for each in NamedEnvironment.objects.all()]
    return sorted(found, key=lambda each: each.environment.retired_at is not None)


def row(environment: NamedEnvironment) -> Row:
    version = environment.versions.select_related("created_by").order_by("-number")[0]
    builds = EnvironmentBuild.objects.filter(environment__requirements_key=version.requirements_key).select_related("node")
    users = DefinitionVersion.objects.filter(named__environment=environment).values("definition").distinct().count()
    return Row(environment, version, list(builds.order_by("node__name")), users)


def versions(user: User, environment: NamedEnvironment) -> list[VersionRow]:
    """The newest first."""
    return [_version(user, each) for each in environment.versions.select_related("created_by").order_by("-number")[:MOST_VERSIONS]]


def _version(user: User, version: NamedVersion) -> VersionRow:
    users = version.definition_versions.select_related("definition").order_by("definition__name", "number")
    resolved = Environment.objects.filter(requirements_key=version.requirements_key).order_by("base_words")
    mine = users.filter(definition__project__in=access.projects_for(user).values("pk"))
    return VersionRow(version, list(resolved), list(mine), users.values("definition").distinct().order_by().count())
