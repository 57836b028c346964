"""What a run says of its exactness, as its journal tells it."""

from __future__ import annotations

import datetime as dt

import pytest

from experiments.cluster import scheduling
from experiments.metrics import ingest
from experiments.models import Project, TrainingRun, User
from tests import cast
from training_runtime.journal import Exactness

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    cast.node(now=NOW)
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    made.refresh_from_db()
    return made


def take(run: TrainingRun) -> None:
    ingest.catch_up(run.pk, now=NOW)
    run.refresh_from_db()


def test_a_run_is_exact_until_something_else_was_seen(run: TrainingRun) -> None:
    assert run.exact is None
    cast.write_journal(run, cast.started(), Exactness((), checked=True, build=""))
    take(run)
    assert (run.exact, run.exact_checked, run.exact_reasons) == (True, True, [])
    cast.write_journal(run, Exactness(("it draws\0 from the clock",) * 30, checked=True, build=""))
    take(run)
    assert (run.exact, run.exact_checked, run.exact_reasons) == (False, True, ["it draws from the clock"] * 20)
    assert "Exactness is not promised, because: it draws from the clock; " in run.events.last().message
