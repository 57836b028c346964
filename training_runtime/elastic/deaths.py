"""Why a worker died, and whether it would only happen again.

A death is answered by going on with those who are left. Some deaths have a cause in what was being done: a fatal signal, a lack of memory,
descriptors that the script has closed. They may be bad luck of one machine, so they are tried again; the third time at one place ends the
run. Of the kernel's out-of-memory killer nothing tells but a counter of the whole machine.
"""

from __future__ import annotations

import errno
import signal
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

EXHAUSTED, DISCONNECTED = 86, 87  # status of a worker that had no memory left; of one that cannot speak to its driver any more
FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
TIMES_AT_ONE_STEP = 3  # deaths with a cause before the same unit that fail the run: it would die for ever
_LATELY_S = 5.0


@dataclass(frozen=True)
class Cause:
    """In words; `traceback` where the worker could still give one. `known`: a person should be told, the signal alone does not say it."""

    what: str
    known: bool
    traceback: str = ""


class Deaths:
    """Those of one run. `now` is seconds of a clock that only goes forward."""

    def __init__(self, now: float) -> None:
        self._told: dict[int, str] = {}
        self._places: defaultdict[int, set[int]] = defaultdict(set)
        self._before = self._lately = (now, kernel_kills())

    def look(self, now: float) -> None:
        """Remember how often the kernel had killed a while ago. To be called now and then."""
        if now > self._lately[0] + _LATELY_S:
            self._before, self._lately = self._lately, (now, kernel_kills())

    def told(self, seat: int, traceback: str) -> None:
        """A worker says what it is about to die of."""
        self._told[seat] = traceback

    def cause(self, seat: int, code: int) -> Cause | None:
        """What the worker of `seat` died of, by its exit code (-N: signal N); None where nothing points to itself."""
        traceback = self._told.pop(seat, "")
        if code == EXHAUSTED:
            last = traceback.strip().splitlines()[-1:] or ["no memory was left to say more"]
            return Cause(f"ran out of memory ({last[0]})", True, traceback)
        if code == DISCONNECTED:
            return Cause("lost its connections: something in the script closed descriptors that are not its own", True)
        if code == -signal.SIGKILL and kernel_kills() > self._before[1]:
            self._before = self._lately = (self._lately[0], kernel_kills())
            return Cause("was killed, and the kernel says that memory ran out (out-of-memory kill)", True)
        return Cause(f"crashed ({signal.Signals(-code).name})", False) if -code in FATAL_SIGNALS else None

    def again(self, tick: int, occasion: int) -> bool:
        """Whether this was the last time that a death with a cause before unit `tick` is answered by trying again. Several at one
        `occasion` (generation, or process of a newcomer) are one: they may have died of the same."""
        self._places[tick].add(occasion)
        return len(self._places[tick]) >= TIMES_AT_ONE_STEP


def kernel_kills() -> int:
    """How often the kernel of this machine has killed a process for lack of memory; 0 where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether `error` says that there is no memory left, of the machine or of a device."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch's allocator for the CPU has no error class of its own.
    lacks = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return lacks or isinstance(error, (MemoryError, torch.OutOfMemoryError))
