"""Gradients summed over a process group: real processes, connections through the loopback device, deaths in the midst of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.collective_member import ENGINES, WORKERS, expected, layout
from tests.engine.harness import DEADLINE_S, ROOT
from tests.engine.scripts import HELD, SMALL
from training_runtime.elastic.comm import process_groups
from training_runtime.elastic.comm.segment import GenerationRecord, Segment
from training_runtime.elastic.processes import process_handles


class Crew:
    """So many members, and their driver: this process."""

    def __init__(self, workers: int) -> None:
        self.fd, self.own = os.memfd_create("segment"), os.pidfd_open(os.getpid())
        self.segment = Segment(self.fd, layout(), create=True)
        self.generation = 0
        for worker_id in range(workers):
            self.segment.clear_worker(worker_id)
        told, said = [os.pipe() for _ in range(workers)], [os.pipe() for _ in range(workers)]
        theirs = [fd for there, back in zip(told, said, strict=True) for fd in (there[0], back[1])]
        command = [sys.executable, "-m", "tests.engine.collective_member", *map(str, (self.fd, self.own, *theirs))]
        self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=[self.fd, self.own, *theirs])
        for fd in theirs:
            os.close(fd)
        self._to, self._from = [there[1] for there in told], [back[0] for back in said]
        self._unread = [b""] * workers
        self.pids: list[int] = []
        self.pids += [self.hear(worker_id)["ready"] for worker_id in range(workers)]

    def until_gone(self, worker_id: int) -> None:
        """Until it has ended, which the process that has forked it may know already."""
        end = time.monotonic() + DEADLINE_S
        while Path(f"/proc/{self.pids[worker_id]}").exists():
            assert time.monotonic() < end, "it lives"
            select.select([], [], [], 0.002)

    def until_stopped(self, worker_id: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while not process_handles.is_stopped(self.pids[worker_id]):
            assert time.monotonic() < end, "it goes on"
            select.select([], [], [], 0.002)

    def publish(self, *members: int, abort: bool = False) -> None:
        self.generation += 1
        self.segment.publish(GenerationRecord(self.generation, members, ()), abort=abort)

    def tell(self, members: tuple[int, ...], **told: object) -> None:
        for worker_id in members:
            os.write(self._to[worker_id], json.dumps({"way": "messages", "bucket_bytes": 2000, **told}).encode() + b"\n")

    def hear(self, worker_id: int, timeout_s: float = DEADLINE_S) -> dict:
        """The next that a member says."""
        end, pipe = time.monotonic() + timeout_s, self._from[worker_id]
        while b"\n" not in self._unread[worker_id]:
            assert select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0], f"member {worker_id} says nothing"
            data = os.read(pipe, 65536)
            assert data, f"member {worker_id} has ended"
            self._unread[worker_id] += data
        line, _, self._unread[worker_id] = self._unread[worker_id].partition(b"\n")
        return json.loads(line)

    def until(self, worker_id: int, word: str, timeout_s: float = DEADLINE_S) -> tuple[dict, list[dict]]:
        """What a member says with this word in it, and what it has said before that."""
        before: list[dict] = []
        end = time.monotonic() + timeout_s
        while word not in (said := self.hear(worker_id, end - time.monotonic())):
            before.append(said)
        return said, before

    def sums(self, members: tuple[int, ...], **told: object) -> list[dict[int, str]]:
        """What each of them comes to, by step, when they do this in a generation of their own."""
        self.publish(*members)
        self.tell(members, **told)
        found = []
        for worker_id in members:
            _, said = self.until(worker_id, "done")
            found.append({each["step"]: each["sums"] for each in said if "step" in each})
        return found

    def close(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if len(self.pids) < len(self._to):
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for fd in (*self._to, *self._from, self.fd, self.own):
            os.close(fd)


@pytest.fixture(scope="module")
def crew():
    made = Crew(WORKERS)
    yield made
    made.close()


@pytest.fixture
def doomed():
    """A crew for a test in which members die."""
    made = Crew(3)
    yield made
    made.close()


@pytest.mark.parametrize("way", ["messages", "pieces", "collectives"])
@pytest.mark.parametrize("workers", range(1, WORKERS + 1))
def test_the_sum_is_that_of_the_tree_for_any_number_of_workers_and_engines(crew, workers, way):
    members = tuple(range(WORKERS - workers, WORKERS))
    for engines in range(1, ENGINES + 1):
        for found in crew.sums(members, steps=3, engines=engines, way=way):
            assert found == {step: expected(step, engines) for step in range(3)}, f"{engines} engines"


@pytest.mark.parametrize("bucket_bytes", [1, 300, 1 << 20])
def test_how_large_the_buckets_are_changes_no_bit(crew, bucket_bytes):
    for found in crew.sums((0, 1, 2), steps=2, engines=7, bucket_bytes=bucket_bytes):
        assert found == {step: expected(step, 7) for step in range(2)}


@pytest.mark.parametrize("way", ["messages", "collectives"])
@pytest.mark.parametrize("engines", [2, 3, 6, 8])
def test_a_gradient_that_comes_when_its_bucket_is_under_way_is_in_the_sum(crew, engines, way):
    for found in crew.sums((0, 1, 3), steps=4, engines=engines, twice=True, way=way):
        assert found == {step: expected(step, engines, twice=True) for step in range(4)}


def test_a_member_that_is_killed_in_the_midst_costs_no_step_and_less_than_a_second(doomed):
    doomed.publish(0, 1, 2)
    doomed.tell((0, 1, 2), steps=6, engines=6, ends={"1": 3}, by={"1": "SIGKILL"})
    doomed.until_gone(1)
    died = time.monotonic()
    doomed.publish(0, 2, abort=True)
    for survivor in (0, 2):
        _, before = doomed.until(survivor, "moved")
        entered, _ = doomed.until(survivor, "entered")
        took = time.monotonic() - died
        _, after = doomed.until(survivor, "done")
        assert [said["step"] for said in (*before, *after) if "step" in said] == list(range(6))
        assert all(said["sums"] == expected(said["step"], 6) for said in (*before, *after) if "step" in said)
        assert took < 1.0, entered


def test_members_whose_peer_is_stopped_leave_it_when_the_driver_says_so(doomed):
    doomed.publish(0, 1, 2)
    doomed.tell((0, 1, 2), steps=5, engines=5, ends={"2": 2}, by={"2": "SIGSTOP"})
    doomed.until_stopped(2)
    stopped = time.monotonic()
    doomed.publish(0, 1, abort=True)  # nothing is closed: those who wait for it would wait for ever
    for survivor in (0, 1):
        doomed.until(survivor, "moved")
        doomed.until(survivor, "entered")
        assert time.monotonic() - stopped < 1.0
        _, after = doomed.until(survivor, "done")
        assert [said["sums"] for said in after if "step" in said] == [expected(step, 5) for step in range(2, 5)]


def test_a_member_is_left_alone_by_one_that_was_killed_and_one_that_was_stopped(doomed):
    doomed.publish(0, 1, 2)
    doomed.tell((0, 1, 2), steps=4, engines=3, ends={"1": 2, "2": 2}, by={"1": "SIGKILL", "2": "SIGSTOP"})
    doomed.until_gone(1)
    doomed.until_stopped(2)
    left = time.monotonic()
    doomed.publish(0, abort=True)
    doomed.until(0, "entered")  # the first generation
    doomed.until(0, "moved")
    doomed.until(0, "entered")
    assert time.monotonic() - left < 1.0
    _, after = doomed.until(0, "done")
    assert [said["sums"] for said in after if "step" in said] == [expected(step, 3) for step in range(2, 4)]


def test_who_gets_no_answer_does_not_wait_for_ever_though_nobody_says_who_is_to_blame(doomed):
    doomed.publish(0, 1, 2)
    doomed.tell((0, 1, 2), steps=5, engines=5, ends={"0": 1}, by={"0": "nothing"}, answer_s=0.3)
    for survivor in (1, 2):
        failed, _ = doomed.until(survivor, "failed")
        assert "gradients within 0.3 s" in failed["failed"]


HOLDS = "stay-1"


def tcp_connections(pid: int) -> int:
    """How many a process has, on whatever port."""
    held = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(str(fd.readlink()))
    established = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(f"socket:[{fields[9]}]" in held for fields in established if fields[3] == "01")


@pytest.mark.parametrize(("way", "connected"), [("collective", True), ("segment", False)])
def test_workers_of_a_run_are_connected_where_the_run_says_so_and_only_there(start, way, connected):
    run = start(HELD, env={"EDT_REDUCE": way})
    (run.result_dir / HOLDS).touch()
    run.members(0, 1)
    run.until_workers(2)
    found = [tcp_connections(pid) for pid in run.workers.values()]
    (run.result_dir / HOLDS).unlink()
    assert run.wait() == 0, run.tail()
    assert [count > 0 for count in found] == [connected] * 2


def test_a_way_that_there_is_not_is_refused_with_those_that_there_are(start):
    run = start(SMALL, env={"EDT_REDUCE": "nccl"})
    run.members(0)
    assert run.wait() == 1
    assert "EDT_REDUCE must be segment or collective, not nccl" in run.tail()


class Died(Exception):
    """What the driver says of a member."""


def cannot_connect() -> None:
    raise ConnectionResetError("Connection reset by peer")


def test_a_connection_that_was_reset_waits_for_what_the_driver_says_of_who_reset_it() -> None:
    forming: process_groups.Forming[None] = process_groups.Forming(cannot_connect)
    looks = iter(range(1000))

    def look() -> None:
        if next(looks) > 3:
            raise Died

    with pytest.raises(Died):
        forming.result(look, slice_s=0.001)


def test_where_nobody_died_the_error_itself_is_raised() -> None:
    forming: process_groups.Forming[None] = process_groups.Forming(cannot_connect)
    looks = []
    with pytest.raises(process_groups.NoGroup, match="Connection reset by peer"):
        forming.result(lambda: looks.append(1), slice_s=0.001, said_s=0.05)
    assert len(looks) > 1, "the driver was looked at meanwhile"
