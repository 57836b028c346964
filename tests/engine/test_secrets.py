"""Secrets under a real node host and the real driver: every kind of run has them, nothing that it leaves has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.harness import DEADLINE_S
from tests.engine.scripts import SMALL
from tests.host.conftest import HostUnderTest, make_host  # noqa: F401 - a fixture
from tests.host.test_secrets import found_in
from training_runtime import journal

SECRET = "sk-0ne.two/three"
_TRAIN = "FabricModel(model, data, nn.functional.cross_entropy, optimizer)"
ELASTIC = """
import os
print("driver", os.environ["TOKEN"])
class Tell:
    def on_epoch_begin(self, epoch):
        print("worker", os.environ["TOKEN"], flush=True)
        if epoch == 2:
            raise ValueError("401 for https://me:" + os.environ["TOKEN"])
""" + SMALL.replace(_TRAIN, _TRAIN[:-1] + ", user_callbacks=[Tell()])")
SINGLE = """
import os, urllib.parse
for step in range(1, 11):
    print({"step": step, "loss": 1 / step, "token": os.environ["TOKEN"]})
raise ValueError("401 for https://me:" + urllib.parse.quote(os.environ["TOKEN"], safe=""))
"""
TORCHRUN = """
import os, pathlib, time
print("rank", os.environ["RANK"], os.environ["TOKEN"], flush=True)
said = pathlib.Path(os.environ["RESULT_DIR"], "said")
if os.environ["RANK"] == "0":
    said.touch()
else:  # whose end is that of the other, too
    end = time.monotonic() + 60
    while not said.exists() and time.monotonic() < end:
        time.sleep(0.01)
    raise ValueError("401 for " + os.environ["TOKEN"])
"""


@pytest.fixture
def host(tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> Iterator[HostUnderTest]:  # noqa: F811
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy", environment={"EDT_STOP_GRACE_S": "10"})
    yield host


def ended(host: HostUnderTest, script: str, *, slots: tuple[int, ...] = (1,), env: dict[str, str] | None = None, **facts: object) -> str:
    """What the run left: its error's message and traceback, and all of its logs. Nothing below home has the secret."""
    spec = dataclasses.replace(host.spec(7, "main.py", code={"main.py": script}, env=env), secrets={"TOKEN": SECRET}, **facts)  # type: ignore[arg-type]
    host.want(spec, *slots)
    host.apply()
    assert host.until_run(7, lambda run: run.exit_code is not None, deadline_s=DEADLINE_S).exit_code == 1, host.console(7)
    assert found_in(host.home, SECRET, "sk-0ne.two%2Fthree") == []
    (failed,) = (line.event for line in journal.follow(host.result(7) / journal.FILE_NAME) if isinstance(line.event, journal.Failed))
    assert "***" in failed.message
    logs = sorted((host.result(7) / "log").glob("*/console.log"))
    return "\n".join([failed.message, failed.traceback, *(f"{log.parent.name}: {log.read_text()}" for log in logs)])


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_an_elastic_run_and_its_workers(host: HostUnderTest, way: str) -> None:
    left = ended(host, ELASTIC, slots=(1, 2), env={"EDT_START_METHOD": way})
    assert "401 for https://me:***" in left
    assert "driver: driver ***" in left
    assert left.count("worker ***") >= 2, left
    assert "worker-1" in left
    assert "worker-2" in left


def test_a_script_of_one_process_and_the_figures_that_it_prints(host: HostUnderTest) -> None:
    left = ended(host, SINGLE, elastic=False, max_slots=1)
    assert "401 for https://me:***" in left
    assert "{'step': 10, 'loss': 0.1, 'token': '***'}" in left
    events = [line.event for line in journal.follow(host.result(7) / journal.FILE_NAME)]
    assert [(each.step, each.metrics["loss"]) for each in events if isinstance(each, journal.Logged)][-1] == (10, 0.1)


def test_workers_of_torchrun(host: HostUnderTest) -> None:
    left = ended(host, TORCHRUN, slots=(1, 2), torchrun="fixed", max_slots=2)
    assert "401 for ***" in left
    assert "rank 0 ***" in left
    assert "rank 1 ***" in left
