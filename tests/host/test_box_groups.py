"""What a run may take of its machine: real hogs in real control groups, beside a neighbour and a host that must not notice."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.groups import group_of, used
from tests.host.box import ATTEMPT, needs_groups, opened, try_in_the_box
from tests.host.conftest import HostUnderTest, is_root, until
from training_runtime.host import processes
from training_runtime.host.sandbox.cgroup_values import WITHOUT

MIB = 1 << 20


pytestmark = needs_groups
needs_root = pytest.mark.skipif(not is_root, reason="only root can give each run its own user")


def saved(host: HostUnderTest, run: int) -> dict:
    return next(each for each in host.saved()["runs"] if each["run"] == run)


def pids(host: HostUnderTest, run: int) -> list[int]:
    return [saved(host, run)["pid"], *(worker["pid"] for worker in saved(host, run)["workers"])]


def at_work(host: HostUnderTest, run: int, *slots: int, act: str = "obey") -> list[int]:
    host.want(host.spec(run, act), *slots)
    host.apply()
    host.until_holding(run, *slots)
    return pids(host, run)


def is_empty(host: HostUnderTest) -> bool:
    """No run has a group any more."""
    return not [group for base in host.groups() for group in base.glob("run-*")]


@pytest.fixture
def small(idle_host: HostUnderTest) -> HostUnderTest:
    """A host whose runs may have 192 MiB and 60 processes each."""
    idle_host.start(environment={"EDT_RUN_MEMORY": str(192 * MIB), "EDT_RUN_PROCESSES": "60"})
    return idle_host


@pytest.fixture(params=[pytest.param(True, marks=needs_root), False], ids=["own users", "one user"])
def each(request: pytest.FixtureRequest, tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> Iterator[HostUnderTest]:
    """The same, at both levels."""
    host = make_host(tmp_path)
    host.uid_base = host.uid_base if request.param else 0
    host.start(environment={"EDT_RUN_MEMORY": str(192 * MIB), "EDT_RUN_PROCESSES": "60"})
    yield host


def test_every_process_of_a_run_is_in_its_group_and_its_shim_and_the_host_are_not(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "stubborn"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    left = [int(pid) for pid in (host.result(7) / "pids").read_text().split()]  # one by exec, one forked twice in its own session
    for controller in used():
        assert {group_of(pid, controller).name for pid in (*pids(host, 7), *left)} == {"run-7.1"}
        for pid in (saved(host, 7)["shim"], host.process.pid, host.warm_pid()):
            assert "run-" not in str(group_of(pid, controller))
    assert any(note.startswith("a run may have ") and "8192 processes" in note for note in host.look().node.sandbox_notes)
    lacks = tuple(said for controller, said in WITHOUT.items() if controller != "io")  # whose weights few disks heed
    assert not any(note.startswith(lacks) for note in host.look().node.sandbox_notes)
    host.wanted.clear()
    host.apply()
    until(lambda: host.look().runs == ())
    until(lambda: is_empty(host), what="the group is gone with the run")


def test_user_code_can_change_no_group(each: HostUnderTest) -> None:
    findings = try_in_the_box(
        each,
        """
for line in Path("/proc/self/cgroup").read_text().splitlines():
    _, name, path = line.split(":", 2)
    for top in Path("/sys/fs/cgroup").iterdir() if Path("/sys/fs/cgroup/memory").is_dir() else [Path("/sys/fs/cgroup")]:
        group = Path(f"{top}{path}")
        if "run-7.1" in path:
            for file in (group / "cgroup.procs", group.parent / "cgroup.procs", group.parent.parent / "cgroup.procs", group / "tasks"):
                findings[f"leave {file}"] = attempt(lambda: os.close(os.open(file, os.O_WRONLY)))
            for limit in ("memory.max", "pids.max", "memory.limit_in_bytes", "cpu.shares", "blkio.bfq.weight", "io.weight"):
                findings[f"limit {group / limit}"] = attempt(lambda: os.close(os.open(group / limit, os.O_WRONLY)))
            findings[f"make in {group}"] = attempt((group / "own").mkdir)
