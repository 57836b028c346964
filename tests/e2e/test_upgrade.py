"""The studio is upgraded while runs train, then the host of its machine, then a machine that has joined: no run loses or repeats a step,
and each side works with the one that is a version behind. The commands are those that docs/operations.md prints."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import releases
from tests.e2e.bundles import digits
from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import (
    all_steps_once,
    completes,
    driver,
    gets_on,
    host,
    hurry,
    paced_digits,
    straight_weights,
    submits,
    trains_on,
    with_digits,
)
from tests.e2e.studio import Studio, printed_commands, wait_until
from tests.e2e.test_story import journal
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(590)]
EPOCHS = "main.py --epochs 8"


@pytest.fixture
def installed() -> Iterator[Path]:
    """Where this release is installed: for the studio, and for the machine that joins. Runs' own users must reach it."""
    folder = Path(tempfile.mkdtemp(prefix="edt-releases-"))
    folder.chmod(0o755)
    try:
        for name in ("studio", "beta"):
            releases.install(folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lease_s() -> int:
    return 2


@pytest.fixture
def studio(installed: Path, lease_s: int) -> Iterator[Studio]:
    settings = {"EDT_NODE_LEASE_S": str(lease_s), **releases.SETTINGS}
    with with_digits(Studio(slots=2, settings=settings, code=installed / "studio")) as studio:
        yield studio


@pytest.fixture
def beta(studio: Studio, installed: Path) -> Iterator[Joined]:
    line = line_for(studio, "beta", slots=2)
    machine = Joined(studio, "beta", line, data=studio.home / "data", code=installed / "beta", settings=releases.SETTINGS)
    try:
        yield machine
    finally:
        machine.close()


def speaks(studio: Studio, node: str) -> int | None:
    return studio.rows("SELECT protocol_version FROM experiments_node WHERE name = ?", node)[0][0]


def types(studio: Studio, part: str) -> None:
    """The one command of the section on upgrades that has these words in it."""
    (command,) = [line.replace(sys.executable, studio.python) for line in printed_commands("## Upgrade") if part in line]
    subprocess.run(["sh", "-c", command], cwd=studio.code, env=studio.environment, check=True, capture_output=True)


@dataclass
class Scene:
    """A run `here`, on the studio's machine, and one `there`, on the machine that has joined, with what was at work when they began.
    `straight`: the weights of one like them that nobody disturbed. `old`: the versions that are spoken before the upgrade, on either."""

    studio: Studio
    beta: Joined
    installed: Path
    straight: str
    here: int
    there: int
    drivers: tuple[int, int] = (0, 0)
    hosts: tuple[int, int] = (0, 0)
    old: tuple[int, int] = (0, 0)

    def note(self) -> None:
        self.drivers, self.hosts = self.drivers_now(), self.hosts_now()
        code = self.installed / "beta"
        self.old = releases.spoken(code, "protocol"), releases.spoken(code, "node/messages")

    def drivers_now(self) -> tuple[int, int]:
        return driver(self.studio.home, "local", self.here), driver(self.beta.home, "beta", self.there)

    def hosts_now(self) -> tuple[int, int]:
        return host(self.studio.home, "local"), host(self.beta.home, "beta")

    def words(self) -> str:
        return f"{self.studio.tail()}\n{self.beta.tail()}"

    def trains_on(self, run: int, what: str) -> None:
        trains_on(self.studio, run, steps=3, words=f"{what}\n{self.beta.tail()}", deadline_s=90)

    def upgrades_the_studio(self) -> None:
        types(self.studio, "stop --keep-training")
        assert self.studio.process is not None
        assert self.studio.process.wait(10) == 0
        self.trains_on(self.here, "while no studio is there")
        releases.upgrade(self.installed / "studio")
        self.studio.start()
        self.trains_on(self.here, "under the next release")
        gets_on(self.studio, self.there, on="beta")
        for log in (self.studio.home / "log" / "host.log", self.beta.log):
            wait_until(
                lambda log=log: "a message of the studio is left out" in log.read_text(), f"{log}: what it does not know is left out"
            )

    def upgrades_the_host(self) -> None:
        types(self.studio, "stop --host-only")
        wait_until(lambda: speaks(self.studio, "local") == self.old[0] + 1, lambda: f"its host is upgraded\n{self.words()}")
        self.trains_on(self.here, "under the next host")

    def upgrades_the_machine(self) -> None:
        releases.upgrade(self.installed / "beta")
        first = self.beta.process
        assert first is not None
        self.beta.start("--replace")
        assert first.wait(20) == -signal.SIGKILL
        wait_until(lambda: speaks(self.studio, "beta") == self.old[1] + 1, lambda: f"it has joined as the next release\n{self.words()}")
        gets_on(self.studio, self.there, on="beta")


@pytest.fixture
def scene(studio: Studio, beta: Joined, installed: Path, tmp_path: Path) -> Scene:
    code = paced_digits(tmp_path)
    scene = Scene(studio, beta, installed, straight_weights(studio, code, command=EPOCHS), 0, 0)
    scene.here = submits(studio, code, command=EPOCHS)
    gets_on(studio, scene.here, on="local")
    beta.arrives()
    scene.there = submits(studio, code, command=EPOCHS)
    gets_on(studio, scene.there, on="beta")
    scene.note()
    return scene


def test_studio_host_and_a_joined_machine_are_upgraded_while_runs_train(scene: Scene, tmp_path: Path) -> None:
    studio = scene.studio
    scene.upgrades_the_studio()
    assert studio.rows("SELECT 1 FROM sqlite_master WHERE name LIKE 'experiments_nextrelease%'"), "the database is that of the next release"
    assert (scene.hosts_now(), scene.drivers_now()) == (scene.hosts, scene.drivers)
    assert (speaks(studio, "local"), speaks(studio, "beta")) == scene.old, "both are a version behind"
    completes(studio, submits(studio, digits(tmp_path, part_s=0), command="main.py --epochs 1"))

    scene.upgrades_the_host()
    assert (scene.hosts_now()[0] != scene.hosts[0], scene.drivers_now()) == (True, scene.drivers)
    scene.upgrades_the_machine()
    assert (scene.hosts_now()[1] != scene.hosts[1], scene.drivers_now()) == (True, scene.drivers)

    all_went_well(scene)


@pytest.mark.parametrize("lease_s", [15])
def test_what_is_two_versions_behind_is_refused_or_replaced_and_its_runs_go_on_once_it_is_upgraded(scene: Scene) -> None:
    studio, beta, released = scene.studio, scene.beta, scene.installed
    types(studio, "stop --keep-training")
    for _ in range(2):
        releases.upgrade(released / "studio")
    studio.start()
    scene.trains_on(scene.here, "under a host of the new release")
    wait_until(lambda: speaks(studio, "local") == scene.old[0] + 2, scene.words)
    assert (scene.hosts_now()[0] != scene.hosts[0], scene.drivers_now()[0]) == (True, scene.drivers[0])

    wait_until(lambda: "and this machine version" in beta.log.read_text(), lambda: f"it is told who is behind\n{scene.words()}")
    assert "edt-node join --replace" in beta.log.read_text()
    written = beta.folder(scene.there) / "journal.jsonl"
    wait_until(lambda: '"kind":"suspended"' in written.read_text(), lambda: f"its run suspends by itself\n{scene.words()}")
    assert (scene.hosts_now()[1], speaks(studio, "beta")) == (scene.hosts[1], scene.old[1])
    for _ in range(2):
        releases.upgrade(released / "beta")
    beta.start("--replace")
    gets_on(studio, scene.there, on="beta")
    assert speaks(studio, "beta") == scene.old[1] + 2
    all_went_well(scene)


def all_went_well(scene: Scene) -> None:
    """Both runs end with every step done once, by the drivers that they began with, and the bits of the one that nobody disturbed."""
    studio = scene.studio
    hurry(studio)
    for run in (scene.here, scene.there):
        completes(studio, run, words=scene.beta.tail())
        assert all_steps_once(studio, run)
        assert weights(studio.folder(run)) == scene.straight
        assert [event["kind"] for event in journal(studio, run)].count("started") == 1, "its driver was the same throughout"
    assert studio.held() == {}
