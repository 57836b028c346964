"""Two of everything at once, on a real database with real threads: what must happen once happens once."""

from __future__ import annotations

import datetime as dt
import functools
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from experiments import services
from experiments.accounts.identities import Claims
from experiments.cluster import desired, scheduling
from experiments.errors import DomainError
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import (
    ClusterRules,
    DataAsset,
    Grant,
    Identity,
    JournalCursor,
    Membership,
    Metric,
    MetricSeries,
    Node,
    Project,
    Role,
    TrainingRun,
    User,
)
from experiments.services import sample
from tests import cast

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("said")]
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Run them in threads that start together; their results, or the exceptions they raised."""
    gate = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def work(place: int, call: Callable[[], object]) -> None:
        gate.wait(timeout=20)
        try:
            results[place] = call()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return results


def failures(results: list[object]) -> list[object]:
    return [result for result in results if isinstance(result, Exception)]


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(slots=8, now=NOW)


def test_ticks_at_once_grant_each_slot_once(project: Project, alice: User, bob: User, node: Node) -> None:
    for number in range(6):
        cast.run(project, by=alice if number % 2 else bob, name=f"run {number}", now=NOW)
    results = at_once(*[lambda: scheduling.tick(NOW) for _ in range(4)])
    assert failures(results) == []
    assert Grant.objects.filter(released_at=None).count() == 8
    assert Grant.objects.count() == 8
    assert ClusterRules.current().tick == 4


def test_ticks_snapshots_and_proofs_at_once_never_share_a_slot(project: Project, alice: User, bob: User, node: Node) -> None:
    """Runs come, are stopped and change their wishes while plans and observations go on; every tick is also checked by the constraint."""
    host = cast.Host(node)
    runs = [cast.run(project, by=alice if number % 2 else bob, name=f"run {number}", max_slots=8, now=NOW) for number in range(4)]

    def plan() -> None:
        for second in range(8):
            scheduling.tick(NOW + second * SECOND)

    def apply() -> None:
        for second in range(8):
            host.apply(NOW + second * SECOND)

    def wish() -> None:
        for number, run in enumerate(runs):
            services.set_slots(run, by=alice, min_slots=1, max_slots=1 + number)
            services.pause_run(run, by=alice)
            services.resume_run(run, by=alice)
        services.stop_run(runs[0], by=alice)

    assert failures(at_once(plan, plan, apply, wish)) == []
    for second in range(10, 14):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    held = [cast.slots_of(run) for run in runs]
    assert sum(map(len, held)) == len(set().union(*held))
    assert held[0] == set()


def test_a_stop_and_a_first_grant_at_once_leave_no_slot_behind(project: Project, alice: User, node: Node) -> None:
    runs = [cast.run(project, by=alice, name=f"run {number}", now=NOW) for number in range(6)]
    results = at_once(lambda: scheduling.tick(NOW), *[lambda run=run: services.stop_run(run, by=alice) for run in runs])  # type: ignore[misc]
    assert failures(results) == []
    scheduling.tick(NOW + SECOND)
    host = cast.Host(node)
    host.apply(NOW + SECOND)
    host.apply(NOW + 2 * SECOND, exits={run.pk: 0 for run in TrainingRun.objects.filter(head_node=node)})
    assert not Grant.objects.filter(released_at=None).exists()
    assert {run.state for run in TrainingRun.objects.all()} == {"stopped"}


def test_two_readers_of_one_journal_store_each_point_once(
    project: Project, alice: User, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "BATCH_BYTES", 20_000)
    run = cast.run(project, by=alice, now=NOW)
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 1001)), cast.finished())
    results = at_once(*[lambda: ingest.catch_up(run.pk, now=NOW) for _ in range(4)])
    assert failures(results) == []
    assert sum(result for result in results if isinstance(result, int)) == 1002
    assert Metric.objects.count() == 1000
    assert (MetricSeries.objects.get().points, JournalCursor.objects.get(run=run).seq) == (1000, 1002)


def test_the_same_form_twice_at_once_makes_one_of_each(project: Project, alice: User) -> None:
    form = uuid.uuid4()
    data = cast.zipped().getvalue()
    version = cast.definition(project, by=alice)

    def define() -> int:
        upload = cast.io.BytesIO(data)
        return services.create_definition(
            project, by=alice, name="x", upload=upload, file_name="c.zip", command="main.py", idempotency_key=form
        ).pk

    assert len(set(at_once(define, define, define))) == 1
    projects = at_once(*[lambda: services.create_project(by=alice, name="p", idempotency_key=form).pk for _ in range(3)])
    assert len(set(projects)) == 1
    made = at_once(
        *[lambda: services.create_experiment(project, by=alice, name="e", versions=[version], idempotency_key=form) for _ in range(3)]
    )
    assert failures(made) == []
    assert len({experiment.pk for experiment in made}) == 1  # type: ignore[attr-defined]
    experiment = made[0]
    runs = at_once(*[lambda: services.run_experiment(experiment, by=alice, idempotency_key=form) for _ in range(3)])  # type: ignore[arg-type]
    assert failures(runs) == []
    assert TrainingRun.objects.count() == 1


def test_versions_made_at_once_get_numbers_of_their_own(project: Project, alice: User) -> None:
    definition = cast.definition(project, by=alice).definition
    results = at_once(*[lambda: services.add_version(definition, by=alice, command="main.py").number for _ in range(4)])
    assert sorted(map(str, results)) == ["2", "3", "4", "5"]


def test_of_two_admins_who_remove_each_other_at_once_one_stays(project: Project, alice: User, bob: User) -> None:
    services.set_role(project, by=alice, username="bob", role="admin")
    results = at_once(
        lambda: services.remove_member(project, by=alice, username="bob"), lambda: services.remove_member(project, by=bob, username="alice")
    )
    assert [type(error) for error in failures(results)] == [DomainError]
    assert Membership.objects.filter(project=project, role=Role.ADMIN).count() == 1


def test_an_ending_seen_twice_at_once_is_one(project: Project, alice: User, node: Node) -> None:
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 50)), cast.finished())
    host = cast.Host(node)
    results = at_once(
        lambda: host.apply(NOW, exits={run.pk: 0}), lambda: host.apply(NOW, exits={run.pk: 0}), lambda: ingest.catch_up_all(NOW)
    )
    assert failures(results) == []
    run.refresh_from_db()
    assert run.state == "completed"
    assert run.transitions.filter(new="completed").count() == 1
    assert Metric.objects.count() == 49
    assert desired.desired_state(node, now=NOW).runs == ()


def test_a_sample_is_made_whole_or_not_at_all_and_once(alice: User, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> TrainingRun:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sample, "run_experiment", killed)
        with pytest.raises(Killed):
            services.make_sample(by=alice)
    assert not Project.objects.exists()
    made = at_once(*[lambda: services.make_sample(by=alice, idempotency_key=uuid.uuid4()).pk for _ in range(3)])
    assert len(set(made)) == 1, made
    assert (Project.objects.count(), TrainingRun.objects.count(), DataAsset.objects.count()) == (1, 1, 1)


def test_a_delete_and_a_reader_of_its_journal_at_once_leave_nothing(
    project: Project, alice: User, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader holds the cursor and wants the run, so the delete takes them in the same order."""
    monkeypatch.setattr(ingest, "BATCH_BYTES", 2000)
    run = cast.run(project, by=alice, now=NOW)
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 301)))
    services.stop_run(run, by=alice, now=NOW)
    assert failures(at_once(lambda: ingest.catch_up(run.pk, now=NOW), lambda: services.delete_run(run, by=alice))) == []
    cast.empty_trash()
    assert not (TrainingRun.objects.exists() or Metric.objects.exists() or MetricSeries.objects.exists())


