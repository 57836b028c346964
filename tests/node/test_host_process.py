"""The node host beside a link: started, found again, and replaced where it hangs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import groups
from tests.e2e.studio import wait_until
from training_runtime.errors import HostUnavailable
from training_runtime.host import client, processes
from training_runtime.log_rotation import LIMIT_BYTES
from training_runtime.node.host_process import HostProcess
from training_runtime.node.settings import Settings

Make = Callable[..., HostProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """`make(silent_s=...)`: as a link does; all are gone at the end."""
    (tmp_path / "runs").mkdir()
    made: list[HostProcess] = []

    def make(*, silent_s: float = 30.0) -> HostProcess:
        settings = Settings("http://127.0.0.1:1", tmp_path, tmp_path / "data", "edtn_x")
        made.append(HostProcess(settings, "beta", slots=2, lease_s=0.0, silent_s=silent_s))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.end(patience_s=20)
    wait_until(lambda: all(map(groups.are_gone, (tmp_path / "host").glob("*"))), "the end of its control groups", deadline_s=20)


def host_of(home: Path) -> int:
    """The host that answers there; 0 where none does."""
    try:
        for _ in client.subscribe(home, "beta", timeout_s=1, connect_timeout_s=1):
            found = processes.holder(home / "host" / "beta" / "host.lock")
            return found.pid if found is not None else 0
    except HostUnavailable:
        pass
    return 0


def test_a_host_that_hangs_is_ended_alone_and_another_one_started(make: Make, tmp_path: Path) -> None:
    make(silent_s=8.0)  # more than a start takes on a machine that is busy with other tests
    first = wait_until(lambda: host_of(tmp_path), "it has started")
    os.kill(first, signal.SIGSTOP)
    second = wait_until(lambda: (now := host_of(tmp_path)) != first and now, "another one answers")
    assert processes.look(first) is None
    assert processes.look(second) is not None


def test_a_host_that_a_link_has_left_is_found_by_the_next_which_can_end_it(make: Make, tmp_path: Path) -> None:
    left = make()
    first = wait_until(lambda: host_of(tmp_path), "it has started")
    left._ending.set()  # its process was killed: nobody tells the host
    left.join(10)
    found = make()
    wait_until(lambda: found.is_alive() and host_of(tmp_path) == first, "it goes on")
    assert not found.end(patience_s=20), "whether all of it is gone only who has started it can tell"
    wait_until(lambda: host_of(tmp_path) == 0, "it has ended")


def test_a_host_in_order_ends_with_its_link(make: Make, tmp_path: Path) -> None:
    made = make()
    wait_until(lambda: host_of(tmp_path), "it has started")
    assert made.end(patience_s=20)
    assert host_of(tmp_path) == 0


def test_what_a_host_has_said_does_not_fill_the_disk(make: Make, tmp_path: Path) -> None:
    """A script can have it say something many times a second, for weeks."""
    (tmp_path / "host.log").write_bytes(b"x" * (LIMIT_BYTES + 1))
    make()
    wait_until(lambda: host_of(tmp_path), "it has started")
    assert (tmp_path / "host.log").stat().st_size < LIMIT_BYTES
    assert (tmp_path / "host.log.1").stat().st_size == LIMIT_BYTES + 1


def test_nobody_is_ended_for_a_lock_that_is_held_in_another_container(make: Make, tmp_path: Path) -> None:
    """Who shares a folder by a volume or a network file system sees the lock, and has processes of its own under the number in it."""
    lock = tmp_path / "host" / "beta" / "host.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as held, subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            held.write(f"{stranger.pid}\n")
            held.flush()
            make(silent_s=0.3)
            log = tmp_path / "host.log"
            wait_until(lambda: (log.exists() and log.read_text()) or stranger.poll() is not None, "a host says why it cannot be one")
            assert stranger.poll() is None
        finally:
            stranger.kill()
