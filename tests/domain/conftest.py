"""A node whose machine is spoken for, and a run that it has been granted: for the tests of what machines say of slots."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments.cluster import scheduling
from experiments.models import Project, TrainingRun, User
from tests import cast
from tests.domain.storing import s3, small_objects, store_folder, studio  # noqa: F401  (fixtures)

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def host(db: None) -> cast.Host:
    return cast.Host(cast.node(now=NOW))


@pytest.fixture
def run(project: Project, alice: User, host: cast.Host) -> TrainingRun:
    """It has all four slots since NOW."""
    made = cast.run(project, by=alice, name="digits", now=NOW)
    scheduling.tick(NOW)
    return made
