"""A run over two machines, as their node hosts live through it: its driver on the one, a remote agent on the other, each with its own
slots."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest, until
from training_runtime.host import processes, settings
from training_runtime.protocol import RunSpec

ADDRESS = {"EDT_NODE_ADDRESS": "127.0.0.1"}


@pytest.fixture
def alpha(tmp_path: Path, make_host: Callable[..., HostUnderTest]) -> HostUnderTest:
    host = make_host(tmp_path, "alpha")
    host.start(environment=ADDRESS)
    return host


@pytest.fixture
def beta(tmp_path: Path, alpha: HostUnderTest, make_host: Callable[..., HostUnderTest]) -> HostUnderTest:
    host = make_host(tmp_path, "beta")
    host.start(environment=ADDRESS)
    return host


def agent(spec: RunSpec, **more: object) -> RunSpec:
    return dataclasses.replace(spec, remote=True, **more)  # type: ignore[arg-type]


def shared(alpha: HostUnderTest, beta: HostUnderTest, *codes: str) -> RunSpec:
    """Run 7 with slots 1 and 2 of alpha, where its driver is, and 5 of beta; its remote agents end with these codes first."""
    spec = alpha.spec(7, "share", *codes)
    alpha.want(spec, 1, 2)
    beta.want(agent(spec), 5)
    alpha.apply()
    beta.apply()
    return spec


def starts(host: HostUnderTest) -> list[str]:
    path = host.result(7) / "remote-agent"
    return path.read_text().splitlines() if path.exists() else []


def test_each_machine_has_its_own_slots_of_the_run_and_its_own_log(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    shared(alpha, beta)
    home, guest = alpha.until_holding(7, 1, 2), beta.until_holding(7, 5)
    assert (home.remote, guest.remote) == (False, True)
    result = alpha.result(7)
    assert (result / "log" / "agent-beta" / "console.log").read_text() == "a remote agent speaks\n"
    code = result / "_submitted_code" / "run_7"
    assert (result / "driver").read_text().split() == [f"{result}/log/driver", "127.0.0.1", str(code), "1"]
    assert starts(beta) == [f"{result}/log/agent-beta 127.0.0.1 {code} 1"]


def test_a_remote_agent_has_no_journal_whatever_it_says(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    shared(alpha, beta)
    alpha.until_holding(7, 1, 2)
    assert beta.until_holding(7, 5).journal_bytes == 0
    beta.wanted.clear()
    beta.apply()
    until(lambda: beta.look().runs == (), what="the remote agent is gone")
    assert alpha.run(7).journal_bytes == (alpha.result(7) / "journal.jsonl").stat().st_size


def test_the_slots_of_a_machine_come_and_go_without_the_other_hearing_of_it(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    spec = shared(alpha, beta)
    alpha.until_holding(7, 1, 2)
    beta.until_holding(7, 5)
    driver = alpha.pid(7)
    beta.want(agent(spec), 5, 6)
    beta.apply()
    beta.until_holding(7, 5, 6)
    beta.want(agent(spec))
    beta.apply()
    beta.until_run(7, lambda run: run.holding == () and run.state == "running")
    beta.wanted.clear()
    beta.apply()
    until(lambda: beta.look().runs == (), what="the remote agent is stopped and forgotten")
    assert (alpha.pid(7), alpha.run(7).holding) == (driver, (1, 2))
    assert len((alpha.result(7) / "driver").read_text().splitlines()) == 1


def test_a_remote_agent_waits_until_its_runs_driver_has_begun(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    """Until then the run's folder belongs to nobody yet, and there is nobody to be found."""
    spec = alpha.spec(7, "share")
    beta.want(agent(spec), 5)
    beta.apply()
    waiting = beta.until_run(7, lambda run: run.detail.startswith("waiting for the run's driver"))
    assert (waiting.state, waiting.holding) == ("starting", ())
    alpha.want(spec, 1)
    alpha.apply()
    beta.until_holding(7, 5)


def test_a_remote_agent_without_slots_is_not_started(beta: HostUnderTest) -> None:
    beta.want(agent(beta.spec(7, "share")))
    assert beta.apply().runs == ()


