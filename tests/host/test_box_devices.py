"""The wall between a run and GPUs of other runs, by real control groups of both versions.

No GPU is needed: the kernel asks the group before it looks for a driver, so the opening of a device that is allowed fails since there is
none (ENXIO), and of another since it is refused (EPERM).
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests.groups import group_of
from tests.host.conftest import NODE, HostUnderTest, until
from training_runtime import processor
from training_runtime.errors import SandboxRefused
from training_runtime.host.actions import TellMembers
from training_runtime.host.node import Node
from training_runtime.host.runs import begin, talk
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sandbox import cgroup, cgroup_bases, device_wall
from training_runtime.host.sandbox.cgroup_values import WALLED, WITHOUT, Places, Version, places
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.host.settings import parse
from training_runtime.host.sockets import LineSocket
from training_runtime.processor import Gpu
from training_runtime.protocol import RunSpec, SlotRef, WantedRun
from training_runtime.variables import GPU_UUIDS

GIB = 1 << 30
ALLOWED, REFUSED = errno.ENXIO, errno.EPERM
OPENER = """
import os, sys
open(sys.argv[1], "w").write("0")
for path in sys.stdin:
    try:
        os.close(os.open(path.strip(), os.O_RDWR))
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Opener:
    """A process in a group, which opens devices that are made in `folder`."""

    def __init__(self, folder: Path, door: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-c", OPENER, str(door)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def open(self, minor: int, major: int = 195) -> int:
        """0, or the number of the error."""
        path = self._folder / f"{major}-{minor}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


def of_version(version: Version) -> Places:
    """Where this process is, as if there were nothing but that hierarchy."""
    found = places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    if version == 2:
        return Places({}, found.unified)
    return Places({name: at for name, at in found.own.items() if name == "devices"}, None)


def begun(version: Version, folder: Path, devices: tuple[int, ...] | None = ()) -> cgroup.Groups:
    return cgroup_bases.begin_in(of_version(version), folder, memory=None, processes=9, machine_bytes=GIB, devices=devices)


def wall_note(notes: tuple[str, ...]) -> str:
    return next((note for note in notes if note.startswith(WITHOUT["devices"])), "")


def has_driver() -> bool:
    return any(line.split()[0] == "195" for line in Path("/proc/devices").read_text().splitlines() if line.split()[1:])


@pytest.fixture
def devices_can_be_made(tmp_path: Path) -> None:
    if has_driver():
        pytest.skip("this machine has NVIDIA's driver: that a device may be opened does not show as ENXIO")
    try:
        os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")


def skip_without_a_wall(tried: cgroup.Groups) -> None:
    tried.end()
    if not tried.keep_devices:
        pytest.skip(f"not on this machine: {wall_note(tried.notes)}")


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest, tmp_path: Path, devices_can_be_made: None) -> Version:
    """One that works on this machine."""
    for name in ("tried", "host"):
        (tmp_path / name).mkdir()
    skip_without_a_wall(begun(request.param, tmp_path / "tried"))
    return request.param


@pytest.fixture
def groups(version: Version, tmp_path: Path) -> Iterator[cgroup.Groups]:
    made = begun(version, tmp_path / "host", devices=(4, 1))
    yield made
    made.end()


@pytest.fixture
def in_group(tmp_path: Path) -> Iterator[Callable[[cgroup.Groups], Opener]]:
    """Starts a process in the group "run-7.1"."""
    started: list[Opener] = []

    def start(groups: cgroup.Groups) -> Opener:
        (door,) = groups.doors("run-7.1")
        started.append(Opener(tmp_path, Path(door)))
        return started[-1]

    yield start
    for opener in started:
        opener.end()


def test_a_gpu_opens_with_its_slot_and_closes_without_it(groups: cgroup.Groups, in_group: Callable[[cgroup.Groups], Opener]) -> None:
    assert WALLED in groups.words()
    groups.make("run-7.1")
    opener = in_group(groups)
    try_all = functools.partial(map, opener.open, (4, 1, 0, 253))
    assert list(try_all()) == [REFUSED] * 4
    assert opener.open(254) == opener.open(255) == ALLOWED, "the controls"
    assert opener.open(3, major=1) == 0, "/dev/null"
    groups.open_gpus("run-7.1", {0})  # its number in the studio; its minor is 4
    assert list(try_all()) == [ALLOWED, REFUSED, REFUSED, REFUSED]
    groups.open_gpus("run-7.1", {0, 1})
    assert list(try_all()) == [ALLOWED, ALLOWED, REFUSED, REFUSED]
    groups.settle_gpus({"run-7.1": {1}, "run-8.1": {0}})  # 8 waits, it has no group yet
    assert list(try_all()) == [REFUSED, ALLOWED, REFUSED, REFUSED]
    groups.settle_gpus({"run-7.1": ()})
    assert list(try_all()) == [REFUSED] * 4
    assert opener.open(255) == ALLOWED


