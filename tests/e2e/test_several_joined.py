"""One job on two machines that have joined with one command each and share no folder, with the studio or with each other: slots on both at
once, logs of both, and the same bits whichever of the two is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import all_steps_once, drains, may_use_several_machines, slots_of, submits, weights_once, workers_of
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_joining import joinable, joined, studio  # noqa: F401  (fixtures)
from tests.e2e.test_mishaps import state
from tests.e2e.test_story import steps_in_journal
from tests.engine.harness import weights
from tests.engine.scripts import HELD

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
EPOCHS = 120
# From the fourth epoch on each waits for a file in its machine's own data folder, which the test puts into both.
SCRIPT = HELD.replace('folder + f"/stay-{epoch}"', 'os.environ["DATA_DIR"] + f"/go-{epoch}"').replace(
    "while os.path.exists", "while epoch > 2 and not os.path.exists"
)


@dataclass
class Pace:
    """How far the script may go."""

    machines: Collection[Joined]
    epoch: int = 2

    def go_on(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            self.epoch += 1
            for machine in self.machines:
                (machine.home / "data" / f"go-{self.epoch}").touch()

    def begin_anew(self) -> None:
        self.epoch = 2
        for machine in self.machines:
            for path in (machine.home / "data").glob("go-*"):
                path.unlink()


class Scene:
    """`run` may use both machines; `fixed`: the weights of the same on one. `home`: where its driver is now, `guest`: the other one."""

    def __init__(self, studio: Studio, machines: dict[str, Joined], code: Path) -> None:  # noqa: F811
        self.studio, self.machines, self.pace = studio, machines, Pace(machines.values())
        self._command, self._code = f"main.py --epochs {EPOCHS} --samples 115 --engines 4", code
        self.run = 0

    def begin(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self.until(lambda: all(machine.is_heard_of() for machine in self.machines.values()), "both have joined")
        drains(self.studio, local=True)
        self.fixed = weights_once(self._command, self._trains_on_one)
        may_use_several_machines(self.studio)
        self.run = submits(self.studio, self._code, command=self._command, folder="")
        self.is_on_both()

    def _trains_on_one(self) -> Path:
        self.pace.go_on(EPOCHS)
        fixed = submits(self.studio, self._code, command=self._command, folder="")  # its data is made by its code
        self.until(lambda: state(self.studio, fixed) == "completed", "one trains on one machine", deadline_s=180)
        self.pace.begin_anew()
        return self.studio.folder(fixed)

    def until(self, condition: Callable[[], object], what: str, *, every_s: float = 0.1, deadline_s: float = 60.0) -> None:
        wait_until(condition, lambda: f"{what}: {self._said()}", every_s=every_s, deadline_s=deadline_s)

    def _said(self) -> str:
        runs = self.studio.rows("SELECT id, state, plan_reason, state_reason FROM experiments_trainingrun")
        tails = "\n".join(machine.tail() for machine in self.machines.values())
        return f"{runs} {slots_of(self.studio, self.run)}\n{self.studio.tail()}\n{tails}"

    @property
    def home(self) -> Joined | None:
        query = "SELECT n.name FROM experiments_trainingrun r JOIN experiments_node n ON n.id = r.head_node_id WHERE r.id = ?"
        return self.machines.get("".join(name for (name,) in self.studio.rows(query, self.run)))

    @property
    def guest(self) -> Joined:
        (found,) = [machine for machine in self.machines.values() if machine is not self.home]
        return found

    @property
    def folder(self) -> Path:
        return self.studio.folder(self.run)

    def is_on_both(self) -> None:
        self.until(lambda: slots_of(self.studio, self.run) == {"beta": 2, "gamma": 2}, "it has slots on both")
        self.trains_with(4)

    def trains_with(self, workers: int) -> None:
        self.until(lambda: self.pace.go_on() or workers_of(self.studio, self.run) == workers, f"{workers} train", every_s=0.5)

    def gets_on(self) -> None:
        before = len(steps_in_journal(self.studio, self.run))
        self.pace.go_on(2)
        self.until(lambda: len(steps_in_journal(self.studio, self.run)) > before + 8, "it gets on")


def is_cut_off(machine: Joined, *, number: int) -> None:
    assert machine.process is not None
    machine.process.send_signal(number)


@pytest.fixture
def scene(studio: Studio, joined: Callable[..., Joined], tmp_path: Path) -> Scene:  # noqa: F811
    assert SCRIPT.count("go-") == 1
    lines = {name: f"{line_for(studio, name, slots=2)} --address 127.0.0.1" for name in ("beta", "gamma")}
    made = Scene(
        studio, {name: joined(name, line, data=False) for name, line in lines.items()}, zipped(tmp_path / "c.zip", {"main.py": SCRIPT})
    )
    made.begin()
    return made


def test_one_job_is_on_two_joined_machines_at_once_and_survives_either(scene: Scene, person: Callable[..., Page]) -> None:
    home, guest, folder = scene.home, scene.guest, scene.folder
    assert home is not None
    logs = (folder / f"log/agent-{guest.name}/console.log", folder / "log/driver/console.log")
    scene.until(lambda: all(log.is_file() for log in logs), "logs of both are in the studio")
    scene.until(lambda: len(list(folder.glob("log/worker-*"))) == 4, "and of all workers")
    assert "takes part in the training" in logs[0].read_text()
    scene.until((folder / f"agent-{guest.name}" / "ran").is_file, "what the script writes there is beside what it writes at home")

    is_cut_off(guest, number=signal.SIGSTOP)
    scene.trains_with(2)
    is_cut_off(guest, number=signal.SIGCONT)
    scene.trains_with(4)
    is_cut_off(home, number=signal.SIGSTOP)
    written = home.folder(scene.run) / "journal.jsonl"
    scene.until(lambda: scene.pace.go_on() or '"kind":"suspended"' in written.read_text(), "all of it stops", every_s=0.5)
    is_cut_off(home, number=signal.SIGCONT)
    scene.gets_on()

    guest.burns()
    scene.gets_on()
    guest.arrives()
    scene.is_on_both()
    home.burns()
    scene.until(lambda: scene.home is guest, "it goes on elsewhere")
    scene.pace.go_on(EPOCHS)
    scene.until(lambda: state(scene.studio, scene.run) == "completed", "it completes")
    assert all_steps_once(scene.studio, scene.run)
    assert weights(folder) == scene.fixed
    alice = person("alice")
    alice.goto(f"{scene.studio.url}/runs/{scene.run}/logs/")
    expect(alice.get_by_role("link", name=f"agent-{guest.name}")).to_be_visible()
