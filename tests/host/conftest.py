"""A real node host in a process of its own for each test that asks for one, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests import groups
from training_runtime.errors import HostUnavailable
from training_runtime.host import client, processes
from training_runtime.host.sandbox import kernel
from training_runtime.protocol import Apply, Observation, RunObservation, RunSpec, SlotRef, WantedRun
from training_runtime.user_ids import mapped_ids

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = "here"
T = TypeVar("T")
is_root = os.geteuid() == 0
has_landlock = kernel.landlock_abi() > 0
_rootless = is_root and mapped_ids() < 1_000_000  # tests/host/test_rootless.py runs some of the tests there
_bases = itertools.cycle(range(1000, 15_000, 1000)) if _rootless else itertools.count(1_000_000 + os.getpid() % 1000 * 1_000_000, 1000)


def until(condition: Callable[[], T], *, deadline_s: float = 20.0, what: str | Callable[[], str] = "") -> T:
    """The first true value of `condition`; fails after the deadline."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what() if callable(what) else what or condition}"
        time.sleep(0.005)
    return value


def slots(*ids: int, node: str = NODE) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(i, node, i, "cpu") for i in ids)


def has_ended(pid: int) -> bool:
    """Also where its parent has not taken notice of it yet: nothing of it is left but its number."""
    found = processes.look(pid)
    return found is None or found.state == "Z"


