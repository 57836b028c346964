"""Classifies why a worker died. What follows from it is decided in `failures`.

Some deaths have a cause in what was being done: an exception, a fatal signal, a lack of memory, descriptors that the script has closed. Of
the kernel's out-of-memory killer nothing tells but a counter of the whole machine.
"""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import torch

from training_runtime.elastic.driver.failures import FailureCause
from training_runtime.elastic.processes.reports import Dying

EXHAUSTED, DISCONNECTED = 86, 87  # status of a worker that had no memory left; of one that cannot speak to its driver any more
FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
_LATELY_S = 5.0


class FailureCauses:
    """Collects evidence of why the workers of one run die. `now` is seconds of a clock that only goes forward."""

    def __init__(self, now: float) -> None:
        self._reports: dict[int, Dying] = {}
        self._before = self._lately = (now, kernel_kills())

    def look(self, now: float) -> None:
        """Sample the kernel's count of kills, to compare with after a death. Call it periodically."""
        if now > self._lately[0] + _LATELY_S:
            self._before, self._lately = self._lately, (now, kernel_kills())

    def note(self, report: Dying) -> None:
        """Record the error that a worker reports before it exits."""
        self._reports[report.worker_id] = report

    def cause(self, worker_id: int, code: int) -> FailureCause | None:
        """The cause of death of `worker_id`, given its exit code (-N: signal N); None if there is no evidence."""
        report = self._reports.pop(worker_id, None)
        traceback, summary = (report.traceback, report.summary.rpartition(".errors.")[2]) if report is not None else ("", "")
        if code == EXHAUSTED:
            return FailureCause(f"ran out of memory ({summary or 'no memory was left to say more'})", True, traceback, no_memory=True)
        if code == DISCONNECTED:
            return FailureCause("lost its connections: something in the script closed descriptors that are not its own", True)
        if report is not None:
            kind = summary.split(":")[0]
            return FailureCause(f"raised {summary}", True, traceback, raised=kind, final=report.final, no_room=report.no_room)
        if code > 0:
            return FailureCause(f"exited with status {code}", True, raised=f"status {code}")
        if code == -signal.SIGKILL and kernel_kills() > self._before[1]:
            self._before = self._lately = (self._lately[0], kernel_kills())
            return FailureCause("was killed, and the kernel says that memory ran out (out-of-memory kill)", True, no_memory=True)
        return FailureCause(f"crashed ({signal.Signals(-code).name})", False) if -code in FATAL_SIGNALS else None


def kernel_kills() -> int:
    """Number of processes that this machine's kernel has killed for lack of memory; 0 if it does not report it."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether `error` is about memory that ran out, on the machine or on a device."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch's allocator for the CPU has no error class of its own.
    lacks = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return lacks or isinstance(error, (MemoryError, torch.OutOfMemoryError))
