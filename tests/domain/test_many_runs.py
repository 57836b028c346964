"""What many runs at once cost: the database is asked as often for thirty as for three."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from experiments.cluster import scheduling
from experiments.models import ClusterRules, Grant, Node, Project, RunState, RunTransition, TrainingRun, User
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def runs(project: Project, by: User, count: int) -> list[TrainingRun]:
    """Queued runs of one experiment that take one slot each."""
    made = cast.run(project, by=by, max_slots=1, now=NOW)
    more = [
        TrainingRun(
            experiment=made.experiment,
            version=made.version,
            name=f"run {number}",
            submitted_by=by,
            submitted_at=NOW + number * SECOND,
            command=made.command,
            max_slots=1,
        )
        for number in range(1, count)
    ]
    return [made, *TrainingRun.objects.bulk_create(more)]


def statements_of_tick(now: dt.datetime) -> int:
    with CaptureQueriesContext(connection) as asked:
        scheduling.tick(now)
    return len(asked)


def test_a_tick_asks_the_database_as_often_for_many_runs_as_for_few(project: Project, alice: User, bob: User) -> None:
    """It grants slots to the first, tells the others their places, and takes all slots back when all are paused."""
    ClusterRules.current()
    counts = []
    for number, many in enumerate((3, 30)):
        node = cast.node(f"node-{many}", slots=many, now=NOW)
        started = runs(project, (alice, bob)[number], 2 * many)
        granting = statements_of_tick(NOW)
        assert Grant.objects.filter(slot__node=node, released_at=None).count() == many
        TrainingRun.objects.filter(pk__in=[run.pk for run in started]).update(paused=True)
        asking_back = statements_of_tick(NOW + SECOND)
        assert Grant.objects.filter(slot__node=node, release_requested_at=NOW + SECOND).count() == many
        cast.Host(node).apply(NOW + 2 * SECOND)
        counts.append((granting, asking_back, statements_of_tick(NOW + 2 * SECOND)))
        TrainingRun.objects.filter(pk__in=[run.pk for run in started]).update(state=RunState.STOPPED)
        Node.objects.filter(pk=node.pk).update(draining=True)
    assert counts[0] == counts[1]


@pytest.mark.django_db(transaction=True)
def test_a_tick_tells_an_experiment_once(project: Project, alice: User, said: SentMessages, node: Node) -> None:
    started = runs(project, alice, 12)
    said.clear()
    scheduling.tick(node.last_seen_at or NOW)
    assert len(said.about(f"experiment-{started[0].experiment_id}")) == 1
    (words,) = said.about("cluster", "changed")
    assert set(words["what"]) == {"jobs", "feed", "lanes"}


def test_each_of_many_runs_changes_state_by_itself(project: Project, alice: User) -> None:
    queued, stopping, deleted, ended = runs(project, alice, 4)
    TrainingRun.objects.filter(pk=stopping.pk).update(state=RunState.STOPPING)
    TrainingRun.objects.filter(pk=ended.pk).update(state=RunState.COMPLETED)
    TrainingRun.objects.filter(pk=deleted.pk).delete()
    steps = [states.Step(run, RunState.STARTING, "Granted 1 slot.") for run in (queued, stopping, deleted, ended)]
    assert states.transition_all([*steps, states.Step(queued, RunState.STARTING, "twice")], now=NOW) == [queued]
    assert stopping.state == RunState.STOPPING, "the caller's copies are as the database has them"
    assert list(RunTransition.objects.filter(new=RunState.STARTING).values_list("run", "old", "reason")) == [
        (queued.pk, "queued", "Granted 1 slot.")
    ]