def test_the_next_attempt_under_the_same_name_begins_without_a_gpu(
    groups: cgroup.Groups, in_group: Callable[[cgroup.Groups], Opener]
) -> None:
    groups.make("run-7.1")
    groups.open_gpus("run-7.1", {0})
    groups.make("run-7.1")
    assert in_group(groups).open(4) == REFUSED


def test_the_next_host_goes_on_with_the_walls_of_its_runs(
    version: Version, groups: cgroup.Groups, in_group: Callable[[cgroup.Groups], Opener], tmp_path: Path
) -> None:
    groups.make("run-7.1")
    groups.open_gpus("run-7.1", {0})
    opener = in_group(groups)
    assert opener.open(4) == ALLOWED  # it has moved itself, so the group is in use
    later = begun(version, tmp_path / "host", devices=(4, 1))
    assert (opener.open(4), opener.open(1)) == (ALLOWED, REFUSED), "until it is told otherwise"
    later.settle_gpus({"run-7.1": {1}})
    assert (opener.open(4), opener.open(1)) == (REFUSED, ALLOWED)


def test_a_host_that_is_not_asked_any_more_takes_the_walls_of_its_runs_down(
    version: Version, groups: cgroup.Groups, in_group: Callable[[cgroup.Groups], Opener], tmp_path: Path
) -> None:
    groups.make("run-7.1")
    opener = in_group(groups)
    assert opener.open(4) == REFUSED
    assert not begun(version, tmp_path / "host", devices=None).keep_devices
    assert opener.open(4) == ALLOWED
    opener.process.communicate()
    begun(version, tmp_path / "host", devices=None)
    assert not Path(groups.doors("run-7.1")[0]).parent.parent.exists(), "it was found when its run had ended"


def test_a_group_of_an_earlier_host_without_a_wall_gets_none(version: Version, tmp_path: Path) -> None:
    groups = begun(version, tmp_path / "host")
    groups.make("run-7.1")
    leaf = Path(groups.doors("run-7.1")[0]).parent
    device_wall.tear_down(leaf)
    assert device_wall.stands(leaf, version) is (version == 1)
    groups.end()


def test_where_no_group_can_have_a_wall_that_is_said(tmp_path: Path) -> None:
    nowhere = cgroup_bases.begin_in(Places({}, None), tmp_path, memory=None, processes=9, machine_bytes=GIB, devices=())
    assert not nowhere.keep_devices
    assert wall_note(nowhere.words())
    unasked = cgroup_bases.begin_in(Places({}, None), tmp_path, memory=None, processes=9, machine_bytes=GIB)
    assert not wall_note(unasked.words())


@pytest.mark.parametrize("version", [1], indirect=True, ids=["version 1"])  # with version 2 programs hold beside each other
def test_in_a_container_with_a_list_of_devices_of_its_own_there_is_no_wall(version: Version, tmp_path: Path) -> None:
    group, top = of_version(version).own["devices"]
    container = Path(group, f"edt-test-{os.getpid()}")
    container.mkdir()
    try:
        (container / "devices.deny").write_text("a")
        (container / "devices.allow").write_text("c 195:* rw")
        found = Places({"devices": (str(container), top)}, None)
        groups = cgroup_bases.begin_in(found, tmp_path / "host", memory=None, processes=9, machine_bytes=GIB, devices=())
        left = cgroup.leaves(container)
        groups.end()
        assert not groups.keep_devices
        assert "has a list of devices of its own" in wall_note(groups.notes)
        assert left == [], "nothing is left of the trial"
    finally:
        container.rmdir()


@pytest.fixture
def walled_host(own_host: HostUnderTest, tmp_path: Path, devices_can_be_made: None) -> HostUnderTest:
    (tmp_path / "tried").mkdir()
    skip_without_a_wall(cgroup_bases.begin(tmp_path / "tried", memory=None, processes=9, machine_bytes=GIB, devices=()))
    own_host.terminate()
    own_host.start(environment={"EDT_SANDBOX_DEVICES": "1"})
    return own_host


def a_slot(number: int) -> SlotRef:
    return SlotRef(number + 10, NODE, number, "gpu")


