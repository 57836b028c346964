"""The studio as a person starts and stops it: real Valkey, Celery workers, node host and web server, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.studio import REPOSITORY, Studio, wait_until

CHILDREN = {"broker", "host", "web", "link", "ingest", "control"}


@pytest.fixture
def studio() -> Iterator[Studio]:
    studio = Studio()
    try:
        yield studio
    finally:
        studio.close()


def all_up(studio: Studio) -> None:
    wait_until(lambda: {path.stem for path in (studio.home / "run").glob("*.pid")} == CHILDREN, "all processes", deadline_s=20)


def runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def child(studio: Studio, name: str) -> psutil.Process:
    return psutil.Process(int((studio.home / "run" / f"{name}.pid").read_text().split()[0]))


def replaced(studio: Studio, name: str, old: psutil.Process) -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return child(studio, name).pid != old.pid
    return False


def refused(studio: Studio, *arguments: str, **environment: str) -> str:
    """What a start that cannot be says; it ends with status 2, without a traceback and without a process."""
    done = subprocess.run(
        [sys.executable, "manage.py", "studio", *arguments],
        cwd=REPOSITORY,
        env={**studio.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_a_start_serves_the_first_page_and_ctrl_c_leaves_no_process(studio: Studio) -> None:
    studio.first = True
    studio.start()
    all_up(studio)
    wait_until(lambda: re.search(r"Log in as admin with the password \S{12,}", studio.tail()), "the first login", deadline_s=10)
    assert "WARNING" not in studio.output.read_text(), "nothing is wrong, and nothing says so"

    password = (studio.home / "secrets" / "broker_password").read_text()
    for process in studio.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that was at work for a moment
            assert not any(password in word for word in process.cmdline()), process
    assert not [name for name in child(studio, "host").environ() if re.search("PASSWORD|REDIS|DATABASE|SECRET|EMAIL", name)]

    for name in ("web", "ingest", "control"):  # forked, and named a moment later
        wait_until(lambda name=name: child(studio, name).cmdline()[0] == f"edt-studio: {name}", f"the name of {name}", deadline_s=20)
    for name in ("web", "link", "ingest", "control"):  # only the node host may carry torch
        assert "libtorch" not in Path(f"/proc/{child(studio, name).pid}/maps").read_text(), name
    assert child(studio, "web").memory_full_info().pss < 250 << 20

    for page in ("/login/", "/api/v1/docs"):  # these need no login; what they name is collected, under the name that they say
        text = urllib.request.urlopen(studio.url + page, timeout=30).read().decode()
        named = re.findall(r'"(/static/[^"]+)"', text)
        assert named
        for file in named:
            assert urllib.request.urlopen(studio.url + file, timeout=30).status == 200, file

    shown = studio.manage("person", "alice").split()
    code = f"from django.contrib.auth import authenticate\nprint(authenticate(username={shown[0]!r}, password={shown[1]!r}))"
    assert studio.shell(code) == "alice\n", "who is given an account by the command can log in"

    assert studio.stop() == 0
    assert studio.processes() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", studio.port), timeout=1)

    studio.output.unlink()
    studio.start()  # finds the data of the first
    wait_until(lambda: "EDT Studio is at" in studio.tail(), "the address", deadline_s=10)
    assert "password" not in studio.tail()


def test_a_taken_port_gets_one_sentence(studio: Studio) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert refused(studio, "--port", str(port)).startswith(f"CommandError: Port {port} on 127.0.0.1 is taken by another program")


def test_a_second_studio_on_the_same_data_gets_one_sentence_and_does_not_disturb_the_first(studio: Studio) -> None:
    studio.start()
    all_up(studio)
    said = refused(studio, "--port", "0")
    assert f"A studio with this data ({studio.home}) is already running: {studio.url}" in said
    assert {name for name in CHILDREN if runs(child(studio, name))} == CHILDREN


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"EDT_REDIS_URL": "redis://127.0.0.1:1/0"}, "The server that EDT_REDIS_URL names cannot be used"),
        ({"EDT_SLOTS": "many"}, "EDT_SLOTS is 'many'"),
        ({"EDT_NODE_ADDRESS": "alpha:8000"}, "EDT_NODE_ADDRESS is 'alpha:8000'"),
        ({"EDT_STOP_GRACE_S": "soon"}, "EDT_STOP_GRACE_S is 'soon'"),
        ({"DATABASE_URL": "sqlite:////proc/none/db.sqlite3"}, "The database cannot be used"),
    ],
)
def test_what_cannot_work_gets_one_sentence(studio: Studio, environment: dict[str, str], sentence: str) -> None:
    assert sentence in refused(studio, "--port", "0", **environment)


def test_a_home_that_cannot_be_written_to_gets_one_sentence(studio: Studio) -> None:
    assert "EDT_HOME (/proc/none) cannot be used" in refused(studio, "--port", "0", EDT_HOME="/proc/none")


def test_a_process_that_is_killed_is_started_again_with_nothing_left_of_the_old_one(studio: Studio) -> None:
    studio.start()
    all_up(studio)
    for name in ("web", "control", "broker"):
        old = child(studio, name)
        family = [old, *old.children(recursive=True)]
        old.kill()
        wait_until(lambda name=name, old=old: replaced(studio, name, old), f"a new {name}", deadline_s=20)
        wait_until(studio._answers, "the page again", deadline_s=20)
        gone = f"the end of the old {name} and what it had forked"
        wait_until(lambda family=family: not any(runs(process) for process in family), gone, deadline_s=10)
        assert f"{name} has ended unexpectedly" in (studio.home / "log" / "studio.log").read_text()


@pytest.fixture
def watchful() -> Iterator[Studio]:
    """A studio that waits for 6 s before it takes a process for hung."""
    studio = Studio(settings={"EDT_WATCHDOG_S": "6"})
    try:
        yield studio
    finally:
        studio.close()


def test_processes_that_hang_are_replaced(watchful: Studio) -> None:
    watchful.start()
    all_up(watchful)
    for worker in ("ingest", "control"):  # one that has not spoken yet would be given its whole time to start
        log = watchful.home / "log" / f"{worker}.log"
        wait_until(lambda log=log: " ready." in log.read_text(), f"the {worker} to be ready", deadline_s=60)
    wait_until(lambda: watchful.rows("SELECT 1 FROM experiments_node WHERE last_seen_at IS NOT NULL"), "the node", deadline_s=60)
    hung = {name: child(watchful, name) for name in CHILDREN}
    for process in hung.values():
        process.suspend()

    for name in CHILDREN:
        wait_until(lambda name=name: replaced(watchful, name, hung[name]), f"a new {name}", deadline_s=60)
    wait_until(watchful._answers, "the page again", deadline_s=40)
    said = (watchful.home / "log" / "studio.log").read_text()
    for name in CHILDREN:
        assert f"{name} has not answered for 6 s; it is killed and started again" in said


def test_killing_the_studio_leaves_the_node_host_alone_and_the_next_start_takes_it_over(studio: Studio) -> None:
    studio.start()
    all_up(studio)
    assert studio.process is not None
    host, others = child(studio, "host"), [child(studio, name) for name in CHILDREN - {"host"}]
    studio.process.send_signal(signal.SIGKILL)
    studio.process.wait(10)
    studio.start()  # at once, while the old ones are still ending (the first page may even come from the old web process)
    wait_until(lambda: not any(runs(process) for process in others), "the end of the old processes", deadline_s=30)
    all_up(studio)
    wait_until(studio._answers, "the page of the new web process", deadline_s=60)
    assert child(studio, "host") == host
    assert "was left running by an earlier studio and goes on" in (studio.home / "log" / "studio.log").read_text()
    assert studio.stop() == 0
    assert studio.processes() == []


def test_all_but_the_node_host_is_stopped_and_the_next_start_takes_it_over(studio: Studio) -> None:
    studio.start()
    all_up(studio)
    assert studio.process is not None
    host = child(studio, "host")
    assert "the node host and its runs go on" in studio.manage("stop", "--keep-training")
    assert studio.process.wait(10) == 0
    assert [process.pid for process in studio.processes("training_runtime.host")] == [host.pid]
    assert not {path.stem for path in (studio.home / "run").glob("*.pid")} - {"host"}
    assert stop_refused(studio).startswith("CommandError: No studio with this data")
    studio.start()
    all_up(studio)
    assert child(studio, "host") == host
    assert f"The node host (process {host.pid}) has ended" in studio.manage("stop", "--host-only")
    wait_until(lambda: replaced(studio, "host", host), "a new one")
    assert "The studio has stopped." in studio.manage("stop")
    assert studio.process.wait(10) == 0
    assert studio.processes() == []
    assert stop_refused(studio, "--host-only").startswith("CommandError: No node host of a studio with this data")


def stop_refused(studio: Studio, *arguments: str) -> str:
    command = [sys.executable, "manage.py", "stop", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=studio.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr.strip()


def test_a_second_ctrl_c_does_not_wait(studio: Studio) -> None:
    studio.start()
    all_up(studio)
    assert studio.process is not None
    os.kill(child(studio, "host").pid, signal.SIGSTOP)  # it will not end when asked
    studio.process.send_signal(signal.SIGINT)
    wait_until(lambda: not (studio.home / "run" / "web.pid").exists(), "the web process to be gone", deadline_s=20)
    studio.process.send_signal(signal.SIGINT)
    assert studio.process.wait(10) == 0
    assert studio.processes() == []
