"""A run that continues from the checkpoint of another one gets a copy of it, and nothing else that lies there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest, has_landlock, is_root
from training_runtime.host.runs import inheritance
from training_runtime.protocol import RunSpec

USERS = ("own users", *(("one user",) if has_landlock else ()))


def forked(host: HostUnderTest, source: str | Path | None = None) -> RunSpec:
    return dataclasses.replace(host.spec(8, "obey"), continue_from=str(source or host.result(7)))


def checkpoint(host: HostUnderTest, run: int) -> Path:
    return host.result(run) / "checkpoint" / "engine.pt"


def test_it_begins_with_a_copy_of_the_other_runs_checkpoint(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    owner = checkpoint(host, 7).parent.stat().st_uid
    checkpoint(host, 7).write_bytes(b"the state of run 7")
    os.chown(checkpoint(host, 7), owner, -1)
    host.want(forked(host), 2)
    host.apply()
    host.until_holding(8, 2)
    assert inherited(host).read_bytes() == b"the state of run 7"
    assert not checkpoint(host, 8).exists()
    assert not is_root or inherited(host).stat().st_uid == inherited(host).parent.stat().st_uid


def test_a_checkpoint_of_its_own_is_not_overwritten(host: HostUnderTest) -> None:
    host.spec(7, "obey")
    checkpoint(host, 7).parent.mkdir()
    checkpoint(host, 7).write_bytes(b"the state of run 7")
    spec = forked(host)
    checkpoint(host, 8).parent.mkdir()
    checkpoint(host, 8).write_bytes(b"its own, further on")
    host.want(spec, 2)
    host.apply()
    host.until_holding(8, 2)
    assert checkpoint(host, 8).read_bytes() == b"its own, further on"
    assert not inherited(host).exists()


def test_a_remote_agent_leaves_that_to_its_driver(tmp_path: Path) -> None:
    spec = RunSpec(8, "x", "alice", ("main.py",), "/c", str(tmp_path / "8"), "", 4, continue_from=str(tmp_path / "7"), remote=True)
    assert inheritance.open_checkpoint(spec, tmp_path / "8") is None


def inherited(host: HostUnderTest) -> Path:
    """Under which the engine knows that it is not its own."""
    return checkpoint(host, 8).with_name("inherited.pt")


def no_file(host: HostUnderTest) -> None:
    checkpoint(host, 7).parent.mkdir()


def a_link(host: HostUnderTest) -> None:
    checkpoint(host, 7).parent.mkdir()
    secret = host.home / "secret"
    secret.write_text("secret")
    checkpoint(host, 7).symlink_to(secret)


def a_linked_folder(host: HostUnderTest) -> None:
    elsewhere = host.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "engine.pt").write_text("secret")
    checkpoint(host, 7).parent.symlink_to(elsewhere)


def a_pipe(host: HostUnderTest) -> None:
    checkpoint(host, 7).parent.mkdir()
    os.mkfifo(checkpoint(host, 7))


@pytest.mark.parametrize("trick", [no_file, a_link, a_linked_folder, a_pipe])
def test_what_is_no_checkpoint_is_refused_in_plain_words(host: HostUnderTest, trick: Callable[[HostUnderTest], None]) -> None:
    host.spec(7, "obey")
    trick(host)
    host.want(forked(host), 2)
    host.apply()
    seen = host.until_run(8, lambda run: run.state == "exited")
    assert seen.exit_code == 1
    assert f"the run to continue from has no checkpoint ({host.result(7)})" in seen.detail
    assert not inherited(host).exists()


def test_a_folder_that_is_not_a_run_beside_it_is_refused(host: HostUnderTest) -> None:
    host.want(forked(host, host.home), 2)
    host.apply()
    seen = host.until_run(8, lambda run: run.state == "exited")
    assert "is not the folder of a run beside this one" in seen.detail
