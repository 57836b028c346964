"""Pools of pilots of Ray: how its jobs become pilots, and what a restart, an outage or a full cluster makes of them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from experiments import services, tasks
from experiments.cluster import fleet, pilots, ray
from experiments.errors import DomainError
from experiments.models import Node, Pilot, PilotPool, Project, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.domain.conftest import NOW
from tests.domain.ray_dashboard import WAITS, Dashboard, answer, dashboard_of
from tests.domain.test_pilots import SECOND, joins, only

pytestmark = pytest.mark.django_db


@pytest.fixture
def dashboard(settings: Any) -> Iterator[Dashboard]:
    with dashboard_of(settings) as server:
        yield server


@pytest.fixture
def pool(dashboard: Dashboard, dora: User) -> PilotPool:
    installation.bind()
    cast.node(now=NOW)
    fleet.drain_node(Node.objects.get(name="local"), draining=True)
    policy = {"studio": "https://studio.example.org", "options": "--entrypoint-num-cpus=2", "slots": 2, "most": 3, "walltime_minutes": 60}
    return services.create_pool(by=dora, name="gpu", provider="ray", now=NOW, **policy)


@pytest.fixture
def waiting(project: Project, alice: User, pool: PilotPool) -> TrainingRun:
    return cast.run(project, by=alice, name="digits", now=NOW)


def test_a_pilot_is_asked_for_joins_and_has_an_end_that_ray_does_not_know(
    dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun
) -> None:
    pilots.look(NOW)
    pilots.look(NOW + 5 * SECOND)
    (name,) = dashboard.jobs
    assert (only().job, only().phase, only().words) == (name, "waiting", f"PENDING: {WAITS}")
    dashboard.jobs[name] = answer(name, "RUNNING", "Job is currently running.")
    joins("gpu-1", now=NOW + 8 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    pilots.look(NOW + 15 * SECOND)
    assert (only().phase, only().ends_at) == ("here", NOW + 3610 * SECOND), "an hour after it has begun"
    pool.refresh_from_db()
    assert pool.words[0] == "Ray was asked for 1 pilot (1 here); at least 0, at most 3."
    pilots.look(NOW + dt.timedelta(minutes=56))
    assert "its allocation ends in" in Pilot.objects.get(node_name="gpu-1").leave_reason


def test_a_studio_that_ended_while_it_asked_finds_its_job_again(dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun) -> None:
    pilots.look(NOW)
    Pilot.objects.update(job="", phase="asked")  # it ended before it had written the name down
    pilots.look(NOW + 5 * SECOND)
    assert (only().job, only().phase, len(dashboard.jobs)) == (pilots.name_of(only()), "waiting", 1)


def test_one_of_the_longest_name_is_found_again(dashboard: Dashboard, dora: User, pool: PilotPool, waiting: TrainingRun) -> None:
    services.delete_pool(pool, by=dora, now=NOW)
    policy = {"studio": "https://studio.example.org", "options": "--entrypoint-num-cpus=2", "slots": 2, "most": 3}
    services.create_pool(by=dora, name="p" * 40, provider="ray", now=NOW, **policy)
    pilots.look(NOW)
    Pilot.objects.update(id=10**9)  # as after many
    dashboard.jobs = {pilots.name_of(only()): answer(pilots.name_of(only()), "PENDING", WAITS)}
    Pilot.objects.update(job="", phase="asked")
    pilots.look(NOW + 5 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    assert (only().job, only().phase) == (pilots.name_of(only()), "waiting")


def test_one_that_ray_gave_up_for_want_of_room_is_asked_for_again_and_is_no_failure(
    dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun
) -> None:
    pilots.look(NOW)
    (name,) = dashboard.jobs
    gave_up = "Job supervisor actor failed to start within 900.0 seconds."
    dashboard.jobs[name] = answer(name, "FAILED", gave_up, error_type="JOB_SUPERVISOR_ACTOR_START_TIMEOUT")
    pilots.look(NOW + 900 * SECOND)
    pool.refresh_from_db()
    assert (pool.failures, len(dashboard.jobs)) == (0, 2)
    assert Pilot.objects.get(phase="ended").words == f"Ray says: FAILED: {gave_up}"


def test_one_that_fails_before_it_has_joined_is_a_failure_in_rays_words(
    dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun
) -> None:
    pilots.look(NOW)
    (name,) = dashboard.jobs
    dashboard.jobs[name] = answer(
        name, "FAILED", "Job entrypoint command failed with exit code 127", error_type="JOB_ENTRYPOINT_COMMAND_ERROR"
    )
    pilots.look(NOW + 5 * SECOND)
    pool.refresh_from_db()
    assert (pool.failures, pool.problem) == (1, "Ray says: FAILED: Job entrypoint command failed with exit code 127")


def test_while_the_dashboard_does_not_answer_pilots_stay_as_they_are(
    dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun, settings: Any
) -> None:
    pilots.look(NOW)
    settings.EDT_RAY_ADDRESS = "http://127.0.0.1:1"
    pilots.look(NOW + 3600 * SECOND)
    pool.refresh_from_db()
    (words,) = pool.words
    assert words.startswith("Ray does not answer, so nothing is decided: http://127.0.0.1:1 cannot be reached: ")
    assert only().phase == "waiting"
    assert services.change_pool(pool, by=User.objects.get(username="dora"), most=1, now=NOW).most == 1, "a policy can be changed meanwhile"


def test_an_engine_that_keeps_silent_holds_one_thread_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others plan."""
    begun, answers, looks = threading.Event(), threading.Event(), []

    def look(now: dt.datetime) -> None:
        looks.append(now)
        begun.set()
        assert answers.wait(20)

    monkeypatch.setattr(pilots, "look", look)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tasks.hold_capacity)
        assert begun.wait(20)
        tasks.hold_capacity()
        answers.set()
        first.result(20)
    tasks.hold_capacity()
    assert len(looks) == 2


