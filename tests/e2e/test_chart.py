"""The studio as the Helm chart installs it has no machine of its own: it trains in pods that it asks its cluster for, and gives back."""

from __future__ import annotations

import pytest

from tests.domain import postgres
from tests.e2e.chart_studio import ChartStudio, chart_studio
from tests.e2e.studio import wait_until
from tests.platform.control_sides import SUBMIT
from tests.platform.test_helm import FIRST_LOGIN, needs_helm

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    needs_helm,
    pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed"),
]
POOL = """
from experiments import services
from experiments.models import User
admin = User.objects.get(username="admin")
services.create_pool(by=admin, name="work", provider="kubernetes", studio={url!r}, options="--cpu=1", slots=1, most=1, walltime_minutes=30,
                     idle_minutes=0.05)
"""
WHERE = """
SELECT DISTINCT n.name FROM experiments_grant g JOIN experiments_slot s ON g.slot_id = s.id JOIN experiments_node n ON s.node_id = n.id
WHERE g.run_id = {run}
"""


def words(studio: ChartStudio) -> str:
    said = studio.rows("SELECT words, problem FROM experiments_pilotpool")
    return str([*said, *studio.rows("SELECT phase, words, leave_reason FROM experiments_pilot")]) + studio.tail()


def test_a_run_trains_in_a_pod_that_the_installed_studio_asks_for_and_gives_back() -> None:
    with chart_studio() as studio:
        there = studio.cluster.server
        python, manage, *login = FIRST_LOGIN.split()
        assert (python, manage) == ("python", "manage.py")
        assert "admin" in studio.manage(*login)
        studio.manage("shell", "--no-imports", "--command", POOL.format(url=studio.url))
        run = int(studio.manage("shell", "--no-imports", "--command", SUBMIT).split()[-1])
        wait_until(lambda: there.names("pods"), lambda: f"a pod is asked for\n{words(studio)}")
        assert [each["spec"]["containers"][0]["image"] for each in there.objects["pods"].values()] == ["edt-studio:0.1.0"]
        done = f"SELECT 1 FROM experiments_trainingrun WHERE id = {run} AND state = 'completed'"
        wait_until(lambda: studio.rows(done), lambda: f"it has completed\n{words(studio)}", deadline_s=90)
        assert studio.rows(WHERE.format(run=run)) == [("work-1",)]
        kinds = ("jobs", "pods", "secrets")
        wait_until(lambda: not any(map(there.names, kinds)), lambda: f"nothing of it is left there\n{words(studio)}")
        wait_until(lambda: "has been deleted" in words(studio), lambda: f"the studio says so\n{words(studio)}")
        assert "Joined http" in studio.cluster.logs()