""",
    )
    assert opened(findings) == {}
    refusals = [finding for finding in findings.values() if finding[0] != "FileNotFoundError"]  # each controller has its own names
    assert len(refusals) > 3 * len(used())


HOGS = {
    "memory": "held = []\nwhile True: held.append(b'x' * (8 << 20))",
    "memory that no process is charged with": (
        "import os\nfile = os.memfd_create('x')\nfor _ in range(100): os.write(file, b'x' * (8 << 20))\nraise SystemExit(0)"
    ),
    "memory of many children": (
        "import os, signal\nfor _ in range(40):\n  if os.fork() == 0:\n    held = b'x' * (16 << 20)\n    signal.pause()\n"
        "while True: assert os.wait()[1] == 0"
    ),
}


@pytest.mark.parametrize("hog", HOGS)
def test_a_hog_of_memory_ends_with_a_sentence_and_its_neighbour_and_the_host_live(small: HostUnderTest, hog: str) -> None:
    host = small
    neighbour = at_work(host, 8, 1)
    host.want(host.spec(7, "script", "main.py", code={"main.py": HOGS[hog]}), 2)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited", deadline_s=60)
    assert (seen.exit_code, seen.attempt) == (1, 1), host.console(7)
    assert seen.detail.startswith("The run's processes needed more than 192 MiB of memory, its limit"), seen.detail
    assert pids(host, 8) == neighbour
    assert not any(processes.look(pid) is None for pid in neighbour)
    assert host.process.poll() is None
    at_work(host, 9, 3)


def test_a_script_that_fails_for_another_reason_is_told_that(small: HostUnderTest) -> None:
    host = small
    host.want(host.spec(7, "script", "main.py", code={"main.py": "raise SystemExit(3)"}))
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.detail) == (3, "the driver ended with code 3")


FORKS = """
import signal, time
def bomb():
    children = []
    try:
        while len(children) < 300:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError as error:
        Path(os.environ["RESULT_DIR"], "stopped").write_text(f"{len(children)} {error.errno}")
    while not Path(os.environ["RESULT_DIR"], "end").exists():
        time.sleep(0.02)
bomb()
"""


def test_a_fork_bomb_stops_at_the_limit_and_others_begin_meanwhile(each: HostUnderTest) -> None:
    host = each
    host.want(host.spec(7, "script", "main.py", code={"main.py": ATTEMPT % FORKS}))
    host.apply()
    stopped = host.result(7) / "stopped"
    until(lambda: stopped.exists() and stopped.read_text(), deadline_s=40)
    count, number = map(int, stopped.read_text().split())
    assert 50 <= count < 60
    assert number == 11  # EAGAIN
    assert int((group_of(host.pid(7), "pids") / "pids.current").read_text()) == 60
    at_work(host, 8, 1)
    host.wanted.pop(7)
    host.apply()
    until(lambda: host.run(7) is None)
    until(lambda: [group.name for base in host.groups() for group in base.glob("run-7*")] == [])


def share(pid: int) -> int:
    """Of the processors, in slots."""
    group = group_of(pid, "cpu")
    shares = group / "cpu.shares"
    return round(int(shares.read_text()) / 1024) if shares.exists() else round(int((group / "cpu.weight").read_text()) / 100)


def test_the_share_of_the_processors_follows_the_slots(own_host: HostUnderTest) -> None:
    host = own_host
    at_work(host, 8, 5)
    driver, *_ = at_work(host, 7, 1)
    until(lambda: share(driver) == 1)
    for slots in ((1, 2, 3), (2,), ()):
        host.want(host.spec(7, "obey"), *slots)
        host.apply()
        host.until_holding(7, *slots)
        until(lambda slots=slots: share(driver) == len(slots))
    assert share(host.pid(8)) == 1


@pytest.mark.skipif("io" not in used(), reason="this machine has no weights of groups for its disks")
def test_the_share_of_the_disk_follows_the_slots(own_host: HostUnderTest) -> None:
    host = own_host
    at_work(host, 8, 5)
    driver, *_ = at_work(host, 7, 1)
    of_one = until(lambda: found if (found := disk_weights(driver)) == disk_weights(host.pid(8)) else None)
    assert of_one
    for slots in ((1, 2, 3), ()):
        host.want(host.spec(7, "obey"), *slots)
        host.apply()
        host.until_holding(7, *slots)
        expected = {name: len(slots) * weight or weight // 4 for name, weight in of_one.items()}
        until(lambda expected=expected: disk_weights(driver) == expected)
    assert disk_weights(host.pid(8)) == of_one


def disk_weights(pid: int) -> dict[str, int]:
    files = {file.name: file.read_text().split()[-1] for file in group_of(pid, "io").glob("*.weight") if not file.name.startswith("cpu.")}
    return {name: int(text) for name, text in files.items()}


BUSY = """
import os
for _ in range(3):
    if os.fork() == 0:
        while True:
            sum(range(1000))
