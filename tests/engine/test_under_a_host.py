"""The engine under a real node host: whatever dies, the run goes on with the very next step, and nothing is left of it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.faults import FAULTS
from tests.engine.harness import DEADLINE_S, Run, weights
from tests.engine.scripts import SMALL
from tests.host.conftest import HostUnderTest, make_host, until  # noqa: F401 - a fixture
from training_runtime import journal

LONG = ("--epochs", "24", "--samples", "115", "--checkpoint", "0")  # 8 steps an epoch, 192 in all


def lines(host: HostUnderTest, run: int = 7) -> list[journal.Line]:
    return list(journal.follow(host.result(run) / journal.FILE_NAME))


def steps(host: HostUnderTest, run: int = 7) -> list[journal.Train]:
    return [line.event for line in lines(host, run) if isinstance(line.event, journal.Train)]


def until_step(host: HostUnderTest, step: int) -> None:
    until(lambda: len(steps(host)) >= step, deadline_s=DEADLINE_S, what=f"step {step}: {host.log()[-2000:]}{host.console(7)}")


def start(host: HostUnderTest) -> None:
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy", environment={"EDT_ORPHAN_GRACE_S": "20"})


def test_a_run_outlives_its_driver_its_host_and_both_together(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
    fixed: Callable[..., Run],
) -> None:
    host = make_host(tmp_path)
    start(host)
    host.want(host.spec(7, "main.py", *LONG, code={"main.py": SMALL}), 1, 2)
    host.apply()
    until_step(host, 40)
    os.kill(host.pid(7), signal.SIGKILL)
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1, 2), deadline_s=DEADLINE_S)
    until_step(host, len(steps(host)) + 30)
    driver = host.pid(7)
    host.kill()
    os.kill(driver, signal.SIGKILL)
    start(host)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited", deadline_s=DEADLINE_S)
    assert (seen.attempt, seen.exit_code, seen.holding) == (3, 0, ()), host.console(7)
    resumed = [line.event for line in lines(host) if isinstance(line.event, journal.Resumed)]
    assert len(resumed) == 2
    assert all(event.step >= 40 for event in resumed), "no checkpoint was written but by the workers that lost their driver"
    one = fixed(*LONG)
    assert [(e.step, e.epoch, tuple(e.metrics.items()), e.samples) for e in steps(host)] == one.train_lines()
    assert [(line.event.step, line.event.metrics) for line in lines(host) if isinstance(line.event, journal.Test)] == [
        (e.step, e.metrics) for e in one.events("test")
    ]
    assert weights(host.result(7)) == one.weights()


def test_a_run_continues_from_the_checkpoint_of_another_and_is_equal_to_one_that_did_both(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
    fixed: Callable[..., Run],
) -> None:
    host = make_host(tmp_path)
    start(host)
    few, many = ("--epochs", "3", "--samples", "115"), ("--epochs", "12", "--samples", "115")
    host.want(host.spec(7, "main.py", *few, code={"main.py": SMALL}), 1)
    host.apply()
    host.until_run(7, lambda run: run.exit_code == 0, deadline_s=DEADLINE_S)
    more = host.spec(8, "main.py", *many, code={"main.py": SMALL})
    host.want(dataclasses.replace(more, continue_from=str(host.result(7))), 1, 2)
    host.apply()
    host.until_run(8, lambda run: run.exit_code == 0, deadline_s=DEADLINE_S)
    one = fixed(*many)
    assert weights(host.result(8)) == one.weights()
    assert [(e.step, e.epoch, tuple(e.metrics.items()), e.samples) for e in steps(host, 8)] == one.train_lines()[24:]
    (resumed,) = [line.event for line in lines(host, 8) if isinstance(line.event, journal.Resumed)]
    assert (resumed.step, resumed.reason) == (24, "continued from the checkpoint of another run")


def test_a_worker_that_the_kernel_ends_at_the_limit_of_its_run_costs_a_step_and_the_run_goes_on(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
    fixed: Callable[..., Run],
) -> None:
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy", environment={"EDT_RUN_MEMORY": str(640 << 20)})
    if any("memory of a run is not limited" in note for note in host.look().node.sandbox_notes):
        pytest.skip("this machine lends no control groups to the tests")
    fault = {"phase": "backward", "step": 40, "rank": 1, "do": "kernel"}  # takes 1 GiB, and stays in the group that it is in
    env = {"FAULTS": json.dumps([fault]), "MEMORY_GROUP": os.devnull}
    host.want(host.spec(7, "main.py", *LONG, code={"main.py": FAULTS + SMALL}, env=env), 1, 2)
    host.apply()
    seen = host.until_run(7, lambda run: run.state == "exited", deadline_s=DEADLINE_S)
    assert (seen.attempt, seen.exit_code) == (1, 0), host.console(7)
    (warned,) = [line.event for line in lines(host) if isinstance(line.event, journal.Warned)]
    assert "the kernel says that memory ran out" in warned.message
    assert weights(host.result(7)) == fixed(*LONG).weights()


SLOW_DISK = """
import time
from training_runtime.elastic.worker import heartbeat
_write = heartbeat.Beating.write
def _slow(self, data):
    time.sleep(0.03)
    self._file.flush()
    return _write(self, data)
heartbeat.Beating.write = _slow
"""


def test_a_host_that_is_told_to_end_waits_for_a_state_on_its_way_to_a_slow_disk(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
) -> None:
    host = make_host(tmp_path)
    grace = {"EDT_STOP_GRACE_S": "1"}
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy", environment=grace, wait=False)
    until(host.is_up, deadline_s=DEADLINE_S, what="the host is up")
    host.want(host.spec(7, "main.py", *LONG, code={"main.py": SLOW_DISK + SMALL}), 1)
    host.apply()
    until_step(host, 40)
    before = len(steps(host))
    assert host.terminate(DEADLINE_S) == 0, host.log()
    suspended = [line.event.step for line in lines(host) if isinstance(line.event, journal.Suspended)]
    assert [step for step in suspended if step >= before], host.log()
    assert "it did not suspend within" not in host.log()
