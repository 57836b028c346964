"""The studio inside a site's Slurm: it asks for machines when jobs wait, and gives them back when nobody needs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import all_steps_once, completes, drains, gets_on, hurry, paced_digits, straight_weights, submits, with_digits
from tests.e2e.slurm import Engine, needs_slurm, slurm
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import journal
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), needs_slurm]
COMMAND = "main.py --epochs 3"
POOL = """
from experiments import services
from experiments.models import User
admin = User.objects.get(username="admin")
services.create_pool(by=admin, name="work", studio={url!r}, options="--partition=work --cpus-per-task=2", slots=2, least=0, most=2,
                     idle_minutes={idle}, walltime_minutes=30)
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with slurm() as engine:
        yield engine


@pytest.fixture
def studio(engine: Engine) -> Iterator[Studio]:
    """Two slots of its own; its pilots find people's data where it is."""
    made = pilots_of(engine.settings)
    made.settings["EDT_PILOT_COMMAND"] += " --temporary"
    with with_digits(made) as studio:
        yield studio


def pilots_of(settings: dict[str, str]) -> Studio:
    """With two slots of its own, whose pilots find people's data where it is. `settings`: of the engine that lends machines."""
    studio = Studio(slots=2, settings={"EDT_NODE_LEASE_S": "10", **settings})
    command = Path(sys.executable).with_name("edt-node")
    studio.settings["EDT_PILOT_COMMAND"] = f"{command} join --data-root {studio.home}/data"
    return studio


def words(studio: Studio) -> str:
    ((said,),) = studio.rows("SELECT words FROM experiments_pilotpool")
    pilots = studio.rows("SELECT node_name, job, phase, words, leave_reason FROM experiments_pilot")
    return "\n".join([*json.loads(said), *map(str, pilots)])


def test_slurm_lends_machines_while_jobs_need_them_and_no_step_is_lost_on_the_way(studio: Studio, engine: Engine, tmp_path: Path) -> None:
    code = paced_digits(tmp_path)
    straight = straight_weights(studio, code, command=COMMAND)

    # One that waits has a pilot asked for. When Slurm takes it back, with notice as by --signal=B:TERM, the run goes on here at once.
    studio.shell(POOL.format(url=studio.url, idle=0.05))
    drains(studio, local=True)
    moved = submits(studio, code, command=COMMAND)
    gets_on(studio, moved, on="work-1")
    drains(studio, local=False)
    engine.says("scancel", "--batch", "--signal=TERM", *engine.jobs())
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
    wait_until(lambda: engine.jobs() == [], lambda: f"it is given back\n{words(studio)}\n{engine.tail()}")
    machines = "SELECT name FROM experiments_node WHERE removed_at IS NULL"
    wait_until(lambda: studio.rows(machines) == [("local",)], lambda: f"and is no machine any more\n{words(studio)}\n{studio.tail()}")
    assert "nobody has needed it for" in words(studio)
    assert not list((engine.folder / "pilots").iterdir()), "it has left nothing behind"


@pytest.fixture
def plain(studio: Studio) -> Iterator[Joined]:
    """A machine on which somebody has run `edt-node join`."""
    machine = Joined(studio, "beta", line_for(studio, "beta", slots=2), data=studio.home / "data")
    try:
        machine.arrives()
        yield machine
    finally:
        machine.close()


def test_a_run_moves_between_a_plain_machine_and_a_pilot_of_slurm_without_a_step_lost(
    studio: Studio, engine: Engine, plain: Joined, tmp_path: Path
) -> None:
    drains(studio, beta=True)
    code = paced_digits(tmp_path)
    straight = straight_weights(studio, code, command=COMMAND)
    studio.shell(POOL.format(url=studio.url, idle=0.05))

    drains(studio, local=True, beta=False)
    moved = submits(studio, code, command=COMMAND)
    gets_on(studio, moved, on="beta")
    assert engine.jobs() == [], "it has what it needs"
    drains(studio, beta=True)
    gets_on(studio, moved, on="work-1")
    drains(studio, **{"beta": False, "work-1": True})
    gets_on(studio, moved, on="beta", steps=1)
    hurry(studio)
    completes(studio, moved, words=plain.tail())
    assert all_steps_once(studio, moved), "no step was lost or repeated"
    assert [event["kind"] for event in journal(studio, moved)].count("resumed") == 2
    assert weights(studio.folder(moved)) == straight
    wait_until(lambda: engine.jobs() == [], lambda: f"the pilot is given back\n{words(studio)}\n{engine.tail()}")
    assert plain.leaves() == 0
