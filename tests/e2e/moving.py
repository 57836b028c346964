"""What tests of runs that go from machine to machine do and see, on a studio with the digits among its data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import state
from tests.e2e.test_story import journal, steps_in_journal
from tests.engine.harness import weights

SUBMIT = """
from experiments import services
from experiments.models import TrainingRun, User
alice = User.objects.get(username="alice")
project = services.create_project(by=alice, name="Joined", description="")
with open({code!r}, "rb") as upload:
    version = services.create_definition(project, by=alice, name="digits", upload=upload, file_name="digits.zip", command={command!r})
services.create_and_run(project, by=alice, name="digits", versions=[version], source_folder={folder!r})
print(TrainingRun.objects.order_by("pk").last().pk)
"""
DRAIN = """
from experiments import services
from experiments.models import Node, User
admin = User.objects.get(username="admin")
for name, draining in {nodes!r}.items():
    services.set_node_draining(Node.objects.get(name=name), by=admin, draining=draining)
"""
SEVERAL_MACHINES = """
from experiments import services
from experiments.models import ClusterRules, User
services.set_policy(by=User.objects.get(username="admin"), policy=ClusterRules.current().policy, several_machines=True)
"""
ALONE = """
from django.utils import timezone
from experiments import services
from experiments.cluster import fleet, joining
from experiments.models import ClusterRules, Node, User
admin = User.objects.get(username="admin")
for node in Node.objects.filter(removed_at=None).exclude(name="local"):
    joining.end(node.name)
    fleet.remove_node(node, now=timezone.now())
services.set_node_draining(Node.objects.get(name="local"), by=admin, draining=False)
services.set_policy(by=admin, policy=ClusterRules.current().policy, several_machines=False)
"""
HELD_ON = (
    "SELECT n.name, COUNT(*) FROM experiments_grant g JOIN experiments_slot s ON s.id = g.slot_id"
    " JOIN experiments_node n ON n.id = s.node_id WHERE g.released_at IS NULL AND g.run_id = ? GROUP BY n.name"
)
HURRY = "quick"  # a file among the data, with which nothing waits
_weights: dict[str, str] = {}  # that this process of tests knows already


def start_with_digits(studio: Studio) -> None:
    """It runs, has heard of its own machine, and has the example's data."""
    studio.start()
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits")
    wait_until(lambda: studio.rows("SELECT 1 FROM experiments_node WHERE name = 'local'"), lambda: f"its machine\n{studio.tail()}")


@contextmanager
def with_digits(studio: Studio) -> Iterator[Studio]:
    """All of it is gone afterwards."""
    try:
        start_with_digits(studio)
        yield studio
    finally:
        studio.close()


def paced_digits(folder: Path, *, part_s: float = 0.2) -> Path:
    """As `bundles.digits`, until somebody is in a `hurry`; the script also writes to its working folder."""
    hurry = f"__import__('os').path.exists(__import__('os').environ['DATA_DIR'] + '/{HURRY}')"
    return digits(folder, part_s=f"(open('was-here', 'a').close(), 0 if {hurry} else {part_s})[1]")


def hurry(studio: Studio, *, hurry: bool = True) -> None:
    """Paced runs of the studio, and of machines that share its data, train as fast as they can; or not any more."""
    path = studio.home / "data" / "digits" / HURRY
    if hurry:
        path.touch()
    else:
        path.unlink()


def submits(studio: Studio, code: Path, *, command: str, folder: str = "digits") -> int:
    """Alice's run of that code with that folder of data; its number."""
    return int(studio.shell(SUBMIT.format(code=str(code), command=command, folder=folder)).split()[-1])


def weights_once(what: str, train: Callable[[], Path]) -> str:
    """Of a run that nobody disturbs. They are the same in every studio, so the first that wants them trains for all: `train` tells where
    its files are."""
    if what not in _weights:
        _weights[what] = weights(train())
    return _weights[what]


def straight_weights(studio: Studio, code: Path, *, command: str) -> str:
    """Those of a run of `paced_digits` that nobody disturbs."""

    def train() -> Path:
        hurry(studio)
        run = submits(studio, code, command=command)
        completes(studio, run)
        hurry(studio, hurry=False)
        return studio.folder(run)

    return weights_once(f"digits {command}", train)


def drains(studio: Studio, **nodes: bool) -> None:
    """Whether each of these machines takes nothing new."""
    studio.shell(DRAIN.format(nodes=nodes))


def forget_machines(studio: Studio) -> None:
    """Those that had joined are gone: they leave its lists, and its own takes runs again, each of which stays on one machine."""
    (studio.home / "data" / "digits" / HURRY).unlink(missing_ok=True)
    studio.shell(ALONE)


def may_use_several_machines(studio: Studio) -> None:
    """From now on runs may."""
    studio.shell(SEVERAL_MACHINES)


def slots_of(studio: Studio, run: int) -> dict[str, int]:
    """How many slots it holds on each machine."""
    return {str(name): int(count) for name, count in studio.rows(HELD_ON, run)}


def workers_of(studio: Studio, run: int) -> int:
    """Of the newest generation in its journal."""
    found = [event for event in journal(studio, run) if event["kind"] == "generation"]
    return len(found[-1]["members"]) if found else 0


def trains_on(studio: Studio, run: int, *, steps: int = 2, words: str = "", deadline_s: float = 60.0) -> None:
    before = len(steps_in_journal(studio, run))
    trained = lambda: len(steps_in_journal(studio, run)) > before + steps  # noqa: E731
    wait_until(trained, lambda: f"run {run} trains on {words}\n{studio.tail()}", deadline_s=deadline_s)


def gets_on(studio: Studio, run: int, *, on: str, steps: int = 4) -> None:
    """It is on that machine alone, and trains there."""
    wait_until(lambda: set(slots_of(studio, run)) == {on}, lambda: f"the run is on {on}, not {slots_of(studio, run)}\n{studio.tail()}")
    trains_on(studio, run, steps=steps, words=f"on {on}")


def completes(studio: Studio, run: int, *, words: str = "") -> None:
    wait_until(lambda: state(studio, run) == "completed", lambda: f"run {run} completes\n{words}\n{studio.tail()}", deadline_s=180)


def all_steps_once(studio: Studio, run: int) -> bool:
    steps = steps_in_journal(studio, run)
    return steps == list(range(1, len(steps) + 1))


def driver(home: Path, node: str, run: int) -> int:
    """The process of the run on that machine, as its host there has it written down."""
    (found,) = [each["pid"] for each in json.loads((home / "host" / node / "state.json").read_text())["runs"] if each["run"] == run]
    return int(found)


def host(home: Path, node: str) -> int:
    """The process of the machine's node host."""
    return int((home / "host" / node / "host.lock").read_text() or 0)
