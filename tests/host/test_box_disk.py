"""What a run may take of the disk: real code that writes without end, beside a neighbour and a host that must not notice."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.disk import small_disk
from tests.host.box import ATTEMPT
from tests.host.conftest import HostUnderTest, until
from tests.host.test_box_groups import at_work, pids
from training_runtime.host import processes
from training_runtime.protocol import RunObservation

MIB = 1 << 20
LIMITS = {"EDT_RUN_DISK": str(32 * MIB), "EDT_RUN_FILES": "2000"}


@pytest.fixture
def small(idle_host: HostUnderTest) -> Iterator[HostUnderTest]:
    """A host whose runs may have 32 MiB of the disk and 2,000 files and folders each. What they have nested goes by a program that
    goes as deep as there is anything."""
    idle_host.start(environment=LIMITS)
    yield idle_host
    idle_host.clean_up()
    subprocess.run(["rm", "-rf", str(idle_host.home / "runs")], check=True)


def run_script(host: HostUnderTest, code: str, *slots: int, run: int = 7) -> None:
    host.want(host.spec(run, "script", "main.py", code={"main.py": "import os, time\n" + code}), *slots)
    host.apply()


def ended(host: HostUnderTest, run: int = 7) -> RunObservation:
    """Once, and not begun again."""
    seen = host.until_run(run, lambda run: run.state == "exited", deadline_s=60)
    assert (seen.exit_code, seen.attempt) == (1, 1), f"{seen} {host.console(run)}"
    return seen


def undisturbed(host: HostUnderTest, run: int, members: list[int]) -> None:
    assert pids(host, run) == members
    assert not any(processes.look(pid) is None for pid in members)
    assert host.process.poll() is None
    assert host.look().storage_problem == ""


MUCH = "The run was ended: its files take "
MANY = "The run was ended: it has more than 2,000 files and folders, its limit on this machine."
HOGS = {
    "files": (
        "n = 0\nwhile True:\n  n += 1\n  with open(f'file-{n}', 'wb') as file: file.write(b'x' * (1 << 18))\n  time.sleep(0.002)\n",
        MUCH,
    ),
    "one file": (
        "file = open(os.environ['RESULT_DIR'] + '/model/large', 'wb')\nwhile True:\n  file.write(b'x' * (1 << 18))\n  time.sleep(0.002)\n",
        MUCH,
    ),
    "a file without a name": (
        "file = open('gone', 'wb')\nos.unlink('gone')\nwhile True:\n  file.write(b'x' * (1 << 18))\n  time.sleep(0.002)\n",
        MUCH,
    ),
    "a daemon": (
        "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    file = open(os.environ['TMPDIR'] + '/x', 'wb')\n    while True:\n"
        "      file.write(b'x' * (1 << 18))\n      time.sleep(0.002)\n  os._exit(0)\nos.wait()\ntime.sleep(1000)\n",
        MUCH,
    ),
    "empty files": ("n = 0\nwhile True:\n  n += 1\n  open(f'file-{n}', 'w').close()\n  time.sleep(0.0005)\n", MANY),
    "names of one file": (
        "n = 0\nopen('one', 'w').close()\nwhile True:\n  n += 1\n  os.link('one', f'name-{n}')\n  time.sleep(0.0005)\n",
        MANY,
    ),
    "folders beside each other": ("n = 0\nwhile True:\n  n += 1\n  os.mkdir(f'folder-{n}')\n  time.sleep(0.0005)\n", MANY),
    "folders in each other": ("while True:\n  os.mkdir('d')\n  os.chdir('d')\n  time.sleep(0.0005)\n", MANY),
}


@pytest.mark.parametrize("hog", HOGS)
def test_a_hog_of_the_disk_ends_with_a_sentence_and_its_neighbour_and_the_host_live(small: HostUnderTest, hog: str) -> None:
    host = small
    neighbour = at_work(host, 8, 1)
    code, sentence = HOGS[hog]
    run_script(host, code, 2)
    seen = ended(host)
    assert seen.detail.startswith(sentence), seen.detail
    assert "its limit on this machine" in seen.detail
    assert not any(process.uid == host.uid_base + 7 for process in host.processes()), "nothing of it is left"
    undisturbed(host, 8, neighbour)
    at_work(host, 9, 3)


def test_what_it_has_written_is_kept_and_can_be_deleted_and_then_it_can_run_again(small: HostUnderTest) -> None:
    host = small
    written = host.result(7) / "model" / "large"
    code = "print('it begins', flush=True)\nopen(os.environ['RESULT_DIR'] + '/model/large', 'wb').write(b'x' * (40 << 20))\n"
    run_script(host, code + "time.sleep(1000)\n")
    seen = ended(host)
    assert re.search(r"its files take (3[2-9]|4\d) MiB", seen.detail), seen.detail  # it may have been measured while it was writing
    assert "its limit on this machine is 32 MiB." in seen.detail
    size = written.stat().st_size
    assert size >= 32 * MIB
    assert host.console(7) == "it begins\n"
    host.want(host.spec(7, "obey", attempt=2), 1)
    host.apply()
    again = host.until_run(7, lambda run: run.attempt == 2 and run.state == "exited", deadline_s=60)
    assert "its limit on this machine is 32 MiB." in again.detail
    assert written.stat().st_size == size
    written.unlink()
    host.want(host.spec(7, "obey", attempt=3), 1)
    host.apply()
    host.until_holding(7, 1)
    assert host.run(7).attempt == 3


FITS = """
from pathlib import Path
result = Path(os.environ["RESULT_DIR"])
with open(result / "sparse", "wb") as file:
    file.truncate(1 << 38)
