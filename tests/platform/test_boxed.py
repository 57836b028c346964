"""Work on people's files in boxed children: what hostile files make of it, who waits for whom, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from experiments.boxed import pool
from experiments.boxed.pool import Limits, Unreadable
from experiments.definitions import codework

ROOT = Path(__file__).resolve().parents[2]
USUAL = Limits(cpu_s=5, memory_bytes=512 << 20)
SLOW = [f"{number:02x}" for number in range(150)] * 800  # whose comparison takes minutes
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def at_home(home: Path) -> None:
    """Whatever is started here is started for a studio that is there."""


def ask(job: str, *, limits: Limits = USUAL, wall_s: float = 30.0, lane: pool.Lane = pool.PAGES, **said: Any) -> Any:
    return pool.ask(job, said, limits=limits, wall_s=wall_s, lane=lane)


def endless(*, cpu_s: int = 30, wall_s: float = 60.0) -> Any:
    """A comparison that goes on until its time is up, or it is killed."""
    texts = ["\n".join(random.Random(seed).sample(SLOW, len(SLOW))) for seed in (1, 2)]
    return ask("differences", limits=Limits(cpu_s, 768 << 20), wall_s=wall_s, path="a.txt", was=texts[0], now=texts[1], most=1)


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        threading.Event().wait(0.01)
    return found


def server() -> psutil.Process:
    return psutil.Process(pool._POOL.server().process.pid)


def at_work(count: int = 1) -> list[psutil.Process]:
    """The children, as soon as there are so many, each at its work."""

    def busy(child: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return bool(child.cpu_times().user > 0.05)
        return False  # it has just ended

    return until(lambda: len(found := list(filter(busy, server().children()))) >= count and found, f"{count} children at work")


def end_all() -> None:
    for child in server().children():
        with contextlib.suppress(psutil.Error):
            child.kill()


@contextlib.contextmanager
def held(count: int) -> Iterator[list[Future[Any]]]:
    """So many calls that go on for as long as the block, or they are ended."""
    with ThreadPoolExecutor(count) as threads:
        calls = [threads.submit(endless) for _ in range(count)]
        try:
            at_work(count)
            yield calls
        finally:
            end_all()


def answers() -> bool:
    return bool(codework.ask("coloured", path="main.py", text="x = 1").count("hl-n"))


def test_what_takes_too_long_is_ended_by_its_processor_time_or_by_the_clock_and_the_next_is_answered() -> None:
    with pytest.raises(Unreadable, match=r"^it took longer than 1 s$"):
        endless(cpu_s=1)
    with pytest.raises(Unreadable, match=r"^it took longer than 0\.5 s$"):
        endless(wall_s=0.5)
    until(lambda: not server().children(), "both are gone")
    assert answers()


def test_what_takes_too_much_memory_is_ended_by_it_and_the_next_is_answered() -> None:
    with pytest.raises(Unreadable, match=r"^it needs more memory than 256 MiB$"):
        ask("differences", limits=Limits(5, 256 << 20), path="a.txt", was="a\n" * 8_000_000, now="b\n" * 8_000_000, most=1)
    assert answers()


def test_what_is_nested_too_deeply_is_not_read() -> None:
    with pytest.raises(Unreadable, match=r"^it is nested too deeply$"):
        ask("requirements", path="pyproject.toml", text="x = " + "[" * 100_000, addresses=False)
    assert answers()


def test_a_child_that_dies_at_its_work_fails_that_call_alone() -> None:
    with held(2) as calls:
        at_work(2)[0].kill()
        until(lambda: any(call.done() for call in calls), "its call has failed")
        assert [call.done() for call in calls].count(True) == 1
        assert answers()
        failed = next(call for call in calls if call.done())
        with pytest.raises(Unreadable, match="more memory than there is"):  # only the kernel kills like that
            failed.result()


def test_a_fork_server_that_dies_is_replaced() -> None:
    assert answers()
    before = server()
    before.kill()
    assert answers()
    assert server().pid != before.pid


def test_those_who_fill_a_lane_but_for_one_delay_nobody_and_a_full_one_says_so() -> None:
    with held(pool.PAGES.size - 1):
        began = time.monotonic()
        assert answers()
        assert time.monotonic() - began < 3.0
        with ThreadPoolExecutor(1) as threads:
            last = threads.submit(endless)
            at_work(pool.PAGES.size)
            with pytest.raises(pool.Busy, match="others are at it just now"):
                ask("nothing", lane=dataclasses.replace(pool.PAGES, patience_s=0.05))
            assert ask("nothing", lane=pool.SEARCHES) is None, "another lane is free"
            end_all()
            with pytest.raises(Unreadable):
                last.result()


def test_many_threads_get_their_own_answers() -> None:
    def one(number: int) -> bool:
        return f"number_{number}" in codework.ask("coloured", path="a.py", text=f"number_{number} = 1")

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(one, range(60)))


async def test_it_is_asked_in_threads_and_never_on_an_event_loop() -> None:
    with pytest.raises(SynchronousOnlyOperation):
        ask("nothing")
    found = await asyncio.gather(*(sync_to_async(ask, thread_sensitive=False)("nothing") for _ in range(4)))
    assert found == [None] * 4


SCRIPT = """
import os, sys, threading
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings_test"
import django
django.setup()
from django.conf import settings
from pathlib import Path
settings.EDT_HOME = Path(sys.argv[1])
from experiments.boxed import pool
from tests.platform.test_boxed import ask, at_work, endless
"""
HANGING = (
    SCRIPT
    + """
