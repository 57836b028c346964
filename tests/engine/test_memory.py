"""Memory that a worker has before anybody waits for it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.harness import ROOT, Run
from tests.engine.scripts import HELD, SMALL
from training_runtime.elastic.comm import give_back
from training_runtime.elastic.comm.give_back import GiveBack
from training_runtime.elastic.comm.prefault import Prefault
from training_runtime.elastic.comm.segment import STATE_ROOM, FlatBuffer, Layout, Segment
from training_runtime.elastic.tree import rows_needed

ROW_BYTES = 8 << 20
PAGE, ENGINES = 4096, 4  # of a row of SMALL's gradients, and how many engines it has
LAYOUT = Layout(2, 3, 4, 1, 0, 0, (FlatBuffer(torch.float32, ROW_BYTES // 4, 0, torch.float32),))


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
        member.flat_buffer(1, LAYOUT.flat_buffers[0]).fill_(1.0)
        assert faults() - before < 500, "2048 pages were there"
    finally:
        os.close(fd)


def opened(run: Run, name: str) -> int:
    """The memfd of that name, as the worker on slot 0 has it."""
    for path in Path(f"/proc/{run.workers[0]}/fd").iterdir():
        with suppress(FileNotFoundError):  # one that was open for a moment
            if name in str(path.readlink()):
                return os.open(path, os.O_RDONLY)
    raise AssertionError(f"no {name}")


def blocks(run: Run, name: str) -> int:
    """Of 512 bytes, that the memfd of this name takes."""
    fd = opened(run, name)
    try:
        return os.fstat(fd).st_blocks
    finally:
        os.close(fd)


def test_the_memory_that_a_state_went_through_is_given_back(start):
    run = start(SMALL, "--epochs", "100000")
    run.members(0)
    run.until_step(5)
    run.members(0, 1, 2)
    run.until_workers(3)

    run.until(lambda: blocks(run, "edt-state") == 0, what="an empty memfd")
    run.stop()
    assert run.wait() == 0, run.tail()


def rows_held(run: Run) -> int:
    """How many rows of the segment take memory: they are its last ones, each a page of SMALL's gradients."""
    fd = opened(run, "edt-segment")
    try:
        size = os.fstat(fd).st_size
        at, found = size - (1 + ENGINES) * PAGE, 0
        while at < size:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, begin, os.SEEK_HOLE)
            found += (at - begin) // PAGE
        return found
    except OSError:  # nothing from here on
        return found
    finally:
        os.close(fd)


def test_rows_that_fewer_workers_do_not_need_are_given_back(start, fixed):
    """By whoever stays, and only they: the sums are as they were."""
    args = ("--epochs", "24", "--samples", "115", "--checkpoint", "0")
    run = start("from training_runtime.elastic.comm import give_back\ngive_back.ROWS_REST_S = 0.0\n" + HELD, *args)
    fourth, seventh = (run.result_dir / f"stay-{epoch}" for epoch in (3, 6))  # before these epochs it stays as it is
    fourth.touch()
    seventh.touch()
    run.members(0, 1, 2, 3)
    run.until_step(24)
    assert (run.events("train")[-1].workers, rows_held(run)) == (4, 1 + rows_needed(4, ENGINES))
    run.members(0)
    fourth.unlink()
    run.until_step(48)
    assert (run.events("train")[-1].workers, rows_held(run)) == (1, 1 + rows_needed(1, ENGINES)), "and the row of the sum"
    run.members(0, 1, 2)
    seventh.unlink()
    assert run.wait() == 0, run.tail()
    one = fixed(*args)
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()


@pytest.fixture
def segment():
    fd = os.memfd_create("test")
    yield Segment(fd, LAYOUT, create=True)
    os.close(fd)


@pytest.fixture
def state_fd():
    fd = os.memfd_create("state")
    os.write(fd, b"x" * (16 << 20))
    yield fd
    os.close(fd)


def test_memory_is_given_back_a_piece_at_a_time(segment, state_fd):
    back = GiveBack(segment, 0, state_fd, {3})
    back.begin(1, (0, 1))
    sizes = [os.fstat(state_fd).st_blocks]
    while sizes[-1]:
        back.some(0.0)
        sizes.append(os.fstat(state_fd).st_blocks)
        assert sizes[-1] < sizes[-2]
    assert len(sizes) > 4
    assert os.fstat(state_fd).st_size == 16 << 20, "who has it mapped may still touch it"


def test_what_a_newcomer_needs_again_is_not_given_back(segment, state_fd):
    back = GiveBack(segment, 0, state_fd, {3})
    back.begin(1, (0, 1))
    segment.words[STATE_ROOM] = 1
    back.some(1.0)
    assert os.fstat(state_fd).st_blocks == (16 << 20) // 512


def test_only_the_first_worker_of_a_machine_gives_back(segment, state_fd):
    back = GiveBack(segment, 1, state_fd, {3})
    back.begin(1, (0, 1))
    back.some(1.0)
    assert os.fstat(state_fd).st_blocks == (16 << 20) // 512


def test_rows_in_use_are_kept(segment, monkeypatch):
    monkeypatch.setattr(give_back, "ROWS_REST_S", 0.0)
    Prefault(segment).allocate(range(4))
    empty = os.memfd_create("state")
    back = GiveBack(segment, 0, empty, {3, 2})
    back.begin(2, (0,))
    back.some(10.0)
    os.close(empty)
    first = LAYOUT.offsets["rows"]
    held = [row for row in range(4) if is_allocated(segment.fd, first + row * ROW_BYTES)]
    assert held == [0, 1, 2], "of three engines one worker holds two sums at a time"


@pytest.mark.parametrize(("members", "kept"), [((0,), False), ((0, 2), False), ((0, 1), True)], ids=["alone", "on two machines", "on one"])
def test_banks_of_an_optimizer_are_kept_where_workers_share_its_step_out(monkeypatch, members, kept):
    monkeypatch.setattr(give_back, "ROWS_REST_S", 0.0)
    fd, empty = os.memfd_create("segment"), os.memfd_create("state")
    layout = replace(LAYOUT, max_workers=4, machines=2, bank_bytes=ROW_BYTES, parameter_rows=1)
    segment, at = Segment(fd, layout, create=True), layout.offsets["state"]
    segment.tensor("state", torch.uint8, 3 * ROW_BYTES).fill_(7)
    segment.flat_buffer(0, layout.flat_buffers[0]).fill_(1.0)
    back = GiveBack(segment, 0, empty, {3})
    back.begin(2, members)
    back.some(1e6)
    assert is_allocated(fd, at) == is_allocated(fd, at + 3 * ROW_BYTES - 4096) == kept
    assert is_allocated(fd, layout.offsets["rows"]), "the sum lies behind them"
    os.close(fd)
    os.close(empty)


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