(result / "one").write_bytes(b"x" * (20 << 20))
for number in range(20):
    os.link(result / "one", result / f"name-{number}")
(result / "round").symlink_to("/")
for _ in range(1500):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
(result / "ready").touch()
while not (result / "end").exists():
    time.sleep(0.01)
"""


def test_sparse_files_names_of_one_file_links_and_deep_folders_are_no_reason_to_end_a_run(small: HostUnderTest) -> None:
    host = small
    begun = time.monotonic()
    run_script(host, FITS)
    until(lambda: (host.result(7) / "ready").exists(), what=host.console(7))
    host.want(host.spec(8, "script", "main.py", code={"main.py": "import os, time\n" + HOGS["files"][0]}))
    host.apply()
    ended(host, 8)  # by then the other one was measured too, more than once: the disk has filled
    until(lambda: time.monotonic() > begun + 2.0)
    (host.result(7) / "end").touch()
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert seen.exit_code == 0, seen


def test_on_a_small_disk_it_ends_before_anybody_is_suspended(tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    """Nobody has set a limit."""
    host = make_host(tmp_path / "home")
    with small_disk(host.home / "runs", 400 * MIB) as disk:
        try:
            marks = {"EDT_DISK_LOW_BYTES": str(16 * MIB), "EDT_DISK_RESERVE_BYTES": "0"}
            host.start(environment=marks)
            neighbour = at_work(host, 8, 1)
            run_script(
                host, "file = open('large', 'wb')\nwhile True:\n  file.write(b'x' * (1 << 18))\n  file.flush()\n  time.sleep(0.004)\n"
            )
            seen = ended(host)
            assert "which leaves others some of what the disk had room for" in seen.detail
            assert disk.free() > 32 * MIB
            undisturbed(host, 8, neighbour)
            assert "is full" not in host.log()
        finally:
            host.clean_up()


def test_a_run_that_is_found_again_is_measured_by_the_next_host_and_one_whose_measurer_was_killed_too(small: HostUnderTest) -> None:
    host = small
    code = "go = os.environ['RESULT_DIR'] + '/go'\nwhile not os.path.exists(go): time.sleep(0.01)\n"
    run_script(host, code + "open('large', 'wb').write(b'x' * (40 << 20))\ntime.sleep(1000)\n")
    host.until_run(7, lambda run: run.state == "running")
    for who in until(lambda: measurers(host)):
        processes.send_signal(who, 9)
    until(lambda: "it was killed" in host.log())
    host.kill()
    host.start(environment=LIMITS)
    host.apply()
    (host.result(7) / "go").touch()
    assert ended(host).detail.startswith(MUCH)
    assert host.terminate() == 0
    assert measurers(host) == []


def measurers(host: HostUnderTest) -> list[processes.Process]:
    return [each for each in host.processes() if b"disk_use" in Path(f"/proc/{each.pid}/cmdline").read_bytes()]


def test_a_run_that_pretends_to_write_its_state_for_ever_is_ended_at_its_limit_when_it_is_to_stop(idle_host: HostUnderTest) -> None:
    """The host waits for a state that is being written, a quarter of an hour at most."""
    host = idle_host
    host.start(environment=LIMITS | {"EDT_STOP_GRACE_S": "100"})
    code = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nresult = os.environ['RESULT_DIR']\n"
        "while not os.path.exists(result + '/go'): time.sleep(0.01)\nfile = open(result + '/checkpoint/.engine.pt.new', 'wb')\n"
        "while True:\n  file.write(b'x' * (1 << 18))\n  file.flush()\n  time.sleep(0.01)\n"
    )
    run_script(host, code)
    host.until_run(7, lambda run: run.state == "running")
    host.want(host.spec(7, "script", "main.py"), stop=True)
    host.apply()
    (host.result(7) / "go").touch()
    seen = host.until_run(7, lambda run: run.state == "exited", deadline_s=60)
    assert seen.exit_code == -9, seen
    assert "a run takes too much of the disk" in host.log()


def test_a_log_that_grows_without_end_keeps_its_beginning_and_its_end_and_the_run_goes_on(idle_host: HostUnderTest) -> None:
    host = idle_host
    host.start(environment={"EDT_RUN_LOG": str(4 * MIB)})
    code = """