class HostUnderTest:
    """A node host process and what the studio would do with it."""

    def __init__(self, home: Path, uid_base: int, node: str = NODE) -> None:
        self.home = home
        self.node = node
        self.uid_base = uid_base
        self.folder = home / "host" / node
        self.log_file = home / ("host.log" if node == NODE else f"host-{node}.log")
        self.process: subprocess.Popen[bytes] | None = None
        self.revision = 0
        self.wanted: dict[int, WantedRun] = {}
        self._log_begins = 0

    def start(
        self,
        *,
        environment: dict[str, str] | None = None,
        preload: str = "",
        wait: bool = True,
        driver: str = "tests.host.puppet:main",
        arguments: tuple[str, ...] = (),
    ) -> None:
        command = [sys.executable, "-m", "training_runtime.host", "--home", str(self.home), "--node", self.node]
        command += ["--driver", driver, "--preload", preload, *arguments]
        base = {
            "PATH": os.environ["PATH"],
            "EDT_UID_BASE": str(self.uid_base),
            "EDT_STOP_GRACE_S": "0.5",
            "EDT_MAX_RESTARTS": "3",
            "EDT_TERM_GRACE_S": "0.2",
        }
        base |= {"EDT_ORPHAN_GRACE_S": "0.5", "EDT_STOPPED_DRIVER_S": "0.5", "EDT_AGENT_PAUSE_S": "0.005"}
        with open(self.log_file, "ab") as output:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, env=base | (environment or {}), stdout=output, stderr=output)
        if wait:
            until(lambda: self.is_up() or self.process.poll() is not None, what="the host is up", deadline_s=60)
            assert self.process.poll() is None, self.log()

    def is_up(self) -> bool:
        with contextlib.suppress(HostUnavailable):
            return self.look().warm
        return False

    def log(self) -> str:
        """What the host has logged during this test."""
        return self.log_file.read_text()[self._log_begins :]

    def warm_pid(self) -> int:
        return int(self.log_file.read_text().rsplit("the warm process is ready pid=", 1)[1].split()[0])

    def forget_everything(self) -> None:
        """As new for the next test; the host itself stays."""
        self.wanted.clear()
        self.apply()
        until(lambda: self.look().runs == (), what="every run of the test before has ended")
        for entry in self.home.iterdir():
            if not entry.name.startswith("host"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._log_begins = len(self.log_file.read_text())

    def spec(
        self, run: int, *argv: str, code: dict[str, str] | None = None, env: dict[str, str] | None = None, attempt: int = 1
    ) -> RunSpec:
        code_dir, result_dir, data_dir = self.home / "code" / str(run), self.home / "runs" / str(run), self.home / "data"
        for folder in (code_dir, result_dir, data_dir):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in (code or {}).items():
            (code_dir / name).write_text(text)
        return RunSpec(run, f"run {run}", "alice", argv, str(code_dir), str(result_dir), str(data_dir), 4, env or {}, attempt)

    def want(self, spec: RunSpec, *slot_ids: int, reason: str = "alice asked", stop: bool = False) -> None:
        self.wanted[spec.run] = WantedRun(spec, slots(*slot_ids, node=self.node), reason, stop)

    def apply(self) -> Observation:
        self.revision += 1
        return client.apply(self.home, self.node, Apply(self.revision, tuple(self.wanted.values())))

    def send(self, **given: object) -> Observation:
        """An Apply with these fields beside the runs that are wanted."""
        return client.apply(self.home, self.node, Apply(runs=tuple(self.wanted.values()), **given))  # type: ignore[arg-type]

    def look(self) -> Observation:
        """The present observation, without changing anything."""
        for observation in client.subscribe(self.home, self.node, timeout_s=5):
            return observation
        raise AssertionError("the host says nothing")

    def run(self, number: int) -> RunObservation | None:
        return next((run for run in self.look().runs if run.run == number), None)

    def until_run(self, number: int, condition: Callable[[RunObservation], bool], *, deadline_s: float = 20.0) -> RunObservation:
        last: list[RunObservation | None] = [None]

        def holds() -> RunObservation | None:
            last[0] = self.run(number)
            return last[0] if last[0] is not None and condition(last[0]) else None

        try:
            found = until(holds, deadline_s=deadline_s)
        except AssertionError:
            raise AssertionError(f"run {number} is still {last[0]}\n{self.log()}\n{self.console(number)}") from None
        assert found is not None
        return found

    def until_holding(self, number: int, *slot_ids: int) -> RunObservation:
        """Until it holds exactly these slots and has a worker on each."""
        return self.until_run(number, lambda run: run.holding == slot_ids and self.saved_workers(number) == set(slot_ids))

    def saved_workers(self, number: int) -> set[int]:
        return {worker["slot"] for run in self.saved()["runs"] if run["run"] == number for worker in run["workers"]}

    def saved(self) -> dict:
        return json.loads((self.folder / "state.json").read_text())

    def pid(self, number: int) -> int:
        return next(run["pid"] for run in self.saved()["runs"] if run["run"] == number)

    def result(self, run: int) -> Path:
        return self.home / "runs" / str(run)

    def console(self, run: int) -> str:
        path = self.result(run) / "log" / "driver" / "console.log"
        return path.read_text() if path.exists() else ""

    def terminate(self, deadline_s: float = 20) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(deadline_s)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[processes.Process]:
        """Everything alive that this host or one of its runs has started, other hosts' left out."""
        found = processes.table()
        mine = {self.process.pid} if self.process else set()
        members = processes.descendants(mine, found) | mine
        for process in found.values():
            if 0 < self.uid_base <= process.uid < self.uid_base + 1000 or _names(process.pid, str(self.home)):
                members.add(process.pid)
        members |= groups.members(self.folder).keys()
        members |= processes.descendants(members, found)
        return [found[pid] for pid in members if pid in found and found[pid].state not in "ZX" and pid != os.getpid()]

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        until(self.all_killed, what="every process of the test is gone")
        until(
            lambda: self.all_killed() and groups.are_gone(self.folder),
            deadline_s=60.0,
            what=lambda: f"every control group of the test is gone: {groups.members(self.folder)}",
        )

    def groups(self) -> list[Path]:
        """The control groups around those of its runs, one a hierarchy."""
        return groups.around_runs(self.folder)

    def all_killed(self) -> bool:
        """Kills what is left of the test; true once that is nothing."""
        left = self.processes()
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        return not left


def _names(pid: int, text: str) -> bool:
    with contextlib.suppress(OSError):
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.fixture
def make_host() -> Iterator[Callable[..., HostUnderTest]]:
    """For a home of the test's own choosing; not started yet. Another node of one home gives runs the same users, as it must."""
    made: list[HostUnderTest] = []

    def make(home: Path, node: str = NODE) -> HostUnderTest:
        home.mkdir(parents=True, exist_ok=True)
        base = next((host.uid_base for host in made if host.home == home), None)
        made.append(HostUnderTest(home, next(_bases) if base is None else base, node))
        return made[-1]

    try:
        yield make
    finally:
        for host in made:
            host.clean_up()


@pytest.fixture
def idle_host(tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> HostUnderTest:
    """Not started yet."""
    return make_host(tmp_path)


@pytest.fixture
def own_host(idle_host: HostUnderTest) -> HostUnderTest:
    """For tests that kill it or shut it down."""
    idle_host.start()
    return idle_host


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test module that names USERS is run with each of them."""
    if "users" in metafunc.fixturenames and hasattr(metafunc.module, "USERS"):
        metafunc.parametrize("users", metafunc.module.USERS, scope="module")


@pytest.fixture(scope="module")
def users() -> str:
    """ "one user": runs keep the studio's own, as where it is not root."""
    return "own users"


@pytest.fixture(scope="module")
def shared_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, users: str) -> Iterator[HostUnderTest]:
    if hasattr(request.module, "USERS"):
        if users == "own users" and not is_root:
            pytest.skip("only root can give each run its own user")
        if users == "one user" and not has_landlock:
            pytest.skip("this kernel has no Landlock")
    host = HostUnderTest(tmp_path_factory.mktemp("host"), next(_bases) if users == "own users" else 0)
    try:
        host.start()
        yield host
    finally:
        host.clean_up()


@pytest.fixture
def host(shared_host: HostUnderTest) -> Iterator[HostUnderTest]:
    """Running, and without any run."""
    if shared_host.process is None or shared_host.process.poll() is not None:
        shared_host.start()
    yield shared_host
    shared_host.forget_everything()