def test_a_remote_agent_that_has_lost_its_driver_is_started_again_as_often_as_it_takes(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    shared(alpha, beta, "75", "75", "75", "75", "75")
    assert beta.until_holding(7, 5).abandoned is False
    assert len(starts(beta)) == 6
    assert alpha.run(7).attempt == 1


def test_a_remote_agent_that_fails_is_left_after_a_few_times_and_says_so(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    spec = shared(alpha, beta, "1", "1", "1", "1")
    left = beta.until_run(7, lambda run: run.abandoned)
    assert (left.state, left.holding, left.detail) == ("exited", (), "the remote agent ended with code 1")
    assert len(starts(beta)) == 4
    assert alpha.until_holding(7, 1, 2).attempt == 1, "its driver never heard of it"
    beta.want(agent(spec, attempt=2), 5)
    beta.apply()
    beta.until_holding(7, 5)


def test_a_remote_agent_that_is_killed_holds_its_slot_until_its_worker_is_gone_and_comes_again(
    alpha: HostUnderTest, beta: HostUnderTest
) -> None:
    shared(alpha, beta)
    beta.until_holding(7, 5)
    worker = next(run["workers"][0]["pid"] for run in beta.saved()["runs"])
    os.kill(beta.pid(7), signal.SIGKILL)
    beta.until_run(7, lambda run: run.holding == (5,) and len(starts(beta)) == 2)
    beta.until_holding(7, 5)
    gone = processes.look(worker)
    assert gone is None or gone.state in "ZX"


def test_a_host_that_died_finds_its_driver_and_its_remote_agent_again(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    shared(alpha, beta)
    other = beta.spec(8, "obey")
    beta.want(other, 6)
    beta.apply()
    beta.until_holding(7, 5)
    beta.until_holding(8, 6)
    before = beta.pid(7), beta.pid(8)
    beta.kill()
    beta.start(environment=ADDRESS)
    found = beta.until_holding(7, 5)
    assert (beta.pid(7), beta.pid(8)) == before
    assert (found.remote, found.journal_bytes, beta.run(8).remote) == (True, 0, False)
    assert len(starts(beta)) == 1


def test_a_run_that_moves_to_where_its_remote_agent_is_begins_there_when_that_is_gone(alpha: HostUnderTest, beta: HostUnderTest) -> None:
    spec = shared(alpha, beta)
    alpha.until_holding(7, 1, 2)
    beta.until_holding(7, 5)
    before = beta.pid(7)
    alpha.wanted.clear()
    alpha.apply()
    until(lambda: alpha.look().runs == (), what="nothing is left on the machine that it leaves")
    beta.want(dataclasses.replace(spec, attempt=2), 5)
    beta.apply()
    there = beta.until_run(7, lambda run: not run.remote and run.holding == (5,) and beta.saved_workers(7) == {5})
    assert (there.attempt, there.state) == (2, "running")
    gone = processes.look(before)
    assert gone is None or gone.state in "ZX"
    assert "it ended as the run's remote agent" in beta.log()


def test_a_machine_without_an_address_has_no_remote_agents_and_says_what_is_missing(
    tmp_path: Path, alpha: HostUnderTest, make_host: Callable[..., HostUnderTest]
) -> None:
    gamma = make_host(tmp_path, "gamma")
    gamma.start()
    spec = alpha.spec(7, "share")
    alpha.want(spec, 1)
    alpha.apply()
    alpha.until_holding(7, 1)
    gamma.want(agent(spec), 9)
    gamma.apply()
    left = gamma.until_run(7, lambda run: run.abandoned)
    assert left.detail == "gamma has no address under which other machines reach it (EDT_NODE_ADDRESS)"
    assert (gamma.look().node.address, alpha.look().node.address) == ("", "127.0.0.1")


@pytest.mark.parametrize("address", ["10.0.0.7", "gpu-1.lab.example.org", "alpha", "fd00::7", ""])
def test_an_address_is_a_name_or_an_ip(tmp_path: Path, address: str) -> None:
    given = settings.parse(["--home", str(tmp_path), "--node", "a"], {"EDT_NODE_ADDRESS": address})
    assert given.address == address


@pytest.mark.parametrize("address", ["10.0.0.7:8000", "-x", "a b", "http://alpha", "a\nb", "a" * 300])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--home", str(tmp_path), "--node", "a", "--address", address], {})