def test_a_run_that_is_continued_and_deleted_at_once_is_one_of_both(project: Project, alice: User) -> None:
    for _ in range(3):
        run = cast.run(project, by=alice, now=NOW)
        (runfiles.make(run) / "checkpoint").mkdir()
        (runfiles.folder(run) / "checkpoint" / "engine.pt").touch()
        run = services.stop_run(run, by=alice, now=NOW)
        results = at_once(lambda run=run: services.continue_run(run, by=alice), lambda run=run: services.delete_run(run, by=alice))
        assert [type(error) for error in failures(results)] == [DomainError], results
        assert TrainingRun.objects.filter(continues=run.pk).exists() == TrainingRun.objects.filter(pk=run.pk).exists()


def test_who_logs_in_by_the_provider_for_the_first_time_twice_at_once_has_one_account() -> None:
    for number in range(10):
        claims = Claims("https://id.example.org", str(number), f"erin-{number}")
        log_in = functools.partial(services.log_in_by, claims, allowed=True, provider="SSO", now=NOW)
        first, second = at_once(log_in, log_in)
        assert isinstance(first, User), first
        assert first == second
    assert Identity.objects.count() == User.objects.count() == 10


def test_of_two_who_link_one_identity_at_once_one_has_it(alice: User, bob: User) -> None:
    claims = Claims("https://id.example.org", "1", "erin")
    link = functools.partial(services.link_identity, claims=claims, provider="SSO", now=NOW)
    results = at_once(lambda: link(alice), lambda: link(bob))
    assert sorted(type(each).__name__ for each in results) == ["DomainError", "Identity"], results
