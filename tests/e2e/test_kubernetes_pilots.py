"""The studio beside a site's Kubernetes: it asks for pods when jobs wait, says nothing there that it should not, and does without when
they are taken back. The cluster is a stand-in (tests/e2e/kubernetes.py); the studio, the pilots and their runs are real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.bundles import digits
from tests.e2e.kubernetes import Cluster, kubernetes
from tests.e2e.moving import all_steps_once, drains, gets_on, submits, with_digits
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_pilots import COMMAND, pilots_of, words

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
POOL = """
from experiments import services
from experiments.models import User
admin = User.objects.get(username="admin")
services.create_pool(by=admin, name="work", provider="kubernetes", studio={url!r}, options="--cpu=2 --memory=2Gi", slots=2, least=0, most=2,
                     idle_minutes=0.05, walltime_minutes=30)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with kubernetes() as cluster:
        yield cluster


@pytest.fixture
def studio(cluster: Cluster) -> Iterator[Studio]:
    """Two slots of its own; its pilots find people's data where it is."""
    studio = pilots_of(cluster.settings)
    studio.settings["EDT_KUBERNETES_COMMAND"] = studio.settings.pop("EDT_PILOT_COMMAND")
    with with_digits(studio):
        yield studio


def test_pods_come_while_jobs_need_them_and_no_step_is_lost_on_the_way(studio: Studio, cluster: Cluster, tmp_path: Path) -> None:
    # One that waits has a pod asked for, which waits in its turn until there is room.
    cluster.room = 0
    studio.shell(POOL.format(url=studio.url))
    drains(studio, local=True)
    run = submits(studio, digits(tmp_path, part_s=0.15), command=COMMAND)
    wait_until(lambda: "Pending: Unschedulable: 0/3 nodes are available" in words(studio), lambda: f"it is asked for\n{studio.tail()}")
    cluster.room = 2
    gets_on(studio, run, on="work-1")
    (job,) = cluster.jobs()
    assert cluster.server.names("secrets") == [job]
    assert "edtn_" not in cluster.told_to_everybody()

    # Somebody deletes its Job, as an eviction does with its pod: with notice, so the run goes on here, and nothing is left there.
    drains(studio, local=False)
    cluster.deletes(job)
    assert (cluster.server.names("jobs"), cluster.server.names("secrets")) == ([], [])
    gets_on(studio, run, on="local")
    assert all_steps_once(studio, run), "no step was lost or repeated"
    reasons = [reason for (reason,) in studio.rows("SELECT reason FROM experiments_runtransition WHERE run_id = ?", run)]
    assert any("work-1 has been ended, as it said. It goes on elsewhere" in reason for reason in reasons), reasons
    machines = "SELECT name FROM experiments_node WHERE removed_at IS NULL"
    wait_until(lambda: studio.rows(machines) == [("local",)], lambda: f"it is no machine any more\n{words(studio)}\n{studio.tail()}")
    assert f"Kubernetes says: the Job {job} has been deleted" in words(studio)
    assert cluster.server.names("pods") == []
    assert "Joined http" in cluster.told_to_everybody()
    assert "edtn_" not in cluster.told_to_everybody()
