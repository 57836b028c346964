"""What a run computed with, under a real node host and the real driver: noted once, by its own process, whatever kind of run it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.harness import DEADLINE_S
from tests.engine.scripts import SMALL
from tests.host.conftest import HostUnderTest, make_host  # noqa: F401 - a fixture
from training_runtime import journal

ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--depth", type=int, default=2)
args = parser.parse_args()
"""
TEXT = "print('no arguments')\n"


@pytest.fixture
def host(tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> Iterator[HostUnderTest]:  # noqa: F811
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy")
    yield host


SMALLS = {"optimizer": "Adam", "epochs": "1", "samples": "40", "batch": "4", "engines": "4", "checkpoint": "1"}
SMALLS |= {"sharded": "off", "dtype": "float32"}


@pytest.mark.parametrize(
    ("script", "said", "arguments"),
    [
        (SMALL, ("--epochs", "1", "--samples=40"), SMALLS),
        (ARGUMENTS, ("--lr", "0.3"), {"lr": "0.3", "depth": "2"}),
        (TEXT, ("--lr", "0.3"), {}),
    ],
)
def test_a_run_notes_what_it_computed_with(host: HostUnderTest, script: str, said: tuple[str, ...], arguments: dict[str, str]) -> None:
    spec = host.spec(7, "main.py", *said, code={"main.py": script}, env={"EDT_SEED": "11"})
    host.want(dataclasses.replace(spec, elastic=script is SMALL, max_slots=1), 1)
    host.apply()
    assert host.until_run(7, lambda run: run.exit_code is not None, deadline_s=DEADLINE_S).exit_code == 0, host.console(7)
    lines = [line.event for line in journal.follow(host.result(7) / journal.FILE_NAME)]
    setups = [event for event in lines if isinstance(event, journal.Setup)]
    assert {name: value for each in setups for name, value in each.arguments.items()} == arguments
    assert {name: value for each in setups for name, value in each.packages.items()}["torch"] == str(torch.__version__)
    assert {each.seed for each in setups} == {11}
    assert isinstance(lines[-1], journal.Finished)