def test_a_run_can_open_the_gpus_of_its_slots_alone_under_the_next_host_too(walled_host: HostUnderTest, tmp_path: Path) -> None:
    host = walled_host
    assert WALLED in host.look().node.sandbox_notes
    host.wanted[7] = WantedRun(host.spec(7, "obey"), (a_slot(0),), "alice asked")
    host.apply()
    host.until_holding(7, 10)
    opener = Opener(tmp_path, group_of(host.pid(7), "devices") / "cgroup.procs")
    assert group_of(host.pid(7), "devices").name == "run-7.1"
    assert (opener.open(0), opener.open(1)) == (ALLOWED, REFUSED)
    host.wanted[7] = dataclasses.replace(host.wanted[7], slots=(a_slot(0), a_slot(1)))
    host.apply()
    host.until_holding(7, 10, 11)
    assert (opener.open(0), opener.open(1)) == (ALLOWED, ALLOWED)
    host.kill()
    host.start(environment={"EDT_SANDBOX_DEVICES": "1"})
    assert (opener.open(0), opener.open(1)) == (ALLOWED, ALLOWED), "it knows on which GPUs it finds the run"
    host.wanted[7] = dataclasses.replace(host.wanted[7], slots=(a_slot(1),))
    host.apply()
    host.until_holding(7, 11)
    until(lambda: opener.open(0) == REFUSED, what="the GPU that was given back is closed")
    assert opener.open(1) == ALLOWED
    opener.end()


class Recorder(cgroup.Groups):
    """Notes what it is asked for, and what the driver has heard by then."""

    def __init__(self, driver: LineSocket) -> None:
        super().__init__()
        self.driver, self.asked = driver, list[tuple[str, set[int], list[bytes]]]()

    def open_gpus(self, name: str, numbers: Collection[int]) -> None:
        self.asked.append((name, set(numbers), self.driver.receive()[0]))
        if 9 in numbers:
            raise OSError(errno.ENOMEM, "no memory")


def test_a_gpu_is_open_before_the_driver_is_told_of_its_slot_and_until_nothing_is_on_it(tmp_path: Path) -> None:
    ours, theirs = map(LineSocket, socket.socketpair())
    groups = Recorder(theirs)
    node, run = Node(tmp_path, groups), LiveRun(7, 1, str(tmp_path), phase="alive", link=ours)
    for revision, slots in enumerate([(a_slot(0),), (a_slot(1), SlotRef(30, NODE, 5, "cpu"))], 1):
        talk.tell(node, run, TellMembers(7, slots, "alice asked"), revision=revision)
        assert len(theirs.receive()[0]) == 1
    assert groups.asked == [("run-7.1", {0}, []), ("run-7.1", {0, 1}, [])], "the first may still be in use"
    run.told = run.told[-1:]  # the driver has gone beyond the first, and has no worker there
    assert run.gpus() == {1}
    talk.tell(node, run, TellMembers(7, (a_slot(9),), "alice asked"), revision=3)
    assert "the GPUs of its slots cannot be opened to it: [Errno 12] no memory" in run.problem
    node.unwatch(ours)
    ours.close()
    theirs.close()


def test_where_it_is_asked_for_and_cannot_be_had_a_run_is_refused(idle_host: HostUnderTest) -> None:
    host = idle_host
    host.start(environment={"EDT_SANDBOX_DEVICES": "1", "EDT_SANDBOX": "off"})
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    seen = host.until_run(7, lambda seen: seen.state == "exited")
    assert seen.detail.startswith("EDT_SANDBOX_DEVICES asks that a run can open the GPUs of its slots alone, and on this machine")


def test_a_run_is_told_the_names_of_the_gpus_where_it_cannot_open_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def environment_of(*uuids: str, asked: str = "1") -> dict[str, str]:
        gpus = tuple(Gpu(minor, "NVIDIA H200", uuid) for minor, uuid in enumerate(uuids))
        monkeypatch.setattr(processor, "gpu_list", lambda: gpus)
        given = parse(["--home", str(tmp_path), "--node", NODE], {"EDT_SANDBOX_DEVICES": asked, "EDT_UID_BASE": "0"})
        spec = RunSpec(7, "probe", "alice", ("main.py",), str(tmp_path), str(tmp_path), "", 1)
        run, able = LiveRun(7, 1, str(tmp_path), spec=spec), Abilities("off", private=False, notes=())
        return begin.compose(run, settings=given, abilities=able, warm={}).environment

    assert environment_of("GPU-aa", "GPU-bb")[GPU_UUIDS] == "GPU-aa,GPU-bb"
    assert GPU_UUIDS not in environment_of("GPU-aa", asked="0")
    assert GPU_UUIDS not in environment_of(), "there is none"
    with pytest.raises(SandboxRefused, match="tells no UUID of a GPU that it has not started"):
        environment_of("GPU-aa", "GPU-????????-????-????-????-????????????")
