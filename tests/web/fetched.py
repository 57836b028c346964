"""What the pages show of code that came from a git repository: part of the served studio."""

from __future__ import annotations

from experiments import services
from experiments.services.definitions import Origin
from tests import cast
from tests.web.seed import Seeded


def fetched(studio: Seeded) -> dict[str, str]:
    """A training definition whose code came from a git repository, for a single process on several slots."""
    project = services.create_project(by=studio.alice, name="From git")
    origin = Origin("git@github.com:group/digits.git", "experiments/wide", "training/digits", "0123456789abcdef" * 2 + "01234567")
    version = services.create_definition(
        project,
        by=studio.alice,
        name="Fetched",
        upload=cast.zipped(),
        file_name="digits-training.zip",
        distributed="single",
        max_slots=2,
        origin=origin,
    )
    version.definition.git_access = "sealed"
    version.definition.save()
    definition = version.definition.pk
    return {"fetched definition": f"/definitions/{definition}/", "version of a fetched one": f"/definitions/{definition}/versions/new/"}