print("it begins", flush=True)
for number in range(200_000):
    print(f"line {number:06} " + "x" * 40, flush=number % 1000 == 0)
while not os.path.exists(os.environ["RESULT_DIR"] + "/end"):
    time.sleep(0.05)
print("it ends", flush=True)
"""
    run_script(host, code, 1)
    until(lambda: "MiB were left out here" in host.console(7), what="the log is cut", deadline_s=60)
    (host.result(7) / "end").touch()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 0
    log = host.console(7)
    lines = log.splitlines()
    assert len(log) < 4 * MIB
    assert (lines[0], lines[1][:11], lines[-2][:11], lines[-1]) == ("it begins", "line 000000", "line 199999", "it ends")
    assert "\0" not in log
    whole = [line for line in lines if line.startswith("line ") and len(line) == 52]
    assert len(whole) >= len(lines) - 6, "lines are cut off whole, but those beside the sentence"


def test_without_limits_nobody_measures(idle_host: HostUnderTest) -> None:
    host = idle_host
    host.start(environment={"EDT_RUN_DISK": "0", "EDT_RUN_FILES": "0", "EDT_RUN_LOG": "0"})
    run_script(host, "open('large', 'wb').write(b'x' * (40 << 20))\n" + ATTEMPT % "")
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 0
    assert measurers(host) == []
    assert not any("of the disk" in note or "files and folders" in note for note in host.look().node.sandbox_notes)


def test_a_limit_that_is_none_is_said_at_the_start_of_the_host(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_RUN_DISK": "7"}, wait=False)
    assert idle_host.process.wait(20) == 2
    assert "EDT_RUN_DISK=7: a share of the file system up to 1, or bytes from" in idle_host.log()
