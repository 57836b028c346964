"""The studio inside a site's Ray cluster: it asks for machines when jobs wait, says nothing there that it should not, and gives them back
when nobody needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.moving import all_steps_once, completes, drains, gets_on, hurry, paced_digits, straight_weights, submits, with_digits
from tests.e2e.ray import Cluster, needs_ray, ray
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_pilots import COMMAND, pilots_of, words
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), needs_ray]
POOL = """
from experiments import services
from experiments.models import User
admin = User.objects.get(username="admin")
services.create_pool(by=admin, name="work", provider="ray", studio={url!r}, options="--entrypoint-num-cpus=2", slots=2, least=0, most=2,
                     idle_minutes=0.05, walltime_minutes=30)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ray() as cluster:
        yield cluster


@pytest.fixture
def studio(cluster: Cluster) -> Iterator[Studio]:
    """Two slots of its own; its pilots find people's data where it is."""
    with with_digits(pilots_of(cluster.settings)) as studio:
        yield studio


def told_to_everybody(cluster: Cluster, job: str) -> str:
    """What the dashboard shows of a job and of what belongs to it, as its pages do and as its API does."""
    paths = ["/api/jobs/", f"/api/jobs/{job}/logs", "/nodes?view=summary"]
    paths += [f"/api/v0/{kind}?detail=1" for kind in ("actors", "workers", "runtime_envs", "jobs", "nodes")]
    return "".join(map(cluster.shows, paths))


def package_of(cluster: Cluster, job: str) -> str:
    """What the dashboard says when the package is asked for that the job began with."""
    name = cluster.asks(f"/api/jobs/{job}")["runtime_env"]["working_dir"].removeprefix("gcs://")
    return cluster.shows(f"/api/packages/gcs/{name}")


def holders_of_tokens(cluster: Cluster) -> set[str]:
    """The names of files that have a token in them, wherever Ray or a pilot has put them."""
    files = [path for path in cluster.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name for path in files if b"edtn_" in path.read_bytes()}


def test_ray_lends_machines_while_jobs_need_them_and_no_step_is_lost_on_the_way(studio: Studio, cluster: Cluster, tmp_path: Path) -> None:
    code = paced_digits(tmp_path)
    straight = straight_weights(studio, code, command=COMMAND)

    # One that waits has a pilot asked for. When somebody stops its job, which is all the notice that Ray gives, the run goes on here.
    studio.shell(POOL.format(url=studio.url))
    drains(studio, local=True)
    moved = submits(studio, code, command=COMMAND)
    gets_on(studio, moved, on="work-1")
    (job,) = cluster.jobs("RUNNING")
    assert "edtn_" not in told_to_everybody(cluster, job)
    assert package_of(cluster, job) == "", "that it is there, and nothing of it"
    assert holders_of_tokens(cluster) == {"node.json"}, "the machine keeps its own, for itself alone"
    drains(studio, local=False)
    cluster.says("job", "stop", "--no-wait", job)
    gets_on(studio, moved, on="local")
    assert all_steps_once(studio, moved), "no step was lost or repeated"
    reasons = [reason for (reason,) in studio.rows("SELECT reason FROM experiments_runtransition WHERE run_id = ?", moved)]
    assert any("work-1 has been ended, as it said. It goes on elsewhere" in reason for reason in reasons), reasons

    # It is sent to another one, and back; nobody needs that one then, so it is given back.
    drains(studio, local=True)
    gets_on(studio, moved, on="work-1", steps=1)
    drains(studio, **{"local": False, "work-1": True})
    hurry(studio)
    completes(studio, moved, words=words(studio))
    assert all_steps_once(studio, moved)
    assert weights(studio.folder(moved)) == straight
    wait_until(lambda: cluster.jobs() == [], lambda: f"it is given back\n{words(studio)}\n{cluster.tail()}")
    machines = "SELECT name FROM experiments_node WHERE removed_at IS NULL"
    wait_until(lambda: studio.rows(machines) == [("local",)], lambda: f"and is no machine any more\n{words(studio)}\n{studio.tail()}")
    assert "nobody has needed it for" in words(studio)
    assert "Ray says: STOPPED: Job was intentionally stopped." in words(studio)
    assert not list((cluster.folder / "pilots").iterdir()), "it has left nothing behind"
    (second,) = set(cluster.jobs("STOPPED")) - {job}
    told = "".join(told_to_everybody(cluster, each) for each in (job, second))
    assert "Joined http" in told, "what the machines say is in the logs of their jobs"
    assert "edtn_" not in told, "and no token is"
    assert holders_of_tokens(cluster) == set()
    assert "does not exist" in package_of(cluster, second), "Ray has put it away (to ask for one, as was done above, keeps it for a while)"