import signal
signal.pause()
"""


def test_runs_that_compete_share_the_processors_by_slots_and_not_by_processes(own_host: HostUnderTest) -> None:
    """Both keep three processes busy; one holds three slots and the other none."""
    host = own_host
    host.want(host.spec(7, "script", "main.py", code={"main.py": BUSY}))
    host.want(host.spec(8, "compute"), 1, 2, 3)
    host.apply()
    host.until_holding(8, 1, 2, 3)
    hogs = until(lambda: found if len(found := children(host.pid(7))) == 3 else None)
    workers = pids(host, 8)[1:]

    def spent(of: list[int]) -> float:
        return sum(processes.processor_s(pid, processes.look(pid).start_ticks) for pid in of)

    before = spent(hogs), spent(workers)
    until(lambda: spent(workers) - before[1] > 3.0, deadline_s=60)
    assert spent(workers) - before[1] > 3 * (spent(hogs) - before[0])


def children(pid: int) -> list[int]:
    return sorted(processes.descendants({pid}, processes.table()))


def test_a_host_that_was_killed_leaves_nothing_and_the_next_goes_on_with_what_lives(own_host: HostUnderTest) -> None:
    host = own_host
    driver, *_ = at_work(host, 7, 1)
    at_work(host, 8, 2)
    shim = processes.look(saved(host, 8)["shim"])
    ended = [processes.look(pid) for pid in pids(host, 8)]
    host.kill()
    for process in ended:
        processes.send_signal(process, signal.SIGKILL)
    until(lambda: not processes.alive(shim.pid, shim.start_ticks))
    assert any(base.glob("run-8.1") for base in host.groups())
    host.start()
    host.wanted.pop(8)
    host.want(host.spec(7, "obey"), 1, 3)
    host.apply()
    host.until_holding(7, 1, 3)
    until(lambda: share(driver) == 2)
    until(lambda: {group.name for base in host.groups() for group in base.glob("run-*")} == {"run-7.1"})
    assert host.terminate() == 0
    assert processes.look(driver) is None
    assert host.groups()
    assert not any(base.exists() for base in host.groups())


def test_a_limit_that_is_none_is_said_at_the_start_of_the_host(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_RUN_MEMORY": "7"}, wait=False)
    assert idle_host.process.wait(20) == 2
    assert "EDT_RUN_MEMORY=7: a share of the machine's memory up to 1, or bytes from" in idle_host.log()


def test_without_a_box_there_are_no_groups_either(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_SANDBOX": "off"})
    driver, *_ = at_work(idle_host, 7, 1)
    assert "run-" not in str(group_of(driver, "memory"))
    assert idle_host.groups() == []


def test_the_findings_of_a_run_say_where_it_was(own_host: HostUnderTest) -> None:
    """A script sees its own limits, so that a person can look."""
    findings = try_in_the_box(own_host, 'findings["own"] = attempt(lambda: Path("/proc/self/cgroup").read_text())')
    assert "run-7.1" in json.dumps(findings["own"])
