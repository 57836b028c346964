"""A studio with two web processes and two control workers: each does all the work while the other is away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.studio import Studio, wait_until
from tests.platform.test_studio import child, refused, replaced

TWICE = {"EDT_WEB_PROCESSES": "2", "EDT_CONTROL_PROCESSES": "2", "EDT_WATCHDOG_S": "300"}
SUBMIT = """
from experiments import services
from experiments.models import TrainingRun, User
from tests import cast
alice = User.objects.get(username="alice")
project = services.create_project(by=alice, name=f"Run {TrainingRun.objects.count()}")
version = cast.definition(project, by=alice, max_slots=1)
services.create_and_run(project, by=alice, name="one", versions=[version])
print(TrainingRun.objects.order_by("pk").last().pk)
"""
GRANTED = "SELECT 1 FROM experiments_grant WHERE run_id = ?"


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    """That takes no process for hung within a test. The last of them ends it."""
    studio = Studio(settings=TWICE)
    try:
        studio.start()
        studio.account("alice")
        wait_until(
            lambda: (studio.home / "run" / "web-2.pid").exists() and (studio.home / "run" / "control-2.pid").exists(), "all processes"
        )
        yield studio
    finally:
        studio.close()


def ready(studio: Studio, name: str) -> None:
    log = studio.home / "log" / f"{name}.log"
    wait_until(lambda: log.exists() and " ready." in log.read_text(), f"{name} to be ready")


def serves(process: psutil.Process) -> bool:
    return any(each.status == psutil.CONN_LISTEN for each in process.net_connections())


def suspend(studio: Studio, process: psutil.Process) -> None:
    """While it does not write: stopped within a transaction it would keep everybody else from writing."""
    with (
        open(studio.home / "db.sqlite3-queue", "ab") as queue,
        contextlib.closing(sqlite3.connect(studio.home / "db.sqlite3", timeout=20, isolation_level=None)) as database,
    ):
        fcntl.flock(queue, fcntl.LOCK_EX)
        database.execute("BEGIN IMMEDIATE")
        process.suspend()
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "the process to be stopped")


def pages(studio: Studio, count: int) -> set[int]:
    found = set()
    for _ in range(count):
        with urllib.request.urlopen(f"{studio.url}/login/", timeout=30) as page:
            found.add(page.status)
    return found


@pytest.mark.timeout(240)
def test_runs_get_slots_while_a_control_worker_is_hung_whichever_of_them_has_the_clock(studio: Studio) -> None:
    for name in ("control", "control-2"):
        ready(studio, name)
    for name in ("control", "control-2"):
        hung = child(studio, name)
        suspend(studio, hung)
        run = int(studio.shell(SUBMIT).split()[-1])
        wait_until(lambda run=run: studio.rows(GRANTED, run), lambda name=name: f"slots without {name}\n{studio.tail()}")
        os.kill(hung.pid, signal.SIGCONT)
    granted = studio.rows("SELECT slot_id, COUNT(*) FROM experiments_grant WHERE released_at IS NULL GROUP BY slot_id HAVING COUNT(*) > 1")
    assert granted == [], "no slot was granted twice"


def test_pages_come_while_a_web_process_is_hung_or_starts_again(studio: Studio) -> None:
    first, second = child(studio, "web"), child(studio, "web-2")
    wait_until(lambda: serves(second), "the second to take connections")
    for one in (first, second):
        suspend(studio, one)
        try:
            assert pages(studio, 5) == {200}, "the other one answers"
        finally:
            one.resume()
    first.kill()
    assert pages(studio, 5) == {200}
    wait_until(lambda: replaced(studio, "web", first), "a new first one")
    assert studio.stop() == 0
    assert studio.processes() == []


def test_a_number_of_processes_that_cannot_be_gets_one_sentence() -> None:
    studio = Studio()
    try:
        assert "EDT_WEB_PROCESSES is 'two'" in refused(studio, "--port", "0", EDT_WEB_PROCESSES="two")
        assert "EDT_CONTROL_PROCESSES is '0'" in refused(studio, "--port", "0", EDT_CONTROL_PROCESSES="0")
    finally:
        studio.close()
