"""A script that is run as a single process computes in its run's driver: it begins when it has all of its slots, sees their GPUs and no
others, and has them until it ends.

The law on slots: this process is told to the host as the one that holds each of them, before the script's first line.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from training_runtime import journal, journal_writer
from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.torchrun.agent import generations
from training_runtime.elastic.torchrun.workers import gpus
from training_runtime.protocol import RunSpec, SlotRef, Worker

THREADS = "OMP_NUM_THREADS"
POOLS = (THREADS, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MOST_THREADS = 1024


def slots_of(spec: RunSpec, link: HostLink) -> tuple[SlotRef, ...]:
    """Wait until the host has granted all slots, and return them; empty if the run was stopped before."""
    while link.wanted is None or len(link.wanted.slots) < spec.max_slots:
        if link.stop is not None:
            return ()
        poll = select.poll()
        for fd in link.readable():
            poll.register(fd, select.POLLIN)
        poll.poll()
        link.poll()
    return link.wanted.slots[: spec.max_slots]


def settle(slots: tuple[SlotRef, ...], spec: RunSpec) -> None:
    """Make the GPUs of these slots visible to this process, and set its number of threads to theirs unless the user has set one."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus(slots))
    set_threads(len(slots), spec.env)


def set_threads(slots: int, said: Mapping[str, str]) -> None:
    """`said`: by the user."""
    threads = _number(said.get(THREADS, "")) or slots * (_number(os.environ.get("EDT_THREADS_PER_SLOT", "")) or 1)
    os.environ.update({name: str(threads) for name in POOLS if name not in said})
    torch.set_num_threads(threads)


def hold(slots: tuple[SlotRef, ...], link: HostLink, writer: journal_writer.Writer) -> None:
    """Tell the host that this process holds these slots, and record the start in the journal."""
    pid = os.getpid()
    ticks = process_handles.start_ticks(pid)
    link.hold(tuple(Worker(slot.id, pid, ticks) for slot in slots), forking=False)
    assert link.wanted is not None
    number = generations(Path(writer.path)) + 1
    writer.write(journal.Generation(number, 0, 0, (journal.Member(0, slots[0].id, pid),), 0, link.wanted.reason, 0.0, 0))
    with suppress(OSError):  # a full disk: the writer keeps it
        link.grown(writer.flush())


def _number(said: str) -> int:
    """0 for what is none, or none that makes sense."""
    return min(int(said), MOST_THREADS) if said.isascii() and said.isdigit() and len(said) < 10 else 0
