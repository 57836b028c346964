"""A script that computes in its driver, under a real node host and boxed in: it holds its slots until it has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tests.host.conftest import HostUnderTest, has_ended, make_host, until  # noqa: F401 - a fixture
from training_runtime import journal

SCRIPT = """
import os
import signal
import time

count = os.path.join(os.environ["RESULT_DIR"], "count")
steps = int(open(count).read()) if os.path.exists(count) else 0
asked = False


def ask(number, frame):
    global asked
    asked = True


signal.signal(signal.SIGTERM, ask)
print("began at", steps, os.getpid(), flush=True)
while not asked and not os.path.exists(os.path.join(os.environ["RESULT_DIR"], "enough")):
    steps += 1
    time.sleep(0.01)
with open(count, "w") as file:
    file.write(str(steps))
print("saved", steps, flush=True)
"""
DEADLINE_S = 60.0


def test_it_holds_its_slots_until_it_has_ended_and_begins_again_with_others(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
) -> None:
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy")
    spec = dataclasses.replace(host.spec(7, "main.py", code={"main.py": SCRIPT}), elastic=False, max_slots=2)
    host.want(spec, 1)
    host.apply()
    host.until_run(7, lambda run: run.state == "running" and run.holding == (1,), deadline_s=DEADLINE_S)
    assert "began" not in host.console(7), "it has not got all of its slots"

    host.want(spec, 1, 2, reason="two are free")
    host.apply()
    until(lambda: "began at 0" in host.console(7), deadline_s=DEADLINE_S, what=host.log()[-2000:])
    host.until_run(7, lambda run: run.holding == (1, 2), deadline_s=DEADLINE_S)
    first = host.pid(7)
    assert f"began at 0 {first}" in host.console(7), "its process is the one that is known to be on the slots"

    host.want(spec, reason="bob needs them")
    host.apply()
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (), deadline_s=DEADLINE_S)
    assert has_ended(first), "the slots were free while its process was there"
    assert "saved" in host.console(7), "it was told to end, and had the time to"

    host.want(spec, 2, 3, reason="two are free")
    host.apply()
    host.until_run(7, lambda run: run.holding == (2, 3), deadline_s=DEADLINE_S)
    until(lambda: host.console(7).count("began") == 2, deadline_s=DEADLINE_S, what=host.console(7))
    (host.result(7) / "enough").touch()
    ended = host.until_run(7, lambda run: run.state == "exited", deadline_s=DEADLINE_S)
    assert (ended.exit_code, ended.holding) == (0, ()), host.console(7)
    events = [line.event for line in journal.follow(host.result(7) / journal.FILE_NAME)]
    assert [each.generation for each in events if isinstance(each, journal.Generation)] == [1, 2]
    assert [each.outcome for each in events if isinstance(each, journal.Finished)] == ["completed"]


def test_one_that_crashes_says_each_time_why_it_is_started_again(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
) -> None:
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy")
    crash = """
import os, signal
print("told", os.environ.get("EDT_BEGUN_AGAIN"), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
"""
    host.want(dataclasses.replace(host.spec(7, "main.py", code={"main.py": crash}), elastic=False, max_slots=1), 1)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited", deadline_s=DEADLINE_S)
    assert (seen.exit_code, host.console(7)) == (-11, "told None\n" * 4)
    said = [line.event.message for line in journal.follow(host.result(7) / journal.FILE_NAME) if isinstance(line.event, journal.Warned)]
    assert said == [f"It is started again: the driver was killed by SIGSEGV; restart {number} of 3." for number in (1, 2, 3)]
