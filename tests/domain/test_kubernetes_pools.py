"""Pools of pilots of Kubernetes: how its Jobs become pilots, and what a restart, an outage, a full cluster or a lost answer makes of
them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from experiments import services
from experiments.cluster import fleet, joining, pilots
from experiments.errors import DomainError
from experiments.models import Node, NodeToken, Pilot, PilotPool, Project, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.domain.conftest import NOW
from tests.domain.kubernetes_server import UNSCHEDULABLE, ApiServer, api_server_of
from tests.domain.test_pilots import SECOND, joins, only

pytestmark = pytest.mark.django_db
EVICTED = {"reason": "Evicted", "message": "The node had condition: [DiskPressure]."}
ENDED = {"terminated": {"exitCode": 127, "reason": "Error"}}


@pytest.fixture
def server(settings: Any) -> Iterator[ApiServer]:
    with api_server_of(settings) as server:
        yield server


@pytest.fixture
def pool(server: ApiServer, dora: User) -> PilotPool:
    installation.bind()
    cast.node(now=NOW)
    fleet.drain_node(Node.objects.get(name="local"), draining=True)
    policy = {"studio": "https://studio.example.org", "options": "--cpu=2", "slots": 2, "most": 3, "walltime_minutes": 60}
    return services.create_pool(by=dora, name="gpu", provider="kubernetes", now=NOW, **policy)


@pytest.fixture
def waiting(project: Project, alice: User, pool: PilotPool) -> TrainingRun:
    return cast.run(project, by=alice, name="digits", now=NOW)


def test_a_pilot_is_asked_for_waits_for_room_joins_and_has_an_end(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    pilots.look(NOW + 5 * SECOND)
    (name,) = server.names("jobs")
    assert (only().job, only().phase, only().words) == (name, "waiting", f"Pending: Unschedulable: {UNSCHEDULABLE}")
    server.becomes(name, "Running")
    joins("gpu-1", now=NOW + 8 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    pilots.look(NOW + 15 * SECOND)
    assert (only().phase, only().words) == ("here", "Running on node-7")
    assert only().ends_at is not None
    assert 3590 * SECOND < only().ends_at - (NOW + 15 * SECOND) <= 3600 * SECOND
    pool.refresh_from_db()
    assert pool.words[0] == "Kubernetes was asked for 1 pilot (1 here); at least 0, at most 3."


def test_the_token_in_the_secret_is_the_one_that_lets_it_in(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    ((_, secret),) = server.objects["secrets"].items()
    found = joining.find(secret["stringData"]["token"].strip(), now=NOW)
    assert found == NodeToken.objects.get(node_name="gpu-1")


def test_a_studio_that_ended_while_it_asked_finds_its_job_again(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    Pilot.objects.update(job="", phase="asked")  # it ended before it had written the name down
    pilots.look(NOW + 5 * SECOND)
    assert (only().job, only().phase, len(server.names("jobs"))) == (pilots.name_of(only()), "waiting", 1)


def test_one_whose_secret_was_never_made_does_not_wait_for_ever(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    """The studio ended between Job and Secret, so the pod has a node and its volume does not come."""
    pilots.look(NOW)
    (name,) = server.names("jobs")
    server.objects["secrets"].clear()
    server.becomes(name, "Pending", container={"waiting": {"reason": "ContainerCreating"}})
    server.pod_of(name)["status"]["startTime"] = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=16)).isoformat()
    pilots.look(NOW + dt.timedelta(minutes=16))
    pilots.look(NOW + dt.timedelta(minutes=22))
    pool.refresh_from_db()
    assert "Pending on node-7: ContainerCreating) has run for 5 min and has not called" in pool.problem
    assert "deletionTimestamp" in server.objects["jobs"][name]["metadata"]


def test_one_of_the_longest_name_is_found_again(server: ApiServer, dora: User, pool: PilotPool, waiting: TrainingRun) -> None:
    services.delete_pool(pool, by=dora, now=NOW)
    policy = {"studio": "https://studio.example.org", "options": "--cpu=2", "slots": 2, "most": 3}
    services.create_pool(by=dora, name="p" * 40, provider="kubernetes", now=NOW, **policy)
    pilots.look(NOW)
    (name,) = server.names("jobs")
    assert len(pilots.name_of(only())) > len(name) - 10
    Pilot.objects.update(job="", phase="asked")
    pilots.look(NOW + 5 * SECOND)
    assert (only().job, only().phase, server.names("jobs")) == (name, "waiting", [name])


def test_one_that_had_no_room_is_asked_for_again_and_is_no_failure(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    (name,) = server.names("jobs")
    server.pod_of(name)["metadata"]["creationTimestamp"] = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)).isoformat()
    server.becomes(name, "Failed", **EVICTED)
    pilots.look(NOW + 120 * SECOND)
    pool.refresh_from_db()
    assert (pool.failures, len(server.names("jobs"))) == (0, 2)
    assert Pilot.objects.get(phase="ended").words.startswith("Kubernetes says: Failed: Evicted: The node had condition: [DiskPressure].")


def test_one_that_fails_before_it_has_joined_is_a_failure_in_kubernetes_words(
    server: ApiServer, pool: PilotPool, waiting: TrainingRun
) -> None:
    pilots.look(NOW)
    (name,) = server.names("jobs")
    server.becomes(name, "Failed", container=ENDED)
    pilots.look(NOW + 5 * SECOND)
    pool.refresh_from_db()
    assert pool.failures == 1
    assert pool.problem.startswith("Kubernetes says: Failed: exit code 127; Job Failed: BackoffLimitExceeded")


def test_while_the_server_does_not_answer_pilots_stay_as_they_are(
    server: ApiServer, pool: PilotPool, waiting: TrainingRun, settings: Any
) -> None:
    pilots.look(NOW)
    for say, words in (((503, ""), "status 503"), ((429, ""), "status 429"), ((200, '{"items": null}'), "no list")):
        server.says = say
        pilots.look(NOW + 3600 * SECOND)
        pool.refresh_from_db()
        (said,) = pool.words
        assert said.startswith("Kubernetes does not answer, so nothing is decided: ")
        assert words in said
        assert only().phase == "waiting"


def test_an_answer_that_was_lost_leaves_no_job_behind(server: ApiServer, pool: PilotPool, waiting: TrainingRun) -> None:
    """The server has made the Job, and the studio does not hear of it: the pilot counts as refused, and its Job as a stranger's."""
    real = server.create

    def cut(kind: str, sent: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        done = real(kind, sent)
        server.cuts = kind == "jobs"
        return done

    server.create = cut  # type: ignore[method-assign]
    pilots.look(NOW)
    server.cuts, server.create = False, real  # type: ignore[method-assign]
    pool.refresh_from_db()
    assert pool.failures == 1
    assert "Kubernetes refused: " in pool.problem
    assert len(server.names("jobs")) == 1
    pilots.look(NOW + 5 * SECOND)
    assert server.names("jobs") == []


def test_what_is_given_back_or_unknown_is_deleted_and_others_are_left(
    server: ApiServer, pool: PilotPool, waiting: TrainingRun, dora: User
) -> None:
    pilots.look(NOW)
    (own,) = server.names("jobs")
    unknown, others = pilots.name_of(Pilot(node_name="gpu-9", pk=999)), "edt-0badc0de-gpu-9-999"
    for name in (unknown, others):
        job = {**server.objects["jobs"][own], "metadata": {**server.objects["jobs"][own]["metadata"], "name": name}}
        job["metadata"] |= {"annotations": {"edt-studio/pilot": name}, "uid": name}
        server.objects["jobs"][name] = job
    services.change_pool(pool, by=dora, most=0, now=NOW)
    server.refuses["delete", "jobs"] = (500, "etcdserver: leader changed")  # a moment in which nothing can be deleted harms nothing
    pilots.look(NOW + 5 * SECOND)
    assert set(server.names("jobs")) == {own, unknown, others}
    del server.refuses["delete", "jobs"]
    pilots.look(NOW + 10 * SECOND)
    pilots.look(NOW + dt.timedelta(minutes=3))
    assert server.names("jobs") == [others]
    assert server.names("secrets") == []
    pilots.look(NOW + dt.timedelta(minutes=4))
    assert Pilot.objects.get().words == f"Kubernetes says: the Job {own} has been deleted"


def test_options_that_nobody_may_choose_are_refused_with_the_reason(pool: PilotPool, dora: User) -> None:
    with pytest.raises(DomainError, match="'--image' cannot be chosen here"):
        services.change_pool(pool, by=dora, options="--cpu=1 --image=elsewhere/any")