@pytest.mark.parametrize("number", ["²", "9" * 30])
def test_a_job_that_somebody_gave_a_pilots_name_and_no_number_keeps_nothing_from_being_decided(
    dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun, number: str
) -> None:
    """Anybody who reaches the dashboard may submit one, and sees there what pilots are called."""
    pilots.look(NOW)
    strange = pilots.name_of(only()).rpartition("-")[0] + f"-{number}"
    dashboard.jobs[strange] = answer(strange, "RUNNING", "Job is currently running.")
    pilots.look(NOW + 5 * SECOND)
    assert only().phase == "waiting"
    assert PilotPool.objects.get().looked_at == NOW + 5 * SECOND
    assert [path for _, path, _ in dashboard.asked if path.endswith("/stop")] == [f"/api/jobs/{quote(strange)}/stop"]


def test_what_is_given_back_or_unknown_is_stopped(dashboard: Dashboard, pool: PilotPool, waiting: TrainingRun, dora: User) -> None:
    pilots.look(NOW)
    own = pilots.name_of(only())
    unknown, others = pilots.name_of(Pilot(node_name="gpu-9", pk=999)), "edt-0badc0de-gpu-9-999"
    dashboard.jobs |= {name: answer(name, "RUNNING", "Job is currently running.") for name in (unknown, others)}
    services.change_pool(pool, by=dora, most=0, now=NOW)
    pilots.look(NOW + 5 * SECOND)
    pilots.look(NOW + 10 * SECOND)
    dashboard.refuses.add("/stop")
    pilots.look(NOW + 15 * SECOND)  # a moment in which nothing can be stopped harms nothing
    stopped = {path for method, path, _ in dashboard.asked if method == "POST" and path.endswith("/stop")}
    assert stopped == {f"/api/jobs/{own}/stop", f"/api/jobs/{unknown}/stop"}
    dashboard.refuses.clear()
    ray.Ray().release("gone", begun=True, hurry=True)  # harmless


def test_options_that_nobody_may_choose_are_refused_with_the_reason(pool: PilotPool, dora: User) -> None:
    with pytest.raises(DomainError, match="'--runtime-env-json' cannot be chosen here"):
        services.change_pool(pool, by=dora, options="--entrypoint-num-cpus=1 --runtime-env-json={}")


def test_a_pool_keeps_its_engine(pool: PilotPool, dora: User) -> None:
    with pytest.raises(DomainError, match="Nothing of a pool is called provider"):
        services.change_pool(pool, by=dora, provider="slurm")
    with pytest.raises(DomainError, match="Choose one of: Slurm, Ray"):
        services.create_pool(by=dora, name="other", provider="pbs", studio="https://s.example.org", slots=1, most=1)
