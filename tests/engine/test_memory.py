"""Memory that a worker has before anybody waits for it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from tests.engine.harness import ROOT
from tests.engine.scripts import SMALL
from training_runtime.elastic.comm.prefault import Prefault
from training_runtime.elastic.comm.segment import Lane, Layout, Segment

ROW_BYTES = 8 << 20
LAYOUT = Layout(2, 3, 4, 1, 0, 0, (Lane(torch.float32, ROW_BYTES // 4, 0),))


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def is_allocated(fd: int, at: int) -> bool:
    try:
        return os.lseek(fd, at, os.SEEK_DATA) == at
    except OSError:  # nothing from here on
        return False


def test_rows_are_allocated_and_mapped_by_whoever_will_use_them():
    fd = os.memfd_create("test")
    try:
        newcomer, member = Segment(fd, LAYOUT, create=True), Segment(fd, LAYOUT)
        first = LAYOUT.offsets["rows"]
        Prefault(newcomer).allocate([1])
        held = [row for row in range(4) if is_allocated(fd, first + row * ROW_BYTES)]
        assert held == [0, 1], "its own row and the sum, and no other"
        Prefault(member).some(1e6)
        before = faults()
        member.lane(1, LAYOUT.lanes[0]).fill_(1.0)
        assert faults() - before < 500, "2048 pages were there"
    finally:
        os.close(fd)


def test_the_memory_that_a_state_went_through_is_given_back(start):
    run = start(SMALL, "--epochs", "100000")
    run.members(0)
    run.until_step(5)
    run.members(0, 1, 2)
    run.until_workers(3)

    def held() -> int:
        links = [path for pid in run.workers.values() for path in Path(f"/proc/{pid}/fd").iterdir() if "edt-state" in str(path.readlink())]
        assert links
        return sum(path.stat().st_size for path in links)

    run.until(lambda: held() == 0, what="an empty memfd")
    run.stop()
    assert run.wait() == 0, run.tail()


FREES = """
import resource, torch
from training_runtime.elastic.processes.worker_context import keep_freed_memory
keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = []
for _ in range(15):
    before = faults()
    torch.ones(8 << 20)
    found.append(faults() - before)
print(min(found[1:]))
"""


def test_a_step_uses_the_memory_of_those_before_it_again():
    found = subprocess.run([sys.executable, "-c", FREES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert int(found) < 100, "32 MB are 8192 pages"  # the least of many: a busy kernel may take pages back in between