threading.Thread(target=endless, daemon=True).start()
child, = at_work(1)
print(pool._POOL.server().process.pid, child.pid, flush=True)
threading.Event().wait()
"""
)
FORKING = (
    SCRIPT
    + """
ask("nothing")
before = pool._POOL.server().process.pid
if (pid := os.fork()) == 0:
    try:
        ask("nothing")
        print(before, pool._POOL.server().process.pid, flush=True)
    finally:
        os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
ask("nothing")
print(pool._POOL.server().process.pid, flush=True)
"""
)


def run(script: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, str(home)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_nothing_is_left_of_a_studio_that_is_killed(home: Path) -> None:
    with run(HANGING, home) as process:
        try:
            assert process.stdout is not None
            pids = [int(each) for each in process.stdout.readline().split()]
            assert len(pids) == 2
            assert all(psutil.pid_exists(pid) for pid in pids)
        finally:
            process.kill()
    until(lambda: not any(map(_runs, pids)), "the fork server and its child are gone")


def test_a_forked_process_has_a_fork_server_of_its_own_and_leaves_the_others_alone(home: Path) -> None:
    """As Celery's workers are."""
    with run(FORKING, home) as process:
        assert process.stdout is not None
        (before, own), (after,) = ([int(each) for each in line.split()] for line in process.stdout)
    assert process.returncode == 0
    assert before == after != own
    until(lambda: not _runs(before) and not _runs(own), "both are gone with who asked")


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def test_a_fork_server_outlives_the_thread_that_started_it_and_what_is_meant_for_the_studio(home: Path) -> None:
    pool._POOL.close()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(answers).result()
    before = server().pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(before, number)
    assert answers()
    assert server().pid == before


def test_the_web_server_has_a_fork_server_ready_before_somebody_asks(home: Path) -> None:
    command = [sys.executable, "-m", "webapp.studio.web", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "EDT_HOME": str(home)}) as process:
        try:
            found = until(lambda: [each.pid for each in psutil.Process(process.pid).children() if _serves(each)], "it has started one")
        finally:
            process.terminate()
    until(lambda: not any(map(_runs, found)), "it is gone with the web server")


def _serves(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("experiments/boxed" in word for word in process.cmdline())
    return False


def test_the_children_know_no_django_and_no_torch() -> None:
    others = ("django", "torch", "numpy", "experiments.models")
    program = f"import sys; from experiments.boxed import forkserver; print([name for name in {others} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_walls_are_those_that_this_machine_has() -> None:
    found = pool.walls()
    assert json.dumps(dataclasses.asdict(found))
    if os.geteuid() == 0:
        assert found.uid is not None
